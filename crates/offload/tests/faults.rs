//! Faults of every kind, seeded, between a client and a good server: none may be silent.
//!
//! Goal: whatever a server does, the file is right and the report says that something was wrong, or there is an error
//! and no file. Method: a relay that speaks the protocol to both sides and breaks one thing in one job; links that are
//! reset after so many bytes. `NARROWS_FAULTS=1000` sets how many; a failing one prints its number, and
//! `NARROWS_FAULT=N` runs it alone.

mod common;

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use common::{Listening, METHODS, Place, connect, is_packed_form, options, pack, serve, unpack};
use narrows::{ChannelReader, ChannelWriter, Endpoint, Engine, Incoming};
use narrows_core::Workspace;
use narrows_io::{
    Address,
    emulator::{Direction, Emulator, Link},
};
use narrows_offload::{
    Method, OffloadError, Options, Report, SERVICE, ServerOptions, Spill, message::Answer,
};
use narrows_testkit::data::{Kind, Random, make};

/// Bytes of each job's file: twelve blocks, of LZ4 three.
const LEN: usize = 180_000;
const PATIENCE: Duration = Duration::from_millis(60);

/// What is done to the answers, from the `at`th on or to that one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// A bit of the block is flipped.
    Flip,
    /// Bits of every block from there on are.
    FlipAll,
    /// The block loses bytes at its end.
    Shorter,
    /// It gains some.
    Longer,
    /// It is another block, rightly packed.
    Other,
    /// It unpacks to far more than it should.
    Bomb,
    /// It carries another block's number.
    Number,
    /// It comes twice.
    Twice,
    /// Another outcome, or none there is.
    Outcome,
    /// Bytes that are no answer.
    Garbage,
    /// A head cut short.
    Cut,
    /// The channel ends.
    End,
    /// The channel is aborted.
    Abort,
    /// Both sessions are gone.
    Kill,
    /// Nothing comes any more, though the session lives.
    Stall,
    /// Each answer comes late.
    Slow,
    /// The first document is nonsense.
    Reply,
    /// It never comes.
    Mute,
    /// The link is reset after so many bytes to the server.
    ResetUp,
    /// Or from it.
    ResetDown,
    /// Every frame of zstd names the shortest window, or one that no reader takes unasked.
    Window,
}

const FAULTS: [Fault; 20] = [
    Fault::Flip,
    Fault::FlipAll,
    Fault::Shorter,
    Fault::Longer,
    Fault::Other,
    Fault::Bomb,
    Fault::Number,
    Fault::Twice,
    Fault::Outcome,
    Fault::Garbage,
    Fault::Cut,
    Fault::End,
    Fault::Abort,
    Fault::Kill,
    Fault::Stall,
    Fault::Slow,
    Fault::Reply,
    Fault::Mute,
    Fault::ResetUp,
    Fault::ResetDown,
];

/// One job and what is wrong with it.
#[derive(Debug, Clone)]
struct Case {
    fault: Fault,
    at: u32,
    seed: u64,
    method: Method,
    packs: bool,
    spill: Spill,
}

impl Case {
    fn new(number: u64) -> Self {
        let mut random = Random(number);
        let method = METHODS[random.below(3)];
        let fault = FAULTS[number as usize % FAULTS.len()];
        Self {
            fault,
            at: random.below(LEN.div_ceil(options(method).block_len)) as u32,
            seed: random.next_u64(),
            method,
            packs: random.below(3) > 0,
            // A mute server is waited for ten seconds where nothing may be done here.
            spill: if random.below(4) == 0 && fault != Fault::Mute {
                Spill::Never
            } else {
                Spill::After(PATIENCE)
            },
        }
    }
}

/// Stands between client and server.
struct Relay {
    case: Case,
    /// What it did that must not go unseen.
    struck: AtomicBool,
}

