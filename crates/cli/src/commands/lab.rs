//! What the commands of the laboratory share: progress, results, reports.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use narrows_lab::{album, machine::Sheet, report::Report, result::Run};

use crate::{exit::Usage, output};

/// Where results go.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Results")]
pub struct Out {
    /// Add the results to this file, as lines of `narrows.result/1`
    #[arg(long, value_name = "FILE")]
    pub results: Option<PathBuf>,
    /// Make a report with pictures
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Print the results as JSON Lines
    #[arg(long)]
    pub json: bool,
}

/// Says so where others use this machine: what is measured then is slow by chance, and what chooses by speed
/// (`adaptive`) looks worse than it is.
pub fn warn_of_load() {
    let load = Sheet::of_this_machine().load;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if let Some(load) = load.filter(|load| *load > 0.5 * processors as f64) {
        tracing::warn!(
            "this machine is busy (load {load:.1} on {processors} processors): times are too long, and `adaptive` looks \
             worse than on an idle one"
        );
    }
}

/// Results and reports are what a user waits minutes for: a place that cannot be written is to be known before. Each
/// with its flag.
pub fn places<const N: usize>(places: [(&str, Option<&PathBuf>); N]) -> Result<(), Usage> {
    for (flag, path) in places {
        let Some(path) = path else { continue };
        no_dash(path)?;
        // Of a link that leads nowhere yet, the file is new and the link is not.
        let new = fs::symlink_metadata(path).is_err();
        fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map_err(|fault| {
                Usage(format!(
                    "cannot write to {}: {fault}; name another file with --{flag}",
                    path.display()
                ))
            })?;
        if new {
            let _ = fs::remove_file(path);
        }
    }
    Ok(())
}

/// Refuses `-`: a file of that name is never meant, and standard output has its own text.
pub fn no_dash(path: &Path) -> Result<(), Usage> {
    match path == Path::new("-") {
        true => Err(Usage(
            "`-` is no file here; name one, or give /dev/stdout".into(),
        )),
        false => Ok(()),
    }
}

/// Writes a report and says where.
pub fn write(path: &Path, report: &Report, quiet: bool) -> anyhow::Result<()> {
    fs::write(path, report.html()).with_context(|| format!("cannot write {}", path.display()))?;
    if !quiet {
        crate::log::tell!(
            "report: {}",
            fs::canonicalize(path)
                .unwrap_or_else(|_| path.into())
                .display()
        );
    }
    Ok(())
}

/// [`places`] of these flags.
pub fn places_of(out: &Out) -> Result<(), Usage> {
    places([
        ("results", out.results.as_ref()),
        ("report", out.report.as_ref()),
    ])
}

/// Sends a run where the flags want it; whether that was standard output.
pub fn deliver(out: &Out, run: &Run, quiet: bool) -> anyhow::Result<bool> {
    // Printed first: a disk that has filled up meanwhile does not take it all. Nor does a closed pipe take the files.
    let printed = if out.json {
        output::print(run.lines().trim_end())
    } else {
        Ok(())
    };
    if let Some(path) = &out.results {
        run.append(path)?;
    }
    if let Some(path) = &out.report {
        write(path, &album::report(std::slice::from_ref(run)), quiet)?;
    }
    printed?;
    Ok(out.json)
}
