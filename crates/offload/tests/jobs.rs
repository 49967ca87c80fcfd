//! Jobs over real sockets: what comes back, and what a server does with many.

mod common;

use std::{
    fs,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use common::{METHODS, Place, connect, is_packed_form, options, pack, run, serve, unpack, within};
use narrows::{Endpoint, Engine};
use narrows_offload::{
    Method, OffloadError, Options, SERVICE, ServerOptions, Spill, file, message,
};
use narrows_testkit::data::Kind;

#[test]
fn files_go_there_and_come_back_packed_and_unpacked() {
    let engine = Engine::new(1);
    let server = serve(&engine, ServerOptions::new(2));
    for method in METHODS {
        for (kind, len) in [
            (Kind::Text, 1_000_000),
            (Kind::Random, 300_000),
            (Kind::Floats, 65_536),
            (Kind::Zeros, 0),
        ] {
            let place = Place::new(kind, len, 1);
            let options = Options {
                spill: Spill::Never,
                ..options(method)
            };
            let packed = pack(&engine, Some(&server.address), &options, &place).unwrap();
            assert_eq!(
                packed.remote_blocks,
                len.div_ceil(options.block_len) as u64,
                "{method:?} {kind:?}"
            );
            assert!(packed.verified && packed.spilled.total() == 0 && packed.server_lost.is_none());
            assert_eq!(packed.raw_bytes, len as u64);
            assert_eq!(
                packed.packed_bytes,
                fs::metadata(place.packed()).unwrap().len()
            );
            assert!(len == 0 || packed.server_cpu_s.is_some(), "no summary");
            if kind == Kind::Random {
                assert_eq!(packed.stored_blocks, packed.blocks);
            }
            let unpacked = unpack(&engine, Some(&server.address), &options, &place).unwrap();
            assert!(
                fs::read(place.back()).unwrap() == place.raw,
                "{method:?} {kind:?}"
            );
            assert!(unpacked.verified && unpacked.spilled.total() == 0 && place.is_tidy());
            for program in [
                ("gzip", Method::Deflate),
                ("zstd", Method::Zstd),
                ("lz4", Method::Lz4),
            ] {
                if program.1 != method {
                    continue;
                }
                let input = fs::File::open(place.packed()).unwrap();
                match Command::new(program.0)
                    .args(["-d", "-c"])
                    .stdin(input)
                    .output()
                {
                    Ok(output) => assert!(
                        output.status.success() && output.stdout == place.raw,
                        "{method:?} {kind:?}"
                    ),
                    Err(_) => eprintln!("skipped: there is no {} here", program.0),
                }
            }
        }
    }
}

#[test]
fn what_is_packed_here_is_what_is_packed_there() {
    let engine = Engine::new(1);
    let server = serve(&engine, ServerOptions::new(2));
    let place = Place::new(Kind::Mixed, 500_000, 2);
    for method in METHODS {
        let options = options(method);
        pack(&engine, Some(&server.address), &options, &place).unwrap();
        let there = fs::read(place.packed()).unwrap();
        let report = pack(&engine, None, &options, &place).unwrap();
        assert!(fs::read(place.packed()).unwrap() == there, "{method:?}");
        assert!(
            report.server.is_none()
                && report.spilled.lost == report.blocks
                && report.server_lost.is_none()
        );
    }
}

#[test]
fn a_copy_brings_back_what_it_was_asked_for() {
    let engine = Engine::new(1);
    let server = serve(&engine, ServerOptions::new(2));
    let place = Place::new(Kind::Text, 400_000, 3);
    for (back, least, most) in [
        (0.0, 0, 0),
        (0.25, 99_900, 100_000),
        (1.0, 400_000, 400_000),
    ] {
        let options = options(Method::Deflate);
        let report = run(&engine, Some(&server.address), &options, |job| {
            file::copy(job, &place.from(), back)
        })
        .unwrap();
        assert_eq!(report.raw_bytes, 400_000);
        assert!(
            (least..=most).contains(&report.packed_bytes),
            "{back}: {}",
            report.packed_bytes
        );
    }
}

#[test]
fn a_damaged_file_is_an_error_whoever_unpacks_it() {
    let engine = Engine::new(1);
    let server = serve(&engine, ServerOptions::new(2));
    for method in METHODS {
        let place = Place::new(Kind::Text, 300_000, 4);
        let options = options(method);
        pack(&engine, None, &options, &place).unwrap();
        let mut bytes = fs::read(place.packed()).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        fs::write(place.packed(), bytes).unwrap();
        for address in [None, Some(&server.address)] {
            let fault = unpack(&engine, address, &options, &place).unwrap_err();
            assert!(
                matches!(fault, OffloadError::Damaged(_)),
                "{method:?}: {fault}"
            );
            assert!(!place.back().exists() && place.is_tidy());
        }
    }
}

#[test]
fn a_full_server_says_so_and_the_work_is_done_here() {
    let engine = Engine::new(1);
    let place = Place::new(Kind::Text, 200_000, 5);
    let full = serve(
        &engine,
        ServerOptions {
            memory_max: 1000,
            ..ServerOptions::new(1)
        },
    );
    let nobody = serve(
        &engine,
        ServerOptions {
            clients_max: 0,
            ..ServerOptions::new(1)
        },
    );
    for server in [&full, &nobody] {
        let auto = options(Method::Zstd);
        let report = pack(&engine, Some(&server.address), &auto, &place).unwrap();
        assert!(
            report.spilled.lost == report.blocks
                && is_packed_form(&engine, &place.packed(), &place.raw)
        );
        let why = report.server_lost.unwrap();
        assert!(why.contains("full") || why.contains("clients"), "{why}");
        let never = Options {
            spill: Spill::Never,
            ..auto
        };
        let fault = pack(&engine, Some(&server.address), &never, &place).unwrap_err();
        assert!(
            matches!(fault, OffloadError::Spill(_) | OffloadError::Session(_)),
            "{fault}"
        );
    }
}

// Goal: what the workers keep for a high level counts too, also for the jobs that follow.
#[test]
fn a_level_whose_contexts_do_not_fit_is_refused_and_the_work_is_done_here() {
    let engine = Engine::new(1);
    let place = Place::new(Kind::Text, 200_000, 9);
    let options = |level| Options {
        level,
        block_len: 8 << 20,
        spill: Spill::Auto,
        ..options(Method::Zstd)
    };
    let pack = |memory_max, level| {
        let server = serve(
            &engine,
            ServerOptions {
                memory_max,
                ..ServerOptions::new(2)
            },
        );
        pack(&engine, Some(&server.address), &options(level), &place).unwrap()
    };
    let refused = pack(256 << 20, 22);
    assert!(is_packed_form(&engine, &place.packed(), &place.raw));
    assert!(
        refused.server_lost.unwrap().contains("full") && refused.spilled.lost == refused.blocks
    );
    for (memory_max, level) in [(256 << 20, 3), (1 << 30, 22)] {
        let report = pack(memory_max, level);
        assert!(
            report.server_lost.is_none(),
            "level {level}: {:?}",
            report.server_lost
        );
    }
}

#[test]
fn a_server_without_time_gives_blocks_back() {
    let engine = Engine::new(1);
    let place = Place::new(Kind::Text, 200_000, 6);
    let server = serve(
        &engine,
        ServerOptions {
            queue_max: Duration::ZERO,
            ..ServerOptions::new(1)
        },
    );
    let report = pack(
        &engine,
        Some(&server.address),
        &options(Method::Deflate),
        &place,
    )
    .unwrap();
    assert!(
        report.spilled.busy == report.blocks && report.server_lost.is_none(),
        "{report:?}"
    );
    assert!(is_packed_form(&engine, &place.packed(), &place.raw));
}

#[test]
fn a_job_that_is_stopped_leaves_nothing() {
    let engine = Engine::new(1);
    let server = serve(&engine, ServerOptions::new(1));
    let place = Place::new(Kind::Text, 4 << 20, 7);
    let options = Options {
        level: 12,
        ..options(Method::Deflate)
    };
    let endpoint = connect(&engine, &server.address).unwrap();
    let stop = AtomicBool::new(false);
    let fault = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(60));
            stop.store(true, Ordering::Relaxed);
        });
        let job = file::Job {
            engine: &engine,
            server: Some(&endpoint),
            options: &options,
            stop: &stop,
        };
        file::pack(&job, &place.from(), &place.packed()).unwrap_err()
    });
    assert!(matches!(fault, OffloadError::Interrupted), "{fault}");
    assert!(!place.packed().exists() && place.is_tidy());
}

