//! Where each block of a job is: waiting, at the server, being checked, being done here, or done.
//!
//! A pure state machine: [`client`](crate::client)'s threads drive it under one lock and sleep while it has nothing for
//! them; time comes in as an argument. Blocks are read in, handed to the server as far as it takes them, and taken out
//! in order. Whatever the server does not do, or does wrong, or not in time, is a task for this side:
//!
//! | the server | then |
//! |---|---|
//! | says that the block waited too long | it is done here: `busy` |
//! | answers with other bytes than it should | it is done here: `bad`; the third time, the server is out |
//! | has owed a block for longer than `patience` | what it has not been sent is done here, then what it owes: `slow` |
//! | is gone, or says what makes no sense | the rest is done here: `lost` |
//!
//! Without leave to spill, each of these is the job's end instead.
//!
//! Invariants: `blocks` holds `written..next`, at most `span` of them; the server owes at most `depth` blocks, those
//! that were done here meanwhile included: an answer that comes too late is dropped.

use std::collections::{BTreeMap, VecDeque};

use narrows::Bytes;

use crate::message::{Answer, Outcome, printable};

/// Wrong answers after which a server is not asked any more.
const BAD_MAX: u64 = 3;

/// Bounds of a job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Blocks that the server may owe.
    pub(crate) depth: usize,
    /// Blocks held here.
    pub(crate) span: usize,
    /// How long the server may owe a block.
    pub(crate) patience_ns: u64,
    /// Whether this side may do what the server does not.
    pub(crate) spill: bool,
}

/// Blocks by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) remote: u64,
    pub(crate) busy: u64,
    pub(crate) bad: u64,
    pub(crate) slow: u64,
    pub(crate) lost: u64,
    /// Answers to blocks that were done here by then.
    pub(crate) late: u64,
}

/// A block that is read in.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    /// A question: room for its head, then the bytes.
    pub(crate) bytes: Bytes,
    pub(crate) raw_len: u32,
    /// What its raw bytes must give, where that is known.
    pub(crate) check: Option<u32>,
}

/// A block's outcome.
#[derive(Debug, Clone)]
pub(crate) struct Done {
    /// Bytes, from which position on; `None` where the block stays as it was.
    pub(crate) bytes: Option<(Bytes, usize)>,
    /// Check of the raw bytes.
    pub(crate) check: u32,
}

/// Something to do here.
#[derive(Debug)]
pub(crate) enum Task {
    /// See whether this answer is right.
    Check(u32, Block, Answer),
    /// Do this block.
    Do(u32, Block),
    /// Nothing before this time, unless something changes.
    Wait(Option<u64>),
    /// Nothing ever.
    Over,
}

#[derive(Debug)]
enum State {
    Waiting,
    Sent,
    Claimed,
    Done(Done),
}

/// The ledger.
#[derive(Debug)]
pub(crate) struct Ledger {
    rules: Rules,
    blocks: BTreeMap<u32, (Block, State)>,
    next: u32,
    ended: bool,
    waiting: VecDeque<u32>,
    owed: BTreeMap<u32, u64>,
    answers: VecDeque<(u32, Answer)>,
    returned: VecDeque<u32>,
    lost: Option<String>,
    fault: Option<String>,
    stopped: bool,
    counts: Counts,
}

