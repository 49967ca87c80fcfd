//! `narrows pack`, `unpack`, `cat`, `list`, `verify`, `convert`: files of frames, in the manners of zstd's command line.

mod cat;
mod convert;
mod list;
mod pack;
mod place;
mod report;
mod unpack;
mod verify;

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, IsTerminal, Read, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;
use indicatif::ProgressBar;
use narrows_core::units::Size;
use narrows_rest::{Element, FileError, Goal};

use super::{common, options::threads};
use crate::exit::{OutputClosed, Usage};

pub use cat::Args as CatArgs;
pub use convert::Args as ConvertArgs;
pub use list::Args as ListArgs;
pub use pack::Args as PackArgs;
pub use unpack::Args as UnpackArgs;
pub use verify::Args as VerifyArgs;

pub use cat::run as cat;
pub use convert::run as convert;
pub use list::run as list;
pub use pack::run as pack;
pub use unpack::run as unpack;
pub use verify::run as verify;

/// What the content is, and what it is packed for.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Packing")]
pub struct Packing {
    /// As much work as zstd does at this level, 1 to 19; also -1 to -19. [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=19))]
    pub level: Option<u8>,
    /// What for: speed (level 1), balanced (3) or size (19)
    #[arg(long, value_name = "GOAL", conflicts_with = "level")]
    pub goal: Option<Goal>,
    /// The files are arrays of these numbers, little-endian: f16, f32, f64, i8 to i64, u8 to u64. Found out if not given
    #[arg(long = "type", value_name = "TYPE")]
    pub element: Option<Element>,
    /// Content of a chunk, 4K to 16M; by the level if not given, 2M to 8M
    #[arg(long, value_name = "SIZE")]
    pub chunk: Option<Size>,
}

impl Packing {
    fn options(&self, threads: usize) -> narrows_rest::FileOptions {
        let goal = match (self.level, self.goal) {
            (Some(level), _) => Goal::Level(level),
            (None, goal) => goal.unwrap_or_default(),
        };
        let chunk = self.chunk.map_or(0, |Size(len)| len);
        narrows_rest::FileOptions::default()
            .goal(goal)
            .element(self.element)
            .threads(threads)
            .chunk_len(usize::try_from(chunk).unwrap_or(usize::MAX))
    }
}

/// Threads of a command.
#[derive(Debug, Clone, clap::Args)]
pub struct Threads {
    /// Threads that pack or unpack; 0 means one for each processor
    #[arg(short = 'T', long, default_value_t = 0, env = "NARROWS_THREADS", value_parser = threads)]
    pub threads: usize,
}

/// Where results go, and whether what is there may be replaced.
#[derive(Debug, Clone, clap::Args)]
pub struct Output {
    /// Where the result goes, - for standard output; beside the file if not given
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write to standard output
    #[arg(short = 'c', long, conflicts_with = "output")]
    pub stdout: bool,
    /// Replace files that are there; write packed bytes to a terminal
    #[arg(short, long)]
    pub force: bool,
    /// Keep the files that were read: what happens anyway
    #[arg(short, long, conflicts_with = "rm")]
    pub keep: bool,
    /// Remove a file that was read once its result is in place
    #[arg(long, conflicts_with = "stdout")]
    pub rm: bool,
    /// Print results as JSON Lines, `narrows.file/1`
    #[arg(long, conflicts_with = "stdout")]
    pub json: bool,
}

/// Words in which a number of digits behind a dash is a level, as zstd has it, rewritten to `--level=N`, and the name of
/// a link to the program to a command.
pub fn manners(mut words: Vec<OsString>) -> Vec<OsString> {
    let called = words.first().map(|word| Path::new(word).file_name());
    if called.flatten() == Some(OsStr::new("narrowscat")) {
        words.insert(1, "cat".into());
    }
    let command = words.iter().skip(1).find(|word| {
        let word = word.as_encoded_bytes();
        !word.starts_with(b"-")
    });
    if !command.is_some_and(|command| command == "pack" || command == "convert") {
        return words;
    }
    let mut ended = false;
    let rewrite = |word: OsString| {
        ended |= word == "--";
        let text = word.to_str().filter(|_| !ended);
        let Some(flags) = text.and_then(|text| text.strip_prefix('-')) else {
            return vec![word];
        };
        let rest = flags.trim_start_matches(|c: char| c.is_ascii_digit());
        let digits = &flags[..flags.len() - rest.len()];
        if digits.is_empty() {
            return vec![word];
        }
        let level = OsString::from(format!("--level={digits}"));
        match rest {
            "" => vec![level],
            _ => vec![level, format!("-{rest}").into()],
        }
    };
    words.into_iter().flat_map(rewrite).collect()
}

