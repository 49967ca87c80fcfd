//! Every transport, every authentication: bytes pass both ways at once, ends are seen, aborts free blocked threads.

use std::{
    io::{self, IoSlice, Read, Write},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use narrows_io::{
    Address, Listener, Transport, Tuning,
    secure::{self, Auth, Psk, keys},
    transport,
};

struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        keys::generate(&dir.path().join("pki"), &keys::Request::default()).unwrap();
        Self { dir }
    }

    fn auths(&self) -> [Auth; 3] {
        let pki = self.dir.path().join("pki");
        let psk = Psk::load(&pki.join(keys::PSK_FILE), Some("narrows")).unwrap();
        [
            Auth::None,
            Auth::Tls {
                dir: pki,
                server_name: None,
            },
            Auth::Psk(psk),
        ]
    }

    fn addresses(&self) -> [Address; 3] {
        let tcp = |text| Address::parse(text, 0).unwrap();
        [
            tcp("127.0.0.1:0"),
            tcp("localhost:0"),
            Address::Unix(self.dir.path().join("sock")),
        ]
    }
}

fn pair(listen: &Address, auth: &Auth) -> (Transport, Transport) {
    let tuning = Tuning::default();
    let listener = Listener::bind(listen, &tuning).unwrap();
    thread::scope(|scope| {
        let server =
            scope.spawn(|| secure::accept(listener.accept().unwrap().unwrap(), auth).unwrap());
        let client = transport::connect(listener.local(), &tuning).unwrap();
        (
            secure::connect(client, auth, listener.local().host()).unwrap(),
            server.join().unwrap(),
        )
    })
}

/// Bytes that differ at every offset, so that a swap or a gap shows.
fn pattern(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32)
        .map(|i| (i ^ seed).wrapping_mul(0x9e37_79b9).to_le_bytes()[3])
        .collect()
}

/// Sends `out` in odd pieces while receiving until the end.
fn exchange(link: Transport, out: Vec<u8>) -> Vec<u8> {
    let Transport {
        mut reader,
        mut writer,
        ..
    } = link;
    let sending = thread::spawn(move || {
        for (n, piece) in out.chunks(200_003).enumerate() {
            let (head, tail) =
                piece.split_at(piece.len().min(if n % 2 == 0 { 13 } else { 70_001 }));
            writer
                .write_slices(&mut [IoSlice::new(head), IoSlice::new(&[]), IoSlice::new(tail)])
                .unwrap();
        }
        writer.write_all(b"end").unwrap();
        writer.finish().unwrap();
        // Kept open: the end of stream must come from `finish`, not from the close.
        thread::sleep(Duration::from_millis(10));
    });
    let mut got = Vec::new();
    reader.read_to_end(&mut got).unwrap();
    assert_eq!(reader.read(&mut [0]).unwrap(), 0, "the end stays the end");
    sending.join().unwrap();
    got
}

// Goal: both directions full at once never deadlock. Method: more bytes than all buffers together hold.
#[test]
fn full_duplex_through_every_transport_and_authentication() {
    let bench = Bench::new();
    for address in bench.addresses() {
        for auth in bench.auths() {
            let (near, far) = pair(&address, &auth);
            let (up, down) = (pattern(9_000_000, 1), pattern(7_500_001, 2));
            let there = thread::spawn({
                let down = down.clone();
                move || exchange(far, down)
            });
            let back = exchange(near, up.clone());
            let there = there.join().unwrap();
            assert!(there == [&up[..], b"end"].concat(), "{address} {auth:?}");
            assert!(back == [&down[..], b"end"].concat(), "{address} {auth:?}");
        }
    }
}

#[test]
fn one_side_that_never_reads_does_not_stop_the_other_direction() {
    let bench = Bench::new();
    for auth in bench.auths() {
        let (near, far) = pair(&bench.addresses()[0], &auth);
        let Transport {
            reader: _unread,
            writer: mut near_writer,
            shutdown,
            ..
        } = near;
        let Transport {
            reader: mut far_reader,
            writer: mut far_writer,
            ..
        } = far;
        let stuck = thread::spawn(move || far_writer.write_all(&vec![0; 64 << 20]).unwrap_err());
        thread::sleep(Duration::from_millis(100));
        near_writer.write_all(b"still here").unwrap();
        let mut got = [0; 10];
        far_reader.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"still here", "{auth:?}");
        shutdown.abort();
        drop(_unread);
        drop(near_writer);
        stuck.join().unwrap();
    }
}

