//! `narrows study --published`

use std::{fs, path::PathBuf, time::Instant};

use anyhow::Context;
use narrows_lab::{
    album,
    data::Data,
    pages::PagesError,
    published::{self, committed, measure, standin},
    result::{self, Origin, Run},
};

use super::{Sweep, later, sweep};
use crate::{
    commands::lab,
    exit::{Damaged, Usage},
    output,
};

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "With --published")]
pub struct Tables {
    /// A file for one of the page tables' data that cannot be made here: isabel-pressure=FILE
    #[arg(long = "data", value_name = "NAME=FILE", requires = "published", value_parser = named)]
    pub given: Vec<(String, String)>,
    /// Where rows of the tables stand that need QEMU, Ceph or a second host
    #[arg(long, value_name = "DIR", default_value = "docs/results")]
    pub rows: PathBuf,
    /// Also a page of Markdown with the conclusions
    #[arg(long, value_name = "FILE", requires = "published")]
    pub markdown: Option<PathBuf>,
}

pub fn run(args: &super::Args, quiet: bool) -> anyhow::Result<()> {
    let began = Instant::now();
    let (results, report) = args.places(published::TOOL)?;
    lab::places([("markdown", args.tables.markdown.as_ref())])?;
    let traced = (!args.traced.is_empty())
        .then(|| traced(args))
        .transpose()?;
    let is_traced = traced.is_some();
    let data = published::data(if args.quick { QUICK_LEN } else { FULL_LEN }, traced);
    let mut run = Run::new(Origin::now(
        published::TOOL,
        &crate::commands::common::command_line(),
        vec![],
    ));
    // Time for pages and chunks too: none where none is left for transfers.
    if args.minutes != Some(0.0) {
        measure_rows(args, &data, &mut run, quiet)?;
    }
    run.rows.extend(committed::rows(&args.tables.rows));
    run.append(&results)?;
    let seeds = vec![SEED, u64::from(is_traced)];
    // Of the quick run's minutes what pages and chunks left.
    let left = QUICK_MINUTES - began.elapsed().as_secs_f64() / 60.0;
    let until = args.minutes.or(args.quick.then_some(left)).map(later);
    let how = Sweep {
        grid: published::grid(args.quick),
        until,
        quiet,
    };
    let (new, left_out) = sweep(args, &results, published::as_study(data), seeds, how)?;
    let runs = result::read(&results)?;
    lab::write(&report, &album::report(&runs), quiet)?;
    if let Some(path) = &args.tables.markdown {
        fs::write(path, published::markdown(&runs))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    print(&runs)?;
    output::print(&format!(
        "{new} transfers measured, {left_out} left out when the time was over."
    ))
}

fn measure_rows(
    args: &super::Args,
    data: &[(String, Vec<u8>)],
    run: &mut Run,
    quiet: bool,
) -> anyhow::Result<()> {
    let bar = output::bar(quiet);
    let mut told = |what: &str| bar.set_message(what.to_owned());
    run.rows.extend(measure::chunks(data, &mut told));
    let effort = measure::Effort {
        pages: if args.quick { 192 } else { 1024 },
        rounds: if args.quick { 1 } else { 3 },
        quick: args.quick,
        given: args.tables.given.clone(),
    };
    let pages = measure::warnke(&effort, &mut told).map_err(|fault| match fault {
        PagesError::Damaged { .. } => anyhow::Error::new(Damaged(fault.to_string())),
        PagesError::Read { .. } | PagesError::Empty(_) => Usage(fault.to_string()).into(),
        fault => fault.into(),
    })?;
    run.rows.extend(pages);
    bar.finish_and_clear();
    Ok(())
}

/// The conclusions, a line each.
pub fn print(runs: &[Run]) -> anyhow::Result<()> {
    for claim in published::conclusions(runs) {
        let theirs = if claim.theirs.is_empty() {
            String::new()
        } else {
            format!("theirs {}; ", claim.theirs)
        };
        output::print(&format!(
            "{}: {}\n   {theirs}here {}: {}",
            claim.of,
            claim.claim,
            claim.ours,
            published::said(claim.verdict)
        ))?;
    }
    Ok(())
}

/// Bytes of the files given as traced data.
fn traced(args: &super::Args) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let excerpt = Data::paths(&args.traced)?.excerpt(FULL_LEN as u64)?;
    std::io::Read::read_to_end(&mut excerpt.open()?, &mut bytes)?;
    Ok(bytes)
}

fn named(text: &str) -> Result<(String, String), String> {
    let names = || standin::WARNKE.map(|set| set.name).join(", ");
    match text.split_once('=') {
        Some((name, path)) if standin::WARNKE.iter().any(|set| set.name == name) => {
            Ok((name.into(), path.into()))
        }
        _ => Err(format!(
            "write it like isabel-pressure=FILE, of {}",
            names()
        )),
    }
}

/// As long as the longest message.
const FULL_LEN: usize = 64 << 20;
const QUICK_LEN: usize = 16 << 20;
/// Five, with the build of the report.
const QUICK_MINUTES: f64 = 4.7;
/// Tells these data from those of other studies.
const SEED: u64 = 4649;
