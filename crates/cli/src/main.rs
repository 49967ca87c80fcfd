//! The `narrows` command.
//!
//! Results go to stdout, everything else to stderr; `--json` makes the result one document. Exit codes: see
//! [`exit::HELP`]. Upstream: a person or a script; downstream: `narrows-wire` and the facade.

#![forbid(unsafe_code)]
#![allow(rustdoc::broken_intra_doc_links, reason = "the doc comments of flags are help texts, where [] is optional")]
#![allow(unreachable_pub, reason = "a program exports nothing")]

mod commands;
mod exit;
mod metrics;
mod output;

use std::process::ExitCode;

use clap::Parser;

/// Adaptive, parallel lossless compression for data paths.
// Flag beats environment (`NARROWS_…`) beats default.
#[derive(Debug, Parser)]
#[command(name = "narrows", version, after_help = exit::HELP, propagate_version = true)]
struct Args {
    /// Say more on stderr (twice: even more)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Only errors on stderr, no progress
    #[arg(short, long, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let args = Args::parse();
    output::log(args.verbose, args.quiet);
    match commands::run(args.command, args.quiet) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            commands::common::yield_to_interrupt();
            exit::report(&fault)
        }
    }
}
