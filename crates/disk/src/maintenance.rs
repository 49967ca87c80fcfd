//! When to collect garbage, make checkpoints and recompress: by the background thread, or by a
//! writer that cannot wait.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use parking_lot::MutexGuard;

use crate::{
    backing::{Backing, BackingError},
    error::DiskError,
    format::superblock::Superblock,
    gc::Manner,
    log::{LogState, Right},
    pack::Effort,
    settings::Profile,
    store::Store,
};

/// What maintenance is due.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Due {
    /// Free segments are few.
    pub(crate) low: bool,
    /// The log since the last checkpoint is long, or many pages changed.
    pub(crate) checkpoint: bool,
    /// So many pages changed that the next checkpoint takes a large part of the reserve.
    pub(crate) urgent: bool,
}

impl Store {
    /// What is due, as the log is.
    pub(crate) fn due(&self, log: &LogState) -> Due {
        let segments = &log.segments;
        let dirty = log.dirty.len() as u64 * PAGE_BYTES;
        let floor = segments.floor() as u64 * u64::from(segments.len());
        Due {
            low: segments.free() < segments.low(),
            checkpoint: log.since_checkpoint >= self.settings.tuning.checkpoint_every
                || dirty >= floor / 8,
            urgent: dirty >= floor / 4,
        }
    }

    /// Does what is due, or wakes the thread that does.
    pub(crate) fn do_what_is(&self, due: Due) -> Result<(), DiskError> {
        let inline = due.urgent || (due.checkpoint && !self.settings.background);
        if inline {
            let mut superblock = self.maintenance.lock();
            // Someone else may have done it while this thread waited.
            let still = self.due(&self.log.lock());
            if still.urgent || still.checkpoint {
                match self.checkpoint(&mut superblock, false) {
                    // The request itself is done. Whether there is room is for the next one to find
                    // out.
                    Err(DiskError::NoSpace(_)) => {}
                    result => result?,
                }
            }
        } else if due.low || due.checkpoint {
            self.wake.now();
        }
        Ok(())
    }

    /// Collects garbage until `right` reaches to a free segment, or says that there is no space.
    pub(crate) fn make_room(&self, right: Right) -> Result<(), DiskError> {
        let mut superblock = self.maintenance.lock();
        let wanted = self.log.lock().segments.keep(right) + 1;
        self.log.retry_stalled()?;
        let enough = self.free_segments(&mut superblock, wanted, self.manner(true))?;
        if enough {
            return Ok(());
        }
        self.counters.no_space.fetch_add(1, Ordering::Relaxed);
        Err(DiskError::NoSpace(
            "nothing is left to be collected; trim some or grow the backing".to_owned(),
        ))
    }

    /// Collects until so many segments are free; whether they are.
    fn free_segments(
        &self,
        superblock: &mut MutexGuard<'_, Superblock>,
        wanted: usize,
        manner: Manner,
    ) -> Result<bool, DiskError> {
        let rounds = 2 * self.log.lock().segments.count();
        let mut most = 0;
        let mut fruitless = 0;
        for _ in 0..rounds {
            let (free, (dead, pending), victim, volatile) = {
                let log = self.log.lock();
                let segments = &log.segments;
                let dead = segments.dead_before(u64::MAX, log.at.segment).len();
                let volatile = Some(log.accepted()).filter(|accepted| *accepted > log.durable);
                let victim = self.victim(&log, !manner.merge);
                // The next checkpoint moves the map pages that keep some from being dead.
                let pending = dead > 0 || (victim.is_none() && segments.has_stuck());
                (segments.free(), (dead, pending), victim, volatile)
            };
            if free >= wanted {
                return Ok(true);
            }
            most = most.max(free);
            if let (None, false, Some(accepted)) = (victim, pending, volatile) {
                // Only what is durable is collected, and nobody has flushed of late.
                self.log.commit(accepted)?;
                continue;
            }
            let enough = free + dead >= wanted + DEAD_WANTED || free <= FREE_LEAST;
            if pending && (enough || victim.is_none()) {
                self.checkpoint(superblock, false)?;
                let now = self.log.lock().segments.free();
                // What collections and the checkpoint take is not always less than what they give:
                // then there is no space.
                fruitless = if now > most { 0 } else { fruitless + 1 };
                if fruitless >= FRUITLESS_MOST {
                    return Ok(false);
                }
                continue;
            }
            let Some(victim) = victim.filter(|_| free >= FREE_LEAST) else {
                return Ok(false);
            };
            match self.collect(victim, manner) {
                Err(DiskError::NoSpace(_)) if dead > 0 => self.checkpoint(superblock, false)?,
                Err(DiskError::NoSpace(_)) => return Ok(false),
                result => result?,
            }
        }
        Ok(false)
    }

