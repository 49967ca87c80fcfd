//! A connection reset at every byte of a session, in both directions.
//!
//! Goal: wherever the network cuts, the files arrive right, or both ends say that they did not. Method: one small
//! transfer through the link emulator for each byte offset of the session, reset just there, once; many at a time, as
//! each mostly waits for its next dial.

use std::{
    collections::BTreeMap,
    fs, io,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use narrows::{Acceptor, Dial, Endpoint, Engine, Settings};
use narrows_io::{
    Address, Listener, Tuning,
    emulator::{Direction, Emulator, Link},
    secure::{self, Auth, keys},
    transport,
};
use narrows_testkit::data::{Kind, make};
use narrows_wire::{
    TransferError,
    keep::Keep,
    recv,
    send::{self, Moment, Wishes},
    source::{Filter, Source},
};
use tempfile::TempDir;

/// Longer than any of it takes unless something waits for what never comes.
const HANG: Duration = Duration::from_secs(60);

struct Server {
    address: Address,
    sessions: mpsc::Receiver<Endpoint>,
    stop: narrows_io::Stop,
}

/// Small chunks, so that a short session has many.
fn settings() -> Settings {
    Settings::builder()
        .chunk_len(512)
        .resume_within(Duration::from_millis(400))
        .build()
}

impl Server {
    fn start(engine: &Engine, auth: &Auth, settings: Settings) -> Self {
        let listener = Listener::bind(
            &Address::parse("127.0.0.1:0", 0).unwrap(),
            &Tuning::default(),
        )
        .unwrap();
        let (address, stop) = (listener.local().clone(), listener.stopper());
        let acceptor = Arc::new(Acceptor::new(engine.clone(), settings));
        let (found, sessions) = mpsc::channel();
        let auth = auth.clone();
        thread::spawn(move || {
            while let Ok(Some(transport)) = listener.accept() {
                let (acceptor, found, auth) = (acceptor.clone(), found.clone(), auth.clone());
                thread::spawn(move || {
                    let Ok(transport) = secure::accept(transport, &auth) else {
                        return;
                    };
                    if let Ok(Some(endpoint)) = acceptor.take(transport) {
                        let _ = found.send(endpoint);
                    }
                });
            }
        });
        Self {
            address,
            sessions,
            stop,
        }
    }
}

fn dial(address: Address, auth: Auth) -> Dial {
    Box::new(move || {
        let transport =
            transport::connect(&address, &Tuning::default()).map_err(io::Error::other)?;
        secure::connect(transport, &auth, "localhost").map_err(io::Error::other)
    })
}

/// Some hundred bytes on the wire, in every kind of entry.
fn small_tree(len: usize) -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("d/noise"), make(Kind::Random, len, 1)).unwrap();
    fs::write(dir.path().join("d/text"), make(Kind::Text, len, 2)).unwrap();
    fs::write(dir.path().join("empty"), b"").unwrap();
    std::os::unix::fs::symlink("d/text", dir.path().join("link")).unwrap();
    dir
}

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let Ok(entries) = fs::read_dir(dir) else {
        return found;
    };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() {
            found.extend(
                files(&path)
                    .into_iter()
                    .map(|(below, bytes)| (format!("{name}/{below}"), bytes)),
            );
        } else {
            found.insert(name, fs::read(&path).unwrap_or_default());
        }
    }
    found
}

#[derive(Default, Debug)]
struct Counts {
    untouched: AtomicU64,
    resumed: AtomicU64,
    refused: AtomicU64,
    /// All is in place, but the last words were lost: the sender reports a peer that vanished.
    last_words: AtomicU64,
}

