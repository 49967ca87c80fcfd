//! Every command explains itself, and the manual and completions can be made.

use tempfile::TempDir;

use crate::process::{run, start};

const COMMANDS: [&str; 22] = [
    "send",
    "recv",
    "tunnel",
    "migrate",
    "memory",
    "pack",
    "unpack",
    "cat",
    "list",
    "verify",
    "convert",
    "offload",
    "gpu",
    "codecs",
    "link-emulator",
    "bench",
    "advise",
    "study",
    "tco",
    "report",
    "keys",
    "completions",
];

#[test]
fn every_command_has_help_that_names_its_flags() {
    let all = run(["--help"]).expect(0);
    let all = String::from_utf8(all.stdout).unwrap();
    assert!(all.contains("Exit codes:"), "{all}");
    for command in COMMANDS {
        assert!(all.contains(command), "{command} is not in {all}");
        let help = run([command, "--help"]).expect(0);
        let text = String::from_utf8(help.stdout).unwrap();
        assert!(text.contains("Usage: narrows"), "{text}");
        let short = run([command, "-h"]).expect(0);
        assert!(!short.stdout.is_empty());
    }
    // With the commit, which a report of a fault needs.
    let version = run(["--version"]).expect(0);
    let version = String::from_utf8(version.stdout).unwrap();
    let begin = concat!("narrows ", env!("CARGO_PKG_VERSION"), " (");
    assert!(
        version.starts_with(begin) && version.ends_with(")\n"),
        "{version}"
    );
    let codecs = String::from_utf8(run(["codecs"]).expect(0).stdout).unwrap();
    for line in codecs.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn manual_pages_and_completions_are_made() {
    let dir = TempDir::new().unwrap();
    run(["man", dir.path().join("man").to_str().unwrap()]).expect(0);
    for command in COMMANDS
        .map(|command| format!("narrows-{command}"))
        .iter()
        .chain([&"narrows".to_owned()])
    {
        let page =
            std::fs::read_to_string(dir.path().join("man").join(format!("{command}.1"))).unwrap();
        assert!(
            page.contains(".SH SYNOPSIS") && page.contains(".SH OPTIONS"),
            "{page}"
        );
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(["completions", shell]).expect(0);
        assert!(
            String::from_utf8(script.stdout)
                .unwrap()
                .contains("link-emulator"),
            "{shell}"
        );
    }
}

#[test]
fn wrong_usage_is_told_with_code_2() {
    let cases: [&[&str]; 15] = [
        &[],
        &["fly"],
        &["send"],
        &["send", "/etc/hostname"],
        &["send", "/etc/hostname", "host name"],
        &["send", "/etc/hostname", "192.0.2.1"],
        &[
            "send",
            "--codec",
            "unheard-of",
            "/etc/hostname",
            "127.0.0.1",
        ],
        &["send", "--policy", "fixed", "/etc/hostname", "127.0.0.1"],
        &["send", "--chunk", "17M", "/etc/hostname", "127.0.0.1"],
        &["recv", "--listen", "0.0.0.0:0"],
        &["recv", "--json", "-"],
        &["tunnel", "--listen", "127.0.0.1:0"],
        &["memory", "serve"],
        &["memory", "serve", "--size", "1M", "--export", "nameless"],
        &["memory", "serve", "--size", "1M", "--listen", "0.0.0.0:0"],
    ];
    for case in cases {
        let ended = run(case).expect(2);
        assert!(!ended.stderr.is_empty(), "{case:?} says nothing");
    }
}

// Goal: people add flags where the line ends or begins.
#[test]
fn flags_may_stand_anywhere() {
    let dir = TempDir::new().unwrap();
    for order in [
        &["send", "-q", "/etc/hostname", "TO"][..],
        &["send", "/etc/hostname", "-q", "TO"],
        &["send", "/etc/hostname", "TO", "-q"],
    ] {
        let receiver = start(["recv", dir.path().to_str().unwrap(), "-l", "127.0.0.1:0"]);
        let to = receiver.address();
        run(order
            .iter()
            .map(|word| if *word == "TO" { &to } else { *word }))
        .expect(0);
        receiver.wait().expect(0);
    }
}

#[test]
fn codecs_are_listed_for_people_and_programs() {
    let table = String::from_utf8(run(["codecs"]).expect(0).stdout).unwrap();
    assert!(table.contains("zstd") && table.contains("lz4"), "{table}");
    assert!(
        table.contains("\nbackend") || table.contains("\n backend"),
        "{table}"
    );
    let json = run(["codecs", "--json"]).expect(0).json();
    assert!(json.to_string().contains("zstd"), "{json}");
}
