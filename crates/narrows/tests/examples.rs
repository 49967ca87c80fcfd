//! The examples, run as a reader would run them.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Command, Stdio},
};

use narrows_io::secure::keys;

/// The built example.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let dir = test.parent().and_then(|deps| deps.parent()).unwrap();
    let path: PathBuf = dir.join("examples").join(name);
    if !path.exists() {
        // Cargo builds examples for `cargo test`, but not for one test alone.
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "narrows", "--example", name]);
        assert!(build.status().unwrap().success());
    }
    Command::new(path)
}

fn says(name: &str) -> String {
    let output = example(name).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{name}: {text}{:?}",
        String::from_utf8(output.stderr)
    );
    text
}

/// The first number in a text.
fn number(text: &str) -> u64 {
    let digits = |c: &char| c.is_ascii_digit();
    text.chars()
        .skip_while(|c| !digits(c))
        .take_while(digits)
        .collect::<String>()
        .parse()
        .unwrap()
}

#[test]
fn echo_brings_everything_back() {
    let text = says("echo");
    assert!(text.starts_with("1600000 bytes came back; "), "{text}");
}

#[test]
fn a_codec_of_ones_own_is_used() {
    let text = says("custom_codec");
    assert!(number(text.split("as").nth(1).unwrap()) < 20_000, "{text}");
}

#[test]
fn a_file_goes_over_tls_and_the_saving_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    keys::generate(&path("keys"), &keys::Request::default()).unwrap();
    let content = "2026-11-28 the same water flows faster\n".repeat(50_000);
    fs::write(path("log"), &content).unwrap();
    let mut receiver = example("recv")
        .arg("127.0.0.1:0")
        .args([path("keys"), path("copy")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(receiver.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    let address = line
        .trim()
        .strip_prefix("listening on ")
        .unwrap()
        .to_string();
    let sent = example("send")
        .arg(path("log"))
        .arg(address)
        .arg(path("keys"))
        .output()
        .unwrap();
    let text = String::from_utf8(sent.stdout).unwrap();
    assert!(
        sent.status.success(),
        "{text}{:?}",
        String::from_utf8(sent.stderr)
    );
    assert!(text.contains("times less"), "{text}");
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert!(receiver.wait().unwrap().success(), "{rest}");
    assert!(fs::read_to_string(path("copy")).unwrap() == content);
}
