//! `narrows study`

pub mod published;

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context;
use narrows_lab::{
    album,
    bench::Bencher,
    data::Data,
    race::{DataPath, Racer},
    result::{self, Case, Journal, Origin, Run},
    study::{
        self, Grid, Study, StudyError,
        pictures::{self, Finding, Verdict},
    },
    synthetic::Kind,
};

use super::lab;
use crate::{
    exit::{Damaged, Usage},
    output,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The whole study has some ten thousand transfers and takes a quarter of an hour. A study that was cut goes on where its \
                  --results file ends. To share it among machines:\n\n  narrows study --shard 0/4 --results part0.jsonl\n  …\n  \
                  narrows report part*.jsonl"
)]
pub struct Args {
    /// Three minutes' worth: ends and middles of the axes
    #[arg(long)]
    pub quick: bool,
    /// Measure copies to the memory of a GPU elsewhere, which the server emulates (`narrows gpu serve --backend host`),
    /// rather than streams
    #[arg(long)]
    pub gpu: bool,
    /// Real data beside the generated kinds, as `traced`: buffers of a training for instance (bench/study/capture.py)
    #[arg(long, value_name = "FILE")]
    pub traced: Vec<PathBuf>,
    /// Only this part of the cells: 0/4 is the first of four
    #[arg(long, value_name = "I/N", default_value = "0/1", value_parser = shard)]
    pub shard: (usize, usize),
    /// Begin no case after this many minutes
    #[arg(long, value_name = "N")]
    pub minutes: Option<f64>,
    /// Seed of generated data
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Where rows go as they are measured; what it holds already is not measured again [default: narrows-study.jsonl;
    /// with --published narrows-published.jsonl; with --gpu narrows-study-gpu.jsonl]
    #[arg(long, value_name = "FILE")]
    pub results: Option<PathBuf>,
    /// Where the report goes [default: as --results, ending in html]
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Every published table of five systems beside ours: transfers, chunks, pages; five minutes with --quick
    #[arg(long)]
    pub published: bool,
    #[command(flatten)]
    pub tables: published::Tables,
}

pub fn run(args: &Args, quiet: bool) -> anyhow::Result<()> {
    if args.published {
        return published::run(args, quiet);
    }
    let (results, report) = args.places("study")?;
    let (data, seeds) = data(args)?;
    let grid = if args.quick {
        Grid::quick()
    } else {
        Grid::full()
    };
    let quick = if args.gpu {
        GPU_QUICK_MINUTES
    } else {
        QUICK_MINUTES
    };
    let minutes = args.minutes.or(args.quick.then_some(quick));
    let until = minutes.map(later);
    let (new, left_out) = sweep(args, &results, data, seeds, Sweep { grid, until, quiet })?;
    let runs = result::read(&results)?;
    lab::write(&report, &album::report(&runs), quiet)?;
    let rows: Vec<_> = runs
        .iter()
        .filter(|run| run.origin.tool == "study")
        .flat_map(|run| &run.rows)
        .collect();
    for finding in pictures::findings(&pictures::of_path(&rows, args.path())) {
        print(&finding)?;
    }
    let known = rows.len() - new;
    output::print(&format!(
        "{new} cases measured, {known} known already, {left_out} left out when the time was over. + holds here, ~ mostly, - does not."
    ))
}

fn later(minutes: f64) -> Instant {
    Instant::now() + Duration::from_secs_f64(minutes.clamp(0.0, 1e6) * 60.0)
}

impl Args {
    /// What carries the messages.
    fn path(&self) -> DataPath {
        if self.gpu {
            DataPath::Gpu
        } else {
            DataPath::Stream
        }
    }

