//! `narrows completions` and `narrows man`: what follows from the command line itself.

use std::{fs, path::PathBuf};

use anyhow::Context;
use clap::CommandFactory;

use crate::output;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "To install it for bash:\n  narrows completions bash > ~/.local/share/bash-completion/completions/narrows"
)]
pub struct CompletionsArgs {
    /// Which shell
    pub shell: clap_complete::Shell,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "To install them:\n  narrows man ~/.local/share/man/man1")]
pub struct PagesArgs {
    /// Directory for the pages
    pub dir: PathBuf,
}

pub fn completions(args: &CompletionsArgs) -> anyhow::Result<()> {
    // Into memory first: it panics where it cannot write, as to a reader that has had enough.
    let mut script = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut crate::Args::command(),
        "narrows",
        &mut script,
    );
    output::print(String::from_utf8_lossy(&script).trim_end())
}

pub fn pages(args: &PagesArgs) -> anyhow::Result<()> {
    fs::create_dir_all(&args.dir).with_context(|| format!("cannot make {}", args.dir.display()))?;
    clap_mangen::generate_to(crate::Args::command(), &args.dir)
        .with_context(|| format!("cannot write to {}", args.dir.display()))
}
