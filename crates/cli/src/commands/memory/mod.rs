//! `narrows memory`: a RAM disk of packed pages.

mod metrics;
mod serve;
mod stat;
mod view;

use std::path::PathBuf;

use crate::args::{Memory, MemoryCommand};

pub fn run(args: Memory, quiet: bool) -> anyhow::Result<()> {
    match args.command {
        MemoryCommand::Serve(args) => serve::run(*args, quiet),
        MemoryCommand::Stat(args) => stat::run(&args),
    }
}

/// Where the control socket is if nobody says: in the directory for one's own sockets, where there is one.
fn control_path(asked: Option<PathBuf>) -> PathBuf {
    asked.unwrap_or_else(|| {
        let dir = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        dir.join("narrows-memory.control")
    })
}
