//! `narrows study`

use std::time::{Duration, Instant};

use anyhow::Context;
use narrows_lab::{
    album,
    bench::Bencher,
    data::Data,
    race::Racer,
    result::{self, Case, Journal, Origin, Run},
    study::{self, Grid, Study, StudyError, pictures},
    synthetic::Kind,
};

use super::lab;
use crate::{args, exit::Damaged, output};

pub fn run(args: &args::Study, quiet: bool) -> anyhow::Result<()> {
    lab::place(Some(&args.report))?;
    let mut data: Vec<_> = [Kind::Lineal, Kind::Random, Kind::Sparse]
        .map(|kind| (kind.name().to_string(), Data::synthetic(kind, SYNTHETIC_LEN, args.seed)))
        .into();
    if args.traced.is_empty() {
        eprintln!("no --traced data: the study is of generated data only");
    } else {
        data.push(("traced".into(), Data::paths(&args.traced)?));
    }
    let earlier = if args.results.exists() { result::read(&args.results)? } else { Vec::new() };
    let run = Run::new(Origin::now("study", &super::common::command_line(), vec![args.seed]));
    let program = std::env::current_exe().context("cannot find this program itself")?;
    let minutes = args.minutes.or(args.quick.then_some(QUICK_MINUTES));
    let bar = output::bar(quiet);
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
        racer: Racer { program: program.clone(), threads: 0, packing: Vec::new() },
        bencher: Bencher { program },
        grid: if args.quick { Grid::quick() } else { Grid::full() },
        data,
        shard: args.shard,
        until: minutes.map(|minutes| Instant::now() + Duration::from_secs_f64(minutes.clamp(0.0, 1e6) * 60.0)),
        journal: Some(Journal::open(&args.results, &run)?),
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
    let runs = result::read(&args.results)?;
    lab::write(&args.report, &album::report(&runs), quiet)?;
    let rows: Vec<_> = runs.iter().filter(|run| run.origin.tool == "study").flat_map(|run| &run.rows).collect();
    for finding in pictures::findings(&rows) {
        output::print(&format!("{} {}\n   {}", if finding.holds { "+" } else { "-" }, finding.paper, finding.ours))?;
    }
    let known = rows.len() - new;
    output::print(&format!(
        "{new} cases measured, {known} known already, {left_out} left out when the time was over. + holds here, - does not."
    ))
}

/// As much as the longest message.
const SYNTHETIC_LEN: u64 = 64 << 20;
/// Three, with the report.
const QUICK_MINUTES: f64 = 2.8;
