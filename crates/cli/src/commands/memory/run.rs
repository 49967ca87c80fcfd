//! `narrows memory run`

use std::{
    env,
    ffi::OsString,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Child, Command, ExitStatus},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use narrows::Size;
use narrows_io::address::Address;
use narrows_memory::run::{self, Counters, RunReport};

use crate::{commands::common, exit::Usage, output};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "narrows memory run --limit 2G -- python simulation.py\n\nFor numbers that are touched mostly in order: \
                  grids, arrays, time series. The exit code is the program's."
)]
pub struct Args {
    /// Memory that the program may have resident
    #[arg(long, value_name = "SIZE", required_unless_present = "check")]
    pub limit: Option<Size>,
    /// Folder for numbers that do not pack: a file there that has no name
    #[arg(long, value_name = "DIR", env = "NARROWS_MEMORY_RUN_BACKING")]
    pub backing: Option<PathBuf>,
    /// Say whether this system allows it, and what is missing
    #[arg(long, conflicts_with_all = ["limit", "program"])]
    pub check: bool,
    /// Every second, print how it goes on stderr
    #[arg(short, long)]
    pub watch: bool,
    /// At the end, print what was done as JSON on stderr
    #[arg(long)]
    pub json: bool,
    /// Serve counters for Prometheus at HOST:PORT
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics: Option<String>,
    /// The program and its arguments
    #[arg(last = true, required_unless_present = "check", value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

pub fn run(args: &Args, quiet: bool) -> anyhow::Result<()> {
    let library = run::find().map_err(Usage)?;
    let backing = args.backing.clone().unwrap_or_else(env::temp_dir);
    let counters = Counters::new().context("cannot share counters with the program")?;
    let counters = Arc::new(counters);
    let limit = args.limit.map_or(CHECKED_LIMIT, |limit| limit.0);
    let environment = counters.environment(&library, limit, &backing);
    if args.check {
        let mut command = Command::new("/bin/true");
        let status = command.envs(environment).env(run::CHECK, "1").status()?;
        if !status.success() {
            // The library said why.
            std::process::exit(1);
        }
        return output::print("memory run works here");
    }
    let _served = args
        .metrics
        .as_deref()
        .map(|address| serve_metrics(address, &counters))
        .transpose()?;
    let (program, words) = args.program.split_first().expect("one is required");
    let mut command = Command::new(program);
    command.args(words).envs(environment);
    common::ignore_interrupts()?;
    let begun = Instant::now();
    let mut child = command.spawn().map_err(|fault| {
        Usage(format!(
            "cannot start {}: {fault}",
            program.to_string_lossy()
        ))
    })?;
    let status = if args.watch {
        watch(&mut child, limit, &counters)?
    } else {
        child.wait()?
    };
    let report = counters.report()?;
    if args.json {
        eprintln!("{}", serde_json::to_string(&report)?);
    } else if !quiet && (report.started || status.success()) {
        // Else the library has said why it could not start.
        crate::log::tell!("{}", sentence(&report, limit, begun.elapsed()));
    }
    std::process::exit(
        status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
    );
}

/// Serves what the library counts, until it is dropped.
fn serve_metrics(address: &str, counters: &Arc<Counters>) -> anyhow::Result<impl Sized + use<>> {
    let address = Address::parse(address, 0).map_err(|fault| Usage(fault.to_string()))?;
    let counters = Arc::clone(counters);
    let read = move || {
        counters
            .report()
            .map_or_else(|_| Vec::new(), |report| report.metrics())
    };
    narrows_io::metrics::serve(&address, read)
        .with_context(|| format!("cannot serve metrics at {address}; give HOST:PORT"))
}

/// Waits for the program, and says every second how it goes.
fn watch(child: &mut Child, limit: u64, counters: &Counters) -> anyhow::Result<ExitStatus> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        thread::sleep(Duration::from_secs(1));
        crate::log::tell!("{}", sentence(&counters.report()?, limit, begun.elapsed()));
    }
}

fn sentence(report: &RunReport, limit: u64, elapsed: Duration) -> String {
    if !report.started {
        return "no large memory was asked for (a static or setuid program is not managed)".into();
    }
    let ratio = report.stored_raw_bytes as f64 / report.stored_bytes.max(1) as f64;
    // A few MiB are what small memory grows by between two looks.
    let over = if report.peak_bytes > limit.saturating_add(limit / 32 + (4 << 20)) {
        format!(
            "; the limit of {} did not hold: memory that is not managed takes much of it",
            Size(limit)
        )
    } else {
        String::new()
    };
    format!(
        "{:.1} s: at most {} of large memory in {} resident; {} packed to {} ({ratio:.1}:1); {} faults took {:.1} s, \
         packing {:.1} s; {} blocks of 64 KiB went to the backing file{over}",
        elapsed.as_secs_f64(),
        Size(report.taken_peak_bytes),
        Size(report.peak_bytes),
        Size(report.stored_raw_bytes),
        Size(report.stored_bytes),
        report.faults,
        report.fault_s,
        report.evict_s,
        report.written,
    )
}

/// Any: nothing is taken.
const CHECKED_LIMIT: u64 = 1 << 30;
