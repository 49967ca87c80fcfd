//! One contestant on one set. Threads take a few pages at a time from one counter, as requests reach a store, so that
//! none waits while there is work.

use std::{
    hint::black_box,
    ops::Range,
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use narrows_chains::PAGE;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::{Contestant, Measured, OneThread, Page, PagesError, SLOW_NS, Set};

/// One contestant on one set.
pub(super) struct Turn {
    name: String,
    limit: usize,
    /// One a thread.
    workers: Vec<Contestant>,
    /// Each page packed, or `None` where it is stored as it is.
    packed: Vec<Option<Vec<u8>>>,
    /// How often each page is packed in a round.
    passes: usize,
    together: Times,
    /// The first thread alone, where there are more.
    alone: Times,
}

/// Pages that a thread takes at once.
const BATCH: usize = 16;
/// A round packs all pages again until it takes about as long, beside which it is nothing that a thread wakes late.
const ROUND: Duration = Duration::from_millis(20);
/// But no more often.
const PASSES_MAX: usize = 64;

impl Turn {
    pub(super) fn new(who: &Contestant, limit: usize, threads: usize) -> Self {
        let workers = (0..threads).map(|_| who.anew(limit)).collect();
        let (together, alone) = Default::default();
        Self {
            name: who.name().into(),
            limit,
            workers,
            packed: vec![],
            passes: 1,
            together,
            alone,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Packs every page once, batches by each worker in turn, and compares what comes back.
    pub(super) fn pack_all(&mut self, set: &Set) -> Result<(), PagesError> {
        let (mut out, mut back) = ([0; PAGE], [0; PAGE]);
        let count = self.workers.len();
        let start = Instant::now();
        for (n, page) in set.pages.iter().enumerate() {
            let worker = &mut self.workers[n / BATCH % count];
            let packed = worker
                .pack(page, &mut out, self.limit)
                .map(|len| out[..len].to_vec());
            if let Some(packed) = &packed
                && !(worker.unpack(packed, &mut back) && back == *page)
            {
                return Err(PagesError::Damaged {
                    who: self.name.clone(),
                    set: set.name.clone(),
                    page: n,
                });
            }
            self.packed.push(packed);
        }
        let passes = ROUND.as_nanos() / start.elapsed().as_nanos().max(1);
        self.passes = usize::try_from(passes)
            .unwrap_or(PASSES_MAX)
            .clamp(1, PASSES_MAX);
        Ok(())
    }

    pub(super) fn time(&mut self, set: &Set) {
        let pages = set.pages.len() * self.passes;
        let slow = Duration::from_nanos(SLOW_NS) * pages as u32 / self.workers.len() as u32;
        if self
            .together
            .pack
            .first()
            .is_some_and(|taken| *taken > slow)
        {
            return;
        }
        let work = &Work {
            pages: &set.pages,
            packed: &self.packed,
            limit: self.limit,
            passes: self.passes,
        };
        self.together.add(work, &mut self.workers);
        if self.workers.len() > 1 {
            self.alone.add(work, &mut self.workers[..1]);
        }
    }

    pub(super) fn measured(self, set: &Set) -> Measured {
        let raw_bytes = (set.pages.len() * PAGE) as f64;
        let timed_bytes = raw_bytes * self.passes as f64;
        let stored: usize = self
            .packed
            .iter()
            .map(|packed| packed.as_ref().map_or(PAGE, Vec::len))
            .sum();
        let one_thread = (self.workers.len() > 1)
            .then(|| self.alone.mb_s(timed_bytes))
            .map(|(pack_mb_s, unpack_mb_s)| OneThread {
                pack_mb_s,
                unpack_mb_s,
            });
        let (pack, unpack) = self.together.mb_s(timed_bytes);
        let refused = self.packed.iter().filter(|packed| packed.is_none()).count();
        Measured {
            one_thread,
            refused_bytes: (refused * PAGE) as f64,
            ..Measured::new(&self.name, raw_bytes, stored as f64, pack, unpack)
        }
    }
}

/// What a round does.
struct Work<'a> {
    pages: &'a [Page],
    packed: &'a [Option<Vec<u8>>],
    limit: usize,
    passes: usize,
}

/// Of each round, how long it took.
#[derive(Default)]
struct Times {
    pack: Vec<Duration>,
    unpack: Vec<Duration>,
}

impl Times {
    /// Packs and unpacks every page once more.
    fn add(&mut self, work: &Work<'_>, workers: &mut [Contestant]) {
        let Work {
            pages,
            packed,
            limit,
            ..
        } = *work;
        self.pack.push(time_all(work, workers, |worker, batch| {
            let mut out = [0; PAGE];
            for page in &pages[batch] {
                black_box(worker.pack(page, &mut out, limit));
            }
        }));
        self.unpack.push(time_all(work, workers, |worker, batch| {
            let mut out = [0; PAGE];
            for (page, packed) in pages[batch.clone()].iter().zip(&packed[batch]) {
                match packed {
                    Some(packed) => assert!(worker.unpack(packed, &mut out), "it did before"),
                    None => out.copy_from_slice(page),
                }
                black_box(&out);
            }
        }));
    }

    /// The medians' megabytes a second, to pack and to unpack.
    fn mb_s(self, raw_bytes: f64) -> (f64, f64) {
        let median = |mut times: Vec<Duration>| {
            times.sort_unstable();
            raw_bytes / 1e6 / times[times.len() / 2].as_secs_f64().max(1e-9)
        };
        (median(self.pack), median(self.unpack))
    }
}

/// Binds the calling thread to one of the processors that the process may use, by its number among the threads. Why:
/// threads that live for a round of 20 ms were found on one processor most of the time, while another was idle. Where
/// it may not, it runs where it runs.
fn bind(number: usize) {
    let Ok(allowed) = sched_getaffinity(None) else {
        return;
    };
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|&at| allowed.is_set(at))
        .collect();
    if let Some(&own) = processors.get(number % processors.len().max(1)) {
        let mut only = CpuSet::new();
        only.set(own);
        let _ = sched_setaffinity(None, &only);
    }
}

/// From when the first thread begins to when the last has done its last batch, which is what `run` does.
fn time_all(
    work: &Work<'_>,
    workers: &mut [Contestant],
    run: impl Fn(&mut Contestant, Range<usize>) + Sync,
) -> Duration {
    let count = work.pages.len();
    let batches = count.div_ceil(BATCH);
    let next = AtomicUsize::new(0);
    let together = Barrier::new(workers.len());
    let timed = |worker: &mut Contestant| {
        together.wait();
        let start = Instant::now();
        loop {
            let batch = next.fetch_add(1, Ordering::Relaxed);
            if batch >= batches * work.passes {
                return (start, Instant::now());
            }
            let at = batch % batches * BATCH;
            run(worker, at..count.min(at + BATCH));
        }
    };
    let spans: Vec<(Instant, Instant)> = match workers {
        // On this thread, lest its start be measured.
        [worker] => vec![timed(worker)],
        workers => thread::scope(|scope| {
            let timed = &timed;
            let run = |(number, worker)| {
                scope.spawn(move || {
                    bind(number);
                    timed(worker)
                })
            };
            let running: Vec<_> = workers.iter_mut().enumerate().map(run).collect();
            running
                .into_iter()
                .map(|thread| thread.join().expect("it does not panic"))
                .collect()
        }),
    };
    let first = spans.iter().map(|span| span.0).min().expect("a worker");
    let last = spans.iter().map(|span| span.1).max().expect("a worker");
    last - first
}
