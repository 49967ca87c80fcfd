//! Runs the policies on recorded costs of real data, in virtual time: what does the adaptive policy lose, and where?
//!
//! `cargo run --release -p narrows-lab --example replay -- record DIR FILE…` measures what every candidate costs on
//! blocks of 256 KiB, in stretches spread over each file (STRETCHES of STRETCH_MIB, 6 of 4 if unset), a second a block.
//! Then `… replay run [--mbit 10,100,1000,2500] FILE…` takes the recordings, and prints for each link the time of the
//! adaptive policy, from six beginnings, as a share of that of the best fixed candidate from the same: both start cold,
//! on two processors that both ends share. With `TRACE` set it prints every decision, with `REGRET` whose choices cost
//! how much; with `SHARED` the policy is told that both ends share the processors, as two processes of one machine tell;
//! `WORKERS` of them where not two, `MEGABYTES` of raw data where not as many as `bench/wire/run.py` sends. `BUCKET` kilobytes go
//! through a token bucket at once, `FLIGHT` are on the way before anything is seen to wait, `KERNEL` are taken by the kernel;
//! `RUNS_BEFORE` of them tell the next what the link carried, `TUNE=name=value,…` sets constants
//! and rules of the policy.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    sync::Arc,
};

use narrows::default_registry;
use narrows_core::{Candidate, Codec, Policy, Workspace, policy::AUDITION_LEN};
use narrows_io::meter::thread_cpu_ns;
use narrows_policy::{
    Adaptive, Config, Fixed, Offer, default_offers,
    prior::{Fit, PriorCost, PriorKind, prior_of, row_of},
    probe::ChunkProbe,
    sim::{
        engine::{Run, Trip},
        recording::{AHEAD, BLOCK_LEN, Recording},
        scene::Scene,
    },
    solve::{Times, solve, weighted},
    tuning::{CONSTANTS, RULES, Tuning, with},
};

/// Raw bytes of one run, by link, as `bench/wire/run.py` has them.
const BYTES: [(f64, f64); 5] = [
    (10.0, 8e6),
    (100.0, 24e6),
    (1000.0, 160e6),
    (2500.0, 240e6),
    (10000.0, 2e9),
];

/// Beginnings of which a figure is the mean.
const STARTS: usize = 6;

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("record") => {
            let dir = PathBuf::from(args.next().expect("replay record DIR FILE…"));
            args.try_for_each(|file| record(&dir, Path::new(&file)))
        }
        Some("run") => {
            let mut files: Vec<String> = args.collect();
            let mut links = vec![10.0, 100.0, 1000.0, 2500.0];
            if files.first().is_some_and(|first| first == "--mbit") {
                links = files[1]
                    .split(',')
                    .map(|mbit| mbit.parse().expect("a number"))
                    .collect();
                files.drain(..2);
            }
            tuned(|| run(&links, &files))
        }
        Some("priors") => priors(&args.collect::<Vec<_>>()),
        _ => Err(io::Error::other(
            "replay record DIR FILE… | replay run [--mbit N,…] FILE…",
        )),
    }
}

/// Runs `work` with the constants and rules that `TUNE` sets: `name=value,name=value`, a rule's value 0 or 1.
fn tuned<T>(work: impl FnOnce() -> T) -> T {
    let mut tuning = Tuning::DEFAULT;
    let text = std::env::var("TUNE").unwrap_or_default();
    for pair in text.split(',').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').expect("name=value");
        let value: f64 = value.parse().expect("a number");
        if let Some(rule) = RULES.iter().find(|rule| rule.name == name) {
            (rule.set)(&mut tuning, value != 0.0);
        } else {
            let found = CONSTANTS.iter().find(|constant| constant.name == name);
            (found.expect("a constant or a rule").set)(&mut tuning, value);
        }
    }
    with(Box::leak(Box::new(tuning)), work)
}

fn offers() -> Vec<Offer> {
    let registry = default_registry();
    default_offers(
        |name| registry.by_name(name).map(|codec| codec.id()),
        4 << 20,
    )
}

