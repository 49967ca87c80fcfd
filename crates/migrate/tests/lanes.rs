//! Lanes over a real session, between programs that do with their sockets what QEMU does: nobody waits for ever, and
//! the guest arrives.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    sync::{
        Arc, Barrier, LazyLock, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

use narrows::{Acceptor, Endpoint, Engine, Settings};
use narrows_io::{Address, Listener, Tuning, transport};
use narrows_migrate::{
    aware::{Counts, HEADER_LEN, INIT_LEN, PAGE_LEN},
    far, far_settings, limits,
    migration::{LinkProbe, Migration, Options},
    near::{self, Event},
};

const LANES: usize = 3;
const ROUNDS: usize = 4;
const PAGES_OF_PACKET: usize = 32;
/// Of a round. A lane's are 4 MiB that do not pack and twice the packets that may be under way, so a lane that is not
/// read stops its source.
const PACKETS: usize = 32 * LANES;
const PAGES: usize = PACKETS * PAGES_OF_PACKET;
const MAGIC: [u8; 8] = [0x11, 0x22, 0x33, 0x44, 0, 0, 0, 1];

fn noise(state: &mut u64, out: &mut [u8]) {
    for eight in out.chunks_exact_mut(8) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        eight.copy_from_slice(&state.to_le_bytes());
    }
}

/// Memory at the beginning of each round: noise, then some pages new, some with bytes of others that are sent a little
/// earlier, by other lanes, and some with a byte changed.
static GUEST: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let mut state = 88_172_645_463_325_252;
    let mut ram = vec![0; PAGES * PAGE_LEN];
    noise(&mut state, &mut ram);
    let mut rounds = vec![ram.clone()];
    for round in 1..ROUNDS {
        for page in 0..PAGES {
            let at = page * PAGE_LEN;
            let earlier = (page + PAGES - 100) % PAGES * PAGE_LEN;
            match (page + round) % 4 {
                0 => noise(&mut state, &mut ram[at..at + PAGE_LEN]),
                1 => ram[at + 77 * round] ^= 1,
                2 => ram.copy_within(earlier..earlier + 3000, at + 500),
                _ => {}
            }
        }
        rounds.push(ram.clone());
    }
    rounds
});

fn init(lane: usize) -> [u8; INIT_LEN] {
    let mut init = [0; INIT_LEN];
    init[..8].copy_from_slice(&MAGIC);
    init[24] = lane as u8;
    init
}

fn header(number: u64, sync: bool, pages: &[usize]) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..8].copy_from_slice(&MAGIC);
    header[11] = sync.into();
    header[15] = 128;
    header[16..20].copy_from_slice(&(pages.len() as u32).to_be_bytes());
    header[20..24].copy_from_slice(&((pages.len() * PAGE_LEN) as u32).to_be_bytes());
    header[24..32].copy_from_slice(&number.to_be_bytes());
    header[64..66].copy_from_slice(b"pc");
    for (place, page) in header[320..].chunks_exact_mut(8).zip(pages) {
        place.copy_from_slice(&((page * PAGE_LEN) as u64).to_be_bytes());
    }
    header
}

/// The source's QEMU: a main socket and lanes. A round begins when every lane's SYNC of the one before is written.
fn source(path: &Path) {
    let rounds = &*GUEST;
    let (number, written) = (AtomicU64::new(0), Barrier::new(LANES + 1));
    let mut sockets = (0..=LANES).map(|_| UnixStream::connect(path).unwrap());
    let mut main = sockets.next().unwrap();
    main.write_all(b"QEVM").unwrap();
    thread::scope(|scope| {
        for (lane, mut socket) in sockets.enumerate() {
            let (number, written) = (&number, &written);
            scope.spawn(move || {
                socket.write_all(&init(lane)).unwrap();
                for round in 0..=rounds.len() {
                    let packets = if round == 0 { 0 } else { PACKETS };
                    // Each time on another lane.
                    for packet in (0..packets).filter(|packet| (packet + round) % LANES == lane) {
                        let pages: Vec<usize> =
                            (packet * PAGES_OF_PACKET..(packet + 1) * PAGES_OF_PACKET).collect();
                        socket
                            .write_all(&header(number.fetch_add(1, Relaxed), false, &pages))
                            .unwrap();
                        let from = pages[0] * PAGE_LEN;
                        socket
                            .write_all(&rounds[round - 1][from..from + pages.len() * PAGE_LEN])
                            .unwrap();
                    }
                    socket
                        .write_all(&header(number.fetch_add(1, Relaxed), true, &[]))
                        .unwrap();
                    written.wait();
                }
            });
        }
        for _ in 0..=rounds.len() {
            written.wait();
            main.write_all(b"S").unwrap();
        }
    });
}

