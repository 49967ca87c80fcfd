//! Never slower than raw on links as fast as memory: packing stays only where it is seen to pay.
//!
//! The price rule treats link and processors as separate resources. On a link of gigabytes a second they are not:
//! sending itself is processor time, the receiver's may be the same processors, and no counter here shows it. So on
//! such links we compare: some milliseconds raw, some as the rule would have it, by the bytes that got through. The
//! better one stays; the other is tried again now and then, ever more seldom while it goes on losing. While bytes get
//! through that fast, this is believed and not the estimate of the link's rate: a receiver short of processors looks like a
//! slow link for a moment.
//!
//! Neighbours: [`crate::adaptive`] asks with every chunk. Units: nanoseconds, bytes.

use crate::tuning::tuning;

/// Which way chunks go at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DuelSide {
    /// As the price rule has it.
    Priced,
    /// Raw, whatever the rule says.
    Raw,
}

/// A link, in bytes a nanosecond.
#[derive(Debug, Clone, Copy)]
pub struct FastLink {
    /// What it is believed to carry.
    pub believed: f64,
    /// What it carries at most, as measured while more waited for it; infinite where nothing ever did, and where the
    /// receiver may be what held it up.
    pub at_most: f64,
}

/// Compares the two ways.
#[derive(Debug, Clone)]
pub struct RawDuel {
    way: DuelSide,
    /// Since when bytes are counted, and how many they are.
    counted_ns: u64,
    bytes: u64,
    /// Bytes decided on since the way changed, as long as others are in hand: no pace counts before those have left.
    since: Option<u64>,
    /// Bytes a nanosecond that got through, priced and raw: a mean in which the last span counts `duel_memory`.
    rates: [Option<f64>; 2],
    /// Spans for which the better way stays before the other is tried.
    patience: u32,
    stay: u32,
    /// This span tries the way that lost last time.
    trial: bool,
    /// The other way seemed better after the last span already.
    doubted: bool,
    /// The most that raw bytes got through at lately: fades with each raw span, and counts `duel_peak_max` at most.
    peak: f64,
}

impl Default for RawDuel {
    fn default() -> Self {
        Self {
            way: DuelSide::Priced,
            counted_ns: 0,
            bytes: 0,
            since: None,
            rates: [None; 2],
            patience: tuning().duel_patience_min,
            stay: tuning().duel_patience_min,
            trial: false,
            // Nothing speaks for either way yet: the first comparison counts.
            doubted: true,
            peak: 0.0,
        }
    }
}

impl RawDuel {
    /// Notes a chunk and says which way it goes. `in_hand` raw bytes were decided on and have not left yet.
    pub fn way(&mut self, now_ns: u64, raw_len: usize, link: FastLink, in_hand: u64) -> DuelSide {
        let FastLink {
            believed: link,
            at_most,
        } = link;
        // A look at raw that has begun tells more of the link than what the link is believed to carry meanwhile.
        let looks = tuning().rule_duel_finish_look
            && self.way == DuelSide::Raw
            && self.rates[DuelSide::Raw as usize].is_none();
        if link
            < if looks {
                tuning().duel_slow
            } else {
                tuning().duel_fast
            }
            && self.peak < tuning().duel_fast
        {
            *self = Self {
                counted_ns: now_ns,
                ..Self::default()
            };
            return DuelSide::Priced;
        }
        if let Some(since) = self.since.filter(|_| tuning().rule_duel_since) {
            // Until all in hand went this way the pace is the other's, or that at which the queue fills and what else
            // packing leaves empty.
            let buffers = if self.way == DuelSide::Raw && tuning().rule_duel_buffers {
                tuning()
                    .duel_buffers
                    .min((link * tuning().duel_span_ns as f64) as u64)
            } else {
                0
            };
            let before = in_hand + buffers;
            self.since = (since < before).then_some(since + raw_len as u64);
            (self.counted_ns, self.bytes) = (now_ns, 0);
            return self.way;
        }
        self.bytes += raw_len as u64;
        if now_ns >= self.counted_ns + tuning().duel_span_ns && self.bytes > raw_len as u64 {
            let rate = self.bytes as f64 / (now_ns - self.counted_ns) as f64;
            let before = self.way;
            let mean = self.rates[before as usize]
                .map_or(rate, |old| old + tuning().duel_memory * (rate - old));
            // What was found when it was tried last may have been a pause: pauses make a way slower, nothing faster.
            let mean = if self.trial && tuning().rule_duel_trial_max {
                mean.max(rate)
            } else {
                mean
            };
            self.rates[before as usize] = Some(mean);
            if before == DuelSide::Raw && tuning().rule_duel_peak {
                // One span may be a pause in which nobody read, and the first what buffers on the way took.
                self.peak = rate
                    .min(tuning().duel_peak_max)
                    .max(tuning().duel_fade * self.peak);
            }
            self.turn(at_most);
            (self.counted_ns, self.bytes) = (now_ns, 0);
            self.since = (self.way != before).then_some(0);
        }
        self.way
    }

