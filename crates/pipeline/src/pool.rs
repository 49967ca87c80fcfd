//! The worker threads of a process: all channels, packing and unpacking, share them.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
};

use crossbeam_channel::{Sender, unbounded};
use narrows_core::Workspace;

type Job = Box<dyn FnOnce(&mut Workspace) + Send>;

/// `n` threads, each with a [`Workspace`] of its own. The queue needs no bound: every channel has at most `depth`
/// jobs in it.
#[derive(Debug)]
pub struct WorkerPool {
    jobs: Sender<Job>,
    workers: usize,
}

impl WorkerPool {
    /// Starts `workers` threads, at least one. They end when the pool and every job is gone.
    #[must_use]
    pub fn new(workers: usize) -> Arc<Self> {
        let workers = workers.max(1);
        let (jobs, queue) = unbounded::<Job>();
        for index in 0..workers {
            let queue = queue.clone();
            thread::Builder::new()
                .name(format!("worker-{index}"))
                .spawn(move || {
                    let mut ws = Workspace::default();
                    for job in queue {
                        // A panic is a bug in a codec; jobs see to their own channel (see `packer`, `unpacker`), here
                        // the thread and the other channels survive it with fresh scratch memory.
                        if catch_unwind(AssertUnwindSafe(|| job(&mut ws))).is_err() {
                            ws = Workspace::default();
                        }
                    }
                })
                .expect("the system starts threads");
        }
        Arc::new(Self { jobs, workers })
    }

    /// How many threads.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Queues a job.
    pub fn spawn(&self, job: impl FnOnce(&mut Workspace) + Send + 'static) {
        self.jobs.send(Box::new(job)).expect("workers live as long as the pool");
    }
}
