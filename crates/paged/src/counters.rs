//! Counters in a file that the parent shares, so that they are there however the program ends.

use std::{
    fs::OpenOptions,
    sync::atomic::{AtomicU64, Ordering},
};

use narrows_memory::run::{COUNT, Counter};

use crate::sys;

/// The counters.
#[derive(Debug)]
pub(crate) struct Counters(&'static [AtomicU64; COUNT]);

impl Counters {
    /// Those in the file at `path`, or our own where there is none.
    pub(crate) fn open(path: Option<&str>) -> Self {
        static OWN: [AtomicU64; COUNT] = [const { AtomicU64::new(0) }; COUNT];
        let shared = path.and_then(|path| {
            let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
            let is_whole = file.metadata().ok()?.len() >= (COUNT * 8) as u64;
            is_whole.then(|| sys::share(&file, COUNT * 8).ok())?
        });
        Self(match shared {
            // SAFETY: the mapping is of that length, aligned to a page, never unmapped, and shared memory that is
            // touched by atomics only.
            Some(start) => unsafe { &*start.cast::<[AtomicU64; COUNT]>() },
            None => &OWN,
        })
    }

    pub(crate) fn add(&self, counter: Counter, by: u64) {
        self.0[counter as usize].fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, counter: Counter, to: u64) {
        self.0[counter as usize].store(to, Ordering::Relaxed);
    }

    /// Says whether it was less.
    pub(crate) fn raise(&self, counter: Counter, to: u64) -> bool {
        self.0[counter as usize].fetch_max(to, Ordering::Relaxed) < to
    }
}
