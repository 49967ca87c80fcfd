//! The buffer law: how much a tunnel may hold so that QEMU's picture of the link stays true.
//!
//! Why: QEMU takes what its socket accepts for what the link carries, and stops the guest when the rest would fit into
//! the downtime it was allowed. Every byte a tunnel accepts early is a byte it must still send while the guest stands
//! still; with 32 MiB for each channel a limit of 300 ms became 3-5 s (measured on a 200 Mbit/s link). So what is
//! accepted and not yet on the wire is bounded by [`SHARE`] of the downtime limit times the measured rate of the link.
//!
//! Pure: samples come in, bounds go out. `watch` feeds it and applies what it says. Bytes and nanoseconds throughout.

use std::{collections::VecDeque, time::Duration};

use narrows_core::Gauges;

/// Part of the downtime limit that may be spent on draining what the tunnel holds.
pub const SHARE: f64 = 0.1;

/// Bound before the link's rate is known, and at least: one multifd packet.
pub const BACKLOG_MIN: u64 = 512 << 10;

/// Part of the link's rate to promise QEMU for the moment at which the guest stands still: the last packets must be
/// packed, and the devices' state sent, before their time is up. With all of it, 300 ms allowed became 342 (45 MiB/s
/// dirtied, 200 Mbit/s).
const PROMISE: f64 = 0.8;

/// Span over which the link's rate is taken.
const SPAN_NS: u64 = 1_000_000_000;
/// The first span counts when the writer was held up by the link for this part of it: else it shows what there was to
/// send.
const BUSY_MIN: f64 = 0.5;
/// And from here on it was held up all the time.
const HELD_UP: f64 = 0.9;
/// Intake may be at most this multiple of the link's rate where QEMU does not take a rate from us. Above 3, a run of
/// nearly empty pages makes it believe in a link ten times too fast.
const PACE_MAX: f64 = 3.0;
/// Intake may be this much more where the link shows that it carries more than is known: what is paced to a rate that
/// was only ever seen from below holds nothing up, and so would never show a better one. Ten times too low is mended in
/// some three seconds, where bytes pack to a third.
const PACE_MORE: f64 = 1.5;

/// Part of what is left of the guest that QEMU may believe to fit into the downtime: it was counted a moment ago, and the
/// belief may be off.
const BELIEVED: f64 = 0.5;

/// Raw bytes a second that may be taken in whatever the link carries, because a QEMU that takes that for the link's rate
/// would not stop the guest for it while `remaining` bytes of it are to be sent. Far from the end the link is kept busy
/// through pages that pack better than those before them.
#[must_use]
pub fn intake_unbelieved(remaining: u64, downtime_limit: Duration) -> u64 {
    (BELIEVED * remaining as f64 / downtime_limit.as_secs_f64().max(1e-3)) as u64
}

/// One look at a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// When, since the session began.
    pub now_ns: u64,
    /// Bytes written to the links so far.
    pub sent_wire: u64,
    /// Time spent writing to the links so far.
    pub sending_ns: u64,
    /// Bytes taken in from QEMU so far.
    pub taken: u64,
}

impl Sample {
    /// From an endpoint's own numbers and the lanes'.
    #[must_use]
    pub fn new(gauges: &Gauges, taken: u64) -> Self {
        Self {
            now_ns: gauges.now_ns,
            sent_wire: gauges.sent_bytes,
            sending_ns: gauges.sending_ns,
            taken,
        }
    }
}

/// What follows from the samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// What the link carries, bytes a second; 0 before it was busy for the first time.
    pub goodput: u64,
    /// What to give QEMU as `avail-switchover-bandwidth`, bytes a second; 0 as above.
    pub promise: u64,
    /// Packed bytes that may wait for the link.
    pub backlog_max: u64,
    /// Raw bytes a second to take in where QEMU estimates for itself; `None` before the link's rate is known.
    pub intake: Option<u64>,
}

/// Watches one session.
#[derive(Debug)]
pub struct BacklogLimit {
    downtime_limit: Duration,
    samples: VecDeque<Sample>,
    goodput: f64,
}

impl BacklogLimit {
    /// For a guest that may stand still for `downtime_limit`.
    #[must_use]
    pub fn new(downtime_limit: Duration) -> Self {
        Self {
            downtime_limit,
            samples: VecDeque::new(),
            goodput: 0.0,
        }
    }

