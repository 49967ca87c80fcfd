//! The segments: which are free, and how many live bytes the others hold.
//!
//! A segment is free, open (the log is in it or will go there next) or closed. A closed one without
//! live bytes is *dead*: it becomes free when a checkpoint is durable that began after its last
//! batch (`checkpoint`).

use std::collections::BTreeSet;

use crate::{format::entry::Entry, log::Right};

/// All segments of a store. The first holds the superblocks and is never used.
#[derive(Debug)]
pub(crate) struct Segments {
    all: Vec<Segment>,
    /// Free, and surely written before, so that the backing has all of their places: a small write
    /// is soon durable.
    ready: BTreeSet<u32>,
    /// Free, lowest number first, and not yet discarded: their pages exist on the backing, so
    /// writing is fast.
    warm: BTreeSet<u32>,
    /// Free and discarded.
    cold: BTreeSet<u32>,
    live: u64,
    len: u32,
    reserve: u32,
    /// Segments freed since the store was opened.
    pub(crate) freed: u64,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Segment {
    /// Bytes that the map refers to.
    pub(crate) live: u64,
    /// Bytes of batches in it.
    pub(crate) used: u32,
    /// The last batch written to it.
    pub(crate) last_seq: u64,
    pub(crate) state: SegmentState,
    /// Collecting it did not empty it: it holds damaged units, or map pages that the next
    /// checkpoint moves.
    pub(crate) stuck: bool,
    /// What it holds was packed at leisure.
    pub(crate) strong: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum SegmentState {
    #[default]
    Free,
    Open,
    Closed,
}

impl Segments {
    /// `count` segments of `len` bytes, all free but the first.
    pub(crate) fn new(count: u32, len: u32) -> Self {
        let mut all = vec![Segment::default(); count as usize];
        all[0].state = SegmentState::Open;
        Self {
            all,
            ready: BTreeSet::new(),
            warm: (1..count).collect(),
            cold: BTreeSet::new(),
            live: 0,
            len,
            reserve: reserve(count),
            freed: 0,
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.all.len() as u32
    }

    pub(crate) fn get(&self, segment: u32) -> Segment {
        self.all[segment as usize]
    }

    pub(crate) fn get_mut(&mut self, segment: u32) -> &mut Segment {
        &mut self.all[segment as usize]
    }

    /// Live bytes of all.
    pub(crate) fn live(&self) -> u64 {
        self.live
    }

    /// Live bytes there may be: what is left of all segments after the reserve.
    pub(crate) fn live_max(&self) -> u64 {
        u64::from((self.count() - 1).saturating_sub(self.reserve)) * u64::from(self.len)
    }

    /// Free segments.
    pub(crate) fn free(&self) -> usize {
        self.ready.len() + self.warm.len() + self.cold.len()
    }

    /// Free segments that user data may not take.
    pub(crate) fn floor(&self) -> usize {
        (self.count() as usize / 64)
            .max(4)
            .min(self.reserve as usize)
    }

    /// Free segments under which garbage is collected in the background.
    pub(crate) fn low(&self) -> usize {
        self.floor() + (self.count() as usize / 32).max(2)
    }

    /// Free segments that `right` must leave to others.
    pub(crate) fn keep(&self, right: Right) -> usize {
        match right {
            Right::User => self.floor(),
            Right::Trim | Right::Collect => 1,
            Right::Checkpoint => 0,
        }
    }

    /// Takes a free segment, unless `right` must leave what is left to others.
    pub(crate) fn take_free(&mut self, right: Right) -> Option<u32> {
        if self.free() <= self.keep(right) {
            return None;
        }
        let taken = self
            .ready
            .pop_first()
            .or_else(|| self.warm.pop_first())
            .or_else(|| self.cold.pop_first())?;
        self.all[taken as usize].state = SegmentState::Open;
        Some(taken)
    }

    /// The log goes to this segment.
    pub(crate) fn open(&mut self, segment: u32) {
        self.all[segment as usize] = Segment {
            state: SegmentState::Open,
            strong: true,
            ..Segment::default()
        };
    }

    /// Notes a batch. The segment counts as closed once the log has left it, see
    /// [`Segments::closed`].
    pub(crate) fn written(&mut self, segment: u32, seq: u64, used: u32) {
        let held = &mut self.all[segment as usize];
        held.last_seq = seq;
        held.used = used;
        held.state = SegmentState::Closed;
    }

    pub(crate) fn retain(&mut self, entry: Entry, share: u32) {
        if let Some(place) = entry.place() {
            self.all[place.segment as usize].live += u64::from(share);
            self.live += u64::from(share);
        }
    }

    pub(crate) fn release(&mut self, entry: Entry, share: u32) {
        if let Some(place) = entry.place() {
            self.all[place.segment as usize].live -= u64::from(share);
            self.live -= u64::from(share);
        }
    }

    /// Marks a segment as not free, when a store is opened.
    pub(crate) fn occupy(&mut self, segment: u32, last_seq: u64) {
        self.ready.remove(&segment);
        self.warm.remove(&segment);
        let held = &mut self.all[segment as usize];
        held.state = SegmentState::Closed;
        held.last_seq = held.last_seq.max(last_seq);
        held.used = self.len;
    }

    /// Marks a segment as one the log is in or will go to, when a store is opened.
    pub(crate) fn reserve(&mut self, segment: u32) {
        self.ready.remove(&segment);
        self.warm.remove(&segment);
        let held = &mut self.all[segment as usize];
        if held.state == SegmentState::Free {
            held.state = SegmentState::Open;
        }
    }

    /// The first segment that holds more live bytes than it has.
    pub(crate) fn overfull(&self) -> Option<u32> {
        let over = |segment: &Segment| segment.live > u64::from(self.len);
        self.all.iter().position(over).map(|number| number as u32)
    }

    /// Bytes of a segment.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Bytes of all segments but the first.
    pub(crate) fn capacity(&self) -> u64 {
        u64::from(self.count() - 1) * u64::from(self.len)
    }

    /// Whether collecting left something in any segment since the last checkpoint.
    pub(crate) fn has_stuck(&self) -> bool {
        self.all.iter().any(|segment| segment.stuck)
    }

    /// Lets collections try again what they could not empty.
    pub(crate) fn unstick(&mut self) {
        for segment in &mut self.all {
            segment.stuck = false;
        }
    }

    /// Closed segments, with their numbers. The one the log is in (`current`) is not among them.
    pub(crate) fn closed(&self, current: u32) -> impl Iterator<Item = (u32, Segment)> {
        let closed = move |&(number, segment): &(usize, &Segment)| {
            segment.state == SegmentState::Closed && number as u32 != current
        };
        self.all
            .iter()
            .enumerate()
            .filter(closed)
            .map(|(number, segment)| (number as u32, *segment))
    }

    /// Dead segments whose last batch is before `seq`.
    pub(crate) fn dead_before(&self, seq: u64, current: u32) -> Vec<u32> {
        self.closed(current)
            .filter(|(_, segment)| segment.live == 0 && segment.last_seq < seq)
            .map(|(number, _)| number)
            .collect()
    }

    /// Makes a segment free.
    pub(crate) fn free_up(&mut self, segment: u32) {
        debug_assert_eq!(self.all[segment as usize].live, 0);
        self.all[segment as usize] = Segment::default();
        self.ready.insert(segment);
        self.freed += 1;
    }

    /// Takes warm free segments beyond `keep` out, to be discarded: highest number first.
    pub(crate) fn cool(&mut self, keep: usize) -> Vec<u32> {
        let mut taken = Vec::new();
        while self.ready.len() + self.warm.len() > keep {
            let last = self.warm.pop_last();
            taken.extend(last.or_else(|| self.ready.pop_last()));
        }
        taken
    }

    /// Takes a free segment out to be written with zeroes, unless so many are ready or none is to spare.
    pub(crate) fn take_unready(&mut self, ready: usize) -> Option<u32> {
        if self.ready.len() >= ready || self.free() <= self.low() {
            return None;
        }
        self.warm.pop_first().or_else(|| self.cold.pop_first())
    }

    /// Puts back what was taken by [`Segments::take_unready`] and written.
    pub(crate) fn made_ready(&mut self, segment: u32) {
        self.ready.insert(segment);
    }

    /// Puts back what was taken by [`Segments::cool`] and discarded.
    pub(crate) fn cooled(&mut self, segments: &[u32]) {
        self.cold.extend(segments);
    }
}

/// Segments kept back: 7 %, at least 8, since 4 free ones are kept back and the log has 3 for
/// itself.
pub(crate) fn reserve(count: u32) -> u32 {
    (count - 1).saturating_mul(7).div_ceil(100).max(8)
}
