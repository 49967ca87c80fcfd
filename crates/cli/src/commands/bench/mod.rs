//! `narrows bench`

mod codecs;
mod pages;

use crate::args::{Bench, BenchWhat};

pub fn run(args: Bench, quiet: bool) -> anyhow::Result<()> {
    match args.what {
        Some(BenchWhat::Codecs(args)) => codecs::run(&args, quiet),
        Some(BenchWhat::Pages(args)) => pages::run(&args, quiet),
        None => codecs::run(&args.codecs, quiet),
    }
}
