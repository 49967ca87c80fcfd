use std::{collections::BTreeSet, sync::Arc};

use narrows::Buf;
use proptest::prelude::*;

use super::*;

const RULES: Rules = Rules {
    depth: 3,
    span: 6,
    patience_ns: 100,
    spill: true,
};

fn block() -> Block {
    Block {
        bytes: Arc::new(Buf::from_vec(vec![0; 9])),
        raw_len: 1,
        check: None,
    }
}

fn done() -> Done {
    Done {
        bytes: None,
        check: 7,
    }
}

fn answer(index: u32, outcome: Outcome) -> Answer {
    let mut head = vec![0; Answer::HEAD_LEN];
    Answer::write_head(index, outcome, 0, 0, &mut head);
    Answer::parse(Arc::new(Buf::from_vec(head))).expect("a whole head")
}

fn ledger(rules: Rules, blocks: u32) -> Ledger {
    let mut ledger = Ledger::new(rules);
    (0..blocks).for_each(|_| ledger.add(block(), None));
    ledger.end();
    ledger
}

fn task(ledger: &mut Ledger, now_ns: u64) -> String {
    match ledger.take(now_ns) {
        Task::Check(index, ..) => format!("check {index}"),
        Task::Do(index, _) => format!("do {index}"),
        Task::Wait(until) => format!("wait {until:?}"),
        Task::Over => "over".into(),
    }
}

#[test]
fn the_server_is_given_its_depth_and_answers_come_out_in_order() {
    let mut ledger = ledger(RULES, 4);
    assert_eq!(
        [0, 1, 2, 3].map(|now| ledger.send(now).is_some()),
        [true, true, true, false]
    );
    ledger.answer(answer(2, Outcome::Done));
    assert!(ledger.send(4).is_some());
    assert_eq!(task(&mut ledger, 5), "check 2");
    ledger.confirm(2, done());
    assert!(ledger.pop().is_none());
    for index in [0, 1, 3] {
        ledger.answer(answer(index, Outcome::NoSmaller));
        assert_eq!(task(&mut ledger, 5), format!("check {index}"));
        ledger.confirm(index, done());
    }
    assert_eq!(std::iter::from_fn(|| ledger.pop()).count(), 4);
    assert!(ledger.is_over() && ledger.fault().is_none());
    assert_eq!(
        ledger.counts(),
        Counts {
            remote: 4,
            ..Counts::default()
        }
    );
}

#[test]
fn a_wrong_answer_is_done_here_and_the_third_ends_the_asking() {
    let mut ledger = ledger(RULES, 5);
    for index in 0..3 {
        assert!(ledger.send(0).is_some(), "{index}");
        ledger.answer(answer(index, Outcome::Done));
        assert_eq!(task(&mut ledger, 0), format!("check {index}"));
        ledger.refute(index);
        assert_eq!(task(&mut ledger, 0), format!("do {index}"));
    }
    assert!(ledger.lost().is_some_and(|why| why.contains("wrong")));
    assert!(ledger.send(0).is_none() && ledger.is_all_sent());
    assert_eq!(
        [
            task(&mut ledger, 0),
            task(&mut ledger, 0),
            task(&mut ledger, 0)
        ],
        ["do 3", "do 4", "wait None"]
    );
    assert_eq!(
        ledger.counts(),
        Counts {
            bad: 3,
            lost: 2,
            ..Counts::default()
        }
    );
}

#[test]
fn a_slow_server_keeps_what_it_has_been_sent_until_the_rest_is_done() {
    let mut ledger = ledger(RULES, 5);
    (10..13).for_each(|now| drop(ledger.send(now)));
    assert_eq!(task(&mut ledger, 50), "wait Some(110)");
    assert_eq!(
        [task(&mut ledger, 110), task(&mut ledger, 110)],
        ["do 3", "do 4"]
    );
    // Block 0 is late, 1 and 2 are not yet.
    assert_eq!(
        [task(&mut ledger, 110), task(&mut ledger, 110)],
        ["do 0", "wait Some(111)"]
    );
    ledger.settle(0, done());
    ledger.answer(answer(0, Outcome::Done));
    assert_eq!(
        ledger.counts(),
        Counts {
            slow: 3,
            late: 1,
            ..Counts::default()
        }
    );
    assert_eq!(task(&mut ledger, 110), "wait Some(111)");
}

