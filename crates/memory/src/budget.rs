//! Frames in use, and the limit on them. Stores that share a budget share the limit.

use std::sync::atomic::{AtomicU64, Ordering};

use narrows_io::region::FRAME;

/// Counts frames of 4 KiB: those that objects lie in and those of slot tables.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    used: AtomicU64,
    peak: AtomicU64,
}

impl Budget {
    /// At most `bytes`, in whole frames; `None` for no limit.
    #[must_use]
    pub fn new(bytes: Option<u64>) -> Self {
        let limit = bytes.map_or(u64::MAX, |bytes| bytes / FRAME as u64);
        Self { limit, used: AtomicU64::new(0), peak: AtomicU64::new(0) }
    }

    /// Takes `frames` if the limit allows.
    #[must_use]
    pub(crate) fn take(&self, frames: u64) -> bool {
        let used = self.used.fetch_add(frames, Ordering::Relaxed).saturating_add(frames);
        if used > self.limit {
            self.used.fetch_sub(frames, Ordering::Relaxed);
            return false;
        }
        self.peak.fetch_max(used, Ordering::Relaxed);
        true
    }

    pub(crate) fn give(&self, frames: u64) {
        self.used.fetch_sub(frames, Ordering::Relaxed);
    }

    /// Bytes in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed) * FRAME as u64
    }

    /// The most bytes that ever were in use.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed) * FRAME as u64
    }

    /// The limit in bytes; `None` where there is none.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        (self.limit != u64::MAX).then(|| self.limit * FRAME as u64)
    }

    /// Whether more than `percent` of the limit is in use.
    #[must_use]
    pub fn is_above(&self, percent: u64) -> bool {
        self.limit().is_some_and(|limit| self.used() > limit / 100 * percent)
    }
}