#[test]
fn abort_frees_blocked_threads_of_both_halves_and_is_no_orderly_end() {
    let bench = Bench::new();
    for address in bench.addresses() {
        for auth in bench.auths() {
            let (near, far) = pair(&address, &auth);
            let Transport {
                mut reader,
                mut writer,
                shutdown,
                ..
            } = near;
            let reading = thread::spawn(move || reader.read(&mut [0; 8]).unwrap_err().kind());
            let writing =
                thread::spawn(move || writer.write_all(&vec![0; 64 << 20]).unwrap_err().kind());
            thread::sleep(Duration::from_millis(60));
            let begin = Instant::now();
            shutdown.abort();
            assert_eq!(
                reading.join().unwrap(),
                io::ErrorKind::ConnectionAborted,
                "{address} {auth:?}"
            );
            assert_eq!(
                writing.join().unwrap(),
                io::ErrorKind::ConnectionAborted,
                "{address} {auth:?}"
            );
            assert!(begin.elapsed() < Duration::from_secs(2));
            if !matches!(auth, Auth::None) {
                let mut far = far;
                assert!(
                    io::copy(&mut far.reader, &mut io::sink()).is_err(),
                    "a cut is not an end: {auth:?}"
                );
            }
        }
    }
}

#[test]
fn a_stream_cut_without_its_end_mark_is_told_apart() {
    let bench = Bench::new();
    for auth in &bench.auths()[1..] {
        let (mut near, mut far) = pair(&bench.addresses()[0], auth);
        near.writer.write_all(b"half").unwrap();
        drop(near);
        let mut got = Vec::new();
        let err = far.reader.read_to_end(&mut got).unwrap_err();
        assert_eq!(
            (got.as_slice(), err.kind()),
            (&b"half"[..], io::ErrorKind::UnexpectedEof),
            "{auth:?}"
        );
    }
}

#[test]
fn a_child_process_is_a_transport_and_is_waited_for() {
    let (link, _child) = transport::spawn(Command::new("cat")).unwrap();
    let sent = pattern(3_000_000, 3);
    assert!(exchange(link, sent.clone()) == [&sent[..], b"end"].concat());

    let Transport {
        mut reader,
        writer,
        shutdown,
        ..
    } = transport::spawn(Command::new("cat")).unwrap().0;
    let reading = thread::spawn(move || reader.read(&mut [0]).unwrap_err().kind());
    thread::sleep(Duration::from_millis(50));
    shutdown.abort();
    assert_eq!(reading.join().unwrap(), io::ErrorKind::ConnectionAborted);
    drop(writer);
}

#[test]
fn connect_errors_say_what_to_look_at() {
    let bench = Bench::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    for address in [
        Address::from(free),
        Address::Unix(bench.dir.path().join("nobody")),
    ] {
        let words = transport::connect(&address, &Tuning::default())
            .unwrap_err()
            .to_string();
        assert!(words.contains("start the other side first"), "{words}");
    }
}

#[test]
fn the_kernel_tells_about_a_tcp_link_only() {
    let bench = Bench::new();
    let [tcp, _, unix] = bench.addresses();
    let (near, far) = pair(&tcp, &bench.auths()[1]);
    assert!(near.probe.tcp_info().is_some_and(|info| info.acked > 0));
    assert!(near.probe.set_notsent_lowat(64 * 1024));
    let probe = near.probe.clone();
    drop((near, far));
    assert_eq!(probe.tcp_info(), None, "a probe keeps no connection open");
    assert_eq!(pair(&unix, &Auth::None).0.probe.tcp_info(), None);
}

// Goal: both ends name a connection alike, also where a socket of IPv6 accepted it from IPv4.
#[test]
fn both_ends_name_a_connection_alike() {
    for listen in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"] {
        let Ok(listener) = Listener::bind(&Address::parse(listen, 0).unwrap(), &Tuning::default())
        else {
            eprintln!("skipped: {listen}, which this machine does not listen on");
            continue;
        };
        let Address::Tcp { port, .. } = *listener.local() else {
            panic!("a port of TCP")
        };
        let to = Address::parse("127.0.0.1", port).unwrap();
        let near = transport::connect(&to, &Tuning::default()).unwrap();
        let far = listener.accept().unwrap().unwrap();
        let ends = near.probe.ends().unwrap();
        assert!(
            ends.iter().all(|end| end.ip().is_loopback()) && ends[1].port() == port,
            "{listen}: {ends:?}"
        );
        assert_eq!(far.probe.ends(), Some([ends[1], ends[0]]), "{listen}");
    }
    let bench = Bench::new();
    assert_eq!(
        pair(&bench.addresses()[2], &Auth::None).0.probe.ends(),
        None
    );
}
