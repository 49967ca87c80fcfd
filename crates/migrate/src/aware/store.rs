//! The versions of pages that both sides keep, and how they stay the same on both.
//!
//! Invariants: sender and receiver merge the same pages in the same order, so they hold the same ones. What waits to be merged,
//! the versions of this round, is the same on both sides only at the end of the round: a packet may refer to such a page, and the
//! receiver waits for it. In a round a page is kept once, so that there is no doubt which. Memory of one side: as many pages as the sender says, and a quarter more while
//! a round lasts.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use super::{Key, Page};

/// Pages in the order in which they were last kept.
#[derive(Debug)]
pub struct Store {
    keep_max: usize,
    pages: HashMap<Key, (u64, Arc<Page>)>,
    order: VecDeque<(u64, Key)>,
    next: u64,
}

impl Store {
    fn new(keep_max: usize) -> Self {
        Self { keep_max, pages: HashMap::new(), order: VecDeque::new(), next: 0 }
    }

    /// The version kept.
    #[must_use]
    pub fn find(&self, key: Key) -> Option<&Arc<Page>> {
        self.pages.get(&key).map(|(_, page)| page)
    }

    /// Keeps a version, and lets go of the page that was kept longest ago where there are too many.
    pub fn keep(&mut self, key: Key, page: Arc<Page>) {
        self.next += 1;
        self.pages.insert(key, (self.next, page));
        self.order.push_back((self.next, key));
        while self.pages.len() > self.keep_max || self.order.len() > 2 * self.keep_max {
            let Some((turn, key)) = self.order.pop_front() else { return };
            // Kept again since, it stands further back too.
            if self.pages.get(&key).is_some_and(|(last, _)| *last == turn) {
                self.pages.remove(&key);
            }
        }
    }
}

/// Lanes, how far each has come, and what each wants kept.
#[derive(Debug)]
pub struct Lanes {
    lanes: BTreeMap<u8, Lane>,
    /// Wanted in this round.
    fresh: HashMap<Key, Arc<Page>>,
    /// Rounds before this one are merged.
    merged: u32,
    /// What is merged.
    pub store: Store,
}

#[derive(Debug, Default)]
struct Lane {
    round: u32,
    keeps: Vec<Key>,
}

impl Lanes {
    /// No lanes yet, which keep up to `keep_max` pages.
    #[must_use]
    pub fn new(keep_max: usize) -> Self {
        Self { lanes: BTreeMap::new(), fresh: HashMap::new(), merged: 0, store: Store::new(keep_max) }
    }

    /// Adds a lane; `false` where it is there already.
    pub fn join(&mut self, lane: u8) -> bool {
        let fresh = !self.lanes.contains_key(&lane);
        self.lanes.entry(lane).or_default();
        fresh
    }

    /// How many lanes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lanes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Whether every lane has come as far as `round`.
    #[must_use]
    pub fn all_at(&self, round: u32) -> bool {
        self.lanes.values().all(|lane| lane.round >= round)
    }

    /// A lane has passed a SYNC. Returns the round it is in now.
    pub fn passed(&mut self, lane: u8) -> u32 {
        let held = self.lanes.entry(lane).or_default();
        held.round = held.round.saturating_add(1);
        held.round
    }

    /// How many pages are kept, at most.
    #[must_use]
    pub fn keep_max(&self) -> usize {
        self.store.keep_max
    }

    /// Whether more pages may be wanted: those that are merged and those that wait are a quarter more than are kept.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.store.pages.len() + self.fresh.len() < self.store.keep_max + self.store.keep_max / 4
    }

    /// A lane wants a page kept. `false` where as many wait as may, or the page itself does, and it is not kept.
    pub fn want(&mut self, lane: u8, key: Key, page: Arc<Page>) -> bool {
        if !self.has_room() || self.fresh.contains_key(&key) {
            return false;
        }
        self.lanes.entry(lane).or_default().keeps.push(key);
        self.fresh.insert(key, page);
        true
    }

    /// The version wanted in this round, or else the one that is kept, and which of the two it is.
    #[must_use]
    pub fn newest(&self, key: Key) -> Option<(bool, &Page)> {
        self.fresh(key).map(|page| (true, page)).or_else(|| self.store.find(key).map(|page| (false, &**page)))
    }

    /// The version wanted in this round.
    #[must_use]
    pub fn fresh(&self, key: Key) -> Option<&Page> {
        self.fresh.get(&key).map(|page| &**page)
    }

    /// Merges what was wanted before `round`, once. All lanes must have come that far, and none may have wanted anything
    /// in `round` before this is called for it; so all that waits is of one round.
    pub fn merge_to(&mut self, round: u32) {
        debug_assert!(self.all_at(round), "a lane that lags may still want a page kept");
        if self.merged >= round {
            return;
        }
        self.merged = round;
        for lane in self.lanes.values_mut() {
            for key in lane.keeps.drain(..) {
                self.store.keep(key, self.fresh.remove(&key).expect("what is wanted waits"));
            }
        }
    }
}
