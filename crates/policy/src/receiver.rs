//! Follows the receiver: what unpacking costs there, and how much of its processors it really gets.
//!
//! Why: through TCP a slow receiver looks like a slow link, and the answer to a slow link, packing harder, is the wrong
//! one. The receiver counts raw bytes and CPU in the order of the stream, so the bytes it has unpacked between two
//! reports name the chunks it unpacked, and what the priors say of those stands against what it took.
//!
//! Neighbours: [`crate::adaptive`] notes every decision and passes [`Feedback`]; [`crate::table`] takes the
//! corrections. Units: nanoseconds of CPU, raw bytes.

use std::collections::VecDeque;

use narrows_core::Feedback;

use crate::tuning::tuning;

/// The receiver as its reports show it.
#[derive(Debug)]
pub struct ReceiverModel {
    sent: VecDeque<Sent>,
    raw_noted: u64,
    last: Feedback,
    workers: u32,
    efficiency: f32,
    /// Processor time that reading and writing a byte takes there, packed or raw, in nanoseconds.
    io: f32,
    /// Share of the time in which its threads had work that they had a processor, lately.
    served: f32,
    /// Least time from a decision to the report that its chunk is unpacked, in nanoseconds.
    way_ns: f32,
    /// Packed bytes that it unpacks in a nanosecond, lately.
    pace: f32,
    /// Reports on end in whose span no more waited there than a receiver that keeps up lets wait.
    calm: u32,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    raw_end: u64,
    now_ns: u64,
    raw_len: u32,
    packed_len: u32,
    index: u16,
    prior_ns: f32,
}

/// What one report tells: which candidates were unpacked in its span, with their prior times, and the time it took.
#[derive(Debug, Default)]
pub struct UnpackedReport {
    /// Candidate and sum of its prior unpacking times, in nanoseconds.
    pub prior_ns: Vec<(usize, f32)>,
    /// CPU time measured for the same bytes, in nanoseconds; 0 where the report tells nothing.
    pub measured_ns: f32,
}

impl Default for ReceiverModel {
    fn default() -> Self {
        Self {
            sent: VecDeque::new(),
            raw_noted: 0,
            last: Feedback::default(),
            workers: 0,
            efficiency: 1.0,
            io: 0.0,
            way_ns: tuning().receiver_way_max_ns,
            pace: 0.0,
            served: 1.0,
            calm: tuning().receiver_calm,
        }
    }
}

impl ReceiverModel {
    /// A chunk was decided on at `now_ns`, which takes `size` packed and which the priors would have unpacked in `prior`
    /// ns of CPU, both per raw byte. Not the corrected estimate: hundreds of chunks are on their way, and correcting a
    /// correction once for each of them overshoots.
    pub fn note(&mut self, now_ns: u64, index: usize, raw_len: usize, size: f32, prior: f32) {
        self.raw_noted += raw_len as u64;
        if self.sent.len() == SENT_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back(Sent {
            raw_end: self.raw_noted,
            now_ns,
            raw_len: raw_len as u32,
            packed_len: (size * raw_len as f32) as u32,
            index: index as u16,
            prior_ns: prior * raw_len as f32,
        });
    }

    /// CPU nanoseconds the receiver can spend per nanosecond; `like` is what to assume before it reported.
    #[must_use]
    pub fn capacity(&self, like: u32) -> f32 {
        let workers = if self.workers == 0 {
            like
        } else {
            self.workers
        };
        workers.max(1) as f32 * self.efficiency()
    }

    /// Share of its processors the receiver gets, 0 to 1.
    #[must_use]
    pub fn efficiency(&self) -> f32 {
        if tuning().rule_receiver_efficiency {
            self.efficiency
        } else {
            1.0
        }
    }

    /// Processor time that the receiver takes for a raw byte beside unpacking it, in nanoseconds, where it is `size`
    /// packed.
    #[must_use]
    pub fn io(&self, size: f32) -> f32 {
        if tuning().rule_receiver_io {
            self.io * (1.0 + size)
        } else {
            0.0
        }
    }

    /// Packed bytes under way to it from which on more would only wait there.
    #[must_use]
    pub fn unconsumed_max(&self) -> u64 {
        if self.is_behind() {
            ((self.pace * (tuning().receiver_unconsumed_ns + self.way_ns)) as u64)
                .max(tuning().receiver_unconsumed_min)
        } else {
            u64::MAX
        }
    }

