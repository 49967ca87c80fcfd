//! How far one outcome moves what is believed of a candidate and of its class.
//!
//! Why gains: one chunk that packs to half of what was thought says much of its candidate where chunks are alike, and
//! nothing where every chunk is different (memory, archives). Taken at its word, it makes the policy run after
//! whichever candidate had the easiest chunks. So an outcome moves a guess by the share that the guess's own variance
//! has in what was seen: a Kalman filter of one state (R. E. Kalman, *A New Approach to Linear Filtering*, 1960). How
//! unlike chunks are is measured, per class; how far priors and slices are off is a constant, measured once.
//!
//! The longer the same candidate is used, the less its outcomes move its guess: they say nothing of how it compares with
//! others, so the level follows them. Were the guess moved as much, each easy chunk would leave it a little lower and the level a little higher, and after
//! thousands all other candidates, whose guesses stand still, were taken for ten times as slow as they are.
//!
//! Neighbours: [`crate::table`] holds guesses and levels. Units: values as they come, noise as standard deviations of
//! natural logarithms, so that 0.1 is ten percent.

use crate::{offers::Offer, tuning::tuning};

/// A value, and how sure of it we are.
#[derive(Debug, Clone, Copy)]
pub struct CostEstimate {
    value: f32,
    variance: f32,
    /// What the variance grows by with every sample: data change.
    drift: f32,
}

impl CostEstimate {
    /// Starts from a prior that is off by so much.
    #[must_use]
    pub fn new(value: f32, noise: f32) -> Self {
        let variance = noise * noise;
        Self {
            value,
            variance,
            drift: tuning().estimate_drift * variance,
        }
    }

    /// What is believed.
    #[must_use]
    pub fn value(&self) -> f32 {
        self.value
    }

    /// How far it may be off, squared.
    #[must_use]
    pub fn variance(&self) -> f32 {
        self.variance
    }

    /// A sample that is off by so much, of which `share` is news of this guess.
    pub fn learn(&mut self, sample: f32, noise: f32, share: f32) {
        Self::learn_product([self], sample, noise, share);
    }

    /// The same, where it is known well what a sample may be off by: a value much further off than that was believed
    /// too firmly.
    pub fn learn_sure(&mut self, sample: f32, noise: f32) {
        Self::learn_product_sure([self], sample, noise);
    }

    /// As [`Self::learn`], where the sample is of the product of all `factors`: the less sure one is, the more of the
    /// news is of it.
    pub fn learn_product<const N: usize>(
        factors: [&mut Self; N],
        sample: f32,
        noise: f32,
        share: f32,
    ) {
        let (off, variance) = Self::off(&factors, sample);
        let gain = share / (variance + noise * noise);
        for factor in factors {
            let gain = gain * factor.variance;
            factor.value *= (gain * off).exp();
            factor.variance = (1.0 - gain) * factor.variance + share * factor.drift;
        }
    }

    /// As [`Self::learn_sure`], of a product.
    pub fn learn_product_sure<const N: usize>(
        mut factors: [&mut Self; N],
        sample: f32,
        noise: f32,
    ) {
        let (off, variance) = Self::off(&factors, sample);
        if !tuning().rule_estimate_far {
            return Self::learn_product(factors, sample, noise, 1.0);
        }
        let scale = ((off * off / tuning().estimate_far - noise * noise) / variance).max(1.0);
        factors
            .iter_mut()
            .for_each(|factor| factor.variance *= scale);
        Self::learn_product(factors, sample, noise, 1.0);
    }

    /// How far a sample is off the product, as a logarithm, and the product's variance.
    fn off(factors: &[&mut Self], sample: f32) -> (f32, f32) {
        let value: f32 = factors.iter().map(|factor| factor.value).product();
        (
            (sample / value).ln(),
            factors.iter().map(|factor| factor.variance).sum(),
        )
    }

    /// A sample of what no forecast depends on, such as raw's copying.
    pub fn follow(&mut self, sample: f32) {
        self.value += (sample - self.value) * tuning().estimate_follow;
    }
}

