//! How many blocks may be mapped: what the limit leaves beside everything else that the process has in memory.
//!
//! Everything else is the program's small memory, packed copies and this library's own. It is not counted piece by
//! piece but taken from the kernel's count of resident pages, so the limit holds for all of it.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::atomic::{AtomicI64, Ordering},
};

use crate::{
    blocks::{BLOCK, PAGES},
    sys::PAGE,
};

/// The gauge.
#[derive(Debug)]
pub(crate) struct Gauge {
    statm: File,
    limit: i64,
    /// Blocks mapped.
    resident: AtomicI64,
    /// How many may be.
    max: AtomicI64,
    uses: AtomicI64,
}

impl Gauge {
    pub(crate) fn new(limit: u64) -> io::Result<Self> {
        let gauge = Self {
            statm: File::open("/proc/self/statm")?,
            limit: i64::try_from(limit).unwrap_or(i64::MAX),
            resident: AtomicI64::new(0),
            max: AtomicI64::new(0),
            uses: AtomicI64::new(0),
        };
        gauge.measure();
        Ok(gauge)
    }

    /// Takes the kernel's count, and returns resident bytes.
    pub(crate) fn measure(&self) -> u64 {
        let Some(all) = self.resident_bytes() else {
            return 0;
        };
        let others = (all - self.resident() * BLOCK as i64).max(0);
        let left = self.limit - self.limit / MARGIN - others;
        self.max
            .store((left / BLOCK as i64).max(self.min()), Ordering::Relaxed);
        all as u64
    }

    fn resident_bytes(&self) -> Option<i64> {
        let mut text = [0; 128];
        let len = self.statm.read_at(&mut text, 0).ok()?;
        let mut words = text[..len].split(|&byte| byte == b' ');
        let pages: i64 = std::str::from_utf8(words.nth(1)?).ok()?.parse().ok()?;
        Some(pages * PAGE as i64)
    }

    /// Measures now and then; for who is about to map or unmap a block.
    pub(crate) fn tick(&self) -> Option<u64> {
        let use_ = self.uses.fetch_add(1, Ordering::Relaxed);
        (use_ % EVERY == 0).then(|| self.measure())
    }

    /// So many blocks are mapped whatever else there is: with fewer the program would make no way.
    fn min(&self) -> i64 {
        (self.limit / BLOCK as i64 / 16).max(4 * PAGES as i64)
    }

    /// Whether memory is so short that packed copies must not grow.
    pub(crate) fn is_short(&self) -> bool {
        self.max() <= 2 * self.min()
    }

    pub(crate) fn resident(&self) -> i64 {
        self.resident.load(Ordering::Relaxed)
    }

    pub(crate) fn max(&self) -> i64 {
        self.max.load(Ordering::Relaxed)
    }

    /// Blocks that may be mapped beside those that are; below zero where there are too many.
    pub(crate) fn left(&self) -> i64 {
        self.max() - self.resident()
    }

    pub(crate) fn add(&self, blocks: i64) {
        self.resident.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Blocks that are kept free for faults: evicting begins at this, and ends at twice as many.
    pub(crate) fn watermark(&self) -> i64 {
        (self.max() / 64).clamp(4, 64)
    }
}

/// This part of the limit is kept for what grows between two measurements.
const MARGIN: i64 = 64;
/// Blocks mapped or unmapped between two measurements.
const EVERY: i64 = 16;
