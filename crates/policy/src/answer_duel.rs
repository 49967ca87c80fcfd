//! Whether messages are answered sooner raw or as the price rule has them.
//!
//! Why: a message that waits for its answer never fills a link, so nothing is learnt of the link's rate, and whether
//! the time spent on looking and packing is won back on the link would be a guess. But the answer itself tells.
//! So some messages go raw without a look, and the way whose answers come sooner is taken; now and then the other is
//! tried again.
//!
//! An answer is whatever the peer sends between one message and the next. Where several leave before it, it counts for
//! the longest: the bytes of a copy leave between two short requests. What else an answer waits for, the server and the way
//! back, is the same for both ways. Neighbours: [`crate::adaptive`] asks it before the price rule. Units: nanoseconds.

use crate::tuning::tuning;

/// See the module.
#[derive(Debug, Default)]
pub struct AnswerDuel {
    lengths: [Ways; LENGTHS],
    /// The message that may be answered next.
    waiting: Option<Waiting>,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    length: usize,
    priced: bool,
    sent_ns: u64,
}

/// Messages of a power of two in length.
#[derive(Debug, Default, Clone, Copy)]
struct Ways {
    asked: u32,
    /// Raw and priced.
    seen: [Median; 2],
}

/// A running median: a step up for what is above, a step down for what is below. One long wait moves it no further than
/// any other.
#[derive(Debug, Default, Clone, Copy)]
struct Median {
    count: u32,
    ns: f32,
}

impl Median {
    fn see(&mut self, ns: f32) {
        self.count = self.count.saturating_add(1);
        if self.count == 1 {
            self.ns = ns;
        } else {
            let step = (1.0 / self.count as f32).max(tuning().answer_step_min);
            self.ns *= if ns > self.ns {
                1.0 + step
            } else {
                1.0 / (1.0 + step)
            };
        }
    }
}

impl AnswerDuel {
    /// A message is to be decided on; the peer was heard last at `heard_ns`. To be called before each decision.
    pub fn note(&mut self, heard_ns: u64) {
        if let Some(Waiting {
            length,
            priced,
            sent_ns,
        }) = self.waiting.take_if(|waiting| heard_ns > waiting.sent_ns)
        {
            self.lengths[length].seen[usize::from(priced)].see((heard_ns - sent_ns) as f32);
        }
    }

    /// Whether a message of `len` bytes, which leaves now, had better go raw.
    pub fn raw_is_better(&mut self, len: usize, now_ns: u64) -> bool {
        let length = (len.max(1).ilog2() as usize).min(LENGTHS - 1);
        let ways = &mut self.lengths[length];
        let [raw, priced] = ways.seen;
        let turn = ways.asked;
        ways.asked = turn.wrapping_add(1);
        let sooner = raw.ns < tuning().answer_sooner * priced.ns;
        let goes_raw = match () {
            // Nobody answers, or too little is known to try.
            () if priced.count < tuning().answer_tried => false,
            // Several of a kind in a row: the peer tries too, and each of its ways should meet each of ours.
            () if raw.count < tuning().answer_tried => turn / tuning().answer_tried % 2 == 1,
            () => sooner != turn.is_multiple_of(tuning().answer_again),
        };
        if self.waiting.is_none_or(|waiting| waiting.length <= length) {
            self.waiting = Some(Waiting {
                length,
                priced: !goes_raw,
                sent_ns: now_ns,
            });
        }
        goes_raw
    }
}

/// Lengths up to 64 KiB, by their logarithm.
const LENGTHS: usize = 17;

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `count` messages, answered after so long by their way, give or take a fifth; how many of the last half
    /// went raw.
    fn ask(answers: &mut AnswerDuel, count: u32, raw_ns: u64, priced_ns: u64) -> u32 {
        let (mut now, mut raw) = (1_000_000, 0);
        for turn in 0..count {
            let goes_raw = answers.raw_is_better(4096, now);
            raw += u32::from(goes_raw && turn >= count / 2);
            let took = if goes_raw { raw_ns } else { priced_ns };
            let heard = now + took * (80 + u64::from(turn * 7 % 41)) / 100;
            answers.note(heard);
            now = heard + 10_000;
        }
        raw
    }

    #[test]
    fn messages_go_the_way_that_is_answered_sooner() {
        assert!(
            ask(&mut AnswerDuel::default(), 2000, 80_000, 110_000) > 950,
            "a look for nothing"
        );
        assert!(
            ask(&mut AnswerDuel::default(), 2000, 500_000, 300_000) < 50,
            "a slow link"
        );
        assert!(
            ask(&mut AnswerDuel::default(), 2000, 10_000_000, 10_000_000) < 50,
            "no difference"
        );
    }

    #[test]
    fn a_link_that_becomes_slow_is_noticed() {
        let mut answers = AnswerDuel::default();
        ask(&mut answers, 2000, 80_000, 110_000);
        assert!(ask(&mut answers, 10_000, 500_000, 300_000) < 200);
    }

    // Goal: what is answered is learnt where a copy's bytes leave between two requests. Method: a request, 64 KiB and a
    // request, and one answer, which comes sooner where the 64 KiB go raw.
    #[test]
    fn an_answer_is_the_longest_messages() {
        let mut answers = AnswerDuel::default();
        let (mut now, mut raw) = (1_000_000, 0);
        for turn in 0..2000 {
            answers.raw_is_better(80, now);
            answers.note(now - 5_000);
            let goes_raw = answers.raw_is_better(64 << 10, now + 10_000);
            raw += u32::from(goes_raw && turn >= 1000);
            answers.note(now - 5_000);
            answers.raw_is_better(20, now + 12_000);
            let took = if goes_raw { 550_000 } else { 640_000 };
            let heard = now + took * (95 + turn * 7 % 11) / 100;
            answers.note(heard);
            now = heard + 10_000;
        }
        assert!(raw > 950, "{raw}");
    }

    #[test]
    fn where_nobody_answers_the_price_decides() {
        let mut answers = AnswerDuel::default();
        for turn in 0..1000 {
            answers.note(5);
            assert!(!answers.raw_is_better(4096, 10 + turn));
        }
    }
}
