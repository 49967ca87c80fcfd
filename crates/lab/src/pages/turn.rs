//! One contestant on one set: its pages in equal parts among threads, each of which packs as if it were alone.

use std::{
    hint::black_box,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use narrows_chains::PAGE;

use super::{Contestant, Measured, Page, PagesError, SLOW_NS, Set};

/// One contestant on one set.
pub(super) struct Turn {
    name: String,
    limit: usize,
    workers: Vec<Worker>,
    pack: Vec<Duration>,
    unpack: Vec<Duration>,
}

/// One thread's part.
struct Worker {
    who: Contestant,
    /// Each of its pages packed, or `None` where it is stored as it is.
    packed: Vec<Option<Vec<u8>>>,
}

impl Turn {
    pub(super) fn new(who: &Contestant, limit: usize, threads: usize) -> Self {
        let workers = (0..threads).map(|_| Worker { who: who.anew(limit), packed: vec![] }).collect();
        Self { name: who.name().into(), limit, workers, pack: vec![], unpack: vec![] }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Packs every page once, and compares what comes back.
    pub(super) fn pack_all(&mut self, set: &Set) -> Result<(), PagesError> {
        let (mut out, mut back) = ([0; PAGE], [0; PAGE]);
        let mut n = 0;
        let parts = parts(set, self.workers.len());
        for (worker, pages) in self.workers.iter_mut().zip(parts) {
            for page in pages {
                let packed = worker.who.pack(page, &mut out, self.limit).map(|len| out[..len].to_vec());
                if let Some(packed) = &packed
                    && !(worker.who.unpack(packed, &mut back) && back == *page)
                {
                    return Err(PagesError::Damaged { who: self.name.clone(), set: set.name.clone(), page: n });
                }
                worker.packed.push(packed);
                n += 1;
            }
        }
        Ok(())
    }

    pub(super) fn time(&mut self, set: &Set) {
        let slow = Duration::from_nanos(SLOW_NS) * set.pages.len() as u32 / self.workers.len() as u32;
        if self.pack.first().is_some_and(|taken| *taken > slow) {
            return;
        }
        let limit = self.limit;
        let pack = time_all(set, &mut self.workers, |worker, pages| {
            let mut out = [0; PAGE];
            for page in pages {
                black_box(worker.who.pack(page, &mut out, limit));
            }
        });
        self.pack.push(pack);
        let unpack = time_all(set, &mut self.workers, |worker, pages| {
            let mut out = [0; PAGE];
            for (page, packed) in pages.iter().zip(&worker.packed) {
                match packed {
                    Some(packed) => assert!(worker.who.unpack(packed, &mut out), "it did before"),
                    None => out.copy_from_slice(page),
                }
                black_box(&out);
            }
        });
        self.unpack.push(unpack);
    }

    pub(super) fn measured(mut self, set: &Set) -> Measured {
        let raw_bytes = (set.pages.len() * PAGE) as f64;
        let packed = self.workers.iter().flat_map(|worker| &worker.packed);
        let stored: usize = packed.map(|packed| packed.as_ref().map_or(PAGE, Vec::len)).sum();
        let median = |times: &mut Vec<Duration>| {
            times.sort_unstable();
            raw_bytes / 1e6 / times[times.len() / 2].as_secs_f64().max(1e-9)
        };
        let (pack, unpack) = (median(&mut self.pack), median(&mut self.unpack));
        Measured::new(&self.name, raw_bytes, stored as f64, pack, unpack)
    }
}

/// From when the first thread begins to when the last has done its part.
fn time_all(set: &Set, workers: &mut [Worker], run: impl Fn(&mut Worker, &[Page]) + Sync) -> Duration {
    let timed = |worker: &mut Worker, pages: &[Page]| {
        let start = Instant::now();
        run(worker, pages);
        (start, Instant::now())
    };
    let spans: Vec<(Instant, Instant)> = match workers {
        [worker] => vec![timed(worker, &set.pages)],
        workers => {
            let together = Barrier::new(workers.len());
            let parts = parts(set, workers.len());
            thread::scope(|scope| {
                let part = |(worker, pages)| {
                    let (together, timed) = (&together, &timed);
                    scope.spawn(move || {
                        together.wait();
                        timed(worker, pages)
                    })
                };
                let running: Vec<_> = workers.iter_mut().zip(parts).map(part).collect();
                running.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
            })
        }
    };
    let first = spans.iter().map(|span| span.0).min().expect("a worker");
    let last = spans.iter().map(|span| span.1).max().expect("a worker");
    last - first
}

/// The set's pages in `count` parts, as equal as can be.
fn parts(set: &Set, count: usize) -> impl Iterator<Item = &[Page]> {
    let len = set.pages.len();
    (0..count).map(move |n| &set.pages[n * len / count..(n + 1) * len / count])
}
