//! Estimates what the link carries, from what it carried while more was waiting for it.
//!
//! The trap: a write returns when the kernel has taken the bytes, not when the link has. While its buffers fill, or
//! while a token bucket lets a burst through, the link looks ten times faster than it is. So only spans count in which
//! bytes waited all the time. Without such spans the link was not the bottleneck and we learn only that it is *at
//! least* so fast: where nothing was measured lately the estimate climbs, choices get lighter, the link fills, and the
//! next sample is an honest one.
//!
//! A windowed maximum of the samples, as BBR has it, is not it: it holds what a link was, and what a receiver that fell
//! behind let through, for as long as its window.
//!
//! Neighbours: [`crate::adaptive`] feeds it [`Gauges`]. Units: bytes per nanosecond (1 is 8 Gbit/s).

use narrows_core::Gauges;

use crate::tuning::tuning;

/// The link as the sender sees it.
#[derive(Debug, Clone)]
pub struct LinkRate {
    bytes_per_ns: f64,
    /// What it started from.
    guess: f64,
    /// Whether an earlier run measured that.
    recalled: bool,
    start: Gauges,
    /// Sample of the window before, where there was one.
    previous: Option<f64>,
    verdict: RateVerdict,
    /// When a sample was taken last.
    measured_ns: Option<u64>,
    /// What was found some time ago and is believed still, and since when the second is.
    believed: [Option<f64>; 2],
    believed_ns: u64,
    behind: bool,
    /// Bytes and time of waits too short for a sample of their own, and since when they are added up.
    pooled: (u64, u64),
    pooled_since_ns: u64,
}

/// What held the sender up in the last window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateVerdict {
    /// The link: it was written to nearly all the time.
    Link,
    /// Nothing to send: packing or the source is slower.
    Idle,
    /// No credit: the receiver is slower.
    Starved,
    /// Cannot tell.
    Unclear,
}

impl LinkRate {
    /// Starts from a guess in bytes per nanosecond.
    #[must_use]
    pub fn new(bytes_per_ns: f64) -> Self {
        let (start, verdict) = (Gauges::default(), RateVerdict::Unclear);
        Self {
            bytes_per_ns,
            guess: bytes_per_ns,
            recalled: false,
            start,
            previous: None,
            verdict,
            measured_ns: None,
            believed: [None; 2],
            believed_ns: 0,
            behind: false,
            pooled: (0, 0),
            pooled_since_ns: 0,
        }
    }

    /// Starts from what an earlier run measured: that is believed until this one has measured, or more went than buffers
    /// on the way can take.
    #[must_use]
    pub fn recalled(bytes_per_ns: f64) -> Self {
        Self {
            recalled: true,
            ..Self::new(bytes_per_ns)
        }
    }

    /// Bytes per nanosecond.
    #[must_use]
    pub fn bytes_per_ns(&self) -> f64 {
        self.bytes_per_ns
    }

    /// The same as far as no buffer on the way can feign it, `sent_bytes` after the start.
    #[must_use]
    pub fn surely(&self, sent_bytes: u64) -> f64 {
        let is_sure = !tuning().rule_rate_surely || self.is_measured();
        if is_sure || sent_bytes > tuning().rate_hoarded_bytes {
            self.bytes_per_ns
        } else {
            self.guess
        }
    }

