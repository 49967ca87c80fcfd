//! `narrows list`

use std::path::{Path, PathBuf};

use comfy_table::{CellAlignment, Table, presets::NOTHING};
use narrows_core::units::Size;
use narrows_rest::{FrameInfo, Listing};
use serde_json::{Value, json};

use super::{each, open, report, told};
use crate::output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files whose index is read; nothing is unpacked
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Show every frame
    #[arg(short = 'a', long)]
    pub frames: bool,
    /// Print the result as JSON Lines, `narrows.file/1`
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut table = table(&[
        "file", "chunks", "content", "packed", "ratio", "type", "codecs",
    ]);
    let mut rows = 0;
    let done = each(&args.files, |path| {
        let listing = narrows_rest::list(open(path)?).map_err(|fault| told(path, fault))?;
        if args.json {
            return output::print(&document(path, &listing, args.frames).to_string());
        }
        if args.frames {
            return output::print(&frames(path, &listing.frames));
        }
        table.add_row(row(path, &listing));
        rows += 1;
        Ok(())
    });
    if rows > 0 {
        output::print(&table.trim_fmt())?;
    }
    done
}

fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(head.to_vec());
    let last = head.len() - 1;
    for (n, column) in table.column_iter_mut().enumerate() {
        if n > 0 && n < last {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn row(path: &Path, listing: &Listing) -> Vec<String> {
    let summary = &listing.summary;
    vec![
        path.display().to_string(),
        summary.chunks().to_string(),
        Size(summary.content_len).to_string(),
        Size(summary.packed_len).to_string(),
        format!("{:.2}", summary.ratio()),
        summary
            .element
            .map_or("", |element| element.name())
            .to_owned(),
        report::shares(summary),
    ]
}

fn frames(path: &Path, frames: &[FrameInfo]) -> String {
    let mut table = table(&["offset", "content", "at", "packed", "ratio", "codec"]);
    for frame in frames {
        let ratio = frame.raw_len as f64 / frame.packed_len.max(1) as f64;
        table.add_row([
            frame.offset.to_string(),
            frame.raw_len.to_string(),
            frame.at.to_string(),
            frame.packed_len.to_string(),
            format!("{ratio:.2}"),
            frame.codec.to_owned(),
        ]);
    }
    format!("{}\n{}", path.display(), table.trim_fmt())
}

fn document(path: &Path, listing: &Listing, frames: bool) -> Value {
    let mut document = report::describe("list", path, &listing.summary);
    if frames {
        let frames = listing.frames.iter().map(|frame| {
            json!({
                "offset": frame.offset, "raw_bytes": frame.raw_len, "at": frame.at,
                "packed_bytes": frame.packed_len, "codec": frame.codec,
            })
        });
        document.insert("frames".into(), frames.collect());
    }
    Value::Object(document)
}
