//! `narrows completions` and `narrows man`: what follows from the command line itself.

use std::{fs, io, path::PathBuf};

use anyhow::Context;
use clap::CommandFactory;

#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// Which shell
    pub shell: clap_complete::Shell,
}

#[derive(Debug, clap::Args)]
pub struct PagesArgs {
    /// Directory for the pages
    pub dir: PathBuf,
}

pub fn completions(args: &CompletionsArgs) {
    clap_complete::generate(
        args.shell,
        &mut crate::Args::command(),
        "narrows",
        &mut io::stdout(),
    );
}

pub fn pages(args: &PagesArgs) -> anyhow::Result<()> {
    fs::create_dir_all(&args.dir).with_context(|| format!("cannot make {}", args.dir.display()))?;
    clap_mangen::generate_to(crate::Args::command(), &args.dir)
        .with_context(|| format!("cannot write to {}", args.dir.display()))
}