    /// Whether the link ever held the sender up, so that the estimate is more than a guess.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.measured_ns.is_some()
    }

    /// What may be believed though nothing ever waited for the link: all that was sent may lie in buffers on the way.
    fn unseen_max(&self, sent_bytes: u64) -> f64 {
        match () {
            () if self.recalled && sent_bytes < tuning().rate_hoarded_bytes => self.guess,
            () if sent_bytes < tuning().rate_bucket_bytes => self.guess,
            () if sent_bytes < tuning().rate_swallowed_bytes => {
                self.guess * sent_bytes as f64 / tuning().rate_unseen_bytes
            }
            () => f64::INFINITY,
        }
    }

    /// A receiver that falls behind is known to by its report: what was measured since was no longer the link.
    fn remember(&mut self, now_ns: u64, behind: bool) {
        if behind && !self.behind && tuning().rule_rate_remember {
            self.bytes_per_ns = self.believed[0].unwrap_or(self.bytes_per_ns);
        } else if !behind && now_ns >= self.believed_ns + tuning().rate_report_ns {
            self.believed = [
                self.believed[1],
                self.is_measured().then_some(self.bytes_per_ns),
            ];
            self.believed_ns = now_ns;
        }
        self.behind = behind;
    }

    /// Looks at the counters. Returns what held the sender up where a window just ended.
    /// Where the receiver is `behind`, a full link says nothing of what it carries.
    pub fn update(&mut self, gauges: &Gauges, behind: bool) -> Option<RateVerdict> {
        self.remember(gauges.now_ns, behind);
        // At the start, a link on which nothing waits is faster than we thought, and time is short.
        let most = if self.is_measured() || !tuning().rule_rate_unseen {
            f64::INFINITY
        } else {
            self.unseen_max(gauges.sent_bytes)
        };
        let swallowed = self.bytes_per_ns >= most;
        let window = self.window(gauges, behind, swallowed)?;
        let Window {
            span,
            acked,
            held_ns,
            carried,
        } = window;
        let starved = gauges.starved_ns.saturating_sub(self.start.starved_ns);
        let full_ns = gauges.full_ns.saturating_sub(self.start.full_ns);
        self.start = *gauges;
        let share = |part: u64| part as f64 / span as f64;
        self.verdict = match () {
            () if behind || share(starved) > tuning().rate_starved => RateVerdict::Starved,
            () if share(held_ns) > tuning().rate_held_up => RateVerdict::Link,
            () if share(full_ns) < tuning().rate_idle * tuning().rate_held_up => RateVerdict::Idle,
            () => RateVerdict::Unclear,
        };
        let least = acked as f64 / span as f64;
        // While the link is not full all the time, the peer tells late and in bursts of what came through: such waits
        // say something together only.
        let (pooled, pooled_ns) = (self.pooled.0 + carried, self.pooled.1 + held_ns);
        let sample = pooled as f64 / pooled_ns.max(1) as f64;
        // What a full token bucket let through at the beginning says nothing.
        let bucket = if tuning().rule_rate_bucket {
            tuning().rate_burst_bytes
        } else {
            0
        };
        let beyond_bucket = pooled.saturating_sub(bucket) as f64 / pooled_ns.max(1) as f64;
        let held = self.verdict == RateVerdict::Link
            || pooled > tuning().rate_burst_bytes && pooled_ns > tuning().rate_held_min_ns;
        let whole = share(held_ns) > tuning().rate_held_whole;
        if !tuning().rule_rate_pool
            || held
            || behind
            || gauges.now_ns > self.pooled_since_ns + tuning().rate_pool_ns
        {
            (self.pooled, self.pooled_since_ns) = ((0, 0), gauges.now_ns);
        } else {
            self.pooled = (pooled, pooled_ns);
        }
        let fresh = self.is_fresh(gauges.now_ns);
        // Where the wait begins the peer has yet to tell of what came through: less than what was measured just before
        // is no news.
        let begins = tuning().rule_rate_begins && fresh && !whole && sample < self.bytes_per_ns;
        if held && !behind && !begins {
            self.follow(window, sample, beyond_bucket, gauges.now_ns);
        } else {
            self.previous = None;
            let climb = match self.verdict {
                _ if !tuning().rule_rate_climb => 1.0,
                RateVerdict::Idle if fresh || swallowed => 1.0,
                RateVerdict::Idle if share(held_ns) < tuning().rate_climb_share => {
                    tuning().rate_climb
                }
                RateVerdict::Idle => tuning().rate_climb_slow,
                _ => 1.0,
            };
            // Lighter choices take a while to show: do not run ahead of them. What was measured once moves only if the
            // link is nearly used up without anything waiting for it.
            let ahead = if self.is_measured() {
                tuning().rate_ahead_measured
            } else {
                tuning().rate_ahead
            };
            let climbed = (self.bytes_per_ns * climb).min(self.bytes_per_ns.max(ahead * least));
            let at_least = match self.verdict {
                _ if !tuning().rule_rate_passed => 0.0,
                // A receiver that reads in bursts has buffers on the way filled in bursts, as fast as this machine is.
                RateVerdict::Starved if self.is_measured() => carried as f64 / span as f64,
                _ if fresh => 0.0,
                _ => least,
            };
            self.bytes_per_ns = climbed.max(at_least).min(most.max(self.bytes_per_ns));
        }
        self.bytes_per_ns = self.bytes_per_ns.clamp(1e-6, 100.0);
        Some(self.verdict)
    }

    /// What happened since the last window ended, if it is enough to tell something.
    fn window(&self, gauges: &Gauges, behind: bool, swallowed: bool) -> Option<Window> {
        let span = gauges.now_ns.saturating_sub(self.start.now_ns);
        let sent = gauges.sent_bytes.saturating_sub(self.start.sent_bytes);
        let held_ns = gauges.link_ns.saturating_sub(self.start.link_ns);
        let hurry =
            tuning().rule_rate_hurry && !self.is_measured() && !swallowed && held_ns < span / 4;
        // What came through is known late, and while it waits for the receiver only the most of it tells of the link.
        let span_min = if behind && self.is_measured() {
            tuning().rate_behind_ns
        } else if hurry {
            tuning().rate_window_ns / tuning().rate_hurry
        } else {
            tuning().rate_window_ns
        };
        if span < span_min {
            return None;
        }
        // Few bytes are mostly buffer. On slow links wait for more, within reason.
        if !hurry && sent < tuning().rate_window_bytes && span < 4 * tuning().rate_window_ns
            || sent == 0
        {
            return None;
        }
        let acked = gauges.acked_bytes.saturating_sub(self.start.acked_bytes);
        let carried = gauges.link_bytes.saturating_sub(self.start.link_bytes);
        // A receiver that lets its buffer run half empty before it says so acknowledges in bursts, and nothing between
        // them.
        if tuning().rule_rate_carried
            && held_ns > span / 2
            && carried < tuning().rate_carried_bytes
            && span < tuning().rate_carried_ns
        {
            return None;
        }
        Some(Window {
            span,
            acked,
            held_ns,
            carried,
        })
    }

    /// Takes a sample of a link that held the sender up. `beyond_bucket` is the same without what a token bucket may
    /// have let through.
    fn follow(&mut self, window: Window, sample: f64, beyond_bucket: f64, now_ns: u64) {
        let whole = window.held_ns as f64 / window.span as f64 > tuning().rate_held_whole;
        let fresh = self.is_fresh(now_ns);
        // One short window may hit a pause of whoever reads: what is much less than a moment ago must be seen
        // twice.
        let pause = tuning().rule_rate_pause
            && fresh
            && window.span < 2 * tuning().rate_window_ns
            && sample < tuning().rate_paused * self.bytes_per_ns;
        // The first window after an idle one may begin with a full bucket: it shows too much.
        let honest = match self.previous {
            previous if pause => previous.map_or(self.bytes_per_ns, |previous| {
                previous.max(sample).min(self.bytes_per_ns)
            }),
            Some(_) if whole => sample,
            Some(previous) => previous.min(sample).max(beyond_bucket),
            None => sample.min((tuning().rate_first_max * self.bytes_per_ns).max(beyond_bucket)),
        };
        let far = tuning().rule_rate_far
            && !(tuning().rate_far_low..tuning().rate_far_high)
                .contains(&(honest / self.bytes_per_ns));
        self.bytes_per_ns +=
            if far { 1.0 } else { tuning().rate_follow } * (honest - self.bytes_per_ns);
        self.previous = Some(sample);
        // If the sample was clamped, mark it stale, so that later throughput can still raise the estimate.
        let old_ns = if honest < sample && tuning().rule_rate_stale {
            tuning().rate_fresh_ns
        } else {
            0
        };
        self.measured_ns = Some(now_ns.saturating_sub(old_ns));
    }

    fn is_fresh(&self, now_ns: u64) -> bool {
        self.measured_ns
            .is_some_and(|at| now_ns < at + tuning().rate_fresh_ns)
    }
}

