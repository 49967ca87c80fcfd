//! The emulated link keeps its rate, delay and faults. Tolerances are wide: two busy cores must not fail the build.
//! `cargo run --release -p narrows-io --example link` prints the accuracy itself.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use narrows_core::units::Rate;
use narrows_io::{
    Address,
    emulator::{Direction, Emulator, Link, Stall},
};
use socket2::{Domain, SockAddr, Socket, Type};

fn emulate(up: Link, down: Link) -> (Emulator, TcpStream, TcpStream) {
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = Address::parse("127.0.0.1:0", 0).unwrap();
    let emulator =
        Emulator::start(&listen, &target.local_addr().unwrap().into(), up, down).unwrap();
    let near = TcpStream::connect(emulator.local().resolve().unwrap()[0]).unwrap();
    near.set_nodelay(true).unwrap();
    let far = target.accept().unwrap().0;
    far.set_nodelay(true).unwrap();
    (emulator, near, far)
}

fn rate(mbit: f64) -> Link {
    Link {
        rate: Some(Rate::from_mbit(mbit)),
        ..Link::default()
    }
}

/// Keeps `to` full until it breaks.
fn flood(mut to: TcpStream) {
    thread::spawn(move || while to.write_all(&[9; 16 * 1024]).is_ok() {});
}

/// Mbit/s arriving at `from` over `time`, after `settle`.
fn goodput(from: &mut TcpStream, settle: Duration, time: Duration) -> f64 {
    let mut buf = vec![0; 256 * 1024];
    let begin = Instant::now();
    while begin.elapsed() < settle {
        assert_ne!(from.read(&mut buf).unwrap(), 0);
    }
    let (begin, mut got) = (Instant::now(), 0);
    while begin.elapsed() < time {
        got += from.read(&mut buf).unwrap();
    }
    got as f64 * 8.0 / 1e6 / begin.elapsed().as_secs_f64()
}

#[test]
fn each_direction_keeps_its_own_rate_at_once() {
    let (_emulator, near, mut far) = emulate(rate(40.0), rate(8.0));
    flood(near.try_clone().unwrap());
    flood(far.try_clone().unwrap());
    let mut near = near;
    let down = thread::spawn(move || {
        goodput(
            &mut near,
            Duration::from_millis(300),
            Duration::from_secs(1),
        )
    });
    let up = goodput(&mut far, Duration::from_millis(300), Duration::from_secs(1));
    let down = down.join().unwrap();
    assert!(
        (36.0..44.0).contains(&up) && (7.2..8.8).contains(&down),
        "up {up}, down {down} Mbit/s"
    );
}

#[test]
fn delay_adds_to_the_answer_time_and_takes_nothing_from_the_rate() {
    let delay = Duration::from_millis(60);
    let (_emulator, mut near, mut far) = emulate(
        Link {
            delay,
            ..rate(100.0)
        },
        Link {
            delay,
            jitter: Duration::from_millis(5),
            ..Link::default()
        },
    );
    let begin = Instant::now();
    near.write_all(b"?").unwrap();
    far.read_exact(&mut [0]).unwrap();
    far.write_all(b"!").unwrap();
    near.read_exact(&mut [0]).unwrap();
    let took = begin.elapsed();
    assert!((2 * delay..3 * delay).contains(&took), "{took:?}");
    flood(near);
    let up = goodput(&mut far, Duration::from_millis(300), Duration::from_secs(1));
    assert!((90.0..110.0).contains(&up), "{up} Mbit/s");
}

#[test]
fn a_new_rate_is_felt_within_a_fraction_of_a_second() {
    let (emulator, near, mut far) = emulate(rate(100.0), Link::default());
    flood(near);
    let fast = goodput(
        &mut far,
        Duration::from_millis(200),
        Duration::from_millis(500),
    );
    emulator.set_rate(Direction::Up, Some(Rate::from_mbit(10.0)));
    let slow = goodput(
        &mut far,
        Duration::from_millis(200),
        Duration::from_millis(500),
    );
    emulator.set_rate(Direction::Up, Some(Rate::from_mbit(50.0)));
    let middle = goodput(
        &mut far,
        Duration::from_millis(200),
        Duration::from_millis(500),
    );
    assert!((88.0..112.0).contains(&fast), "{fast}");
    assert!((8.5..11.5).contains(&slow), "{slow}");
    assert!((43.0..57.0).contains(&middle), "{middle}");
}

// Goal: a slow link is felt at once. Method: nobody reads at the far end of 10 Mbit/s; count what a sender can push.
#[test]
fn back_pressure_is_honest() {
    let (emulator, near, _far) = emulate(rate(10.0), Link::default());
    socket2::SockRef::from(&near)
        .set_tcp_notsent_lowat(16 * 1024)
        .unwrap();
    near.set_nonblocking(true).unwrap();
    let (begin, mut pushed) = (Instant::now(), 0_u64);
    while begin.elapsed() < Duration::from_millis(300) {
        match (&near).write(&[1; 4096]) {
            Ok(len) => pushed += len as u64,
            Err(err) if err.kind() == io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(1))
            }
            Err(err) => panic!("{err}"),
        }
    }
    let carried = emulator.carried(Direction::Up);
    assert!(
        pushed - carried < 400 * 1024,
        "{pushed} pushed, {carried} carried"
    );
}

