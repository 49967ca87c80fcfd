//! `narrows memory`: a RAM disk of packed pages.

mod serve;
mod stat;
mod view;

use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Serve a RAM disk of packed pages until interrupted; its content ends with it
    Serve(Box<serve::Args>),
    /// Show what a RAM disk holds, costs and does
    Stat(stat::Args),
}

pub fn run(args: Args, quiet: bool) -> anyhow::Result<()> {
    match args.command {
        Command::Serve(args) => serve::run(*args, quiet),
        Command::Stat(args) => stat::run(&args),
    }
}

/// Where the control socket is if nobody says: in the directory for one's own sockets, where there is one.
fn control_path(asked: Option<PathBuf>) -> PathBuf {
    asked.unwrap_or_else(|| {
        let dir =
            std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        dir.join("narrows-memory.control")
    })
}
