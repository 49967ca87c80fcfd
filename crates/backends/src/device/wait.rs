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

    /// Lets a moment pass: the longer it took so far, the longer. False when it took too long.
    pub(crate) fn more(&self) -> bool {
        let waited = self.0.elapsed();
        if waited < Duration::from_micros(50) {
            hint::spin_loop();
        } else if waited < Duration::from_millis(2) {
            thread::yield_now();
        } else {
            thread::sleep(Duration::from_micros(200));
        }
        waited < WAIT_MAX
    }
}

/// Longest an operation may take. The slowest device in use packs 100 MB in this time.
const WAIT_MAX: Duration = Duration::from_secs(1);