    /// How data is moved. In a hurry, and while requests come, units are copied as they are or
    /// packed quickly; merging them with their neighbours is for idle time, since those are soon
    /// overwritten again.
    fn manner(&self, hurry: bool) -> Manner {
        let effort = match self.profile {
            Profile::Fast => Effort::Quick,
            Profile::Balanced => Effort::Normal,
            Profile::Dense if hurry => Effort::Normal,
            Profile::Dense => Effort::Strong,
        };
        Manner {
            effort,
            merge: !hurry,
            repack: false,
        }
    }

    /// One round of the background thread's work, or of [`Disk::maintain`](crate::Disk::maintain):
    /// a checkpoint or a collection if one is due, and recompression if the device is idle. Whether
    /// anything was done.
    pub(crate) fn maintain(&self, idle: bool) -> Result<bool, DiskError> {
        let mut superblock = self.maintenance.lock();
        let due = self.due(&self.log.lock());
        // Where collecting came to nothing, it does so again until something was written.
        let logged = || self.log.lock().bytes_logged;
        if due.low && self.fruitless_at.load(Ordering::Relaxed) != logged() {
            let wanted = self.log.lock().segments.low();
            let enough = self.free_segments(&mut superblock, wanted, self.manner(!idle))?;
            if !enough {
                self.fruitless_at.store(logged(), Ordering::Relaxed);
            }
            return Ok(enough);
        }
        if due.checkpoint {
            self.checkpoint(&mut superblock, false)?;
            return Ok(true);
        }
        if idle {
            return self.rest(&mut superblock);
        }
        Ok(false)
    }

    /// What is done while nobody waits: what was accepted is made durable, free segments are given
    /// back, cold data is packed harder.
    fn rest(&self, superblock: &mut MutexGuard<'_, Superblock>) -> Result<bool, DiskError> {
        let (accepted, durable) = {
            let log = self.log.lock();
            (log.accepted(), log.durable)
        };
        if accepted > durable {
            self.log.commit(accepted)?;
            return Ok(true);
        }
        let cool = self.log.lock().segments.cool(0);
        if !cool.is_empty() {
            self.discard(&cool)?;
            return Ok(true);
        }
        if !self.settings.recompress {
            return Ok(false);
        }
        self.recompress(superblock)
    }

