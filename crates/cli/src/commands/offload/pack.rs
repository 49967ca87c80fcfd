//! `narrows offload pack` and `unpack`: one file, there and back.

use std::path::{Path, PathBuf};

use narrows_core::units::Size;
use narrows_offload::{Method, file};

use super::{super::options::Security, Desk, JobOptions, options, show::show};
use crate::exit::Usage;

#[derive(Debug, clap::Args)]
pub struct PackArgs {
    /// File to pack
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
    /// Where the result goes; beside the file if not given
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
    /// File to unpack: one that `narrows offload pack` wrote, or another whose blocks can be found
    pub file: PathBuf,
    /// Where the result goes; the name without its ending if not given
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
    let to = args.output.clone().unwrap_or_else(|| {
        let mut name = args.file.clone().into_os_string();
        name.push(".");
        name.push(method.extension());
        name.into()
    });
    free(&to, args.force)?;
    file::readable(&args.file)?;
    let desk = Desk::new(&args.job, &args.security)?;
    let report = desk.run(&options, |job| file::pack(job, &args.file, &to))?;
    // The same number of bytes comes back, nothing being done to them.
    let back = report.packed_bytes as f64 / report.raw_bytes.max(1) as f64;
    let copy = args
        .copy
        .then(|| desk.run(&options, |job| file::copy(job, &args.file, back)))
        .transpose()?;
    show(&args.file, &report, copy.as_ref(), args.json, quiet)
}

pub fn unpack(args: &UnpackArgs, quiet: bool) -> anyhow::Result<()> {
    let to = match &args.output {
        Some(to) => to.clone(),
        None => without_ending(&args.file)?,
    };
    free(&to, args.force)?;
    file::readable(&args.file)?;
    // The file says with what, and how long its blocks are.
    let options = options(Method::Deflate, None, None, &args.job)?;
    let report = Desk::new(&args.job, &args.security)?
        .run(&options, |job| file::unpack(job, &args.file, &to))?;
    show(&args.file, &report, None, args.json, quiet)
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
