//! Counters of a store.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::{Disk, format::BLOCK};

/// Counters of a store at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stat {
    /// Bytes of the device.
    pub size: u64,
    /// Bytes of blocks that hold data.
    pub logical_bytes: u64,
    /// Bytes they take, packed, with the map.
    pub live_bytes: u64,
    /// Most that `live_bytes` may be.
    pub capacity_bytes: u64,
    /// Bytes taken of the backing.
    pub physical_bytes: u64,
    /// Bytes of the backing.
    pub backing_bytes: u64,
    /// Of `physical_bytes`, those no longer wanted.
    pub garbage_bytes: u64,
    /// Read by clients.
    pub bytes_read: u64,
    /// Written by clients.
    pub bytes_written: u64,
    /// Trimmed by clients.
    pub bytes_trimmed: u64,
    /// Written to the backing.
    pub bytes_logged: u64,
    /// Moved by the collector.
    pub bytes_moved: u64,
    /// Segments collected.
    pub segments_collected: u64,
    /// Flushes answered.
    pub flushes: u64,
    /// Checkpoints made.
    pub checkpoints: u64,
    /// Requests refused for want of room.
    pub no_space: u64,
    /// Why it takes no more writes.
    pub poisoned: Option<String>,
}

impl Stat {
    /// Logical over live bytes; 1 where nothing is stored.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        if self.live_bytes == 0 {
            1.0
        } else {
            self.logical_bytes as f64 / self.live_bytes as f64
        }
    }

    /// Bytes written to the backing over bytes that clients wrote; 0 where nothing was written.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        if self.bytes_written == 0 {
            0.0
        } else {
            self.bytes_logged as f64 / self.bytes_written as f64
        }
    }
}

impl Disk {
    /// Its counters.
    #[must_use]
    pub fn stat(&self) -> Stat {
        let store = &self.store;
        let mut blocks = 0_u64;
        store.log.map.for_each_data(|_, _| blocks += 1);
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &store.counters;
        let log = store.log.lock();
        let segments = &log.segments;
        let taken = u64::from(segments.count()) - segments.free() as u64;
        let physical_bytes = taken * u64::from(segments.len());
        Stat {
            size: store.log.map.blocks() * BLOCK as u64,
            logical_bytes: blocks * BLOCK as u64,
            live_bytes: segments.live(),
            capacity_bytes: segments.live_max(),
            physical_bytes,
            backing_bytes: store.log.backing.size(),
            garbage_bytes: physical_bytes.saturating_sub(segments.live()),
            bytes_read: count(&counters.bytes_read),
            bytes_written: count(&counters.bytes_written),
            bytes_trimmed: count(&counters.bytes_trimmed),
            bytes_logged: log.bytes_logged,
            bytes_moved: count(&counters.bytes_moved),
            segments_collected: count(&counters.segments_collected),
            flushes: count(&counters.flushes),
            checkpoints: count(&counters.checkpoints),
            no_space: count(&counters.no_space),
            poisoned: log.poison.clone(),
        }
    }
}