/// One transfer with a reset after `offset` bytes in `direction`; `None` is one without. Returns the bytes carried.
#[allow(clippy::too_many_lines, reason = "a scenario is told in one go")]
fn transfer(
    engine: &Engine,
    auth: &Auth,
    tree: &Path,
    cut: Option<(Direction, u64)>,
    counts: &Counts,
) -> [u64; 2] {
    let into = TempDir::new().unwrap();
    let server = Server::start(engine, auth, settings());
    let any = Address::parse("127.0.0.1:0", 0).unwrap();
    let emulator =
        Emulator::start(&any, &server.address, Link::default(), Link::default()).unwrap();
    if let Some((direction, offset)) = cut {
        emulator.reset_after(direction, Some(offset));
    }
    let receiving = {
        let (sessions, into) = (server.sessions, into.path().to_path_buf());
        thread::spawn(move || -> Result<(), TransferError> {
            // None comes where the reset hit the handshake before the receiver knew of a session.
            let Ok(endpoint) = sessions.recv() else {
                return Err(TransferError::Refused("no session".into()));
            };
            let mut done = false;
            loop {
                let incoming = match endpoint.accept() {
                    Ok(Some(incoming)) => incoming,
                    Ok(None) => {
                        return if done {
                            Ok(())
                        } else {
                            Err(TransferError::Refused("ended empty".into()))
                        };
                    }
                    Err(_) if done => return Ok(()),
                    Err(end) => return Err(end.into()),
                };
                assert!(!done, "a second transfer appeared");
                recv::incoming(
                    incoming,
                    recv::Sink::Dir(&into, Keep::default()),
                    &mut |_| {},
                )?;
                done = true;
            }
        })
    };
    let mut resumed = 0;
    let sent = Endpoint::connect(
        engine,
        settings(),
        dial(emulator.local().clone(), auth.clone()),
    )
    .map_err(TransferError::from)
    .and_then(|endpoint| {
        let sent = source(&tree.join(".")).and_then(|source| {
            let sent = send::paths(&endpoint, &source, &Wishes::default(), &mut |_| {})?;
            Ok(sent.received)
        });
        resumed = endpoint.stats().resumed;
        endpoint.close();
        sent
    });
    server.stop.stop();
    let received = receiving.join().expect("the receiver does not panic");
    let what = format!("{cut:?}: sender {sent:?}, receiver {received:?}, resumed {resumed}");
    let (whole, got) = (files(tree), files(into.path()));
    assert!(
        got.keys().all(|name| !name.contains(".narrows-")),
        "{what}: left {:?}",
        got.keys()
    );
    // A file under its name is whole, whatever else happened.
    assert!(
        got.iter()
            .all(|(name, bytes)| whole.get(name) == Some(bytes)),
        "{what}: a file is not whole"
    );
    let complete = got == whole;
    let outcome = match (&sent, &received) {
        (Ok(_), Ok(())) => {
            assert!(complete, "{what}: both are content and files are missing");
            if resumed > 0 {
                &counts.resumed
            } else {
                &counts.untouched
            }
        }
        (Ok(_), Err(_)) => panic!("{what}: the sender was told what the receiver denies"),
        (Err(end), Ok(())) => {
            assert!(complete && !end.to_string().is_empty(), "{what}");
            &counts.last_words
        }
        (Err(here), Err(there)) => {
            assert!(
                !here.to_string().is_empty() && !there.to_string().is_empty(),
                "{what}"
            );
            &counts.refused
        }
    };
    outcome.fetch_add(1, Ordering::Relaxed);
    [
        emulator.carried(Direction::Up),
        emulator.carried(Direction::Down),
    ]
}

