//! One transfer between two processes of this program over an emulated link.
//!
//! `narrows recv --discard` and `narrows send -` run as a user would run them, so each end's processor time and memory
//! are its own. Where the link has a rate or a delay, this process relays between them. What arrives is compared by
//! XXH3-64, taken by the receiver over the bytes it hands out. On the GPU path ([`DataPath::Gpu`]) the two are
//! `narrows gpu serve --backend host` and `narrows gpu bandwidth`.

mod gpu;

use std::{
    fmt,
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    str::FromStr,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use narrows_core::units::Rate;
use narrows_io::{
    Address,
    emulator::{Emulator, Link},
};
use serde::{Deserialize, Serialize};

use crate::{
    data::Excerpt,
    result::{Case, Row},
};

/// The link to be emulated.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LinkSpec {
    /// `None` connects the two ends directly.
    pub rate: Option<Rate>,
    /// Each way.
    pub delay: Duration,
}

/// Who races: a policy and its codec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contestant {
    /// `--policy`.
    pub policy: &'static str,
    /// `--codec`, for the policies that take one.
    pub codec: Option<String>,
}

/// What carries the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DataPath {
    /// A stream: `narrows send` to `narrows recv`.
    #[default]
    Stream,
    /// A copy to the memory of a GPU elsewhere: the client library of `narrows gpu` to its server.
    Gpu,
}

impl DataPath {
    /// What results call it: [`Case::operation`].
    #[must_use]
    pub fn operation(self) -> Option<String> {
        (self == Self::Gpu).then(|| gpu::DIRECTION.to_string())
    }

    /// The path of a row of results.
    #[must_use]
    pub fn of(case: &Case) -> Self {
        match case.operation.as_deref() {
            Some(gpu::DIRECTION) => Self::Gpu,
            _ => Self::Stream,
        }
    }
}

/// What one transfer took.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// From the session's begin until the receiver had everything, as the sender saw it.
    pub seconds: f64,
    /// From starting the sender to its end, its start-up included.
    pub process_seconds: f64,
    /// Raw bits a second, by `seconds`.
    pub effective_mbit_s: f64,
    /// Both directions.
    pub wire_bytes: u64,
    /// Processor time of the sender.
    pub send_cpu_s: f64,
    /// Processor time of the receiver.
    pub recv_cpu_s: f64,
    /// Most memory the sender had resident.
    pub send_rss_bytes: Option<u64>,
    /// Most memory the receiver had resident.
    pub recv_rss_bytes: Option<u64>,
}

/// Why a transfer gave no number.
#[derive(Debug, thiserror::Error)]
pub enum RaceError {
    /// A process could not be started, or the emulator not listen.
    #[error("cannot {what}: {fault}")]
    Start {
        /// What was to be done.
        what: &'static str,
        /// Why not.
        fault: String,
    },
    /// One end gave up.
    #[error("the {end} failed: {said}")]
    Failed {
        /// `sender`, `receiver`, `client` or `server`.
        end: &'static str,
        /// Its last words.
        said: String,
    },
    /// It took longer than anything sensible.
    #[error("not done after {} s", .0.as_secs())]
    TimedOut(Duration),
    /// Other bytes arrived than were sent: data damage, the one fault that must never be.
    #[error("what arrived is not what was sent: {sent} was sent, {received} arrived")]
    Differs {
        /// Length and hash.
        sent: String,
        /// Length and hash.
        received: String,
    },
}

/// Runs transfers.
#[derive(Debug, Clone)]
pub struct Racer {
    /// The program that has `send` and `recv`.
    pub program: PathBuf,
    /// What carries the bytes.
    pub path: DataPath,
    /// `--threads` of both ends; 0 is one for each processor.
    pub threads: usize,
    /// More flags of both ends' packing: `--chunk 4096`.
    pub packing: Vec<String>,
}

impl Racer {
    /// Sends `excerpt` over `link` once. `explain` takes the sender's decisions as JSON Lines.
    ///
    /// # Errors
    /// [`RaceError`].
    pub fn run(
        &self,
        link: &LinkSpec,
        who: &Contestant,
        excerpt: &Excerpt,
        explain: Option<&Path>,
    ) -> Result<Run, RaceError> {
        match self.path {
            DataPath::Stream => self.run_stream(link, who, excerpt, explain),
            DataPath::Gpu => self.run_gpu(link, who, excerpt, explain),
        }
    }

