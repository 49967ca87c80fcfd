//! Tells by the packets' numbers when all lanes have come.
//!
//! Each has a packet in the first round, its SYNC, and that has a lower number than any of the next round; so once a
//! packet of the next round was seen and all numbers below it, there is no lane whose thread has yet to get its turn.

use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// All below were seen.
    next: u64,
    /// Those seen above.
    ahead: BTreeSet<u64>,
    /// Behind the highest of the first round.
    first_end: u64,
    complete: bool,
}

impl Numbers {
    /// Where so many are missing, a lane carries packets that are not understood.
    const AHEAD_MAX: usize = 4096;

    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    pub(super) fn note(&mut self, number: u64, round: u32) {
        if self.complete || number < self.next || self.ahead.len() >= Self::AHEAD_MAX {
            return;
        }
        self.ahead.insert(number);
        while self.ahead.remove(&self.next) {
            self.next += 1;
        }
        if round == 0 {
            self.first_end = self.first_end.max(number.saturating_add(1));
        }
        self.complete = self.first_end > 0 && self.next > self.first_end;
        if self.complete {
            self.ahead.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: no lane is overlooked. Method: lanes take turns at random; whoever has not had one yet keeps the count
    // incomplete.
    #[test]
    fn complete_only_when_every_lane_had_its_first_turn() {
        for seed in 0..200_u64 {
            // Three lanes of four packets in the first round and two in the next, whose numbers come in the order of
            // rounds.
            let mut waiting: Vec<Vec<(u64, u32)>> = (0..3)
                .map(|lane| {
                    let first = (0..4).map(|packet| (packet * 3 + lane, 0));
                    first
                        .chain((4..6).map(|packet| (packet * 3 + lane, 1)))
                        .rev()
                        .collect()
                })
                .collect();
            let (mut numbers, mut x) = (Numbers::default(), seed * 2 + 1);
            while !waiting.iter().all(Vec::is_empty) {
                x = x
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let Some((number, round)) = waiting[(x >> 33) as usize % 3].pop() else {
                    continue;
                };
                numbers.note(number, round);
                let unheard = waiting.iter().any(|lane| lane.len() == 6);
                assert!(
                    !(unheard && numbers.is_complete()),
                    "seed {seed}, packet {number}"
                );
            }
            assert!(numbers.is_complete(), "seed {seed}");
        }
    }

    #[test]
    fn what_is_missing_for_ever_costs_a_bounded_number() {
        let mut numbers = Numbers::default();
        (1..100_000).for_each(|number| numbers.note(number, 0));
        assert!(numbers.ahead.len() <= Numbers::AHEAD_MAX && !numbers.is_complete());
    }
}
