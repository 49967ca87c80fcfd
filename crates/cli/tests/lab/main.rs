//! The laboratory's commands as a user runs them, on sizes that take seconds: their lines against the schema, their
//! reports in a real browser.

mod advise;
mod bench;
#[path = "../browser/mod.rs"]
mod browser;
mod offload;
mod published;
mod schema;
mod study;
mod tco;

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

fn narrows(words: &[&str], dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_narrows"))
        .args(words)
        .stdin(Stdio::null())
        .current_dir(dir)
        .output()
        .unwrap()
}

/// Standard output of a run that must end well.
fn told(words: &[&str], dir: &Path) -> String {
    let out = narrows(words, dir);
    assert!(out.status.success(), "{words:?}: {out:?}");
    String::from_utf8(out.stdout).unwrap()
}

/// Measures as little as there is.
const TRY: [&str; 8] = [
    "try",
    "--seconds",
    "0.01",
    "--repeat",
    "1",
    "--race",
    "none",
    "--json",
];
const BENCH: [&str; 9] = [
    "bench",
    "--codec",
    "lz4",
    "-T1",
    "--seconds",
    "0.001",
    "--size",
    "64K",
    "--json",
];

// Goal: a place that cannot be written is told before anything is measured, and looking leaves nothing there. Method:
// places that nobody can write to as a file, root included; most of them only opening finds.
#[test]
fn a_place_that_cannot_be_written_is_wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("dir")).unwrap();
    for (target, link) in [("none/r", "astray"), ("target", "link")] {
        std::os::unix::fs::symlink(target, dir.path().join(link)).unwrap();
    }
    let long = "r".repeat(300);
    for command in [
        &["bench"][..],
        &["try"],
        &["advise", "--link", "1gbit"],
        &["study", "--minutes", "0"],
    ] {
        for place in ["dir", "none/r", "astray", &long] {
            for flag in ["--results", "--report"] {
                let out = narrows(&[command, &[flag, place]].concat(), dir.path());
                let said = String::from_utf8_lossy(&out.stderr);
                assert!(
                    out.status.code() == Some(2) && said.contains(flag),
                    "{command:?} {flag} {place}: {out:?}"
                );
            }
        }
    }
    for place in ["new", "link"] {
        assert_eq!(
            narrows(&["try", "--results", place, "--report", "dir"], dir.path())
                .status
                .code(),
            Some(2)
        );
    }
    assert!(!dir.path().join("new").exists());
    assert!(
        std::fs::symlink_metadata(dir.path().join("link")).is_ok(),
        "the user's link is gone"
    );
}

// Goal: one way out that fails does not take the others. Method: a disk that is full whenever it is written to, and a
// reader that has gone.
#[test]
fn a_full_disk_leaves_the_json_and_a_closed_pipe_leaves_the_files() {
    let dir = tempfile::tempdir().unwrap();
    for words in [&TRY[..], &BENCH] {
        for flag in ["--results", "--report"] {
            let out = narrows(&[words, &[flag, "/dev/full"]].concat(), dir.path());
            assert_eq!(out.status.code(), Some(1), "{words:?} {flag}: {out:?}");
            let first = out.stdout.split(|&byte| byte == b'\n').next().unwrap();
            assert!(
                serde_json::from_slice::<serde_json::Value>(first).is_ok(),
                "{words:?} {flag}: {out:?}"
            );
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_narrows"));
        command
            .args(words)
            .args(["--results", "r.jsonl", "--report", "r.html"])
            .current_dir(dir.path());
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        assert!(child.wait().unwrap().success());
        for name in ["r.jsonl", "r.html"] {
            assert!(
                std::fs::metadata(dir.path().join(name)).unwrap().len() > 0,
                "{words:?} {name}"
            );
            std::fs::remove_file(dir.path().join(name)).unwrap();
        }
    }
}

// Goal: what `try` measured can be kept and drawn again. Method: two rounds, as lines, as a report.
#[test]
fn try_writes_result_lines_and_report_draws_them() {
    let dir = tempfile::tempdir().unwrap();
    let words = [
        "try",
        "--seconds",
        "0.1",
        "--repeat",
        "2",
        "--link",
        "1gbit",
        "--race",
        "none,naive:lz4,zstd:1,adaptive",
    ];
    told(
        &[&words[..], &["--no-report", "--results", "t.jsonl"]].concat(),
        dir.path(),
    );
    let lines = std::fs::read_to_string(dir.path().join("t.jsonl")).unwrap();
    schema::check(&lines);
    let rounds = lines.lines().count() - 1;
    assert!(
        (4..=8).contains(&rounds)
            && lines.contains("\"policy\":\"naive\"")
            && lines.contains("\"codec\":\"zstd:1\""),
        "{lines}"
    );
    told(&["report", "t.jsonl"], dir.path());
    browser::look_at(&dir.path().join("narrows-report.html"), 1);
    browser::look_for_room(&dir.path().join("narrows-report.html"));
}
