//! How much faster threads pack together, as a store would ask them to: `bench_threads ROUNDS FILE…`, TSV on stdout.
//!
//! Threads take sixteen pages at a time from one counter, so none is idle while there are some. Each has a packer of its own. One thread and as many as there are processors take turns; figures are medians.

use std::{
    env, fs,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Instant,
};

use narrows_chains::{
    Chain, PAGE, Packer, Profile,
    chain::{self, Scratch},
};

/// Pages taken at once.
const BATCH: usize = 16;
/// Pages of a file, and how often they are packed in one timing.
const PAGES: usize = 1024;
const TIMES: usize = 8;

enum Who {
    Profile(Box<Packer>),
    Chain(Chain, Box<Scratch>),
}

impl Who {
    fn new(name: &str) -> Self {
        match name {
            "fast" => Self::Profile(Box::new(Packer::new(Profile::Fast))),
            "balanced" => Self::Profile(Box::new(Packer::new(Profile::Balanced))),
            _ => Self::Chain(Chain::parse(name).expect("known steps"), Box::default()),
        }
    }

    fn pack(&mut self, page: &[u8; PAGE], out: &mut [u8; PAGE]) -> Option<usize> {
        match self {
            Self::Profile(packer) => packer.pack(page, out),
            Self::Chain(chain, scratch) => chain.pack(page, out, scratch),
        }
    }

    fn unpack(&mut self, packed: &[u8], page: &mut [u8; PAGE]) {
        match self {
            Self::Profile(packer) => packer.unpack(packed, page).expect("it was packed"),
            Self::Chain(_, scratch) => chain::unpack(packed, page, scratch).expect("it was packed"),
        }
    }
}

/// Seconds that `threads` take over `count` pieces, of which `work` does one.
fn time(whos: &mut [Who], count: usize, work: impl Fn(&mut Who, usize) + Sync) -> f64 {
    let next = AtomicUsize::new(0);
    let began = Instant::now();
    thread::scope(|scope| {
        for who in whos {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(BATCH, Ordering::Relaxed);
                    if at >= count {
                        break;
                    }
                    (at..count.min(at + BATCH)).for_each(|n| work(who, n));
                }
            });
        }
    });
    began.elapsed().as_secs_f64()
}

fn main() {
    let rounds: usize = env::args().nth(1).and_then(|n| n.parse().ok()).expect("usage: bench_threads ROUNDS FILE…");
    let processors = thread::available_parallelism().map_or(2, |count| count.get());
    println!("set\twho\tthreads\tpack_mb_s\tunpack_mb_s");
    for path in env::args().skip(2) {
        let bytes = fs::read(&path).expect("a readable file");
        let pages = bytes.as_chunks::<PAGE>().0;
        let pages = &pages[..pages.len().min(PAGES)];
        let count = TIMES * pages.len();
        let mb_s = |mut seconds: Vec<f64>| {
            seconds.sort_by(f64::total_cmp);
            (count * PAGE) as f64 / seconds[seconds.len() / 2] / 1e6
        };
        for name in ["lz4", "zstd", "fast", "balanced"] {
            let mut one = Who::new(name);
            let packed: Vec<Option<Vec<u8>>> = pages
                .iter()
                .map(|page| {
                    let mut out = [0; PAGE];
                    one.pack(page, &mut out).map(|len| out[..len].to_vec())
                })
                .collect();
            let mut seconds = [1, processors].map(|threads| (threads, vec![], vec![]));
            let mut whos: Vec<Who> = (0..processors).map(|_| Who::new(name)).collect();
            for _ in 0..=rounds {
                for (threads, pack, unpack) in &mut seconds {
                    pack.push(time(&mut whos[..*threads], count, |who, n| {
                        std::hint::black_box(who.pack(&pages[n % pages.len()], &mut [0; PAGE]));
                    }));
                    unpack.push(time(&mut whos[..*threads], count, |who, n| {
                        let mut page = [0; PAGE];
                        match &packed[n % pages.len()] {
                            Some(packed) => who.unpack(packed, &mut page),
                            None => page = pages[n % pages.len()],
                        }
                        std::hint::black_box(page);
                    }));
                }
            }
            for (threads, pack, unpack) in seconds {
                // The first round warms up.
                let set = path.rsplit('/').next().expect("a name");
                println!(
                    "{set}\t{name}\t{threads}\t{:.0}\t{:.0}",
                    mb_s(pack[1..].to_vec()),
                    mb_s(unpack[1..].to_vec())
                );
            }
        }
    }
}
