//! Solves for the prices of pipeline time: what a nanosecond of each stage is worth at the margin.
//!
//! The time of a run of chunks is `max(Σpack, Σlink, Σunpack)`, each in nanoseconds its stage is busy. Minimising it
//! over the choice for every chunk is a linear program; its dual asks for weights `a + b + c = 1` that *maximise*
//! `Σ min_k (a·pack + b·link + c·unpack)`. Given the weights every chunk picks its cheapest candidate alone, which is
//! the price rule. The dual is concave, and the stage totals of the current picks are its gradient, so bisection finds the top: `a`
//! against `b` first; only where unpacking then is the slowest, `c` against both.
//!
//! We solve over the mass of classes seen lately rather than step a level by queue length: stepping overshoots.
//! Neighbours: [`crate::adaptive`] builds the rows and uses the weights. Units: row entries in nanoseconds of stage
//! time per raw byte, mass in raw bytes.

/// Stage times of one choice: packing, link, unpacking; in nanoseconds of the stage per raw byte.
pub type Times = [f32; 3];

/// Times of a candidate that is out of the question.
pub(crate) const NEVER: f32 = 1e20;

/// What a nanosecond of packing, link and unpacking weighs. Not negative; sums to 1.
pub type PriceWeights = [f32; 3];

/// The best total of `row` under `weights`: index and weighted time.
#[must_use]
pub fn cheapest(row: &[Times], weights: PriceWeights) -> (usize, f32) {
    let mut best = (0, f32::INFINITY);
    for (index, times) in row.iter().enumerate() {
        let price = weighted(*times, weights);
        if price < best.1 {
            best = (index, price);
        }
    }
    best
}

/// The sum of `times` under `weights`.
#[must_use]
pub fn weighted(times: Times, weights: PriceWeights) -> f32 {
    times[0] * weights[0] + times[1] * weights[1] + times[2] * weights[2]
}

/// PriceWeights at the top of the dual, for classes of the given mass and rows. No row may be empty.
#[must_use]
pub fn solve(classes: &[(f32, &[Times])]) -> PriceWeights {
    let (weights, totals) = pack_against_link(classes, 0.0);
    if totals[2] <= totals[0].max(totals[1]) {
        return weights;
    }
    let (mut low, mut high) = (-LOGIT_MAX, LOGIT_MAX);
    let mut best = weights;
    for _ in 0..STEPS {
        let middle = 0.5 * (low + high);
        let (weights, totals) = pack_against_link(classes, logistic(middle));
        best = weights;
        // Slope of the dual in `c`, the others keeping their proportion.
        let others = (weights[0] * totals[0] + weights[1] * totals[1]) / (weights[0] + weights[1]);
        if totals[2] > others {
            low = middle;
        } else {
            high = middle;
        }
    }
    best
}

/// The value of the dual: no schedule of these classes takes less time, in nanoseconds.
#[must_use]
pub fn bound(classes: &[(f32, &[Times])]) -> f32 {
    let weights = solve(classes);
    classes
        .iter()
        .map(|(mass, row)| mass * cheapest(row, weights).1)
        .sum()
}

/// Bisects packing against link with unpacking's weight given. Returns the weights and the totals of the mix of picks
/// on both sides of the answer that balances the two stages.
fn pack_against_link(classes: &[(f32, &[Times])], unpack: f32) -> (PriceWeights, Times) {
    let rest = 1.0 - unpack;
    let at = |logit: f32| {
        let a = rest * logistic(logit);
        let weights = [a, rest - a, unpack];
        (weights, totals(classes, weights))
    };
    let (mut low, mut high) = (-LOGIT_MAX, LOGIT_MAX);
    let (mut below, mut above) = (at(low), at(high));
    if below.1[0] <= below.1[1] {
        // The link is slowest even when CPU is free.
        return below;
    }
    if above.1[0] >= above.1[1] {
        return above;
    }
    for _ in 0..STEPS {
        let middle = 0.5 * (low + high);
        let here = at(middle);
        if here.1[0] > here.1[1] {
            (low, below) = (middle, here);
        } else {
            (high, above) = (middle, here);
        }
    }
    let (over, under) = (below.1[0] - below.1[1], above.1[1] - above.1[0]);
    let share = if over + under > 0.0 {
        under / (over + under)
    } else {
        0.5
    };
    let mix = std::array::from_fn(|stage| share * below.1[stage] + (1.0 - share) * above.1[stage]);
    (at(0.5 * (low + high)).0, mix)
}

fn totals(classes: &[(f32, &[Times])], weights: PriceWeights) -> Times {
    let mut sum = [0.0; 3];
    for (mass, row) in classes {
        let times = row[cheapest(row, weights).0];
        for stage in 0..3 {
            sum[stage] += mass * times[stage];
        }
    }
    sum
}

fn logistic(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// PriceWeights as far apart as e^8 = 3000: beyond, a stage is free.
const LOGIT_MAX: f32 = 8.0;
/// Halves 16 to 0.001, a tenth of a percent of the price.
const STEPS: u32 = 14;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::data::Random;

    // Method: a grid over the simplex of weights is the naive twin; the dual is concave, so it cannot miss much.
    #[test]
    fn bisection_finds_the_top_that_a_grid_finds() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let rows: Vec<(f32, Vec<Times>)> = (0..1 + random.below(4))
                .map(|_| {
                    let row = (0..2 + random.below(12))
                        .map(|_| std::array::from_fn(|_| (4.0 * random.normal()).exp2() as f32))
                        .collect();
                    (0.1 + random.unit() as f32, row)
                })
                .collect();
            let classes: Vec<(f32, &[Times])> = rows
                .iter()
                .map(|(mass, row)| (*mass, row.as_slice()))
                .collect();
            let value = |weights| -> f32 {
                classes
                    .iter()
                    .map(|(mass, row)| mass * cheapest(row, weights).1)
                    .sum()
            };
            let mut top = 0.0_f32;
            for i in 0..=100 {
                for j in 0..=100 - i {
                    let (a, b) = (i as f32 / 100.0, j as f32 / 100.0);
                    top = top.max(value([a, b, (1.0 - a - b).max(0.0)]));
                }
            }
            let found = bound(&classes);
            assert!(
                found >= 0.98 * top,
                "seed {seed}: found {found}, grid {top}"
            );
        }
    }
}
