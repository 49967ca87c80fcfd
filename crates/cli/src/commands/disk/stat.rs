//! `narrows disk stat`

use std::{
    io::{self, IsTerminal},
    path::PathBuf,
    thread,
    time::Duration,
};

use anyhow::Context;
use narrows_disk::served::control;

use super::{control_path, view};
use crate::output;

/// Home, and clear to the end: without the flicker of clearing everything first.
const REDRAW: &str = "\x1b[H\x1b[J";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Socket of the server: its --control
    #[arg(long, value_name = "PATH", env = "NARROWS_DISK_CONTROL")]
    pub control: Option<PathBuf>,
    /// Go on, once a second
    #[arg(short, long)]
    pub watch: bool,
    /// Print as JSON, a line each time
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let path = control_path(args.control.clone());
    let ask = || {
        control::ask(&path)
            .with_context(|| format!("no disk answers at {}; name its --control", path.display()))
    };
    let mut before = None;
    loop {
        let report = ask()?;
        if args.json {
            output::print(&serde_json::to_string(&report)?)?;
        } else {
            let head = if args.watch && io::stdout().is_terminal() {
                REDRAW
            } else {
                ""
            };
            output::print(&format!("{head}{}", view::screen(&report, before.as_ref())))?;
        }
        if !args.watch {
            return Ok(());
        }
        before = Some(report);
        thread::sleep(Duration::from_secs(1));
    }
}
