//! Tries what the table does not know: auditions on slices, and now and then a whole chunk.
//!
//! Why both: an audition costs little and delays nothing, but a slice says little of a codec with a large window or
//! with history. Only what would win at the good end of how far its size may be off is tried, and that shrinks with
//! every slice. So unlikely winners have no auditions: no zstd 19 on a 10 Gbit/s link.
//!
//! Budget: after a small start-up allowance 1 % of the workers' time, up to 15 % where the link leaves them idle; whole
//! chunks at most one in 48 of a class, and of each candidate one a class: far below 2 % of the bytes over any
//! longer run. Neighbours: [`crate::adaptive`] asks with every chunk it looked at. Units: nanoseconds
//! of CPU.

use std::sync::Arc;

use narrows_core::{Candidate, Gauges, policy::AUDITION_LEN};

use crate::{
    offers::Offer,
    rows::Row,
    solve::{NEVER, PriceWeights, weighted},
    table::{Basis, ExpectedCost},
    tuning::tuning,
};

/// Keeps the budget.
#[derive(Debug)]
pub struct Explorer {
    allowance_ns: f32,
    last_ns: u64,
}

/// What a decision about one chunk knows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Situation<'a> {
    /// The candidate that wins without any trial.
    pub(crate) chosen: usize,
    pub(crate) raw_len: usize,
    pub(crate) weights: PriceWeights,
    /// What a processor's time is worth, 0 to 1 and more.
    pub(crate) worth: f32,
    pub(crate) gauges: &'a Gauges,
    pub(crate) offers: &'a [Offer],
    /// Bytes per nanosecond of the link.
    pub(crate) link: f32,
}

/// What to try with this chunk.
#[derive(Debug, Default)]
pub(crate) struct Proposal {
    /// On a slice, besides.
    pub(crate) audition: Option<Arc<[Candidate]>>,
    /// On the whole chunk, instead of the choice.
    pub(crate) instead: Option<usize>,
}

impl Default for Explorer {
    fn default() -> Self {
        Self {
            allowance_ns: tuning().explore_start_ns,
            last_ns: 0,
        }
    }
}

impl Explorer {
    pub(crate) fn propose(&mut self, row: &mut Row, situation: &Situation<'_>) -> Proposal {
        let Situation {
            worth,
            gauges,
            offers,
            ..
        } = *situation;
        let passed = gauges.now_ns.saturating_sub(self.last_ns) as f32;
        self.last_ns = gauges.now_ns;
        let budget_max = if tuning().rule_budget_idle {
            tuning().explore_budget_idle
        } else {
            tuning().explore_budget
        };
        let budget = (tuning().explore_cost / worth).clamp(tuning().explore_budget, budget_max);
        self.allowance_ns = (self.allowance_ns + budget * passed * gauges.workers.max(1) as f32)
            .min(tuning().explore_saved_max_ns);
        let mut proposal = Proposal::default();
        row.asked.resize(offers.len(), false);
        let is_due =
            row.chunks >= row.next_round && (tuning().rule_rounds_again || row.next_round == 0);
        if is_due || row.surprised {
            row.next_round = (row.chunks / tuning().explore_again + 1) * tuning().explore_again;
            row.asked.fill(false);
            row.round = 0;
            row.surprised = false;
        }
        if tuning().rule_audition {
            proposal.audition = self.audition(row, situation, budget > tuning().explore_budget);
        }
        let every = tuning().explore_every;
        if row.chunks % every == every / 2 && tuning().rule_whole {
            proposal.instead = whole(row, situation);
        }
        proposal
    }

    /// Auditions take so much more than was planned, in nanoseconds of CPU.
    pub(crate) fn charge(&mut self, cost_ns: f32) {
        self.allowance_ns -= cost_ns;
    }