    fn run_stream(
        &self,
        link: &LinkSpec,
        who: &Contestant,
        excerpt: &Excerpt,
        explain: Option<&Path>,
    ) -> Result<Run, RaceError> {
        let mut receiver = self.end(
            "receiver",
            &["recv", "--discard", "--json", "--listen", "127.0.0.1:0"],
            None,
        )?;
        let (to, _emulator) = link.to(receiver.address()?)?;
        let mut words = vec!["send", "-", &to, "--json"];
        words.extend(who.words());
        let explain = explain.map(|path| path.display().to_string());
        if let Some(explain) = &explain {
            words.extend(["--explain", explain]);
        }
        let input = excerpt
            .open()
            .map_err(|fault| start("open the data", &fault))?;
        let began = Instant::now();
        let mut sender = self.end("sender", &words, Some(input))?;
        let deadline = began + time_max(link, excerpt.len);
        let sent = sender.finish(began, deadline)?;
        let process_seconds = began.elapsed().as_secs_f64();
        let received =
            receiver.finish(began, deadline.max(Instant::now() + Duration::from_secs(5)))?;
        let expected = format!("{} bytes, XXH3 {}", excerpt.len, excerpt.xxh3);
        let arrived = format!(
            "{} bytes, XXH3 {}",
            received.content_bytes,
            received.xxh3.as_deref().unwrap_or("none")
        );
        if expected != arrived {
            return Err(RaceError::Differs {
                sent: expected,
                received: arrived,
            });
        }
        Ok(Run {
            seconds: sent.seconds,
            process_seconds,
            effective_mbit_s: Rate(excerpt.len as f64 / sent.seconds.max(1e-9)).mbit(),
            wire_bytes: sent.wire_bytes,
            send_cpu_s: sent.cpu_s,
            recv_cpu_s: received.cpu_s,
            send_rss_bytes: sent.peak_rss_bytes,
            recv_rss_bytes: received.peak_rss_bytes,
        })
    }

    fn end(
        &self,
        name: &'static str,
        words: &[&str],
        input: Option<File>,
    ) -> Result<End, RaceError> {
        let mut command = Command::new(&self.program);
        command
            .args(words)
            .args(["--threads", &self.threads.to_string()])
            .args(&self.packing);
        // The user's own settings for other transfers must not steer a contestant.
        for (key, _) in
            std::env::vars_os().filter(|(key, _)| key.to_string_lossy().starts_with("NARROWS_"))
        {
            command.env_remove(key);
        }
        command
            .env("NARROWS_CONFIG", "")
            .stdin(input.map_or_else(Stdio::null, Stdio::from))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|fault| start("start the program", &fault))?;
        let (out, mut result) = (mpsc::channel(), child.stdout.take().expect("it is piped"));
        thread::spawn(move || {
            let mut text = String::new();
            let _ = result.read_to_string(&mut text);
            let _ = out.0.send(text);
        });
        let (lines, said) = (mpsc::channel(), child.stderr.take().expect("it is piped"));
        thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                let _ = lines.0.send(line);
            }
        });
        Ok(End {
            name,
            child,
            result: out.1,
            said: lines.1,
        })
    }
}

/// A child process; killed when dropped before its end.
struct End {
    name: &'static str,
    child: Child,
    result: mpsc::Receiver<String>,
    said: mpsc::Receiver<String>,
}

