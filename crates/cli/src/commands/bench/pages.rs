//! `narrows bench pages`

use comfy_table::{CellAlignment, Table, presets::NOTHING};
use narrows::core::units::{Rate, Size};
use narrows_lab::pages::{self, Contestant, Document, PagesError, Plan, Set, SetResult, paper};

use super::super::common;
use crate::{
    exit::{Damaged, Usage},
    output,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Files may be any: dumps of memory, disk images, data. Generated ones have names: jacobi:sine:LINES:ITERATIONS,
jacobi:borders:LINES:ITERATIONS, hpcg:SIDE:ITERATIONS, table:ROWS, noise:PAGES."
)]
pub struct Args {
    /// Files whose pages are packed; with --paper NAME=FILE for data that cannot be made here: linux, isabel-p, isabel-tc,
    /// isabel-cloud
    #[arg(required_unless_present = "paper")]
    pub files: Vec<String>,
    /// Make the published tables again, with what was published beside
    #[arg(long)]
    pub paper: bool,
    /// Who packs: lz4, lzo, zstd-1, zstd-3, deflate-6, 842, zbewalgo, zbewalgo:STEPS, fast, balanced, ratio, chain:STEPS;
    /// all without steps if not given
    #[arg(long = "codec", value_name = "NAME,…", value_delimiter = ',')]
    pub codecs: Vec<String>,
    /// Also each chain of zBeWalgo and each of ours alone
    #[arg(long)]
    pub every_chain: bool,
    /// Also the kernel's /dev/zram0 with each algorithm it has; needs root and that nobody uses it
    #[arg(long)]
    pub zram: bool,
    /// The device that holds what memory does not: hdd (100 MB/s), ssd (500 MB/s), or bytes a second
    #[arg(long, default_value = "hdd", value_name = "DEVICE", value_parser = backing)]
    pub backing: Rate,
    /// Pages of each file, in 16 contiguous runs if it has more
    #[arg(long, default_value_t = 1024, value_name = "N", value_parser = clap::value_parser!(u32).range(16..))]
    pub pages: u32,
    /// Threads that share the pages; /dev/zram0 has one all the same
    #[arg(short = 'T', long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub threads: u32,
    /// Longest packed page worth storing; longer ones count as 4096 bytes
    #[arg(long, default_value = "3264", value_name = "SIZE")]
    pub limit: Size,
    /// Rounds; speeds are medians
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args, quiet: bool) -> anyhow::Result<()> {
    let mut contestants = match &args.codecs[..] {
        [] => Contestant::usual(),
        names => names.iter().map(|name| Contestant::named(name)).collect::<Result<_, _>>().map_err(fault)?,
    };
    if args.every_chain {
        contestants.extend(Contestant::chains());
    }
    let plan = Plan {
        contestants,
        rounds: args.repeat,
        threads: args.threads as usize,
        limit: usize::try_from(args.limit.0)
            .ok()
            .filter(|limit| (1..=4096).contains(limit))
            .ok_or_else(|| Usage(format!("--limit {}: a packed page has 1 to 4096 bytes", args.limit.0)))?,
        backing_bytes_per_s: args.backing.0,
        zram: args.zram,
        command: common::command_line(),
    };
    let most = args.pages as usize;
    let sets = if args.paper {
        paper::sets(&args.files, most).map_err(fault)?
    } else {
        args.files.iter().map(|file| Set::load(file, most)).collect::<Result<_, _>>().map_err(fault)?
    };
    let bar = output::bar(quiet);
    let mut document = pages::run(&sets, &plan, &mut |now| {
        bar.set_length(now.total as u64);
        bar.set_position(now.done as u64);
        bar.set_message(format!("{}: {}", now.set, now.who));
    })
    .map_err(fault)?;
    bar.finish_and_clear();
    if args.paper {
        paper::compare(&mut document);
    }
    if args.json { output::print(&serde_json::to_string(&document)?) } else { print(&document) }
}

fn fault(fault: PagesError) -> anyhow::Error {
    match fault {
        PagesError::Unknown(_) => Usage(fault.to_string()).into(),
        PagesError::Damaged { .. } => Damaged(fault.to_string()).into(),
        _ => fault.into(),
    }
}

fn print(document: &Document) -> anyhow::Result<()> {
    for set in &document.sets {
        let same = match set.same_filled {
            0 => String::new(),
            n => format!(", and {n} of one repeated word, which are left out"),
        };
        output::print(&format!("{}: {} pages{same}", set.name, set.pages))?;
        output::print(&format!("{}\n", table(set)))?;
    }
    output::print(&format!(
        "{} of {}. A page of more than {} bytes packed is stored as it is. Effective: written once and read once, with \
         memory as large as the best ratio needs and {:.0} MB/s for what does not fit.",
        match document.threads {
            1 => "One thread".into(),
            threads => format!("{threads} threads, each with a part of the pages,"),
        },
        document.machine.cpu,
        document.limit_bytes,
        document.backing_bytes_per_s / 1e6
    ))
}

fn table(set: &SetResult) -> Table {
    let is_published = set.results.iter().any(|measured| measured.published_ratio.is_some());
    let mut heads = vec!["", "ratio", "pack MB/s", "unpack MB/s", "effective MB/s"];
    heads.extend(is_published.then_some("published ratio"));
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(heads);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for measured in &set.results {
        let published = measured.published_ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        let mut row = vec![
            measured.name.clone(),
            format!("{:.3}", measured.ratio),
            format!("{:.0}", measured.pack_mb_s),
            format!("{:.0}", measured.unpack_mb_s),
            format!("{:.0}", measured.effective_mb_s),
        ];
        row.extend(is_published.then_some(published));
        table.add_row(row);
    }
    table
}

fn backing(text: &str) -> Result<Rate, String> {
    match text {
        "hdd" => Ok(Rate(100e6)),
        "ssd" => Ok(Rate(500e6)),
        _ => match text.parse::<Size>() {
            Ok(Size(0)) => Err("a device of no speed".into()),
            Ok(size) => Ok(Rate(size.0 as f64)),
            Err(fault) => Err(fault.to_string()),
        },
    }
}
