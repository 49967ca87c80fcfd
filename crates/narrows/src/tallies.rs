//! What an endpoint has counted, and what the policy is told of it.
//!
//! Threads bump [`Tallies`] without a lock. What the links carried while more waited for them, which is what the link's
//! rate is learned from, only the kernel knows: [`Carried`] asks it now and then. Units: bytes, nanoseconds.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use narrows_core::Gauges;
use parking_lot::Mutex;

use crate::{inner::Inner, link::Link, state::State};

/// Counters that threads bump without a lock.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    pub(crate) sent_raw: AtomicU64,
    pub(crate) sent_wire: AtomicU64,
    pub(crate) sending_ns: AtomicU64,
    /// What the kernel tells of all links together, and when it was asked.
    carried: Mutex<Carried>,
    pub(crate) starved_ns: AtomicU64,
    pub(crate) received_wire: AtomicU64,
    pub(crate) resumed: AtomicU64,
    /// When the last chunk came, by the engine's clock.
    pub(crate) chunk_ns: AtomicU64,
}

/// What the kernel tells of the links: bytes carried while more waited, and the time that took.
#[derive(Debug, Default, Clone, Copy)]
struct Carried {
    asked_ns: u64,
    /// All that was carried.
    acked: u64,
    bytes: u64,
    busy_ns: u64,
    /// Time in which something waited or a queue stood on the way.
    full_ns: u64,
    full: bool,
    /// Something waited when last asked.
    waiting: bool,
    /// A link tells nothing.
    silent: bool,
}

impl Carried {
    fn ask<'a>(&mut self, links: impl Iterator<Item = &'a Arc<Link>>, now_ns: u64) {
        let (mut bytes, mut waiting, mut full) = (0, false, false);
        self.silent = false;
        for link in links {
            match link.carried() {
                Some((carried, waits, stands)) => {
                    bytes += carried;
                    waiting |= waits;
                    full |= waits || stands;
                }
                None => self.silent = true,
            }
        }
        self.acked += bytes;
        if self.waiting && waiting {
            self.bytes += bytes;
            self.busy_ns += now_ns - self.asked_ns;
        }
        if self.full && full {
            self.full_ns += now_ns - self.asked_ns;
        }
        (self.asked_ns, self.waiting, self.full) = (now_ns, waiting, full);
    }
}

impl Inner {
    /// State of links and workers at this moment.
    pub(crate) fn gauges(&self) -> Gauges {
        let state = self.state.lock();
        self.gauges_of(&state)
    }

    /// The same for who has locked the state.
    pub(crate) fn gauges_of(&self, state: &State) -> Gauges {
        let mut carried = self.tallies.carried.lock();
        let now_ns = self.engine.clock.now_ns();
        if now_ns >= carried.asked_ns + ASK_NS {
            carried.ask(state.links.values(), now_ns);
        }
        let packing: u64 = state
            .channels
            .keys()
            .map(|&channel| state.in_hand(channel))
            .sum();
        let queued_bytes = state.machine.queued_bytes();
        let (sent_bytes, sending_ns) = (
            self.tallies.sent_wire.load(Relaxed),
            self.tallies.sending_ns.load(Relaxed),
        );
        let (acked_bytes, link_bytes, link_ns, full_ns) = if carried.silent {
            (sent_bytes, sent_bytes, sending_ns, sending_ns)
        } else {
            (
                carried.acked,
                carried.bytes,
                carried.busy_ns,
                carried.full_ns,
            )
        };
        Gauges {
            now_ns: now_ns - self.began_ns,
            workers: self.engine.workers_at_once(),
            packing: packing as u32,
            queued_bytes,
            sent_bytes,
            acked_bytes,
            link_bytes,
            link_ns,
            full_ns,
            sending_ns,
            starved_ns: self.tallies.starved_ns.load(Relaxed),
            heard_ns: self
                .tallies
                .chunk_ns
                .load(Relaxed)
                .saturating_sub(self.began_ns),
        }
    }
}

/// Least time between two questions to the kernel, which take a microsecond each, in nanoseconds.
const ASK_NS: u64 = 200_000;
