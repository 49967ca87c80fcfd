//! `narrows.result/1`: what was measured, whatever measured it, as JSON Lines.
//!
//! Two kinds of lines. An *origin* says what a run of a command was: machine, commit, command line, seeds. A *row* is
//! one case with its numbers and names its origin by `run`. Any number of files put one after the other is such a file
//! again: that is how shards merge and how a sweep that was cut goes on. `docs/specs/result.schema.json` is the schema,
//! and a test holds every command's lines to it.
//!
//! Reading bounds a line before it is read whole. Units are in the names of values: `_s`, `_bytes`, `_mb_s` (10⁶ bytes
//! a second), `_mbit_s`, `_s_per_gb` (10⁹ bytes).

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Write},
    path::Path,
};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    energy,
    machine::{self, Sheet},
};

/// Name and version of the lines.
pub const SCHEMA: &str = "narrows.result/1";

/// What a run of a command was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// `bench`, `try`, `study`, `advise`, `offload`, `disk`, `published`.
    pub tool: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// The command line.
    pub command: String,
    /// What it ran on.
    pub machine: Sheet,
    /// Where generated data began; in a study with traced data, upper bits of their XXH3 besides.
    pub seeds: Vec<u64>,
    /// `rapl`, or why no row has joules.
    pub energy: String,
}

/// What was measured. What does not apply is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Which part of the tool's work: `sweep`, `calibration`, `prediction`, `figure 9`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// What stores the data: `narrows fast above RBD`, `nbdkit file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// What was done to it: `seq write 128k`, `fill`. Of a transfer, `host_to_device` for a copy to a GPU's memory; absent
    /// for a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Devices of that kind used at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<u64>,
    /// Bytes of a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u64>,
    /// Name of the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Bytes of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_bytes: Option<u64>,
    /// `none`, `naive`, `fixed`, `adaptive`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Codec and level: `zstd:3`, `snappy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub codec: Option<String>,
    /// Longest chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk_bytes: Option<u64>,
    /// Chunks under way at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u64>,
    /// Most bytes before a chunk that it may refer to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history_bytes: Option<u64>,
    /// Threads that pack, and as many that unpack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u64>,
    /// Rate of the link; absent on a case with a link that has no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_mbit_s: Option<f64>,
    /// Delay of the link each way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<f64>,
    /// Whether what does not shrink travels packed all the same (the published pipeline's first variant).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_larger: Option<bool>,
}

/// One case and its numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What was measured.
    pub case: Case,
    /// Numbers by name, units in the name.
    pub values: BTreeMap<String, f64>,
    /// What the tool found special: `pareto_pack`, `best`, `chosen`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub marks: BTreeSet<String>,
    /// Why there are no numbers, or fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// A run with its rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Its name, 16 hexadecimal digits.
    pub id: String,
    /// What it was.
    pub origin: Origin,
    /// What it measured, in order.
    pub rows: Vec<Row>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    schema: String,
    run: String,
    #[serde(flatten)]
    what: What,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum What {
    Origin(Origin),
    Row(Row),
}

/// Why results could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// The file.
    #[error("cannot use the results in {path}: {fault}")]
    File {
        /// Which.
        path: String,
        /// The system's word.
        fault: io::Error,
    },
    /// A line that is none of ours.
    #[error("{path}, line {line}: {what}")]
    Line {
        /// Which file.
        path: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
}

impl Origin {
    /// Of this command on this machine, now.
    #[must_use]
    pub fn now(tool: &str, command: &str, seeds: Vec<u64>) -> Self {
        let energy = match energy::Meter::open() {
            Ok(_) => "rapl".into(),
            Err(why) => why.to_string(),
        };
        let (tool, command) = (tool.into(), command.into());
        Self {
            tool,
            started: machine::now(),
            command,
            machine: Sheet::of_this_machine(),
            seeds,
            energy,
        }
    }
}

impl Row {
    /// A row without marks.
    #[must_use]
    pub fn new<const N: usize>(case: Case, values: [(&str, f64); N]) -> Self {
        let mut row = Self {
            case,
            values: BTreeMap::new(),
            marks: BTreeSet::new(),
            fault: None,
        };
        row.extend(values);
        row
    }

