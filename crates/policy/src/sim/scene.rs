//! What a simulation runs on: data with true costs, a link, two machines. And what no policy can beat on it.

use std::sync::{Arc, OnceLock};

use crate::{
    offers::Offer,
    prior::{PriorCost, PriorKind},
    sim::{
        data::{self, Random},
        recording::Recording,
    },
    solve::{Times, bound},
};

/// One sort of data: bytes for the probe, and what every offer truly costs on it.
#[derive(Debug, Clone)]
pub struct Truth {
    /// Which sort.
    pub kind: PriorKind,
    /// Costs in the order of the offers, for chunks of 256 KiB.
    pub costs: Vec<PriorCost>,
    /// At least two megabytes.
    pub bytes: Arc<Vec<u8>>,
}

/// A world to run a policy in. Times in nanoseconds, rates in bytes per nanosecond.
#[derive(Debug, Clone)]
pub struct Scene {
    /// Real data, in place of `truths`.
    pub recording: Option<Arc<Recording>>,
    /// Sorts of data.
    pub truths: Vec<Truth>,
    /// Raw bytes and sort of each stretch, repeated for ever.
    pub stretches: Vec<(u64, usize)>,
    /// Threads that pack.
    pub workers: u32,
    /// Processors under them; the receiver's threads run on the same ones where `shared`.
    pub cores: u32,
    /// Whether both ends share the processors.
    pub shared: bool,
    /// Threads that unpack.
    pub peer_workers: u32,
    /// From when on unpacking takes how many times the true cost.
    pub peer_slow: Vec<(u64, f64)>,
    /// Chunks in flight between decision and link.
    pub depth: usize,
    /// From when on the link carries how much.
    pub link: Vec<(u64, f64)>,
    /// Bytes the kernel takes before a write waits.
    pub kernel_bytes: f64,
    /// What a token bucket before the link lets through at once.
    pub bucket_bytes: f64,
    /// Bytes that the kernel may hold before the sender sees anything wait: TCP's window and the queues behind it.
    pub flight_bytes: f64,
    /// There and back.
    pub rtt_ns: u64,
    /// Packed bytes sent and not yet unpacked, at most.
    pub credit_bytes: f64,
    /// What the source yields.
    pub source: f64,
    /// Relative deviation of costs from chunk to chunk.
    pub noise: f64,
    /// Seed of that deviation.
    pub seed: u64,
}

impl Scene {
    /// One link rate in Mbit/s, `workers` on either side, one sort of data for ever.
    #[must_use]
    pub fn new(truths: Vec<Truth>, mbit: f64, workers: u32) -> Self {
        let stretches = (0..truths.len()).map(|sort| (2 << 20, sort)).collect();
        Self {
            recording: None,
            truths,
            stretches,
            workers,
            cores: workers,
            shared: false,
            peer_workers: workers,
            peer_slow: vec![(0, 1.0)],
            depth: 4 * workers as usize + 8,
            link: vec![(0, mbit / 8000.0)],
            kernel_bytes: 256e3,
            bucket_bytes: 0.0,
            flight_bytes: 0.0,
            rtt_ns: 500_000,
            credit_bytes: 16e6,
            source: f64::INFINITY,
            noise: 0.05,
            seed: 1,
        }
    }

    /// The value of a step function.
    #[must_use]
    pub fn step(steps: &[(u64, f64)], now: f64) -> f64 {
        steps
            .iter()
            .rev()
            .find(|(from, _)| *from as f64 <= now)
            .map_or(1.0, |(_, value)| *value)
    }

    /// The sort of data at this raw offset.
    #[must_use]
    pub fn sort_at(&self, offset: u64) -> usize {
        if self.recording.is_some() {
            return 0;
        }
        let whole: u64 = self.stretches.iter().map(|(len, _)| len).sum();
        let mut rest = offset % whole;
        for &(len, sort) in &self.stretches {
            if rest < len {
                return sort;
            }
            rest -= len;
        }
        unreachable!("rest is less than the sum")
    }

