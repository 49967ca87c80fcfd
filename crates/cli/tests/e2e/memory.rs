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
use zstd_safe::zstd_sys::{ZSTD_estimateCCtxSize_usingCParams, ZSTD_getCParams};

use crate::process::{Process, narrows};

const MIB: usize = 1 << 20;

struct Case {
    flags: &'static [&'static str],
    kind: Kind,
    chunk: usize,
    window: usize,
    history: usize,
    /// zstd's level, for what its context takes.
    zstd: Option<i32>,
}

const THREADS: usize = 2;
const DEPTH: usize = 8;

impl Case {
    fn context(&self) -> usize {
        // SAFETY: both functions read their arguments only.
        let estimate = |level| unsafe {
            let parameters = ZSTD_getCParams(level, self.chunk as u64, self.history);
            ZSTD_estimateCCtxSize_usingCParams(parameters)
        };
        self.zstd.map_or(MIB, estimate)
    }

    fn shared(&self) -> usize {
        (24 + 64) * MIB + 5 * (self.window + (DEPTH + 2) * self.chunk + self.history) / 4
    }

    fn sender(&self) -> usize {
        self.shared() + THREADS * (7 * self.chunk / 6 + self.history + self.context())
    }

    fn receiver(&self) -> usize {
        self.shared() + THREADS * (self.history + MIB)
    }
}

fn peak(id: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

#[test]
fn both_ends_stay_within_the_stated_bound_while_the_reader_stalls() {
    let cases = [
        Case {
            flags: &["--codec", "zstd:22", "--chunk", "16M"],
            kind: Kind::Period,
            chunk: 16 * MIB,
            window: 16 * MIB,
            history: 8 * MIB,
            zstd: Some(22),
        },
        Case {
            flags: &["--codec", "lz4", "--chunk", "256K"],
            kind: Kind::Random,
            chunk: 256 << 10,
            window: 16 * MIB,
            history: 8 * MIB,
            zstd: None,
        },
        Case {
            flags: &["--codec", "zstd:19", "--chunk", "256K", "--window", "1M"],
            kind: Kind::Text,
            chunk: 256 << 10,
            window: MIB,
            history: 8 * MIB,
            zstd: Some(19),
        },
        Case {
            flags: &["--policy", "none", "--chunk", "16M"],
            kind: Kind::Random,
            chunk: 16 * MIB,
            window: 16 * MIB,
            history: 8 * MIB,
            zstd: None,
        },
        Case {
            flags: &["--policy", "none", "--chunk", "512", "--window", "4M", "--no-history"],
            kind: Kind::Random,
            chunk: 512,
            window: 4 * MIB,
            history: 0,
            zstd: None,
        },
    ];
    for case in &cases {
        let window = if case.window == 16 * MIB { "16M" } else { "4M" };
        let mut recv = narrows(["recv", "-", "-l", "127.0.0.1:0", "-T", "2", "--window", window]);
        // Nobody reads what it writes.
        let receiver = Process::start_with(recv.stdin(Stdio::null()), false);
        let address = receiver.address();
        let mut send = narrows(["send", "-", "-T", "2"]);
        let mut sender = Process::start(send.args(case.flags).arg(&address).stdin(Stdio::piped()));
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
        let (mut before, mut since) = (0, Instant::now());
        let until = Instant::now() + Duration::from_secs(25);
        while since.elapsed() < Duration::from_millis(1500) && Instant::now() < until {
            thread::sleep(Duration::from_millis(20));
            let now = taken.load(Ordering::Relaxed);
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
        let peaks = [peak(sender.id()), peak(receiver.id())];
        let bounds = [case.sender(), case.receiver()];
        let mib = |bytes: [usize; 2]| bytes.map(|bytes| bytes / MIB);
        println!("{:?}: {} MiB taken, peaks {:?} of {:?} MiB", case.flags, before >> 20, mib(peaks), mib(bounds));
        assert!(peaks[0] <= bounds[0] && peaks[1] <= bounds[1], "{:?}: {peaks:?} of {bounds:?}", case.flags);
        drop((sender, receiver));
        drop(writing);
    }
}
