//! Waiting for a device: a little while, and never for ever.

use std::{
    hint, thread,
    time::{Duration, Instant},
};

/// Waits for an operation of a device that tells when asked, for at most [`WAIT_MAX`].
pub(crate) struct Wait(Instant);

impl Wait {
    /// From now on.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Lets a moment pass: the longer it took so far, the longer. Little of it is spent in turning round, since a
    /// device is there to save processor time.
    pub(crate) fn pause(&self) {
        let waited = self.0.elapsed();
        if waited < Duration::from_micros(20) {
            hint::spin_loop();
        } else if waited < Duration::from_millis(1) {
            thread::sleep(Duration::from_micros(20));
        } else {
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Whether it took too long.
    pub(crate) fn is_over(&self) -> bool {
        self.0.elapsed() >= WAIT_MAX
    }
}

/// Longest an operation may take. The slowest device in use packs 100 MB in this time.
const WAIT_MAX: Duration = Duration::from_secs(1);
