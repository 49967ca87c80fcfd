//! What the commands of the laboratory share: progress, results, reports.

use std::{fs, io::IsTerminal, path::Path, time::Duration};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use narrows_lab::{album, report::Report, result::Run};

use crate::{args::Out, exit::Usage, output};

/// The report is what a user waits minutes for: a place that cannot be written is to be known before.
pub fn place<P: AsRef<Path>>(report: Option<P>) -> anyhow::Result<()> {
    let Some(path) = report.as_ref().map(AsRef::as_ref) else { return Ok(()) };
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    if path.is_dir() || dir.is_some_and(|dir| !dir.is_dir()) {
        return Err(
            Usage(format!("the report cannot be written to {}; name another with --report", path.display())).into()
        );
    }
    Ok(())
}

/// Writes a report and says where.
pub fn write(path: &Path, report: &Report, quiet: bool) -> anyhow::Result<()> {
    fs::write(path, report.html()).with_context(|| format!("cannot write {}", path.display()))?;
    if !quiet {
        eprintln!("report: {}", fs::canonicalize(path).unwrap_or_else(|_| path.into()).display());
    }
    Ok(())
}

/// Sends a run where the flags want it; whether that was standard output.
pub fn deliver(out: &Out, run: &Run, quiet: bool) -> anyhow::Result<bool> {
    if let Some(path) = &out.results {
        run.append(path)?;
    }
    if let Some(path) = &out.report {
        write(path, &album::report(std::slice::from_ref(run)), quiet)?;
    }
    if out.json {
        output::print(run.lines().trim_end())?;
    }
    Ok(out.json)
}

/// A bar, where somebody watches.
pub fn bar(quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(1);
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed} {msg}");
    bar.set_style(style.expect("the template is well formed"));
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// As it could be typed again.
pub fn command_line() -> String {
    let words = std::env::args().skip(1).map(|word| {
        let plain = |c: char| c.is_alphanumeric() || "-_./,:=+@%".contains(c);
        if !word.is_empty() && word.chars().all(plain) { word } else { format!("'{}'", word.replace('\'', r"'\''")) }
    });
    std::iter::once("narrows".to_string()).chain(words).collect::<Vec<_>>().join(" ")
}
