//! Jobs done side by side whose results come in the order they were given.
//!
//! Why not the engine's sequencer: that hands frames on from whichever worker completes a run; here the one thread that
//! writes or reads takes them, and waits for the next when too many are under way, which bounds memory.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        mpsc::{Receiver, sync_channel},
    },
};

use narrows_core::Workspace;
use narrows_pipeline::WorkerPool;

use crate::turn;

/// Results of type `T`, in order.
#[derive(Debug)]
pub struct Ordered<T> {
    workers: Workers,
    pending: VecDeque<Slot<T>>,
    depth: usize,
}

/// Who does the jobs.
#[derive(Debug)]
enum Workers {
    Pool(Arc<WorkerPool>),
    Caller(Workspace),
    /// The caller, when it is its turn.
    CallerInTurn,
}

#[derive(Debug)]
enum Slot<T> {
    Done(T),
    Waiting(Receiver<T>),
}

impl<T: Send + 'static> Ordered<T> {
    /// On so many threads beside the caller's; on that alone where it is one.
    pub fn new(threads: usize) -> Self {
        let workers = match threads {
            ..=1 => Workers::Caller(Workspace::default()),
            _ => Workers::Pool(WorkerPool::new(threads)),
        };
        Self::with(workers, threads)
    }

    /// The same for short jobs. Where there is one thread, the caller takes turns with other callers, so a job must not
    /// wait for anything.
    pub(crate) fn in_turn(threads: usize) -> Self {
        match threads {
            ..=1 => Self::with(Workers::CallerInTurn, threads),
            _ => Self::new(threads),
        }
    }

    fn with(workers: Workers, threads: usize) -> Self {
        Self {
            workers,
            pending: VecDeque::new(),
            // Two of each thread keep it busy while the caller reads or writes one.
            depth: if threads > 1 { 2 * threads } else { 1 },
        }
    }

    /// Whether a result must be taken before the next job is given.
    pub fn is_full(&self) -> bool {
        self.pending.len() >= self.depth
    }

    /// Whether nothing is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether the caller's thread does the jobs, so that they may borrow.
    pub(crate) fn is_here(&self) -> bool {
        !matches!(self.workers, Workers::Pool(_))
    }

    /// Does a job on the caller's thread.
    pub(crate) fn do_here(&mut self, job: impl FnOnce(&mut Workspace) -> T) {
        let done = match &mut self.workers {
            Workers::Caller(ws) => job(ws),
            Workers::CallerInTurn => turn::with(job),
            Workers::Pool(_) => job(&mut Workspace::default()),
        };
        self.put(done);
    }

    /// Gives a job.
    pub fn submit(&mut self, job: impl FnOnce(&mut Workspace) -> T + Send + 'static) {
        let Workers::Pool(pool) = &self.workers else {
            return self.do_here(job);
        };
        let (done, result) = sync_channel(1);
        pool.spawn(move |ws| {
            // The receiver may have been dropped.
            let _ = done.send(job(ws));
        });
        self.pending.push_back(Slot::Waiting(result));
    }

    /// A result that is there already, in its place.
    pub fn put(&mut self, result: T) {
        self.pending.push_back(Slot::Done(result));
    }

    /// The next result, waited for; `None` where none is pending. `Some(None)` where a codec panicked: a bug, told as
    /// such rather than as an end.
    pub fn wait_next(&mut self) -> Option<Option<T>> {
        self.pending.pop_front().map(|slot| match slot {
            Slot::Done(result) => Some(result),
            Slot::Waiting(result) => result.recv().ok(),
        })
    }

    /// The next result if it is there.
    pub fn next_ready(&mut self) -> Option<Option<T>> {
        if let Some(Slot::Waiting(result)) = self.pending.front() {
            match result.try_recv() {
                Ok(done) => self.pending[0] = Slot::Done(done),
                Err(std::sync::mpsc::TryRecvError::Empty) => return None,
                Err(std::sync::mpsc::TryRecvError::Disconnected) => {}
            }
        }
        self.wait_next()
    }
}
