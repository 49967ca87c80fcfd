//! `narrows gpu run`

use std::{ffi::OsString, fs, os::unix::process::ExitStatusExt, process::Command};

use anyhow::Context;
use narrows_cuda::{
    launcher::{self, LibraryDir},
    settings,
};
use serde_json::Value;

use super::Way;
use crate::{commands::common, exit::Usage};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "narrows gpu run --to HOST --tls-certificates DIR -- python train.py\nThe exit code is the program's."
)]
pub struct Args {
    /// At the end, print what the session carried as JSON on stderr
    #[arg(long)]
    pub json: bool,
    /// At the end, print what the session carried on stderr
    #[arg(long)]
    pub summary: bool,
    /// Send bytes again that the server still has of an earlier copy
    #[arg(long)]
    pub no_content_cache: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
    #[command(flatten)]
    pub way: Way,
}

pub fn run(args: Args, quiet: bool) -> anyhow::Result<()> {
    let library = launcher::find().map_err(Usage)?;
    let dir = LibraryDir::new(&library).context("cannot make a folder for the driver library")?;
    let mut variables = args.way.variables()?;
    variables.set(
        settings::NO_CONTENT_CACHE,
        args.no_content_cache.then_some(1),
    );
    let report = tempfile::NamedTempFile::new()?;
    if args.json || args.summary {
        variables.set(settings::SUMMARY, Some(report.path().display()));
    }
    let (program, words) = args.program.split_first().expect("one is required");
    let mut command = Command::new(program);
    command
        .args(words)
        .env("LD_LIBRARY_PATH", dir.search_path());
    command.envs(variables.iter());
    // Ctrl-C reaches the program by itself; we go when it has gone.
    common::ignore_interrupts()?;
    let mut child = command.spawn().map_err(|fault| {
        Usage(format!(
            "cannot start {}: {fault}",
            program.to_string_lossy()
        ))
    })?;
    let status = child.wait()?;
    if (args.json || args.summary) && !quiet {
        tell(&fs::read_to_string(report.path())?, args.json);
    }
    drop((dir, report));
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    std::process::exit(code);
}

fn tell(text: &str, json: bool) {
    if json {
        eprint!("{text}");
        return;
    }
    let Ok(summary) = serde_json::from_str::<Value>(text) else {
        crate::log::tell!("the program used no GPU");
        return;
    };
    let number = |name: &str| summary[name].as_f64().unwrap_or(0.0);
    let size = |name: &str| narrows::Size(summary[name].as_u64().unwrap_or(0));
    let cached = match summary["content_cache_bytes"].as_u64() {
        None | Some(0) => String::new(),
        Some(_) => format!(" and {} not again", size("content_cache_bytes")),
    };
    crate::log::tell!(
        "{:.3} s, {} messages, {} round trips; sent {} as {}{cached}, received {} as {}; {:.3} s of processor time here",
        number("elapsed_s"),
        summary["messages"],
        summary["round_trips"],
        size("sent_bytes"),
        size("sent_wire_bytes"),
        size("received_bytes"),
        size("received_wire_bytes"),
        number("cpu_s"),
    );
}
