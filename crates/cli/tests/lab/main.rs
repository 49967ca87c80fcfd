//! The laboratory's commands as a user runs them, on sizes that take seconds: their lines against the schema, their
//! reports in a real browser.

mod advise;
mod bench;
#[path = "../browser/mod.rs"]
mod browser;
mod offload;
mod schema;
mod study;
mod tco;

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

fn narrows(words: &[&str], dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_narrows")).args(words).stdin(Stdio::null()).current_dir(dir).output().unwrap()
}

/// Standard output of a run that must end well.
fn told(words: &[&str], dir: &Path) -> String {
    let out = narrows(words, dir);
    assert!(out.status.success(), "{words:?}: {out:?}");
    String::from_utf8(out.stdout).unwrap()
}

// Goal: what `try` measured can be kept and drawn again. Method: two rounds, as lines, as a report.
#[test]
fn try_writes_result_lines_and_report_draws_them() {
    let dir = tempfile::tempdir().unwrap();
    let words =
        ["try", "--seconds", "0.1", "--repeat", "2", "--link", "1gbit", "--race", "none,naive:lz4,zstd:1,adaptive"];
    told(&[&words[..], &["--no-report", "--results", "t.jsonl"]].concat(), dir.path());
    let lines = std::fs::read_to_string(dir.path().join("t.jsonl")).unwrap();
    schema::check(&lines);
    let rounds = lines.lines().count() - 1;
    assert!(
        (4..=8).contains(&rounds) && lines.contains("\"policy\":\"naive\"") && lines.contains("\"codec\":\"zstd:1\""),
        "{lines}"
    );
    told(&["report", "t.jsonl"], dir.path());
    browser::look_at(&dir.path().join("narrows-report.html"), 1);
}
