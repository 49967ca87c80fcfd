//! The `narrows` command.
//!
//! Results go to stdout, everything else to stderr; `--json` makes the result one document. Exit codes: see
//! [`exit::HELP`]. Upstream: a person or a script; downstream: `narrows-wire` and the facade.

#![forbid(unsafe_code)]
#![allow(rustdoc::broken_intra_doc_links, reason = "the doc comments of flags are help texts, where [] is optional")]
#![allow(unreachable_pub, reason = "a program exports nothing")]

mod args;
mod commands;
mod exit;
mod metrics;
mod output;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = args::Args::parse();
    output::log(args.verbose, args.quiet);
    match commands::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            commands::common::yield_to_interrupt();
            exit::report(&fault)
        }
    }
}
