//! Two endpoints over real sockets: what goes in comes out, whatever the plan and whatever is cut.

use std::{
    io::{Read, Write},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use narrows::{Acceptor, Code, Dial, Endpoint, Engine, Plan, Settings, candidate};
use narrows_io::{Address, Listener, Tuning, transport};

/// Text, numbers and noise, so that codecs and raw chunks alternate.
fn data(len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    let mut x = 88_172_645_463_325_252_u64;
    while bytes.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        match bytes.len() / 300_000 % 3 {
            0 => bytes
                .extend_from_slice(format!("line {} of {}\n", bytes.len(), x % 1000).as_bytes()),
            1 => bytes.extend_from_slice(&((x % 1024) as u32).to_le_bytes()),
            _ => bytes.extend_from_slice(&x.to_le_bytes()),
        }
    }
    bytes.truncate(len);
    bytes
}

fn listener() -> (Arc<Listener>, Address) {
    let address = Address::parse("127.0.0.1:0", 0).unwrap();
    let listener = Listener::bind(&address, &Tuning::default()).unwrap();
    let local = listener.local().clone();
    (Arc::new(listener), local)
}

/// Accepts connections for ever and hands out the sessions among them.
fn accept(
    listener: Arc<Listener>,
    engine: &Engine,
    settings: Settings,
) -> std::sync::mpsc::Receiver<Endpoint> {
    let (tx, rx) = std::sync::mpsc::channel();
    let acceptor = Arc::new(Acceptor::new(engine.clone(), settings));
    thread::spawn(move || {
        while let Ok(Some(transport)) = listener.accept() {
            let (acceptor, tx) = (acceptor.clone(), tx.clone());
            thread::spawn(move || {
                if let Ok(Some(endpoint)) = acceptor.take(transport) {
                    let _ = tx.send(endpoint);
                }
            });
        }
    });
    rx
}

fn dial(address: Address) -> Dial {
    Box::new(move || {
        transport::connect(&address, &Tuning::default()).map_err(std::io::Error::other)
    })
}

/// Sends `bytes` from one endpoint to another and back again.
fn echo(settings: Settings, bytes: &[u8]) {
    echo_over(settings, bytes, |address| address);
}

/// The same over what `way` puts before the address.
fn echo_over(settings: Settings, bytes: &[u8], way: impl FnOnce(Address) -> Address) {
    let engine = Engine::new(2);
    let (listener, address) = listener();
    let sessions = accept(listener, &engine, settings.clone());
    let here = Endpoint::connect(&engine, settings.clone(), dial(way(address))).unwrap();
    let there = sessions.recv_timeout(Duration::from_secs(10)).unwrap();
    let server = thread::spawn(move || {
        let mut incoming = there.accept().unwrap().unwrap();
        assert_eq!(incoming.service, "echo");
        let mut got = Vec::new();
        incoming.reader.read_to_end(&mut got).unwrap();
        incoming.writer.write_all(&got).unwrap();
        incoming.writer.finish().unwrap();
        incoming.writer.wait_consumed().unwrap();
        assert!(there.accept().unwrap().is_none());
    });
    let (mut writer, mut reader) = here.open("echo").unwrap();
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap();
    let mut back = Vec::new();
    reader.read_to_end(&mut back).unwrap();
    assert!(
        back == bytes,
        "{} bytes came back of {}",
        back.len(),
        bytes.len()
    );
    drop(reader);
    here.close();
    server.join().unwrap();
}

#[test]
fn every_plan_carries_everything_both_ways() {
    let registry = narrows::default_registry();
    let bytes = data(3_000_000);
    let with = |text: &str| candidate(&registry, text, 1 << 20).unwrap();
    for plan in [
        Plan::None,
        Plan::Naive(with("lz4")),
        Plan::Fixed(with("zstd:6")),
        Plan::Fixed(with("snappy")),
        Plan::Adaptive,
    ] {
        for keep_if_smaller in [true, false] {
            echo(
                Settings::builder()
                    .plan(plan.clone())
                    .keep_if_smaller(keep_if_smaller)
                    .build(),
                &bytes,
            );
        }
    }
}

