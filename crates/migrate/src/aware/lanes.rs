//! How far each lane has come.

use std::collections::BTreeMap;

/// Rounds of lanes: a round ends with each SYNC.
#[derive(Debug, Default)]
pub(super) struct Lanes(BTreeMap<u8, u32>);

impl Lanes {
    /// Adds a lane; `false` where it is there already.
    pub(super) fn join(&mut self, lane: u8) -> bool {
        let fresh = !self.0.contains_key(&lane);
        self.0.entry(lane).or_default();
        fresh
    }

    /// Whether every lane has come as far as `round`.
    #[must_use]
    pub(super) fn all_at(&self, round: u32) -> bool {
        self.0.values().all(|held| *held >= round)
    }

    /// A lane has passed a SYNC. Returns the round it is in now.
    pub(super) fn passed(&mut self, lane: u8) -> u32 {
        let round = self.0.entry(lane).or_default();
        *round = round.saturating_add(1);
        *round
    }
}
