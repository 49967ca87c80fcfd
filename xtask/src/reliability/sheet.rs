//! The sheet as a file and as a page.

use std::{collections::BTreeMap, fmt::Write, fs, path::Path, process::Command};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::rows::{ROWS, Spec};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    NotRun,
    Passed,
    Failed,
    LeftOut,
    Missing,
}

const STATES: [(State, &str); 5] = [
    (State::NotRun, "not run"),
    (State::Passed, "passed"),
    (State::Failed, "failed"),
    (State::LeftOut, "left out"),
    (State::Missing, "missing"),
];

/// What a row found.
#[derive(Debug, Clone, Default)]
pub(super) struct Entry {
    pub(super) state: State,
    pub(super) rounds: u64,
    pub(super) counts: BTreeMap<String, f64>,
    pub(super) command: String,
    pub(super) seconds: f64,
    pub(super) date: String,
    pub(super) machine: String,
    pub(super) commit: String,
    pub(super) note: String,
}

#[derive(Debug, Default)]
pub(super) struct Sheet {
    pub(super) full: bool,
    entries: BTreeMap<String, Entry>,
}

impl Entry {
    /// When, where and of what.
    pub(super) fn stamp(&mut self) {
        self.date = said(&["date", "-u", "+%F"]);
        self.commit = said(&["git", "rev-parse", "--short=12", "HEAD"]);
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus
            .lines()
            .find(|line| line.starts_with("model name"))
            .and_then(|line| line.split(": ").nth(1));
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        self.machine = format!(
            "{count} processors of {}, {}",
            model.unwrap_or("an unnamed kind"),
            said(&["uname", "-sr"])
        );
    }

    /// Counts in words.
    pub(super) fn figure(&self) -> String {
        let counts = self
            .counts
            .iter()
            .map(|(name, number)| format!("{} {name}", grouped(*number)));
        counts.collect::<Vec<_>>().join(", ")
    }

    fn json(&self, id: &str) -> Value {
        let state = STATES
            .iter()
            .find(|(state, _)| *state == self.state)
            .map_or("", |(_, name)| name);
        json!({ "id": id, "state": state, "rounds": self.rounds, "counts": self.counts, "command": self.command,
            "seconds": (self.seconds * 10.0).round() / 10.0, "date": self.date, "machine": self.machine, "commit": self.commit, "note": self.note })
    }

    fn read(value: &Value) -> Self {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let counts = value["counts"].as_object().into_iter().flatten();
        Self {
            state: STATES
                .iter()
                .find(|(_, name)| value["state"] == *name)
                .map_or(State::NotRun, |(state, _)| *state),
            rounds: value["rounds"].as_u64().unwrap_or(0),
            counts: counts
                .filter_map(|(name, number)| Some((name.clone(), number.as_f64()?)))
                .collect(),
            command: text("command"),
            seconds: value["seconds"].as_f64().unwrap_or(0.0),
            date: text("date"),
            machine: text("machine"),
            commit: text("commit"),
            note: text("note"),
        }
    }
}

