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

/// The receiver as its reports show it.
#[derive(Debug)]
pub struct Peer {
    sent: VecDeque<Sent>,
    raw_noted: u64,
    last: Feedback,
    workers: u32,
    efficiency: f32,
    /// More waited there than a receiver that keeps up lets wait, all through the last report's span.
    behind: bool,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    raw_end: u64,
    raw_len: u32,
    index: u16,
    prior_ns: f32,
}

/// What one report tells: which candidates were unpacked in its span, with their prior times, and the time it took.
#[derive(Debug, Default)]
pub struct Unpacked {
    /// Candidate and sum of its prior unpacking times, in nanoseconds.
    pub prior_ns: Vec<(usize, f32)>,
    /// CPU time measured for the same bytes, in nanoseconds; 0 where the report tells nothing.
    pub measured_ns: f32,
}

impl Default for Peer {
    fn default() -> Self {
        Self {
            sent: VecDeque::new(),
            raw_noted: 0,
            last: Feedback::default(),
            workers: 0,
            efficiency: 1.0,
            behind: false,
        }
    }
}

impl Peer {
    /// A chunk was decided on, which the priors would have unpacked in `prior_ns` of CPU. Not the corrected estimate:
    /// hundreds of chunks are on their way, and correcting a correction once for each of them overshoots.
    pub fn note(&mut self, index: usize, raw_len: usize, prior_ns: f32) {
        self.raw_noted += raw_len as u64;
        if self.sent.len() == SENT_MAX {
            self.sent.pop_front();
        }
        let (raw_len, index) = (raw_len as u32, index as u16);
        self.sent.push_back(Sent { raw_end: self.raw_noted, raw_len, index, prior_ns });
    }

    /// CPU nanoseconds the receiver can spend per nanosecond; `like` is what to assume before it reported.
    #[must_use]
    pub fn capacity(&self, like: u32) -> f32 {
        let workers = if self.workers == 0 { like } else { self.workers };
        workers.max(1) as f32 * self.efficiency
    }

    /// Share of its processors the receiver gets, 0 to 1.
    #[must_use]
    pub fn efficiency(&self) -> f32 {
        self.efficiency
    }

    /// Whether bytes pile up at the receiver, or did until a moment ago: then it is not the link that holds them up,
    /// however full the link looks.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.behind || self.efficiency < RECOVERED
    }

    /// One report. Fills in what was unpacked since the last. `frame_len` is what a frame takes lately, in bytes,
    /// `link` what the link carries, in bytes a nanosecond; `starved` says that the sender had no credit meanwhile.
    pub fn report(&mut self, report: &Feedback, frame_len: f32, link: f32, starved: bool, unpacked: &mut Unpacked) {
        unpacked.prior_ns.clear();
        unpacked.measured_ns = 0.0;
        self.workers = report.workers;
        let span = report.now_ns.saturating_sub(self.last.now_ns);
        let raw = report.raw_bytes.saturating_sub(self.last.raw_bytes);
        if span < SPAN_NS || raw < RAW_MIN && span < 10 * SPAN_NS {
            return;
        }
        let unpack_ns = report.unpack_ns.saturating_sub(self.last.unpack_ns) as f32;
        let sink = report.sink_ns.saturating_sub(self.last.sink_ns);
        // A frame or two always wait where they come in bursts; only a heap of them means that the receiver is behind.
        // Taking less for proof would make it look slow for want of work, and starve it further.
        let heap = HEAP * report.workers as f32 * frame_len + BURST_NS * link;
        let waited = starved || report.waiting_bytes.min(self.last.waiting_bytes) as f32 > heap;
        let from = self.last.raw_bytes;
        self.last = *report;
        self.behind = waited;
        // A receiver that is stopped now and then is stopped in its sink, too.
        if waited && sink < span / 5 * 3 && report.workers > 0 {
            // Work waited all along, so whatever it did not get to use was taken from it.
            let share = unpack_ns / (span as f32 * report.workers as f32);
            self.efficiency += 0.5 * (share.clamp(EFFICIENCY_MIN, 1.0) - self.efficiency);
        } else {
            // By a share of what it is, or the first calm report would have a starved receiver swamped again.
            self.efficiency += CLIMB * self.efficiency.min(1.0 - self.efficiency);
        }
        let mut covered = 0_u64;
        while let Some(sent) = self.sent.front() {
            if sent.raw_end > report.raw_bytes {
                break;
            }
            if sent.raw_end - u64::from(sent.raw_len) >= from {
                covered += u64::from(sent.raw_len);
                let index = usize::from(sent.index);
                match unpacked.prior_ns.iter_mut().find(|(other, _)| *other == index) {
                    Some((_, sum)) => *sum += sent.prior_ns,
                    None => unpacked.prior_ns.push((index, sent.prior_ns)),
                }
            }
            self.sent.pop_front();
        }
        // Chunks cut by a report's edge are not in the sums: compare per byte.
        unpacked.measured_ns = unpack_ns * covered as f32 / raw.max(1) as f32;
    }
}

/// Decisions remembered until the receiver reports on them.
const SENT_MAX: usize = 4096;
/// Frames a worker that are a heap, where they come besides those of a burst: so many nanoseconds of the link.
const HEAP: f32 = 4.0;
const BURST_NS: f32 = 1e7;
/// Least share of its processors that a receiver is taken to get.
const EFFICIENCY_MIN: f32 = 0.01;
/// A receiver with a smaller share still works off what piled up, in bursts with calm reports between them.
const RECOVERED: f32 = 0.5;
/// What that share grows by with a report in which nothing waited, of itself or of what it lacks.
const CLIMB: f32 = 0.3;
/// Reports closer together are joined, in nanoseconds.
const SPAN_NS: u64 = 10_000_000;
/// Reports on fewer raw bytes are joined, within reason.
const RAW_MIN: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_slower_than_the_priors_shows() {
        let mut peer = Peer::default();
        let mut unpacked = Unpacked::default();
        for _ in 0..16 {
            peer.note(3, 256 << 10, 1e5);
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
        assert!((unpacked.measured_ns / 1.6e6 - 4.0).abs() < 0.01, "{unpacked:?}");
    }

    #[test]
    fn processors_taken_from_it_show_in_the_capacity() {
        let mut peer = Peer::default();
        let mut unpacked = Unpacked::default();
        for tick in 1..40_u64 {
            let report = Feedback {
                now_ns: tick * 20_000_000,
                workers: 4,
                raw_bytes: tick << 21,
                unpack_ns: tick * 20_000_000,
                waiting_bytes: 1 << 20,
                sink_ns: 0,
            };
            peer.report(&report, 1e4, 0.01, false, &mut unpacked);
        }
        assert!(peer.is_behind() && (peer.capacity(4) - 1.0).abs() < 0.05, "{peer:?}");
    }
}
