//! Trains the codes of LZ-T: `train_lzt OUT FILE…` writes a `kinds.bin` from 16 KiB runs of the files.
//!
//! At most 6 MiB of a file are used, evenly spread, so that one large file does not decide.

use std::{env, fs, path::PathBuf};

use narrows_chains::lzt::{PAGE_MAX, train};

/// Runs of one file.
const RUNS_MAX: usize = 384;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = env::args_os().skip(1).map(PathBuf::from);
    let to = args.next().ok_or("usage: train_lzt OUT FILE…")?;
    let mut names = Vec::new();
    let mut clusters = Vec::new();
    for path in args {
        let bytes = fs::read(&path)?;
        let runs: Vec<&[u8]> = bytes
            .chunks_exact(PAGE_MAX)
            .filter(|run| run.iter().any(|&byte| byte != run[0]))
            .collect();
        let step = runs.len().div_ceil(RUNS_MAX).max(1);
        clusters.extend(runs.iter().step_by(step).map(|run| run.to_vec()));
        names.push(
            path.file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
        );
    }
    let header = format!(
        "LZ-T codes, made by examples/train_lzt.rs of {} runs of 16 KiB of: {}\n",
        clusters.len(),
        names.join(" ")
    );
    fs::write(to, train::train(&header, &clusters))?;
    Ok(())
}
