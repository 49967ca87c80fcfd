//! `narrows advise`

use std::{path::PathBuf, thread, time::Duration};

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets::NOTHING};
use narrows_core::units::{Rate, Size};
use narrows_lab::{
    advise::{self, Advice, Goal, Outcome, Question, Setting, calibrate::CalibrationError},
    bench,
    data::Data,
    race::{DataPath, LinkSpec, RaceError, Racer},
    result::{Origin, Run},
    tco::Inputs,
    trial::digits,
};

use super::{
    lab::{self, Out},
    options::{milliseconds, some_seconds},
};
use crate::{
    exit::{Damaged, Usage},
    output,
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files and directories to send, as one stream; a bundled sample of real data if none are given
    pub paths: Vec<PathBuf>,
    /// What the link carries, `100mbit`, or none for no limit
    #[arg(long, value_name = "RATE")]
    pub link: LinkSpec,
    /// Milliseconds there and back
    #[arg(long, default_value = "0", value_parser = milliseconds, value_name = "MS")]
    pub rtt: Duration,
    /// Processors of each end; those of this machine if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub cpu: Option<u16>,
    /// What counts
    #[arg(long, value_enum, default_value_t)]
    pub goal: GoalName,
    /// Codecs to weigh besides raw and adaptive; a choice of them if not given
    #[arg(long, value_name = "CODEC,…", value_delimiter = ',')]
    pub codec: Vec<String>,
    /// Run the choice over an emulated link, both ends on this machine, and say how far off the prediction was
    #[arg(long)]
    pub verify: bool,
    /// Run every setting, and say how far the choice is from the best
    #[arg(long, conflicts_with = "verify")]
    pub sweep: bool,
    /// Times that each is run
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    pub repeat: u16,
    /// Seconds that sending raw takes in a verification: a slow link gets an excerpt of the data
    #[arg(long, default_value = "2", value_parser = some_seconds)]
    pub seconds: Duration,
    #[command(flatten)]
    pub out: Out,
}

/// What counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum GoalName {
    /// The shortest transfer
    #[default]
    Time,
    /// Little processor time, nearly as fast
    Cpu,
    /// Egress and processors, at the prices of `narrows tco link`
    Cost,
}

pub fn run(args: &Args, quiet: bool) -> anyhow::Result<()> {
    lab::places_of(&args.out)?;
    lab::warn_of_load();
    let data = if args.paths.is_empty() {
        Data::sample()
    } else {
        Data::paths(&args.paths)?
    };
    let program = std::env::current_exe().context("cannot find this program itself")?;
    let question = question(args, &data)?;
    let (link, len, trying) = (question.link, question.len, question.shared);
    let racer = Racer {
        program,
        threads: args.cpu.unwrap_or(0).into(),
        packing: Vec::new(),
        path: DataPath::Stream,
    };
    let bar = output::bar(quiet);
    let advice = advise::ask(&racer, &data, &question, |what| {
        bar.set_message(format!("measuring {what}"))
    });
    let advice = advice.map_err(fault)?;
    let mut run = Run::new(Origin::now(
        "advise",
        &super::common::command_line(),
        vec![1],
    ));
    run.rows.extend(advice.rows.iter().cloned());
    run.rows.extend(
        advice
            .options
            .iter()
            .enumerate()
            .map(|(place, option)| advise::row(option, &link, len, place == 0)),
    );
    let mut outcomes = Vec::new();
    if trying {
        let options: Vec<&Setting> = advice
            .options
            .iter()
            .take(if args.sweep { usize::MAX } else { 1 })
            .collect();
        let excerpt = data.excerpt(len)?;
        let told = |what: &str| bar.set_message(format!("trying {what}"));
        let (tried, rows) =
            advise::verify(&racer, &link, &excerpt, &options, args.repeat.into(), told)
                .map_err(fault)?;
        outcomes = tried;
        run.rows.extend(rows);
    }
    bar.finish_and_clear();
    for row in &mut run.rows {
        row.case.data.get_or_insert_with(|| data.what.clone());
    }
    if lab::deliver(&args.out, &run, quiet)? {
        return Ok(());
    }
    print(args, &advice, &outcomes, &link, len)
}