    /// Whether bytes pile up at the receiver, or did until a moment ago: then it is not the link that holds them up,
    /// however full the link looks.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        let calm = if tuning().rule_receiver_calm {
            tuning().receiver_calm
        } else {
            1
        };
        self.calm < calm
    }

    /// One report. Fills in what was unpacked since the last. `frame_len` is what a frame takes lately, in bytes,
    /// `link` what the link carries, in bytes a nanosecond; `starved` says that the sender had no credit meanwhile.
    pub fn report(
        &mut self,
        report: &Feedback,
        frame_len: f32,
        link: f32,
        starved: bool,
        unpacked: &mut UnpackedReport,
    ) {
        unpacked.prior_ns.clear();
        unpacked.measured_ns = 0.0;
        self.workers = report.workers;
        let span = report.now_ns.saturating_sub(self.last.now_ns);
        let raw = report.raw_bytes.saturating_sub(self.last.raw_bytes);
        if span < tuning().receiver_span_ns
            || raw < tuning().receiver_raw_min && span < 10 * tuning().receiver_span_ns
        {
            return;
        }
        let unpack_ns = report.unpack_ns.saturating_sub(self.last.unpack_ns) as f32;
        let io_ns = report.io_ns.saturating_sub(self.last.io_ns) as f32;
        let delayed_ns = report.delayed_ns.saturating_sub(self.last.delayed_ns) as f32;
        let sink = report.sink_ns.saturating_sub(self.last.sink_ns);
        // A frame or two always wait where they come in bursts; only a heap of them means that the receiver is behind.
        // Taking less for proof would make it look slow for want of work, and starve it further.
        let heap = tuning().receiver_heap * report.workers as f32 * frame_len
            + tuning().receiver_burst_ns * link;
        let waited = starved || report.waiting_bytes.min(self.last.waiting_bytes) as f32 > heap;
        let from = self.last.raw_bytes;
        self.last = *report;
        self.calm = if waited {
            0
        } else {
            self.calm.saturating_add(1)
        };
        let busy_ns = unpack_ns + io_ns;
        self.served +=
            tuning().receiver_follow * (busy_ns / (busy_ns + delayed_ns).max(1.0) - self.served);
        let share = busy_ns / (span as f32 * report.workers.max(1) as f32);
        // A receiver that is stopped now and then is stopped in its sink, too.
        if waited && (sink as f32) < tuning().receiver_sink_max * span as f32 && report.workers > 0
        {
            // Work waited all along, so whatever it did not get to use was taken from it.
            self.efficiency += tuning().receiver_follow
                * (share.clamp(tuning().receiver_efficiency_min, 1.0) - self.efficiency);
        } else {
            // By a share of what it is, or the first calm report would have a starved receiver swamped again.
            // One that waits for processors is starved, however little waits for it; and one that just was is not
            // believed to get much more than it used.
            let most = if self.is_behind() && tuning().rule_receiver_ahead {
                tuning().receiver_ahead * share
            } else {
                1.0
            };
            if self.served > tuning().receiver_served || !tuning().rule_receiver_served {
                let climbed = self.efficiency
                    + tuning().receiver_climb * self.efficiency.min(1.0 - self.efficiency);
                self.efficiency = self.efficiency.max(climbed.min(most));
            }
        }
        let (mut covered, mut packed) = (0_u64, 0_u64);
        while let Some(sent) = self.sent.front() {
            if sent.raw_end > report.raw_bytes {
                break;
            }
            if sent.raw_end - u64::from(sent.raw_len) >= from {
                covered += u64::from(sent.raw_len);
                packed += u64::from(sent.packed_len);
                self.way_ns = self
                    .way_ns
                    .min(report.now_ns.saturating_sub(sent.now_ns) as f32);
                let index = usize::from(sent.index);
                match unpacked
                    .prior_ns
                    .iter_mut()
                    .find(|(other, _)| *other == index)
                {
                    Some((_, sum)) => *sum += sent.prior_ns,
                    None => unpacked.prior_ns.push((index, sent.prior_ns)),
                }
            }
            self.sent.pop_front();
        }
        // Chunks cut by a report's edge are not in the sums: compare per byte.
        let of_raw = covered as f32 / raw.max(1) as f32;
        unpacked.measured_ns = unpack_ns * of_raw;
        if covered > 0 {
            self.pace +=
                tuning().receiver_follow * (packed as f32 / of_raw / span as f32 - self.pace);
            let io = io_ns * of_raw / (covered + packed) as f32;
            self.io += if self.io == 0.0 {
                1.0
            } else {
                tuning().receiver_io_follow
            } * (io - self.io);
        }
    }
}