impl Ledger {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            blocks: BTreeMap::new(),
            next: 0,
            ended: false,
            waiting: VecDeque::new(),
            owed: BTreeMap::new(),
            answers: VecDeque::new(),
            returned: VecDeque::new(),
            lost: None,
            fault: None,
            stopped: false,
            counts: Counts::default(),
        }
    }

    /// How long the server may owe a block, once that is known better.
    pub(crate) fn set_patience(&mut self, patience_ns: u64) {
        self.rules.patience_ns = patience_ns;
    }

    /// Number of the next block to be read in, if there is room for it.
    pub(crate) fn room(&self) -> Option<u32> {
        (!self.is_over() && self.blocks.len() < self.rules.span).then_some(self.next)
    }

    /// How many blocks were read in.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// Takes the next block in; `done` where there is nothing to do about it.
    pub(crate) fn add(&mut self, block: Block, done: Option<Done>) {
        let index = self.next;
        self.next += 1;
        let state = match done {
            Some(done) => State::Done(done),
            None => {
                self.waiting.push_back(index);
                State::Waiting
            }
        };
        self.blocks.insert(index, (block, state));
    }

    /// No more blocks will come.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// The job is over, whatever is left of it.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }

    /// A block for the server, which owes it from now on.
    pub(crate) fn send(&mut self, now_ns: u64) -> Option<Bytes> {
        if self.is_over() || self.lost.is_some() || self.owed.len() >= self.rules.depth {
            return None;
        }
        let index = self.waiting.pop_front()?;
        let (block, state) = self.blocks.get_mut(&index).expect("what waits is held");
        *state = State::Sent;
        self.owed.insert(index, now_ns);
        Some(block.bytes.clone())
    }

    /// Nothing will be sent any more.
    pub(crate) fn is_all_sent(&self) -> bool {
        self.is_over() || self.lost.is_some() || self.ended && self.waiting.is_empty()
    }

    /// The server owes nothing.
    pub(crate) fn is_answered(&self) -> bool {
        self.owed.is_empty()
    }

    /// What the server said of a block.
    pub(crate) fn answer(&mut self, answer: Answer) {
        let index = answer.index;
        if self.lost.is_some() {
            return;
        }
        if self.owed.remove(&index).is_none() {
            return self.lose("the server answered what it was not asked");
        }
        let Some((_, state @ State::Sent)) = self.blocks.get_mut(&index) else {
            self.counts.late += 1;
            return;
        };
        *state = State::Claimed;
        match answer.outcome {
            Outcome::Done | Outcome::NoSmaller => self.answers.push_back((index, answer)),
            Outcome::Busy => {
                self.counts.busy += 1;
                self.give_back(index, "the server is too busy");
            }
            Outcome::Failed | Outcome::Summary => self.refute(index),
        }
    }

    /// The server's answer was right.
    pub(crate) fn confirm(&mut self, index: u32, done: Done) {
        self.counts.remote += 1;
        self.settle(index, done);
    }

    /// The server's answer was wrong.
    pub(crate) fn refute(&mut self, index: u32) {
        self.counts.bad += 1;
        self.give_back(index, "the server sent wrong data back");
        if self.counts.bad == BAD_MAX {
            self.lose("the server sent wrong data back three times");
        }
    }

    /// A block was done here.
    pub(crate) fn settle(&mut self, index: u32, done: Done) {
        if let Some((_, state)) = self.blocks.get_mut(&index) {
            *state = State::Done(done);
        }
    }

    /// The server is not to be asked any more.
    pub(crate) fn lose(&mut self, why: &str) {
        if self.lost.is_none() && !self.is_over() {
            self.lost = Some(printable(why));
            self.owed.clear();
            if !self.rules.spill {
                self.fault.get_or_insert(printable(why));
            }
        }
    }

    /// Something to do for a thread of this side.
    pub(crate) fn take(&mut self, now_ns: u64) -> Task {
        if self.is_over() {
            return Task::Over;
        }
        if let Some((index, answer)) = self.answers.pop_front() {
            return Task::Check(index, self.blocks[&index].0.clone(), answer);
        }
        let index = self.returned.pop_front().or_else(|| {
            let index = self.unserved(now_ns)?;
            let because = if self.lost.is_some() {
                &mut self.counts.lost
            } else {
                &mut self.counts.slow
            };
            *because += 1;
            Some(index)
        });
        if self.fault.is_some() {
            return Task::Over;
        }
        let Some(index) = index else {
            let due = self.owed.values().map(|at| at + self.rules.patience_ns);
            return Task::Wait(due.filter(|until| *until > now_ns).min());
        };
        let (block, state) = self
            .blocks
            .get_mut(&index)
            .expect("what is not done is held");
        *state = State::Claimed;
        Task::Do(index, block.clone())
    }

    /// The next block in order, if it is done. Its place is free then.
    pub(crate) fn pop(&mut self) -> Option<(Block, Done)> {
        let entry = self
            .blocks
            .first_entry()
            .filter(|entry| matches!(entry.get().1, State::Done(_)))?;
        match entry.remove() {
            (block, State::Done(done)) => Some((block, done)),
            _ => unreachable!("looked at above"),
        }
    }

    /// Nothing more will happen: all is done and taken out, or there was a fault.
    pub(crate) fn is_over(&self) -> bool {
        self.stopped || self.fault.is_some() || self.ended && self.blocks.is_empty()
    }

    /// Why the job cannot go on.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Why the server was given up.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// A block that the server does not do, or not in time.
    fn unserved(&mut self, now_ns: u64) -> Option<u32> {
        let lost = self.lost.is_some();
        let late = |at: &u64| now_ns.saturating_sub(*at) >= self.rules.patience_ns;
        let oldest = self.owed.values().min();
        if !lost && !oldest.is_some_and(late) {
            return None;
        }
        if !self.rules.spill {
            self.fault = Some(format!(
                "the server has owed a block for {} s",
                self.rules.patience_ns / 1_000_000_000
            ));
            return None;
        }
        let sent = |(index, (_, state)): (&u32, &(Block, State))| {
            let due =
                matches!(state, State::Sent) && (lost || self.owed.get(index).is_some_and(late));
            due.then_some(*index)
        };
        let sent = self.blocks.iter().find_map(sent);
        // The first in order is what everything else waits for; but what the server may still answer comes last.
        if lost {
            sent.or_else(|| self.waiting.pop_front())
        } else {
            self.waiting.pop_front().or(sent)
        }
    }

    fn give_back(&mut self, index: u32, why: &str) {
        if self.rules.spill {
            self.returned.push_back(index);
        } else {
            self.fault.get_or_insert(why.into());
        }
    }
}

#[cfg(test)]
mod tests;
