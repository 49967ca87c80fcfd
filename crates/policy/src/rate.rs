//! Estimates what the link carries, from the sender's own counters.
//!
//! The trap: a write returns when the kernel has taken the bytes, not when the link has. While its buffers fill, the
//! link looks ten times faster than it is. So a sample counts only where the sender was held up by writing for most of
//! the window; otherwise the link was not the bottleneck and we learn only that it is *at least* so fast: the estimate
//! climbs, and if it climbs too far, choices get lighter, the link fills, and the next sample is an honest one.
//!
//! Neighbours: [`crate::adaptive`] feeds it [`Gauges`]. Units: bytes per nanosecond (1 is 8 Gbit/s).

use narrows_core::Gauges;

/// The link as the sender sees it.
#[derive(Debug, Clone)]
pub struct Rate {
    bytes_per_ns: f64,
    start: Gauges,
    /// Sample of the window before, where the sender was held up in it.
    previous: Option<f64>,
    verdict: Verdict,
    /// Whether any window was held up by the link yet.
    measured: bool,
}

/// What held the sender up in the last window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The link: it was written to nearly all the time.
    Link,
    /// Nothing to send: packing or the source is slower.
    Idle,
    /// No credit: the receiver is slower.
    Starved,
    /// Cannot tell.
    Unclear,
}

impl Rate {
    /// Starts from a guess in bytes per nanosecond.
    #[must_use]
    pub fn new(bytes_per_ns: f64) -> Self {
        Self { bytes_per_ns, start: Gauges::default(), previous: None, verdict: Verdict::Unclear, measured: false }
    }

    /// Bytes per nanosecond.
    #[must_use]
    pub fn bytes_per_ns(&self) -> f64 {
        self.bytes_per_ns
    }

    /// Whether the link ever held the sender up, so that the estimate is more than a guess.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.measured
    }

    /// Looks at the counters. Returns what held the sender up where a window just ended.
    pub fn update(&mut self, gauges: &Gauges) -> Option<Verdict> {
        let span = gauges.now_ns.saturating_sub(self.start.now_ns);
        let sent = gauges.sent_bytes.saturating_sub(self.start.sent_bytes);
        // At the start, more than any kernel buffers in a moment: the link is fast, and time is short.
        let hurry = !self.measured && sent > HURRY_BYTES;
        if span < if hurry { WINDOW_NS / 4 } else { WINDOW_NS } {
            return None;
        }
        // Few bytes are mostly buffer. On slow links wait for more, within reason.
        if sent < WINDOW_BYTES && span < 4 * WINDOW_NS || sent == 0 {
            return None;
        }
        let sending = gauges.sending_ns.saturating_sub(self.start.sending_ns);
        let starved = gauges.starved_ns.saturating_sub(self.start.starved_ns);
        self.start = *gauges;
        let share = |part: u64| part as f64 / span as f64;
        let sample = sent as f64 / sending.max(1) as f64;
        self.verdict = match () {
            () if share(starved) > 0.2 => Verdict::Starved,
            () if share(sending) > HELD_UP => Verdict::Link,
            () if share(sending) < 0.9 * HELD_UP => Verdict::Idle,
            () => Verdict::Unclear,
        };
        if self.verdict == Verdict::Link {
            self.measured = true;
            // The first window after an idle one starts with empty kernel buffers: it shows too much.
            let honest = match self.previous {
                Some(previous) => previous.min(sample),
                None => sample.min(1.5 * self.bytes_per_ns),
            };
            let far = !(0.7..1.4).contains(&(honest / self.bytes_per_ns));
            self.bytes_per_ns += if far { 1.0 } else { 0.4 } * (honest - self.bytes_per_ns);
            self.previous = Some(sample);
        } else {
            self.previous = None;
            let least = sent as f64 / span as f64;
            let climb = match self.verdict {
                Verdict::Idle if hurry => 3.0,
                Verdict::Idle if share(sending) < 0.25 => 1.8,
                Verdict::Idle => 1.15,
                _ => 1.0,
            };
            let most = sample.max(least);
            self.bytes_per_ns = self.bytes_per_ns.max((self.bytes_per_ns * climb).min(most)).max(least);
        }
        self.bytes_per_ns = self.bytes_per_ns.clamp(1e-6, 100.0);
        Some(self.verdict)
    }
}

/// Shortest window, in nanoseconds: many chunks of a fast link, a fraction of one of a slow link.
const WINDOW_NS: u64 = 8_000_000;
/// Sent within a first window, this much lets it end early, in bytes.
const HURRY_BYTES: u64 = 1 << 20;
/// Fewer bytes than this in a window say nothing, unless the window is long.
const WINDOW_BYTES: u64 = 128 << 10;
/// Share of a window spent writing above which the link is taken for the bottleneck.
const HELD_UP: f64 = 0.6;

#[cfg(test)]
mod tests {
    use super::*;

    /// Advances by `ms` in which `bytes` went in `sending` share of the time.
    fn step(gauges: &mut Gauges, ms: u64, bytes: u64, sending: f64) {
        gauges.now_ns += ms * 1_000_000;
        gauges.sent_bytes += bytes;
        gauges.sending_ns += (ms as f64 * 1e6 * sending) as u64;
    }

    #[test]
    fn what_the_kernel_swallows_is_not_taken_for_the_link() {
        let (mut rate, mut gauges) = (Rate::new(0.125), Gauges::default());
        // Four megabytes vanish within two milliseconds, then 20 Mbit/s.
        step(&mut gauges, 20, 4 << 20, 0.1);
        rate.update(&gauges);
        for _ in 0..20 {
            step(&mut gauges, 50, 125_000, 1.0);
            rate.update(&gauges);
        }
        assert!((rate.bytes_per_ns() / 0.0025 - 1.0).abs() < 0.02, "{rate:?}");
    }

    #[test]
    fn an_idle_link_is_only_believed_to_be_faster() {
        let (mut rate, mut gauges) = (Rate::new(0.125), Gauges::default());
        for _ in 0..20 {
            step(&mut gauges, 10, 200_000, 0.01);
            assert_eq!(rate.update(&gauges), Some(Verdict::Idle));
        }
        assert!(rate.bytes_per_ns() > 1.0, "{rate:?}");
        assert!(!rate.is_measured());
    }
}
