//! Devices that wait, behind a real socket: what runs side by side, what one sync covers, what is left of a device that
//! fails; and strangers at the door.

use std::{
    collections::HashMap,
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use narrows_core::{
    BlockDevice, BlockError,
    block::{Execution, Extent, Shape, Zeroing},
};
use narrows_io::{Address, Listener, Tuning};
use parking_lot::Mutex;

use crate::{
    Config, Export, Exports, Server,
    proto::{cmd, cmd_flag, errno, opt},
    tests::{option, request},
};

const SIZE: usize = 64 << 20;

/// Bytes in an array, a time for every request, and counts.
#[derive(Debug)]
struct Slow {
    bytes: Mutex<Vec<u8>>,
    execution: Execution,
    time: Duration,
    /// Where it is set, reads wait until as many are there.
    meet: Option<Barrier>,
    writes: AtomicUsize,
    longest: AtomicUsize,
    syncs: AtomicUsize,
    fail_at: Option<u64>,
}

fn slow(execution: Execution, time: Duration) -> Slow {
    Slow {
        bytes: Mutex::new(vec![0; SIZE]),
        execution,
        time,
        meet: None,
        writes: AtomicUsize::new(0),
        longest: AtomicUsize::new(0),
        syncs: AtomicUsize::new(0),
        fail_at: None,
    }
}

impl BlockDevice for Slow {
    fn shape(&self) -> Shape {
        Shape {
            size: SIZE as u64,
            block_min: 1,
            block_preferred: 32 << 10,
            read_only: false,
            rotational: false,
            shared: true,
            fast_zero: false,
            execution: self.execution,
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BlockError> {
        if let Some(meet) = &self.meet {
            meet.wait();
        }
        thread::sleep(self.time);
        assert_ne!(self.fail_at, Some(offset), "a device that panics");
        out.copy_from_slice(&self.bytes.lock()[offset as usize..][..out.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), BlockError> {
        thread::sleep(self.time);
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.longest.fetch_max(data.len(), Ordering::SeqCst);
        if self
            .fail_at
            .is_some_and(|at| (offset..offset + data.len() as u64).contains(&at))
        {
            return Err(BlockError::NoSpace("here".into()));
        }
        self.bytes.lock()[offset as usize..][..data.len()].copy_from_slice(data);
        if fua { self.flush() } else { Ok(()) }
    }

    fn trim(&self, offset: u64, len: u64, fua: bool) -> Result<(), BlockError> {
        self.write_zeroes(offset, len, Zeroing::default(), fua)
    }

    fn write_zeroes(&self, offset: u64, len: u64, _: Zeroing, _: bool) -> Result<(), BlockError> {
        self.bytes.lock()[offset as usize..][..len as usize].fill(0);
        Ok(())
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn extents(
        &self,
        _: u64,
        len: u64,
        _: usize,
        found: &mut Vec<Extent>,
    ) -> Result<(), BlockError> {
        found.push(Extent {
            len,
            hole: false,
            zero: false,
        });
        Ok(())
    }
}

fn serve(device: Arc<Slow>, connections_max: usize) -> Server {
    let mut exports = Exports::default();
    let export = Export {
        name: String::new(),
        description: String::new(),
        device,
        read_only: false,
    };
    exports.add(export).unwrap();
    let address = Address::parse("127.0.0.1:0", 0).unwrap();
    let listener = Listener::bind(&address, &Tuning::default()).unwrap();
    let config = Config {
        exports,
        tls_certificates: None,
        insecure: false,
        allow: Vec::new(),
        connections_max,
    };
    Server::start(vec![listener], config).unwrap()
}

/// A connection that has been agreed on, with simple replies.
fn client(server: &Server) -> TcpStream {
    let mut socket = TcpStream::connect(server.addresses()[0].resolve().unwrap()[0]).unwrap();
    socket.set_nodelay(true).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    // Without the zeroes at the end: flags 3.
    let hello = [&3_u32.to_be_bytes()[..], &option(opt::EXPORT_NAME, &[])].concat();
    socket.write_all(&hello).unwrap();
    let mut greeting = [0; 18 + 10];
    socket.read_exact(&mut greeting).unwrap();
    socket
}

/// A request whose cookie is `serial`.
fn numbered(serial: u64, command: u16, flags: u16, range: (u64, u32), payload: &[u8]) -> Vec<u8> {
    let mut bytes = request(command, flags, range.0, range.1, payload);
    bytes[8..16].copy_from_slice(&serial.to_be_bytes());
    bytes
}

/// The next simple reply's error number and cookie.
fn reply(socket: &mut TcpStream) -> (u32, u64) {
    let mut head = [0; 16];
    socket.read_exact(&mut head).unwrap();
    let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
    assert_eq!(word(0), 0x6744_6698);
    (word(4), u64::from_be_bytes(head[8..].try_into().unwrap()))
}

// Goal: requests of one connection run at the same time. Method: reads that all wait until 32 of them are there.
#[test]
fn reads_of_one_connection_run_side_by_side() {
    let device = Slow {
        meet: Some(Barrier::new(32)),
        ..slow(Execution::Workers(32), Duration::from_millis(1))
    };
    let server = serve(Arc::new(device), 4);
    let mut socket = client(&server);
    for round in 0..3 {
        let all: Vec<u8> = (0..32_u64)
            .flat_map(|serial| numbered(serial, cmd::READ, 0, (serial * 4096, 4096), &[]))
            .collect();
        let begun = Instant::now();
        socket.write_all(&all).unwrap();
        let mut seen = [false; 32];
        for _ in 0..32 {
            let (error, cookie) = reply(&mut socket);
            let mut data = [1; 4096];
            socket.read_exact(&mut data).unwrap();
            assert!(error == 0 && data == [0; 4096]);
            assert!(!std::mem::replace(&mut seen[cookie as usize], true));
        }
        println!(
            "round {round}: 32 reads of 1 ms each in {:?}",
            begun.elapsed()
        );
    }
}

// Goal: FUA is one sync at the end of a request, however long, and the device sees whole blocks. Method: count, for both
// ways of running requests.
#[test]
fn a_long_fua_write_is_synced_once() {
    for execution in [Execution::Inline, Execution::Workers(8)] {
        let device = Arc::new(slow(execution, Duration::ZERO));
        let server = serve(device.clone(), 4);
        let mut socket = client(&server);
        let data: Vec<u8> = (0..32_u32 << 20).map(|i| (i / 7) as u8).collect();
        let range = (8192, 32 << 20);
        socket
            .write_all(&numbered(7, cmd::WRITE, cmd_flag::FUA, range, &data))
            .unwrap();
        assert_eq!(reply(&mut socket), (0, 7));
        assert_eq!(device.syncs.load(Ordering::SeqCst), 1, "{execution:?}");
        let writes = device.writes.load(Ordering::SeqCst);
        assert!(
            writes <= 1024 + 1,
            "{execution:?}: {writes} writes of 32 KiB or more"
        );
        assert!(
            device.bytes.lock()[8192..][..32 << 20] == data[..],
            "{execution:?}"
        );
        // One that the device sees whole carries FUA down: one sync as well.
        socket
            .write_all(&numbered(
                8,
                cmd::WRITE,
                cmd_flag::FUA,
                (0, 4096),
                &[1; 4096],
            ))
            .unwrap();
        assert_eq!(reply(&mut socket), (0, 8));
        assert_eq!(device.syncs.load(Ordering::SeqCst), 2, "{execution:?}");
    }
}

// Goal: whatever order requests finish in, each is answered once and the bytes are those of a plain array. Method: two
// thousand requests of random lengths in ranges that do not overlap while in flight, several connections, a disconnect
// that comes right behind the last write.
#[test]
fn every_request_is_answered_once_and_the_bytes_are_right() {
    let device = Arc::new(slow(Execution::Workers(6), Duration::from_micros(100)));
    let server = serve(device.clone(), 8);
    thread::scope(|scope| {
        for lane in 0..4_u64 {
            let server = &server;
            scope.spawn(move || {
                let mut socket = client(server);
                let base = lane * (SIZE as u64 / 4);
                let mut state = lane + 1;
                let mut random = move |below: u64| {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    (state >> 33) % below
                };
                let mut want: HashMap<u64, Vec<u8>> = HashMap::new();
                for _ in 0..25 {
                    let mut sent = Vec::new();
                    for serial in 0..20_u64 {
                        let len = 1 + random(if serial == 0 { 3 << 20 } else { 9000 }) as usize;
                        let data: Vec<u8> = (0..len).map(|i| (i as u64 + serial) as u8).collect();
                        let offset = base + serial * (4 << 20) / 8 + random(100);
                        let offset = if serial == 0 {
                            base + (12 << 20)
                        } else {
                            offset
                        };
                        sent.extend(numbered(serial, cmd::WRITE, 0, (offset, len as u32), &data));
                        want.insert(serial, [offset.to_be_bytes().to_vec(), data].concat());
                    }
                    socket.write_all(&sent).unwrap();
                    let mut cookies: Vec<u64> = (0..20).map(|_| reply(&mut socket).1).collect();
                    cookies.sort_unstable();
                    assert_eq!(cookies, (0..20).collect::<Vec<_>>());
                    for kept in want.values() {
                        let offset = u64::from_be_bytes(kept[..8].try_into().unwrap());
                        let len = kept.len() - 8;
                        let ask = numbered(99, cmd::READ, 0, (offset, len as u32), &[]);
                        socket.write_all(&ask).unwrap();
                        assert_eq!(reply(&mut socket), (0, 99));
                        let mut data = vec![0; len];
                        socket.read_exact(&mut data).unwrap();
                        assert!(data == kept[8..]);
                    }
                }
                let last = numbered(1, cmd::WRITE, 0, (base, 3), &[7; 3]);
                let bye = numbered(2, cmd::DISC, 0, (0, 0), &[]);
                socket.write_all(&[last, bye].concat()).unwrap();
                assert_eq!(
                    reply(&mut socket),
                    (0, 1),
                    "what was begun is finished first"
                );
                assert_eq!(socket.read(&mut [0]).unwrap(), 0);
            });
        }
    });
}

#[test]
fn a_write_that_fails_in_one_piece_fails_whole_and_the_next_request_is_found() {
    let device = Slow {
        fail_at: Some(1 << 20),
        ..slow(Execution::Workers(4), Duration::ZERO)
    };
    let server = serve(Arc::new(device), 4);
    let mut socket = client(&server);
    let refused = numbered(1, cmd::WRITE, 0, (SIZE as u64 - 1, 2), &[1, 2]);
    socket.write_all(&refused).unwrap();
    assert_eq!(reply(&mut socket), (errno::NOSPC, 1), "beyond the end");
    let long = numbered(
        2,
        cmd::WRITE,
        cmd_flag::FUA,
        (0, 4 << 20),
        &vec![5; 4 << 20],
    );
    socket.write_all(&long).unwrap();
    assert_eq!(reply(&mut socket), (errno::NOSPC, 2));
    socket
        .write_all(&numbered(3, cmd::FLUSH, 0, (0, 0), &[]))
        .unwrap();
    assert_eq!(reply(&mut socket), (0, 3));
}

#[test]
fn a_device_that_panics_ends_its_connection_only() {
    let device = Slow {
        fail_at: Some(4096),
        ..slow(Execution::Workers(4), Duration::from_millis(1))
    };
    let server = serve(Arc::new(device), 1);
    for _ in 0..2 {
        let mut socket = client(&server);
        socket
            .write_all(&numbered(1, cmd::READ, 0, (4096, 512), &[]))
            .unwrap();
        let mut rest = Vec::new();
        let _ = socket.read_to_end(&mut rest);
        assert!(rest.is_empty());
        let begun = Instant::now();
        while server.connections() > 0 {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "the place is taken for good"
            );
            thread::sleep(Duration::from_millis(5));
        }
    }
}

// Goal: a client that asks for more than it reads is held back, not stored. Method: ask for 3 GiB, look at what is held.
#[test]
fn what_is_in_flight_is_bounded() {
    let device = Arc::new(slow(Execution::Workers(4), Duration::ZERO));
    let server = serve(device, 4);
    let mut socket = client(&server);
    let asked = AtomicU64::new(0);
    let mut writer = socket.try_clone().unwrap();
    writer
        .set_write_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    for serial in 0..96 {
        let ask = numbered(serial, cmd::READ, 0, (0, 32 << 20), &[]);
        if writer.write_all(&ask).is_err() {
            break;
        }
        asked.fetch_add(1, Ordering::Relaxed);
    }
    thread::sleep(Duration::from_millis(300));
    let used = narrows_io::meter::Memory::of_process().unwrap().resident;
    assert!(used < 1 << 30, "{used} bytes are resident");
    for serial in 0..asked.load(Ordering::Relaxed).min(4) {
        let (error, cookie) = reply(&mut socket);
        assert!(error == 0 && cookie < 96, "{serial}");
        std::io::copy(
            &mut Read::by_ref(&mut socket).take(32 << 20),
            &mut std::io::sink(),
        )
        .unwrap();
    }
}

// Goal: however many connect and say nothing, a client is served at once. Method: 64, then 500 of them, which come back
// when they are dropped; a hundred clients in turn.
#[test]
fn silent_strangers_keep_nobody_out() {
    for strangers in [64, 500] {
        let server = serve(Arc::new(slow(Execution::Inline, Duration::ZERO)), 2);
        let address = server.addresses()[0].resolve().unwrap()[0];
        let held: Vec<_> = (0..strangers)
            .filter_map(|_| TcpStream::connect(address).ok())
            .collect();
        let mut worst = Duration::ZERO;
        for _ in 0..100 {
            let begun = Instant::now();
            let mut socket = client(&server);
            socket
                .write_all(&numbered(3, cmd::READ, 0, (0, 512), &[]))
                .unwrap();
            assert_eq!(reply(&mut socket), (0, 3));
            worst = worst.max(begun.elapsed());
            drop(socket);
            while server.connections() > 0 {
                thread::sleep(Duration::from_micros(100));
            }
        }
        println!("{strangers} strangers: 100 of 100 served, the slowest in {worst:?}");
        assert!(held.len() == strangers && server.shared.lobby.len() <= 128);
    }
}
