//! `narrows gpu bandwidth`

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use narrows::{Rate, Size};
use narrows_cuda::bandwidth::{Bench, BenchError, Case, Direction, Row};
use narrows_lab::{sample, synthetic};
use serde_json::json;

use super::Way;
use crate::{
    commands::options::some_seconds,
    exit::{Damaged, Usage},
    output,
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Lengths of copies
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "4,4K,64K,1M,16M",
        value_name = "SIZE,…"
    )]
    pub sizes: Vec<Size>,
    /// Kinds of data: lineal, random, sparse, or sample (text, logs, programs, numbers); '' for none but --data
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "lineal,random,sparse,sample",
        value_name = "KIND,…"
    )]
    pub kinds: Vec<String>,
    /// Copy these bytes besides, over and over (may be given more than once)
    #[arg(long, value_name = "FILE")]
    pub data: Vec<PathBuf>,
    /// Copies of each case that count, at least
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub repeats: u16,
    /// Short copies go on for so many seconds, 200 copies at most
    #[arg(long, default_value = "0.2", value_name = "SECONDS", value_parser = some_seconds)]
    pub seconds: Duration,
    /// Only copies this way
    #[arg(long, value_enum)]
    pub direction: Option<DirectionName>,
    /// Only memory of this kind
    #[arg(long, value_enum)]
    pub memory: Option<MemoryName>,
    /// One JSON line for each case, and one for round trips
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub way: Way,
}

/// Memory of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum MemoryName {
    /// Any memory, copied synchronously
    Pageable,
    /// Memory that CUDA allocated, copied asynchronously
    Pinned,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum DirectionName {
    /// From the program to the device
    To,
    /// From the device to the program
    From,
    /// Within the device
    Within,
}

impl DirectionName {
    fn takes(self, direction: Direction) -> bool {
        direction
            == match self {
                Self::To => Direction::HostToDevice,
                Self::From => Direction::DeviceToHost,
                Self::Within => Direction::DeviceToDevice,
            }
    }
}

/// Bytes of one kind, as many as the longest copy.
struct Data {
    kind: String,
    bytes: Vec<u8>,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let longest = args.sizes.iter().map(|size| size.0).max().unwrap_or(0);
    if longest == 0 || longest > 1 << 32 || args.sizes.iter().any(|size| size.0 == 0) {
        return Err(Usage("sizes are from 1 byte to 4G".into()).into());
    }
    let data = kinds(&args, longest as usize)?;
    args.way.variables()?.apply();
    let bench = Bench::open()?;
    let mut pings = bench.pings(51)?;
    pings.sort_by(f64::total_cmp);
    let ping = pings[pings.len() / 2];
    if args.json {
        output::print(&json!({"schema": "narrows.gpu-ping/1", "median_s": ping}).to_string())?;
    } else {
        output::print(&format!("round trip {:.0} us\n{}", ping * 1e6, head()))?;
    }
    for data in &data {
        for size in &args.sizes {
            measure(&args, &bench, data, size.0 as usize)?;
        }
    }
    Ok(())
}

fn measure(args: &Args, bench: &Bench, data: &Data, len: usize) -> anyhow::Result<()> {
    for direction in Direction::ALL {
        if args.direction.is_some_and(|only| !only.takes(direction)) {
            continue;
        }
        for pinned in [false, true] {
            let memory = if pinned {
                MemoryName::Pinned
            } else {
                MemoryName::Pageable
            };
            let within = direction == Direction::DeviceToDevice;
            if args.memory.is_some_and(|only| only != memory) || (within && pinned) {
                continue;
            }
            let case = Case {
                data: &data.bytes[..len],
                direction,
                pinned,
                repeats: args.repeats.into(),
                lasts: args.seconds,
            };
            let row = bench.measure(case).map_err(|fault| match fault {
                BenchError::Differs => anyhow::Error::new(Damaged(fault.to_string())),
                fault => fault.into(),
            })?;
            output::print(&if args.json {
                line(&data.kind, &case, &row)
            } else {
                text(&data.kind, &case, &row)
            })?;
        }
    }
    Ok(())
}

fn kinds(args: &Args, len: usize) -> anyhow::Result<Vec<Data>> {
    let over_and_over = |part: &[u8]| part.iter().copied().cycle().take(len).collect();
    let mut data = Vec::new();
    for kind in args.kinds.iter().filter(|kind| !kind.is_empty()) {
        let bytes = if kind == "sample" {
            over_and_over(&sample::unpack())
        } else {
            let known: synthetic::Kind = kind.parse().map_err(|fault| {
                Usage(format!(
                    "{fault}; there are lineal, random, sparse and sample"
                ))
            })?;
            let mut bytes = Vec::new();
            synthetic::write(known, len as u64, 1, &mut bytes)?;
            bytes
        };
        data.push(Data {
            kind: kind.clone(),
            bytes,
        });
    }
    for path in &args.data {
        let part =
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        if part.is_empty() {
            return Err(Usage(format!("{} is empty", path.display())).into());
        }
        data.push(Data {
            kind: path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into(),
            bytes: over_and_over(&part),
        });
    }
    Ok(data)
}

fn memory_name(case: &Case<'_>) -> &'static str {
    if case.pinned { "pinned" } else { "pageable" }
}

fn head() -> String {
    format!(
        "{:8} {:>10} {:16} {:9} {:>14} {:>8} {:>10} {:>10}",
        "data", "size", "direction", "memory", "bandwidth", "ratio", "cpu here", "cpu there"
    )
}

fn text(kind: &str, case: &Case<'_>, row: &Row) -> String {
    let len = case.data.len() as f64;
    let copied = len * row.seconds.len() as f64;
    let ratio = match case.direction {
        // Nothing of it is sent.
        Direction::DeviceToDevice => "-".to_owned(),
        _ => format!("{:.2}", copied / row.wire_bytes.max(1) as f64),
    };
    format!(
        "{:8} {:>10} {:16} {:9} {:>14} {:>8} {:>8.2} s {:>8.2} s",
        kind,
        Size(case.data.len() as u64).to_string(),
        case.direction.name(),
        memory_name(case),
        Rate(len / row.median_s()).to_string(),
        ratio,
        row.client_cpu_s,
        row.server_cpu_s,
    )
}

fn line(kind: &str, case: &Case<'_>, row: &Row) -> String {
    json!({
        "schema": "narrows.gpu-bandwidth/1", "data": kind, "bytes": case.data.len(),
        "direction": case.direction.name(), "memory": memory_name(case), "seconds": row.seconds,
        "median_s": row.median_s(), "bytes_per_s": case.data.len() as f64 / row.median_s(),
        "wire_bytes": row.wire_bytes, "client_cpu_s": row.client_cpu_s, "server_cpu_s": row.server_cpu_s,
    })
    .to_string()
}
