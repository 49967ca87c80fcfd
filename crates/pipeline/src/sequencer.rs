//! Puts things back in order after the workers finish out of order.
//!
//! Why: workers race, but a channel must carry chunk `n` before `n + 1`. Early ones wait in a ring; who pushes chunks
//! in waits while `depth` of them are under way, and that back-pressure bounds the ring. A ring rather than a heap
//! because the numbers are dense.
//!
//! Invariants: slot `i` belongs to number `next + i`; the front slot is empty between calls, or its owner is about to
//! take it.

use std::collections::VecDeque;

/// A ring of slots, the first of which is next.
#[derive(Debug)]
pub struct Sequencer<T> {
    next: u64,
    ring: VecDeque<Option<T>>,
}

impl<T> Default for Sequencer<T> {
    fn default() -> Self {
        Self {
            next: 0,
            ring: VecDeque::new(),
        }
    }
}

impl<T> Sequencer<T> {
    /// Files `item` under its number.
    ///
    /// # Panics
    /// When the number was filed or taken before.
    pub fn insert(&mut self, seq: u64, item: T) {
        let slot = usize::try_from(seq.checked_sub(self.next).expect("a number is taken once"))
            .expect("fits memory");
        if slot >= self.ring.len() {
            self.ring.resize_with(slot + 1, || None);
        }
        assert!(
            self.ring[slot].replace(item).is_none(),
            "number {seq} filed twice"
        );
    }

    /// Takes the next item, if it is there.
    pub fn pop(&mut self) -> Option<T> {
        let item = self.ring.front_mut()?.take()?;
        self.ring.pop_front();
        self.next += 1;
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_restored() {
        let mut sequencer = Sequencer::default();
        let mut out = Vec::new();
        for seq in [2, 0, 1, 5, 3, 4] {
            sequencer.insert(seq, seq);
            while let Some(item) = sequencer.pop() {
                out.push(item);
            }
        }
        assert_eq!(out, [0, 1, 2, 3, 4, 5]);
    }
}