    /// Where results and report go, both known to be writable.
    fn places(&self, name: &str) -> anyhow::Result<(PathBuf, PathBuf)> {
        let path = if self.gpu { "-gpu" } else { "" };
        let place = |given: &Option<PathBuf>, end: &str| {
            given
                .clone()
                .unwrap_or_else(|| format!("narrows-{name}{path}.{end}").into())
        };
        let (results, report) = (place(&self.results, "jsonl"), place(&self.report, "html"));
        lab::places([("results", Some(&results)), ("report", Some(&report))])?;
        Ok((results, report))
    }
}

/// How far a study goes.
struct Sweep {
    grid: Grid,
    until: Option<Instant>,
    quiet: bool,
}

/// Measures transfers into `results`; how many cases were new, and how many there was no time for.
fn sweep(
    args: &Args,
    results: &Path,
    data: Vec<Named>,
    seeds: Vec<u64>,
    how: Sweep,
) -> anyhow::Result<(usize, usize)> {
    let earlier = earlier(results, &seeds)?;
    let run = Run::new(Origin::now("study", &super::common::command_line(), seeds));
    let program = std::env::current_exe().context("cannot find this program itself")?;
    let bar = output::bar(how.quiet);
    let mut told = |done: usize, case: &Case| {
        bar.set_length(done as u64 + 1);
        bar.set_position(done as u64);
        let name = |name: &Option<String>| name.clone().unwrap_or_default();
        bar.set_message(format!(
            "{} {} {} Mbit/s",
            name(&case.codec),
            name(&case.data),
            case.link_mbit_s.unwrap_or(0.0)
        ));
    };
    let mut study = Study {
        racer: Racer {
            program: program.clone(),
            path: args.path(),
            threads: 0,
            packing: Vec::new(),
        },
        bencher: Bencher { program },
        grid: how.grid,
        data,
        shard: args.shard,
        until: how.until,
        journal: Some(Journal::open(results, &run)?),
        told: &mut told,
        known: study::known(&earlier),
        rows: Vec::new(),
        left_out: 0,
    };
    study.run().map_err(|fault| match fault {
        StudyError::Damaged(fault) => anyhow::Error::new(Damaged(fault.to_string())),
        fault => fault.into(),
    })?;
    let (new, left_out) = (study.rows.len(), study.left_out);
    bar.finish_and_clear();
    Ok((new, left_out))
}

/// As much as the longest message.
const SYNTHETIC_LEN: u64 = 64 << 20;
/// Three, with the report.
const QUICK_MINUTES: f64 = 2.8;
/// A case begins with two copies that do not count, and ends with one that comes back.
const GPU_QUICK_MINUTES: f64 = 8.0;
/// So much of traced data tells it from other data.
const TRACED_DIGEST_LEN: u64 = 64 << 20;

fn shard(text: &str) -> Result<(usize, usize), String> {
    let parts = text
        .split_once('/')
        .and_then(|(part, parts)| Some((part.parse().ok()?, parts.parse().ok()?)));
    parts
        .filter(|(part, parts)| part < parts)
        .ok_or_else(|| "write it like 0/4, 1/4, 2/4, 3/4".into())
}

/// What is studied.
type Named = (String, Data);

/// What is studied, and the seeds that tell it from other data.
fn data(args: &Args) -> anyhow::Result<(Vec<Named>, Vec<u64>)> {
    let synthetic = |kind: Kind| {
        let made = Data::synthetic(kind, SYNTHETIC_LEN, args.seed);
        (kind.name().to_string(), made)
    };
    let mut data: Vec<_> = [Kind::Lineal, Kind::Random, Kind::Sparse]
        .map(synthetic)
        .into();
    let mut seeds = vec![args.seed];
    if args.traced.is_empty() {
        crate::log::tell!("no --traced data: the study is of generated data only");
    } else {
        let traced = Data::paths(&args.traced)?;
        // Tells the data from others of that name, in as many bits as JSON carries everywhere.
        let digest = traced.excerpt(TRACED_DIGEST_LEN)?.xxh3;
        seeds.push(u64::from_str_radix(&digest, 16).context("an XXH3 is hexadecimal")? >> 11);
        data.push(("traced".into(), traced));
    }
    Ok((data, seeds))
}

/// What was measured before, of the same data.
fn earlier(results: &Path, seeds: &[u64]) -> anyhow::Result<Vec<Run>> {
    if !results.exists() {
        return Ok(Vec::new());
    }
    let earlier = result::read(results)?;
    let other = |run: &&Run| run.origin.tool == "study" && run.origin.seeds != seeds;
    let Some(other) = earlier.iter().find(other) else {
        return Ok(earlier);
    };
    let (results, command) = (results.display(), &other.origin.command);
    let text = format!(
        "{results} holds a study of other data (`{command}`); name another file with --results"
    );
    Err(Usage(text).into())
}

fn print(finding: &Finding) -> anyhow::Result<()> {
    let sign = match finding.holds {
        Verdict::Holds => '+',
        Verdict::Mostly => '~',
        Verdict::DoesNot => '-',
    };
    output::print(&format!("{sign} {}\n   {}", finding.paper, finding.ours))
}
