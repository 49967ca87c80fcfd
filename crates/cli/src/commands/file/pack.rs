//! `narrows pack`

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use narrows_io::input::Input;
use narrows_rest::{FileError, Writer};
use serde_json::Value;

use super::{
    super::common, Output, Packing, Threads, copy, each, inputs, is_standard, list, open,
    place::Place, report::Work, told, unpack, unwritten, verify,
};
use crate::{exit::Usage, output};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files to pack, each into FILE.narrows; - for standard input, also where none is named
    pub files: Vec<PathBuf>,
    /// Unpack instead, as `narrows unpack`
    #[arg(short, long, conflicts_with_all = ["test", "list", "level", "goal", "element", "chunk"])]
    pub decompress: bool,
    /// Check files instead, as `narrows verify`
    #[arg(short, long, conflicts_with_all = ["list", "level", "goal", "element", "chunk"])]
    pub test: bool,
    /// List files instead, as `narrows list`
    #[arg(short, long, conflicts_with_all = ["level", "goal", "element", "chunk"])]
    pub list: bool,
    #[command(flatten)]
    pub threads: Threads,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub packing: Packing,
}

pub fn run(args: Args, quiet: bool) -> anyhow::Result<()> {
    if args.decompress {
        return unpack::run(
            &unpack::Args {
                files: args.files,
                threads: args.threads,
                output: args.output,
                skip_damaged: false,
            },
            quiet,
        );
    }
    if args.test {
        return verify::run(
            &verify::Args {
                files: args.files,
                threads: args.threads,
                json: args.output.json,
            },
            quiet,
        );
    }
    if args.list {
        return list::run(&list::Args {
            files: args.files,
            frames: false,
            json: args.output.json,
        });
    }
    let files = inputs(&args.files)?;
    if files.len() > 1 && args.output.output.is_some() {
        return Err(
            Usage("several files have a result each; leave -o out, or use -c".into()).into(),
        );
    }
    common::on_signal()?;
    each(&files, |path| pack(&args, path, quiet))
}

fn pack(args: &Args, path: &Path, quiet: bool) -> anyhow::Result<()> {
    let options = args.packing.options(args.threads.threads);
    // Before anything is opened: a wrong setting is no fault of a file.
    Writer::new(Vec::new(), &options.threads(1)).map_err(|fault| Usage(fault.to_string()))?;
    let work = Work::begin();
    let mut input = steady(path, open(path)?).map_err(|fault| told(path, FileError::Io(fault)))?;
    let place = Place::of(&args.output, path, true, || beside(path))?;
    let name = place.name().to_owned();
    let is_file = place.is_file();
    let mut writer = Writer::new(place, &options)?;
    let bar = output::progress(quiet);
    let wrote = |fault| unwritten(&name, fault);
    let unread = |fault| told(path, FileError::Io(fault));
    copy(&mut input, &mut writer, &bar, unread, wrote)?;
    let (mut place, summary) = writer.finish().map_err(|fault| wrote(fault.into()))?;
    place.flush().map_err(wrote)?;
    place.finish()?;
    bar.finish_and_clear();
    if args.output.rm && is_file && !is_standard(path) {
        fs::remove_file(path).map_err(|fault| unwritten(&path.display().to_string(), fault))?;
    }
    if args.output.json {
        let document = work.json("pack", path, is_file.then_some(&name), &summary);
        output::print(&Value::Object(document).to_string())?;
    } else if is_file && !quiet {
        output::print(&work.line(&name, &summary))?;
    }
    Ok(())
}

/// A file is packed as long as it was when it was opened; one that shrinks is an error. Of standard input nobody knows
/// where it ends.
fn steady(path: &Path, file: File) -> io::Result<Box<dyn Read>> {
    if is_standard(path) || !file.metadata()?.is_file() {
        return Ok(Box::new(file));
    }
    let input = Input::new(file)?;
    Ok(Box::new(Steady { input, at: 0 }))
}

struct Steady {
    input: Input,
    at: u64,
}

impl Read for Steady {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let got = self.input.read(self.at, buf)?;
        self.at += got as u64;
        Ok(got)
    }
}

fn beside(path: &Path) -> Result<PathBuf, Usage> {
    if path
        .extension()
        .is_some_and(|ending| ending == narrows_rest::EXTENSION)
    {
        return Err(Usage(format!(
            "{} is packed already; name the result with -o to pack it again",
            path.display()
        )));
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(narrows_rest::EXTENSION);
    Ok(name.into())
}
