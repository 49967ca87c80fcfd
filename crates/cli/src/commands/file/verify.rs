//! `narrows verify`

use std::path::{Path, PathBuf};

use narrows_core::units::Size;
use serde_json::Value;

use super::{
    Threads, each, inputs, open,
    report::{self, Work},
    told,
};
use crate::{exit::Damaged, output};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files to unpack and check; nothing is written. - for standard input, also where none is named
    pub files: Vec<PathBuf>,
    /// Print the result as JSON Lines, `narrows.file/1`
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub threads: Threads,
}

pub fn run(args: &Args, quiet: bool) -> anyhow::Result<()> {
    let files = inputs(&args.files)?;
    each(&files, |path| verify(args, path, quiet))
}

fn verify(args: &Args, path: &Path, quiet: bool) -> anyhow::Result<()> {
    let work = Work::begin();
    let verified = narrows_rest::verify(open(path)?, args.threads.threads)
        .map_err(|fault| told(path, fault))?;
    let summary = &verified.summary;
    let name = path.display();
    if args.json {
        let mut document = work.json("verify", path, None, summary);
        document.insert("sound".into(), verified.losses.is_empty().into());
        document.insert("losses".into(), report::losses(&verified.losses));
        output::print(&Value::Object(document).to_string())?;
    } else if verified.losses.is_empty() && !quiet {
        let (chunks, content) = (summary.chunks(), Size(summary.content_len));
        output::print(&format!(
            "{name}: sound, {chunks} chunks, {content} of content"
        ))?;
    } else {
        for loss in &verified.losses {
            output::print(&format!("{name}: {}", report::lost(loss)))?;
        }
    }
    if verified.losses.is_empty() {
        return Ok(());
    }
    let text = format!("{name} is damaged; `narrows unpack --skip-damaged {name}` reads the rest");
    Err(Damaged(text).into())
}
