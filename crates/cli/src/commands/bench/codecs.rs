//! `narrows bench codecs`

use std::{io, path::PathBuf, thread, time::Duration};

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets::NOTHING};
use narrows_core::units::Size;
use narrows_lab::{
    bench::{self, Bencher, Plan, worker},
    data::Data,
    result::{Origin, Row, Run},
    trial::digits,
};

use super::super::{
    common,
    lab::{self, Out},
    options::{chunk_len, size, some_seconds},
};
use crate::{exit::Usage, output};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files and directories, as one stream; a bundled sample of real data if none are given
    pub paths: Vec<PathBuf>,
    /// Codecs: `zstd:3`, a range of levels `zstd:1..9`, or all; a choice of them if not given
    #[arg(long, value_name = "CODEC,…", value_delimiter = ',')]
    pub codec: Vec<String>,
    /// Lengths of chunks
    #[arg(
        long,
        value_name = "SIZE,…",
        value_delimiter = ',',
        default_value = "64K,1M",
        value_parser = chunk_len
    )]
    pub chunk: Vec<Size>,
    /// Numbers of threads; 1 and one for each processor if not given
    #[arg(short = 'T', long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub threads: Vec<u64>,
    /// Bytes before a chunk that it may refer to
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub history: Size,
    /// Seconds that packing is repeated, and unpacking again; the fastest pass counts
    #[arg(long, default_value = "0.2", value_parser = some_seconds)]
    pub seconds: Duration,
    /// Most bytes to measure on, spread evenly over all
    #[arg(long, default_value = "16M", value_parser = size)]
    pub size: Size,
    /// Measure each file for itself
    #[arg(long)]
    pub each: bool,
    /// Be the process that measures one case of standard input
    #[arg(long, hide = true, value_name = "JSON")]
    pub worker: Option<String>,
    #[command(flatten)]
    pub out: Out,
}

pub fn run(args: &Args, quiet: bool) -> anyhow::Result<()> {
    if let Some(job) = &args.worker {
        let job = serde_json::from_str(job).map_err(|fault| Usage(format!("--worker: {fault}")))?;
        return output::print(&serde_json::to_string(&worker::run(
            &job,
            io::stdin().lock(),
        )?)?);
    }
    lab::places_of(&args.out)?;
    lab::warn_of_load();
    let plan = plan(args)?;
    let data = match (args.paths.is_empty(), args.each) {
        (true, _) => vec![Data::sample()],
        (false, false) => vec![Data::paths(&args.paths)?],
        (false, true) => Data::paths(&args.paths)?.each(),
    };
    let bencher = Bencher {
        program: std::env::current_exe().context("cannot find this program itself")?,
    };
    let mut run = Run::new(Origin::now("bench", &common::command_line(), Vec::new()));
    let bar = output::bar(quiet);
    for (number, data) in data.iter().enumerate() {
        let progress = |now: bench::Progress| {
            bar.set_length((now.total * (number + 1).max(args.paths.len())) as u64);
            bar.set_position((now.total * number + now.done) as u64);
            let codec = now.case.codec.as_deref().unwrap_or_default();
            bar.set_message(format!(
                "{codec}, {}",
                Size(now.case.chunk_bytes.unwrap_or(0))
            ));
        };
        run.rows
            .extend(bench::run(&bencher, data, &plan, progress)?);
    }
    bar.finish_and_clear();
    if !lab::deliver(&args.out, &run, quiet)? {
        print(&run)?;
    }
    let faults: Vec<_> = run
        .rows
        .iter()
        .filter_map(|row| {
            Some(format!(
                "{}: {}",
                row.case.codec.as_deref()?,
                row.fault.as_ref()?
            ))
        })
        .collect();
    if faults.is_empty() {
        Ok(())
    } else {
        Err(anyhow::anyhow!("some cases failed: {}", faults.join("; ")))
    }
}

fn plan(args: &Args) -> anyhow::Result<Plan> {
    let registry = narrows::default_registry();
    let named: Vec<&str> = args.codec.iter().map(String::as_str).collect();
    let named = if named.is_empty() {
        bench::CODECS_DEFAULT.to_vec()
    } else {
        named
    };
    let mut codecs = Vec::new();
    for text in named {
        codecs.extend(bench::settings(&registry, text).map_err(Usage)?);
    }
    let mut threads = args.threads.clone();
    if threads.is_empty() {
        threads = vec![
            1,
            thread::available_parallelism().map_or(1, |count| count.get() as u64),
        ];
        threads.dedup();
    }
    Ok(Plan {
        codecs,
        chunks: args.chunk.iter().map(|size| size.0).collect(),
        threads,
        seconds: args.seconds.as_secs_f64(),
        len_max: args.size.0,
        history_bytes: args.history.0,
    })
}

fn print(run: &Run) -> anyhow::Result<()> {
    let mut rows = run.rows.iter().peekable();
    while let Some(first) = rows.peek() {
        let key = |row: &Row| (row.case.data.clone(), row.case.threads);
        let group = key(first);
        let (data, threads) = (group.0.clone().unwrap_or_default(), group.1.unwrap_or(1));
        let bytes = Size(first.case.data_bytes.unwrap_or(0));
        let mut table = Table::new();
        table.load_style(NOTHING);
        table.set_header([
            "codec",
            "chunk",
            "ratio",
            "of 4 KiB",
            "pack MB/s",
            "unpack MB/s",
            "CPU s/GB",
            "unpack",
            "MiB",
            "",
        ]);
        for column in table.column_iter_mut().skip(1).take(8) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        while let Some(row) = rows.next_if(|row| key(row) == group) {
            table.add_row(cells(row));
        }
        output::print(&format!(
            "{data}, {bytes}, {threads} thread{}",
            if threads == 1 { "" } else { "s" }
        ))?;
        output::print(&format!("{table}\n"))?;
    }
    output::print(
        "* on the front of ratio and packing speed, + of ratio and unpacking speed. All came back as they were.",
    )
}

fn cells(row: &Row) -> Vec<String> {
    let number = |name: &str, of: fn(f64) -> String| row.value(name).map_or_else(|| "-".into(), of);
    let ratio = |ratio: f64| format!("{ratio:.3}");
    let mark = |name: &str, sign| if row.marks.contains(name) { sign } else { "" };
    vec![
        row.case.codec.clone().unwrap_or_default(),
        Size(row.case.chunk_bytes.unwrap_or(0)).to_string(),
        number("ratio", ratio),
        number("ratio_4k", ratio),
        number("pack_mb_s", digits),
        number("unpack_mb_s", digits),
        number("pack_cpu_s_per_gb", digits),
        number("unpack_cpu_s_per_gb", digits),
        number("memory_bytes", |bytes| digits(bytes / f64::from(1 << 20))),
        if row.fault.is_some() {
            "failed".into()
        } else {
            format!("{}{}", mark("pareto_pack", "*"), mark("pareto_unpack", "+"))
        },
    ]
}
