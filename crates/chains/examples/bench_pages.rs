//! Ratio and speed of every codec and profile on the pages of some files: `bench_pages [--rounds N] [--pages N] [--no-slow] SET…`
//!
//! A set is a file, or a name of [`simulated::named`]. Of each set up to N pages in 16
//! contiguous runs; pages of one repeated word are left out, as zram stores them otherwise. `r` is raw bytes by stored
//! ones, a page above 3264 bytes being stored as it is; `ru` the same with each page counted once. MB/s are the
//! median of the rounds, in each of which all take turns, one thread, packing into one buffer; pages stored as they are count
//! as copied when unpacked.

use std::{collections::HashSet, env, fs, hint::black_box, time::Instant};

use narrows_chains::{PAGE, Packer, Profile, simulated, zbewalgo::Zbewalgo};
use narrows_codecs::{deflate::DEFLATE, lz4::Lz4, lzo1x::Lzo1x, nx842::Nx842, zstd::Zstd};
use narrows_core::{Codec, Level, Workspace};

type Page = [u8; PAGE];

const LIMIT: usize = 3264;

enum Way {
    Codec(Box<dyn Codec>, Level, Workspace),
    Zbewalgo(Box<Zbewalgo>),
    Chains(Box<Packer>),
}

struct Contestant {
    name: &'static str,
    way: Way,
    packed: Vec<Option<Vec<u8>>>,
    pack_ns: Vec<u64>,
    unpack_ns: Vec<u64>,
}

impl Contestant {
    fn pack(&mut self, page: &Page, out: &mut Page) -> Option<usize> {
        match &mut self.way {
            Way::Codec(codec, level, ws) => codec.pack(page, *level, &[], &mut out[..LIMIT], ws),
            Way::Zbewalgo(zbewalgo) => zbewalgo.pack(page, out),
            Way::Chains(packer) => packer.pack(page, out),
        }
    }

    fn unpack(&mut self, n: usize, out: &mut Page) -> bool {
        let Some(packed) = &self.packed[n] else { return false };
        match &mut self.way {
            Way::Codec(codec, _, ws) => codec.unpack(packed, &[], out, ws).expect("what was packed unpacks"),
            Way::Zbewalgo(zbewalgo) => zbewalgo.unpack(packed, out).expect("what was packed unpacks"),
            Way::Chains(packer) => packer.unpack(packed, out).expect("what was packed unpacks"),
        }
        true
    }
}

fn contestants(slow: bool) -> Vec<Contestant> {
    let codec = |codec: Box<dyn Codec>, level| Way::Codec(codec, Level(level), Workspace::default());
    let mut all = vec![
        ("lz4", codec(Box::new(Lz4), 0)),
        ("lzo1x", codec(Box::new(Lzo1x), 0)),
        ("zstd-1", codec(Box::new(Zstd), 1)),
        ("zstd-3", codec(Box::new(Zstd), 3)),
        ("deflate-6", codec(Box::new(DEFLATE), 6)),
    ];
    if slow {
        all.push(("842", codec(Box::new(Nx842), 0)));
        all.push(("zbewalgo", Way::Zbewalgo(Box::default())));
    }
    for (name, profile) in [("fast", Profile::Fast), ("balanced", Profile::Balanced), ("ratio", Profile::Ratio)] {
        all.push((name, Way::Chains(Box::new(Packer::new(profile)))));
    }
    let contestant = |(name, way)| Contestant { name, way, packed: vec![], pack_ns: vec![], unpack_ns: vec![] };
    all.into_iter().map(contestant).collect()
}

fn load(set: &str) -> Vec<u8> {
    simulated::named(set).unwrap_or_else(|| fs::read(set).expect("a readable file"))
}

/// Up to `most` pages in 16 contiguous runs, none of one repeated word.
fn pages(bytes: &[u8], most: usize) -> Vec<Page> {
    const RUNS: usize = 16;
    let all: Vec<&Page> = bytes.as_chunks::<PAGE>().0.iter().filter(|page| page[..PAGE - 8] != page[8..]).collect();
    if all.len() <= most {
        return all.into_iter().copied().collect();
    }
    let apart = (all.len() - most / RUNS) / (RUNS - 1);
    (0..RUNS).flat_map(|run| all[run * apart..][..most / RUNS].iter().map(|page| **page)).collect()
}

