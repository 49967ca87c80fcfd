//! Blocks that wait for a worker: a line for each job, served in turn, so that no client waits for another's whole
//! file.
//!
//! A line is bounded by its job's slots, the number of lines by the server; workers wait here and nowhere else.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
};

// From the parent, so that `tests/schedules.rs` can put a scheduler's in their place.
use super::sync::{Condvar, Mutex};

/// Lines of `T`, by job.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    more: Condvar,
}

struct State<T> {
    lines: BTreeMap<u64, VecDeque<T>>,
    /// Jobs with something in their lines, next first.
    turns: VecDeque<u64>,
    closed: bool,
    /// Times that all who wait were told to look at themselves.
    calls: u64,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        let state = State {
            lines: BTreeMap::new(),
            turns: VecDeque::new(),
            closed: false,
            calls: 0,
        };
        Self {
            state: Mutex::new(state),
            more: Condvar::new(),
        }
    }

    pub(crate) fn push(&self, job: u64, work: T) {
        let mut state = self.state.lock();
        let line = state.lines.entry(job).or_default();
        line.push_back(work);
        if line.len() == 1 {
            state.turns.push_back(job);
        }
        drop(state);
        self.more.notify_one();
    }

    /// Wakes all who wait, with nothing to do.
    pub(crate) fn call(&self) {
        self.state.lock().calls += 1;
        self.more.notify_all();
    }

    /// The next work, or nothing where there was a call that the caller has not `heard`; `None` once the queue is
    /// closed. Waits.
    pub(crate) fn pop(&self, heard: &mut u64) -> Option<Option<T>> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            if std::mem::replace(heard, state.calls) != state.calls {
                return Some(None);
            }
            if let Some(job) = state.turns.pop_front() {
                let line = state.lines.get_mut(&job).expect("a turn is a line's");
                let work = line.pop_front();
                if line.is_empty() {
                    state.lines.remove(&job);
                } else {
                    state.turns.push_back(job);
                }
                return Some(work);
            }
            self.more.wait(&mut state);
        }
    }

    /// Drops what a job has waiting.
    pub(crate) fn forget(&self, job: u64) {
        let mut state = self.state.lock();
        state.lines.remove(&job);
        state.turns.retain(|turn| *turn != job);
    }

    /// Nobody waits any more.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.more.notify_all();
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}
