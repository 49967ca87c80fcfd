//! What a user gets wrong, at one command after the other: a sentence that says what to do, and the documented code.

use std::{fs, path::Path, process::Command};

use tempfile::TempDir;

use crate::process::{run, start};

// Goal: nothing is begun that cannot end well. Method: each mistake of the table, without anybody at the other side.
#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn mistakes_are_told_before_anything_begins() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (file, empty, folder, lost, unmade) = (
        path("file"),
        path("empty"),
        path("folder"),
        path("lost/file"),
        path("unmade"),
    );
    fs::write(&file, "some text\n".repeat(1000)).unwrap();
    fs::write(&empty, "").unwrap();
    fs::create_dir(&folder).unwrap();
    let cases: [(&[&str], i32, &str); 33] = [
        (&["send", &lost, "127.0.0.1:9"], 1, "cannot read"),
        (
            &["send", &file, "10.1.2.3"],
            2,
            "refusing to connect to 10.1.2.3:4242",
        ),
        (
            &["send", &file, "127.0.0.1:9", "--codec", "deflate:13"],
            2,
            "deflate has levels 0..12",
        ),
        (
            &[
                "send",
                &file,
                "127.0.0.1:9",
                "--policy",
                "none",
                "--codec",
                "lz4",
            ],
            2,
            "leave it out",
        ),
        (
            &["send", &file, "127.0.0.1:9", "--threads", "100000"],
            2,
            "0 to 1024",
        ),
        (
            &["send", &file, "127.0.0.1:9", "--explain", &lost],
            1,
            "cannot write",
        ),
        (
            &["send", "-", "example.org:-", "--rsh", &lost],
            2,
            "start `narrows recv -` there",
        ),
        (
            &["send", &file, "example.org:-", "--rsh", &lost],
            2,
            "start `narrows recv -` there",
        ),
        (&["recv", &file], 2, "name a directory"),
        (&["recv", "--stdio", "-"], 2, "name a directory"),
        (
            &["recv", &unmade, "--listen", "0.0.0.0:0"],
            2,
            "refusing to listen on 0.0.0.0:0",
        ),
        (
            &["tunnel", "--listen", "127.0.0.1:0", "--peer", "10.1.2.3"],
            2,
            "refusing to connect to",
        ),
        (
            &[
                "link-emulator",
                "--listen",
                "0.0.0.0:0",
                "--to",
                "127.0.0.1:9",
            ],
            2,
            "an emulated link is plain",
        ),
        (&["try", &empty, "--no-report"], 1, "holds no bytes"),
        (&["try", &file, "--threads", "5000"], 2, "0 to 1024"),
        (
            &["try", &file, "--results", &folder, "--no-report"],
            2,
            "--results",
        ),
        (&["try", &file, "--report", &lost], 2, "--report"),
        (
            &["try", &file, "--race", "lz4:5"],
            2,
            "lz4 has levels -64..0",
        ),
        (
            &["bench", &file, "--codec", "snappy:2"],
            2,
            "snappy has no levels",
        ),
        (
            &["bench", &file, "--codec", "zstd:9..1"],
            2,
            "the lower comes first",
        ),
        (&["bench", &file, "--results", &folder], 2, "--results"),
        (&["advise", &empty, "--link", "10mbit"], 1, "holds no bytes"),
        (&["report", &empty, "-o", &folder], 2, "--output"),
        (&["report", &empty], 1, "holds no results"),
        (&["report", &lost], 1, "cannot use the results in"),
        (
            &["memory", "serve", "--size", "0", "--listen", "127.0.0.1:0"],
            2,
            "at least 1 byte",
        ),
        (
            &[
                "migrate",
                "tunnel",
                "--listen",
                "127.0.0.1:0",
                "--peer",
                "10.1.2.3",
            ],
            2,
            "refusing to connect to",
        ),
        (
            &["offload", "pack", &file, "--to", "10.1.2.3"],
            2,
            "refusing to connect to",
        ),
        (
            &[
                "offload", "pack", &file, "--local", "--codec", "lz4", "--level", "13",
            ],
            2,
            "has levels 3..12",
        ),
        (
            &["offload", "pack", &file, "--local", "--threads", "5000"],
            2,
            "0 to 1024",
        ),
        (&["keys", &file], 1, "cannot write"),
        (&["keys", &folder, "--host", "a host"], 2, "not a host name"),
        (
            &["send", &file, "127.0.0.1:9", "--window", "1"],
            2,
            "64K to 1G",
        ),
    ];
    for (args, code, words) in cases {
        let ended = run(args.iter().copied()).expect(code).says(words);
        // A cause that the message names is not said again.
        assert!(
            ended.stderr.matches("(os error").count() <= 1,
            "{}",
            ended.stderr
        );
    }
    assert!(!Path::new(&unmade).exists());
}