/// Times in nanoseconds, and bytes.
#[derive(Debug, Clone, Copy)]
struct Window {
    span: u64,
    /// Bytes that the peer's kernel took.
    acked: u64,
    /// Bytes waited for the link.
    held_ns: u64,
    /// Bytes that came through.
    carried: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Advances by `ms` in which `bytes` went in `sending` share of the time.
    fn step(gauges: &mut Gauges, ms: u64, bytes: u64, sending: f64) {
        gauges.now_ns += ms * 1_000_000;
        gauges.sent_bytes += bytes;
        gauges.sending_ns += (ms as f64 * 1e6 * sending) as u64;
        (gauges.link_bytes, gauges.link_ns) = (gauges.sent_bytes, gauges.sending_ns);
        gauges.acked_bytes = gauges.sent_bytes;
        gauges.full_ns = gauges.link_ns;
    }

    #[test]
    fn what_the_kernel_swallows_is_not_taken_for_the_link() {
        let (mut rate, mut gauges) = (LinkRate::new(0.125), Gauges::default());
        // Four megabytes vanish within two milliseconds, then 20 Mbit/s.
        step(&mut gauges, 20, 4 << 20, 0.1);
        rate.update(&gauges, false);
        for _ in 0..20 {
            step(&mut gauges, 50, 125_000, 1.0);
            rate.update(&gauges, false);
        }
        assert!(
            (rate.bytes_per_ns() / 0.0025 - 1.0).abs() < 0.02,
            "{rate:?}"
        );
    }

