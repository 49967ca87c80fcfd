//! What was done to a file, for people and for scripts: `narrows.file/1`.

use std::{path::Path, time::Instant};

use narrows_core::units::{Rate, Size};
use narrows_io::meter::CpuTime;
use narrows_rest::{Loss, Summary};
use serde_json::{Map, Value, json};

use super::is_standard;

/// A file being worked on.
pub struct Work {
    began: Instant,
    cpu_ns: u64,
}

impl Work {
    /// Begins now.
    pub fn begin() -> Self {
        Self {
            began: Instant::now(),
            cpu_ns: CpuTime::of_process().total_ns(),
        }
    }

    /// What it took, in seconds: by the clock, and of processors.
    fn took(&self) -> (f64, f64) {
        let cpu_ns = CpuTime::of_process().total_ns() - self.cpu_ns;
        (self.began.elapsed().as_secs_f64(), cpu_ns as f64 / 1e9)
    }

    /// One line for people.
    pub fn line(&self, output: &str, summary: &Summary) -> String {
        let (seconds, cpu_s) = self.took();
        let rate = Rate(summary.content_len as f64 / seconds.max(1e-9));
        format!(
            "{output}: {} of content, {} packed (ratio {:.2}, {}), {seconds:.2} s: {rate}, {cpu_s:.2} s of processor time",
            Size(summary.content_len),
            Size(summary.packed_len),
            summary.ratio(),
            shares(summary),
        )
    }

    /// The document for scripts.
    pub fn json(
        &self,
        command: &str,
        path: &Path,
        output: Option<&str>,
        summary: &Summary,
    ) -> Map<String, Value> {
        let (seconds, cpu_s) = self.took();
        let mut document = describe(command, path, summary);
        document.insert("output".into(), json!(output));
        document.insert("seconds".into(), json!(seconds));
        document.insert("cpu_s".into(), json!(cpu_s));
        document
    }
}

/// What a file holds, as a document.
pub fn describe(command: &str, path: &Path, summary: &Summary) -> Map<String, Value> {
    let codecs: Map<_, _> = summary
        .codecs
        .iter()
        .map(|(name, share)| {
            let share = json!({
                "chunks": share.chunks, "raw_bytes": share.raw_len, "packed_bytes": share.packed_len,
            });
            ((*name).to_owned(), share)
        })
        .collect();
    let path = (!is_standard(path)).then(|| path.display().to_string());
    let document = json!({
        "schema": "narrows.file/1",
        "command": command,
        "path": path,
        "files": summary.files,
        "content_bytes": summary.content_len,
        "file_bytes": summary.packed_len,
        "ratio": summary.ratio(),
        "chunks": summary.chunks(),
        "codecs": codecs,
        "type": summary.element.map(|element| element.name()),
        "xxh3": format!("{:016x}", summary.content_check),
    });
    match document {
        Value::Object(document) => document,
        _ => unreachable!("it was written as an object"),
    }
}

/// Which codecs packed how many chunks: `zstd 3, pages 1`.
pub fn shares(summary: &Summary) -> String {
    let shares: Vec<_> = summary
        .codecs
        .iter()
        .map(|(name, share)| format!("{name} {}", share.chunks))
        .collect();
    if shares.is_empty() {
        return "no chunk".into();
    }
    shares.join(", ")
}

/// What is lost, as documents.
pub fn losses(losses: &[Loss]) -> Value {
    let losses = losses.iter().map(
        |loss| json!({ "offset": loss.offset, "len": loss.len, "at": loss.at, "what": loss.what }),
    );
    losses.collect()
}

/// What is lost, for people.
pub fn lost(loss: &Loss) -> String {
    let (at, what) = (loss.at, loss.what);
    let place = match loss.len {
        Some(0) => "no content is lost".into(),
        Some(len) => format!(
            "content bytes {} to {} are lost",
            loss.offset,
            loss.offset + len
        ),
        None => format!(
            "what follows content byte {}, if anything, is lost",
            loss.offset
        ),
    };
    format!("{place}: {what}, at byte {at} of the file")
}