fn main() {
    let (mut rounds, mut most, mut slow, mut sets) = (5, 1024, true, vec![]);
    let mut args = env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|n| n.parse().ok()).expect("a number");
        match arg.as_str() {
            "--rounds" => rounds = number(),
            "--pages" => most = number(),
            "--no-slow" => slow = false,
            _ => sets.push(arg),
        }
    }
    // Logarithms of ratios by contestant, and of the best profile's to the best peer's.
    let mut sums: Vec<f64> = vec![];
    let mut gains = 0.0;
    for set in &sets {
        let name = set.rsplit('/').next().expect("a name");
        let pages = pages(&load(set), most);
        if pages.is_empty() {
            println!("{name}: nothing but pages of one word");
            continue;
        }
        let mut all = contestants(slow);
        for contestant in &mut all {
            contestant.packed = vec![None; pages.len()];
        }
        for round in 0..=rounds {
            for contestant in &mut all {
                // Dear ones take their turn once.
                let dear = matches!(contestant.name, "zbewalgo" | "842");
                if dear && round > 1 {
                    continue;
                }
                let mut out = [0; PAGE];
                if round == 0 {
                    for (n, page) in pages.iter().enumerate() {
                        let len = contestant.pack(page, &mut out).filter(|len| *len <= LIMIT);
                        contestant.packed[n] = len.map(|len| out[..len].to_vec());
                        if contestant.unpack(n, &mut out) {
                            assert!(out == *page, "{name} by {}: page {n} came back another", contestant.name);
                        }
                    }
                    continue;
                }
                let start = Instant::now();
                for page in &pages {
                    black_box(contestant.pack(page, &mut out));
                }
                contestant.pack_ns.push(start.elapsed().as_nanos() as u64);
                let start = Instant::now();
                for (n, page) in pages.iter().enumerate() {
                    if !contestant.unpack(n, &mut out) {
                        out.copy_from_slice(page);
                    }
                    black_box(&out);
                }
                contestant.unpack_ns.push(start.elapsed().as_nanos() as u64);
            }
        }
        println!("{name}: {} pages", pages.len());
        sums.resize(all.len(), 0.0);
        let mut ratios = vec![];
        for (n, contestant) in all.iter_mut().enumerate() {
            let stored = |packed: &Option<Vec<u8>>| packed.as_ref().map_or(PAGE, Vec::len);
            let total: usize = contestant.packed.iter().map(stored).sum();
            let ratio = (pages.len() * PAGE) as f64 / total as f64;
            let mut seen = HashSet::new();
            let once: Vec<usize> = pages
                .iter()
                .zip(&contestant.packed)
                .filter(|(page, _)| seen.insert(*page))
                .map(|(_, p)| stored(p))
                .collect();
            let ratio_once = (once.len() * PAGE) as f64 / once.iter().sum::<usize>() as f64;
            let median = |ns: &mut Vec<u64>| {
                ns.sort_unstable();
                (pages.len() * PAGE) as f64 * 1000.0 / ns[ns.len() / 2] as f64
            };
            let (pack, unpack) = (median(&mut contestant.pack_ns), median(&mut contestant.unpack_ns));
            println!(
                "  {:10} r {ratio:7.3}  ru {ratio_once:7.3}  pack {pack:7.0}  unpack {unpack:7.0} MB/s",
                contestant.name
            );
            sums[n] += ratio.ln();
            ratios.push((contestant.name, ratio));
        }
        let of = |names: &[&str]| {
            ratios.iter().filter(|(name, _)| names.contains(name)).map(|(_, r)| *r).fold(0.0, f64::max)
        };
        let gain = of(&["ratio"]) / of(&["lz4", "zstd-1", "deflate-6"]);
        gains += gain.ln();
        let best = of(&["lz4", "lzo1x", "zstd-1", "deflate-6", "zbewalgo"]);
        println!(
            "  ratio profile: x{gain:.3} of the best of lz4, zstd-1, deflate-6; {:+.2} % beside that and lzo, zbewalgo",
            100.0 * (of(&["ratio"]) / best - 1.0)
        );
    }
    println!("geometric means over {} sets:", sets.len());
    for (contestant, sum) in contestants(slow).iter().zip(&sums) {
        println!("  {:10} r {:.3}", contestant.name, (sum / sets.len() as f64).exp());
    }
    println!("  ratio profile to the best of lz4, zstd-1, deflate-6: x{:.3}", (gains / sets.len() as f64).exp());
}