    #[test]
    fn a_link_is_hardly_faster_because_buffers_took_the_first_bytes() {
        let (mut rate, mut gauges) = (LinkRate::new(0.05), Gauges::default());
        for _ in 0..4 {
            step(&mut gauges, 8, 400_000, 0.0);
            rate.update(&gauges, false);
        }
        // 50 MB/s passed: no more than that times what the estimate may run ahead.
        assert!(
            (0.05..=0.05 * tuning().rate_ahead).contains(&rate.bytes_per_ns()),
            "{rate:?}"
        );
        for _ in 0..4 {
            step(&mut gauges, 8, 4_000_000, 0.0);
            rate.update(&gauges, false);
        }
        assert!(rate.bytes_per_ns() > 0.15, "{rate:?}");
    }

    #[test]
    fn acknowledgements_in_bursts_are_no_slow_link() {
        let (mut rate, mut gauges) = (LinkRate::new(0.05), Gauges::default());
        // 100 Mbit/s, of which the peer's kernel tells every 80 ms; the transport takes bytes as it likes.
        for tick in 1..200_u64 {
            gauges.now_ns += 4_000_000;
            (gauges.link_ns, gauges.full_ns) = (gauges.now_ns, gauges.now_ns);
            gauges.sent_bytes += 50_000;
            gauges.link_bytes = tick / 20 * 1_000_000;
            rate.update(&gauges, false);
            assert!(rate.bytes_per_ns() > 0.004, "after {tick}: {rate:?}");
        }
        assert!((0.006..0.025).contains(&rate.bytes_per_ns()), "{rate:?}");
    }

    // A receiver that does not read fills the link's buffers just as a slow link does.
    #[test]
    fn a_link_held_up_by_the_receiver_says_nothing() {
        let (mut rate, mut gauges) = (LinkRate::new(0.125), Gauges::default());
        for _ in 0..20 {
            step(&mut gauges, 10, 10_000_000, 0.12);
            rate.update(&gauges, false);
        }
        let before = rate.bytes_per_ns();
        for _ in 0..20 {
            step(&mut gauges, 10, 10_000_000, 0.03);
            assert!(matches!(
                rate.update(&gauges, true),
                None | Some(RateVerdict::Starved)
            ));
        }
        assert_eq!(rate.bytes_per_ns(), before);
    }

    // What came through counts as it is acknowledged, so a window in which the wait began shows less than the link
    // carries.
    #[test]
    fn a_wait_that_begins_within_a_window_is_no_slower_link() {
        let (mut rate, mut gauges) = (LinkRate::new(0.3), Gauges::default());
        let mut window = |bytes: u64, held: f64| {
            gauges.now_ns += 8_000_000;
            gauges.sent_bytes += 2_400_000;
            gauges.link_bytes += bytes;
            gauges.link_ns += (8e6 * held) as u64;
            gauges.full_ns = gauges.link_ns;
            rate.update(&gauges, false);
            rate.bytes_per_ns()
        };
        for _ in 0..10 {
            window(2_400_000, 1.0);
        }
        assert!((window(650_000, 0.46) - 0.3).abs() < 1e-3);
        assert!((window(800_000, 0.61) - 0.3).abs() < 1e-3);
        // All through a window it may be a pause, all through two it is the link.
        assert!((window(800_000, 1.0) - 0.3).abs() < 1e-3);
        assert!(window(800_000, 1.0) < 0.15);
    }

