//! How long requests took, counted by many threads at once.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// How often requests took how long: eight steps for each doubling, so that a percentile is exact to an eighth. 2.5
/// KiB; recording is one relaxed addition.
#[derive(Debug)]
pub struct Histogram([AtomicU64; Self::STEPS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; Self::STEPS])
    }
}

impl Histogram {
    const STEPS: usize = 8 * 40;

    /// Counts one request.
    pub fn record(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(8);
        let octave = ns.ilog2() as usize;
        let step = (octave - 3) * 8 + (ns >> (octave - 3) & 7) as usize;
        self.0[step.min(Self::STEPS - 1)].fetch_add(1, Ordering::Relaxed);
    }

    /// Upper end of a step, in nanoseconds.
    fn end_ns(step: usize) -> u64 {
        (8 + step as u64 % 8 + 1) << (step / 8)
    }

    /// What was counted so far.
    #[must_use]
    pub fn latency(&self) -> Latency {
        let counts: Vec<u64> = self
            .0
            .iter()
            .map(|step| step.load(Ordering::Relaxed))
            .collect();
        let requests: u64 = counts.iter().sum();
        let percentile = |share: f64| {
            let mut left = (requests as f64 * share).ceil() as u64;
            let step = counts.iter().position(|&count| {
                left = left.saturating_sub(count);
                left == 0
            });
            if requests == 0 {
                0.0
            } else {
                Self::end_ns(step.unwrap_or(Self::STEPS - 1)) as f64 / 1000.0
            }
        };
        Latency {
            requests,
            p50_us: percentile(0.5),
            p99_us: percentile(0.99),
            p999_us: percentile(0.999),
        }
    }
}

/// How long requests took inside the device, since it began; without the socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many there were.
    pub requests: u64,
    /// Half were faster, in microseconds; exact to an eighth.
    pub p50_us: f64,
    /// 99 of 100 were faster.
    pub p99_us: f64,
    /// 999 of 1000 were faster.
    pub p999_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact_to_an_eighth() {
        let histogram = Histogram::default();
        for us in 1..=1000 {
            histogram.record(Duration::from_micros(us));
        }
        let latency = histogram.latency();
        assert_eq!(latency.requests, 1000);
        for (found, want) in [
            (latency.p50_us, 500.0),
            (latency.p99_us, 990.0),
            (latency.p999_us, 999.0),
        ] {
            assert!((1.0..=1.13).contains(&(found / want)), "{found} {want}");
        }
        histogram.record(Duration::MAX);
        histogram.record(Duration::ZERO);
        assert_eq!(histogram.latency().requests, 1002);
    }
}