impl Relay {
    fn carry(&self, client: &Endpoint, server: &Endpoint) {
        let Ok(Some(Incoming {
            mut writer,
            mut reader,
            ..
        })) = client.accept()
        else {
            return;
        };
        let Ok((mut to_server, mut from_server)) = server.open(SERVICE) else {
            return;
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                while let Ok(Some(chunk)) = reader.next_shared() {
                    if to_server.push_shared(chunk).is_err() {
                        return;
                    }
                }
                let _ = to_server.finish();
            });
            self.answers(&mut from_server, &mut writer, client, server);
            // A stalled one lives until the client has enough of it.
            if matches!(self.case.fault, Fault::Stall | Fault::Mute)
                && self.struck.load(Ordering::Relaxed)
            {
                while client.ended().is_none() {
                    thread::sleep(Duration::from_millis(5));
                }
            } else {
                let _ = writer.finish();
                let _ = writer.wait_consumed();
                // Only the client's end ends a relay that has nothing to break any more.
                while client.ended().is_none() && !self.struck.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(5));
                }
            }
            server.fail(narrows::Code::CANCELLED, "the relay is done");
            client.fail(narrows::Code::CANCELLED, "the relay is done");
        });
    }

    fn answers(
        &self,
        from: &mut ChannelReader,
        to: &mut ChannelWriter,
        client: &Endpoint,
        server: &Endpoint,
    ) {
        let mut random = Random(self.case.seed);
        let mut count = 0;
        let mut first = true;
        let mut last: Option<Vec<u8>> = None;
        while let Ok(Some(chunk)) = from.next_chunk() {
            let mut chunk = chunk.to_vec();
            let is_reply = std::mem::replace(&mut first, false);
            let is_summary = !is_reply && chunk.len() > 4 && chunk[4] == 4;
            if is_reply && self.case.fault == Fault::Mute {
                self.strike();
                return;
            }
            if is_reply {
                if self.case.fault == Fault::Reply {
                    self.strike();
                    let len = random.below(chunk.len());
                    chunk.truncate(len);
                    chunk.push(b'?');
                }
            } else if !is_summary {
                let now = count;
                count += 1;
                let due = now == self.case.at;
                let since = now >= self.case.at;
                match self.case.fault {
                    Fault::Stall if since => {
                        self.strike();
                        // Goes on taking from the server, as a device that has lost its way would.
                        continue;
                    }
                    Fault::Slow if since => thread::sleep(PATIENCE / 2),
                    Fault::End if due => {
                        self.strike();
                        return;
                    }
                    Fault::Abort if due => {
                        self.strike();
                        client.fail(narrows::Code::FAILED, "the device burns");
                        return;
                    }
                    Fault::Kill if due => {
                        self.strike();
                        client.fail(narrows::Code::CANCELLED, "killed");
                        server.fail(narrows::Code::CANCELLED, "killed");
                        return;
                    }
                    Fault::Twice if due => {
                        self.strike();
                        if push(to, &chunk).is_err() {
                            return;
                        }
                    }
                    fault if due || since && matches!(fault, Fault::FlipAll | Fault::Window) => {
                        self.spoil(&mut chunk, &mut random, last.as_deref());
                    }
                    _ => {}
                }
                last = Some(chunk.clone());
            }
            if push(to, &chunk).is_err() {
                return;
            }
        }
    }

    fn strike(&self) {
        self.struck.store(true, Ordering::Relaxed);
    }

    /// Changes an answer. What cannot be told from a right one does not count as struck.
    fn spoil(&self, chunk: &mut Vec<u8>, random: &mut Random, last: Option<&[u8]>) {
        const HEAD: usize = Answer::HEAD_LEN;
        let before = chunk.clone();
        let len = chunk.len() - HEAD;
        match self.case.fault {
            Fault::Flip | Fault::FlipAll if len > 0 => {
                chunk[HEAD + random.below(len)] ^= 1 << random.below(8)
            }
            // Behind a magic of four bytes and the descriptor of the frame's head.
            Fault::Window if len > 5 => {
                chunk[HEAD + 5] = if self.case.seed.is_multiple_of(2) {
                    0
                } else {
                    0xa0
                }
            }
            Fault::Shorter if len > 0 => chunk.truncate(HEAD + random.below(len)),
            Fault::Longer => {
                chunk.extend((0..=random.below(5000)).map(|_| random.next_u64() as u8))
            }
            Fault::Other => {
                if let Some(last) = last.filter(|last| last[HEAD..] != before[HEAD..]) {
                    chunk.truncate(HEAD);
                    chunk.extend_from_slice(&last[HEAD..]);
                }
            }
            Fault::Bomb => {
                chunk.truncate(HEAD);
                chunk.extend(bomb(self.case.method));
            }
            Fault::Number => chunk[..4].copy_from_slice(&(random.below(40) as u32).to_le_bytes()),
            Fault::Outcome => chunk[4] = random.below(256) as u8,
            Fault::Garbage => *chunk = make(Kind::Random, random.below(3000), self.case.seed),
            Fault::Cut => chunk.truncate(random.below(HEAD)),
            _ => return,
        }
        // DEFLATE and LZ4 have bits that mean nothing, and a check as short as 32 bits stands behind the rest.
        if *chunk != before {
            self.strike();
        }
    }
}

