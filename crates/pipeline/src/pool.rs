//! The worker threads of a process: all channels, packing and unpacking, share them.
//!
//! Why two queues: what is only to be learnt from (auditions) must not hold up what travels. In a short transfer it
//! took more of the processors than the chunks did, and its results came when all was sent.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
};

use crossbeam_channel::{Receiver, Sender, bounded, select_biased, unbounded};
use narrows_core::Workspace;

type Job = Box<dyn FnOnce(&mut Workspace) + Send>;

/// Jobs of a busy worker before it does one that can wait, and then one for each of those.
const PATIENCE: usize = 8;

/// Jobs that can wait, at most: each holds up to [`AUDITION_LEN`](narrows_core::policy::AUDITION_LEN) bytes.
const WAITING_MAX: usize = 64;

/// `n` threads, each with a [`Workspace`] of its own. The queue of chunks needs no bound: every channel has at most
/// `depth` jobs in it.
#[derive(Debug)]
pub struct WorkerPool {
    jobs: Sender<Job>,
    later: Sender<Job>,
    workers: usize,
}

impl WorkerPool {
    /// Starts `workers` threads, at least one; fewer where the system has no more. They end when the pool and every job is
    /// gone.
    ///
    /// # Panics
    /// When the system cannot start a single one.
    #[must_use]
    pub fn new(workers: usize) -> Arc<Self> {
        let (jobs, queue) = unbounded();
        let (later, can_wait) = bounded(WAITING_MAX);
        let start = |index| {
            let (queue, can_wait) = (queue.clone(), can_wait.clone());
            thread::Builder::new()
                .name(format!("worker-{index}"))
                .spawn(move || work(&queue, &can_wait))
        };
        let workers = (0..workers.max(1))
            .map_while(|index| start(index).ok())
            .count();
        assert!(workers > 0, "the system starts no thread");
        Arc::new(Self {
            jobs,
            later,
            workers,
        })
    }

    /// How many threads.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Queues a job.
    pub fn spawn(&self, job: impl FnOnce(&mut Workspace) + Send + 'static) {
        self.jobs
            .send(Box::new(job))
            .expect("workers live as long as the pool");
    }

    /// Queues a job for when a worker has nothing else to do. Others go before it, but only a few. Where too many wait
    /// already, it is not done at all.
    pub fn spawn_later(&self, job: impl FnOnce(&mut Workspace) + Send + 'static) {
        let _ = self.later.try_send(Box::new(job));
    }
}

fn work(queue: &Receiver<Job>, can_wait: &Receiver<Job>) {
    let mut ws = Workspace::default();
    // Jobs done since one that could wait was.
    let mut passed = 0;
    loop {
        let overdue = if passed >= PATIENCE {
            can_wait.try_recv().ok()
        } else {
            None
        };
        let (job, urgent) = match overdue {
            Some(job) => (job, false),
            None => select_biased! {
                recv(queue) -> job => match job {
                    Ok(job) => (job, true),
                    Err(_) => return,
                },
                recv(can_wait) -> job => match job {
                    Ok(job) => (job, false),
                    Err(_) => return,
                },
            },
        };
        passed = if urgent {
            (passed + 1).min(PATIENCE)
        } else {
            passed.saturating_sub(1)
        };
        // A panic is a bug in a codec; jobs see to their own channel (see `packer`, `unpacker`), here the thread and
        // the other channels survive it with fresh scratch memory.
        if catch_unwind(AssertUnwindSafe(|| job(&mut ws))).is_err() {
            ws = Workspace::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn what_can_wait_waits_for_a_bounded_number_of_jobs() {
        let pool = WorkerPool::new(1);
        let (begin, began) = mpsc::channel::<()>();
        let (done, order) = mpsc::channel();
        // Holds the worker until all are queued.
        pool.spawn(move |_| began.recv().unwrap());
        for index in 0..2 {
            let done = done.clone();
            pool.spawn_later(move |_| done.send(-index - 1).unwrap());
        }
        for index in 0..20 {
            let done = done.clone();
            pool.spawn(move |_| done.send(index).unwrap());
        }
        begin.send(()).unwrap();
        let order: Vec<i32> = order.iter().take(22).collect();
        assert_eq!(order[..10], [0, 1, 2, 3, 4, 5, 6, -1, 7, -2]);
    }

    #[test]
    fn only_so_many_can_wait() {
        let pool = WorkerPool::new(1);
        let (begin, began) = mpsc::channel::<()>();
        let (running, runs) = mpsc::channel();
        let (done, order) = mpsc::channel();
        pool.spawn(move |_| {
            running.send(()).unwrap();
            began.recv().unwrap();
        });
        runs.recv().unwrap();
        for index in 0..2 * WAITING_MAX {
            let done = done.clone();
            pool.spawn_later(move |_| done.send(index).unwrap());
        }
        drop(done);
        begin.send(()).unwrap();
        assert!(order.iter().eq(0..WAITING_MAX), "those that came first");
    }
}
