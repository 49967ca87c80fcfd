//! `narrows offload pack` and `unpack`: one file, there and back.

use std::{
    fs::File,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
};

use anyhow::Context;
use narrows_core::units::Size;
use narrows_offload::{Method, file};
use tempfile::NamedTempFile;

use super::{
    super::{common, options::Security},
    Desk, JobOptions, options,
    show::{Said, show},
};
use crate::exit::{OutputClosed, Usage};

#[derive(Debug, clap::Args)]
pub struct PackArgs {
    /// File to pack, or `-` for standard input, which goes through a file in the directory for temporary ones
    pub file: PathBuf,
    /// What to pack with; the file ends in .gz, .zst or .lz4
    #[arg(long, value_enum, default_value_t)]
    pub codec: MethodName,
    /// How hard: deflate 0..12, zstd -200..22, lz4 -64..12; 6, 3 and 0 if not given
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub level: Option<i16>,
    /// Length of a block, 4K to 8M; lz4 files have blocks of 64K, 256K, 1M or 4M
    #[arg(long, value_name = "SIZE")]
    pub block: Option<Size>,
    /// Where the result goes, `-` being standard output; beside the file if not given
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(short, long)]
    pub force: bool,
    /// Before, send the same bytes to be copied only: what of the turn-around is the link's
    #[arg(long, conflicts_with = "local")]
    pub copy: bool,
    /// Print the result as JSON Lines, `narrows.result/1`
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub job: JobOptions,
    #[command(flatten)]
    pub security: Security,
}

/// A method by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum MethodName {
    /// gzip files
    #[default]
    #[value(alias = "gzip")]
    Deflate,
    /// zstd files
    Zstd,
    /// LZ4 files
    Lz4,
}

#[derive(Debug, clap::Args)]
pub struct UnpackArgs {
    /// File to unpack, or `-` for standard input: one that `narrows offload pack` wrote, or another whose blocks can be
    /// found
    pub file: PathBuf,
    /// Where the result goes, `-` being standard output; the name without its ending if not given
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(short, long)]
    pub force: bool,
    /// Print the result as JSON Lines, `narrows.result/1`
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub job: JobOptions,
    #[command(flatten)]
    pub security: Security,
}

pub fn pack(args: &PackArgs, quiet: bool) -> anyhow::Result<()> {
    let method = method(args.codec);
    let options = options(method, args.level, args.block, &args.job)?;
    let beside = || {
        let mut name = args.file.clone().into_os_string();
        name.push(".");
        name.push(method.extension());
        Ok(name.into())
    };
    let ends = Ends::of(&args.file, args.output.as_deref(), beside)?;
    ends.check(args.force, args.json, true)?;
    let desk = Desk::new(&args.job, &args.security)?;
    let from = ends.from()?;
    let to = ends.to()?;
    let report = desk.run(&options, |job| file::pack(job, from.path(), to.path()))?;
    // The same number of bytes comes back, nothing being done to them.
    let back = report.packed_bytes as f64 / report.raw_bytes.max(1) as f64;
    let copy = args
        .copy
        .then(|| desk.run(&options, |job| file::copy(job, from.path(), back)))
        .transpose()?;
    to.deliver()?;
    let said = Said {
        json: args.json,
        quiet,
        beside_content: ends.to.is_none(),
    };
    show(&args.file, &report, copy.as_ref(), said)
}

pub fn unpack(args: &UnpackArgs, quiet: bool) -> anyhow::Result<()> {
    let beside = || without_ending(&args.file);
    let ends = Ends::of(&args.file, args.output.as_deref(), beside)?;
    ends.check(args.force, args.json, false)?;
    // The file says with what, and how long its blocks are.
    let options = options(Method::Deflate, None, None, &args.job)?;
    let desk = Desk::new(&args.job, &args.security)?;
    let from = ends.from()?;
    let to = ends.to()?;
    let report = desk.run(&options, |job| file::unpack(job, from.path(), to.path()))?;
    to.deliver()?;
    let said = Said {
        json: args.json,
        quiet,
        beside_content: ends.to.is_none(),
    };
    show(&args.file, &report, None, said)
}