impl End {
    /// Where the receiver listens, once it does.
    fn address(&mut self) -> Result<Address, RaceError> {
        let until = Instant::now() + Duration::from_secs(20);
        let mut other = Vec::new();
        while let Ok(line) = self
            .said
            .recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            match line
                .strip_prefix("listening on ")
                .and_then(|text| Address::parse(text, 0).ok())
            {
                Some(address) => return Ok(address),
                None => other.push(line),
            }
        }
        other.push("it did not say where it listens".into());
        Err(RaceError::Failed {
            end: self.name,
            said: other.join("; "),
        })
    }

    fn finish(&mut self, began: Instant, deadline: Instant) -> Result<Transfer, RaceError> {
        let text = self.output(began, deadline)?;
        serde_json::from_str(&text).map_err(|fault| self.unreadable(&fault))
    }

    fn unreadable(&self, fault: &dyn fmt::Display) -> RaceError {
        RaceError::Failed {
            end: self.name,
            said: format!("unreadable result: {fault}"),
        }
    }

    /// Standard output, once the process has ended well.
    fn output(&mut self, began: Instant, deadline: Instant) -> Result<String, RaceError> {
        // Its output ends when it ends; waiting for that takes no processor time from those who are measured.
        let text = match self
            .result
            .recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            Ok(text) => text,
            Err(_) => return Err(RaceError::TimedOut(began.elapsed())),
        };
        let said = || self.said.iter().collect::<Vec<_>>().join("; ");
        match self.child.wait() {
            Ok(status) if status.success() => Ok(text),
            Ok(status) => Err(RaceError::Failed {
                end: self.name,
                said: format!("{status}: {}", said()),
            }),
            Err(fault) => Err(start("wait for a process", &fault)),
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // Fails where it has ended, as it should have.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is used of `narrows.transfer/1`.
#[derive(Deserialize)]
struct Transfer {
    content_bytes: u64,
    wire_bytes: u64,
    seconds: f64,
    cpu_s: f64,
    peak_rss_bytes: Option<u64>,
    xxh3: Option<String>,
}

impl LinkSpec {
    /// Where to connect to reach `address` over this link, and what emulates the link for as long as it is held.
    fn to(&self, address: Address) -> Result<(String, Option<Emulator>), RaceError> {
        if *self == Self::default() {
            return Ok((address.to_string(), None));
        }
        let way = Link {
            rate: self.rate,
            delay: self.delay,
            ..Link::default()
        };
        let listen = Address::parse("127.0.0.1:0", 0).expect("it is an address");
        let emulator = Emulator::start(&listen, &address, way, way)
            .map_err(|fault| start("emulate a link", &fault))?;
        Ok((emulator.local().to_string(), Some(emulator)))
    }
}

/// Ten times what raw would take, and half a minute: whoever needs longer hangs.
fn time_max(link: &LinkSpec, len: u64) -> Duration {
    let raw_s = link
        .rate
        .map_or(len as f64 / 20e6, |rate| len as f64 / rate.0);
    Duration::from_secs_f64((raw_s * 10.0).min(1e6)) + Duration::from_secs(30)
}

fn start(what: &'static str, fault: &dyn fmt::Display) -> RaceError {
    RaceError::Start {
        what,
        fault: fault.to_string(),
    }
}

impl Contestant {
    /// A policy without a codec.
    #[must_use]
    pub fn plain(policy: &'static str) -> Self {
        Self {
            policy,
            codec: None,
        }
    }
}

impl Run {
    /// As a row of results; `len` bytes were sent.
    #[must_use]
    pub fn row(&self, case: Case, len: u64) -> Row {
        let mut row = Row::new(
            case,
            [
                ("effective_mbit_s", self.effective_mbit_s),
                ("seconds", self.seconds),
                ("process_s", self.process_seconds),
                ("wire_bytes", self.wire_bytes as f64),
                ("ratio", len as f64 / self.wire_bytes as f64),
                ("send_cpu_s", self.send_cpu_s),
                ("recv_cpu_s", self.recv_cpu_s),
            ],
        );
        for (name, bytes) in [
            ("send_rss_bytes", self.send_rss_bytes),
            ("recv_rss_bytes", self.recv_rss_bytes),
        ] {
            row.extend([(name, bytes.map_or(f64::NAN, |bytes| bytes as f64))]);
        }
        row
    }
}

impl Contestant {
    /// As flags of a command.
    fn words(&self) -> Vec<&str> {
        let codec = self.codec.iter().flat_map(|codec| ["--codec", codec]);
        ["--policy", self.policy].into_iter().chain(codec).collect()
    }

    /// What results call it.
    #[must_use]
    pub fn case(&self) -> Case {
        Case {
            policy: Some(self.policy.into()),
            codec: self.codec.clone(),
            ..Case::default()
        }
    }
}

impl FromStr for Contestant {
    type Err = String;

    /// Reads `none`, `adaptive`, `naive:zstd:1`, and any codec for a fixed policy: `lz4`, `zstd:3`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::plain("none")),
            "adaptive" => Ok(Self::plain("adaptive")),
            "" | "naive" => Err("name a codec: naive:lz4, or zstd:3 for a fixed one".into()),
            _ => match text.strip_prefix("naive:") {
                Some(codec) => Ok(Self {
                    policy: "naive",
                    codec: Some(codec.into()),
                }),
                None => Ok(Self {
                    policy: "fixed",
                    codec: Some(text.into()),
                }),
            },
        }
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.policy, &self.codec) {
            ("naive", Some(codec)) => write!(f, "naive:{codec}"),
            (_, Some(codec)) => f.write_str(codec),
            (policy, None) => f.write_str(policy),
        }
    }
}

impl FromStr for LinkSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rate = if text == "none" {
            None
        } else {
            Some(
                text.parse()
                    .map_err(|fault| format!("{fault}, or none for no limit"))?,
            )
        };
        Ok(Self {
            rate,
            delay: Duration::ZERO,
        })
    }
}

impl fmt::Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rate {
            Some(rate) => write!(f, "{rate}")?,
            None => f.write_str("no limit")?,
        }
        if self.delay > Duration::ZERO {
            write!(f, ", {:?} each way", self.delay)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contestants_read_as_they_print() {
        for text in ["none", "adaptive", "naive:zstd:1", "lz4", "zstd:-5"] {
            assert_eq!(text.parse::<Contestant>().unwrap().to_string(), text);
        }
        assert!("naive".parse::<Contestant>().is_err() && "".parse::<Contestant>().is_err());
    }

    #[test]
    fn links_read_as_rates_or_none() {
        assert_eq!("none".parse::<LinkSpec>().unwrap(), LinkSpec::default());
        assert_eq!(
            "100mbit".parse::<LinkSpec>().unwrap().to_string(),
            "100 Mbit/s"
        );
        assert!("fast".parse::<LinkSpec>().unwrap_err().contains("none"));
    }
}
