//! The versions of pages that both sides keep, and how they stay the same on both.
//!
//! Invariants: sender and receiver merge the same pages in the same order, so they hold the same ones. What waits to be merged,
//! the versions of this round, is the same on both sides only at the end of the round: a packet may refer to such a page, and the
//! receiver waits for it. In a round a page is kept once, so that there is no doubt which. Memory of one side: as many pages as the sender says, and a quarter more while
//! a round lasts.

use std::collections::{BTreeMap, HashMap, VecDeque};

use narrows::io::region::Region;

use super::{Key, PAGE_LEN, Page};

/// Lanes, how far each has come, and what each wants kept.
#[derive(Debug)]
pub struct Lanes {
    keep_max: usize,
    lanes: BTreeMap<u8, Lane>,
    /// Rounds before this one are merged.
    merged: u32,
    numbers: HashMap<Key, u32>,
    pages: Vec<Held>,
    /// Numbers that nobody has.
    vacant: Vec<u32>,
    memory: Memory,
    /// Pages in the order in which they were last merged.
    order: VecDeque<(u64, u32)>,
    turn: u64,
    /// How many are merged, and wait to be.
    counts: [usize; 2],
}

#[derive(Debug, Default)]
struct Lane {
    round: u32,
    keeps: Vec<u32>,
}

/// A page of which a version is merged, or waits to be.
#[derive(Debug)]
struct Held {
    key: Key,
    merged: Option<Slot>,
    fresh: Option<Slot>,
    /// When it was merged last.
    turn: u64,
}

impl Lanes {
    /// No lanes yet, which keep up to `keep_max` pages.
    #[must_use]
    pub fn new(keep_max: usize) -> Self {
        Self {
            keep_max,
            lanes: BTreeMap::new(),
            merged: 0,
            numbers: HashMap::new(),
            pages: Vec::new(),
            vacant: Vec::new(),
            memory: Memory::default(),
            order: VecDeque::new(),
            turn: 0,
            counts: [0; 2],
        }
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
        self.keep_max
    }

    /// Whether more pages may be wanted: those that are merged and those that wait are a quarter more than are kept.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.counts[0] + self.counts[1] < self.keep_max + self.keep_max / 4
    }

    /// A lane wants a page kept; returns the page's number, which is its own for as long as any version of it is held. `None` where as
    /// many wait as may, or the page itself does, or there is no memory, and it is not kept.
    pub fn want(&mut self, lane: u8, key: Key, page: &Page) -> Option<u32> {
        if !self.has_room() {
            return None;
        }
        let number = *self.numbers.entry(key).or_insert_with(|| {
            let held = Held { key, merged: None, fresh: None, turn: 0 };
            if let Some(number) = self.vacant.pop() {
                self.pages[number as usize] = held;
                return number;
            }
            self.pages.push(held);
            u32::try_from(self.pages.len() - 1).expect("as many pages as have memory")
        });
        let held = &mut self.pages[number as usize];
        if held.fresh.is_some() {
            return None;
        }
        held.fresh = Some(self.memory.put(page)?);
        self.counts[1] += 1;
        self.lanes.entry(lane).or_default().keeps.push(number);
        Some(number)
    }

    /// The version that is merged.
    #[must_use]
    pub fn kept(&self, key: Key) -> Option<&Page> {
        let held = &self.pages[*self.numbers.get(&key)? as usize];
        held.merged.map(|slot| self.memory.page(slot))
    }

    /// The version wanted in this round.
    #[must_use]
    pub fn fresh(&self, key: Key) -> Option<&Page> {
        let held = &self.pages[*self.numbers.get(&key)? as usize];
        held.fresh.map(|slot| self.memory.page(slot))
    }

    /// What is held under a number that [`Lanes::want`] gave, be it another page by now: which page it is, and its newest version; `true`
    /// where that was wanted in this round.
    #[must_use]
    pub fn newest(&self, number: u32) -> Option<(Key, bool, &Page)> {
        let held = self.pages.get(number as usize)?;
        let slot = held.fresh.or(held.merged)?;
        Some((held.key, held.fresh.is_some(), self.memory.page(slot)))
    }

    /// Merges what was wanted before `round`, once. All lanes must have come that far, and none may have wanted anything
    /// in `round` before this is called for it; so all that waits is of one round.
    pub fn merge_to(&mut self, round: u32) {
        debug_assert!(self.all_at(round), "a lane that lags may still want a page kept");
        if self.merged >= round {
            return;
        }
        self.merged = round;
        let mut lanes = std::mem::take(&mut self.lanes);
        for number in lanes.values_mut().flat_map(|lane| lane.keeps.drain(..)) {
            self.merge(number);
        }
        self.lanes = lanes;
    }

    /// Merges a page, and lets go of the one that was merged longest ago where there are too many.
    fn merge(&mut self, number: u32) {
        self.turn += 1;
        let held = &mut self.pages[number as usize];
        held.turn = self.turn;
        let fresh = held.fresh.take().expect("what is wanted waits");
        self.counts[1] -= 1;
        match held.merged.replace(fresh) {
            Some(before) => self.memory.free(before),
            None => self.counts[0] += 1,
        }
        self.order.push_back((self.turn, number));
        while self.counts[0] > self.keep_max || self.order.len() > 2 * self.keep_max {
            let Some((turn, number)) = self.order.pop_front() else { return };
            let held = &mut self.pages[number as usize];
            // Merged again since, it stands further back too.
            if held.turn == turn
                && let Some(slot) = held.merged.take()
            {
                self.memory.free(slot);
                self.counts[0] -= 1;
                if held.fresh.is_none() {
                    self.numbers.remove(&held.key);
                    self.vacant.push(number);
                }
            }
        }
    }
}

/// Where a version is.
#[derive(Debug, Clone, Copy)]
struct Slot(u32);

/// Memory for pages, in regions. Why not the allocator: a quarter of a million times 4 KiB cost it as much as to find what they have in
/// common. What was used once is kept for the pages that come.
#[derive(Debug, Default)]
struct Memory {
    regions: Vec<Region>,
    used: u32,
    free: Vec<Slot>,
}

impl Memory {
    /// A megabyte.
    const PAGES_OF_REGION: usize = 256;

    fn page(&self, Slot(at): Slot) -> &Page {
        &self.regions[at as usize / Self::PAGES_OF_REGION].as_chunks().0[at as usize % Self::PAGES_OF_REGION]
    }

    /// Keeps a page; `None` where the system has no memory for it.
    fn put(&mut self, page: &Page) -> Option<Slot> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                if self.used as usize == self.regions.len() * Self::PAGES_OF_REGION {
                    self.regions.push(Region::paid(Self::PAGES_OF_REGION * PAGE_LEN).ok()?);
                }
                self.used += 1;
                Slot(self.used - 1)
            }
        };
        let at = slot.0 as usize;
        self.regions[at / Self::PAGES_OF_REGION].as_chunks_mut().0[at % Self::PAGES_OF_REGION] = *page;
        Some(slot)
    }

    fn free(&mut self, slot: Slot) {
        self.free.push(slot);
    }
}
