//! `narrows cat`

use std::{
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use indicatif::ProgressBar;
use narrows_core::units::Size;
use narrows_rest::{FileError, Reader, SeekReader};

use super::{Threads, copy, each, inputs, is_standard, open, place::Place, told, unwritten};
use crate::exit::Usage;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files whose content goes to standard output, one after the other; - for standard input
    pub files: Vec<PathBuf>,
    /// Begin at this byte of the content: what lies before it is not read
    #[arg(long, value_name = "SIZE")]
    pub offset: Option<Size>,
    /// Write so many bytes at most
    #[arg(long, value_name = "SIZE")]
    pub length: Option<Size>,
    #[command(flatten)]
    pub threads: Threads,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let files = inputs(&args.files)?;
    let is_part = args.offset.is_some() || args.length.is_some();
    if is_part && (files.len() > 1 || is_standard(&files[0])) {
        return Err(
            Usage("--offset and --length are of one file that can be sought in".into()).into(),
        );
    }
    each(&files, |path| {
        if is_part {
            part(args, path)
        } else {
            let mut reader = Reader::new(open(path)?).threads(args.threads.threads);
            write(path, &mut reader)
        }
    })
}

fn part(args: &Args, path: &Path) -> anyhow::Result<()> {
    let mut reader = SeekReader::new(open(path)?).map_err(|fault| told(path, fault))?;
    let offset = args.offset.map_or(0, |Size(offset)| offset);
    let length = args.length.map_or(u64::MAX, |Size(length)| length);
    reader
        .seek(SeekFrom::Start(offset))
        .map_err(|fault| told(path, FileError::from_io(fault)))?;
    write(path, &mut reader.take(length))
}

fn write(path: &Path, reader: &mut impl Read) -> anyhow::Result<()> {
    let mut place = Place::stdout(false, false)?;
    let wrote = |fault| unwritten("the output", fault);
    let unread = |fault| told(path, FileError::from_io(fault));
    copy(reader, &mut place, &ProgressBar::hidden(), unread, wrote).map(drop)
}
