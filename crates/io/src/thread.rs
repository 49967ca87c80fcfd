//! Threads, by name.

use std::{
    io,
    thread::{Builder, JoinHandle},
};

/// Runs `run` on a thread of that name.
///
/// # Errors
/// The system has none left, in words that say what allows more; `run` is dropped, and with it what it holds.
pub fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new()
        .name(name.into())
        .spawn(run)
        .map_err(|fault| {
            let hint = "allow more of them (`ulimit -u`, `TasksMax=` of a service)";
            io::Error::new(
                fault.kind(),
                format!("cannot start a thread ({fault}): {hint}"),
            )
        })
}
