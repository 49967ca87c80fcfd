//! `narrows report`

use narrows_lab::{album, result};

use super::lab;
use crate::args::Report;

pub fn run(args: &Report) -> anyhow::Result<()> {
    lab::place(Some(&args.output))?;
    let mut runs = Vec::new();
    for path in &args.results {
        runs.extend(result::read(path)?);
    }
    lab::write(&args.output, &album::report(&runs), false)
}