/// Standard input or output by its name.
fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

/// The files that were named, or standard input where none is and it is no terminal.
fn inputs(files: &[PathBuf]) -> Result<Vec<PathBuf>, Usage> {
    if !files.is_empty() {
        return Ok(files.to_vec());
    }
    if io::stdin().is_terminal() {
        return Err(Usage("name a file, or - for standard input".into()));
    }
    Ok(vec![PathBuf::from("-")])
}

/// Opens a file or standard input.
fn open(path: &Path) -> anyhow::Result<File> {
    if is_standard(path) {
        return common::descriptor(&io::stdin()).context("cannot read standard input");
    }
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let is_dir = file.metadata().is_ok_and(|meta| meta.is_dir());
    if is_dir {
        return Err(Usage(format!(
            "{} is a directory; pack what `tar -c` makes of it",
            path.display()
        ))
        .into());
    }
    Ok(file)
}

/// A fault of reading or writing what is named, with its name and, of a damaged file, what to do.
fn told(path: &Path, fault: FileError) -> anyhow::Error {
    let name = if is_standard(path) {
        "standard input".into()
    } else {
        path.display().to_string()
    };
    let advice = match &fault {
        FileError::NotNarrows => "; `narrows convert` reads gzip, zstd and LZ4 files".into(),
        fault if fault.is_damage() => {
            format!("; `narrows unpack --skip-damaged {name}` reads the rest")
        }
        _ => String::new(),
    };
    anyhow::Error::new(fault).context(format!("{name} cannot be read{advice}"))
}

/// Copies all of `from` to `to`, and says how far it is.
fn copy(
    from: &mut impl Read,
    to: &mut impl Write,
    bar: &ProgressBar,
    read: impl Fn(io::Error) -> anyhow::Error,
    wrote: impl Fn(io::Error) -> anyhow::Error,
) -> anyhow::Result<u64> {
    let mut buffer = vec![0; BUFFER_LEN];
    let mut copied = 0;
    loop {
        let len = match from.read(&mut buffer) {
            Ok(0) => return Ok(copied),
            Ok(len) => len,
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => continue,
            Err(fault) => return Err(read(fault)),
        };
        to.write_all(&buffer[..len]).map_err(&wrote)?;
        copied += len as u64;
        bar.set_position(copied);
    }
}

/// Bytes copied at once.
const BUFFER_LEN: usize = 1 << 20;

/// A fault of writing to `name`.
fn unwritten(name: &str, fault: io::Error) -> anyhow::Error {
    if fault.kind() == io::ErrorKind::BrokenPipe {
        return anyhow::Error::new(OutputClosed);
    }
    anyhow::Error::new(fault).context(format!("cannot write {name}"))
}

/// Does `work` for each file, goes on behind one that failed, and fails at the end if any did.
fn each(
    files: &[PathBuf],
    mut work: impl FnMut(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if let [only] = files {
        return work(only);
    }
    let mut failed = crate::exit::Several::default();
    for path in files {
        if let Err(fault) = work(path) {
            failed.add(crate::exit::say(&fault));
        }
    }
    failed.result(files.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_as_zstd_reads_them() {
        let read = |line: &str| {
            let words = line.split(' ').map(OsString::from).collect();
            let words = manners(words);
            let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
            words.join(" ")
        };
        for (line, expected) in [
            ("narrows pack -19 a", "narrows pack --level=19 a"),
            ("narrows -q pack -3fk a", "narrows -q pack --level=3 -fk a"),
            ("narrows pack -T2 -o - a", "narrows pack -T2 -o - a"),
            ("narrows pack -- -1", "narrows pack -- -1"),
            ("narrows bench -1", "narrows bench -1"),
            ("/usr/bin/narrowscat a", "/usr/bin/narrowscat cat a"),
        ] {
            assert_eq!(read(line), expected);
        }
    }
}