    /// Packs one cold segment harder, or makes the checkpoint that frees those it emptied.
    fn recompress(&self, superblock: &mut MutexGuard<'_, Superblock>) -> Result<bool, DiskError> {
        let effort = match self.profile {
            Profile::Fast => Effort::Quick,
            Profile::Balanced => Effort::Strong,
            Profile::Dense => Effort::Utmost,
        };
        let (weak, dead, spare) = {
            let log = self.log.lock();
            let spare = log.segments.free() > log.segments.low();
            let dead = log.segments.dead_before(u64::MAX, log.at.segment).len();
            (self.weakest(&log), dead, spare)
        };
        match weak {
            Some(segment) if spare => {
                let manner = Manner {
                    effort,
                    merge: true,
                    repack: true,
                };
                self.collect(segment, manner)?;
                Ok(true)
            }
            _ if dead > 0 => {
                self.checkpoint(superblock, false)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

impl Store {
    /// Writes zeroes to a free segment that the log will come to. Whether there was one to be written.
    ///
    /// A file system notes each first write to a place in its journal. On ext4 a batch of 4 KiB was flushed in 0.48 ms on a
    /// new file and in 0.21 ms where zeroes had been written before.
    fn prepare(&self) -> Result<bool, DiskError> {
        let Some(segment) = self.log.lock().segments.take_unready(READY) else {
            return Ok(false);
        };
        let written = write_zeroes(&*self.log.backing, segment, self.log.shape.segment_len);
        let mut log = self.log.lock();
        match written {
            Ok(()) => log.segments.made_ready(segment),
            // Nothing was lost: it is a free segment as before.
            Err(ref error) => {
                tracing::debug!(segment, %error, "preparing a segment");
                log.segments.cooled(&[segment]);
            }
        }
        Ok(written.is_ok())
    }
}

/// Fills a segment that holds nothing with zeroes.
pub(crate) fn write_zeroes(
    backing: &dyn Backing,
    segment: u32,
    segment_len: u32,
) -> Result<(), BackingError> {
    let zeroes = vec![0; (segment_len as usize).min(1 << 20)];
    let begin = u64::from(segment) * u64::from(segment_len);
    let mut done = 0;
    while done < segment_len as usize {
        let len = zeroes.len().min(segment_len as usize - done);
        backing.write(begin + done as u64, &[&zeroes[..len]])?;
        done += len;
    }
    Ok(())
}

/// How often the log was flushed of late, and how much for each.
#[derive(Debug, Default)]
struct Pulse {
    flushes: u64,
    logged: u64,
    /// Whether flushes are many and small.
    syncing: bool,
}

impl Pulse {
    /// Looks at the counters once more.
    fn feel(&mut self, store: &Store) {
        let flushes = store.counters.flushes.load(Ordering::Relaxed);
        let logged = store.log.lock().bytes_logged;
        let (more, bytes) = (flushes - self.flushes, logged - self.logged);
        // Too few to tell: as it was.
        if more >= FLUSHES_LEAST {
            self.syncing = bytes / more < SMALL_FLUSH;
            (self.flushes, self.logged) = (flushes, logged);
        }
    }
}

/// The background thread: waits until something is due or the device is idle.
pub(crate) fn run(store: &Arc<Store>) {
    let idle_after = store.settings.tuning.idle_ms;
    let prepares = store.log.backing.geometry().prepares;
    let mut pulse = Pulse::default();
    while !store.wake.stop.load(Ordering::Acquire) {
        let now = store.started.elapsed().as_millis() as u64;
        let last = store.counters.last_request_ms.load(Ordering::Relaxed);
        let idle = now.saturating_sub(last) >= idle_after;
        pulse.feel(store);
        let prepare = prepares && pulse.syncing && !idle;
        let done = store
            .maintain(idle)
            .and_then(|done| Ok(done || (prepare && store.prepare()?)));
        let busy = match done {
            Ok(busy) => busy,
            Err(error) => {
                tracing::warn!(%error, "background work");
                if store.log.lock().fatal().is_some() {
                    return;
                }
                false
            }
        };
        if !busy {
            let mut due = store.wake.due.lock();
            if !*due && !store.wake.stop.load(Ordering::Acquire) {
                store.wake.changed.wait_for(&mut due, NAP);
            }
            *due = false;
        }
    }
}

/// Bytes of log that a page of the map takes at most, with its record.
const PAGE_BYTES: u64 = 4096 + 32;
/// A checkpoint waits until it frees so many segments more than needed.
const DEAD_WANTED: usize = 2;
/// With so few free segments a checkpoint comes first, and with fewer nothing is collected: a
/// collection takes one, and the checkpoint after it another.
const FREE_LEAST: usize = 2;
/// Checkpoints in a row that gain no segment, before a store is held to be full.
const FRUITLESS_MOST: u32 = 3;
/// Segments that are kept ready while flushes are many and small.
const READY: usize = 2;
/// Flushes between two looks at their number, at least.
const FLUSHES_LEAST: u64 = 20;
/// Bytes of log a flush under which it counts as small.
const SMALL_FLUSH: u64 = 64 << 10;
/// How often the background thread looks whether the device is idle.
const NAP: Duration = Duration::from_millis(250);