fn name(offer: &Offer) -> String {
    let Candidate {
        level, history_len, ..
    } = offer.candidate;
    if history_len > 0 {
        format!("{}:{level}h{}", offer.name, history_len >> 10)
    } else {
        format!("{}:{level}", offer.name)
    }
}

fn record(dir: &Path, file: &Path) -> io::Result<()> {
    let (registry, offers) = (default_registry(), offers());
    let bytes = sample(file)?;
    let mut ws = Workspace::default();
    let mut lines = String::new();
    for at in (0..bytes.len()).step_by(BLOCK_LEN) {
        for offer in &offers {
            let codec = registry.by_id(offer.candidate.codec).expect("offered");
            let history = &bytes[at.saturating_sub(offer.candidate.history_len as usize)..at];
            for len in [BLOCK_LEN, AUDITION_LEN] {
                let PriorCost { size, pack, unpack } =
                    cost(&**codec, offer, &bytes[at..at + len], history, &mut ws);
                lines += &format!(
                    "{} {} {len} {size} {pack} {unpack}\n",
                    at / BLOCK_LEN,
                    name(offer)
                );
            }
        }
    }
    let to = dir.join(file.file_name().expect("a file"));
    fs::write(beside(&to, ".costs"), lines)?;
    fs::write(beside(&to, ".bytes"), bytes)
}

/// A recording is two files: the data, and what was measured.
fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(what);
    name.into()
}

fn set(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(default)
}

/// Stretches spread over the file.
fn sample(file: &Path) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(file)?;
    let len = file.metadata()?.len();
    let stretch_len = set("STRETCH_MIB", 4) << 20;
    // Where they overlapped, history would hold what comes.
    let stretches = set("STRETCHES", 6).min(len / stretch_len.max(1)).max(1);
    let mut bytes = Vec::new();
    for stretch in 0..stretches {
        let room = len.saturating_sub(stretch_len);
        let at = if stretches == 1 {
            room / 2
        } else {
            room * stretch / (stretches - 1)
        };
        file.seek(SeekFrom::Start(at & !7))?;
        (&mut file).take(stretch_len).read_to_end(&mut bytes)?;
    }
    bytes.truncate(bytes.len() / BLOCK_LEN * BLOCK_LEN);
    if bytes.is_empty() {
        return Err(io::Error::other(format!(
            "it takes {BLOCK_LEN} bytes at least"
        )));
    }
    Ok(bytes)
}

/// The less of two tries: the first one warms tables.
fn cost(
    codec: &dyn Codec,
    offer: &Offer,
    raw: &[u8],
    history: &[u8],
    ws: &mut Workspace,
) -> PriorCost {
    let history = if codec.info().history { history } else { &[] };
    let mut out = vec![0; raw.len()];
    let mut back = vec![0; raw.len()];
    let (mut pack, mut unpack, mut size) = (f32::INFINITY, f32::INFINITY, 1.0);
    for _ in 0..if offer.candidate.level.0 > 9 { 1 } else { 2 } {
        let began_ns = thread_cpu_ns();
        let packed = codec.pack(
            raw,
            offer.candidate.level,
            history,
            &mut out[..raw.len() - 1],
            ws,
        );
        pack = pack.min((thread_cpu_ns() - began_ns) as f32 / raw.len() as f32);
        if let Some(len) = packed {
            size = len as f32 / raw.len() as f32;
            let began_ns = thread_cpu_ns();
            codec
                .unpack(&out[..len], history, &mut back, ws)
                .expect("what was packed unpacks");
            unpack = unpack.min((thread_cpu_ns() - began_ns) as f32 / raw.len() as f32);
        }
    }
    // The sums and copies around the codec.
    let PriorCost { pack: around, .. } = PriorCost::RAW;
    PriorCost {
        size,
        pack: pack + around,
        unpack: if size < 1.0 { unpack + around } else { around },
    }
}