    // Goal: a link whose queue never runs dry is not idle, though whatever is written is on its way at once.
    #[test]
    fn a_queue_on_the_way_keeps_the_link_busy() {
        let verdict = |full_ns: u64| {
            let (mut rate, mut gauges) = (LinkRate::new(0.125), Gauges::default());
            step(&mut gauges, 10, 1_250_000, 0.1);
            gauges.full_ns = full_ns;
            rate.update(&gauges, false)
        };
        assert_eq!(verdict(1_000_000), Some(RateVerdict::Idle));
        assert_eq!(verdict(9_500_000), Some(RateVerdict::Unclear));
    }

    // Goal: a link that is full now and then, whose peer tells of megabytes at once when it gets a processor, is not
    // held to be three times as fast. As seen on 2.5 Gbit/s with both ends on two processors.
    #[test]
    fn short_waits_tell_of_the_link_only_together() {
        let (mut rate, mut gauges) = (LinkRate::new(0.3), Gauges::default());
        let mut window = |bytes: u64, held_ns: u64| {
            gauges.now_ns += 8_000_000;
            gauges.sent_bytes += 2_000_000;
            gauges.link_bytes += bytes;
            gauges.link_ns += held_ns;
            gauges.full_ns = gauges.link_ns;
            rate.update(&gauges, false);
            rate.bytes_per_ns()
        };
        for _ in 0..10 {
            window(2_400_000, 8_000_000);
        }
        for (bytes, held_ns) in [
            (0, 1_300_000),
            (65_000, 480_000),
            (1_253_000, 2_900_000),
            (790_000, 930_000),
            (0, 900_000),
        ] {
            let found = window(bytes, held_ns);
            assert!((0.27..0.33).contains(&found), "{found}");
        }
    }

    #[test]
    fn buffers_do_not_make_a_link_as_fast_as_memory() {
        let (mut rate, mut gauges) = (LinkRate::new(0.05), Gauges::default());
        for _ in 0..6 {
            step(&mut gauges, 2, 1_280_000, 0.0);
            rate.update(&gauges, false);
        }
        assert!(rate.bytes_per_ns() > 0.7, "{rate:?}");
        assert!(rate.surely(gauges.sent_bytes) < 0.1);
        assert!(rate.surely(9 << 20) > 0.7);
    }

    #[test]
    fn an_idle_link_is_only_believed_to_be_faster() {
        let (mut rate, mut gauges) = (LinkRate::new(0.125), Gauges::default());
        for _ in 0..20 {
            step(&mut gauges, 10, 2_000_000, 0.01);
            assert_eq!(rate.update(&gauges, false), Some(RateVerdict::Idle));
        }
        // Faster than guessed, and not far beyond what passed: 0.2.
        assert!(
            (0.29..=0.2 * tuning().rate_ahead).contains(&rate.bytes_per_ns()),
            "{rate:?}"
        );
        assert!(!rate.is_measured());
    }

    // Goal: what was measured between a receiver's falling behind and its report is forgotten, and what comes through
    // meanwhile shows only that the link is no slower.
    #[test]
    fn a_receiver_that_falls_behind_is_known_to_late() {
        let (mut rate, mut gauges) = (LinkRate::new(0.1), Gauges::default());
        for _ in 0..50 {
            step(&mut gauges, 10, 1_200_000, 1.0);
            rate.update(&gauges, false);
        }
        for _ in 0..8 {
            step(&mut gauges, 10, 200_000, 1.0);
            rate.update(&gauges, false);
        }
        assert!(rate.bytes_per_ns() < 0.03, "{rate:?}");
        for _ in 0..50 {
            step(&mut gauges, 10, 200_000, 1.0);
            rate.update(&gauges, true);
        }
        assert!((rate.bytes_per_ns() / 0.12 - 1.0).abs() < 0.02, "{rate:?}");
        for _ in 0..50 {
            step(&mut gauges, 10, 2_000_000, 1.0);
            rate.update(&gauges, true);
        }
        assert!((rate.bytes_per_ns() / 0.2 - 1.0).abs() < 0.02, "{rate:?}");
    }
}