    /// Adds values. JSON has no number for infinity, so what is not finite is left out.
    pub fn extend<const N: usize>(&mut self, values: [(&str, f64); N]) {
        let finite = values.into_iter().filter(|(_, value)| value.is_finite());
        self.values
            .extend(finite.map(|(name, value)| (name.to_string(), value)));
    }

    /// A value by name.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<f64> {
        self.values.get(name).copied()
    }
}

impl Run {
    /// A run that begins now.
    #[must_use]
    pub fn new(origin: Origin) -> Self {
        // Runs of one second on one machine differ by the process; sheets differ by the machine.
        let text = format!(
            "{origin:?} {} {:?}",
            std::process::id(),
            std::time::Instant::now()
        );
        Self {
            id: format!("{:016x}", xxh3_64(text.as_bytes())),
            origin,
            rows: Vec::new(),
        }
    }

    /// Its lines, the origin first.
    #[must_use]
    pub fn lines(&self) -> String {
        let mut text = line(&self.id, What::Origin(self.origin.clone()));
        for row in &self.rows {
            text.push_str(&line(&self.id, What::Row(row.clone())));
        }
        text
    }

    /// Adds the lines to the end of a file, which is made where it is not there.
    ///
    /// # Errors
    /// [`ResultError::File`].
    pub fn append(&self, path: &Path) -> Result<(), ResultError> {
        let mut journal = Journal::open(path, self)?;
        self.rows.iter().try_for_each(|row| journal.add(row))
    }
}

/// A file that rows go to as they are measured, so that a run that is cut loses none.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: String,
    run: String,
}

impl Journal {
    /// Opens `path` for `run`, whose origin is its first line there; what the file holds already stays.
    ///
    /// # Errors
    /// [`ResultError::File`].
    pub fn open(path: &Path, run: &Run) -> Result<Self, ResultError> {
        let name = path.display().to_string();
        let open = || {
            let mut file = OpenOptions::new()
                .create(true)
                .read(true)
                .append(true)
                .open(path)?;
            // A line that a cut run left half must not swallow the next one.
            let ends_line = match file.metadata()?.len() {
                0 => true,
                len => {
                    use std::os::unix::fs::FileExt;
                    let mut last = [0];
                    file.read_exact_at(&mut last, len - 1)?;
                    last == *b"\n"
                }
            };
            if !ends_line {
                file.write_all(b"\n")?;
            }
            file.write_all(line(&run.id, What::Origin(run.origin.clone())).as_bytes())?;
            Ok(file)
        };
        let file = open().map_err(|fault| ResultError::File {
            path: name.clone(),
            fault,
        })?;
        Ok(Self {
            file,
            path: name,
            run: run.id.clone(),
        })
    }

    /// Writes a row, in one call.
    ///
    /// # Errors
    /// [`ResultError::File`].
    pub fn add(&mut self, row: &Row) -> Result<(), ResultError> {
        let text = line(&self.run, What::Row(row.clone()));
        self.file
            .write_all(text.as_bytes())
            .map_err(|fault| ResultError::File {
                path: self.path.clone(),
                fault,
            })
    }
}

/// Reads a file of lines. A line that was cut off by the end of a run is left out: no newline closes it, or the next
/// line begins a run.
///
/// # Errors
/// [`ResultError`].
pub fn read(path: &Path) -> Result<Vec<Run>, ResultError> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|fault| ResultError::File {
        path: name.clone(),
        fault,
    })?;
    parse(BufReader::new(file), &name)
}

