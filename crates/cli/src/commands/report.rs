//! `narrows report`

use std::path::PathBuf;

use narrows_lab::{album, result};

use super::lab;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files of results, as --results of other commands writes them
    #[arg(required = true)]
    pub results: Vec<PathBuf>,
    /// Where the report goes
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "narrows-report.html"
    )]
    pub output: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    lab::places([("output", Some(&args.output))])?;
    let mut runs = Vec::new();
    for path in &args.results {
        let read = result::read(path)?;
        anyhow::ensure!(
            !read.is_empty(),
            "{} holds no results; other commands write them with --results",
            path.display()
        );
        runs.extend(read);
    }
    lab::write(&args.output, &album::report(&runs), false)
}
