//! Follows the receiver: what unpacking costs there, and how much of its processors it really gets.
//!
//! Why: through TCP a slow receiver looks like a slow link, and the answer to a slow link, packing harder, is the wrong
//! one. The receiver counts raw bytes and CPU in the order of the stream, so the bytes it has unpacked between two
//! reports name the chunks it unpacked, and what we expected of those stands against what it took.
//!
//! Neighbours: [`crate::adaptive`] notes every decision and passes [`Feedback`]; [`crate::table`] takes the corrections.
//! Units: nanoseconds of CPU, raw bytes.

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
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    raw_end: u64,
    raw_len: u32,
    index: u16,
    expected_ns: f32,
}

/// Corrections from one report: candidate, its share of the expected time, and measured over expected.
pub type Corrections = Vec<(usize, f32, f32)>;

impl Default for Peer {
    fn default() -> Self {
        Self { sent: VecDeque::new(), raw_noted: 0, last: Feedback::default(), workers: 0, efficiency: 1.0 }
    }
}

impl Peer {
    /// A chunk was decided on, to be unpacked in `expected_ns` of CPU.
    pub fn note(&mut self, index: usize, raw_len: usize, expected_ns: f32) {
        self.raw_noted += raw_len as u64;
        if self.sent.len() == SENT_MAX {
            self.sent.pop_front();
        }
        let (raw_len, index) = (raw_len as u32, index as u16);
        self.sent.push_back(Sent { raw_end: self.raw_noted, raw_len, index, expected_ns });
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

    /// One report. Returns what to correct in the table.
    pub fn report(&mut self, report: &Feedback, corrections: &mut Corrections) {
        corrections.clear();
        self.workers = report.workers;
        let span = report.now_ns.saturating_sub(self.last.now_ns);
        let raw = report.raw_bytes.saturating_sub(self.last.raw_bytes);
        if span < SPAN_NS || raw < RAW_MIN && span < 10 * SPAN_NS {
            return;
        }
        let unpack_ns = report.unpack_ns.saturating_sub(self.last.unpack_ns) as f32;
        let sink = report.sink_ns.saturating_sub(self.last.sink_ns);
        let waited = report.waiting_bytes > 0 && self.last.waiting_bytes > 0;
        let from = self.last.raw_bytes;
        self.last = *report;
        if waited && sink < span / 5 && report.workers > 0 {
            // Work waited all along, so whatever it did not get to use was taken from it.
            let share = unpack_ns / (span as f32 * report.workers as f32);
            self.efficiency += 0.5 * (share.clamp(0.05, 1.0) - self.efficiency);
        } else {
            self.efficiency += 0.05 * (1.0 - self.efficiency);
        }
        let (mut expected, mut covered) = (0.0, 0_u64);
        while let Some(sent) = self.sent.front() {
            if sent.raw_end > report.raw_bytes {
                break;
            }
            if sent.raw_end - u64::from(sent.raw_len) >= from {
                expected += sent.expected_ns;
                covered += u64::from(sent.raw_len);
                let index = usize::from(sent.index);
                match corrections.iter_mut().find(|(other, ..)| *other == index) {
                    Some((_, share, _)) => *share += sent.expected_ns,
                    None => corrections.push((index, sent.expected_ns, 1.0)),
                }
            }
            self.sent.pop_front();
        }
        // Chunks cut by a report's edge are not in `expected`: compare per byte.
        let whole = expected * raw as f32 / covered.max(1) as f32;
        for (_, share, ratio) in corrections.iter_mut() {
            *share /= expected.max(1.0);
            *ratio = if whole > 0.0 && unpack_ns > 0.0 { unpack_ns / whole } else { 1.0 };
        }
    }
}

/// Decisions remembered until the receiver reports on them.
const SENT_MAX: usize = 4096;
/// Reports closer together are joined, in nanoseconds.
const SPAN_NS: u64 = 10_000_000;
/// Reports on fewer raw bytes are joined, within reason.
const RAW_MIN: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_slower_than_expected_shows_in_the_ratio() {
        let mut peer = Peer::default();
        let mut corrections = Corrections::new();
        for _ in 0..16 {
            peer.note(3, 256 << 10, 1e5);
        }
        let report =
            Feedback { now_ns: 50_000_000, workers: 2, raw_bytes: 4 << 20, unpack_ns: 6_400_000, ..Feedback::default() };
        peer.report(&report, &mut corrections);
        assert_eq!(corrections.len(), 1);
        assert!(corrections[0].0 == 3 && (corrections[0].2 - 4.0).abs() < 0.01, "{corrections:?}");
    }

    #[test]
    fn processors_taken_from_it_show_in_the_capacity() {
        let mut peer = Peer::default();
        let mut corrections = Corrections::new();
        for tick in 1..40_u64 {
            let report = Feedback {
                now_ns: tick * 20_000_000,
                workers: 4,
                raw_bytes: tick << 21,
                unpack_ns: tick * 20_000_000,
                waiting_bytes: 1 << 20,
                sink_ns: 0,
            };
            peer.report(&report, &mut corrections);
        }
        assert!((peer.capacity(4) - 1.0).abs() < 0.05, "{peer:?}");
    }
}
