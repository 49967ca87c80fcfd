//! One direction of one emulated connection: a thread that reads when the shaper lets it, a thread that writes when
//! bytes arrive, and a queue between them.

use std::{
    collections::VecDeque,
    io::Read,
    net::Shutdown as Half,
    os::fd::AsRawFd,
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use socket2::Socket;

use super::{Way, shaper::Turn};
use crate::{meter::Clock, sys};

pub(super) struct Lane {
    from: Arc<Socket>,
    to: Arc<Socket>,
    way: Arc<Way>,
    flight: Mutex<Flight>,
    changed: Condvar,
}

/// Bytes between reading and arrival.
#[derive(Default)]
struct Flight {
    pieces: VecDeque<Piece>,
    held_len: u64,
    /// Buffers to use again.
    spare: Vec<Vec<u8>>,
    /// The sender ended its stream in order.
    ended: bool,
    /// Reading or writing failed, or a reset was due.
    broken: bool,
}

struct Piece {
    arrives_ns: u64,
    /// As long as the longest read it ever served; `len` of it count.
    bytes: Vec<u8>,
    len: usize,
}

impl Lane {
    pub(super) fn new(from: Arc<Socket>, to: Arc<Socket>, way: Arc<Way>) -> Self {
        Self {
            from,
            to,
            way,
            flight: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Carries bytes until the sender's end of stream has arrived, or the connection broke.
    pub(super) fn run(&self) {
        thread::scope(|scope| {
            if let Err(fault) = crate::thread::spawn_scoped(scope, "link-read", || self.read_all())
            {
                return tracing::warn!("a connection is dropped: {fault}");
            }
            self.write_all();
        });
    }

    fn read_all(&self) {
        let mut last_ns = 0;
        while let Some(mut bytes) = self.room() {
            let len = match self.turn() {
                Turn::Wait(ns) => {
                    self.flight.lock().spare.push(bytes);
                    thread::sleep(Duration::from_nanos(ns));
                    continue;
                }
                Turn::Read(len) => len,
            };
            // Pieces grow to the fastest rate met; clearing them once costs less than doing so for every read.
            if bytes.len() < len {
                bytes.resize(len, 0);
            }
            let got = (&*self.from).read(&mut bytes[..len]);
            let mut flight = self.flight.lock();
            match got {
                Ok(0) => break,
                Ok(len) => {
                    let arrives_ns = self
                        .way
                        .shaper
                        .lock()
                        .pass(Clock.now_ns(), len)
                        .max(last_ns);
                    last_ns = arrives_ns;
                    flight.held_len += len as u64;
                    flight.pieces.push_back(Piece {
                        arrives_ns,
                        bytes,
                        len,
                    });
                }
                Err(err) if err.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => {
                    flight.broken = true;
                    break;
                }
            }
            drop(flight);
            self.changed.notify_all();
        }
        self.flight.lock().ended = true;
        self.changed.notify_all();
    }

    fn turn(&self) -> Turn {
        self.way.shaper.lock().turn(Clock.now_ns())
    }

    /// A buffer for the next read, once the flight has room; `None` if nobody writes any more.
    fn room(&self) -> Option<Vec<u8>> {
        let mut flight = self.flight.lock();
        loop {
            if flight.broken {
                return None;
            }
            if flight.held_len < self.way.shaper.lock().held_len_max() {
                return Some(flight.spare.pop().unwrap_or_default());
            }
            self.changed
                .wait_for(&mut flight, Duration::from_millis(50));
        }
    }

    fn write_all(&self) {
        let mut carried = 0_u64;
        while let Some(piece) = self.arrived() {
            // Taken and disarmed at once: two connections that get there together are not both reset, and one that is
            // armed while this one is under way is not lost.
            let end = carried + piece.len as u64;
            let disarm = |at: u64| (at <= end).then_some(u64::MAX);
            let reset_at = self
                .way
                .reset_at
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, disarm)
                .ok();
            let len = reset_at.map_or(piece.len, |at| at.saturating_sub(carried) as usize);
            let sent = send(&self.to, &piece.bytes[..len]);
            carried += len as u64;
            self.way.carried.fetch_add(len as u64, Ordering::Relaxed);
            if reset_at.is_some() {
                drained(&self.to);
            }
            if reset_at.is_some() || !sent {
                self.flight.lock().broken = true;
                self.changed.notify_all();
                sys::reset(&self.from);
                sys::reset(&self.to);
                return;
            }
            let mut flight = self.flight.lock();
            flight.held_len -= piece.len as u64;
            flight.spare.push(piece.bytes);
            drop(flight);
            self.changed.notify_all();
        }
        if self.flight.lock().broken {
            sys::reset(&self.to);
        } else {
            let _ = self.to.shutdown(Half::Write);
        }
    }

    /// The next piece, at its time; `None` after the last.
    fn arrived(&self) -> Option<Piece> {
        let mut flight = self.flight.lock();
        loop {
            match flight.pieces.front() {
                None if flight.ended || flight.broken => return None,
                None => self.changed.wait(&mut flight),
                Some(piece) => {
                    let early = piece.arrives_ns.saturating_sub(Clock.now_ns());
                    if early == 0 {
                        return flight.pieces.pop_front();
                    }
                    // A plain sleep, since nothing that arrives later can come first.
                    drop(flight);
                    thread::sleep(Duration::from_nanos(early.min(50_000_000)));
                    flight = self.flight.lock();
                    if flight.broken {
                        return None;
                    }
                }
            }
        }
    }
}

/// Sends all of `bytes`; false if the connection is gone.
fn send(to: &Socket, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match to.send_with_flags(bytes, libc::MSG_NOSIGNAL) {
            Ok(len) => bytes = &bytes[len..],
            Err(err) if err.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    true
}

/// Waits until the peer's kernel has all bytes sent, at most 2 s: a reset discards what is still queued here, and the
/// promise is that exactly n bytes arrive.
fn drained(to: &Socket) {
    let deadline = Instant::now() + Duration::from_secs(2);
    let mut unsent: libc::c_int = 1;
    while unsent > 0 && Instant::now() < deadline {
        // SAFETY: SIOCOUTQ (TIOCOUTQ) writes one int, which `unsent` is.
        let code = unsafe { libc::ioctl(to.as_raw_fd(), libc::TIOCOUTQ, &raw mut unsent) };
        if code != 0 {
            return;
        }
        thread::sleep(Duration::from_micros(200));
    }
}
