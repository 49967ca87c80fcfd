//! A link of chosen rate, delay and jitter between two programs: a user-space relay for TCP and Unix sockets.
//!
//! Why not netem: it needs root and a kernel module that is often absent. Clients connect to [`Emulator::local`], the
//! relay connects on to the target. Each direction is a [`Link`] of its own, shared by all connections, as a wire is.
//!
//! Model: bytes wait in a short queue, leave it at the rate, and arrive a delay later. The queue holds 5 ms unless told
//! otherwise and the relay's own socket buffers are small at slow rates, so that a sender feels the link through
//! back-pressure at once instead of after megabytes. Bytes never overtake each other, whatever the jitter.
//!
//! `lane` carries one direction of one connection on two threads that sleep; `shaper` says when bytes may pass.
//! Faults: a stall, and a reset after exactly n bytes of one connection.

mod lane;
mod shaper;

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use narrows_core::units::Rate;
use parking_lot::Mutex;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use self::{lane::Lane, shaper::Shaper};
use crate::{
    address::Address,
    listener::{ListenError, RawListener, Stop},
    sys,
    transport::{Tuning, buffer_sizes},
};

/// One direction of the emulated link. The default is a wire without limit, delay or fault.
#[derive(Debug, Clone, Copy, Default)]
pub struct Link {
    /// Bytes per second; `None` is as fast as the machine.
    pub rate: Option<Rate>,
    /// Time from leaving the queue to arrival. Does not lower the rate.
    pub delay: Duration,
    /// Up to this much more delay, evenly distributed from a fixed seed.
    pub jitter: Duration,
    /// Queue before the link in bytes; `None` is 5 ms at the rate, at least 4 KiB.
    pub buffer_len: Option<u64>,
    /// Resets a connection after exactly this many of its bytes arrived; the first connection to get there, once.
    pub reset_after_bytes: Option<u64>,
    /// Holds everything up once.
    pub stall: Option<Stall>,
}

/// A pause of the link.
#[derive(Debug, Clone, Copy)]
pub struct Stall {
    /// Bytes, counted over all connections, after which it begins.
    pub after_bytes: u64,
    /// How long nothing leaves.
    pub length: Duration,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client that connected to the emulator towards the target.
    Up,
    /// Back to the client.
    Down,
}

/// A running emulator. Dropping it stops it and closes its connections.
#[derive(Debug)]
pub struct Emulator {
    local: Address,
    shared: Arc<Shared>,
    stop: Stop,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    target: Address,
    up: Arc<Way>,
    down: Arc<Way>,
    open: Mutex<Open>,
}

/// Both sockets of each open connection, by number, for stopping.
#[derive(Debug, Default)]
struct Open {
    sockets: HashMap<u64, [Arc<Socket>; 2]>,
    /// The emulator is gone: a connection that was still being made to the target is not to live on.
    stopped: bool,
}

/// One direction, all its connections.
#[derive(Debug)]
struct Way {
    shaper: Mutex<Shaper>,
    /// Bytes handed to the receiving side.
    carried: AtomicU64,
    /// Offset of the armed reset; `u64::MAX` is none.
    reset_at: AtomicU64,
}

impl Way {
    fn new(link: &Link, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            shaper: Mutex::new(Shaper::new(link, seed)),
            carried: AtomicU64::new(0),
            reset_at: AtomicU64::new(link.reset_after_bytes.unwrap_or(u64::MAX)),
        })
    }
}

impl Emulator {
    /// Listens on `listen` and relays every connection to `target` through `up` (towards the target) and `down`.
    ///
    /// # Errors
    /// `listen` cannot be bound. A target that is away shows to clients as a closed connection.
    pub fn start(
        listen: &Address,
        target: &Address,
        up: Link,
        down: Link,
    ) -> Result<Self, ListenError> {
        let tuning = Tuning {
            recv_buffer: socket_buffer(&up),
            ..Tuning::default()
        };
        let listener = RawListener::bind(listen, &tuning)?;
        let shared = Arc::new(Shared {
            target: target.clone(),
            up: Way::new(&up, 1),
            down: Way::new(&down, 2),
            open: Mutex::default(),
        });
        let (local, stop) = (listener.local().clone(), listener.stopper());
        let accepting = thread::spawn({
            let shared = shared.clone();
            move || accept_all(&listener, &shared, &up, &down)
        });
        Ok(Self {
            local,
            shared,
            stop,
            accepting: Some(accepting),
        })
    }