/// The destination's: every lane waits at its SYNC until all have come there, and the main socket has said so. Which
/// lane reads nothing for a while behind each SYNC, so that the others come as far as they can without it, `held` says.
fn destination(
    listener: &UnixListener,
    held: impl Fn(usize) -> usize + Sync,
    ram: &Mutex<Vec<u8>>,
) {
    let come = Barrier::new(LANES + 1);
    let mut main = listener.accept().unwrap().0;
    main.read_exact(&mut [0; 4]).unwrap();
    thread::scope(|scope| {
        for _ in 0..LANES {
            let mut socket = listener.accept().unwrap().0;
            let (come, held) = (&come, &held);
            scope.spawn(move || {
                let mut init = [0; INIT_LEN];
                socket.read_exact(&mut init).unwrap();
                let (mut header, mut pages) = ([0; HEADER_LEN], Vec::new());
                for round in 0..=ROUNDS {
                    if held(round) == usize::from(init[24]) {
                        thread::sleep(Duration::from_millis(300));
                    }
                    loop {
                        socket.read_exact(&mut header).unwrap();
                        let normal =
                            u32::from_be_bytes(header[16..20].try_into().unwrap()) as usize;
                        pages.resize(normal * PAGE_LEN, 0);
                        socket.read_exact(&mut pages).unwrap();
                        for (page, offset) in pages
                            .chunks_exact(PAGE_LEN)
                            .zip(header[320..].chunks_exact(8))
                        {
                            let at = u64::from_be_bytes(offset.try_into().unwrap()) as usize;
                            ram.lock().unwrap()[at..at + PAGE_LEN].copy_from_slice(page);
                        }
                        if header[11] & 1 == 1 {
                            break;
                        }
                    }
                    come.wait();
                }
            });
        }
        for _ in 0..=ROUNDS {
            main.read_exact(&mut [0]).unwrap();
            come.wait();
        }
    });
}

/// Passes bytes on, a link of 32 MB/s each way: slow enough for pages to be kept from the first.
fn slow_link(to: std::net::SocketAddr) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (near, far) = (
            listener.accept().unwrap().0,
            TcpStream::connect(to).unwrap(),
        );
        for (mut from, mut to) in [
            (near.try_clone().unwrap(), far.try_clone().unwrap()),
            (far, near),
        ] {
            thread::spawn(move || {
                let mut buf = [0; 32 << 10];
                while let Ok(len @ 1..) = from.read(&mut buf) {
                    if to.write_all(&buf[..len]).is_err() {
                        return;
                    }
                    thread::sleep(Duration::from_nanos(len as u64 * 30));
                }
            });
        }
    });
    address
}

fn move_guest(keep_max: u32, held: impl Fn(usize) -> usize + Send + Sync + 'static) -> Counts {
    let dir = tempfile::tempdir().unwrap();
    let (near_path, far_path) = (dir.path().join("near"), dir.path().join("far"));
    let unix = |path: &Path| Address::parse(&format!("unix:{}", path.display()), 0).unwrap();
    let (done, is_done) = mpsc::channel();
    let (near_address, far_address) = (unix(&near_path), unix(&far_path));
    let (counts_of, counts) = mpsc::channel();
    let dest_listener = UnixListener::bind(&far_path).unwrap();
    thread::spawn(move || {
        let options = Options {
            keep_max,
            ..Options::default()
        };
        let settings = Settings::builder().limits(limits(8)).build();
        let tcp = Listener::bind(
            &Address::parse("127.0.0.1:0", 0).unwrap(),
            &Tuning::default(),
        )
        .unwrap();
        let Address::Tcp { port, .. } = tcp.local().clone() else {
            panic!("not TCP")
        };
        let engine = Engine::new(2);
        let acceptor = Acceptor::new(engine.clone(), far_settings(settings.clone()));
        let relay = slow_link(([127, 0, 0, 1], port).into());
        thread::spawn(move || {
            let endpoint = acceptor
                .take(tcp.accept().unwrap().unwrap())
                .unwrap()
                .unwrap();
            let migration = Migration::new(Arc::new(endpoint), options, LinkProbe::default());
            let _ = far::carry(&migration, &far_address, None);
        });
        let link = LinkProbe::default();
        let peer = Address::parse(&relay.to_string(), 0).unwrap();
        let dial = link.wrap(Box::new(move || {
            transport::connect(&peer, &Tuning::default()).map_err(std::io::Error::other)
        }));
        let endpoint = Endpoint::connect(&engine, settings, dial).unwrap();
        let migration = Migration::new(Arc::new(endpoint), options, link);
        let (tell, events) = mpsc::channel();
        near::accept(
            Listener::bind(&near_address, &Tuning::default()).unwrap(),
            tell.clone(),
        );
        thread::spawn(move || source(&near_path));
        let Ok(Event::Socket(first)) = events.recv() else {
            panic!("no socket")
        };
        near::carry(&migration, Some(first), &events, &tell).unwrap();
        counts_of.send(migration.status()).unwrap();
        migration.close();
    });
    let ram = Arc::new(Mutex::new(vec![0; PAGES * PAGE_LEN]));
    let filled = ram.clone();
    thread::spawn(move || {
        destination(&dest_listener, held, &filled);
        done.send(()).unwrap();
    });
    is_done
        .recv_timeout(Duration::from_secs(60))
        .expect("nobody waits for ever");
    assert!(
        Some(&*ram.lock().unwrap()) == GUEST.last(),
        "the guest differs"
    );
    let status = counts.recv_timeout(Duration::from_secs(10)).unwrap();
    Counts {
        pages: status.pages,
        left_out: status.pages_left_out,
        differences: status.pages_as_difference,
        copies: status.pages_with_copies,
    }
}

#[test]
fn a_lane_that_is_not_read_for_a_while_holds_nobody_for_ever() {
    for keep_max in [1024, 8192] {
        let moves = [0, 1, 2, 3].map(|held| {
            thread::spawn(move || {
                move_guest(
                    keep_max,
                    move |round| if held < LANES { held } else { round % LANES },
                )
            })
        });
        for moved in moves {
            let counts = moved.join().unwrap();
            println!("{counts:?}");
            assert!(
                counts.copies > 100 && (counts.differences > 100) == (keep_max > 1024),
                "{counts:?}"
            );
        }
    }
}
