//! `narrows memory run`: a program in less memory than it asks for.

use std::{
    env,
    fmt::Write as _,
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

const MIB: u64 = 1 << 20;

/// The program, with the library that the tests were built with; an installed one lies beside it.
fn narrows() -> Command {
    let program = env!("CARGO_BIN_EXE_narrows");
    let mut command = Command::new(program);
    let library = Path::new(program).with_file_name("deps/libnarrows_paged.so");
    if env::var_os("NARROWS_PAGED_LIBRARY").is_none() && library.exists() {
        command.env("NARROWS_PAGED_LIBRARY", library);
    }
    command
}

// Goal: the same result in half the memory, and the limit holds. Method: `sort`, which reads all of its input into
// memory, alone and within the limit.
#[test]
fn sort_gives_the_same_in_half_the_memory() {
    let check = narrows()
        .args(["memory", "run", "--check"])
        .output()
        .unwrap();
    if !check.status.success() {
        // The library is built by `cargo build -p narrows-paged`, or the system does not allow it.
        eprintln!("skipped: {}", String::from_utf8_lossy(&check.stderr));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("numbers");
    let mut text = String::new();
    let mut number = 1_u64;
    while text.len() < 20 << 20 {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        writeln!(text, "{:012}", number >> 30).unwrap();
    }
    fs::write(&input, text).unwrap();
    let words = ["sort", "--parallel=2", "--buffer-size=400M"];
    let alone = Command::new(words[0])
        .args(&words[1..])
        .arg(&input)
        .output()
        .unwrap();
    let bound = narrows()
        .args(["memory", "run", "--limit", "64M", "--json", "--backing"])
        .arg(dir.path())
        .arg("--")
        .args(words)
        .arg(&input)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&bound.stderr);
    assert!(bound.status.success(), "{text}");
    assert!(
        alone.stdout == bound.stdout,
        "other lines, or another order"
    );
    let report: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let of = |name: &str| report[name].as_u64().unwrap();
    assert!(of("taken_peak_bytes") > 150 * MIB, "{report}");
    assert!(
        of("peak_bytes") <= 64 * MIB + 64 * MIB / 32 + 24 * MIB,
        "{report}"
    );
    assert!(of("packed") > 0 && of("unpacked") > 0, "{report}");
}

// Goal: the program's end is ours. Method: one that exits with a code, one that is killed, one that is not there.
#[test]
fn the_exit_code_is_the_programs() {
    let code = |words: &[&str]| {
        let mut command = narrows();
        command
            .args(["-q", "memory", "run", "--limit", "64M", "--"])
            .args(words);
        command.output().unwrap().status.code()
    };
    if code(&["true"]) != Some(0) {
        eprintln!("skipped: the library is not built");
        return;
    }
    assert_eq!(code(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["sh", "-c", "kill -9 $$"]), Some(137));
    assert_eq!(code(&["/does/not/exist"]), Some(2));
}

// Goal: nothing of a run is left once either process is killed. Method: SIGKILL to each in turn; the other ends, and the
// folder of the backing is empty.
#[test]
fn killing_either_process_ends_both() {
    let check = narrows()
        .args(["memory", "run", "--check"])
        .output()
        .unwrap();
    if !check.status.success() {
        eprintln!("skipped: {}", String::from_utf8_lossy(&check.stderr));
        return;
    }
    for kill_parent in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let mut parent = narrows()
            .args(["memory", "run", "--limit", "32M", "--backing"])
            .arg(dir.path())
            // Fills memory with what does not pack, in memory that is managed, until it is killed.
            .args([
                "--",
                "sort",
                "--buffer-size=200M",
                "/dev/urandom",
                "-o",
                "/dev/null",
            ])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        let children = format!("/proc/{0}/task/{0}/children", parent.id());
        let program = loop {
            let text = fs::read_to_string(&children).unwrap();
            if let Some(pid) = text.split_whitespace().next() {
                break pid.to_owned();
            }
            assert!(Instant::now() < until, "the program does not start");
            thread::sleep(Duration::from_millis(10));
        };
        thread::sleep(Duration::from_millis(500));
        let victim = if kill_parent {
            parent.id().to_string()
        } else {
            program.clone()
        };
        let killed = Command::new("kill").args(["-9", &victim]).status().unwrap();
        assert!(killed.success());
        parent.wait().unwrap();
        while Path::new("/proc").join(&program).exists() {
            assert!(
                Instant::now() < until,
                "the program goes on without its parent"
            );
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