/// Reads lines; `name` is for faults.
///
/// # Errors
/// [`ResultError`].
pub fn parse(mut from: impl BufRead, name: &str) -> Result<Vec<Run>, ResultError> {
    let mut runs: Vec<Run> = Vec::new();
    let mut text = Vec::new();
    let mut cut: Option<ResultError> = None;
    for number in 1.. {
        let at = |what: String| ResultError::Line {
            path: name.into(),
            line: number,
            what,
        };
        text.clear();
        let len = from
            .by_ref()
            .take(LINE_LEN_MAX)
            .read_until(b'\n', &mut text);
        let len = len.map_err(|fault| ResultError::File {
            path: name.into(),
            fault,
        })?;
        if len as u64 == LINE_LEN_MAX {
            return Err(at(format!("longer than {LINE_LEN_MAX} bytes")));
        }
        if len == 0 || !text.ends_with(b"\n") {
            // The end, or a line that never got to its own.
            break;
        }
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let line: Line = match serde_json::from_slice(&text) {
            Ok(line) => line,
            Err(fault) => {
                // Half a line is what a cut run leaves, and the next run's origin follows; else it is no line of ours.
                if let Some(fault) = cut.replace(at(format!("no line of {SCHEMA}: {fault}"))) {
                    return Err(fault);
                }
                continue;
            }
        };
        if line.schema != SCHEMA {
            return Err(at(format!("schema `{}`; this reads {SCHEMA}", line.schema)));
        }
        match line.what {
            What::Origin(origin) => {
                cut = None;
                runs.push(Run {
                    id: line.run,
                    origin,
                    rows: Vec::new(),
                });
            }
            What::Row(row) => {
                if let Some(fault) = cut {
                    return Err(fault);
                }
                let run = runs.iter_mut().rev().find(|run| run.id == line.run);
                run.ok_or_else(|| at(format!("run {} has no origin before this line", line.run)))?
                    .rows
                    .push(row);
            }
        }
    }
    cut.map_or(Ok(runs), Err)
}

fn line(run: &str, what: What) -> String {
    let line = Line {
        schema: SCHEMA.into(),
        run: run.into(),
        what,
    };
    let mut text = serde_json::to_string(&line).expect("numbers and text are JSON");
    text.push('\n');
    text
}

/// A line is some hundred bytes; a file of something else must not fill the memory.
const LINE_LEN_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> Run {
        let mut run = Run::new(Origin::now("bench", "narrows bench", vec![7]));
        for threads in 1..4 {
            let case = Case {
                codec: Some("zstd:1".into()),
                threads: Some(threads),
                ..Case::default()
            };
            run.rows.push(Row::new(
                case,
                [("ratio", 2.0), ("pack_mb_s", f64::INFINITY)],
            ));
        }
        run
    }

    fn read_text(text: &str) -> Result<Vec<Run>, ResultError> {
        parse(text.as_bytes(), "it")
    }

    #[test]
    fn lines_read_as_they_were_written_and_infinity_is_left_out() {
        let run = run();
        assert_eq!(read_text(&run.lines()).unwrap(), std::slice::from_ref(&run));
        assert_eq!(run.rows[0].values.len(), 1);
    }

    // Goal: a sweep that was cut anywhere loses one row at most, and its file can be added to. Method: every cut.
    #[test]
    fn a_file_cut_at_any_byte_goes_on() {
        let (dir, run) = (tempfile::tempdir().unwrap(), run());
        let lines = run.lines();
        let first = lines.find('\n').unwrap() + 1;
        let path = dir.path().join("cut.jsonl");
        for cut in first..lines.len() {
            std::fs::write(&path, &lines[..cut]).unwrap();
            let whole = lines[first..cut].matches('\n').count();
            assert_eq!(read(&path).unwrap()[0].rows.len(), whole, "cut at {cut}");
            run.append(&path).unwrap();
            let runs = read(&path).unwrap();
            assert_eq!(
                (runs[0].rows.len(), runs[1].rows.len()),
                (whole + usize::from(lines.as_bytes()[cut] == b'\n'), 3),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn what_is_no_line_of_ours_is_told_with_its_place() {
        let lines = run().lines();
        let row = lines.lines().nth(1).unwrap();
        for (text, said) in [
            (format!("{row}\n"), "line 1: run"),
            ("{}\n{}\n".into(), "line 1"),
            (format!("{lines}nonsense\n"), "line 5"),
            (format!("{lines}nonsense\n{row}\n"), "line 5"),
            (lines.replace("result/1", "result/9"), "result/9"),
            ("x".repeat(2 << 20), "longer"),
        ] {
            let fault = read_text(&text).unwrap_err().to_string();
            assert!(fault.contains(said), "{fault}");
        }
        assert_eq!(read_text("").unwrap(), []);
    }
}