    /// A span is over: which way next?
    fn turn(&mut self, at_most: f64) {
        let [priced, raw] = self.rates;
        // Raw gets through what the link carries at most. Where packing gets clearly more through there is nothing to try:
        // with sixteen workers at 10 Gbit/s each look at raw cost what packing sends in a tenth of a second.
        let is_beyond = priced.is_some_and(|priced| priced > tuning().duel_beyond * at_most);
        if tuning().rule_duel_beyond && self.way == DuelSide::Priced && !self.trial && is_beyond {
            return;
        }
        let (Some(priced), Some(raw)) = (priced, raw) else {
            self.way = if raw.is_none() {
                DuelSide::Raw
            } else {
                DuelSide::Priced
            };
            return;
        };
        let better = if priced > tuning().duel_gain_min * raw {
            DuelSide::Priced
        } else {
            DuelSide::Raw
        };
        let clear =
            tuning().rule_duel_clear && priced.min(raw) < tuning().duel_clear * priced.max(raw);
        let doubted = std::mem::replace(&mut self.doubted, better != self.way);
        if self.trial {
            self.trial = false;
            self.patience = if better == self.way {
                tuning().duel_patience_min
            } else {
                let least = if clear {
                    tuning().duel_patience_clear
                } else {
                    0
                };
                (self.patience * 2).clamp(
                    least,
                    if better == DuelSide::Raw {
                        tuning().duel_patience_max
                    } else {
                        tuning().duel_patience_clear
                    },
                )
            };
            self.settle(better, clear);
        } else if better != self.way {
            // One span may hit a pause, or a chunk that packs slowly. Two may as well: what seems better since is tried
            // against what was so soon.
            if doubted || !tuning().rule_duel_doubted {
                self.patience = tuning().duel_patience_min;
                self.settle(better, false);
            }
        } else if self.stay > 0 {
            self.stay -= 1;
        } else {
            self.trial = true;
            self.way = if self.way == DuelSide::Raw {
                DuelSide::Priced
            } else {
                DuelSide::Raw
            };
        }
    }