/// What is known of a candidate against another, of packed sizes, is off by so much.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// In the priors.
    pub prior: f32,
    /// In one class, against others of its kind.
    pub class: f32,
    /// On a slice, against the whole chunk.
    pub slice: f32,
}

/// Measured with the example `replay` of `narrows-lab` on memory, executables, text, logs, floats and a mixture, each
/// candidate against zstd 3 on the same block of 256 KiB: sizes differ among zstd's levels by 2 to 6 percent from block
/// to block, to LZ4, DEFLATE and zstd's negative levels by 5 to 18, to codecs of numbers by 10 to 40; a slice of 32 KiB
/// shows that difference to 1 to 6, 4 to 14, and 5 to 30 percent. From class to class of one kind, on 33 recordings, they
/// differ by 0 to 2, 3 to 6 and 4 to 10 percent in the mean, and by up to 18.
impl Spread {
    fn levels() -> Self {
        Self {
            prior: tuning().estimate_levels_prior,
            class: tuning().estimate_levels_class,
            slice: tuning().estimate_levels_slice,
        }
    }

    fn plain() -> Self {
        Self {
            prior: tuning().estimate_plain_prior,
            class: tuning().estimate_plain_class,
            slice: tuning().estimate_plain_slice,
        }
    }

    fn typed() -> Self {
        Self {
            prior: tuning().estimate_typed_prior,
            class: tuning().estimate_typed_class,
            slice: tuning().estimate_typed_slice,
        }
    }

    /// A candidate's own.
    #[must_use]
    pub fn of(offer: &Offer) -> Self {
        match () {
            () if offer.is_typed() => Self::typed(),
            () if offer.name == "zstd" && offer.candidate.level.0 > 0 => Self::levels(),
            () => Self::plain(),
        }
    }

    /// Of one candidate against another, which may differ from it by level only.
    #[must_use]
    pub fn against(self, other: Self, same_family: bool) -> Self {
        match () {
            () if same_family && self == Self::typed() => Self::levels(),
            () if self.slice > other.slice => self,
            () => other,
        }
    }
}

/// How much larger and slower to pack chunks of one class are of late than the guesses of their kind, as factors.
#[derive(Debug, Clone, Copy)]
pub struct Level {
    size: Trend,
    pack: Trend,
    /// The candidate of the last outcomes, and how many in a row were its.
    run: (usize, u32),
}

impl Level {
    /// As the guesses have it.
    #[must_use]
    pub fn unknown() -> Self {
        Self {
            size: Trend::unknown(),
            pack: Trend::unknown(),
            run: (0, 0),
        }
    }

    /// Of packed sizes.
    #[must_use]
    pub fn size(&self) -> f32 {
        self.size.value
    }

    /// Of packing times.
    #[must_use]
    pub fn pack(&self) -> f32 {
        self.pack.value
    }

    /// How many outcomes in a row, up to now, were this candidate's.
    #[must_use]
    pub fn run_of(&self, index: usize) -> u32 {
        let is_its = self.run.0 == index && tuning().rule_estimate_run;
        if is_its { self.run.1 } else { 0 }
    }

    /// A chunk of candidate `index` took this much, size and time, of what the level scales, and by `unsure`,
    /// variances, what it scales may be off itself. How unlike chunks are is told by candidates `tried` before, since
    /// the first outcome of any shows as well what its prior was off by. Returns by how much sizes and times differ
    /// from chunk to chunk.
    pub fn learn(
        &mut self,
        index: usize,
        found: [f32; 2],
        unsure: [f32; 2],
        tried: bool,
    ) -> [f32; 2] {
        let run = self.run_of(index);
        self.run = (index, run + 1);
        // What the outcomes before had of the candidate's own, the level has taken already.
        let unsure = if run == 0 { unsure } else { [0.0; 2] };
        let first_size_max = if tuning().rule_estimate_first_size {
            tuning().estimate_first_size_max
        } else {
            tuning().estimate_level_max
        };
        [
            self.size.learn(found[0], unsure[0], tried, first_size_max),
            self.pack
                .learn(found[1], unsure[1], tried, tuning().estimate_level_max),
        ]
    }

