//! Places for senders that are served side by side.
//!
//! Where all are taken and one more comes, the sender that has been silent longest has to go, if that was long; else the
//! newcomer is told that this end is busy. A sender that is silent while nobody else comes may stay: a log that is piped
//! in pauses for hours.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use narrows::{Code, Endpoint};
use parking_lot::Mutex;

/// The places.
#[derive(Debug)]
pub struct Seats {
    max: usize,
    idle_limit: Duration,
    taken: Mutex<Vec<Taken>>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Taken {
    serial: u64,
    endpoint: Weak<Endpoint>,
    /// Bytes that had come when it was looked at, and since when there were no more.
    received: u64,
    since: Instant,
}

/// One place, given up on drop.
#[derive(Debug)]
pub struct Seat {
    seats: Arc<Seats>,
    serial: u64,
}

impl Seats {
    /// So many places.
    pub fn new(max: usize, idle_limit: Duration) -> Arc<Self> {
        Arc::new(Self {
            max,
            idle_limit,
            taken: Mutex::default(),
            next: AtomicU64::new(0),
        })
    }

    /// A place for this session; `None` where there is none: it was told.
    pub fn take(self: &Arc<Self>, endpoint: &Arc<Endpoint>) -> Option<Seat> {
        let mut taken = self.taken.lock();
        let idle = self.longest_idle(&mut taken);
        if taken.len() >= self.max {
            let Some(at) = idle else {
                drop(taken);
                let text = "busy: this receiver has as many senders as it takes; try again later";
                endpoint.fail(Code::LIMIT, text);
                return None;
            };
            if let Some(gone) = taken.swap_remove(at).endpoint.upgrade() {
                // It waits a moment for its peer to hear it; nobody waits for that.
                let end = move || gone.fail(Code::LIMIT, "idle, and others wait to send");
                let _ = narrows_io::thread::spawn("idle", end);
            }
        }
        let serial = self.next.fetch_add(1, Ordering::Relaxed);
        taken.push(Taken {
            serial,
            endpoint: Arc::downgrade(endpoint),
            received: 0,
            since: Instant::now(),
        });
        Some(Seat {
            seats: self.clone(),
            serial,
        })
    }

    fn longest_idle(&self, taken: &mut [Taken]) -> Option<usize> {
        for one in taken.iter_mut() {
            let endpoint = one.endpoint.upgrade();
            let received = endpoint.map_or(one.received, |endpoint| endpoint.stats().received_raw);
            if received != one.received {
                (one.received, one.since) = (received, Instant::now());
            }
        }
        let idle = taken.iter().enumerate();
        idle.filter(|(_, one)| one.since.elapsed() >= self.idle_limit)
            .min_by_key(|(_, one)| one.since)
            .map(|(at, _)| at)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken.lock();
        taken.retain(|one| one.serial != self.serial);
    }
}
