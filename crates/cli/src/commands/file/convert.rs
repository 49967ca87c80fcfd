//! `narrows convert`: to and from gzip, zstd and LZ4 files.

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

use indicatif::ProgressBar;
use narrows_core::units::Size;
use narrows_offload::{
    Method,
    container::{self, Out},
};
use narrows_rest::{
    FileError, Writer,
    foreign::{Format, decode},
    ordered::Ordered,
};
use serde_json::json;

use super::{
    super::common, Output, Packing, Threads, copy, is_standard, open, place::Place, told, unwritten,
};
use crate::{exit::Usage, output};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A .narrows, .gz, .zst or .lz4 file, told by its first bytes; - for standard input
    pub file: PathBuf,
    /// What to make of it; by the ending of -o if not given, else .narrows of others and .zst of .narrows
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    pub to: Option<Format>,
    #[command(flatten)]
    pub threads: Threads,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub packing: Packing,
}

fn format(text: &str) -> Result<Format, String> {
    Format::of_extension(text).ok_or_else(|| "there are narrows, gz, zst and lz4".into())
}

pub fn run(args: &Args, quiet: bool) -> anyhow::Result<()> {
    common::on_signal()?;
    let file = open(&args.file)?;
    let (from, mut reader) =
        decode(file, args.threads.threads).map_err(|fault| unreadable(&args.file, fault))?;
    let named = args.output.output.as_deref().and_then(Path::extension);
    let named = named.and_then(|ending| Format::of_extension(ending.to_str()?));
    let to = args.to.or(named).unwrap_or(match from {
        Format::Narrows => Format::Zstd,
        _ => Format::Narrows,
    });
    let place = Place::of(&args.output, &args.file, true, || {
        beside(&args.file, from, to)
    })?;
    let (name, is_file) = (place.name().to_owned(), place.is_file());
    let bar = output::progress(quiet);
    let (content, packed) = match to {
        Format::Narrows => to_narrows(args, &mut reader, place, &bar)?,
        _ => to_other(args, to, &mut reader, place, &bar)?,
    };
    bar.finish_and_clear();
    if args.output.rm && is_file && !is_standard(&args.file) {
        std::fs::remove_file(&args.file)
            .map_err(|fault| unwritten(&args.file.display().to_string(), fault))?;
    }
    if args.output.json {
        let path = (!is_standard(&args.file)).then(|| args.file.display().to_string());
        let document = json!({
            "schema": "narrows.file/1", "command": "convert", "path": path,
            "output": is_file.then_some(&name), "from": from.extension(), "to": to.extension(),
            "content_bytes": content, "file_bytes": packed,
            "ratio": content.max(1) as f64 / packed.max(1) as f64,
        });
        output::print(&document.to_string())?;
    } else if is_file && !quiet {
        output::print(&format!(
            "{name}: {} of content, {} packed",
            Size(content),
            Size(packed)
        ))?;
    }
    Ok(())
}

/// Content and packed bytes.
type Lens = (u64, u64);

fn to_narrows(
    args: &Args,
    reader: &mut dyn Read,
    place: Place,
    bar: &ProgressBar,
) -> anyhow::Result<Lens> {
    let name = place.name().to_owned();
    let options = args.packing.options(args.threads.threads);
    let mut writer = Writer::new(place, &options).map_err(|fault| Usage(fault.to_string()))?;
    let wrote = |fault| unwritten(&name, fault);
    let unread = |fault| unreadable(&args.file, FileError::from_io(fault));
    copy(&mut &mut *reader, &mut writer, bar, unread, wrote)?;
    let (place, summary) = writer.finish().map_err(|fault| wrote(fault.into()))?;
    place.finish()?;
    Ok((summary.content_len, summary.packed_len))
}

