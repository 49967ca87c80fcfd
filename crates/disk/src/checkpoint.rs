//! Checkpoints: the map's changed pages go to the log, and the superblock names the new root.
//!
//! Writers go on meanwhile. So a checkpoint is *fuzzy*: its pages may hold entries of records
//! behind the place `P` that replay starts from. That is harmless, because replay applies all
//! records from `P` on, in order and unconditionally, and everything up to the last page written is
//! durable before the superblock is.
//!
//! Order, each step durable before the next:
//! 1. the log up to the last page (one commit);
//! 2. the superblock, one copy and then the other;
//! 3. only now dead segments are free. A segment is dead for this checkpoint if it was closed
//!    before `P` and held no live byte when the last page had been appended: no page of the new
//!    tree, and no record from `P` on, refers to it.

use std::collections::BTreeSet;

use crate::{
    error::DiskError,
    format::{
        BLOCK, FANOUT, GRANULE,
        entry::Entry,
        superblock::{COPIES, LogPosition, Superblock},
        unit::Tag,
    },
    log::{Item, Right},
    pack::{Effort, Tools},
    settings::Profile,
    store::Store,
};

impl Store {
    /// Makes a checkpoint and frees what it makes free. `superblock` is the guarded one of
    /// `maintenance`.
    pub(crate) fn checkpoint(
        &self,
        superblock: &mut Superblock,
        clean: bool,
    ) -> Result<(), DiskError> {
        let replay = self.log.cut()?;
        let (dirty, above) = {
            let mut log = self.log.lock();
            (
                std::mem::take(&mut log.dirty),
                std::mem::take(&mut log.dirty_above),
            )
        };
        let result = self.write_tree(&dirty, &above).and_then(|()| {
            let (dead, target) = {
                let log = self.log.lock();
                let dead = log.segments.dead_before(replay.seq, log.at.segment);
                (dead, log.accepted())
            };
            #[cfg(test)]
            if self.log.sabotage == Some(crate::tests::Sabotage::FreeEarly) {
                self.free(&dead)?;
            }
            self.log.commit(target)?;
            self.write_superblock(superblock, replay, clean)?;
            self.free(&dead)
        });
        if result.is_err() {
            let mut log = self.log.lock();
            for page in dirty {
                if self.log.map.soil(page) {
                    log.dirty.push(page);
                }
            }
            log.dirty_above.extend(above);
        }
        self.log.lock().segments.unstick();
        let count = &self.counters.checkpoints;
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        result
    }

    /// Appends the pages that changed, from the lowest level up.
    fn write_tree(&self, dirty: &[u32], above: &BTreeSet<(u8, u32)>) -> Result<(), DiskError> {
        let levels = self.log.lock().tree.len();
        let mut changed: BTreeSet<u32> = dirty.iter().copied().collect();
        for level in 0..levels as u8 {
            changed.extend(above.iter().filter(|(at, _)| *at == level).map(|(_, i)| i));
            self.write_pages(level, &changed)?;
            changed = changed.iter().map(|page| page / FANOUT as u32).collect();
        }
        Ok(())
    }

    fn write_pages(&self, level: u8, pages: &BTreeSet<u32>) -> Result<(), DiskError> {
        let effort = match self.profile {
            Profile::Fast => Effort::Quick,
            _ => Effort::Normal,
        };
        let mut tools = Tools::default();
        let mut units = Vec::new();
        let mut ends: Vec<(u32, usize, usize)> = Vec::new();
        let mut left = pages.iter().copied().peekable();
        while let Some(index) = left.next() {
            let begin = units.len();
            if let Some(bytes) = self.page(level, index) {
                let tag = Tag::Page {
                    level,
                    index: index.into(),
                };
                tools.pack(&bytes, tag, effort, &mut units);
                ends.push((index, begin, units.len()));
                units.resize(units.len().next_multiple_of(GRANULE), 0);
            } else {
                self.log.lock().set_page(level, index, None);
            }
            if units.len() >= GROUP || left.peek().is_none() {
                let items: Vec<Item<'_>> = ends
                    .iter()
                    .map(|&(index, begin, end)| Item::Page {
                        level,
                        index,
                        bytes: &units[begin..end],
                    })
                    .collect();
                self.append_own(&items, Right::Checkpoint)?;
                units.clear();
                ends.clear();
            }
        }
        Ok(())
    }

