//! One direction of a device: what it did, what it failed, and how long it rests.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// What became of the chunks that one direction of a device was offered, since the process began. All but those counted
/// in `device` were done by the CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Done by the device.
    pub device: u64,
    /// Shorter or longer than the device is used for.
    pub declined: u64,
    /// Its queues were full.
    pub busy: u64,
    /// The library reported a fault, or nothing in time.
    pub failed: u64,
    /// What came back was not the chunk.
    pub wrong: u64,
    /// Not offered, since it had failed shortly before.
    pub resting: u64,
}

/// Why a chunk was done by the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spill {
    Declined,
    Busy,
    Failed,
    Wrong,
    Resting,
}

/// Counters and health of one direction.
#[derive(Default)]
pub(super) struct Lane {
    device: AtomicU64,
    spilled: [AtomicU64; 5],
    /// Faults since it last worked.
    faults: AtomicU32,
    /// Chunks to go without it.
    rest: AtomicU32,
}

impl Lane {
    /// It did a chunk.
    pub(super) fn worked(&self) {
        self.device.fetch_add(1, Relaxed);
        self.faults.store(0, Relaxed);
    }

    /// Whether it may be tried; uses up one chunk of its rest.
    pub(super) fn rested(&self) -> bool {
        self.rest
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
            .is_err()
    }

    /// The CPU did a chunk.
    pub(super) fn spill(&self, why: Spill) {
        self.spilled[why as usize].fetch_add(1, Relaxed);
    }

    /// It failed a chunk, and rests.
    pub(super) fn fault(&self) {
        let faults = self.faults.fetch_add(1, Relaxed).min(REST_MAX.ilog2());
        self.rest.store(1 << faults, Relaxed);
    }

    /// What was counted so far.
    pub(super) fn usage(&self) -> Usage {
        let [declined, busy, failed, wrong, resting] =
            [0, 1, 2, 3, 4].map(|i: usize| self.spilled[i].load(Relaxed));
        Usage {
            device: self.device.load(Relaxed),
            declined,
            busy,
            failed,
            wrong,
            resting,
        }
    }
}

/// Most chunks a device rests for.
const REST_MAX: u32 = 1024;