fn said(words: &[&str]) -> String {
    let output = Command::new(words[0]).args(&words[1..]).output();
    output.map_or_else(
        |_| "unknown".into(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

impl Sheet {
    pub(super) fn read(path: &Path) -> Result<Self> {
        if !path.exists() {
            return Ok(Self::default());
        }
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let value: Value = serde_json::from_str(&text)
            .with_context(|| format!("{} is no sheet", path.display()))?;
        let rows = value["rows"].as_array().into_iter().flatten();
        Ok(Self {
            full: value["full"] == true,
            entries: rows
                .filter_map(|row| Some((row["id"].as_str()?.to_owned(), Entry::read(row))))
                .collect(),
        })
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let rows: Vec<Value> = ROWS
            .iter()
            .map(|spec| {
                self.entries
                    .get(&spec.id)
                    .cloned()
                    .unwrap_or_default()
                    .json(&spec.id)
            })
            .collect();
        let value = json!({ "schema": "narrows.reliability/1", "full": self.full, "rows": rows });
        let text = serde_json::to_string_pretty(&value)? + "\n";
        // A sheet that is cut while it is written is no sheet.
        let whole = path.with_extension("new");
        fs::write(&whole, text)?;
        fs::rename(&whole, path).with_context(|| format!("cannot write {}", path.display()))
    }

    pub(super) fn entry(&mut self, id: &str) -> &mut Entry {
        self.entries.entry(id.to_owned()).or_default()
    }

    pub(super) fn failed(&self) -> Vec<String> {
        let failed = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.state == State::Failed);
        failed
            .map(|(id, entry)| format!("{id} ({})", entry.note))
            .collect()
    }

    pub(super) fn summary(&self) -> String {
        let count = |wanted: State| {
            ROWS.iter()
                .filter(|spec| {
                    self.entries
                        .get(&spec.id)
                        .map_or(State::NotRun, |entry| entry.state)
                        == wanted
                })
                .count()
        };
        let counts = STATES
            .iter()
            .map(|(state, name)| (count(*state), name))
            .filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts
            .map(|(count, name)| format!("{count} {name}"))
            .collect();
        format!("{} rows: {}", ROWS.len(), counts.join(", "))
    }
}

/// The page of a sheet.
///
/// # Errors
/// The sheet cannot be read.
pub(crate) fn render(path: &Path) -> Result<String> {
    let sheet = Sheet::read(path)?;
    let entry = |spec: &Spec| sheet.entries.get(&spec.id).cloned().unwrap_or_default();
    let kind = if sheet.full { "full" } else { "quick" };
    let mut text = format!(
        "# What narrows survives\n\n{}. In no row that passed was anything silent: each test fails when wrong bytes pass as right. `cargo xtask reliability --quick` makes such a \
         sheet in three minutes, `--full` in up to three hours; this is a {kind} one. A row that failed, was left out or has nothing to run stays here.\n\n\
         | promise | tried | figure | aim | |\n|---|---|---|---|---|\n",
        sheet.summary()
    );
    for spec in ROWS.iter() {
        let entry = entry(spec);
        let aim = spec.aim.as_ref().map_or_else(String::new, |(name, least)| {
            format!("{} {name}", grouped(*least as f64))
        });
        let reached = spec.aim.as_ref().is_none_or(|(name, least)| {
            entry
                .counts
                .get(name)
                .is_some_and(|count| *count >= *least as f64)
        });
        let state = match entry.state {
            State::Passed if reached => "passed",
            State::Passed => "passed, short of the aim",
            State::Failed => "**failed**",
            State::LeftOut => "left out",
            State::Missing => "**missing**",
            State::NotRun => "not run",
        };
        let _ = writeln!(
            text,
            "| {} | {}: {} | {} | {aim} | {state} |",
            spec.promise,
            spec.id,
            spec.what,
            entry.figure()
        );
    }
    text.push_str("\n## How each row was run\n\n");
    for spec in ROWS.iter() {
        let entry = entry(spec);
        let note = if entry.note.is_empty() {
            String::new()
        } else {
            format!(" {}.", entry.note.trim_end_matches('.'))
        };
        if entry.command.is_empty() {
            let _ = writeln!(text, "- **{}**:{note}", spec.id);
            continue;
        }
        let rounds = if entry.rounds > 1 {
            format!("{} rounds, the last by ", entry.rounds)
        } else {
            String::new()
        };
        let _ = writeln!(
            text,
            "- **{}**: {rounds}`{}`; {:.0} s on {}, {}, commit {}.{note}",
            spec.id, entry.command, entry.seconds, entry.machine, entry.date, entry.commit
        );
    }
    text.push_str("\nMore on single tests and earlier counts: [faults.md](faults.md).\n");
    Ok(text)
}

/// With commas, and with one decimal where it is no whole number.
fn grouped(number: f64) -> String {
    if number.fract() != 0.0 {
        return format!("{number:.1}");
    }
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0.0 {
        format!("-{text}")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: rows that failed or do not exist stay visible, and what was written reads back. Method: a sheet with one of each.
    #[test]
    fn nothing_is_hidden() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("reliability.json");
        let mut sheet = Sheet::default();
        *sheet.entry("bombs") = Entry {
            state: State::Failed,
            note: "41 MiB".into(),
            command: "x".into(),
            ..Entry::default()
        };
        *sheet.entry("resets") = Entry {
            state: State::Passed,
            rounds: 2,
            counts: [("resets".into(), 1389.0)].into(),
            command: "y".into(),
            ..Entry::default()
        };
        sheet.write(&path).unwrap();
        let text = render(&path).unwrap();
        for said in [
            "**failed**",
            "1,389 resets",
            "2 rounds",
            "41 MiB",
            "not run",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
        assert_eq!(Sheet::read(&path).unwrap().failed(), ["bombs (41 MiB)"]);
    }
}