/// What the flags ask.
fn question(args: &Args, data: &Data) -> anyhow::Result<Question> {
    let registry = narrows::default_registry();
    let mut codecs = Vec::new();
    for text in &args.codec {
        codecs.extend(bench::settings(&registry, text).map_err(Usage)?);
    }
    let here = thread::available_parallelism().map_or(1, usize::from);
    let trying = args.verify || args.sweep;
    let link = LinkSpec {
        delay: args.rtt / 2,
        ..args.link
    };
    Ok(Question {
        link,
        // Tried here, both ends have this machine's processors between them.
        processors: if trying {
            here
        } else {
            args.cpu.map_or(here, usize::from)
        },
        goal: match args.goal {
            GoalName::Time => Goal::Time,
            GoalName::Cpu => Goal::Cpu,
            GoalName::Cost => Goal::Cost,
        },
        prices: Inputs::deck().link_prices(),
        codecs,
        shared: trying,
        len: if trying {
            advise::len(data, &link, args.seconds, LEN_MAX.0)
        } else {
            data.len()
        },
    })
}

fn fault(fault: CalibrationError) -> anyhow::Error {
    match fault {
        CalibrationError::Race(RaceError::Differs { .. }) => Damaged(fault.to_string()).into(),
        fault => fault.into(),
    }
}

#[allow(clippy::too_many_lines, reason = "prints a table, line by line")]
fn print(
    args: &Args,
    advice: &Advice,
    outcomes: &[Outcome],
    link: &LinkSpec,
    len: u64,
) -> anyhow::Result<()> {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header([
        "setting", "Mbit/s", "s", "wire", "CPU s", "slowest", "tried", "off by",
    ]);
    for column in [1, 2, 3, 4, 6, 7] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for option in &advice.options {
        let tried = outcomes
            .iter()
            .find(|outcome| outcome.setting == option.name);
        let prediction = &option.prediction;
        table.add_row([
            option.name.clone(),
            digits(prediction.effective_mbit_s),
            digits(prediction.seconds),
            Size(prediction.wire_bytes as u64).to_string(),
            digits(prediction.cpu_s),
            prediction.slowest.into(),
            tried.map_or_else(String::new, |outcome| digits(outcome.measured_mbit_s)),
            tried.map_or_else(String::new, |outcome| {
                format!("{:+.1} %", outcome.error * 100.0)
            }),
        ]);
    }
    let here = if outcomes.is_empty() {
        ""
    } else {
        ", both ends on this machine"
    };
    output::print(&format!(
        "{} over {link}{here}; predicted:\n{table}\n\n{}",
        Size(len),
        advice.reason
    ))?;
    let codec = match advice.options[0].name.as_str() {
        "adaptive" => String::new(),
        "none" => " --policy none".into(),
        codec => format!(" --codec {codec}"),
    };
    let threads = args
        .cpu
        .map_or_else(String::new, |threads| format!(" -T {threads}"));
    let paths: Vec<_> = args
        .paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let paths = if paths.is_empty() {
        "PATH…".into()
    } else {
        paths.join(" ")
    };
    output::print(&format!("  narrows send{codec}{threads} {paths} HOST"))?;
    output::print(
        "Data or links that change, or that were calibrated in a hurry, are what adaptive is for: leave the codec out.",
    )?;
    if let [chosen, ..] = outcomes {
        let rate = |mbit: f64| Rate::from_mbit(mbit).to_string();
        output::print(&format!(
            "\nTried: {} carried {}, {} was predicted, off by {:+.1} %.",
            chosen.setting,
            rate(chosen.measured_mbit_s),
            rate(chosen.predicted_mbit_s),
            chosen.error * 100.0,
        ))?;
        let best = outcomes
            .iter()
            .max_by(|a, b| a.measured_mbit_s.total_cmp(&b.measured_mbit_s))
            .unwrap_or(chosen);
        if outcomes.len() > 1 {
            let share = chosen.measured_mbit_s / best.measured_mbit_s;
            output::print(&format!(
                "The best of all was {} with {}: the choice is at {share:.3} of it.",
                best.setting,
                rate(best.measured_mbit_s)
            ))?;
        }
    }
    Ok(())
}

/// Most bytes a trial sends.
const LEN_MAX: Size = Size(256 << 20);
