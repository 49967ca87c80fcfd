//! `narrows memory stat`

use std::{
    io::{self, IsTerminal},
    thread,
    time::Duration,
};

use anyhow::Context;
use narrows_memory::control;

use super::{control_path, view};
use crate::{args::MemoryStat, output};

/// Home, and clear to the end: without the flicker of clearing everything first.
const REDRAW: &str = "\x1b[H\x1b[J";

pub fn run(args: &MemoryStat) -> anyhow::Result<()> {
    let path = control_path(args.control.clone());
    let ask = || {
        control::ask(&path).with_context(|| format!("no RAM disk answers at {}; name its --control", path.display()))
    };
    let mut before = None;
    loop {
        let report = ask()?;
        if args.json {
            output::print(&serde_json::to_string(&report)?)?;
        } else {
            let head = if args.watch && io::stdout().is_terminal() { REDRAW } else { "" };
            output::print(&format!("{head}{}", view::screen(&report, before.as_ref())))?;
        }
        if !args.watch {
            return Ok(());
        }
        before = Some(report);
        thread::sleep(Duration::from_secs(1));
    }
}