    /// Stage times per raw byte of every offer on one sort at the scene's state at `now`, for chunks of `len` bytes.
    #[must_use]
    pub fn times(&self, sort: usize, offers: &[Offer], now: f64, len: usize) -> Vec<Times> {
        let link = Self::step(&self.link, now);
        let slow = Self::step(&self.peer_slow, now);
        let cores = f64::from(self.cores.min(self.workers));
        self.truths[sort]
            .costs
            .iter()
            .zip(offers)
            .map(|(cost, offer)| {
                let size = f64::from(cost.size * length_factor(len, cost.size)).min(1.0);
                let kept = if size >= 1.0 && offer.name != "raw" {
                    f64::from(PriorCost::RAW.unpack)
                } else {
                    f64::from(cost.unpack)
                };
                let (pack, unpack) = (
                    f64::from(cost.pack + offer.indexing_beyond(len)),
                    kept * slow,
                );
                let peers = if offer.candidate.history_len > 0 {
                    1.0
                } else {
                    f64::from(self.peer_workers)
                };
                if self.shared {
                    [
                        ((pack + unpack) / cores) as f32,
                        (size / link) as f32,
                        (unpack / peers) as f32,
                    ]
                } else {
                    [
                        (pack / cores) as f32,
                        (size / link) as f32,
                        (unpack / peers) as f32,
                    ]
                }
            })
            .collect()
    }

    /// Nanoseconds per raw byte: no policy is faster than the first; the best fixed choice; raw.
    #[must_use]
    pub fn limits(&self, offers: &[Offer], now: f64, len: usize) -> Limits {
        let whole: f32 = self.stretches.iter().map(|(len, _)| *len as f32).sum();
        let rows: Vec<(f32, Vec<Times>)> = self
            .stretches
            .iter()
            .map(|&(mass, sort)| (mass as f32 / whole, self.times(sort, offers, now, len)))
            .collect();
        let classes: Vec<(f32, &[Times])> = rows
            .iter()
            .map(|(mass, row)| (*mass, row.as_slice()))
            .collect();
        let source = (1.0 / self.source) as f32;
        let fixed = |index: usize| {
            let mut sums = [0.0_f32; 3];
            for (mass, row) in &classes {
                (0..3).for_each(|stage| sums[stage] += mass * row[index][stage]);
            }
            sums.iter().fold(source, |most, &sum| most.max(sum))
        };
        let best = (0..offers.len())
            .min_by(|&a, &b| fixed(a).total_cmp(&fixed(b)))
            .unwrap_or(0);
        Limits {
            bound: bound(&classes).max(source),
            fixed: fixed(best),
            best,
            raw: fixed(0),
        }
    }
}

/// Nanoseconds per raw byte of what a policy is measured by.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The linear program.
    pub bound: f32,
    /// The best fixed choice in hindsight, were it pipelined without loss.
    pub fixed: f32,
    /// Which one that is.
    pub best: usize,
    /// Raw, likewise.
    pub raw: f32,
}

/// Longer chunks pack better.
#[must_use]
pub fn length_factor(len: usize, size: f32) -> f32 {
    if size > 0.95 {
        1.0
    } else {
        ((256 << 10) as f32 / len as f32).powf(0.03)
    }
}

/// Data whose costs deviate from the priors as another file's on another machine would: `far` times more than that.
#[must_use]
pub fn truth(offers: &[Offer], kind: PriorKind, stride: u8, seed: u64, far: f64) -> Truth {
    let mut random = Random::new(seed);
    let mut lognormal = |sigma: f64| (sigma * far * random.normal()).exp() as f32;
    let (machine, gain) = (lognormal(0.3), lognormal(0.2));
    let costs = offers
        .iter()
        .map(|offer| {
            let prior = offer.prior(kind, stride);
            let (own_pack, own_size, own_unpack) =
                (lognormal(0.15), lognormal(0.04), lognormal(0.1));
            if offer.name == "raw" || prior.size >= 1.0 {
                return prior;
            }
            let ratio = 1.0 + (1.0 / prior.size - 1.0) * gain * own_size;
            PriorCost {
                size: 1.0 / ratio,
                pack: prior.pack * machine * own_pack,
                unpack: prior.unpack * machine * own_unpack,
            }
        })
        .collect();
    Truth {
        kind,
        costs,
        bytes: shared_bytes(kind, stride),
    }
}

fn shared_bytes(kind: PriorKind, stride: u8) -> Arc<Vec<u8>> {
    type Sample = (PriorKind, u8, Arc<Vec<u8>>);
    static BYTES: OnceLock<Vec<Sample>> = OnceLock::new();
    let all = BYTES.get_or_init(|| {
        data::SHAPES
            .iter()
            .map(|&(kind, stride)| {
                (
                    kind,
                    stride,
                    Arc::new(data::bytes(kind, stride, 2 << 20, 1)),
                )
            })
            .collect()
    });
    let (.., bytes) = all
        .iter()
        .find(|(k, s, _)| (*k, *s) == (kind, stride))
        .expect("one of the shapes");
    Arc::clone(bytes)
}
