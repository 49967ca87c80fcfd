//! Runs programs under a deadline, and what the tests share around that.

use std::{
    ffi::OsStr,
    fmt,
    io::{Read, Write},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU8, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Nothing in these tests takes longer unless it hangs.
pub const DEADLINE: Duration = Duration::from_secs(90);

/// The program under test.
pub const NARROWS: &str = env!("CARGO_BIN_EXE_narrows");

/// A running program whose stderr is gathered. Killed when dropped.
pub struct Process {
    child: Child,
    said: Arc<Said>,
    gathering: Vec<JoinHandle<()>>,
    out: Arc<Mutex<Vec<u8>>>,
}

#[derive(Default)]
struct Said {
    text: Mutex<(String, bool)>,
    more: Condvar,
}

/// How a program ended.
pub struct Ended {
    /// Exit code, or 128 and the signal's number.
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl fmt::Debug for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.stdout[..self.stdout.len().min(500)];
        write!(
            f,
            "exit {}\nstdout: {}\nstderr: {}",
            self.code,
            String::from_utf8_lossy(shown),
            self.stderr
        )
    }
}

impl Ended {
    /// Fails the test unless the code is `code`.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// Fails the test unless the words are there.
    #[track_caller]
    pub fn says(self, words: &str) -> Self {
        assert!(self.stderr.contains(words), "no {words:?} in {self:?}");
        self
    }

    /// The one JSON document on stdout.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|fault| panic!("{fault} in {self:?}"))
    }
}

/// `narrows` with arguments.
pub fn narrows<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(NARROWS);
    command.args(args);
    command
}

/// Starts `narrows` with nothing on stdin.
pub fn start<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Process {
    Process::start(narrows(args).stdin(Stdio::null()))
}

/// Runs `narrows` to its end.
pub fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Ended {
    start(args).wait()
}

impl Process {
    /// Starts a command with stdout and stderr gathered. Stdin is the command's affair.
    pub fn start(command: &mut Command) -> Self {
        Self::start_with(command, true)
    }

    /// Like [`Process::start`]; without `gather_stdout`, [`Process::stdout`] is the caller's.
    pub fn start_with(command: &mut Command, gather_stdout: bool) -> Self {
        for name in [
            "NARROWS_LISTEN",
            "NARROWS_POLICY",
            "NARROWS_CODEC",
            "NARROWS_THREADS",
            "NARROWS_RSH",
            "NARROWS_LOG",
            "NARROWS_CONFIG_PROFILE",
        ] {
            // What a test sets is meant.
            if command.get_envs().all(|(set, _)| set != name) {
                command.env_remove(name);
            }
        }
        // Settings of whoever runs the tests are not what is tested.
        if command.get_envs().all(|(name, _)| name != "NARROWS_CONFIG") {
            command.env("NARROWS_CONFIG", "");
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|fault| panic!("{command:?}: {fault}"));
        let said = Arc::new(Said::default());
        let out = Arc::default();
        let mut stderr = child.stderr.take().expect("it is piped");
        let mut gathering = vec![thread::spawn({
            let said = said.clone();
            move || {
                let mut buf = [0; 4096];
                loop {
                    let len = stderr.read(&mut buf).unwrap_or(0);
                    let mut text = said.text.lock().unwrap();
                    text.0.push_str(&String::from_utf8_lossy(&buf[..len]));
                    text.1 = len == 0;
                    said.more.notify_all();
                    if len == 0 {
                        return;
                    }
                }
            }
        })];
        if gather_stdout {
            let mut stdout = child.stdout.take().expect("it is piped");
            let out: Arc<Mutex<Vec<u8>>> = Arc::clone(&out);
            gathering.push(thread::spawn(move || {
                let mut all = Vec::new();
                let _ = stdout.read_to_end(&mut all);
                *out.lock().unwrap() = all;
            }));
        }
        Self {
            child,
            said,
            gathering,
            out,
        }
    }

    pub fn stdin(&mut self) -> ChildStdin {
        self.child
            .stdin
            .take()
            .expect("stdin is piped and not taken")
    }

    pub fn stdout(&mut self) -> ChildStdout {
        self.child
            .stdout
            .take()
            .expect("stdout is not gathered and not taken")
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, signal).expect("the process is ours");
    }

    /// Waits until stderr holds a line with `words` and returns what follows them there.
    #[track_caller]
    pub fn heard(&self, words: &str) -> String {
        let until = Instant::now() + DEADLINE;
        let mut text = self.said.text.lock().unwrap();
        loop {
            let found = text
                .0
                .split_inclusive('\n')
                .filter(|line| line.ends_with('\n'));
            if let Some((_, rest)) = found.into_iter().find_map(|line| line.split_once(words)) {
                return rest.trim_end().to_owned();
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(
                !text.1 && !left.is_zero(),
                "waited for {words:?}, heard: {}",
                text.0
            );
            text = self.said.more.wait_timeout(text, left).unwrap().0;
        }
    }

    /// Where it listens.
    #[track_caller]
    pub fn address(&self) -> String {
        self.heard("listening on ")
    }

    /// What it said on stderr so far.
    pub fn said(&self) -> String {
        self.said.text.lock().unwrap().0.clone()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for the end. One that does not come fails the test.
    #[track_caller]
    pub fn wait(mut self) -> Ended {
        let until = Instant::now() + DEADLINE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > until {
                let text = self.said.text.lock().unwrap().0.clone();
                panic!("it hangs; stderr so far: {text}");
            }
            thread::sleep(Duration::from_millis(5));
        };
        for thread in self.gathering.drain(..) {
            thread.join().unwrap();
        }
        let code = status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        let stdout = std::mem::take(&mut *self.out.lock().unwrap());
        let stderr = self.said.text.lock().unwrap().0.clone();
        assert!(!stderr.contains("panicked at"), "a panic: {stderr}");
        Ended {
            code,
            stdout,
            stderr,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for `condition`; one that does not come fails the test.
#[track_caller]
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    eventually_within(DEADLINE, what, condition);
}

/// Like [`eventually`], with less patience.
#[track_caller]
pub fn eventually_within(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < until, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Where to listen when the port must stay free after its listener died: an address of loopback that no other test has.
/// On a shared one, a receiver of another test may have got the port by the time that somebody connects again.
pub fn alone() -> String {
    static NEXT: AtomicU8 = AtomicU8::new(2);
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    format!(
        "127.{high}.{low}.{}:0",
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// Whether a program is there.
pub fn has(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether the long forms of tests should run.
pub fn full() -> bool {
    std::env::var_os("NARROWS_FULL_TESTS").is_some_and(|value| value != "0")
}

/// Says why a test does nothing. Rust's test harness has no word for it.
pub fn skip(why: &str) {
    // Past the harness's capture: a skipped test should be seen.
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// Files under `dir` that a receiver had begun and not finished.
pub fn parts(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(dir) else {
        return found;
    };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(parts(&entry.path()));
        } else if entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(b".narrows-")
        {
            found.push(entry.path());
        }
    }
    found
}
