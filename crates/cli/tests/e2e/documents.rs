//! Sessions in the documents: what they show is what happens.

use std::{fs, path::Path, process::Command, process::Stdio};

use tempfile::TempDir;

use crate::process::{NARROWS, Process};

/// A line without what differs from run to run: times, speed, and blanks at its ends.
fn steady(line: &str) -> &str {
    line.split_once("), ").map_or(line, |(line, _)| line).trim()
}

// Goal: examples in docs/file.md stay true. Method: each command of its console blocks is run by a shell, in their order, and
// what it prints is compared.
#[test]
fn sessions_in_the_documents_happen() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/file.md");
    let page = fs::read_to_string(page).unwrap();
    let dir = TempDir::new().unwrap();
    let mut ran = 0;
    for block in page.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap();
        for step in block.split("$ ").skip(1) {
            let (line, shown) = step.split_once('\n').unwrap();
            let mut command = Command::new("sh");
            command
                .args(["-c", &format!("exec 2>&1\n{line}")])
                .current_dir(dir.path())
                .env("PATH", path())
                .env("LC_ALL", "C")
                .stdin(Stdio::null());
            let ended = Process::start(&mut command).wait();
            let printed = String::from_utf8(ended.stdout).unwrap();
            let [printed, shown] =
                [&*printed, shown].map(|text| text.lines().map(steady).collect::<Vec<_>>());
            assert_eq!(printed, shown, "{line}");
            ran += 1;
        }
    }
    assert!(ran >= 10, "{ran} commands");
}

/// With this build's directory first.
fn path() -> std::ffi::OsString {
    let own = Path::new(NARROWS).parent().unwrap().to_path_buf();
    let all = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths([own].into_iter().chain(std::env::split_paths(&all))).unwrap()
}
