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
        Self {
            limit,
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
        }
    }

    /// Takes `frames` if the limit allows.
    #[must_use]
    pub(crate) fn take(&self, frames: u64) -> bool {
        // Not added first and taken back: who asks for much would have others refused meanwhile.
        let within = |used: u64| used.checked_add(frames).filter(|&used| used <= self.limit);
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, within);
        if let Ok(used) = taken {
            self.peak.fetch_max(used + frames, Ordering::Relaxed);
        }
        taken.is_ok()
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
        self.limit()
            .is_some_and(|limit| self.used() > limit / 100 * percent)
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicBool, thread};

    use super::*;

    #[test]
    fn who_is_refused_keeps_nothing_from_others() {
        let budget = Budget::new(Some(10 * FRAME as u64));
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let greedy = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert!(!budget.take(11));
                }
            });
            let mut refused = 0;
            for _ in 0..2_000_000 {
                match budget.take(1) {
                    true => budget.give(1),
                    false => refused += 1,
                }
            }
            done.store(true, Ordering::Relaxed);
            greedy.join().unwrap();
            assert_eq!(refused, 0);
        });
        assert!(!budget.take(u64::MAX));
        assert_eq!((budget.used(), budget.peak()), (0, FRAME as u64));
    }
}
