//! Keeps the stages level chunk by chunk: what the last decisions should cost each stage, against each other.
//!
//! Why: the best mix usually lies *between* two candidates, where the solved prices call them equal and any rounding
//! decides. So we add up the stage times of the last couple of dozen choices. A stage with slack is discounted, which
//! tips the next choice towards using it: on uniform data two neighbours share the time in the right proportion, and
//! after a run of raw chunks the next ones may take their time while the queue drains.
//!
//! Neighbours: [`crate::solve`] gives the weights it tilts, [`crate::adaptive`] charges it. Units: nanoseconds of a
//! stage.

use crate::{
    solve::{PriceWeights, Times, weighted},
    tuning::tuning,
};

/// Stage times of the last decisions, fading.
#[derive(Debug, Clone, Copy, Default)]
pub struct StageBalance {
    spent: Times,
}

impl StageBalance {
    /// One more chunk of `raw_len` bytes, at `times` per byte.
    pub fn charge(&mut self, times: Times, raw_len: f32) {
        for (spent, time) in self.spent.iter_mut().zip(times) {
            *spent = *spent * (1.0 - 1.0 / tuning().balance_horizon) + time * raw_len;
        }
    }

    /// An earlier charge was wrong by this much, in nanoseconds.
    pub fn correct(&mut self, stage: usize, by: f32) {
        self.spent[stage] = (self.spent[stage] + by).max(0.0);
    }

    /// `weights`, with slack stages discounted and those that take more than the weights foresaw made dearer: where two
    /// mixes cost the same, the weights alone do not say which of them overloads a stage whose weight is nothing.
    #[must_use]
    pub fn tilt(&self, weights: PriceWeights) -> PriceWeights {
        let most = self
            .spent
            .iter()
            .fold(1.0_f32, |most, &spent| most.max(spent));
        let foreseen = weighted(self.spent, weights).max(1.0);
        std::array::from_fn(|stage| {
            let over = (self.spent[stage] / foreseen - 1.0).max(0.0);
            let [gain, over_gain] = [
                (tuning().rule_balance_slack, tuning().balance_gain),
                (tuning().rule_balance_over, tuning().balance_over),
            ]
            .map(|(is_on, value)| if is_on { value } else { 0.0 });
            weights[stage] * (gain * (self.spent[stage] / most - 1.0)).exp() + over_gain * over
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solve::{bound, cheapest, solve};

    // Goal: the mix of two candidates reaches the bound that neither reaches alone.
    #[test]
    fn two_neighbours_share_the_time() {
        let row: [Times; 2] = [[4.0, 10.0, 0.1], [13.0, 6.0, 0.1]];
        let weights = solve(&[(1.0, &row)]);
        let mut account = StageBalance::default();
        let mut sums = [0.0_f32; 3];
        for _ in 0..1000 {
            let times = row[cheapest(&row, account.tilt(weights)).0];
            account.charge(times, 1.0);
            (0..3).for_each(|stage| sums[stage] += times[stage] / 1000.0);
        }
        let reached = sums[0].max(sums[1]);
        assert!(reached < 1.01 * bound(&[(1.0, &row)]), "{sums:?}");
    }
}
