//! `narrows disk`: a block device that compresses, on a file, a disk or a Ceph RBD image.

mod create;
mod serve;
mod stat;
mod tools;
mod view;

use std::path::PathBuf;

use narrows_core::units::Size;
use narrows_disk::{DiskError, MakeError, Profile, ServedError};
use narrows_nbd::ServeError;

use crate::exit::{Damaged, Usage};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Make a disk on a file, a block device or a Ceph RBD image
    Create(create::Args),
    /// Serve disks over NBD until interrupted
    Serve(Box<serve::Args>),
    /// Show what served disks hold, cost and do, and when they will be full
    Stat(stat::Args),
    /// Check superblocks, map and log of a disk that is not served; changes nothing
    Fsck(tools::Named),
    /// Read all that a disk holds and check it; changes nothing
    Scrub(tools::Named),
    /// List what is where on a backing, for people who look for faults
    Dump(tools::DumpArgs),
    /// Make the device of a disk, its backing or both larger
    Grow(tools::GrowArgs),
    /// Move what is live together, pack it as hard as the profile allows and give the rest back
    Compact(tools::CompactArgs),
}

pub fn run(args: Args, quiet: bool) -> anyhow::Result<()> {
    match args.command {
        Command::Create(args) => create::run(&args, quiet),
        Command::Serve(args) => serve::run(*args, quiet),
        Command::Stat(args) => stat::run(&args),
        Command::Fsck(args) => tools::fsck(&args),
        Command::Scrub(args) => tools::scrub(&args, quiet),
        Command::Dump(args) => tools::dump(&args),
        Command::Grow(args) => tools::grow(&args, quiet),
        Command::Compact(args) => tools::compact(&args, quiet),
    }
}

/// How hard to compress, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ProfileName {
    /// LZ4 always: least processor time
    Fast,
    /// LZ4 while requests queue, zstd while they do not; idle data is packed harder
    Balanced,
    /// zstd at once; the strongest codecs when idle
    Dense,
}

impl From<ProfileName> for Profile {
    fn from(name: ProfileName) -> Self {
        match name {
            ProfileName::Fast => Self::Fast,
            ProfileName::Balanced => Self::Balanced,
            ProfileName::Dense => Self::Dense,
        }
    }
}

/// Where the control socket is if nobody says: in the directory for one's own sockets, where there is one.
fn control_path(asked: Option<PathBuf>) -> PathBuf {
    asked.unwrap_or_else(|| {
        let dir =
            std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        dir.join("narrows-disk.control")
    })
}

/// An error of a store with its exit code: the command line's, damage, or another.
fn of_disk(error: DiskError) -> anyhow::Error {
    match error {
        DiskError::Settings(_) => Usage(error.to_string()).into(),
        DiskError::Damaged { .. } | DiskError::Truncated { .. } => {
            Damaged(error.to_string()).into()
        }
        error => error.into(),
    }
}

fn of_make(error: MakeError) -> anyhow::Error {
    match error {
        MakeError::Disk(error) => of_disk(error),
        error => error.into(),
    }
}

fn of_served(error: ServedError) -> anyhow::Error {
    match error {
        ServedError::Disk(error) => of_disk(error),
        ServedError::Serve(ServeError::Export(error)) => Usage(error.to_string()).into(),
        ServedError::Serve(ServeError::Refused(refused)) => refused.into(),
        ServedError::Serve(ServeError::Auth(error)) => narrows::unproven(&error).into(),
        error => error.into(),
    }
}

/// A number of bytes for people.
fn size(bytes: u64) -> Size {
    Size(bytes)
}