fn load(path: &Path) -> io::Result<Recording> {
    let mut bytes = fs::read(beside(path, ".bytes"))?;
    let blocks = bytes.len() / BLOCK_LEN;
    let offers = offers();
    let vacant = vec![vec![PriorCost::RAW; offers.len()]; blocks];
    let mut recording = Recording {
        bytes: Vec::new(),
        chunks: vacant.clone(),
        slices: vacant,
    };
    for line in fs::read_to_string(beside(path, ".costs"))?.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [block, candidate, len, numbers @ ..] = &fields[..] else {
            panic!("six fields")
        };
        let [size, pack, unpack] = [0, 1, 2].map(|at| numbers[at].parse().expect("a number"));
        let Some(index) = offers.iter().position(|offer| name(offer) == *candidate) else {
            continue;
        };
        let to = if *len == BLOCK_LEN.to_string() {
            &mut recording.chunks
        } else {
            &mut recording.slices
        };
        to[block.parse::<usize>().expect("a number")][index] = PriorCost { size, pack, unpack };
    }
    recording
        .chunks
        .iter_mut()
        .chain(&mut recording.slices)
        .for_each(|row| row[0] = PriorCost::RAW);
    bytes.extend_from_within(..AHEAD.min(bytes.len()));
    recording.bytes = bytes;
    Ok(recording)
}