    /// One look may be wrong. That packing pays is looked at again sooner where it does not clearly: raw is what was
    /// promised.
    fn settle(&mut self, better: DuelSide, clear: bool) {
        self.stay = if better == DuelSide::Raw || clear {
            self.patience
        } else {
            self.patience / tuning().duel_haste
        };
        (self.way, self.doubted) = (better, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link that nothing ever waited for.
    fn unmeasured(believed: f64) -> FastLink {
        FastLink {
            believed,
            at_most: f64::INFINITY,
        }
    }

    // Goal: packing that gets five times through what the link was measured to carry is not compared with raw; as much as
    // the link carries is.
    #[test]
    fn a_measured_link_needs_no_look_at_raw_where_packing_gets_more_through() {
        let raw_chunks = |rate: f64| {
            let (mut guard, mut now_ns, mut raw) = (RawDuel::default(), 0, 0);
            let link = FastLink {
                believed: 1.25,
                at_most: 1.25,
            };
            while now_ns < 500_000_000 {
                let way = guard.way(now_ns, 262_144, link, 0);
                raw += u32::from(way == DuelSide::Raw);
                let rate = if way == DuelSide::Raw { 1.2 } else { rate };
                now_ns += (262_144.0 / rate) as u64;
            }
            raw
        };
        assert_eq!(raw_chunks(6.0), 0);
        assert!(raw_chunks(1.3) > 20);
    }

    /// Runs chunks of 64 KiB for `ms` where raw gets `raw` bytes a nanosecond through and priced `priced`; returns the
    /// share of time that went priced.
    fn run(guard: &mut RawDuel, now_ns: &mut u64, ms: u64, priced: f64, raw: f64) -> f64 {
        let (end, mut in_priced) = (*now_ns + ms * 1_000_000, 0);
        let begin = *now_ns;
        while *now_ns < end {
            let rate = match guard.way(*now_ns, 65_536, unmeasured(2.0), 0) {
                DuelSide::Priced => priced,
                DuelSide::Raw => raw,
            };
            let took = (65_536.0 / rate) as u64;
            in_priced += if rate == priced { took } else { 0 };
            *now_ns += took;
        }
        in_priced as f64 / (*now_ns - begin) as f64
    }

    #[test]
    fn the_better_way_stays_and_a_change_is_noticed() {
        let (mut guard, mut now_ns) = (RawDuel::default(), 0);
        run(&mut guard, &mut now_ns, 100, 1.0, 2.0);
        assert!(
            run(&mut guard, &mut now_ns, 1000, 1.0, 2.0) < 0.03,
            "raw is twice as fast"
        );
        run(&mut guard, &mut now_ns, 1000, 3.0, 2.0);
        assert!(
            run(&mut guard, &mut now_ns, 1000, 3.0, 2.0) > 0.9,
            "packing got faster"
        );
    }

    // Goal: a moment in which the link seems slow does not end the comparison; bytes that get through slowly do.
    #[test]
    fn what_got_through_counts_and_not_what_is_believed() {
        let (mut guard, mut now_ns) = (RawDuel::default(), 0);
        run(&mut guard, &mut now_ns, 100, 1.0, 2.0);
        let raw = (0..100).filter(|_| {
            now_ns += 32_768;
            guard.way(now_ns, 65_536, unmeasured(0.05), 0) == DuelSide::Raw
        });
        assert!(raw.count() > 60, "{guard:?}");
        for _ in 0..200 {
            now_ns += 655_360;
            guard.way(now_ns, 65_536, unmeasured(0.1), 0);
        }
        assert_eq!(
            guard.way(now_ns, 65_536, unmeasured(0.1), 0),
            DuelSide::Priced,
            "{guard:?}"
        );
    }

    // Goal: a receiver that does not get a processor for a while is no slow link. Packing for one cost a third of a
    // second.
    #[test]
    fn a_pause_does_not_end_the_comparison() {
        let (mut guard, mut now_ns) = (RawDuel::default(), 0);
        run(&mut guard, &mut now_ns, 100, 1.0, 2.0);
        for _ in 0..3 {
            now_ns += 12 * tuning().duel_span_ns;
            guard.way(now_ns, 65_536, unmeasured(0.1), 0);
            assert!(guard.peak >= tuning().duel_fast, "{guard:?}");
            run(&mut guard, &mut now_ns, 100, 1.0, 2.0);
        }
    }

    // Goal: where raw is twice as fast, half a second has one trial.
    #[test]
    fn what_lost_clearly_is_seldom_tried() {
        let (mut guard, mut now_ns) = (RawDuel::default(), 0);
        run(&mut guard, &mut now_ns, 100, 1.0, 2.0);
        assert!(run(&mut guard, &mut now_ns, 600, 1.0, 2.0) < 0.012);
    }

    // Goal: raw that was first looked at during a pause is no longer held to be slow once a trial shows that it is not.
    #[test]
    fn a_pause_in_the_first_look_at_raw_is_soon_found_out() {
        let (mut guard, mut now_ns) = (RawDuel::default(), 0);
        run(&mut guard, &mut now_ns, 6, 0.7, 0.3);
        assert_eq!(guard.way, DuelSide::Raw);
        run(&mut guard, &mut now_ns, 20, 0.7, 0.3);
        assert_eq!(guard.way, DuelSide::Priced, "{guard:?}");
        // The trial finds processors busy, which are free again then.
        while now_ns < 400_000_000 {
            let raw = if guard.rates[DuelSide::Raw as usize] < Some(0.31) {
                0.85
            } else {
                2.0
            };
            run(&mut guard, &mut now_ns, 1, 1.0, raw);
        }
        assert!(
            run(&mut guard, &mut now_ns, 100, 1.0, 2.0) < 0.1,
            "{guard:?}"
        );
    }

    // Goal: a look at raw is not given up because the link seems a little slower while it fills.
    #[test]
    fn a_look_at_raw_is_finished() {
        let (mut guard, mut now_ns) = (RawDuel::default(), 0);
        run(&mut guard, &mut now_ns, 6, 0.6, 0.9);
        for _ in 0..200 {
            now_ns += 72_818;
            guard.way(now_ns, 65_536, unmeasured(0.68), 0);
        }
        assert!(
            guard.peak >= tuning().duel_fast && guard.way == DuelSide::Raw,
            "{guard:?}"
        );
    }

    // Goal: a link of 2.5 Gbit/s whose buffers took the first megabytes fast is the price rule's again within 60 ms, and
    // stays so though packing gets less through than raw for as long as chunks pack badly.
    #[test]
    fn a_burst_makes_no_fast_link() {
        let (mut guard, mut now_ns, mut raw_ns) = (RawDuel::default(), 0, 0);
        while now_ns < 1_000_000_000 {
            let belief = if now_ns < 20_000_000 { 0.71 } else { 0.3 };
            let way = guard.way(now_ns, 65_536, unmeasured(belief), 0);
            let rate = match way {
                DuelSide::Raw if raw_ns < 6_000_000 => 2.0,
                DuelSide::Raw => 0.3,
                DuelSide::Priced => 0.25,
            };
            let took = (65_536.0 / rate) as u64;
            raw_ns += if way == DuelSide::Raw { took } else { 0 };
            now_ns += took;
        }
        assert!(
            (6_000_000..66_000_000).contains(&raw_ns),
            "{raw_ns} ns raw, {guard:?}"
        );
    }

    // Goal: one slow span, of a chunk that packs slowly or a pause, sends nothing raw that packs well.
    #[test]
    fn a_slow_span_is_not_enough_to_leave_what_pays() {
        let (mut guard, mut now_ns) = (RawDuel::default(), 0);
        run(&mut guard, &mut now_ns, 300, 2.0, 1.0);
        for _ in 0..5 {
            now_ns += 3 * tuning().duel_span_ns;
            assert!(
                run(&mut guard, &mut now_ns, 100, 2.0, 1.0) > 0.8,
                "{guard:?}"
            );
        }
    }

    // Goal: packers leave no queue and raw fills one, which is no pace. Method: a link of 1, packing at 1.1, and four
    // megabytes of room.
    #[test]
    fn a_queue_that_fills_is_no_pace() {
        let (mut guard, mut now_ns, mut queued, mut priced) = (RawDuel::default(), 0, 0_u64, 0);
        while now_ns < 1_000_000_000 {
            let way = guard.way(now_ns, 65_536, unmeasured(1.0), queued);
            priced += if way == DuelSide::Priced { 1 } else { 0 };
            let took = match way {
                DuelSide::Priced => 59_578,
                DuelSide::Raw if queued < 4 << 20 => 0,
                DuelSide::Raw => 65_536,
            };
            now_ns += took;
            queued = (queued + if way == DuelSide::Raw { 65_536 } else { 0 }).saturating_sub(took);
        }
        assert!(priced > 14_000, "{priced} of 16,000 chunks, {guard:?}");
    }

    // Goal: a pause that takes two spans may turn the way, and is soon found out: not for as long as a way that lost
    // clearly stays away.
    #[test]
    fn what_a_pause_turned_is_soon_turned_back() {
        for (priced, raw, better) in [(3.0, 1.2, DuelSide::Priced), (1.0, 2.5, DuelSide::Raw)] {
            let (mut guard, mut now_ns) = (RawDuel::default(), 0);
            run(&mut guard, &mut now_ns, 2000, priced, raw);
            for _ in 0..5 {
                run(&mut guard, &mut now_ns, 12, 0.3, 0.3);
                let share = run(&mut guard, &mut now_ns, 700, priced, raw);
                let share = if better == DuelSide::Priced {
                    share
                } else {
                    1.0 - share
                };
                assert!(share > 0.85, "{share} {guard:?}");
            }
        }
    }

    // Goal: what buffers take at once that packing leaves empty does not count as raw's pace. Method: a link of 1.2, packing
    // that gets 2 through, and three megabytes that go at 4.
    #[test]
    fn a_buffer_that_fills_is_no_pace() {
        let (mut guard, mut now_ns, mut looked, mut filled) = (RawDuel::default(), 0, 0.0_f64, 0);
        while now_ns < 2_000_000_000 {
            let way = guard.way(now_ns, 65_536, unmeasured(1.2), 0);
            filled = if way == DuelSide::Raw {
                filled + 65_536
            } else {
                0
            };
            let rate = match way {
                DuelSide::Priced => 2.0,
                DuelSide::Raw if filled < 3 << 20 => 4.0,
                DuelSide::Raw => 1.2,
            };
            now_ns += (65_536.0 / rate) as u64;
            looked = looked.max(guard.rates[DuelSide::Raw as usize].unwrap_or(0.0));
        }
        assert!((1.19..1.21).contains(&looked), "{looked}");
    }

    #[test]
    fn a_slow_link_is_left_to_the_prices() {
        let mut guard = RawDuel::default();
        for now_ns in (0..1_000_000_000).step_by(1_000_000) {
            assert_eq!(
                guard.way(now_ns, 65_536, unmeasured(0.3), 0),
                DuelSide::Priced
            );
        }
    }
}