/// Decisions remembered until the receiver reports on them.
const SENT_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_slower_than_the_priors_shows() {
        let mut peer = ReceiverModel::default();
        let mut unpacked = UnpackedReport::default();
        for _ in 0..16 {
            peer.note(0, 3, 256 << 10, 0.5, 1e5 / (256 << 10) as f32);
        }
        let report = Feedback {
            now_ns: 50_000_000,
            workers: 2,
            raw_bytes: 4 << 20,
            unpack_ns: 6_400_000,
            ..Feedback::default()
        };
        peer.report(&report, 1e4, 0.01, false, &mut unpacked);
        assert_eq!(unpacked.prior_ns, [(3, 1.6e6)]);
        assert!(
            (unpacked.measured_ns / 1.6e6 - 4.0).abs() < 0.01,
            "{unpacked:?}"
        );
    }

    #[test]
    fn processors_taken_from_it_show_in_the_capacity() {
        let mut peer = ReceiverModel::default();
        let mut unpacked = UnpackedReport::default();
        for tick in 1..40_u64 {
            let report = Feedback {
                now_ns: tick * 20_000_000,
                workers: 4,
                raw_bytes: tick << 21,
                unpack_ns: tick * 20_000_000,
                waiting_bytes: 1 << 20,
                ..Feedback::default()
            };
            peer.report(&report, 1e4, 0.01, false, &mut unpacked);
        }
        assert!(
            peer.is_behind() && (peer.capacity(4) - 1.0).abs() < 0.05,
            "{peer:?}"
        );
    }

    /// `ticks` reports 50 ms apart of one that unpacks 4 MiB in each, with `busy` ns of `workers` 2 and `delayed` beside,
    /// `waiting` bytes before it.
    fn run(
        peer: &mut ReceiverModel,
        tick: &mut u64,
        ticks: u64,
        busy: u64,
        delayed: u64,
        waiting: u64,
    ) {
        for _ in 0..ticks {
            let last = peer.last;
            *tick += 1;
            for _ in 0..16 {
                peer.note(*tick * 50_000_000 - 10_000_000, 1, 256 << 10, 0.5, 0.1);
            }
            let report = Feedback {
                now_ns: *tick * 50_000_000,
                workers: 2,
                raw_bytes: last.raw_bytes + (4 << 20),
                unpack_ns: last.unpack_ns + busy / 2,
                io_ns: last.io_ns + busy / 2,
                delayed_ns: last.delayed_ns + delayed,
                waiting_bytes: waiting,
                sink_ns: last.sink_ns,
            };
            peer.report(&report, 1e5, 0.1, false, &mut UnpackedReport::default());
        }
    }

    // Goal: a receiver held to a twentieth of its processors is not believed to have more of them because for once
    // nothing waits, and is soon when it has.
    #[test]
    fn one_that_waits_for_processors_is_starved_though_nothing_waits_for_it() {
        let (mut peer, mut tick) = (ReceiverModel::default(), 0);
        run(&mut peer, &mut tick, 20, 5_000_000, 40_000_000, 8 << 20);
        assert!((peer.efficiency() - 0.05).abs() < 0.005, "{peer:?}");
        run(&mut peer, &mut tick, 10, 5_000_000, 40_000_000, 0);
        assert!((peer.efficiency() - 0.05).abs() < 0.005, "{peer:?}");
        assert!(
            (peer.io(0.5) - 0.6).abs() < 0.01,
            "2.5 ms for 4 MiB: {peer:?}"
        );
        run(&mut peer, &mut tick, 16, 30_000_000, 1_000_000, 0);
        assert!(peer.efficiency() > 0.8, "{peer:?}");
    }

    // Goal: what is under way to a receiver that is behind takes it no longer than a quarter of a second and the way.
    #[test]
    fn little_is_under_way_to_one_that_is_behind() {
        let (mut peer, mut tick) = (ReceiverModel::default(), 0);
        assert_eq!(peer.unconsumed_max(), u64::MAX);
        run(&mut peer, &mut tick, 20, 5_000_000, 40_000_000, 16 << 20);
        let packed_in_260_ms = 26.0 / 5.0 * f64::from(2 << 20);
        assert!(
            (peer.unconsumed_max() as f64 / packed_in_260_ms - 1.0).abs() < 0.05,
            "{peer:?}"
        );
        run(
            &mut peer,
            &mut tick,
            u64::from(tuning().receiver_calm),
            5_000_000,
            0,
            0,
        );
        assert_eq!(peer.unconsumed_max(), u64::MAX);
    }
}