/// Prints what each candidate's choices cost beyond what the best fixed candidate would have on the same chunks, at the
/// weights that solve for the whole recording, as a share of the whole.
fn regret(recording: &Recording, offers: &[Offer], link: f64, trips: &[(&Recording, &Trip)]) {
    // Both ends share two processors.
    let times = |cost: &PriorCost| {
        [
            0.5 * (cost.pack + cost.unpack),
            cost.size / link as f32,
            0.0,
        ]
    };
    let rows: Vec<Vec<Times>> = recording
        .chunks
        .iter()
        .map(|costs| costs.iter().map(times).collect())
        .collect();
    let weights = solve(
        &rows
            .iter()
            .map(|row| (1.0, row.as_slice()))
            .collect::<Vec<_>>(),
    );
    let whole = |index: usize| {
        (0..2)
            .map(|at| rows.iter().map(|row| row[index][at]).sum::<f32>())
            .fold(0.0, f32::max)
    };
    let best = (0..offers.len())
        .min_by(|&a, &b| whole(a).total_cmp(&whole(b)))
        .expect("raw is an offer");
    let mut sums: BTreeMap<(String, &str), (f64, u32)> = BTreeMap::new();
    let mut all = 0.0;
    for (recording, trip) in trips {
        let price = |index: usize| {
            let cost = recording.cost(trip.offset, trip.raw_len as usize, index, false);
            f64::from(weighted(times(&cost), weights)) * f64::from(trip.raw_len)
        };
        let (sum, count) = sums
            .entry((name(&offers[trip.index]), trip.why))
            .or_default();
        (*sum, *count) = (*sum + price(trip.index) - price(best), *count + 1);
        all += price(best);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
    println!(
        "  weights {:.3} {:.3}, best {}",
        weights[0],
        weights[1],
        name(&offers[best])
    );
    for ((name, why), (sum, count)) in sums.iter().take(8) {
        println!(
            "  {name:<16} {why:<9} × {count:<5} {:+.2} %",
            100.0 * sum / all
        );
    }
}

/// Logarithms of three costs added up, and of how many.
type Sum = ([f64; 3], f64);

/// Prints what the recordings say the priors should be, as the source of `narrows_policy::prior::measured`: geometric
/// means over the blocks of each kind, with what the priors said before counted as if it had been seen on [`TRUST`]
/// blocks.
fn priors(files: &[String]) -> io::Result<()> {
    const TRUST: f64 = 8.0;
    let offers = offers();
    // Sums of logarithms and count, by table, row and kind.
    let mut sums: BTreeMap<(Fit, String, i16), Vec<Sum>> = BTreeMap::new();
    let mut blocks = [0; PriorKind::ALL.len()];
    let logs = |cost: &PriorCost| {
        [
            1.0 / cost.size.max(0.002),
            1e3 / cost.pack,
            1e3 / cost.unpack,
        ]
        .map(|x| f64::from(x).ln())
    };
    for file in files {
        let recording = load(Path::new(file))?;
        for (block, costs) in recording.chunks.iter().enumerate() {
            let bytes = recording.bytes_at((block * BLOCK_LEN) as u64, BLOCK_LEN);
            let Some(features) = ChunkProbe::default().look(bytes) else {
                continue;
            };
            let (kind, stride) = (features.kind(), features.stride());
            blocks[kind as usize] += 1;
            for (offer, cost) in offers
                .iter()
                .zip(costs)
                .skip(1)
                .filter(|(offer, _)| offer.candidate.history_len == 0)
            {
                let (fit, row) = row_of(&offer.name, stride);
                let cells = sums
                    .entry((fit, row, offer.candidate.level.0))
                    .or_insert_with(|| vec![([0.0; 3], 0.0); PriorKind::ALL.len()]);
                let (sum, count) = &mut cells[kind as usize];
                logs(cost)
                    .iter()
                    .zip(sum)
                    .for_each(|(log, sum)| *sum += log);
                *count += 1.0;
            }
        }
    }
    println!("// Blocks of {:?}: {blocks:?}", PriorKind::ALL);
    let mut table = None;
    for ((fit, row, level), cells) in sums {
        if table != Some(fit) {
            println!(
                "{}pub(super) const {}: &[Row] = &[",
                if table.is_some() { "];\n" } else { "" },
                fit.name()
            );
            table = Some(fit);
        }
        let cells: Vec<String> = PriorKind::ALL
            .iter()
            .zip(cells)
            .map(|(&kind, (sum, count))| {
                let before = logs(&prior_of(fit, &row, level, kind));
                let mean = |at: usize| ((sum[at] + TRUST * before[at]) / (count + TRUST)).exp();
                format!("({:.2}, {:.0}., {:.0}.)", mean(0), mean(1), mean(2))
            })
            .collect();
        println!("    (\"{row}\", {level}, [{}]),", cells.join(", "));
    }
    println!("];");
    Ok(())
}

#[allow(clippy::too_many_lines, reason = "a tool's own table or report")]
fn run(links: &[f64], files: &[String]) -> io::Result<()> {
    let offers = offers();
    let mut all: Vec<f64> = Vec::new();
    for file in files {
        let recording = Arc::new(load(Path::new(file))?);
        for &mbit in links {
            let mut scene = Scene::new(Vec::new(), mbit, set("WORKERS", 2) as u32);
            (scene.shared, scene.recording) = (true, Some(recording.clone()));
            scene.noise = 0.03;
            scene.bucket_bytes = set("BUCKET", 0) as f64 * 1e3;
            scene.flight_bytes = set("FLIGHT", 0) as f64 * 1e3;
            scene.kernel_bytes = set("KERNEL", 256) as f64 * 1e3;
            let bytes = BYTES
                .iter()
                .find(|(rate, _)| *rate == mbit)
                .map_or(160e6, |(_, bytes)| *bytes);
            let bytes = match set("MEGABYTES", 0) {
                0 => bytes,
                megabytes => megabytes as f64 * 1e6,
            };
            let time = |scene: &Scene, policy: &mut dyn Policy| {
                let mut run = Run::new(scene, &offers);
                let mut until = 0.0;
                loop {
                    until += bytes / (mbit / 8000.0) / 20.0;
                    run.until(until, policy);
                    let mut sum = 0;
                    for trip in &run.trips {
                        sum += u64::from(trip.raw_len);
                        if sum as f64 >= bytes && trip.delivered_ns.is_finite() {
                            return (trip.delivered_ns, run.trips);
                        }
                    }
                }
            };
            // What comes first decides what is learnt first: the mean over several beginnings says more than one.
            let starts: Vec<Scene> = (0..STARTS)
                .map(|start| {
                    let first = start * recording.chunks.len() / STARTS;
                    let recording = Some(Arc::new(recording.from_block(first)));
                    Scene {
                        seed: start as u64,
                        recording,
                        ..scene.clone()
                    }
                })
                .collect();
            let config = Config {
                shared_host: std::env::var_os("SHARED").is_some(),
                ..Config::default()
            };
            let runs: Vec<_> = starts
                .iter()
                .map(|scene| {
                    let mut config = config.clone();
                    for _ in 0..set("RUNS_BEFORE", 0) {
                        let mut before = Adaptive::new(offers.clone(), config.clone());
                        let _ = time(scene, &mut before);
                        let seen = before.link_bytes_per_s();
                        config.rate_recalled_bytes_per_s =
                            seen.or(config.rate_recalled_bytes_per_s);
                    }
                    time(scene, &mut Adaptive::new(offers.clone(), config))
                })
                .collect();
            let mine = runs
                .iter()
                .map(|(took, _)| took / STARTS as f64)
                .sum::<f64>();
            let trips: Vec<(&Recording, &Trip)> = starts
                .iter()
                .zip(&runs)
                .flat_map(|(scene, (took, trips))| {
                    let recording = scene.recording.as_deref().expect("set above");
                    trips
                        .iter()
                        .filter(|trip| trip.delivered_ns <= *took)
                        .map(move |trip| (recording, trip))
                })
                .collect();
            let mut fixed: Vec<(f64, &Offer)> = offers
                .iter()
                .filter(|offer| offer.candidate.level.0 < 10 || mbit < 200.0)
                .map(|offer| {
                    let took = starts
                        .iter()
                        .map(|scene| time(scene, &mut Fixed::new(offer.candidate)).0);
                    (took.sum::<f64>() / STARTS as f64, offer)
                })
                .collect();
            fixed.sort_by(|a, b| a.0.total_cmp(&b.0));
            all.push(fixed[0].0 / mine);
            if std::env::var_os("TRACE").is_some() {
                for (recording, trip) in &trips {
                    let cost =
                        recording.cost(trip.offset, trip.raw_len as usize, trip.index, false);
                    println!(
                        "{:9.2} ms to {:9.2} @{:6.2} MB {:>4} KiB {:<16} {:<9} size {:.3} pack {:6.2} ms link believed {:.1} MB/s",
                        trip.decided_ns / 1e6,
                        trip.delivered_ns / 1e6,
                        trip.offset as f64 / 1e6,
                        trip.raw_len >> 10,
                        name(&offers[trip.index]),
                        trip.why,
                        f64::from(trip.packed_len) / f64::from(trip.raw_len),
                        cost.pack * trip.raw_len as f32 / 1e6,
                        trip.link_bytes_per_s as f64 / 1e6,
                    );
                }
            }
            if std::env::var_os("REGRET").is_some() {
                regret(&recording, &offers, mbit / 8000.0, &trips);
            }
            let mut used = vec![(0_u64, 0); offers.len()];
            for (_, trip) in &trips {
                used[trip.index] = (used[trip.index].0 + u64::from(trip.raw_len), trip.index);
            }
            used.sort_by(|a, b| b.cmp(a));
            let sum: u64 = used.iter().map(|(bytes, _)| bytes).sum();
            let used: Vec<_> = used
                .iter()
                .take(5)
                .map(|(bytes, index)| format!("{} {}%", name(&offers[*index]), bytes * 100 / sum))
                .collect();
            println!(
                "{:<24} {mbit:>6} Mbit/s  {:7.1} MB/s  × best fixed {:.3} ({}, {})  used {}",
                Path::new(file)
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy(),
                bytes * 1e3 / mine,
                fixed[0].0 / mine,
                name(fixed[0].1),
                name(fixed[1].1),
                used.join(" ")
            );
        }
    }
    let mean = (all.iter().map(|ratio| ratio.ln()).sum::<f64>() / all.len() as f64).exp();
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let met = all.iter().filter(|ratio| **ratio >= 0.97).count();
    println!(
        "geometric mean {mean:.4}, least {least:.3}, {met} of {} at or above 0.97",
        all.len()
    );
    Ok(())
}
