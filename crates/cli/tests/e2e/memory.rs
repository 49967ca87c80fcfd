//! Peaks of memory against `docs/specs/memory.md`, with a receiver whose reader has stopped.

use std::{
    fs,
    io::Write,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use narrows_testkit::data::{Kind, make};
use serde_json::Value;
use zstd_safe::zstd_sys::{ZSTD_estimateCCtxSize_usingCParams, ZSTD_getCParams};

use crate::process::{Process, full, narrows, run};

const MIB: usize = 1 << 20;

struct Case {
    flags: Vec<String>,
    kind: Kind,
    chunk: usize,
    window: usize,
    history: usize,
    /// What the codec keeps for each thread that packs, and for each that unpacks.
    context: [usize; 2],
}

const THREADS: usize = 2;
const DEPTH: usize = 8;

impl Case {
    fn new(flags: &str, kind: Kind, chunk: usize, window: usize) -> Self {
        let flags: Vec<_> = flags.split(' ').map(str::to_owned).collect();
        let history = if flags.iter().any(|flag| flag == "--no-history") {
            0
        } else {
            MIB
        };
        Self {
            flags,
            kind,
            chunk,
            window,
            history,
            context: [MIB; 2],
        }
    }

    /// With what `docs/specs/memory.md` says of `codec` at `level`.
    fn of(self, codec: &str, level: i32) -> Self {
        let zstd = || {
            // SAFETY: both functions read their arguments only.
            unsafe {
                ZSTD_estimateCCtxSize_usingCParams(ZSTD_getCParams(
                    level,
                    self.chunk as u64,
                    self.history,
                ))
            }
        };
        let packing = match codec {
            _ if codec.ends_with("zstd") => zstd(),
            "deflate" | "zlib" | "gzip" => 9 * MIB,
            _ => MIB,
        };
        let is_typed = ["shuffle", "delta", "decimal"]
            .iter()
            .any(|name| codec.starts_with(name));
        let planes = if is_typed { self.chunk } else { 0 };
        Self {
            context: [packing + 2 * planes, MIB + planes],
            ..self
        }
    }

    fn shared(&self) -> usize {
        (24 + 64) * MIB + 5 * (self.window + (DEPTH + 2) * self.chunk + self.history) / 4
    }

    fn sender(&self) -> usize {
        self.shared() + THREADS * (7 * self.chunk / 6 + self.history + self.context[0])
    }

    fn receiver(&self) -> usize {
        self.shared() + THREADS * (self.history + self.context[1])
    }
}

/// Every codec that is here, at its highest level and with the longest chunks.
fn all_codecs() -> Vec<Case> {
    let list = run(["codecs", "--json"]).expect(0).json();
    let codecs = list["codecs"].as_array().unwrap();
    assert!(codecs.len() > 20, "{list}");
    let case = |codec: &Value| {
        let (name, level) = (
            codec["name"].as_str().unwrap(),
            codec["level_max"].as_i64().unwrap(),
        );
        let flags = format!("--codec {name}:{level} --chunk 16M");
        Case::new(&flags, Kind::Text, 16 * MIB, 16 * MIB).of(name, level as i32)
    };
    codecs
        .iter()
        .filter(|codec| codec["name"] != "raw")
        .map(case)
        .collect()
}

/// Processor time so far, in ticks.
fn ticks(id: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let fields: Vec<_> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

fn peak(id: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim()
        .trim_end_matches(" kB")
        .parse::<usize>()
        .unwrap()
        * 1024
}

#[test]
#[allow(clippy::too_many_lines, reason = "a scenario is told in one go")]
fn both_ends_stay_within_the_stated_bound_while_the_reader_stalls() {
    let mut cases = vec![
        Case::new(
            "--codec zstd:22 --chunk 16M",
            Kind::Period,
            16 * MIB,
            16 * MIB,
        )
        .of("zstd", 22),
        Case::new(
            "--codec lz4 --chunk 256K",
            Kind::Random,
            256 << 10,
            16 * MIB,
        ),
        Case::new(
            "--codec zstd:19 --chunk 256K --window 1M",
            Kind::Text,
            256 << 10,
            MIB,
        )
        .of("zstd", 19),
        Case::new(
            "--policy none --chunk 16M",
            Kind::Random,
            16 * MIB,
            16 * MIB,
        ),
        Case::new(
            "--policy none --chunk 512 --window 4M --no-history",
            Kind::Random,
            512,
            4 * MIB,
        ),
    ];
    if full() {
        cases.extend(all_codecs());
    }
    for case in &cases {
        let window = if case.window == 16 * MIB { "16M" } else { "4M" };
        let mut recv = narrows([
            "recv",
            "-",
            "-l",
            "127.0.0.1:0",
            "-T",
            "2",
            "--window",
            window,
        ]);
        // Nobody reads what it writes.
        let receiver = Process::start_with(recv.stdin(Stdio::null()), false);
        let address = receiver.address();
        let mut send = narrows(["send", "-", "-T", "2"]);
        let mut sender = Process::start(send.args(&case.flags).arg(&address).stdin(Stdio::piped()));
        let mut stdin = sender.stdin();
        let taken = Arc::new(AtomicU64::new(0));
        let writing = {
            let (taken, block) = (taken.clone(), make(case.kind, 3 * MIB, 1));
            thread::spawn(move || {
                // What packs well could go on for very long: the window counts packed bytes.
                while taken.load(Ordering::Relaxed) < 400 << 20 {
                    let Ok(len) = stdin.write(&block) else { return };
                    taken.fetch_add(len as u64, Ordering::Relaxed);
                }
                thread::sleep(Duration::from_secs(60));
            })
        };
        let (mut before, mut since) = ((0, 0), Instant::now());
        let until = Instant::now() + Duration::from_secs(25);
        while since.elapsed() < Duration::from_millis(1500) && Instant::now() < until {
            thread::sleep(Duration::from_millis(20));
            // A slow codec takes seconds for a chunk, in which nothing is taken.
            let now = (taken.load(Ordering::Relaxed), ticks(sender.id()) / 4);
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
        let peaks = [peak(sender.id()), peak(receiver.id())];
        let bounds = [case.sender(), case.receiver()];
        let mib = |bytes: [usize; 2]| bytes.map(|bytes| bytes / MIB);
        println!(
            "{:?}: {} MiB taken, peaks {:?} of {:?} MiB",
            case.flags,
            before.0 >> 20,
            mib(peaks),
            mib(bounds)
        );
        assert!(
            peaks[0] <= bounds[0] && peaks[1] <= bounds[1],
            "{:?}: {peaks:?} of {bounds:?}",
            case.flags
        );
        drop((sender, receiver));
        drop(writing);
    }
}