    /// Takes a sample; samples come in order of time, some ten a second.
    pub fn see(&mut self, sample: Sample) -> Bounds {
        self.samples.push_back(sample);
        while self.samples.len() > 2 && sample.now_ns - self.samples[1].now_ns >= SPAN_NS {
            self.samples.pop_front();
        }
        let first = self.samples[0];
        let (span_ns, busy_ns) = (
            sample.now_ns - first.now_ns,
            sample.sending_ns - first.sending_ns,
        );
        let (wire, raw) = (
            (sample.sent_wire - first.sent_wire) as f64,
            (sample.taken - first.taken) as f64,
        );
        let passed = wire / span_ns.max(1) as f64 * 1e9;
        let busy = busy_ns as f64 / span_ns.max(1) as f64;
        if span_ns >= SPAN_NS / 4 {
            if busy >= HELD_UP {
                // What a writer that is held up all the time gets rid of is what the link carries.
                let seen = wire / busy_ns as f64 * 1e9;
                let step = if self.goodput == 0.0 { 1.0 } else { 0.25 };
                self.goodput += step * (seen - self.goodput);
            } else if busy >= BUSY_MIN || self.goodput > 0.0 {
                // Else the socket's buffer flatters the time spent writing. But what has passed, the link carries.
                self.goodput = self.goodput.max(passed);
            }
        }
        // Half the rate in a quarter of the time: it is not the rate. Nearly empty pages do not pass as much.
        let carries_more = busy < 0.25 && passed >= self.goodput / 2.0;
        let drain = SHARE * self.downtime_limit.as_secs_f64() * self.goodput;
        let ratio = if wire > 0.0 {
            (raw / wire).clamp(1.0, PACE_MAX)
        } else {
            1.0
        };
        let pace = ratio * if carries_more { PACE_MORE } else { 1.0 };
        Bounds {
            goodput: self.goodput as u64,
            promise: (PROMISE * self.goodput) as u64,
            backlog_max: (drain as u64).max(BACKLOG_MIN),
            intake: (self.goodput > 0.0).then_some((pace * self.goodput) as u64),
        }
    }
}

/// Spaces intake out evenly: all channels together take in no more than a rate, with a small burst allowed.
#[derive(Debug, Default)]
pub struct Pacer {
    /// When the next byte may be taken in.
    next_ns: u64,
}

impl Pacer {
    /// Intake may run ahead of its rate by this much; QEMU looks at windows of 100 ms.
    const BURST_NS: u64 = 10_000_000;

