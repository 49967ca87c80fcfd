//! `narrows try`

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets::NOTHING};
use narrows_core::units::Size;
use narrows_lab::{
    data::Data,
    race::{Contestant, DataPath, LinkSpec, Racer},
    trial::{self, Document, LinkResult, Plan, TrialError, digits, rounds},
};

use super::{
    common, lab,
    options::{milliseconds, size, some_seconds, threads},
};
use crate::{
    exit::{Damaged, Usage},
    output,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Runs both ends on this machine, over a link it emulates; needs no root and no set-up. A link takes up to a
minute and a half with the defaults."
)]
pub struct Args {
    /// Files and directories to send, as one stream; a bundled sample of real data if none are given
    pub paths: Vec<PathBuf>,
    /// Links to race over: rates, or `none` for no limit
    #[arg(
        long,
        value_name = "RATE,…",
        default_value = "100mbit",
        value_delimiter = ','
    )]
    pub link: Vec<LinkSpec>,
    /// Delay each way, in milliseconds: half a round trip
    #[arg(long, default_value = "0", value_parser = milliseconds, value_name = "MS")]
    pub delay_ms: Duration,
    /// Who races: none (raw), adaptive, naive:CODEC (all packed, then all sent), or a codec for all chunks (`zstd:3`); a
    /// choice of them if not given
    #[arg(long, value_name = "POLICY,…", value_delimiter = ',')]
    pub race: Vec<Contestant>,
    /// Rounds; results are medians
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Seconds that sending raw may take on a link: a slow link gets an excerpt of the data, spread evenly
    #[arg(long, default_value = "3", value_parser = some_seconds)]
    pub seconds: Duration,
    /// Most bytes a link gets
    #[arg(long, default_value = "256M", value_parser = size)]
    pub size: Size,
    /// Threads of each end; 0 means one for each processor
    #[arg(short = 'T', long, default_value_t = 0, value_parser = threads)]
    pub threads: usize,
    /// Add the results to this file, as lines of `narrows.result/1`
    #[arg(long, value_name = "FILE")]
    pub results: Option<PathBuf>,
    /// Where the report goes
    #[arg(long, value_name = "FILE", default_value = "narrows-try.html")]
    pub report: PathBuf,
    /// Make no report
    #[arg(long, conflicts_with = "report")]
    pub no_report: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: Args, quiet: bool) -> anyhow::Result<()> {
    for who in &args.race {
        if let Some(codec) = &who.codec {
            narrows::candidate(&narrows::default_registry(), codec, 0)
                .map_err(|fault| Usage(fault.to_string()))?;
        }
    }
    let report = if args.no_report {
        None
    } else {
        Some(&args.report)
    };
    lab::places([("results", args.results.as_ref()), ("report", report)])?;
    let data = if args.paths.is_empty() {
        Data::sample()
    } else {
        Data::paths(&args.paths)?
    };
    let racer = Racer {
        program: std::env::current_exe().context("cannot find this program itself")?,
        threads: args.threads,
        packing: Vec::new(),
        path: DataPath::Stream,
    };
    let plan = Plan {
        links: args
            .link
            .iter()
            .map(|link| LinkSpec {
                delay: args.delay_ms,
                ..*link
            })
            .collect(),
        contestants: args.race.clone(),
        repeat: args.repeat,
        raw_s: args.seconds.as_secs_f64(),
        len_max: args.size.0,
        command: common::command_line(),
    };
    lab::warn_of_load();
    let bar = output::bar(quiet);
    let mut progress = |now: trial::Progress| {
        bar.set_length(now.total as u64);
        bar.set_position(now.done as u64);
        bar.set_message(format!("{}: {}", now.link, now.who));
    };
    let document =
        trial::run(&racer, &data, &plan, &mut progress).map_err(|fault| match fault {
            TrialError::Damaged { .. } => anyhow::Error::new(Damaged(fault.to_string())),
            TrialError::Data(fault) => fault.into(),
        })?;
    bar.finish_and_clear();
    // Printed first: a disk that has filled up meanwhile does not take it all. Nor does a closed pipe take the files.
    let printed = if args.json {
        output::print(&serde_json::to_string(&document)?)
    } else {
        print(&document)
    };
    if let Some(path) = &args.results {
        trial::results(&document).append(path)?;
    }
    if let Some(path) = report {
        lab::write(path, &trial::report(&document), quiet)?;
    }
    printed?;
    failures(&document)
}

fn print(document: &Document) -> anyhow::Result<()> {
    for link in &document.links {
        output::print(&format!(
            "{}, {}{}, {}",
            link.link,
            Size(link.sent_bytes),
            match link.times {
                1 if link.sent_bytes < document.data.bytes =>
                    format!(" of {}", Size(document.data.bytes)),
                1 => String::new(),
                times => format!(" (the data {times} times over)"),
            },
            rounds(document.repeat),
        ))?;
        output::print(&table(link).to_string())?;
        output::print(&format!("{}\n", link.sentence()))?;
    }
    output::print(&format!(
        "Both ends shared this machine's {} processors. Every transfer arrived as it was sent (XXH3-64).",
        document.machine.cores
    ))
}

fn table(link: &LinkResult) -> Table {
    let mut table = Table::new();
    let heads = [
        "policy",
        "Mbit/s",
        "× raw",
        "",
        "wire MB",
        "ratio",
        "CPU s send",
        "CPU s recv",
    ];
    table.load_style(NOTHING).set_header(heads);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for policy in &link.policies {
        if !policy.arrived() {
            table.add_row([policy.name.as_str(), "failed"]);
            continue;
        }
        let lost = link
            .verdict
            .as_ref()
            .map_or(0.0, |verdict| (1.0 - verdict.against_best_other) * 100.0);
        table.add_row([
            policy.name.clone(),
            digits(policy.effective_mbit_s),
            policy
                .times_raw
                .map_or_else(String::new, |times| format!("{times:.2}")),
            match policy.best {
                true => "best".into(),
                false if policy.name == "adaptive" => format!("-{lost:.1} %"),
                false => String::new(),
            },
            digits(policy.wire_bytes as f64 / 1e6),
            format!("{:.2}", policy.ratio),
            format!("{:.2}", policy.send_cpu_s),
            format!("{:.2}", policy.recv_cpu_s),
        ]);
    }
    table
}

fn failures(document: &Document) -> anyhow::Result<()> {
    let policies = document
        .links
        .iter()
        .flat_map(|link| link.policies.iter().map(move |policy| (link, policy)));
    let faults: Vec<_> = policies
        .filter_map(|(link, policy)| {
            Some(format!(
                "{} over {}: {}",
                policy.name,
                link.link,
                policy.fault.as_ref()?
            ))
        })
        .collect();
    if faults.is_empty() {
        Ok(())
    } else {
        Err(anyhow::anyhow!(
            "some transfers failed: {}",
            faults.join("; ")
        ))
    }
}
