//! `narrows report`

use std::{fs, path::PathBuf};

use anyhow::Context;
use narrows_lab::{album, published, result};

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
    /// Also a page of Markdown, of results of `study --published`
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    lab::places([
        ("output", Some(&args.output)),
        ("markdown", args.markdown.as_ref()),
    ])?;
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
    lab::write(&args.output, &album::report(&runs), false)?;
    if let Some(path) = &args.markdown {
        anyhow::ensure!(
            published::is_in(&runs),
            "only results of `study --published` have a page of Markdown"
        );
        fs::write(path, published::markdown(&runs))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