/// The beginning of 4 MiB of zeros, packed.
fn bomb(method: Method) -> Vec<u8> {
    let registry = narrows::default_registry();
    let raw = vec![0; 4 << 20];
    let mut out = vec![0; raw.len()];
    let len = method
        .packer(&registry, 1)
        .unwrap()
        .pack(&raw, &mut out, &mut Workspace::default())
        .unwrap();
    out.truncate(len.min(15 << 10));
    out
}

fn push(to: &mut ChannelWriter, bytes: &[u8]) -> Result<(), narrows::Error> {
    let chunk = to.buffer_of(bytes);
    to.push(chunk)
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone, Copy)]
enum Ending {
    /// The file is right, and nothing was to be seen.
    Untouched,
    /// The file is right, and the report says what was wrong.
    Mended,
    /// An error, and no file.
    Refused,
}

/// Takes the checksums out of a seek table: what came back wrong is then to be noticed without them.
fn without_checks(path: &Path) {
    let mut file = fs::read(path).unwrap();
    let frames =
        u32::from_le_bytes(file[file.len() - 9..file.len() - 5].try_into().unwrap()) as usize;
    let table = file.split_off(file.len() - (8 + frames * 12 + 9));
    file.extend(&table[..4]);
    file.extend((frames as u32 * 8 + 9).to_le_bytes());
    table[8..8 + frames * 12]
        .chunks(12)
        .for_each(|entry| file.extend(&entry[..8]));
    file.extend(&table[8 + frames * 12..][..4]);
    file.push(0);
    file.extend(&table[table.len() - 4..]);
    fs::write(path, file).unwrap();
}

