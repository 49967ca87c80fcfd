//! Which blocks of the arena are in the program's hands: first fit, so that the used part stays short.

use std::collections::BTreeMap;

/// Free runs of blocks, and the allocations that have a length of their own.
#[derive(Debug)]
pub(crate) struct Extents {
    /// Length by first block. Neighbours are always joined.
    free: BTreeMap<u32, u32>,
    /// Bytes of an allocation by its first block.
    lens: BTreeMap<u32, usize>,
}

impl Extents {
    pub(crate) fn new(blocks: u32) -> Self {
        Self {
            free: BTreeMap::from([(0, blocks)]),
            lens: BTreeMap::new(),
        }
    }

    /// Takes a run of `count` blocks.
    pub(crate) fn take(&mut self, count: u32) -> Option<u32> {
        let (&first, &len) = self.free.iter().find(|&(_, &len)| len >= count)?;
        self.free.remove(&first);
        if len > count {
            self.free.insert(first + count, len - count);
        }
        Some(first)
    }

    /// Takes the `count` blocks from `first` on, if all of them are free.
    pub(crate) fn take_at(&mut self, first: u32, count: u32) -> bool {
        let Some((&start, &len)) = self.free.range(..=first).next_back() else {
            return false;
        };
        if start + len < first + count {
            return false;
        }
        self.free.remove(&start);
        if first > start {
            self.free.insert(start, first - start);
        }
        if start + len > first + count {
            self.free.insert(first + count, start + len - first - count);
        }
        true
    }

    /// Gives blocks back.
    pub(crate) fn give(&mut self, mut first: u32, mut count: u32) {
        if let Some((&start, &len)) = self.free.range(..first).next_back()
            && start + len == first
        {
            self.free.remove(&start);
            (first, count) = (start, count + len);
        }
        if let Some(len) = self.free.remove(&(first + count)) {
            count += len;
        }
        self.free.insert(first, count);
    }

    pub(crate) fn set_len(&mut self, first: u32, len: usize) {
        self.lens.insert(first, len);
    }

    pub(crate) fn len(&self, first: u32) -> Option<usize> {
        self.lens.get(&first).copied()
    }

    pub(crate) fn forget_len(&mut self, first: u32) -> Option<usize> {
        self.lens.remove(&first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: what is given back can be had again, whole. Method: runs taken and given in another order.
    #[test]
    fn neighbours_that_come_back_are_joined() {
        let mut extents = Extents::new(100);
        let runs: Vec<_> = (0..10).map(|_| extents.take(10).unwrap()).collect();
        assert_eq!(extents.take(1), None);
        for at in [3, 1, 2, 0, 9, 5, 7, 6, 8, 4] {
            extents.give(runs[at], 10);
        }
        assert_eq!(extents.take(100), Some(0));
    }

    #[test]
    fn a_run_grows_only_into_what_is_free() {
        let mut extents = Extents::new(100);
        assert_eq!(extents.take(10), Some(0));
        assert!(extents.take_at(10, 5));
        assert!(!extents.take_at(14, 2) && !extents.take_at(99, 2));
        assert!(extents.take_at(50, 50));
        assert_eq!((extents.take(35), extents.take(36)), (Some(15), None));
    }
}