    fn audition(
        &mut self,
        row: &mut Row,
        situation: &Situation<'_>,
        idle: bool,
    ) -> Option<Arc<[Candidate]>> {
        let Situation {
            chosen,
            raw_len,
            weights,
            offers,
            ..
        } = *situation;
        let (round, again) = (
            row.round < tuning().explore_rounds,
            row.chunks > tuning().explore_rounds,
        );
        let slice = raw_len.min(AUDITION_LEN) as f32;
        let best = weighted(row.times[chosen], weights);
        let mut list: Vec<(f32, usize)> = Vec::new();
        for (index, expected) in row.costs.iter().enumerate().skip(1) {
            // A slice says nothing about history.
            if index == chosen || row.asked[index] || offers[index].candidate.history_len > 0 {
                continue;
            }
            let ExpectedCost {
                basis,
                size_noise,
                slices,
                ..
            } = expected;
            // The first slices may have met a pause: taken at its word, one that took ten times too long kept zstd 1 from
            // being tried again.
            let hasty = tuning().rule_hasty
                && again
                && *basis == Basis::Slices
                && *slices < tuning().explore_slices;
            let hope = match basis {
                Basis::Prior if round => (-size_noise - tuning().explore_unseen).exp(),
                Basis::Slices if expected.is_unsure() => (-size_noise).exp(),
                _ if round && again => tuning().explore_hope_again,
                _ => continue,
            };
            let price = optimistic(row, index, weights, hope);
            // One of each family makes sure, whatever the priors say: 2 KiB cannot show everything, and what it shows
            // corrects the others of its family.
            let noise = again && row.times[index][0] >= NEVER && offers[index].name == "zstd";
            let doubt = tuning().rule_family_tried
                && (*basis == Basis::Prior || noise || hasty)
                && offers[index].candidate.level.0 == 1;
            if price < best || doubt {
                list.push((price, index));
            }
        }
        list.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut picked = Vec::new();
        // What idle processors will have paid for soon is waited for: asked again only chunks later, it may be too late.
        let mut refused = false;
        for (price, index) in list.into_iter().take(tuning().explore_per_round) {
            let cost_ns = row.costs[index].cost.pack * slice;
            if cost_ns <= self.allowance_ns {
                self.allowance_ns -= cost_ns;
                row.asked[index] = true;
                picked.push(offers[index].candidate);
            } else {
                refused |= price < best && cost_ns < tuning().explore_saved_max_ns;
            }
        }
        row.round += u64::from(round && !(refused && idle && tuning().rule_refused_waits));
        (!picked.is_empty()).then(|| picked.into())
    }
}

impl ExpectedCost {
    /// Whether more slices would tell something of a candidate that only slices told of.
    pub(crate) fn is_unsure(&self) -> bool {
        self.size_noise > tuning().explore_sure && self.slices < tuning().explore_slices
    }
}

/// The candidate that would win if it were a little better than believed, among those never used on a whole chunk.
fn whole(row: &Row, situation: &Situation<'_>) -> Option<usize> {
    let Situation {
        chosen,
        raw_len,
        weights,
        gauges,
        offers,
        link,
        ..
    } = *situation;
    let best = weighted(row.times[chosen], weights);
    let pack_ns =
        |index: usize| row.costs[index].doubt * row.costs[index].cost.pack * raw_len as f32;
    // The stream waits for a slow chunk: there must be enough before it to keep the link busy.
    let room_ns = (tuning().explore_room * gauges.queued_bytes as f32 / link)
        .max(tuning().explore_room_chosen * pack_ns(chosen));
    (1..row.costs.len())
        .filter(|&index| {
            index != chosen && row.costs[index].basis != Basis::Chunks && pack_ns(index) < room_ns
        })
        .filter(|&index| !row.is_left_to_slices(index, offers))
        .map(|index| {
            (
                optimistic(row, index, weights, tuning().explore_hope_whole),
                index,
            )
        })
        .filter(|&(price, _)| price < best)
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, index)| index)
}

fn optimistic(row: &Row, index: usize, weights: PriceWeights, hope: f32) -> f32 {
    let times = row.times[index];
    if times[0] >= NEVER {
        NEVER
    } else {
        hope * weighted(times, weights)
    }
}

#[cfg(test)]
mod tests {
    use narrows_core::CodecId;

    use super::*;
    use crate::{offers::default_offers, rows::Rows, table::CostTable};

    // Goal: dull data, of which one chunk in many is looked at, are auditioned again too. Method: every stride and
    // beginning.
    #[test]
    fn auditions_are_held_again_whichever_chunks_are_looked_at() {
        let offers = default_offers(|name| Some(CodecId(name.len() as u8)), 0);
        for (stride, first) in
            (1..=16).flat_map(|stride| (0..stride).map(move |first| (stride, first)))
        {
            let mut rows = Rows::default();
            let at = rows.find(&[7; 4096]).at;
            let row = &mut rows[at];
            CostTable::new(offers.clone()).estimate(row.class, 4096, &mut row.costs);
            row.times = row
                .costs
                .iter()
                .map(|expected| [expected.cost.pack, expected.cost.size, 0.0])
                .collect();
            let mut explorer = Explorer::default();
            let mut rounds = 0;
            for look in 0..10 * tuning().explore_again / stride {
                row.chunks = first + look * stride;
                let before = row.round;
                let _ = explorer.propose(
                    row,
                    &Situation {
                        chosen: 0,
                        raw_len: 4096,
                        weights: [1.0; 3],
                        worth: 1.0,
                        gauges: &Gauges::default(),
                        offers: &offers,
                        link: 1.0,
                    },
                );
                rounds += u64::from(row.round == 1 && before != 0 || look == 0);
            }
            assert_eq!(rounds, 10, "one chunk in {stride} from {first} on");
        }
    }
}