#[test]
fn a_plain_sender_is_told_that_the_receiver_wants_tls() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (keys, into, file) = (path("keys"), path("into"), path("file"));
    fs::write(&file, "some text").unwrap();
    run(["keys", &keys]).expect(0);
    let receiver = start([
        "recv",
        "-l",
        "127.0.0.1:0",
        "--tls-certificates",
        &keys,
        &into,
    ]);
    let to = receiver.address();
    run(["send", &file, &to])
        .expect(4)
        .says("give both sides the same security flags");
    run(["send", &file, &to, "--tls-certificates", &keys]).expect(0);
    receiver.wait().expect(0);
}

#[test]
fn a_server_without_a_migration_says_so_in_the_documented_form() {
    let dir = TempDir::new().unwrap();
    let unix = |name: &str| format!("unix:{}", dir.path().join(name).display());
    let serve = start([
        "migrate",
        "serve",
        "-l",
        &unix("serve"),
        "--to",
        &unix("nobody"),
        "--status",
        &unix("status"),
    ]);
    serve.heard("taking migrations");
    let status = run(["migrate", "status", "--json", &unix("status")])
        .expect(0)
        .json();
    assert!(
        status["schema"] == "narrows.migrate-status/1" && status["lanes"] == 0,
        "{status}"
    );
}

// Goal: a variable set for a whole session keeps no command from saying otherwise, and two flags that exclude each
// other still do. Method: a sender of a file that is not there, which is as far as it may get.
#[test]
fn a_flag_beats_the_variables_it_excludes() {
    let at = |file: &str, variables: &[(&str, &str)], flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_narrows"));
        command
            .args(["send", file, "127.0.0.1:9"])
            .args(flags)
            .envs(variables.iter().copied());
        let output = command.output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let ended =
        |variables: &[(&str, &str)], flags: &[&str]| at("/nowhere/at/all", variables, flags);
    let tls = ("NARROWS_TLS_CERTIFICATES", "/nowhere");
    for (variables, flags) in [
        (&[tls][..], &["--tls-psk", "/nowhere"][..]),
        (
            &[("NARROWS_TLS_PSK", "/nowhere")],
            &["--tls-certificates", "/nowhere"],
        ),
        (
            &[("NARROWS_CODEC", "lz4")],
            &["--cpu-price", "0.1", "--level-max", "3"],
        ),
        (&[("NARROWS_CODEC", "no such")], &["--policy", "none"]),
        (&[("NARROWS_CODEC", "no such")], &["--policy", "adaptive"]),
        (&[("NARROWS_POLICY", "none")], &["--codec", "lz4"]),
    ] {
        let (code, stderr) = ended(variables, flags);
        assert_ne!(code, Some(2), "{variables:?} {flags:?}: {stderr}");
        assert!(
            stderr.contains("nowhere"),
            "{variables:?} {flags:?}: {stderr}"
        );
    }
    let (code, stderr) = ended(
        &[],
        &["--tls-certificates", "/nowhere", "--tls-psk", "/nowhere"],
    );
    assert!(
        code == Some(2) && stderr.contains("cannot be used with"),
        "{stderr}"
    );
    let (code, stderr) = ended(&[tls, ("NARROWS_TLS_PSK", "/nowhere")], &[]);
    assert!(
        code == Some(2) && stderr.contains("cannot be used with"),
        "{stderr}"
    );
    // Which needs a codec, so that the variable stands.
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let (code, stderr) = at(
        file,
        &[("NARROWS_CODEC", "no such")],
        &["--policy", "fixed"],
    );
    assert!(code == Some(2) && stderr.contains("no such"), "{stderr}");
}