#[test]
fn a_reset_comes_after_exactly_the_bytes_asked_for() {
    for (direction, offset) in [
        (Direction::Up, 100_001),
        (Direction::Down, 0),
        (Direction::Down, 70_000),
    ] {
        let faulty = Link {
            reset_after_bytes: Some(offset),
            ..Link::default()
        };
        let (up, down) = if direction == Direction::Up {
            (faulty, Link::default())
        } else {
            (Link::default(), faulty)
        };
        let (emulator, near, far) = emulate(up, down);
        let (from, mut to) = if direction == Direction::Up {
            (near, far)
        } else {
            (far, near)
        };
        flood(from);
        let (mut got, mut buf) = (0, vec![0; 64 * 1024]);
        let err = loop {
            match to.read(&mut buf) {
                Ok(0) => panic!("an orderly end after {got}"),
                Ok(len) => got += len as u64,
                Err(err) => break err,
            }
        };
        assert_eq!((got, err.kind()), (offset, io::ErrorKind::ConnectionReset));
        assert_eq!(emulator.carried(direction), offset);
    }
}

#[test]
fn a_stall_holds_the_link_and_ends() {
    let length = Duration::from_millis(200);
    let stall = Some(Stall {
        after_bytes: 50_000,
        length,
    });
    let (_emulator, mut near, mut far) = emulate(
        Link {
            stall,
            ..Link::default()
        },
        Link::default(),
    );
    let begin = Instant::now();
    near.write_all(&[5; 60_000]).unwrap();
    drop(near);
    let mut got = Vec::new();
    far.read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), 60_000);
    assert!(begin.elapsed() >= length);
}

#[test]
fn connections_share_the_link_half_closes_pass_and_nothing_is_lost_or_swapped() {
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let listen = Address::Unix(dir.path().join("link"));
    let link = Link {
        jitter: Duration::from_millis(4),
        ..rate(200.0)
    };
    let emulator =
        Emulator::start(&listen, &target.local_addr().unwrap().into(), link, link).unwrap();
    let begin = Instant::now();
    let clients: Vec<_> = (0..4_u8)
        .map(|n| {
            let mut near = UnixStream::connect(dir.path().join("link")).unwrap();
            let far = target.accept().unwrap().0;
            thread::spawn(move || {
                io::copy(&mut &far, &mut &far).map(|_| far.shutdown(std::net::Shutdown::Write))
            });
            let sent: Vec<u8> = (0..2_000_000_u32)
                .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8 ^ n)
                .collect();
            thread::spawn(move || {
                let mut got = Vec::new();
                let back = near.try_clone().unwrap();
                thread::scope(|scope| {
                    let reading = scope.spawn(|| (&back).read_to_end(&mut got).unwrap());
                    near.write_all(&sent).unwrap();
                    near.shutdown(std::net::Shutdown::Write).unwrap();
                    reading.join().unwrap();
                });
                assert!(got == sent);
            })
        })
        .collect();
    clients
        .into_iter()
        .for_each(|client| client.join().unwrap());
    // 8 MB at 200 Mbit/s; each connection alone would take a quarter.
    assert!(
        begin.elapsed() >= Duration::from_millis(280),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(emulator.carried(Direction::Up), 8_000_000);
    drop(emulator);
}

// Goal: of connections that get there at the same time one is reset. Method: many at once, time and again.
#[test]
fn a_reset_meets_one_connection() {
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = Address::parse("127.0.0.1:0", 0).unwrap();
    let target_address = target.local_addr().unwrap().into();
    let emulator =
        Emulator::start(&listen, &target_address, Link::default(), Link::default()).unwrap();
    for round in 0..20 {
        emulator.reset_after(Direction::Up, Some(1000));
        let pairs: Vec<_> = (0..8)
            .map(|_| {
                let near = TcpStream::connect(emulator.local().resolve().unwrap()[0]).unwrap();
                (near, target.accept().unwrap().0)
            })
            .collect();
        let all = Barrier::new(pairs.len());
        let resets: usize = thread::scope(|scope| {
            let sending = pairs.into_iter().map(|(mut near, mut far)| {
                let all = &all;
                scope.spawn(move || {
                    all.wait();
                    near.write_all(&[1; 2000]).unwrap();
                    usize::from(far.read_exact(&mut [0; 2000]).is_err())
                })
            });
            sending
                .collect::<Vec<_>>()
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        assert_eq!(resets, 1, "round {round}");
    }
}

// Goal: no connection outlives its emulator, not even one that the target had not answered. Method: a target whose
// queue is full answers when it pleases.
#[test]
fn a_connection_that_was_being_made_ends_with_the_emulator() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("target");
    let target = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    target.bind(&SockAddr::unix(&path).unwrap()).unwrap();
    target.listen(0).unwrap();
    let _queued = UnixStream::connect(&path).unwrap();
    let listen = Address::parse("127.0.0.1:0", 0).unwrap();
    let emulator = Emulator::start(
        &listen,
        &Address::Unix(path),
        Link::default(),
        Link::default(),
    )
    .unwrap();
    let mut near = TcpStream::connect(emulator.local().resolve().unwrap()[0]).unwrap();
    // For the emulator to begin connecting on; if it takes longer, there is nothing to see.
    thread::sleep(Duration::from_millis(100));
    drop(emulator);
    let (_first, _second) = (target.accept().unwrap(), target.accept().unwrap());
    near.set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    match near.read(&mut [0]) {
        Ok(0) => {}
        Err(err) if err.kind() == io::ErrorKind::ConnectionReset => {}
        other => panic!("it lives on: {other:?}"),
    }
}
