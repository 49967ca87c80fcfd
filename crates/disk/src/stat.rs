//! What a store can say of itself.

use std::sync::atomic::{AtomicU8, Ordering};

use narrows_core::units::Size;
use serde::{Deserialize, Serialize};

use crate::{
    disk::Disk,
    format::BLOCK,
    log::{Log, LogState},
    settings::Profile,
    store::Store,
};

/// Sizes in bytes, counts since the store was opened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Stat {
    /// Size of the device.
    pub size: u64,
    /// Bytes of blocks that hold data.
    pub data: u64,
    /// Bytes of blocks that were written as zeroes. They take no space.
    pub zero: u64,
    /// Bytes that the map refers to: what the data takes once garbage is collected, without batch
    /// headers (under 1 %).
    pub live: u64,
    /// Live bytes there may be.
    pub live_max: u64,
    /// Bytes of segments in use, live or not.
    pub occupied: u64,
    /// Bytes of all segments.
    pub capacity: u64,
    /// `data / live`: how much denser than raw the data is.
    pub ratio: f64,
    /// How full it is.
    pub fullness: Fullness,
    /// Bytes in segments in use that nothing refers to: what garbage collection can give back.
    pub garbage: u64,
    /// Segments in all, free, and dead but not yet free.
    pub segments: [u32; 3],
    /// Bytes that requests wrote.
    pub written: u64,
    /// Bytes that requests read.
    pub read: u64,
    /// Bytes that requests trimmed.
    pub trimmed: u64,
    /// Bytes written to the log: data packed, moved data, map pages, headers.
    pub logged: u64,
    /// `logged / written`: under 1 where compression saves more than moving costs.
    pub write_amplification: f64,
    /// Bytes of blocks moved by garbage collection and recompression.
    pub moved: u64,
    /// Flushes asked for.
    pub flushes: u64,
    /// Checkpoints made.
    pub checkpoints: u64,
    /// Segments collected.
    pub collected: u64,
    /// Requests refused for lack of space.
    pub refused: u64,
    /// Bytes of memory: map and batches.
    pub memory: u64,
    /// How hard writes are compressed.
    pub profile: Profile,
    /// Why it takes no more writes.
    pub poisoned: Option<String>,
}

/// How full a store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fullness {
    /// Under 80 % of [`Stat::live_max`].
    Fine,
    /// 80 % or more.
    Filling,
    /// 95 % or more.
    NearlyFull,
    /// Data is refused.
    Full,
}

impl Fullness {
    fn of(live: u64, most: u64) -> Self {
        match live as f64 / most.max(1) as f64 {
            share if share >= 0.999 => Self::Full,
            share if share >= 0.95 => Self::NearlyFull,
            share if share >= 0.80 => Self::Filling,
            _ => Self::Fine,
        }
    }
}

impl Disk {
    /// What the store can say of itself now.
    #[must_use]
    pub fn stat(&self) -> Stat {
        self.store.stat()
    }
}

impl Store {
    fn stat(&self) -> Stat {
        let log: &Log = &self.log;
        let pages = log.map.pages_held() as u64;
        let memory = pages * BLOCK as u64 + log.map.pages() as u64 * 24 + log.memory();
        let counters = &self.counters;
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let state = log.lock();
        let segments = &state.segments;
        let (live, live_max) = (segments.live(), segments.live_max());
        let (free, total) = (segments.free() as u64, u64::from(segments.count() - 1));
        let occupied = (total - free) * u64::from(segments.len());
        let dead = segments.dead_before(u64::MAX, state.at.segment).len() as u32;
        let (data, written) = (
            state.data_blocks * BLOCK as u64,
            count(&counters.bytes_written),
        );
        Stat {
            size: log.map.blocks() * BLOCK as u64,
            data,
            zero: state.zero_blocks * BLOCK as u64,
            live,
            live_max,
            occupied,
            capacity: segments.capacity(),
            ratio: data as f64 / live.max(1) as f64,
            fullness: Fullness::of(live, live_max),
            garbage: occupied.saturating_sub(live),
            segments: [segments.count() - 1, free as u32, dead],
            written,
            read: count(&counters.bytes_read),
            trimmed: count(&counters.bytes_trimmed),
            logged: state.bytes_logged,
            write_amplification: state.bytes_logged as f64 / written.max(1) as f64,
            moved: count(&counters.bytes_moved),
            flushes: count(&counters.flushes),
            checkpoints: count(&counters.checkpoints),
            collected: count(&counters.segments_collected),
            refused: count(&counters.no_space),
            memory,
            profile: self.profile,
            poisoned: state.poison.clone(),
        }
    }

    /// Warns once each time 80 % and 95 % are reached.
    pub(crate) fn warn_if_filling(&self, log: &LogState) {
        let (live, most) = (log.segments.live(), log.segments.live_max());
        let now = Fullness::of(live, most);
        if self.warned.swap(now) < now {
            let percent = 100 * live / most.max(1);
            tracing::warn!(
                "{percent} % full, {} of {}; trim some or grow it",
                Size(live),
                Size(most)
            );
        }
    }
}

/// The fullness that was warned of last.
#[derive(Debug, Default)]
pub(crate) struct Warned(AtomicU8);

impl Warned {
    fn swap(&self, now: Fullness) -> Fullness {
        let number = now as u8;
        let before = match self.0.load(Ordering::Relaxed) {
            held if held == number => held,
            _ => self.0.swap(number, Ordering::Relaxed),
        };
        match before {
            0 => Fullness::Fine,
            1 => Fullness::Filling,
            2 => Fullness::NearlyFull,
            _ => Fullness::Full,
        }
    }
}