// Goal: a level that the best backend lacks (ISA-L has DEFLATE at 0 and 1 only) is packed by one that has it, not at
// the nearest.
#[test]
fn a_level_is_what_was_asked_for_whichever_backend_comes_first() {
    let registry = narrows::default_registry();
    let bytes = data(280_000);
    let packed = |text: &str| {
        let sum = Arc::new(AtomicU64::new(0));
        let explain: narrows::Explain = {
            let sum = sum.clone();
            Arc::new(move |_, outcome| _ = sum.fetch_add(u64::from(outcome.packed_len), Relaxed))
        };
        let plan = Plan::Fixed(candidate(&registry, text, 0).unwrap());
        // There and back: twice.
        echo(
            Settings::builder().plan(plan).explain(explain).build(),
            &bytes,
        );
        sum.load(Relaxed)
    };
    let (one, six, twelve) = (
        packed("deflate:1"),
        packed("deflate:6"),
        packed("deflate:12"),
    );
    assert!(
        twelve < six && six < one,
        "{one}, {six}, {twelve} bytes at levels 1, 6, 12"
    );
    for (text, said) in [
        ("deflate:13", "deflate has levels 0..12; `13` is none"),
        ("deflate:x", "deflate has levels 0..12; `x` is none"),
        ("snappy:1", "snappy has no levels; `1` is none"),
        (
            "dflate:1",
            "there is no codec `dflate` here; `narrows codecs` lists those there are",
        ),
    ] {
        assert_eq!(candidate(&registry, text, 0).unwrap_err().to_string(), said);
    }
}

// Goal: a link that nothing interrupts within one machine is taken for as fast as such links are from the first chunk
// on, by both ends; behind a relay on the same loopback there may be any link.
#[test]
fn loopback_is_taken_for_fast_where_nothing_is_in_between() {
    let first = |way: fn(Address) -> Address| {
        let guesses = Arc::new(Mutex::new(Vec::new()));
        let explain: narrows::Explain = {
            let guesses = guesses.clone();
            Arc::new(move |decision, _| {
                guesses
                    .lock()
                    .unwrap()
                    .push(decision.estimate.link_bytes_per_s)
            })
        };
        echo_over(
            Settings::builder().explain(explain).build(),
            &data(1000),
            way,
        );
        guesses.lock().unwrap().clone()
    };
    let relayed = first(|address| relay(address, Arc::default(), Duration::ZERO));
    let direct = first(|address| address);
    assert_eq!((relayed.len(), direct.len()), (2, 2));
    assert!(
        relayed.iter().all(|&guess| guess == 50_000_000),
        "{relayed:?}"
    );
    assert!(
        direct.iter().all(|&guess| guess == 1_000_000_000),
        "{direct:?}"
    );
}

#[test]
fn lengths_around_nothing_and_around_a_chunk() {
    for len in [0, 1, 2, 4095, 65_536, 65_537, 262_144, 262_145] {
        echo(Settings::default(), &data(len));
        echo(
            Settings::builder().chunk_len(512).build(),
            &data(len.min(70_000)),
        );
    }
}

#[test]
fn several_connections_carry_one_session() {
    echo(
        Settings::builder().connections(3).build(),
        &data(20_000_000),
    );
}

/// Sends to a reader that stalls for a while, with these windows, over so many connections.
fn stall(of_sender: usize, of_receiver: usize, connections: usize) {
    let engine = Engine::new(2);
    let with = |window_len| {
        let mut settings = Settings::builder()
            .plan(Plan::None)
            .connections(connections)
            .build();
        settings.limits.window_len = window_len;
        settings
    };
    let (listener, address) = listener();
    let sessions = accept(listener, &engine, with(of_receiver));
    let here = Endpoint::connect(&engine, with(of_sender), dial(address)).unwrap();
    let there = sessions.recv_timeout(Duration::from_secs(10)).unwrap();
    let bytes = data(30_000_000);
    let sender = {
        let (mut writer, _reader) = here.open("x").unwrap();
        let bytes = bytes.clone();
        thread::spawn(move || {
            writer.write_all(&bytes).unwrap();
            writer.finish().unwrap();
            writer.wait_consumed().unwrap();
        })
    };
    let mut incoming = there.accept().unwrap().unwrap();
    thread::sleep(Duration::from_millis(300));
    let (sent, most) = (
        here.stats().sent_wire,
        of_sender.min(of_receiver) as u64 + (64 << 10),
    );
    assert!(
        sent <= most,
        "{sent} bytes went out, windows {of_sender} and {of_receiver}, {connections} connections"
    );
    let mut got = Vec::new();
    incoming.reader.read_to_end(&mut got).unwrap();
    assert!(got == bytes);
    sender.join().unwrap();
}

