//! The memory that a server's jobs and workers hold, within its bound.
//!
//! A job's room is counted from its first block on, so that a client which asks and then says nothing holds nobody's.
//! What a worker's codec keeps from block to block counts for as long as it is kept: until no job needs it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use parking_lot::Mutex;

/// What is held, of how much.
#[derive(Debug)]
pub(crate) struct Rooms {
    max: usize,
    state: Mutex<State>,
    /// Bytes of the largest context that each worker may have.
    kept: Vec<AtomicUsize>,
}

#[derive(Debug, Default)]
struct State {
    held: usize,
    /// Lengths of contexts that jobs need, and how many need each.
    contexts: BTreeMap<usize, usize>,
}

impl State {
    fn largest(&self) -> usize {
        self.contexts.last_key_value().map_or(0, |(len, _)| *len)
    }
}

/// A job's room, given back on drop.
#[derive(Debug)]
pub(crate) struct Room {
    rooms: Arc<Rooms>,
    bytes: usize,
    context: usize,
}

impl Rooms {
    pub(crate) fn new(max: usize, workers: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            state: Mutex::default(),
            kept: (0..workers.max(1)).map(|_| AtomicUsize::new(0)).collect(),
        })
    }

    /// Takes room for a job of `bytes` whose blocks leave `context` bytes in a worker; or says why there is none.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize, context: usize) -> Result<Room, String> {
        let mut state = self.state.lock();
        self.fits(&state, bytes, context)?;
        state.held += bytes;
        *state.contexts.entry(context).or_default() += 1;
        Ok(Room {
            rooms: self.clone(),
            bytes,
            context,
        })
    }

    /// Whether there would be room now.
    pub(crate) fn look(&self, bytes: usize, context: usize) -> Result<(), String> {
        self.fits(&self.state.lock(), bytes, context)
    }

    fn fits(&self, state: &State, bytes: usize, context: usize) -> Result<(), String> {
        let needed = context.max(state.largest());
        let contexts: usize = self
            .kept
            .iter()
            .map(|kept| kept.load(SeqCst).max(needed))
            .sum();
        if state.held + bytes + contexts <= self.max {
            return Ok(());
        }
        let (max, held) = (self.max, state.held);
        Err(format!(
            "this server is full: it holds at most {max} bytes; other jobs have {held}, this one needs {bytes} and its \
             workers {contexts}, less at lower levels"
        ))
    }

    /// Worker `index` is about to make or use a context of `len` bytes.
    pub(crate) fn keep(&self, index: usize, len: usize) {
        self.kept[index].fetch_max(len, SeqCst);
    }

    /// Whether worker `index` keeps more than any job needs, and shall drop it. It counts as dropped from now on.
    pub(crate) fn shall_drop(&self, index: usize) -> bool {
        let needed = self.state.lock().largest();
        self.kept[index]
            .fetch_update(SeqCst, SeqCst, |kept| (kept > needed).then_some(0))
            .is_ok()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut state = self.rooms.state.lock();
        state.held -= self.bytes;
        if let Some(count) = state.contexts.get_mut(&self.context) {
            *count -= 1;
            if *count == 0 {
                state.contexts.remove(&self.context);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a context counts while a job needs it or a worker keeps it, and no longer.
    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let rooms = Rooms::new(1000, 2);
        let large = rooms.take(100, 400).unwrap();
        assert!(rooms.look(101, 0).is_err(), "2 x 400 and 100 are taken");
        assert!(rooms.look(100, 400).is_ok());
        rooms.keep(1, 400);
        drop(large);
        assert!(rooms.look(601, 0).is_err(), "one worker keeps its context");
        assert!(rooms.shall_drop(1) && !rooms.shall_drop(1));
        let all = rooms.take(1000, 0).unwrap();
        assert!(rooms.take(1, 0).is_err());
        drop(all);
        assert!(rooms.look(1000, 0).is_ok());
    }
}
