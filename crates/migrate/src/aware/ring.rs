//! The last pages that the sender had kept, in the order in which it took them; the same on both sides.
//!
//! A page's position is how many were kept before it. It says where the page lies, so the receiver needs to know
//! nothing else of it, and a reference is right wherever the packets of several lanes meet, if two things hold. Packets
//! that refer or keep are numbered in the order of positions, and the receiver takes none that is more than
//! [`ahead_max`] beyond the first that it lacks ([`Turns`]); and none refers to what those could have written over
//! ([`within_reach`]).

use std::{collections::BTreeSet, ops::Range};

use narrows_io::region::Region;

use super::{PAGE_LEN, PAGES_MAX, Page};

/// Fewer pages than this are not kept at all: lanes would wait for each other all the time.
const LEN_MIN: usize = 8 * PAGES_MAX;

/// How many packets beyond the first that it lacks the receiver takes. As many pages of the ring as they may keep
/// cannot be referred to, a quarter at most: with a quarter always, 100 MiB of a guest took 115.
#[must_use]
pub fn ahead_max(len_max: usize) -> u32 {
    (len_max / (4 * PAGES_MAX)).min(64) as u32
}

/// The pages that a packet may refer to before which `head` were kept.
#[must_use]
pub fn within_reach(len_max: usize, head: u32) -> Range<u32> {
    let ahead = (ahead_max(len_max) + 1) as usize * PAGES_MAX;
    head.saturating_sub(len_max.saturating_sub(ahead) as u32)..head
}

/// Pages by their positions.
#[derive(Debug)]
pub struct Ring {
    len_max: usize,
    /// Why not the allocator: a quarter of a million times 4 KiB cost it as much as to find what they have in common.
    regions: Vec<Region>,
    /// By place: 1 and the position of the page there.
    held: Vec<u32>,
}

impl Ring {
    /// An empty one for up to `len_max` pages.
    #[must_use]
    pub fn new(len_max: usize) -> Self {
        let len_max = if len_max < LEN_MIN { 0 } else { len_max };
        Self {
            len_max,
            regions: Vec::new(),
            held: Vec::new(),
        }
    }

    /// How many pages it holds, at most; 0 where none are kept.
    #[must_use]
    pub fn len_max(&self) -> usize {
        self.len_max
    }

    /// Puts the page of a position in its place; `false` where there is no memory for it.
    pub fn put(&mut self, position: u32, page: &Page) -> bool {
        let Some(at) = self.place(position) else {
            return false;
        };
        while self.held.len() <= at {
            let Ok(region) = Region::paid(PAGES_OF_REGION * PAGE_LEN) else {
                return false;
            };
            self.regions.push(region);
            self.held.resize(self.held.len() + PAGES_OF_REGION, 0);
        }
        self.regions[at / PAGES_OF_REGION].as_chunks_mut().0[at % PAGES_OF_REGION] = *page;
        self.held[at] = position + 1;
        true
    }

    /// The page of a position, while it is there.
    #[must_use]
    pub fn page(&self, position: u32) -> Option<&Page> {
        let at = self.place(position)?;
        (self.held.get(at) == Some(&(position.checked_add(1)?)))
            .then(|| &self.regions[at / PAGES_OF_REGION].as_chunks().0[at % PAGES_OF_REGION])
    }

    /// Whether the page of a position has yet to come.
    #[must_use]
    pub fn lacks(&self, position: u32) -> bool {
        self.place(position)
            .is_some_and(|at| self.held.get(at).is_none_or(|&held| held <= position))
    }

    fn place(&self, position: u32) -> Option<usize> {
        (position as usize).checked_rem(self.len_max)
    }
}

/// A megabyte.
const PAGES_OF_REGION: usize = 256;

/// Which packets the receiver has taken.
#[derive(Debug, Default)]
pub struct Turns {
    /// All before.
    next: u32,
    /// And these.
    ahead: BTreeSet<u32>,
}

impl Turns {
    /// Whether a packet's turn has come.
    #[must_use]
    pub fn may(&self, number: u32, len_max: usize) -> bool {
        number <= self.next.saturating_add(ahead_max(len_max))
    }

    /// Takes a packet whose turn has come; `false` where it was taken before.
    pub fn take(&mut self, number: u32) -> bool {
        if number < self.next || !self.ahead.insert(number) {
            return false;
        }
        while self.ahead.remove(&self.next) {
            self.next += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_holds_the_last_pages() {
        let mut ring = Ring::new(LEN_MIN);
        let page = |at: u32| -> Page { std::array::from_fn(|byte| (at as usize * 7 + byte) as u8) };
        for position in 0..3 * LEN_MIN as u32 {
            assert!(ring.lacks(position) && ring.page(position).is_none());
            assert!(ring.put(position, &page(position)));
            assert!(!ring.lacks(position) && ring.page(position) == Some(&page(position)));
        }
        let kept = |position: u32| ring.page(position) == Some(&page(position));
        assert!(
            kept(2 * LEN_MIN as u32)
                && !kept(2 * LEN_MIN as u32 - 1)
                && !ring.lacks(2 * LEN_MIN as u32 - 1)
        );
        assert!(!Ring::new(LEN_MIN - 1).put(0, &page(0)));
    }

    // Goal: what the sender may refer to is never written over before. Method: any two packets that the receiver may
    // take in either order.
    #[test]
    fn nothing_is_written_over_that_may_be_needed() {
        for len_max in [LEN_MIN, 5000, 16384, 1 << 18] {
            let head = 10 * len_max as u32;
            let last = head + (ahead_max(len_max) + 1) * PAGES_MAX as u32;
            let reach = within_reach(len_max, head);
            assert!(reach.start + len_max as u32 >= last);
            assert!(reach.len() > len_max / 2, "and most of it may be");
        }
    }

    #[test]
    fn turns_come_in_order_and_some_ahead() {
        let mut turns = Turns::default();
        let ahead = ahead_max(LEN_MIN);
        assert!(turns.may(ahead, LEN_MIN) && !turns.may(ahead + 1, LEN_MIN));
        assert!(turns.take(1) && !turns.take(1) && !turns.may(ahead + 1, LEN_MIN));
        assert!(turns.take(0) && turns.may(ahead + 2, LEN_MIN) && !turns.take(0));
    }
}