#[test]
fn a_stalled_reader_holds_the_sender_and_nothing_is_lost() {
    stall(1 << 20, 1 << 20, 1);
}

// Goal: the lesser window counts, whosever it is; and who is held is told to go on, with windows shorter than a chunk
// too.
#[test]
fn the_lesser_window_bounds_what_is_outstanding() {
    for connections in [1, 4] {
        for (one, other) in [(1 << 20, 16 << 20), (300 << 10, 16 << 20)] {
            stall(one, other, connections);
            stall(other, one, connections);
        }
    }
}

// Goal: the writer of the link that a credit is for is the one that is woken, of several.
#[test]
fn credit_is_told_at_once_over_several_connections() {
    let engine = Engine::new(2);
    let mut settings = Settings::builder()
        .plan(Plan::None)
        .chunk_len(60 << 10)
        .connections(4)
        .build();
    settings.limits.window_len = 64 << 10;
    let (listener, address) = listener();
    let sessions = accept(listener, &engine, settings.clone());
    let here = Endpoint::connect(&engine, settings, dial(address)).unwrap();
    let there = sessions.recv_timeout(Duration::from_secs(10)).unwrap();
    let (mut writer, _reader) = here.open("x").unwrap();
    let mut incoming = there.accept().unwrap().unwrap();
    let reading = thread::spawn(move || {
        incoming.reader.set_direct(Box::new(|bytes| bytes.len()));
        while incoming.reader.next_chunk().unwrap().is_some() {}
        let _ = there.accept();
    });
    thread::sleep(Duration::from_millis(1500));
    let began = std::time::Instant::now();
    writer.write_all(&data(8 << 20)).unwrap();
    writer.finish().unwrap();
    writer.wait_consumed().unwrap();
    // A round each 60 KiB; some 50 ms each where only the keeper wakes the right one.
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    here.close();
    reading.join().unwrap();
}

#[test]
fn an_abort_reaches_the_other_side_in_words() {
    let engine = Engine::new(2);
    let (listener, address) = listener();
    let sessions = accept(listener, &engine, Settings::default());
    let here = Endpoint::connect(&engine, Settings::default(), dial(address)).unwrap();
    let there = sessions.recv_timeout(Duration::from_secs(10)).unwrap();
    let (mut writer, _reader) = here.open("x").unwrap();
    let incoming = there.accept().unwrap().unwrap();
    incoming
        .reader
        .abort(Code::FAILED, "no space left on /data");
    let end = loop {
        if let Err(fault) = writer.write_all(&[7; 100_000]) {
            break fault.to_string();
        }
    };
    assert_eq!(end, "no space left on /data");
    // What was sent is no longer waited for, and not consumed all the same.
    let (mut writer, _reader) = here.open("y").unwrap();
    writer.write_all(&[7; 1000]).unwrap();
    writer.finish().unwrap();
    let incoming = there.accept().unwrap().unwrap();
    incoming.reader.abort(Code::FAILED, "no space either");
    assert_eq!(
        writer.wait_consumed().unwrap_err().text(),
        "no space either"
    );
    there.fail(Code::LIMIT, "shutting down");
    let end = here.accept().unwrap_err();
    assert_eq!((end.code(), end.text()), (Code::LIMIT, "shutting down"));
}

// Goal: a host that stands still takes connections, as its kernel does that, and never answers; a session ends in the
// time it was given all the same. Method: the first dial reaches a peer, all later ones a socket that nobody reads.
#[test]
fn a_peer_that_accepts_and_is_silent_has_not_come_back() {
    let engine = Engine::new(2);
    let (listener, address) = listener();
    let sessions = accept(listener, &engine, Settings::default());
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = Address::parse(&mute.local_addr().unwrap().to_string(), 0).unwrap();
    let first = Arc::new(std::sync::Mutex::new(None));
    let held = first.clone();
    let dial: Dial = Box::new(move || {
        let mut first = held.lock().unwrap();
        let to = if first.is_none() { &address } else { &silent };
        let transport =
            transport::connect(to, &Tuning::default()).map_err(std::io::Error::other)?;
        first.get_or_insert_with(|| transport.shutdown.clone());
        Ok(transport)
    });
    let settings = Settings::builder()
        .resume_within(Duration::from_millis(400))
        .build();
    let here = Endpoint::connect(&engine, settings, dial).unwrap();
    let _there = sessions.recv_timeout(Duration::from_secs(10)).unwrap();
    let began = std::time::Instant::now();
    first.lock().unwrap().as_ref().unwrap().abort();
    let end = here.accept().unwrap_err();
    assert!(end.text().contains("did not come back"), "{end}");
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );
}

