//! `narrows unpack`

use std::{
    fs,
    path::{Path, PathBuf},
};

use narrows_rest::{FileError, Reader};
use serde_json::Value;

use super::{
    super::common,
    Output, Threads, copy, each, inputs, is_standard, open,
    place::Place,
    report::{self, Work},
    told, unwritten,
};
use crate::{
    exit::{Damaged, Usage},
    output,
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files to unpack, FILE.narrows into FILE; - for standard input, also where none is named
    pub files: Vec<PathBuf>,
    /// Go on behind damage: zeros stand for chunks that are lost, and each is named on stderr. The exit code is 3
    #[arg(long)]
    pub skip_damaged: bool,
    #[command(flatten)]
    pub threads: Threads,
    #[command(flatten)]
    pub output: Output,
}

pub fn run(args: &Args, quiet: bool) -> anyhow::Result<()> {
    let files = inputs(&args.files)?;
    if files.len() > 1 && args.output.output.is_some() {
        return Err(
            Usage("several files have a result each; leave -o out, or use -c".into()).into(),
        );
    }
    common::on_signal()?;
    each(&files, |path| unpack(args, path, quiet))
}

fn unpack(args: &Args, path: &Path, quiet: bool) -> anyhow::Result<()> {
    let work = Work::begin();
    let mut reader = Reader::new(open(path)?).threads(args.threads.threads);
    if args.skip_damaged {
        reader = reader.skip_damaged();
    }
    let mut place = Place::of(&args.output, path, false, || without_ending(path))?;
    let name = place.name().to_owned();
    let is_file = place.is_file();
    let bar = output::progress(quiet);
    let wrote = |fault| unwritten(&name, fault);
    let unread = |fault| told(path, FileError::from_io(fault));
    copy(&mut reader, &mut place, &bar, unread, wrote)?;
    place.finish()?;
    bar.finish_and_clear();
    let (summary, losses) = (reader.summary(), reader.losses());
    if args.output.rm && is_file && losses.is_empty() && !is_standard(path) {
        fs::remove_file(path).map_err(|fault| unwritten(&path.display().to_string(), fault))?;
    }
    if args.output.json {
        let mut document = work.json("unpack", path, is_file.then_some(&name), summary);
        document.insert("losses".into(), report::losses(losses));
        output::print(&Value::Object(document).to_string())?;
    } else if is_file && !quiet {
        output::print(&work.line(&name, summary))?;
    }
    if losses.is_empty() {
        return Ok(());
    }
    for loss in losses {
        crate::log::tell!("narrows: {}: {}", path.display(), report::lost(loss));
    }
    let text = format!(
        "{} is damaged; {name} has zeros for what is lost",
        path.display()
    );
    Err(Damaged(text).into())
}

fn without_ending(path: &Path) -> Result<PathBuf, Usage> {
    let ends = path
        .extension()
        .is_some_and(|ending| ending == narrows_rest::EXTENSION);
    if ends {
        return Ok(path.with_extension(""));
    }
    Err(Usage(format!(
        "{} does not end in .narrows; name the result with -o, or use -c",
        path.display()
    )))
}