    /// Notes `len` bytes taken in at `now_ns`, and says how long to wait before more are.
    pub fn took(&mut self, len: usize, rate: u64, now_ns: u64) -> Duration {
        let cost_ns = (len as u64).saturating_mul(1_000_000_000) / rate.max(1);
        self.next_ns = self.next_ns.max(now_ns) + cost_ns;
        Duration::from_nanos(self.next_ns.saturating_sub(now_ns + Self::BURST_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(300);
    const STEP_NS: u64 = 100_000_000;

    /// Feeds `steps` of a tenth of a second in which the link carried `wire` bytes, of `raw`, and was busy for
    /// `busy_ns`.
    fn feed(
        law: &mut BacklogLimit,
        from: &mut Sample,
        steps: u32,
        wire: u64,
        raw: u64,
        busy_ns: u64,
    ) -> Bounds {
        let mut bounds = law.see(*from);
        for _ in 0..steps {
            from.now_ns += STEP_NS;
            from.sent_wire += wire;
            from.taken += raw;
            from.sending_ns += busy_ns;
            bounds = law.see(*from);
        }
        bounds
    }

    #[test]
    fn a_busy_link_gives_its_rate_and_a_tenth_of_the_downtime_in_bytes() {
        let (mut law, mut at) = (BacklogLimit::new(LIMIT), Sample::default());
        let bounds = feed(&mut law, &mut at, 30, 2_500_000, 7_500_000, STEP_NS);
        assert!(bounds.goodput.abs_diff(25_000_000) < 100_000, "{bounds:?}");
        assert!(bounds.backlog_max.abs_diff(750_000) < 5_000, "{bounds:?}");
        let intake = bounds.intake.unwrap();
        assert!(
            intake.abs_diff(75_000_000) < 300_000,
            "{bounds:?}: three times, as the bytes shrink to a third"
        );
    }

    #[test]
    fn an_idle_link_says_nothing_of_its_rate() {
        let (mut law, mut at) = (BacklogLimit::new(LIMIT), Sample::default());
        let bounds = feed(&mut law, &mut at, 30, 1000, 3000, 10_000);
        assert_eq!(
            (bounds.goodput, bounds.backlog_max, bounds.intake),
            (0, BACKLOG_MIN, None)
        );
        let busy = feed(&mut law, &mut at, 30, 12_500_000, 12_500_000, STEP_NS);
        let idle = feed(&mut law, &mut at, 30, 1000, 3000, 10_000);
        assert!(
            idle.goodput > busy.goodput / 4 * 3,
            "what was learnt is kept: {busy:?} {idle:?}"
        );
    }

    #[test]
    fn nearly_empty_pages_do_not_open_the_intake() {
        let (mut law, mut at) = (BacklogLimit::new(LIMIT), Sample::default());
        let bounds = feed(&mut law, &mut at, 30, 2_500_000, 500_000_000, STEP_NS);
        assert!(bounds.intake.unwrap() <= 3 * bounds.goodput);
    }

    /// Runs `seconds` with a source that always has more, of which `ratio` bytes pack to one, paced as the law says,
    /// over a link of `link` bytes a second with a socket's buffer before it. The last bounds, and the most that was
    /// ever let in.
    fn paced(
        law: &mut BacklogLimit,
        at: &mut Sample,
        seconds: u64,
        ratio: f64,
        link: f64,
    ) -> (Bounds, u64) {
        const STEP_NS: u64 = 10_000_000;
        const BUFFER: f64 = 256e3;
        let (mut pacer, mut waits_until, mut buffered, mut most) = (Pacer::default(), 0, 0.0, 0);
        let mut bounds = law.see(*at);
        let until = at.now_ns + seconds * 1_000_000_000;
        while at.now_ns < until {
            let carried = link * STEP_NS as f64 / 1e9;
            let (mut wire, mut raw) = (0.0, 0.0);
            while waits_until <= at.now_ns && buffered + wire < carried + BUFFER {
                let packet = 100e3;
                (wire, raw) = (wire + packet / ratio, raw + packet);
                let Some(rate) = bounds.intake else { continue };
                waits_until =
                    at.now_ns + pacer.took(packet as usize, rate, at.now_ns).as_nanos() as u64;
            }
            buffered += wire;
            // Full, the writer is held up; else the buffer takes it at once.
            at.sending_ns += if buffered >= carried + BUFFER {
                STEP_NS
            } else {
                0
            };
            buffered = (buffered - carried).max(0.0);
            at.now_ns += STEP_NS;
            at.sent_wire += wire as u64;
            at.taken += raw as u64;
            if at.now_ns.is_multiple_of(50_000_000) {
                bounds = law.see(*at);
                most = most.max(bounds.intake.unwrap_or(0));
            }
        }
        (bounds, most)
    }

    #[test]
    fn a_rate_seen_from_below_is_no_ceiling() {
        for ratio in [1.0, 2.5] {
            let (mut law, mut at) = (BacklogLimit::new(LIMIT), Sample::default());
            let low = feed(
                &mut law,
                &mut at,
                10,
                1_000_000,
                2_500_000,
                STEP_NS * 6 / 10,
            );
            assert!(low.goodput.abs_diff(10_000_000) < 100_000, "{low:?}");
            let (bounds, most) = paced(&mut law, &mut at, 4, ratio, 100e6);
            assert!(
                (90_000_000..115_000_000).contains(&bounds.goodput),
                "{ratio}: {bounds:?}"
            );
            assert!(most < 500_000_000, "{ratio}: {most}");
        }
    }

    #[test]
    fn nearly_empty_pages_do_not_open_the_intake_while_the_link_idles() {
        let (mut law, mut at) = (BacklogLimit::new(LIMIT), Sample::default());
        let bounds = feed(&mut law, &mut at, 30, 2_500_000, 6_000_000, STEP_NS);
        let (_, most) = paced(&mut law, &mut at, 5, 100.0, 25e6);
        assert!(most < 3 * bounds.goodput / 100 * 101, "{most} {bounds:?}");
    }

    #[test]
    fn a_rate_that_changes_is_followed_within_two_seconds() {
        let (mut law, mut at) = (BacklogLimit::new(LIMIT), Sample::default());
        feed(&mut law, &mut at, 30, 12_500_000, 30_000_000, STEP_NS);
        let bounds = feed(&mut law, &mut at, 20, 1_250_000, 3_000_000, STEP_NS);
        assert!(bounds.goodput < 16_000_000, "{bounds:?}");
    }

    #[test]
    fn far_from_the_end_intake_is_free_and_near_it_the_links() {
        let bounds = feed(
            &mut BacklogLimit::new(LIMIT),
            &mut Sample::default(),
            30,
            2_500_000,
            7_500_000,
            STEP_NS,
        );
        let intake = bounds.intake.unwrap();
        assert!(intake_unbelieved(700 << 20, LIMIT) > 10 * intake);
        // What fits into the downtime at the link's rate, twice over.
        let fits = intake * LIMIT.as_millis() as u64 / 1000;
        assert!(intake_unbelieved(2 * fits, LIMIT) <= intake);
        assert_eq!(intake_unbelieved(0, Duration::ZERO), 0);
    }

    #[test]
    fn the_pacer_keeps_a_rate_over_any_span() {
        let (mut pacer, mut now_ns, mut taken) = (Pacer::default(), 0, 0_u64);
        for turn in 0..1000 {
            let len = 1 + turn * 7919 % 200_000;
            taken += len as u64;
            now_ns += pacer.took(len, 70_000_000, now_ns).as_nanos() as u64 + 10_000;
        }
        let rate = taken as f64 / now_ns as f64 * 1e9;
        assert!((60e6..75e6).contains(&rate), "{rate}");
    }
}
