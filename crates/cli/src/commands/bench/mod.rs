//! `narrows bench`

mod codecs;
mod pages;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
// Flattening makes two groups of flags one command's, and their names are those of the types.
#[group(skip)]
pub struct Args {
    #[command(subcommand)]
    pub what: Option<What>,
    #[command(flatten)]
    pub codecs: codecs::Args,
}

#[derive(Debug, clap::Subcommand)]
pub enum What {
    /// Codecs on files; what `bench` does where nothing else is named
    Codecs(codecs::Args),
    /// Pages of memory, 4 KiB each and packed alone: every page codec, zBeWalgo and our profiles
    Pages(pages::Args),
}

pub fn run(args: Args, quiet: bool) -> anyhow::Result<()> {
    match args.what {
        Some(What::Codecs(args)) => codecs::run(&args, quiet),
        Some(What::Pages(args)) => pages::run(&args, quiet),
        None => codecs::run(&args.codecs, quiet),
    }
}
