//! `narrows disk fsck`, `scrub`, `dump`, `grow`, `compact`: what is done to a disk that is not served.

use std::{
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use narrows_core::units::Size;
use narrows_disk::{
    Disk, Settings,
    backing::{self, Backing},
};
use serde_json::json;

use super::{ProfileName, of_disk};
use crate::{
    exit::{Damaged, OutputClosed, Usage},
    output,
};

/// Bad blocks that are listed one by one, at most.
const LISTED_MAX: usize = 20;

#[derive(Debug, clap::Args)]
pub struct Named {
    /// Where the disk was made: file, block device, `rbd:POOL/IMAGE[:id=USER][:conf=FILE]`
    #[arg(long, value_name = "BACKING")]
    pub backing: PathBuf,
    /// Print what was found as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
pub struct DumpArgs {
    /// Where the disk was made
    #[arg(long, value_name = "BACKING")]
    pub backing: PathBuf,
}

#[derive(Debug, clap::Args)]
pub struct GrowArgs {
    /// Where the disk was made
    #[arg(long, value_name = "BACKING")]
    pub backing: PathBuf,
    /// New size of the device
    #[arg(long)]
    pub size: Option<Size>,
    /// New length of the backing; a block device grows by itself, and this takes what it has
    #[arg(long, value_name = "SIZE")]
    pub physical: Option<Size>,
}

#[derive(Debug, clap::Args)]
pub struct CompactArgs {
    /// Where the disk was made
    #[arg(long, value_name = "BACKING")]
    pub backing: PathBuf,
    /// How hard to compress; as the disk was made if not given
    #[arg(long, value_enum)]
    pub profile: Option<ProfileName>,
    /// Print what it came to as JSON
    #[arg(long)]
    pub json: bool,
}

pub fn fsck(args: &Named) -> anyhow::Result<()> {
    let found = narrows_disk::fsck(&open(&args.backing)?).map_err(of_disk)?;
    if args.json {
        let document = json!({ "schema": "narrows.disk-fsck/1", "findings": found });
        output::print(&document.to_string())?;
    } else {
        for note in &found.notes {
            output::print(&format!("note: {note}"))?;
        }
        for error in &found.errors {
            output::print(&format!("error: {error}"))?;
        }
        output::print(&format!(
            "{} blocks in {} units, {} batches replayed, {} errors",
            found.blocks,
            found.units,
            found.batches,
            found.errors.len()
        ))?;
    }
    match found.errors.first() {
        Some(first) => Err(Damaged(format!("{}: {first}", args.backing.display())).into()),
        None => Ok(()),
    }
}

pub fn scrub(args: &Named, quiet: bool) -> anyhow::Result<()> {
    let settings = Settings::default().read_only(true).background(false);
    let disk = Disk::open(open(&args.backing)?, settings).map_err(of_disk)?;
    let bar = output::progress(quiet);
    let bad = disk.scrub(|done, all| bar.set_message(format!("{done} of {all} blocks")));
    bar.finish_and_clear();
    if args.json {
        let document = json!({ "schema": "narrows.disk-scrub/1", "bad_blocks": bad });
        output::print(&document.to_string())?;
    } else {
        for block in bad.iter().take(LISTED_MAX) {
            output::print(&format!(
                "error: block {block} at {} cannot be read",
                block * 4096
            ))?;
        }
        output::print(&format!(
            "{} read, {} blocks bad",
            Size(disk.stat().data),
            bad.len()
        ))?;
    }
    match bad.len() {
        0 => Ok(()),
        bad => Err(Damaged(format!(
            "{}: {bad} blocks cannot be read",
            args.backing.display()
        ))
        .into()),
    }
}

pub fn dump(args: &DumpArgs) -> anyhow::Result<()> {
    let backing = open(&args.backing)?;
    let mut out = Listing(BufWriter::new(io::stdout().lock()), false);
    let listed = narrows_disk::dump(&*backing, &mut out);
    let flushed = out.flush();
    match (out.1, listed, flushed) {
        (true, ..) => Err(OutputClosed.into()),
        (_, Err(error), _) => Err(of_disk(error)),
        (.., flushed) => flushed.context("cannot write the list"),
    }
}

/// Standard output, which remembers whether its reader went away.
struct Listing<W: io::Write>(W, bool);

impl<W: io::Write> Listing<W> {
    fn noted<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        let closed = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
        self.1 |= result.as_ref().err().is_some_and(closed);
        result
    }
}

impl<W: io::Write> io::Write for Listing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.0.write(bytes);
        self.noted(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.0.flush();
        self.noted(result)
    }
}

pub fn grow(args: &GrowArgs, quiet: bool) -> anyhow::Result<()> {
    if args.size.is_none() && args.physical.is_none() {
        return Err(Usage("say --size, --physical or both".into()).into());
    }
    let backing = open(&args.backing)?;
    let bytes = |size: Option<Size>| size.map(|size| size.0);
    narrows_disk::grow(&backing, bytes(args.size), bytes(args.physical)).map_err(of_disk)?;
    if !quiet {
        crate::log::tell!("{} has {} now", backing.name(), Size(backing.size()));
    }
    Ok(())
}

pub fn compact(args: &CompactArgs, quiet: bool) -> anyhow::Result<()> {
    let mut settings = Settings::default().background(false);
    if let Some(profile) = args.profile {
        settings = settings.profile(profile.into());
    }
    let disk = Disk::open(open(&args.backing)?, settings).map_err(of_disk)?;
    let before = disk.stat();
    let bar = output::progress(quiet);
    let compacted = disk.compact(|done, all| bar.set_message(format!("{done} of {all} segments")));
    bar.finish_and_clear();
    compacted.map_err(of_disk)?;
    let after = disk.stat();
    disk.close().map_err(of_disk)?;
    if args.json {
        let document =
            json!({ "schema": "narrows.disk-compact/1", "before": before, "after": after });
        return output::print(&document.to_string());
    }
    let sizes = [before.occupied, after.occupied].map(Size);
    output::print(&format!(
        "{} in {} before, {} now, ratio {:.3}",
        Size(after.data),
        sizes[0],
        sizes[1],
        after.ratio
    ))
}

fn open(name: &Path) -> anyhow::Result<Arc<dyn Backing>> {
    backing::open(name).with_context(|| format!("cannot open {}", name.display()))
}
