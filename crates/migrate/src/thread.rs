//! How this crate starts a thread: named, and with a word in the log where the system has none left.

use narrows_io::thread;

/// Runs `run` on a thread of that name. Where the system starts no more, `run` is dropped, and with it what it holds.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) {
    if let Err(fault) = thread::spawn(name, run) {
        tracing::error!("a connection is dropped: {fault}");
    }
}
