//! `narrows memory stat`

use std::path::PathBuf;

use anyhow::Context;
use narrows_memory::control;

use super::{control_path, view};
use crate::commands::block::Watch;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Socket of the server: its --control
    #[arg(long, value_name = "PATH", env = "NARROWS_MEMORY_CONTROL")]
    pub control: Option<PathBuf>,
    #[command(flatten)]
    pub watch: Watch,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let path = control_path(args.control.clone());
    let ask = || {
        control::ask(&path).with_context(|| {
            let path = path.display();
            format!("no RAM disk answers at {path}; name its --control")
        })
    };
    args.watch.run(ask, view::screen)
}