fn to_other(
    args: &Args,
    to: Format,
    reader: &mut dyn Read,
    place: Place,
    bar: &ProgressBar,
) -> anyhow::Result<Lens> {
    let method = match to {
        Format::Gzip => Method::Deflate,
        Format::Lz4 => Method::Lz4,
        _ => Method::Zstd,
    };
    if args.packing.element.is_some() || args.packing.goal.is_some() || args.packing.chunk.is_some()
    {
        let text = "--type, --goal and --chunk are for .narrows files; --level is for all";
        return Err(Usage(text.into()).into());
    }
    if method == Method::Lz4 && !place.is_file() {
        let text = "an LZ4 file's first bytes are known last; name a file with -o";
        return Err(Usage(text.into()).into());
    }
    let level = args.packing.level.map_or(method.level_default(), i16::from);
    let worker = method
        .packer(&narrows::default_registry(), level)
        .map_err(|fault| Usage(fault.to_string()))?;
    let name = place.name().to_owned();
    let block_len = block_len(method);
    let mut export = Export {
        place: Counted(place, 0),
        writer: container::writer(method, block_len),
        jobs: Ordered::new(common::processors(args.threads.threads)),
    };
    let mut content = 0;
    loop {
        let mut raw = Vec::new();
        reader
            .take(block_len as u64)
            .read_to_end(&mut raw)
            .map_err(|fault| unreadable(&args.file, FileError::from_io(fault)))?;
        if raw.is_empty() {
            break;
        }
        content += raw.len() as u64;
        bar.set_position(content);
        export
            .make_room()
            .map_err(|fault| unwritten(&name, fault))?;
        let worker = worker.clone();
        export.jobs.submit(move |ws| {
            let mut out = vec![0; raw.len()];
            let packed = worker.pack(&raw, &mut out, ws).map(|len| {
                out.truncate(len);
                out
            });
            let check = method.check(&raw);
            Block { raw, packed, check }
        });
    }
    let place = export.end().map_err(|fault| unwritten(&name, fault))?;
    let packed = place.1;
    place.0.finish()?;
    Ok((content, packed))
}

/// Blocks as long as their formats' programs unpack well: gzip and LZ4 find nothing further back, zstd does.
fn block_len(method: Method) -> usize {
    match method {
        Method::Deflate => 1 << 20,
        Method::Lz4 => 4 << 20,
        Method::Zstd => 8 << 20,
    }
}

/// Writes packed blocks in order.
struct Export {
    place: Counted,
    writer: Box<dyn container::Writer>,
    jobs: Ordered<Block>,
}

/// A block, packed if that made it shorter.
struct Block {
    raw: Vec<u8>,
    packed: Option<Vec<u8>>,
    check: u32,
}

impl Export {
    /// Writes the oldest blocks until another may be packed.
    fn make_room(&mut self) -> io::Result<()> {
        while self.jobs.is_full() {
            self.put()?;
        }
        Ok(())
    }

    /// Writes the oldest block; whether there was one.
    fn put(&mut self) -> io::Result<bool> {
        let Some(block) = self.jobs.wait_next() else {
            return Ok(false);
        };
        let block = block.ok_or_else(|| io::Error::other("a codec failed while packing"))?;
        let packed = block.packed.as_deref();
        self.writer
            .block(&block.raw, packed, block.check, &mut self.place)?;
        Ok(true)
    }

    fn end(mut self) -> io::Result<Counted> {
        while self.put()? {}
        self.writer.end(&mut self.place)?;
        Ok(self.place)
    }
}

/// A place, and the bytes written to it.
struct Counted(Place, u64);

impl Out for Counted {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.1 += bytes.len() as u64;
        self.0.append(bytes)
    }

    fn rewrite_start(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.rewrite_start(bytes)
    }
}

fn beside(path: &Path, from: Format, to: Format) -> Result<PathBuf, Usage> {
    let ends = path
        .extension()
        .is_some_and(|ending| ending == from.extension());
    let bare = if ends {
        path.with_extension("")
    } else {
        path.into()
    };
    let mut name = bare.into_os_string();
    name.push(".");
    name.push(to.extension());
    Ok(name.into())
}

fn unreadable(path: &Path, fault: FileError) -> anyhow::Error {
    match fault {
        FileError::NotNarrows => told(
            path,
            FileError::Foreign("it begins like no .narrows, .gz, .zst or .lz4 file"),
        ),
        // What the libraries of other formats say of a damaged file.
        FileError::Io(fault)
            if matches!(
                fault.kind(),
                io::ErrorKind::InvalidData
                    | io::ErrorKind::InvalidInput
                    | io::ErrorKind::UnexpectedEof
                    | io::ErrorKind::Other
            ) =>
        {
            let what = crate::exit::Damaged(format!("{} is damaged: {fault}", path.display()));
            anyhow::Error::new(what)
        }
        fault => told(path, fault),
    }
}