// Goal: a client with little to do is not behind one with much. Method: a long job keeps a single worker busy; short
// ones beside it must take a small part of its time.
#[test]
fn many_clients_share_a_worker() {
    let engine = Engine::new(1);
    let server = Arc::new(serve(
        &engine,
        ServerOptions {
            queue_max: Duration::from_secs(60),
            ..ServerOptions::new(1)
        },
    ));
    let (done, heard) = mpsc::channel();
    let patient = Spill::After(Duration::from_secs(60));
    for client in 0..5_u64 {
        let (engine, server, done) = (engine.clone(), server.clone(), done.clone());
        thread::spawn(move || {
            let len = if client == 0 { 6 << 20 } else { 64 << 10 };
            let place = Place::new(Kind::Text, len, client);
            let options = Options {
                level: 9,
                spill: patient,
                ..options(Method::Deflate)
            };
            if client > 0 {
                thread::sleep(Duration::from_millis(100));
            }
            let began = Instant::now();
            let report = pack(&engine, Some(&server.address), &options, &place).unwrap();
            assert!(
                report.remote_blocks == report.blocks
                    && is_packed_form(&engine, &place.packed(), &place.raw)
            );
            done.send((client, began.elapsed())).unwrap();
        });
    }
    let order: Vec<_> = (0..5).map(|_| within(&heard)).collect();
    assert_eq!(order[4].0, 0, "{order:?}");
    assert!(
        order[..4].iter().all(|(_, took)| *took * 2 < order[4].1),
        "{order:?}"
    );
}

