//! `narrows memory`: a RAM disk of packed pages, and programs whose large memory is kept packed.

mod run;
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
    /// Run a program on numbers in less memory than it asks for
    Run(run::Args),
    /// Show what a RAM disk holds, costs and does
    Stat(stat::Args),
}

pub fn run(args: Args, quiet: bool) -> anyhow::Result<()> {
    match args.command {
        Command::Serve(args) => serve::run(*args, quiet),
        Command::Run(args) => run::run(&args, quiet),
        Command::Stat(args) => stat::run(&args),
    }
}

/// Where the control socket is if nobody says.
fn control_path(asked: Option<PathBuf>) -> PathBuf {
    asked.unwrap_or_else(|| runtime_dir().join("narrows-memory.control"))
}

/// A directory that only this user, or root, can put sockets into: not the one for everybody's temporary files.
fn runtime_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("XDG_RUNTIME_DIR") {
        return dir.into();
    }
    let user = rustix::process::geteuid();
    if user.is_root() {
        return "/run".into();
    }
    let own = PathBuf::from(format!("/run/user/{}", user.as_raw()));
    if own.is_dir() {
        return own;
    }
    std::env::var_os("HOME").map_or_else(|| ".".into(), PathBuf::from)
}
