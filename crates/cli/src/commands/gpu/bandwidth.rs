//! `narrows gpu bandwidth`

use super::Way;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub way: Way,
}

pub fn run(_args: Args, _quiet: bool) -> anyhow::Result<()> {
    anyhow::bail!("not yet")
}
