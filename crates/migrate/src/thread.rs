//! How this crate starts a thread: named, and with a word in the log where the system has none left.

use std::thread;

/// Runs `run` on a thread of that name. Where the system starts no more, `run` is dropped, and with it what it holds.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) {
    if let Err(fault) = thread::Builder::new().name(name.into()).spawn(run) {
        tracing::error!(%fault, "the system starts no more threads; a connection is dropped");
    }
}
