//! What is behind the log's lock.

use std::{collections::BTreeSet, sync::Arc};

use super::{Batch, Open};
use crate::{
    error::DiskError,
    format::{
        batch::{Kind, Record},
        entry::{Entry, Place},
        superblock::LogPosition,
    },
    map::Map,
    segments::Segments,
};

/// Everything behind the log's lock.
#[derive(Debug)]
pub(crate) struct LogState {
    pub(super) open: Option<Open>,
    /// Where the next batch begins.
    pub(crate) at: LogPosition,
    /// Sealed, and not yet known to be written together with all before.
    pub(super) written_early: BTreeSet<u64>,
    /// Every batch up to this is written.
    pub(super) written: u64,
    /// Every batch up to this is durable.
    pub(crate) durable: u64,
    pub(super) committing: bool,
    /// Batches the backing had no space for. They stay in memory and are tried again.
    pub(super) stalled: Vec<Arc<Batch>>,
    pub(crate) poison: Option<String>,
    pub(crate) closed: bool,
    pub(crate) segments: Segments,
    /// Map pages changed since they were last copied for a checkpoint.
    pub(crate) dirty: Vec<u32>,
    /// Places of the map's pages: `tree[0]` of pages of blocks, `tree[n + 1]` of pages of
    /// `tree[n]`'s entries.
    pub(crate) tree: Vec<Vec<Entry>>,
    /// Pages above level 0 to be written though none below them changed.
    pub(crate) dirty_above: BTreeSet<(u8, u32)>,
    /// Bytes of log since the last checkpoint began.
    pub(crate) since_checkpoint: u64,
    /// Bytes written to the log since the store was opened.
    pub(crate) bytes_logged: u64,
    /// Blocks that hold data.
    pub(crate) data_blocks: u64,
    /// Blocks that were written as zeroes.
    pub(crate) zero_blocks: u64,
    /// Batches replayed when the store was opened.
    pub(crate) replayed: u64,
}

impl LogState {
    pub(crate) fn new(at: LogPosition, segments: Segments, tree: Vec<Vec<Entry>>) -> Self {
        Self {
            open: None,
            at,
            written_early: BTreeSet::new(),
            written: at.seq - 1,
            durable: at.seq - 1,
            committing: false,
            stalled: Vec::new(),
            poison: None,
            closed: false,
            segments,
            dirty: Vec::new(),
            tree,
            dirty_above: BTreeSet::new(),
            since_checkpoint: 0,
            bytes_logged: 0,
            data_blocks: 0,
            zero_blocks: 0,
            replayed: 0,
        }
    }

    /// Counts everything before where the log is now as written and durable, after a replay.
    pub(crate) fn resume(&mut self) {
        self.written = self.at.seq - 1;
        self.durable = self.at.seq - 1;
    }

    /// Why nothing more can be written for good.
    pub(crate) fn fatal(&self) -> Option<DiskError> {
        if let Some(reason) = &self.poison {
            return Some(DiskError::Poisoned(reason.clone()));
        }
        self.closed.then_some(DiskError::Closed)
    }

    /// Why nothing more can be appended now.
    pub(crate) fn error(&self) -> Option<DiskError> {
        let full = || {
            let what = "the backing is full; free some, then flush";
            (!self.stalled.is_empty()).then(|| DiskError::NoSpace(what.to_owned()))
        };
        self.fatal().or_else(full)
    }

    /// The batch that holds the last record appended.
    pub(crate) fn accepted(&self) -> u64 {
        let open = self.open.as_ref().filter(|open| !open.table.is_empty());
        open.map_or(self.at.seq - 1, |open| open.batch.seq)
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.at.seq - 1 - self.written
    }

    /// Sets the entries that `record` sets; `place` is where its unit is.
    pub(crate) fn apply(&mut self, map: &Map, record: &Record, place: Place) {
        let Self {
            segments,
            dirty,
            data_blocks,
            zero_blocks,
            ..
        } = self;
        let blocks = record.count as usize;
        let creates = record.kind != Kind::Trim;
        map.update(
            record.first,
            record.count.into(),
            dirty,
            creates,
            |i, old| {
                let new = match record.kind {
                    Kind::Zero => Entry::ZERO,
                    Kind::Trim => Entry::NONE,
                    _ if record.mask >> i & 1 == 0 => return old,
                    _ => Entry::data(place, i as usize, blocks),
                };
                *data_blocks -= u64::from(old.place().is_some());
                *data_blocks += u64::from(new.place().is_some());
                *zero_blocks -= u64::from(old == Entry::ZERO);
                *zero_blocks += u64::from(new == Entry::ZERO);
                segments.release(old, old.share());
                segments.retain(new, new.share());
                new
            },
        );
    }

    /// Notes where a page of the map is now.
    pub(crate) fn set_page(&mut self, level: u8, index: u32, place: Option<Place>) {
        let entry = place.map_or(Entry::NONE, |place| Entry::data(place, 0, 1));
        let held = &mut self.tree[usize::from(level)][index as usize];
        let old = std::mem::replace(held, entry);
        self.segments.release(old, old.share());
        self.segments.retain(entry, entry.share());
    }
}
