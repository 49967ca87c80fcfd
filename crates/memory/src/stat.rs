//! Counters, under the names zram gives them, and latencies.

use std::sync::atomic::{AtomicU64, Ordering};

pub use narrows_io::histogram::Latency;
use narrows_io::{histogram::Histogram, region::FRAME};
use serde::{Deserialize, Serialize};

use crate::slot::{Kind, Slot};

/// What one shard holds. Kept under its lock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    /// Pages by kind; holes are not counted.
    pub(crate) pages: [u64; Kind::ALL.len()],
    /// Bytes of objects by kind.
    pub(crate) bytes: [u64; Kind::ALL.len()],
    pub(crate) huge_pages_since: u64,
    pub(crate) pages_compacted: u64,
    pub(crate) table_frames: u64,
}

impl Tally {
    /// `old` made way for `new`.
    pub(crate) fn change(&mut self, old: Slot, new: Slot) {
        let count = |slot: Slot| {
            (
                slot.kind() as usize,
                if slot.kind().has_object() {
                    slot.len() as u64
                } else {
                    0
                },
            )
        };
        let ((from, less), (to, more)) = (count(old), count(new));
        if old.kind() != Kind::Hole {
            self.pages[from] -= 1;
            self.bytes[from] -= less;
        }
        if new.kind() != Kind::Hole {
            self.pages[to] += 1;
            self.bytes[to] += more;
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let pairs = self
            .pages
            .iter_mut()
            .zip(other.pages)
            .chain(self.bytes.iter_mut().zip(other.bytes));
        pairs.for_each(|(mine, theirs)| *mine += theirs);
        self.huge_pages_since += other.huge_pages_since;
        self.pages_compacted += other.pages_compacted;
        self.table_frames += other.table_frames;
    }
}

/// What a store is asked to do and how that goes. Counters only grow.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) read_bytes: AtomicU64,
    pub(crate) write_bytes: AtomicU64,
    pub(crate) failed_reads: AtomicU64,
    pub(crate) failed_writes: AtomicU64,
    pub(crate) invalid_io: AtomicU64,
    pub(crate) notify_free: AtomicU64,
    pub(crate) reads: Histogram,
    pub(crate) writes: Histogram,
}

/// Adds to a counter.
pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// zram's `mm_stat`, in bytes and pages of 4 KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MmStat {
    /// Bytes of pages that were written and not trimmed, those in the backing file included.
    pub orig_data_size: u64,
    /// Bytes of objects in memory.
    pub compr_data_size: u64,
    /// Bytes of frames that hold objects and slot tables, and of dictionaries: what the store costs.
    pub mem_used_total: u64,
    /// The limit on that, 0 for none. Stores of one server share it.
    pub mem_limit: u64,
    /// The most that ever was used, of all stores that share the limit; their slot tables counted whole.
    pub mem_used_max: u64,
    /// Pages of one word over and over, zeroes included.
    pub same_pages: u64,
    /// Frames that came free by moving objects together.
    pub pages_compacted: u64,
    /// Pages stored as they are.
    pub huge_pages: u64,
    /// Pages that were stored as they are, since the start.
    pub huge_pages_since: u64,
}

/// zram's `io_stat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoStat {
    /// Reads that failed.
    pub failed_reads: u64,
    /// Writes that failed, for want of space among others.
    pub failed_writes: u64,
    /// Requests beyond the end.
    pub invalid_io: u64,
    /// Pages freed by trim and write zeroes.
    pub notify_free: u64,
}

/// zram's `bd_stat`, in pages of 4 KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BdStat {
    /// Pages in the backing file, of all stores that share it.
    pub bd_count: u64,
    /// Pages read from it.
    pub bd_reads: u64,
    /// Pages written to it.
    pub bd_writes: u64,
}

/// Pages of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tier {
    /// How many.
    pub pages: u64,
    /// Bytes of their objects in memory.
    pub bytes: u64,
}

/// By how pages are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tiers {
    /// Zeroes that were written: the slot says it all.
    pub zero: Tier,
    /// Any other word over and over.
    pub same: Tier,
    /// Packed by a chain.
    pub packed: Tier,
    /// Four neighbours packed as one.
    pub cluster: Tier,
    /// Packed with a dictionary of the store's own.
    #[serde(default)]
    pub primed: Tier,
    /// As they are.
    pub raw: Tier,
    /// In the backing file.
    pub backed: Tier,
}

/// Dictionaries that the store made of its own pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dictionaries {
    /// How many are kept, for new pages or for old ones.
    pub count: u64,
    /// Memory that they cost; part of `mem_used_total`.
    pub bytes: u64,
}

/// Everything there is to know of a store at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Stat {
    /// Bytes of the device.
    pub size: u64,
    /// Of `mm_stat`.
    pub mm_stat: MmStat,
    /// Of `io_stat`.
    pub io_stat: IoStat,
    /// Of `bd_stat`.
    pub bd_stat: BdStat,
    /// Pages by how they are kept.
    pub tiers: Tiers,
    /// What pages are packed with beside their chains.
    #[serde(default)]
    pub dictionaries: Dictionaries,
    /// Bytes read so far.
    pub read_bytes: u64,
    /// Bytes written so far.
    pub write_bytes: u64,
    /// How long reads took.
    pub read_latency: Latency,
    /// How long writes took.
    pub write_latency: Latency,
}

impl Stat {
    pub(crate) fn of(tally: &Tally, object_frames: u64, traffic: &Traffic) -> Self {
        let tier = |kind: Kind| Tier {
            pages: tally.pages[kind as usize],
            bytes: tally.bytes[kind as usize],
        };
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let tiers = Tiers {
            zero: tier(Kind::Zero),
            same: tier(Kind::Same),
            packed: tier(Kind::Packed),
            cluster: tier(Kind::Cluster),
            primed: tier(Kind::Primed),
            raw: tier(Kind::Raw),
            backed: tier(Kind::Backed),
        };
        let mm_stat = MmStat {
            orig_data_size: tally.pages.iter().sum::<u64>() * FRAME as u64,
            compr_data_size: tally.bytes.iter().sum(),
            mem_used_total: (object_frames + tally.table_frames) * FRAME as u64,
            same_pages: tiers.zero.pages + tiers.same.pages,
            pages_compacted: tally.pages_compacted,
            huge_pages: tiers.raw.pages,
            huge_pages_since: tally.huge_pages_since,
            ..MmStat::default()
        };
        let io_stat = IoStat {
            failed_reads: load(&traffic.failed_reads),
            failed_writes: load(&traffic.failed_writes),
            invalid_io: load(&traffic.invalid_io),
            notify_free: load(&traffic.notify_free),
        };
        Self {
            mm_stat,
            io_stat,
            tiers,
            read_bytes: load(&traffic.read_bytes),
            write_bytes: load(&traffic.write_bytes),
            read_latency: traffic.reads.latency(),
            write_latency: traffic.writes.latency(),
            ..Self::default()
        }
    }

    /// Bytes of pages in memory for each byte of memory they cost; pages in the backing file count on neither side.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        let in_memory = self.mm_stat.orig_data_size - self.tiers.backed.pages * FRAME as u64;
        in_memory as f64 / self.mm_stat.mem_used_total.max(1) as f64
    }
}
