//! `narrows memory run`: a program in less memory than it asks for.

use std::{
    env,
    fmt::Write as _,
    fs,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
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

/// Whether programs can be run so here; if not, says why the test is skipped: the library is built by `cargo build -p
/// narrows-paged`, and the system must allow it.
fn allowed() -> bool {
    let check = narrows()
        .args(["memory", "run", "--check"])
        .output()
        .unwrap();
    if !check.status.success() {
        eprintln!("skipped: {}", String::from_utf8_lossy(&check.stderr));
    }
    check.status.success()
}

/// A program that fills its memory with what does not pack and then sorts it, again and again; and its process.
struct Filling {
    parent: Child,
    program: String,
}

impl Filling {
    fn start(backing: &Path) -> Self {
        let parent = narrows()
            .args(["memory", "run", "--limit", "32M", "--backing"])
            .arg(backing)
            .args(["--", "sort", "--buffer-size=200M", "/dev/urandom"])
            .args(["-o", "/dev/null"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let children = format!("/proc/{0}/task/{0}/children", parent.id());
        let program = await_some("the program does not start", || {
            let text = fs::read_to_string(&children).unwrap();
            text.split_whitespace().next().map(str::to_owned)
        });
        Self { parent, program }
    }

    /// The backing file, which has no name of its own.
    fn backing(&self, folder: &Path) -> Option<PathBuf> {
        let open = fs::read_dir(format!("/proc/{}/fd", self.program)).ok()?;
        open.flatten()
            .map(|entry| entry.path())
            .find(|path| fs::read_link(path).is_ok_and(|to| to.starts_with(folder)))
    }
}

/// Waits for `what` to give something.
fn await_some<T>(late: &str, mut what: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = what() {
            return found;
        }
        assert!(Instant::now() < until, "{late}");
        thread::sleep(Duration::from_millis(10));
    }
}

// Goal: the same result in half the memory, and the limit holds. Method: `sort`, which reads all of its input into
// memory, alone and within the limit.
#[test]
fn sort_gives_the_same_in_half_the_memory() {
    if !allowed() {
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
    if !allowed() {
        return;
    }
    for kill_parent in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let mut filling = Filling::start(dir.path());
        thread::sleep(Duration::from_millis(500));
        let victim = if kill_parent {
            filling.parent.id().to_string()
        } else {
            filling.program.clone()
        };
        let killed = Command::new("kill").args(["-9", &victim]).status().unwrap();
        assert!(killed.success());
        filling.parent.wait().unwrap();
        await_some("the program goes on without its parent", || {
            let gone = !Path::new("/proc").join(&filling.program).exists();
            gone.then_some(())
        });
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

// Goal: a handler that cannot bring back what was there ends the program, in words. Method: zeroes over the backing file
// while the program goes over its memory.
#[test]
fn a_damaged_backing_ends_the_program_in_words() {
    if !allowed() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let filling = Filling::start(dir.path());
    let backing = await_some("no backing file", || filling.backing(dir.path()));
    await_some("the program goes on with other numbers", || {
        let Ok(file) = fs::OpenOptions::new().write(true).open(&backing) else {
            return Some(());
        };
        let len = file.metadata().unwrap().len();
        for at in (0..len).step_by(MIB as usize) {
            file.write_all_at(&[0; MIB as usize], at).unwrap();
        }
        None
    });
    let ended = filling.parent.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success(), "{text}");
    assert!(
        text.contains("a block came back with other bytes than it had"),
        "{text}"
    );
}