    /// How unlike its chunks are in packing time.
    #[must_use]
    pub fn pack_noise(&self) -> f32 {
        self.pack
            .noise
            .map_or(tuning().estimate_noise_start, f32::sqrt)
    }

    /// A packed size at this level.
    #[must_use]
    pub fn size_of(&self, size: f32) -> f32 {
        (self.size.value * size).min(1.0)
    }

    /// A chunk travelled raw.
    pub fn fade(&mut self) {
        if !tuning().rule_estimate_fade {
            return;
        }
        for trend in [&mut self.size, &mut self.pack] {
            trend.value = trend.value.powf(tuning().estimate_fade);
        }
    }
}

/// What changes from chunk to chunk and is followed as far as it is a trend.
#[derive(Debug, Clone, Copy)]
struct Trend {
    value: f32,
    /// How unlike chunks are: mean square of the surprises. `None` until there was an outcome.
    noise: Option<f32>,
    /// What share of a surprise, in powers, is followed.
    share: f32,
    /// The last surprise, as a logarithm.
    last: f32,
}

impl Trend {
    fn unknown() -> Self {
        Self {
            value: 1.0,
            noise: None,
            share: tuning().estimate_share_start,
            last: 0.0,
        }
    }

    fn learn(&mut self, found: f32, unsure: f32, tried: bool, first_max: f32) -> f32 {
        let surprise = (found / self.value).ln();
        let (share, most) = self.noise.map_or((1.0, first_max), |noise| {
            (
                self.share * noise / (noise + unsure),
                tuning().estimate_step_max,
            )
        });
        let step = share * surprise.clamp(-most.ln(), most.ln());
        self.value = (self.value * step.exp()).clamp(
            1.0 / tuning().estimate_level_max,
            tuning().estimate_level_max,
        );
        let noise = match self.noise {
            None => tuning().estimate_noise_start * tuning().estimate_noise_start,
            Some(noise) => {
                // One surprise after the other in one direction says that too little was followed, in turns that too
                // much.
                let alike = (surprise * self.last / noise).clamp(-1.0, 1.0);
                if tuning().rule_estimate_adapt {
                    self.share = (self.share * (tuning().estimate_adapt * alike).exp())
                        .clamp(tuning().estimate_share_min, tuning().estimate_share_max);
                }
                self.last = surprise;
                if tried || !tuning().rule_estimate_tried {
                    noise + (surprise.powi(2) - noise) / tuning().estimate_noise_memory
                } else {
                    noise
                }
            }
        };
        let noise = noise.max(tuning().estimate_noise_min * tuning().estimate_noise_min);
        self.noise = Some(noise);
        noise.sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guess_follows_sure_samples_and_hardly_unsure_ones() {
        let (mut sure, mut unsure) = (CostEstimate::new(0.4, 0.05), CostEstimate::new(0.4, 0.05));
        for _ in 0..10 {
            sure.learn(0.2, 0.02, 1.0);
            unsure.learn(0.2, 0.7, 1.0);
        }
        assert!((sure.value() / 0.2 - 1.0).abs() < 0.02, "{sure:?}");
        assert!(unsure.value() > 0.37, "{unsure:?}");
    }

    #[test]
    fn a_level_tells_how_unlike_chunks_are() {
        let (mut alike, mut unlike) = (Level::unknown(), Level::unknown());
        let noise = |level: &mut Level, sizes: [f32; 2]| {
            (0..40).fold(0.0, |_, at| {
                level.learn(1, [sizes[at % 2], 1.0], [0.0; 2], true)[0]
            })
        };
        assert!(noise(&mut alike, [0.3, 0.31]) < 0.05);
        assert!(noise(&mut unlike, [0.1, 0.6]) > 0.5);
        assert!((0.1..0.6).contains(&unlike.size()), "{unlike:?}");
    }
}
