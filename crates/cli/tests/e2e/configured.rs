//! The configuration file and `--log json`: what a service is told, and what it tells.

use std::{fs, path::PathBuf, process::Stdio};

use narrows_testkit::data::{Kind, make};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Ended, Process, narrows, run};

/// A directory with a configuration in it.
fn with(text: &str) -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("config.toml");
    fs::write(&path, text).unwrap();
    (dir, path)
}

/// Every line of stderr as an object, each with the fields that all have.
#[track_caller]
fn objects(said: &str) -> Vec<Value> {
    let parse = |line: &str| {
        let object: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        for field in ["timestamp", "level", "message"] {
            assert!(object[field].is_string(), "{line}");
        }
        object
    };
    said.lines().map(parse).collect()
}

fn packed_len(ended: Ended) -> u64 {
    let result = ended.expect(0).json();
    result["file_bytes"]
        .as_u64()
        .unwrap_or_else(|| panic!("{result}"))
}

// Goal: flag beats variable beats file beats default. Method: the level, which the length shows.
#[test]
fn a_flag_beats_its_variable_and_that_the_file() {
    let (dir, config) = with(
        "[pack]\nlevel = 19\nforce = true\njson = true\n[profile.quick]\npack.level = 1\n[recv]\nlisten = '127.0.0.1:1'",
    );
    let data = dir.path().join("data");
    fs::write(&data, make(Kind::Text, 500_000, 1)).unwrap();
    let pack = |words: &[&str]| {
        let mut command = narrows(["pack"]);
        command
            .args(words)
            .arg(&data)
            .env("NARROWS_CONFIG", &config)
            .stdin(Stdio::null());
        packed_len(Process::start(&mut command).wait())
    };
    let hard = pack(&[]);
    let quick = pack(&["--config-profile", "quick"]);
    assert!(hard * 21 < quick * 20, "{hard} and {quick}");
    assert_eq!(pack(&["--goal", "speed"]), quick);
    assert_eq!(pack(&["-1"]), quick);
    // The file names an address that only root may listen at; the variable one that anybody may.
    let mut command = narrows(["recv", "--keep"]);
    command
        .arg(dir.path().join("in"))
        .env("NARROWS_CONFIG", &config)
        .env("NARROWS_LISTEN", "127.0.0.1:0")
        .stdin(Stdio::null());
    let server = Process::start(&mut command);
    assert!(!server.address().ends_with(":1"));
}

#[test]
fn what_a_file_names_and_there_is_not_is_wrong_usage() {
    let (_dir, config) = with("[send]\ncoder = 'zstd'");
    let config = config.to_str().unwrap();
    run(["--config", config, "codecs"])
        .expect(2)
        .says("config.toml: no command here has a flag --coder");
    run(["codecs", "--config", "/none/config.toml"])
        .expect(2)
        .says("/none/config.toml");
    run(["codecs", "--config-profile", "far"])
        .expect(2)
        .says("no configuration file");
}

// Goal: a journal can be searched by field. Method: a server's life and a fault, each line an object.
#[test]
fn a_log_of_objects() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let mut command = narrows(["--log", "json", "recv", "--keep", "-l", "127.0.0.1:0"]);
    command.arg(at("in")).stdin(Stdio::null());
    let server = Process::start(&mut command);
    server.heard("listening on ");
    // Somebody who speaks another protocol is worth a line.
    let said = objects(&server.said());
    let address = said
        .iter()
        .find_map(|line| line["message"].as_str()?.strip_prefix("listening on "))
        .unwrap()
        .to_owned();
    fs::write(at("file"), "content").unwrap();
    run(["send", &at("file"), &address]).expect(0);
    server.signal(Signal::TERM);
    let ended = server.wait();
    let said = objects(&ended.stderr);
    assert!(said.iter().any(|line| line["level"] == "INFO"), "{said:?}");
    let fault = run(["--log", "json", "send", &at("none"), &address]);
    let said = objects(&fault.stderr);
    let last = said.last().unwrap();
    assert_eq!(last["level"], "ERROR", "{last}");
    assert!(last["message"].as_str().unwrap().contains("none"), "{last}");
}

// Goal: the journal knows a line's priority. Method: stderr is a file that JOURNAL_STREAM names.
#[test]
fn a_journal_is_given_priorities() {
    use std::os::unix::fs::MetadataExt;
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("journal");
    let journal = fs::File::create(&path).unwrap();
    let meta = journal.metadata().unwrap();
    let status = narrows(["send", "/none", "127.0.0.1"])
        .env("NARROWS_CONFIG", "")
        .env("JOURNAL_STREAM", format!("{}:{}", meta.dev(), meta.ino()))
        .stdin(Stdio::null())
        .stderr(journal)
        .status()
        .unwrap();
    assert!(!status.success());
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("<3>narrows: "), "{text}");
}