#[test]
fn a_busy_block_is_done_here_and_the_server_is_asked_again() {
    let mut ledger = ledger(RULES, 2);
    assert!(ledger.send(0).is_some());
    ledger.answer(answer(0, Outcome::Busy));
    assert_eq!(task(&mut ledger, 0), "do 0");
    assert!(ledger.send(1).is_some() && ledger.lost().is_none());
}

#[test]
fn an_answer_nobody_asked_for_ends_the_asking() {
    for index in [1, 9] {
        let mut ledger = ledger(RULES, 2);
        assert!(ledger.send(0).is_some());
        ledger.answer(answer(index, Outcome::Done));
        assert!(ledger.lost().is_some());
        assert_eq!(
            [task(&mut ledger, 0), task(&mut ledger, 0)],
            ["do 0", "do 1"]
        );
    }
}

#[test]
fn without_leave_to_spill_each_reason_ends_the_job() {
    let rules = Rules {
        spill: false,
        ..RULES
    };
    let ends: [fn(&mut Ledger); 5] = [
        |ledger| ledger.answer(answer(0, Outcome::Busy)),
        |ledger| ledger.answer(answer(0, Outcome::Failed)),
        |ledger| ledger.answer(answer(7, Outcome::Done)),
        |ledger| ledger.lose("gone"),
        |ledger| drop(ledger.take(1000)),
    ];
    for (at, end) in ends.iter().enumerate() {
        let mut ledger = ledger(rules, 2);
        assert!(ledger.send(0).is_some());
        end(&mut ledger);
        assert!(ledger.fault().is_some(), "{at}");
        assert_eq!(task(&mut ledger, 0), "over", "{at}");
    }
}

proptest! {
    // Goal: whatever server and clock do, every block comes out once, in order, and no more is held or owed than was
    // allowed. Method: random events against a ledger whose hands always do what they are given.
    #[test]
    fn every_block_comes_out_once_and_in_order(events in prop::collection::vec((0_u8..8, any::<u8>()), 0..200), blocks in 0_u32..40) {
        let mut ledger = Ledger::new(RULES);
        let (mut now, mut read, mut out) = (0, 0, 0);
        let mut owed = BTreeSet::new();
        let mut sent = 0_u32;
        for (event, number) in events.into_iter().chain(std::iter::repeat_n([(7, 0), (1, 0), (4, 0), (5, 0)], 200).flatten()) {
            match event {
                0 | 7 if read < blocks => if let Some(index) = ledger.room() {
                    prop_assert_eq!(index, read);
                    ledger.add(block(), (number % 16 == 15).then(done));
                    read += 1;
                },
                7 => ledger.end(),
                1 => if ledger.send(now).is_some() {
                    sent += 1;
                    prop_assert!(ledger.owed.len() <= RULES.depth);
                    owed = ledger.owed.keys().copied().collect();
                },
                2 => {
                    let outcome = [Outcome::Done, Outcome::NoSmaller, Outcome::Busy, Outcome::Failed][usize::from(number % 4)];
                    let index = owed.iter().nth(usize::from(number) / 4).copied();
                    ledger.answer(answer(index.unwrap_or(u32::from(number)), outcome));
                    owed = ledger.owed.keys().copied().collect();
                }
                3 => now += u64::from(number),
                6 if number == 0 => ledger.lose("gone"),
                4 => {
                    now += 60;
                    match ledger.take(now) {
                        Task::Check(index, ..) if number % 3 == 1 => ledger.refute(index),
                        Task::Check(index, ..) => ledger.confirm(index, done()),
                        Task::Do(index, _) => ledger.settle(index, done()),
                        Task::Wait(until) => prop_assert!(until.is_none_or(|until| until > now)),
                        Task::Over => {}
                    }
                }
                _ => while let Some((_, done)) = ledger.pop() {
                    prop_assert_eq!(done.check == 7, true);
                    out += 1;
                },
            }
            prop_assert!(ledger.blocks.len() <= RULES.span);
        }
        prop_assert!(ledger.is_over(), "{:?}", ledger);
        prop_assert_eq!(out, blocks);
        prop_assert!(sent <= blocks);
    }
}
