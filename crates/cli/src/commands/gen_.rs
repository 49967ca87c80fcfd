//! `narrows gen`

use std::{
    fs::File,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;
use narrows_core::units::Size;
use narrows_lab::synthetic::{self, Kind};

use super::common;
use crate::exit::{OutputClosed, Usage};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// lineal (consecutive 32-bit integers), random, or sparse (runs of zeros and of random bytes)
    pub kind: Kind,
    /// How many bytes: 64K, 100M, 2G
    pub size: Size,
    /// The same seed always gives the same bytes
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
    /// File to write; standard output for `-` and if not given
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let file = args
        .output
        .as_deref()
        .filter(|path| *path != Path::new("-"));
    let (mut out, to): (Box<dyn Write>, _) = match file {
        Some(path) => {
            let file =
                File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
            (Box::new(file), path.display().to_string())
        }
        None if io::stdout().is_terminal() => {
            return Err(Usage(
                "standard output is a terminal; redirect it, or name a file with -o".into(),
            )
            .into());
        }
        None => (
            Box::new(common::descriptor(&io::stdout())?),
            "the output".into(),
        ),
    };
    let written =
        synthetic::write(args.kind, args.size.0, args.seed, &mut out).and_then(|()| out.flush());
    written.map_err(|fault| match fault.kind() {
        io::ErrorKind::BrokenPipe => anyhow::Error::new(OutputClosed),
        _ => anyhow::Error::new(fault).context(format!("cannot write {to}")),
    })
}
