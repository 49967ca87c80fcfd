//! Where the moving parts get their time from: the real clocks live in `io`, tests bring their own.

use std::fmt::Debug;

/// Clocks, in nanoseconds.
pub trait Clock: Debug + Send + Sync {
    /// Monotonic time since the clock was made.
    fn now_ns(&self) -> u64;

    /// Processor time that the calling thread has used. Unlike [`Clock::now_ns`] it stands still while others run.
    fn thread_cpu_ns(&self) -> u64;

    /// Time that the calling thread was ready to run and had no processor; 0 where the system does not tell.
    fn thread_delayed_ns(&self) -> u64 {
        0
    }
}
