//! Keeps the promise on links as fast as memory: packing stays only where it is seen to pay.
//!
//! The price rule treats link and processors as separate resources. On a link of gigabytes a second they are not: sending
//! itself is processor time, the receiver's may be the same processors, and no counter here shows it. So on such links
//! we compare: some milliseconds raw, some as the rule would have it, by the bytes that got through. The better one
//! stays; the other is tried again now and then, ever more seldom while it goes on losing.
//!
//! Neighbours: [`crate::adaptive`] asks with every chunk. Units: nanoseconds, bytes.

/// Which way chunks go at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// As the price rule has it.
    Priced,
    /// Raw, whatever the rule says.
    Raw,
}

/// Compares the two ways.
#[derive(Debug, Clone)]
pub struct Guard {
    way: Way,
    began_ns: u64,
    counted_ns: u64,
    bytes: u64,
    /// Bytes a nanosecond that got through, last time, priced and raw.
    rates: [Option<f64>; 2],
    /// Spans for which the better way stays before the other is tried.
    patience: u32,
    stay: u32,
    /// This span tries the way that lost last time.
    trial: bool,
}

impl Default for Guard {
    fn default() -> Self {
        Self {
            way: Way::Priced,
            began_ns: 0,
            counted_ns: 0,
            bytes: 0,
            rates: [None; 2],
            patience: PATIENCE_MIN,
            stay: PATIENCE_MIN,
            trial: false,
        }
    }
}

impl Guard {
    /// Notes a chunk and says which way it goes. `link` is what the link carries, in bytes a nanosecond.
    pub fn way(&mut self, now_ns: u64, raw_len: usize, link: f64) -> Way {
        if link < FAST {
            *self = Self { began_ns: now_ns, counted_ns: now_ns, ..Self::default() };
            return Way::Priced;
        }
        if now_ns < self.began_ns + SPAN_NS / 4 {
            // What was under way before the change is not this way's.
            self.counted_ns = now_ns;
            self.bytes = 0;
        }
        self.bytes += raw_len as u64;
        if now_ns >= self.began_ns + SPAN_NS && self.bytes > raw_len as u64 {
            let rate = self.bytes as f64 / (now_ns - self.counted_ns).max(1) as f64;
            self.rates[self.way as usize] = Some(rate);
            self.turn();
            (self.began_ns, self.counted_ns, self.bytes) = (now_ns, now_ns, 0);
        }
        self.way
    }

    /// A span is over: which way next?
    fn turn(&mut self) {
        let [priced, raw] = self.rates;
        let (Some(priced), Some(raw)) = (priced, raw) else {
            self.way = if raw.is_none() { Way::Raw } else { Way::Priced };
            return;
        };
        let better = if priced > GAIN_MIN * raw { Way::Priced } else { Way::Raw };
        if self.trial {
            self.trial = false;
            self.patience = if better == self.way { PATIENCE_MIN } else { (self.patience * 2).min(PATIENCE_MAX) };
            self.stay = self.patience;
            self.way = better;
        } else if better != self.way {
            self.stay = self.patience;
            self.way = better;
        } else if self.stay > 0 {
            self.stay -= 1;
        } else {
            self.trial = true;
            self.way = if self.way == Way::Raw { Way::Priced } else { Way::Raw };
        }
    }
}

/// Slower links are the price rule's own: 5.6 Gbit/s.
const FAST: f64 = 0.7;
/// Length of one comparison.
const SPAN_NS: u64 = 6_000_000;
/// What packing must gain to stay.
const GAIN_MIN: f64 = 1.03;
/// Spans between two trials, at first and at most.
const PATIENCE_MIN: u32 = 12;
const PATIENCE_MAX: u32 = 96;

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs chunks of 64 KiB for `ms` where raw gets `raw` bytes a nanosecond through and priced `priced`; returns the
    /// share of time that went priced.
    fn run(guard: &mut Guard, now_ns: &mut u64, ms: u64, priced: f64, raw: f64) -> f64 {
        let (end, mut in_priced) = (*now_ns + ms * 1_000_000, 0);
        let begin = *now_ns;
        while *now_ns < end {
            let rate = match guard.way(*now_ns, 65_536, 2.0) {
                Way::Priced => priced,
                Way::Raw => raw,
            };
            let took = (65_536.0 / rate) as u64;
            in_priced += if rate == priced { took } else { 0 };
            *now_ns += took;
        }
        in_priced as f64 / (*now_ns - begin) as f64
    }

    #[test]
    fn the_better_way_stays_and_a_change_is_noticed() {
        let (mut guard, mut now_ns) = (Guard::default(), 0);
        run(&mut guard, &mut now_ns, 100, 1.0, 2.0);
        assert!(run(&mut guard, &mut now_ns, 1000, 1.0, 2.0) < 0.03, "raw is twice as fast");
        run(&mut guard, &mut now_ns, 1000, 3.0, 2.0);
        assert!(run(&mut guard, &mut now_ns, 1000, 3.0, 2.0) > 0.9, "packing got faster");
    }

    #[test]
    fn a_slow_link_is_left_to_the_prices() {
        let mut guard = Guard::default();
        for now_ns in (0..1_000_000_000).step_by(1_000_000) {
            assert_eq!(guard.way(now_ns, 65_536, 0.3), Way::Priced);
        }
    }
}