/// Where a job reads and writes; `None` is a standard stream.
struct Ends {
    from: Option<PathBuf>,
    to: Option<PathBuf>,
}

impl Ends {
    fn of(
        from: &Path,
        to: Option<&Path>,
        beside: impl FnOnce() -> Result<PathBuf, Usage>,
    ) -> Result<Self, Usage> {
        let named = |path: &Path| (path != Path::new("-")).then(|| path.to_path_buf());
        let from = named(from);
        let to = match to {
            Some(to) => named(to),
            None if from.is_none() => None,
            None => Some(beside()?),
        };
        Ok(Self { from, to })
    }

    /// Before anything begins: whether it can be read and written.
    fn check(&self, force: bool, json: bool, packed: bool) -> anyhow::Result<()> {
        let usage = |text: &str| Err(Usage(text.into()).into());
        match &self.to {
            Some(to) => free(to, force)?,
            None if json => {
                return usage("--json and the result would both go to standard output");
            }
            None if packed && !force && io::stdout().is_terminal() => {
                return usage("standard output is a terminal; redirect it, or name a file with -o");
            }
            None => {}
        }
        match &self.from {
            Some(from) => Ok(file::readable(from)?),
            None if io::stdin().is_terminal() => {
                usage("standard input is a terminal; name a file, or pipe something in")
            }
            None => Ok(()),
        }
    }

    fn from(&self) -> anyhow::Result<Spool> {
        if let Some(path) = &self.from {
            return Ok(Spool::Named(path.clone()));
        }
        let spool = temporary()?;
        let mut input = common::descriptor(&io::stdin())?;
        let mut file = File::options().write(true).open(spool.path())?;
        io::copy(&mut input, &mut file).context("cannot keep standard input")?;
        Ok(Spool::Temporary(spool))
    }

    fn to(&self) -> anyhow::Result<Spool> {
        match &self.to {
            Some(path) => Ok(Spool::Named(path.clone())),
            None => Ok(Spool::Temporary(temporary()?)),
        }
    }
}

/// A file, or what stands in for a standard stream: blocks are read and written at any place of a file.
enum Spool {
    Named(PathBuf),
    Temporary(NamedTempFile),
}

impl Spool {
    fn path(&self) -> &Path {
        match self {
            Self::Named(path) => path,
            Self::Temporary(file) => file.path(),
        }
    }

    /// To standard output, where it stands in for that.
    fn deliver(&self) -> anyhow::Result<()> {
        let Self::Temporary(file) = self else {
            return Ok(());
        };
        // Another than was opened: the job has put a new one in its place.
        let mut file = File::open(file.path())?;
        let mut output = common::descriptor(&io::stdout())?;
        match io::copy(&mut file, &mut output) {
            Err(fault) if fault.kind() == io::ErrorKind::BrokenPipe => Err(OutputClosed.into()),
            copied => copied.map(drop).context("cannot write standard output"),
        }
    }
}

fn temporary() -> anyhow::Result<NamedTempFile> {
    let file = NamedTempFile::with_prefix("narrows-").context("cannot make a temporary file")?;
    common::remove_when_interrupted(file.path());
    Ok(file)
}

fn method(name: MethodName) -> Method {
    match name {
        MethodName::Deflate => Method::Deflate,
        MethodName::Zstd => Method::Zstd,
        MethodName::Lz4 => Method::Lz4,
    }
}

fn without_ending(file: &Path) -> Result<PathBuf, Usage> {
    let known = file
        .extension()
        .is_some_and(|ending| ["gz", "zst", "lz4"].iter().any(|known| ending == *known));
    if known {
        Ok(file.with_extension(""))
    } else {
        Err(Usage("name the result with --output".into()))
    }
}

fn free(to: &Path, force: bool) -> Result<(), Usage> {
    if !force && to.exists() {
        return Err(Usage(format!(
            "{} is there already; --force replaces it",
            to.display()
        )));
    }
    Ok(())
}
