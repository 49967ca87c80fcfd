//! When bytes may enter the link and when they arrive; pure arithmetic on nanoseconds, no clock, no I/O.
//!
//! The link is a virtual clock: `free_ns` is when it will have sent all it was given. A piece leaves at
//! `max(now, free) + len / rate`. The queue is what lies between now and `free_ns`; a reader may add while that is
//! shorter than the buffer. A queue that ran empty because the relay's thread was late, not because the sender was, may
//! be made up for within [`BURST_NS`]; else a busy machine would emulate a slower link.

use std::time::Duration;

use narrows_core::units::Rate;

use super::Link;

/// How much lost time may be caught up, in nanoseconds: a few scheduling delays.
const BURST_NS: f64 = 2e6;
/// Time the queue holds at the rate, unless the link says otherwise.
const BUFFER_NS: f64 = 5e6;
/// Shortest default queue in bytes: two packets and a bit, as the slowest real modems had.
const BUFFER_LEN_MIN: f64 = 4096.0;
/// Bytes between queue and arrival that a link without rate may hold.
const FREE_LEN: u64 = 8 << 20;

#[derive(Debug)]
pub(super) struct Shaper {
    /// Bytes per nanosecond; infinite without a limit.
    rate: f64,
    link: Link,
    free_ns: f64,
    passed: u64,
    stalled: bool,
    random: u64,
}

/// What a reader may do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Read up to this many bytes, then [`Shaper::pass`] them.
    Read(usize),
    /// The queue is full; ask again after so many nanoseconds.
    Wait(u64),
}

impl Shaper {
    pub(super) fn new(link: &Link, seed: u64) -> Self {
        let mut shaper = Self {
            rate: 0.0,
            link: *link,
            free_ns: 0.0,
            passed: 0,
            stalled: false,
            random: seed,
        };
        shaper.set_rate(link.rate);
        shaper
    }

    pub(super) fn set_rate(&mut self, rate: Option<Rate>) {
        self.rate = rate.map_or(f64::INFINITY, |rate| rate.0 / 1e9);
    }

    /// Whether the queue has room at `now_ns`, and how much to read at once: half a millisecond, so that neither a
    /// slow link moves in jumps nor a fast one in crumbs.
    pub(super) fn turn(&self, now_ns: u64) -> Turn {
        let queued_ns = self.free_ns - now_ns as f64;
        if self.rate.is_infinite() && queued_ns <= 0.0 {
            return Turn::Read(128 * 1024);
        }
        let buffer_ns = self.link.buffer_len.map_or_else(
            || BUFFER_NS.max(BUFFER_LEN_MIN / self.rate),
            |len| len as f64 / self.rate,
        );
        if queued_ns >= buffer_ns.min(1e12) {
            // Asked again at least every 50 ms, because the rate may change meanwhile.
            return Turn::Wait(((queued_ns - buffer_ns / 2.0) as u64).clamp(50_000, 50_000_000));
        }
        Turn::Read((self.rate * 0.5e6).clamp(1448.0, 128.0 * 1024.0) as usize)
    }

    /// Takes `len` bytes at `now_ns` and returns when they arrive.
    pub(super) fn pass(&mut self, now_ns: u64, len: usize) -> u64 {
        let now = now_ns as f64;
        self.free_ns = self.free_ns.max(now - BURST_NS) + len as f64 / self.rate;
        self.passed += len as u64;
        if let Some(stall) = self
            .link
            .stall
            .filter(|stall| !self.stalled && self.passed >= stall.after_bytes)
        {
            self.stalled = true;
            self.free_ns = self.free_ns.max(now) + stall.length.as_nanos() as f64;
        }
        self.free_ns.max(now) as u64 + nanos(self.link.delay) + self.jitter_ns()
    }

    /// Bytes a lane may hold between reading and arrival: queue and flight time at the rate, so that delay costs no
    /// rate.
    pub(super) fn held_len_max(&self) -> u64 {
        if self.rate.is_infinite() {
            return FREE_LEN.max((nanos(self.link.delay) + nanos(self.link.jitter)) * 2);
        }
        let flight = (nanos(self.link.delay) + nanos(self.link.jitter)) as f64 + 2.0 * BUFFER_NS;
        (flight * self.rate) as u64 + self.link.buffer_len.unwrap_or(0) + 128 * 1024
    }

    fn jitter_ns(&mut self) -> u64 {
        let span = nanos(self.link.jitter);
        if span == 0 {
            return 0;
        }
        // splitmix64: evenly spread and the same every run.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % (span + 1)
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos().min(u128::from(u64::MAX / 4)) as u64
}

#[cfg(test)]
mod tests {
    use super::{super::Stall, *};

    /// Drives a shaper with a reader that always has bytes and is `late_ns` late each time; returns bytes in one
    /// second.
    fn drive(rate: Rate, late_ns: u64) -> (f64, u64) {
        let mut shaper = Shaper::new(
            &Link {
                rate: Some(rate),
                ..Link::default()
            },
            1,
        );
        let (mut now, mut arrived, mut ahead) = (1_000_000_000, 0_u64, 0);
        while now < 2_000_000_000 {
            match shaper.turn(now) {
                Turn::Wait(ns) => now += ns + late_ns,
                Turn::Read(len) => {
                    let at = shaper.pass(now, len);
                    ahead = ahead.max(at.saturating_sub(now));
                    arrived += if at < 2_000_000_000 { len as u64 } else { 0 };
                }
            }
        }
        (arrived as f64, ahead)
    }

    #[test]
    fn rate_holds_from_1_mbit_to_10_gbit_even_when_the_reader_is_late() {
        for mbit in [1.0, 10.0, 100.0, 1000.0, 2500.0, 10_000.0] {
            for late_ns in [0, 100_000, 2_000_000] {
                let (arrived, ahead) = drive(Rate::from_mbit(mbit), late_ns);
                let want = mbit * 1e6 / 8.0;
                assert!(
                    (arrived / want - 1.0).abs() < 0.02,
                    "{mbit} Mbit/s, late {late_ns}: {arrived} of {want}"
                );
                // Queue plus one piece.
                let bound = BUFFER_NS.max(BUFFER_LEN_MIN / want * 1e9)
                    + 0.5e6_f64.max(1448.0 / want * 1e9)
                    + 1.0;
                assert!(ahead as f64 <= bound, "{mbit} Mbit/s queues {ahead} ns");
            }
        }
    }

    #[test]
    fn jitter_stays_in_its_span_and_a_stall_comes_once() {
        let stall = Some(Stall {
            after_bytes: 3000,
            length: Duration::from_millis(70),
        });
        let jitter = Duration::from_millis(3);
        let mut shaper = Shaper::new(
            &Link {
                jitter,
                stall,
                ..Link::default()
            },
            9,
        );
        let waits: Vec<u64> = (0..6)
            .map(|n| shaper.pass(n * 100_000_000, 1000) - n * 100_000_000)
            .collect();
        assert!(waits[2] >= 70_000_000, "{waits:?}");
        assert!(
            [0, 1, 3, 4, 5]
                .iter()
                .all(|&n: &usize| waits[n] <= 3_000_000),
            "{waits:?}"
        );
        assert!(waits.iter().any(|&wait| wait % 1000 != 0), "{waits:?}");
    }
}
