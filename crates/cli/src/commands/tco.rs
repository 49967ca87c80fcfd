//! `narrows tco`

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets::NOTHING};
use narrows_core::units::Size;
use narrows_lab::{
    result::{self, Row},
    tco::{
        self, Inputs, link,
        pictures::{self, less, link_rows, link_sentence, sentence},
    },
    trial::digits,
};

use super::lab;
use crate::{exit::Usage, output};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without inputs it reckons a published example: zstd on storage servers against drives that compress. To change \
                  any number:\n\n  narrows tco --print-inputs > mine.toml\n  narrows tco --inputs mine.toml --report tco.html"
)]
pub struct Args {
    /// What to reckon: storage servers, or a link
    #[arg(value_enum, default_value_t)]
    pub what: What,
    /// TOML file with every input, its unit, range and source
    #[arg(long, value_name = "FILE")]
    pub inputs: Option<PathBuf>,
    /// Change one input: `usd_per_kwh=0.3`, `link.ratio=2`; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Take ratio and processor time from results of `narrows bench`, as a design of its own
    #[arg(long, value_name = "FILE")]
    pub results: Option<PathBuf>,
    /// Which codec of the results; the one with the best ratio among the fastest if not given
    #[arg(long, value_name = "NAME:LEVEL", requires = "results")]
    pub codec: Option<String>,
    /// Length of chunks of those results
    #[arg(long, value_name = "SIZE", requires = "results")]
    pub chunk: Option<Size>,
    /// Print the inputs, to be changed
    #[arg(long)]
    pub print_inputs: bool,
    /// Make a report with pictures
    #[arg(long, visible_alias = "html", value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// What to reckon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum What {
    /// Storage servers over their years
    #[default]
    Storage,
    /// A month of transfers over a link
    Link,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.print_inputs {
        return output::print(Inputs::deck_text().trim_end());
    }
    lab::places([("report", args.report.as_ref())])?;
    let inputs = inputs(args)?;
    if let Some(path) = &args.report {
        lab::write(
            path,
            &pictures::report(&inputs).map_err(|fault| Usage(fault.to_string()))?,
            args.json,
        )?;
    }
    if args.json {
        let document = pictures::document(&inputs).map_err(|fault| Usage(fault.to_string()))?;
        return output::print(&document.to_string());
    }
    match args.what {
        What::Storage => storage(&inputs),
        What::Link => transfer(&inputs),
    }
}

fn inputs(args: &Args) -> anyhow::Result<Inputs> {
    let mut inputs = match &args.inputs {
        Some(path) => {
            let text = fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            Inputs::parse(&text).map_err(|fault| Usage(format!("{}: {fault}", path.display())))?
        }
        None => Inputs::deck(),
    };
    if let Some(path) = &args.results {
        let row = measured(args, path)?;
        inputs
            .measured(&row)
            .map_err(|fault| Usage(fault.to_string()))?;
    }
    for text in &args.set {
        let parts = text
            .rsplit_once('=')
            .ok_or_else(|| Usage(format!("`{text}`: write --set NAME=VALUE")));
        let (name, value) = parts?;
        let value = value
            .trim()
            .parse()
            .map_err(|_| Usage(format!("`{text}`: `{value}` is not a number")))?;
        inputs
            .set(name.trim(), value)
            .map_err(|fault| Usage(fault.to_string()))?;
    }
    Ok(inputs)
}

/// The row that the flags name, or the best ratio on the front.
fn measured(args: &Args, path: &Path) -> anyhow::Result<Row> {
    let rows = result::read(path)?.into_iter().flat_map(|run| run.rows);
    let wanted = |row: &Row| match &args.codec {
        Some(codec) => row.case.codec.as_ref() == Some(codec),
        None => {
            row.marks.contains("pareto_pack")
                && row
                    .value("pack_mb_s")
                    .is_some_and(|speed| speed >= SPEED_MIN_MB_S)
        }
    };
    let rows = rows.filter(|row| {
        wanted(row)
            && args
                .chunk
                .is_none_or(|chunk| row.case.chunk_bytes == Some(chunk.0))
            && row.value("ratio_4k").is_some()
            && row.value("pack_cpu_s_per_gb").is_some()
    });
    rows.max_by(|a, b| {
        a.value("ratio_4k")
            .unwrap_or(0.0)
            .total_cmp(&b.value("ratio_4k").unwrap_or(0.0))
    })
    .ok_or_else(|| {
        Usage(format!(
            "{} holds no results of `narrows bench` for that",
            path.display()
        ))
        .into()
    })
}

fn storage(inputs: &Inputs) -> anyhow::Result<()> {
    let costs = tco::costs(inputs).map_err(|fault| Usage(fault.to_string()))?;
    let baseline = &costs[inputs.baseline().unwrap_or(0)];
    let mut table = Table::new();
    table.load_style(NOTHING).set_header([
        "",
        "ratio",
        "TB",
        "GB/s",
        "CPU",
        "W",
        "USD/server",
        "USD/TB/month",
        "USD per GB/s",
        "servers",
        "USD in all",
    ]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for cost in &costs {
        table.add_row([
            cost.design.clone(),
            format!("{:.3}", cost.allocated_ratio),
            digits(cost.effective_tb),
            format!("{:.2}", cost.gb_per_s),
            format!("{:.0} %", cost.cpu_load * 100.0),
            digits(cost.watts),
            format!("{:.0}", cost.usd_per_server),
            format!("{:.2}", cost.usd_per_tb_month),
            format!("{:.0}", cost.usd_per_gb_per_s),
            cost.servers.to_string(),
            format!("{:.0}", cost.usd_for_demand),
        ]);
    }
    output::print(&format!("{}\n{table}\n", inputs.title))?;
    for (number, cost) in costs
        .iter()
        .enumerate()
        .filter(|(_, cost)| cost.design != baseline.design)
    {
        output::print(&sentence(cost, &cost.saving(baseline), &baseline.design))?;
        let swings =
            tco::sensitivity::swings(inputs, number).map_err(|fault| Usage(fault.to_string()))?;
        let moving = swings
            .iter()
            .filter(|swing| swing.width(|saving| saving.per_server) > 1e-3)
            .take(6);
        for (place, swing) in moving.enumerate() {
            if place == 0 {
                output::print("What moves its saving on a server most:")?;
            }
            output::print(&format!(
                "  {} from {} to {} {}: {} to {}",
                swing.input,
                swing.low,
                swing.high,
                swing.unit,
                less(swing.at_low.per_server),
                less(swing.at_high.per_server),
            ))?;
        }
    }
    output::print(
        "Many inputs are assumptions; --report or --print-inputs lists each with its source. No energy was measured.",
    )
}

fn transfer(inputs: &Inputs) -> anyhow::Result<()> {
    let month = link::month(inputs).map_err(|fault| Usage(fault.to_string()))?;
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_header(["a month", "raw", "packed"]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for (name, raw, packed) in link_rows(&month) {
        table.add_row([name, &raw, &packed]);
    }
    output::print(&format!("{table}\n\n{}", link_sentence(&month)))
}

/// Slower packing than this holds back a server, whatever its ratio.
const SPEED_MIN_MB_S: f64 = 100.0;