// Goal: a client cannot make the server hold more than was set aside, nor keep others from being served. Method: one
// that asks for small blocks and sends long ones, one that never reads, one that talks nonsense; beside them a good
// one.
#[test]
fn a_client_that_does_not_behave_is_put_out() {
    let engine = Engine::new(1);
    let server = serve(&engine, ServerOptions::new(1));
    let request = |text: &[u8]| {
        let endpoint = connect(&engine, &server.address).unwrap();
        let (mut writer, reader) = endpoint.open(SERVICE).unwrap();
        let chunk = writer.buffer_of(text);
        writer.push(chunk).unwrap();
        (endpoint, writer, reader)
    };
    let good = br#"{"op":"pack","method":"deflate","level":1,"block_len":4096}"#;
    let (_long, mut writer, mut reader) = request(good);
    message::hear::<message::Reply>(&mut reader).unwrap();
    let mut chunk = writer.buffer_for(1 << 20);
    chunk.fill(0);
    writer.push(chunk).unwrap();
    let end = loop {
        match reader.next_chunk() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the job ended well"),
            Err(end) => break end,
        }
    };
    assert!(end.text().contains("longer"), "{end}");

    let (_deaf, mut writer, mut deaf) = request(good);
    message::hear::<message::Reply>(&mut deaf).unwrap();
    for index in 0..12_u32 {
        let mut chunk = writer.buffer_for(8 + 4096);
        chunk.fill(7);
        message::Question::write_head(index, 4096, &mut chunk);
        writer.push(chunk).unwrap();
    }
    for nonsense in [
        &b"{}"[..],
        b"\xff",
        &[b' '; 5000],
        br#"{"op":"pack","method":"deflate","level":1,"block_len":1}"#,
    ] {
        let (_endpoint, _writer, mut reader) = request(nonsense);
        let reply = message::hear::<message::Reply>(&mut reader);
        assert!(
            !matches!(reply, Ok(message::Reply::Accepted { .. })),
            "{reply:?}"
        );
    }
    let endpoint = connect(&engine, &server.address).unwrap();
    let (_writer, mut reader) = endpoint.open("something else").unwrap();
    assert!(reader.next_chunk().unwrap_err().text().contains("offers"));

    let place = Place::new(Kind::Text, 100_000, 8);
    let options = Options {
        spill: Spill::Never,
        ..options(Method::Zstd)
    };
    pack(&engine, Some(&server.address), &options, &place).unwrap();
    assert!(is_packed_form(&engine, &place.packed(), &place.raw));
}

// Goal: what a server holds for a job is bounded by the server, not by its client. Method: a client that offers a
// window of a gigabyte, has half of one copied, and reads nothing; it must be held up after what the job may hold, the
// windows and what sockets hold.
#[test]
fn a_client_that_reads_nothing_is_held_up() {
    const LEN: usize = 256 << 10;
    const ALL: usize = 2048;
    let engine = Engine::new(1);
    let server = serve(&engine, ServerOptions::new(1));
    let mut settings = common::settings();
    settings.limits.window_len = 1 << 30;
    let endpoint =
        Endpoint::connect(&engine, settings, common::dial(server.address.clone())).unwrap();
    let (mut writer, mut reader) = endpoint.open(SERVICE).unwrap();
    let request = message::Request {
        op: message::Op::Copy { back: 1 << 16 },
        block_len: LEN as u32,
    };
    message::say(&mut writer, &request).unwrap();
    message::hear::<message::Reply>(&mut reader).unwrap();
    let sent = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for index in 0..ALL {
                let mut chunk = writer.buffer_for(message::Question::HEAD_LEN + LEN);
                message::Question::write_head(index as u32, LEN as u32, &mut chunk);
                if writer.push(chunk).is_err() {
                    return;
                }
                sent.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut before = usize::MAX;
        while before != sent.load(Ordering::Relaxed) {
            before = sent.load(Ordering::Relaxed);
            thread::sleep(Duration::from_millis(500));
        }
        // 6 MiB for the job, 4 MiB for each window; sockets and the client's own queue hold the rest.
        assert!(before > 10 && before * LEN < 64 << 20, "{before} blocks");
        endpoint.fail(narrows::Code::CANCELLED, "enough");
    });
}