    /// The bytes of a page; `None` if nothing is in it.
    fn page(&self, level: u8, index: u32) -> Option<[u8; BLOCK]> {
        let mut entries = [Entry::NONE; FANOUT];
        if level == 0 {
            if !self.log.map.take(index, &mut entries) {
                return None;
            }
        } else {
            let log = self.log.lock();
            let below = log.tree[usize::from(level) - 1]
                .chunks(FANOUT)
                .nth(index as usize)?;
            entries[..below.len()].copy_from_slice(below);
        }
        if entries.iter().all(|entry| *entry == Entry::NONE) {
            return None;
        }
        let mut bytes = [0; BLOCK];
        for (to, entry) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(entries) {
            *to = entry.0.to_le_bytes();
        }
        Some(bytes)
    }

    /// Appends with the store's own `right` to the last free segments. The caller holds
    /// `maintenance`.
    pub(crate) fn append_own(&self, items: &[Item<'_>], right: Right) -> Result<u64, DiskError> {
        let none = || Err(DiskError::NoSpace("no free segment is left".to_owned()));
        Ok(self.log.append(items, right, none)?.blocks)
    }

    /// Writes both copies, each durable before the next step.
    fn write_superblock(
        &self,
        superblock: &mut Superblock,
        replay: LogPosition,
        clean: bool,
    ) -> Result<(), DiskError> {
        let root = {
            let log = self.log.lock();
            log.tree.last().map_or(Entry::NONE, |top| top[0])
        };
        superblock.generation += 1;
        superblock.epoch = self.log.shape.epoch;
        superblock.root = root;
        superblock.replay = replay;
        superblock.clean = clean;
        let bytes = superblock.write();
        // The generation's parity says which copy is first. So after a crash that tore one of them
        // the torn one is written again first, and the whole one stays until that is durable.
        let first = superblock.generation as usize % 2;
        #[cfg(test)]
        let first = match self.log.sabotage {
            Some(crate::tests::Sabotage::SuperblockOrder) => 0,
            _ => first,
        };
        for copy in [COPIES[first], COPIES[1 - first]] {
            let written = self.log.backing.write(copy, &[&bytes]);
            written.map_err(|error| self.log.fail(&error))?;
            self.log.flush_backing()?;
        }
        Ok(())
    }

    /// Makes dead segments free, and discards all free ones but those that are soon used again.
    fn free(&self, dead: &[u32]) -> Result<(), DiskError> {
        let cool = {
            let mut log = self.log.lock();
            for &segment in dead {
                if log.segments.get(segment).live == 0 {
                    log.segments.free_up(segment);
                }
            }
            let keep = self.settings.tuning.warm_bytes / u64::from(self.log.shape.segment_len);
            log.segments.cool(keep as usize)
        };
        self.discard(&cool)
    }

    /// Discards free segments that [`Segments::cool`](crate::segments::Segments::cool) gave out.
    pub(crate) fn discard(&self, segments: &[u32]) -> Result<(), DiskError> {
        let len = u64::from(self.log.shape.segment_len);
        for &segment in segments {
            // What cannot be discarded is merely not given back; a backing that is gone fails at
            // the next write.
            if let Err(error) = self.log.backing.discard(u64::from(segment) * len, len) {
                tracing::debug!(segment, %error, "discard");
            }
        }
        self.log.lock().segments.cooled(segments);
        Ok(())
    }
}

/// Bytes of pages appended at once.
const GROUP: usize = 256 << 10;