/// Runs a case. Returns how it ended.
#[allow(clippy::too_many_lines, reason = "a scenario is told in one go")]
fn run(engine: &Engine, server: &Address, case: &Case) -> Ending {
    let place = Place::new(
        [Kind::Text, Kind::Floats, Kind::Mixed][case.seed as usize % 3],
        LEN,
        case.seed,
    );
    let options = Options {
        spill: case.spill,
        ..options(case.method)
    };
    if !case.packs {
        pack(engine, None, &options, &place).unwrap();
        if case.method == Method::Zstd && case.seed.is_multiple_of(2) {
            without_checks(&place.packed());
        }
    }
    let relay = Arc::new(Relay {
        case: case.clone(),
        struck: AtomicBool::new(false),
    });
    let listening = {
        let (relay, engine, server) = (relay.clone(), engine.clone(), server.clone());
        Listening::start(&engine.clone(), move |client| {
            if let Ok(server) = connect(&engine, &server) {
                relay.carry(&client, &server);
            }
        })
    };
    let any = Address::parse("127.0.0.1:0", 0).unwrap();
    let emulator =
        Emulator::start(&any, &listening.address, Link::default(), Link::default()).unwrap();
    let mut random = Random(case.seed);
    match case.fault {
        Fault::ResetUp => emulator.reset_after(Direction::Up, Some(random.below(50_000) as u64)),
        Fault::ResetDown => {
            emulator.reset_after(Direction::Down, Some(random.below(20_000) as u64))
        }
        _ => {}
    }
    let result: Result<Report, OffloadError> = if case.packs {
        pack(engine, Some(emulator.local()), &options, &place)
    } else {
        unpack(engine, Some(emulator.local()), &options, &place)
    };
    let made = if case.packs {
        place.packed()
    } else {
        place.back()
    };
    assert!(place.is_tidy(), "something was left");
    let struck = relay.struck.load(Ordering::Relaxed);
    match result {
        Ok(report) => {
            let right = if case.packs {
                is_packed_form(engine, &made, &place.raw)
            } else {
                fs::read(&made).unwrap() == place.raw
            };
            assert!(right, "a wrong file: {report:?}");
            let seen = report.spilled.total() > 0
                || report.late_answers > 0
                || report.resumed > 0
                || report.server_lost.is_some();
            // All blocks may have been answered before a link is lost or an answer comes twice; nothing was wrong then.
            let excused = match case.fault {
                Fault::Twice | Fault::End | Fault::Abort | Fault::Kill => {
                    report.remote_blocks == report.blocks
                }
                // Formats have bits that nobody reads: a zstd frame's unused one, what fills DEFLATE's last byte.
                Fault::Flip => case.packs && report.remote_blocks == report.blocks,
                // Whatever window comes, the one that the block needs is written.
                Fault::Window => report.remote_blocks == report.blocks,
                _ => false,
            };
            assert!(seen || excused || !struck, "silent: {report:?}");
            if seen {
                Ending::Mended
            } else {
                Ending::Untouched
            }
        }
        Err(fault) => {
            assert!(
                !fault.to_string().is_empty() && !made.exists(),
                "{fault}: and yet a file"
            );
            Ending::Refused
        }
    }
}

#[test]
fn no_fault_is_silent() {
    let env = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let numbers: Vec<u64> = match env("NARROWS_FAULT") {
        Some(number) => vec![number],
        None => (0..env("NARROWS_FAULTS").unwrap_or(200)).collect(),
    };
    let engine = Engine::new(1);
    let server = serve(&engine, ServerOptions::new(2));
    let endings: Mutex<BTreeMap<(Fault, Ending), u32>> = Mutex::default();
    let next = AtomicUsize::new(0);
    let failed = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while let Some(number) = numbers.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let case = Case::new(*number);
                    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        run(&engine, &server.address, &case)
                    }));
                    match ran {
                        Ok(ending) => {
                            *endings
                                .lock()
                                .unwrap()
                                .entry((case.fault, ending))
                                .or_default() += 1
                        }
                        Err(_) => {
                            eprintln!("fault {number} failed: {case:?}");
                            failed.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let endings = endings.into_inner().unwrap();
    for ((fault, ending), count) in &endings {
        println!("{fault:?}: {ending:?} {count}");
    }
    let of = |wanted: Ending| {
        endings
            .iter()
            .filter(|((_, ending), _)| *ending == wanted)
            .map(|(_, count)| count)
            .sum::<u32>()
    };
    println!(
        "{} faults: {} mended, {} refused, {} without effect",
        numbers.len(),
        of(Ending::Mended),
        of(Ending::Refused),
        of(Ending::Untouched),
    );
    assert_eq!(failed.load(Ordering::Relaxed), 0, "see above");
    assert!(numbers.len() < 200 || of(Ending::Mended) > 60 && of(Ending::Refused) > 20);
}

// Goal: the window that a server's frames name is not believed: zstd reads the file all the same. Method: one that is
// shorter than the frame's blocks, which are bad then, and one that zstd refuses; `run` asks the program, where it is
// here.
#[test]
fn a_window_that_the_server_makes_up_does_no_harm() {
    let engine = Engine::new(1);
    let server = serve(&engine, ServerOptions::new(2));
    for (seed, ending) in [(0, Ending::Mended), (1, Ending::Untouched)] {
        let case = Case {
            fault: Fault::Window,
            at: 0,
            seed,
            method: Method::Zstd,
            packs: true,
            spill: Spill::After(Duration::from_secs(60)),
        };
        assert_eq!(run(&engine, &server.address, &case), ending);
    }
}