/// Resets at every `every`th byte, many at a time, and prints what came of them.
fn reset_at(name: &str, auth: &Auth, len: usize, every: usize) {
    let engine = Engine::new(2);
    let tree = Arc::new(small_tree(len));
    let counts = Arc::new(Counts::default());
    let [up, down] = transfer(&engine, auth, tree.path(), None, &counts);
    let cuts: Vec<_> = (0..=up + 8)
        .map(|offset| (Direction::Up, offset))
        .chain((0..=down + 8).map(|offset| (Direction::Down, offset)))
        .step_by(every)
        .collect();
    let total = cuts.len();
    let cuts = Arc::new(Mutex::new(cuts));
    let (done, all_done) = mpsc::channel();
    for _ in 0..48 {
        let (engine, auth, tree) = (engine.clone(), auth.clone(), tree.clone());
        let (counts, cuts, done) = (counts.clone(), cuts.clone(), done.clone());
        thread::spawn(move || {
            loop {
                let Some(cut) = cuts.lock().unwrap().pop() else {
                    return;
                };
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    transfer(&engine, &auth, tree.path(), Some(cut), &counts);
                }));
                let _ = done.send(result.map_err(|_| cut));
            }
        });
    }
    drop(done);
    for at in 0..total {
        match all_done.recv_timeout(HANG) {
            Ok(Ok(())) => {}
            Ok(Err(cut)) => panic!("reset at {cut:?}: see above"),
            Err(_) => {
                panic!("{name}: {at} of {total} resets came to an end, the next hangs; {counts:?}")
            }
        }
    }
    println!("{name}: {total} resets in a session of {up} bytes up and {down} down: {counts:?}");
    assert!(counts.resumed.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_reset_at_every_byte_of_a_session() {
    reset_at("plain", &Auth::None, 450, 1);
}

#[test]
fn resets_under_tls_and_under_a_pre_shared_key() {
    let dir = TempDir::new().unwrap();
    let keys_dir = dir.path().join("keys");
    keys::generate(&keys_dir, &keys::Request::default()).unwrap();
    reset_at(
        "tls",
        &Auth::Tls {
            dir: keys_dir.clone(),
            server_name: None,
        },
        2000,
        29,
    );
    let psk = secure::Psk::load(&keys_dir.join(keys::PSK_FILE), None).unwrap();
    reset_at("psk", &Auth::Psk(psk), 2000, 23);
}

// Goal: a large transfer goes on where it was, several times over, and does not begin again.
#[test]
fn a_large_transfer_resumes_after_every_cut() {
    let engine = Engine::new(2);
    let from = TempDir::new().unwrap();
    let into = TempDir::new().unwrap();
    let len = 24 << 20;
    fs::write(from.path().join("big"), make(Kind::Random, len, 3)).unwrap();
    for connections in [1, 3] {
        let settings = Settings::builder().connections(connections).build();
        let server = Server::start(&engine, &Auth::None, settings.clone());
        let any = Address::parse("127.0.0.1:0", 0).unwrap();
        let link = Link {
            rate: Some(narrows_core::units::Rate(40e6)),
            ..Link::default()
        };
        let emulator = Emulator::start(&any, &server.address, link, Link::default()).unwrap();
        let to = emulator.local().clone();
        let (sessions, dir) = (server.sessions, into.path().to_path_buf());
        let receiving = thread::spawn(move || {
            let endpoint = sessions.recv().unwrap();
            let incoming = endpoint.accept().unwrap().unwrap();
            recv::incoming(
                incoming,
                recv::Sink::Dir(&dir, Keep::default()),
                &mut |_| {},
            )
            .unwrap();
            while let Ok(Some(_)) = endpoint.accept() {}
        });
        let endpoint = Endpoint::connect(&engine, settings, dial(to, Auth::None)).unwrap();
        let mut cuts = 0_u64;
        let mut progress = |_: &Moment<'_>| {
            if emulator.carried(Direction::Up) > (cuts + 1) * (5 << 20) && cuts < 4 {
                cuts += 1;
                emulator.reset_all();
            }
        };
        let source = source(&from.path().join("big")).unwrap();
        let sent = send::paths(&endpoint, &source, &Wishes::default(), &mut progress).unwrap();
        let received = sent.received;
        let stats = endpoint.stats();
        endpoint.close();
        receiving.join().unwrap();
        server.stop.stop();
        assert_eq!(received.bytes, len as u64);
        assert!(cuts >= 2 && stats.resumed >= 1, "{cuts} cuts, {stats:?}");
        assert!(fs::read(into.path().join("big")).unwrap() == make(Kind::Random, len, 3));
        let again = stats.sent_wire - len as u64;
        println!(
            "{connections} connections: {cuts} cuts, resumed {}, {again} bytes sent again",
            stats.resumed
        );
        assert!(
            again < (cuts + 1) * (17 << 20),
            "a cut costs no more than the window"
        );
    }
}

fn source(path: &Path) -> Result<Source, TransferError> {
    Source::named(&[path.to_path_buf()], Filter::default())
}
