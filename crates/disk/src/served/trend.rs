//! When a disk will be full if it goes on like this.
//!
//! Reads no clock: times come in as seconds from any fixed moment.

use std::collections::VecDeque;

/// Seconds that a trend looks back. In less, a burst would look like the end; in more, a change of habit is seen late.
const WINDOW_S: f64 = 600.0;
/// Seconds that must be seen before anything is said.
const SPAN_MIN_S: f64 = 10.0;
/// Samples kept: with one a second, the window.
const SAMPLES_MAX: usize = 600;
/// No promise reaches further, in seconds: ten years.
const HORIZON_S: f64 = 10.0 * 365.25 * 86400.0;
/// How the bytes in use went of late.
#[derive(Debug, Default)]
pub(crate) struct Trend {
    samples: VecDeque<(f64, f64)>,
}

impl Trend {
    /// Adds what is in use at `at_s`, in bytes.
    pub(crate) fn push(&mut self, at_s: f64, used: u64) {
        while self.samples.len() >= SAMPLES_MAX
            || self
                .samples
                .front()
                .is_some_and(|(then, _)| at_s - then > WINDOW_S)
        {
            self.samples.pop_front();
        }
        self.samples.push_back((at_s, used as f64));
    }

    /// Bytes a second by which it grows; negative if it shrinks. `None` until enough was seen.
    pub(crate) fn bytes_per_s(&self) -> Option<f64> {
        let (first, last) = (self.samples.front()?.0, self.samples.back()?.0);
        if last - first < SPAN_MIN_S {
            return None;
        }
        // Least squares: the first and the last sample alone may be two moments of one burst.
        let count = self.samples.len() as f64;
        let mean_t = self.samples.iter().map(|(t, _)| t).sum::<f64>() / count;
        let mean_u = self.samples.iter().map(|(_, u)| u).sum::<f64>() / count;
        let (mut above, mut below) = (0.0, 0.0);
        for (t, used) in &self.samples {
            above += (t - mean_t) * (used - mean_u);
            below += (t - mean_t).powi(2);
        }
        (below > 0.0).then(|| above / below)
    }

    /// Seconds until `capacity` bytes are in use; `None` if it does not grow, or not within ten years.
    pub(crate) fn full_in_s(&self, capacity: u64) -> Option<f64> {
        let used = self.samples.back()?.1;
        let left = (capacity as f64 - used).max(0.0);
        let rate = self.bytes_per_s().filter(|rate| *rate > 0.0)?;
        Some(left / rate).filter(|seconds| *seconds <= HORIZON_S)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_growth_is_foretold_and_a_standstill_is_not() {
        let mut trend = Trend::default();
        for second in 0..9 {
            trend.push(f64::from(second), 1000 * second as u64);
            assert_eq!(trend.full_in_s(100_000), None, "too early to say");
        }
        for second in 9..100 {
            trend.push(f64::from(second), 1000 * second as u64);
        }
        assert!((trend.bytes_per_s().unwrap() - 1000.0).abs() < 1e-6);
        assert!((trend.full_in_s(199_000).unwrap() - 100.0).abs() < 1e-6);
        assert_eq!(trend.full_in_s(99_000).unwrap(), 0.0);
        for second in 100..1000 {
            trend.push(f64::from(second), 99_000);
        }
        assert_eq!(trend.full_in_s(199_000), None, "the window forgets");
        assert!(trend.samples.len() <= SAMPLES_MAX);
        let mut slow = Trend::default();
        for hour in 0..20 {
            slow.push(f64::from(hour) * 30.0, hour as u64);
        }
        assert_eq!(slow.full_in_s(1 << 40), None, "nobody knows so far ahead");
    }
}
