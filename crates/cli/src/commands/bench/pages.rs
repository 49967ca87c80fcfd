//! `narrows bench pages`

use comfy_table::{CellAlignment, Table, presets::NOTHING};
use narrows_core::units::Size;
use narrows_lab::pages::{
    self, Backing, Contestant, Document, PagesError, Plan, Set, SetResult, paper,
};

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
    /// Files whose pages are packed; with --paper NAME=FILE for data that cannot be made here, which it lists
    #[arg(required_unless_present = "paper")]
    pub files: Vec<String>,
    /// Make the published tables again, with what was published beside
    #[arg(long)]
    pub paper: bool,
    /// Who packs: lz4, lzo, zstd-1, zstd-3, deflate-6, 842, zbewalgo, zbewalgo:STEPS, fast, dense, balanced, ratio,
    /// chain:STEPS; all without steps if not given
    #[arg(long = "codec", value_name = "NAME,…", value_delimiter = ',')]
    pub codecs: Vec<String>,
    /// Also each chain of zBeWalgo and each of ours alone
    #[arg(long)]
    pub every_chain: bool,
    /// Also the kernel's /dev/zram0 with each algorithm it has; needs root and that nobody uses it
    #[arg(long)]
    pub zram: bool,
    /// The devices that hold what memory does not: hdd (100 MB/s), net (125 MB/s), ssd (500 MB/s), or bytes a second;
    /// hdd if not given, and with --paper all three
    #[arg(long = "backing", value_name = "DEVICE,…", value_delimiter = ',', value_parser = backing)]
    pub backings: Vec<Backing>,
    /// Pages of each file, in 16 contiguous runs if it has more
    #[arg(long, default_value_t = 1024, value_name = "N", value_parser = clap::value_parser!(u32).range(16..))]
    pub pages: u32,
    /// Threads that share the pages, beside one alone; /dev/zram0 has one all the same
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
        names => names
            .iter()
            .map(|name| Contestant::named(name))
            .collect::<Result<_, _>>()
            .map_err(fault)?,
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
            .ok_or_else(|| {
                Usage(format!(
                    "--limit {}: a packed page has 1 to 4096 bytes",
                    args.limit.0
                ))
            })?,
        backings: match &args.backings[..] {
            [] if args.paper => paper::BACKINGS.to_vec(),
            [] => paper::BACKINGS[..1].to_vec(),
            given => given.to_vec(),
        },
        zram: args.zram,
        command: common::command_line(),
    };
    let most = args.pages as usize;
    let (sets, absent) = if args.paper {
        paper::sets(&args.files, most).map_err(fault)?
    } else {
        let sets = args
            .files
            .iter()
            .map(|file| Set::load(file, most))
            .collect::<Result<_, _>>()
            .map_err(fault)?;
        (sets, vec![])
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
        paper::compare(&mut document, absent);
    }
    if args.json {
        output::print(&serde_json::to_string(&document)?)
    } else {
        print(&document)
    }
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
        let title = set.title.map_or_else(
            || set.name.clone(),
            |title| format!("{} ({title}), {}", set.name, set.from),
        );
        let same = match set.same_filled {
            0 => String::new(),
            n => format!(", and {n} of one repeated word, which are left out"),
        };
        output::print(&format!("{title}: {} pages{same}", set.pages))?;
        output::print(&format!("{}\n", table(document, set)))?;
    }
    for absent in &document.absent {
        output::print(&format!(
            "{0} ({1}): no data here; give {0}=FILE\n",
            absent.name, absent.title
        ))?;
    }
    let behind = |backing: &Backing| format!("{:.0} ({})", backing.bytes_per_s / 1e6, backing.name);
    output::print(&format!(
        "{} of {}. A page of more than {} bytes packed is stored as it is. Effective: written once and read once, with \
         memory as large as the best ratio needs and, for what does not fit, a device of so many MB/s: {}.",
        match document.threads {
            1 => "One thread".into(),
            threads => format!("{threads} threads together, and one alone,"),
        },
        document.machine.cpu,
        document.limit_bytes,
        document
            .backings
            .iter()
            .map(behind)
            .collect::<Vec<_>>()
            .join(", ")
    ))
}

fn table(document: &Document, set: &SetResult) -> Table {
    let is_published = set
        .results
        .iter()
        .any(|measured| measured.published.is_some());
    let mut heads: Vec<String> = ["", "ratio", "pack MB/s", "unpack MB/s"]
        .map(Into::into)
        .to_vec();
    heads.extend(
        document
            .backings
            .iter()
            .map(|backing| format!("effective MB/s, {}", backing.name)),
    );
    let has_more = document.threads > 1;
    heads.extend(
        ["pack, × one thread", "unpack, ×"]
            .map(Into::into)
            .into_iter()
            .filter(|_| has_more),
    );
    heads.extend(
        ["published ratio", "pack MiB/s", "unpack MiB/s"]
            .map(Into::into)
            .into_iter()
            .filter(|_| is_published),
    );
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(heads);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for measured in &set.results {
        let mut row = vec![
            measured.name.clone(),
            format!("{:.3}", measured.ratio),
            format!("{:.0}", measured.pack_mb_s),
            format!("{:.0}", measured.unpack_mb_s),
        ];
        row.extend(
            measured
                .effective_mb_s
                .iter()
                .map(|mb_s| format!("{mb_s:.0}")),
        );
        if has_more {
            // The kernel's device has one thread.
            let times = |all: f64, one: Option<f64>| {
                one.map_or(String::new(), |one| format!("{:.2}", all / one))
            };
            row.push(times(
                measured.pack_mb_s,
                measured.one_thread.map(|one| one.pack_mb_s),
            ));
            row.push(times(
                measured.unpack_mb_s,
                measured.one_thread.map(|one| one.unpack_mb_s),
            ));
        }
        if let Some(published) = measured.published {
            let known = |value: f64, digits| {
                if value > 0.0 {
                    format!("{value:.digits$}")
                } else {
                    String::new()
                }
            };
            let speeds =
                [published.pack_mib_s, published.unpack_mib_s].map(|mib_s| known(mib_s, 1));
            row.extend(std::iter::once(known(published.ratio, 2)).chain(speeds));
        }
        table.add_row(row);
    }
    table
}

fn backing(text: &str) -> Result<Backing, String> {
    if let Some(known) = paper::BACKINGS.iter().find(|backing| backing.name == text) {
        return Ok(*known);
    }
    match text.parse::<Size>() {
        Ok(Size(0)) => Err("a device of no speed".into()),
        Ok(size) => Ok(Backing {
            name: "given",
            bytes_per_s: size.0 as f64,
        }),
        Err(fault) => Err(fault.to_string()),
    }
}