// Goal: who is cut off in a crowd of strangers gets in all the same, and who only ever is, hears why soon. Method: the
// first three dials, or all, reach a socket that is closed at once; a dial that works once is not tried again.
#[test]
fn a_connection_that_is_cut_before_its_greeting_is_made_again() {
    let engine = Engine::new(2);
    let (listener, address) = listener();
    let sessions = accept(listener, &engine, Settings::default());
    let rude = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let cuts = Address::parse(&rude.local_addr().unwrap().to_string(), 0).unwrap();
    thread::spawn(move || rude.incoming().for_each(drop));
    let dials = Arc::new(AtomicUsize::new(0));
    let after = |cut: usize| -> Dial {
        let (dials, cuts, address) = (dials.clone(), cuts.clone(), address.clone());
        dials.store(0, Relaxed);
        Box::new(move || {
            let is_cut = dials.fetch_add(1, Relaxed) < cut;
            let to = if is_cut { &cuts } else { &address };
            transport::connect(to, &Tuning::default()).map_err(std::io::Error::other)
        })
    };
    let here = Endpoint::connect(&engine, Settings::default(), after(3)).unwrap();
    sessions.recv_timeout(Duration::from_secs(10)).unwrap();
    here.close();
    let end = Endpoint::connect(&engine, Settings::default(), after(usize::MAX)).unwrap_err();
    assert!(end.text().contains("handshake"), "{end}");
    assert_eq!(dials.load(Relaxed), 6);
    let once = transport::connect(&cuts, &Tuning::default()).unwrap();
    let end = Endpoint::connect(&engine, Settings::default(), narrows::dial_once(once));
    assert!(end.unwrap_err().text().contains("handshake"));
}

/// Passes bytes on both ways until `dead`, then takes no more of them, and keeps its connections.
fn relay(to: Address, dead: Arc<AtomicBool>, per_piece: Duration) -> Address {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::parse(&listener.local_addr().unwrap().to_string(), 0).unwrap();
    thread::spawn(move || {
        let (near, _) = listener.accept().unwrap();
        let far = std::net::TcpStream::connect(to.to_string()).unwrap();
        for (mut from, mut to) in [
            (near.try_clone().unwrap(), far.try_clone().unwrap()),
            (far, near),
        ] {
            let dead = dead.clone();
            thread::spawn(move || {
                let mut buf = [0; 16 << 10];
                while !dead.load(Relaxed) {
                    let Ok(len @ 1..) = from.read(&mut buf) else {
                        return;
                    };
                    thread::sleep(per_piece);
                    if dead.load(Relaxed) || to.write_all(&buf[..len]).is_err() {
                        break;
                    }
                }
                thread::sleep(Duration::from_secs(60));
            });
        }
    });
    address
}

// Goal: one of two links dies without a word, what was under way on it with it; the transfer goes on over the other
// one.
#[test]
fn a_dead_link_among_several_is_given_up() {
    let engine = Engine::new(2);
    let mut settings = Settings::builder().plan(Plan::None).connections(2).build();
    settings.silence = Duration::from_millis(600);
    settings.limits.window_len = 1 << 20;
    let (listener, address) = listener();
    let sessions = accept(listener, &engine, settings.clone());
    let dead = Arc::new(AtomicBool::new(false));
    let relayed = relay(address.clone(), dead.clone(), Duration::ZERO);
    let dials = AtomicU64::new(0);
    // Only the second connection goes by way of the relay.
    let dial: Dial = Box::new(move || {
        let to = if dials.fetch_add(1, Relaxed) == 1 {
            &relayed
        } else {
            &address
        };
        transport::connect(to, &Tuning::default()).map_err(std::io::Error::other)
    });
    let here = Endpoint::connect(&engine, settings, dial).unwrap();
    let there = sessions.recv_timeout(Duration::from_secs(10)).unwrap();
    let (mut writer, _reader) = here.open("x").unwrap();
    let bytes = data(20_000_000);
    let sent = bytes.clone();
    let sender = thread::spawn(move || {
        writer.write_all(&sent[..10_000_000]).unwrap();
        dead.store(true, Relaxed);
        writer.write_all(&sent[10_000_000..]).unwrap();
        writer.finish().unwrap();
        writer.wait_consumed().unwrap();
    });
    let (done, wait) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let mut incoming = there.accept().unwrap().unwrap();
        let mut got = Vec::new();
        incoming.reader.read_to_end(&mut got).unwrap();
        let _ = done.send(got);
        let _ = there.accept();
    });
    let got = wait
        .recv_timeout(Duration::from_secs(20))
        .expect("the transfer goes on");
    assert!(got == bytes);
    sender.join().unwrap();
}