    /// Where clients connect.
    #[must_use]
    pub fn local(&self) -> &Address {
        &self.local
    }

    /// Changes the rate of a direction for all bytes not yet in its queue: felt within the queue's 5 ms.
    pub fn set_rate(&self, direction: Direction, rate: Option<Rate>) {
        self.way(direction).shaper.lock().set_rate(rate);
    }

    /// Bytes that have arrived in a direction, all connections together.
    #[must_use]
    pub fn carried(&self, direction: Direction) -> u64 {
        self.way(direction).carried.load(Ordering::Relaxed)
    }

    /// Arms a reset as [`Link::reset_after_bytes`] does; `None` disarms. A connection already past it is reset when its
    /// next bytes come.
    pub fn reset_after(&self, direction: Direction, bytes: Option<u64>) {
        self.way(direction)
            .reset_at
            .store(bytes.unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Resets every open connection now.
    pub fn reset_all(&self) {
        self.shared.open.lock().reset_all();
    }

    fn way(&self, direction: Direction) -> &Way {
        match direction {
            Direction::Up => &self.shared.up,
            Direction::Down => &self.shared.down,
        }
    }
}

impl Open {
    fn reset_all(&mut self) {
        for (_, [near, far]) in self.sockets.drain() {
            sys::reset(&near);
            sys::reset(&far);
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        let mut open = self.shared.open.lock();
        open.stopped = true;
        open.reset_all();
    }
}

fn accept_all(listener: &RawListener, shared: &Arc<Shared>, up: &Link, down: &Link) {
    for number in 0.. {
        let near = match listener.accept() {
            Ok(Some((near, _))) => near,
            Ok(None) => return,
            Err(err) => {
                tracing::warn!(%err, "the emulator cannot accept");
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let shared = shared.clone();
        let (up, down) = (*up, *down);
        // Connecting on may take its time; the next client must not wait for it.
        thread::spawn(move || match dial(&shared.target, &down) {
            Ok(far) => relay(number, near, far, &shared, &up, &down),
            Err(err) => {
                tracing::warn!(target_address = %shared.target, %err, "the emulator cannot reach its target")
            }
        });
    }
}

fn relay(number: u64, near: Socket, far: Socket, shared: &Arc<Shared>, up: &Link, down: &Link) {
    for (socket, link) in [(&near, down), (&far, up)] {
        if let Some(bytes) = socket_buffer(link) {
            let _ = socket.set_send_buffer_size(bytes);
        }
        // Fails for Unix sockets, which have no such delay.
        let _ = socket.set_tcp_nodelay(true);
    }
    let (near, far) = (Arc::new(near), Arc::new(far));
    {
        let mut open = shared.open.lock();
        if open.stopped {
            return;
        }
        open.sockets.insert(number, [near.clone(), far.clone()]);
    }
    let forth = Lane::new(near.clone(), far.clone(), shared.up.clone());
    let back = Lane::new(far, near, shared.down.clone());
    let other = thread::spawn(move || back.run());
    forth.run();
    let _ = other.join();
    shared.open.lock().sockets.remove(&number);
}

/// Connects plainly and with a window that suits the link.
fn dial(target: &Address, down: &Link) -> io::Result<Socket> {
    let tuning = Tuning {
        recv_buffer: socket_buffer(down),
        ..Tuning::default()
    };
    if let Address::Unix(path) = target {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.connect(&SockAddr::unix(path)?)?;
        return Ok(socket);
    }
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in target.resolve()? {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM,
            Some(Protocol::TCP),
        )?;
        buffer_sizes(&socket, &tuning)?;
        match socket.connect_timeout(&address.into(), tuning.connect_timeout) {
            Ok(()) => return Ok(socket),
            Err(err) => last = err,
        }
    }
    Err(last)
}

/// Buffer for the relay's own sockets in bytes: 5 ms at the rate, between 64 KiB and 4 MiB. `None` lets the kernel
/// tune.
///
/// A loopback segment is 64 KiB; below that the kernel falls back to acknowledgement timers and loses the rate.
fn socket_buffer(link: &Link) -> Option<usize> {
    link.rate
        .map(|rate| ((rate.0 * 0.005) as usize).clamp(64 * 1024, 4 << 20))
}