// Goal: a link that cannot be made keeps nobody from looking after the one there is. Method: the second dial hangs, and
// the first link's way back falls silent.
#[test]
fn a_link_that_cannot_be_made_does_not_hold_up_the_others() {
    let engine = Engine::new(1);
    let mut settings = Settings::builder().connections(2).build();
    settings.silence = Duration::from_millis(600);
    let (listener, address) = listener();
    let sessions = accept(listener, &engine, settings.clone());
    let relay = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let relayed = Address::parse(&relay.local_addr().unwrap().to_string(), 0).unwrap();
    let dead = Arc::new(AtomicBool::new(false));
    let (cut, given_up) = std::sync::mpsc::channel();
    let silent = dead.clone();
    thread::spawn(move || {
        let (mut near, _) = relay.accept().unwrap();
        let mut far = std::net::TcpStream::connect(address.to_string()).unwrap();
        let (mut back, mut to) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        thread::spawn(move || {
            let mut buf = [0; 4096];
            while let Ok(len @ 1..) = back.read(&mut buf) {
                if !silent.load(Relaxed) && to.write_all(&buf[..len]).is_err() {
                    break;
                }
            }
        });
        let _ = std::io::copy(&mut near, &mut far);
        let _ = cut.send(());
    });
    let dials = Arc::new(AtomicU64::new(0));
    let dialled = dials.clone();
    let dial: Dial = Box::new(move || {
        if dials.fetch_add(1, Relaxed) > 0 {
            thread::sleep(Duration::from_secs(8));
            return Err(std::io::Error::other("no way"));
        }
        transport::connect(&relayed, &Tuning::default()).map_err(std::io::Error::other)
    });
    let _here = Endpoint::connect(&engine, settings, dial).unwrap();
    let _there = sessions.recv_timeout(Duration::from_secs(10)).unwrap();
    while dialled.load(Relaxed) < 2 {
        thread::sleep(Duration::from_millis(10));
    }
    dead.store(true, Relaxed);
    given_up
        .recv_timeout(Duration::from_secs(4))
        .expect("the silent link is given up while the other is dialled");
}

// Goal: a frame that takes longer than the silence allowed is no silence, to either side.
#[test]
fn a_long_frame_on_a_slow_link_is_no_silence() {
    let engine = Engine::new(2);
    let mut settings = Settings::builder()
        .plan(Plan::None)
        .chunk_len(4 << 20)
        .build();
    settings.silence = Duration::from_millis(600);
    let (listener, address) = listener();
    let sessions = accept(listener, &engine, settings.clone());
    // 16 KiB in 10 ms: 4 MiB take 2.5 s and more.
    let relayed = relay(address, Arc::default(), Duration::from_millis(10));
    let dials = Arc::new(AtomicU64::new(0));
    let dialled = dials.clone();
    let dial: Dial = Box::new(move || {
        dialled.fetch_add(1, Relaxed);
        transport::connect(&relayed, &Tuning::default()).map_err(std::io::Error::other)
    });
    let here = Endpoint::connect(&engine, settings, dial).unwrap();
    let there = sessions.recv_timeout(Duration::from_secs(10)).unwrap();
    let (mut writer, _reader) = here.open("x").unwrap();
    let bytes = data(4 << 20);
    let sent = bytes.clone();
    let sender = thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.finish().unwrap();
        writer.wait_consumed().unwrap();
    });
    let mut incoming = there.accept().unwrap().unwrap();
    let mut got = Vec::new();
    incoming.reader.read_to_end(&mut got).unwrap();
    assert!(got == bytes);
    sender.join().unwrap();
    assert_eq!(dials.load(Relaxed), 1, "the link was given up");
}
