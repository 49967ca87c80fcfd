//! Threads, by name.

pub use std::thread::JoinHandle;
use std::{
    io,
    thread::{Builder, Scope, ScopedJoinHandle},
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
        .map_err(|fault| none_left(&fault))
}

/// Runs `run` on a thread of that name, which ends before `scope` does. What [`std::thread::Scope::spawn`] panics for
/// is an error here.
///
/// # Errors
/// The system has none left; `run` is dropped, and with it what it holds.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    run: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    let started = Builder::new().name(name.into()).spawn_scoped(scope, run);
    started.map_err(|fault| none_left(&fault))
}

fn none_left(fault: &io::Error) -> io::Error {
    let hint = "allow more of them (`ulimit -u`, `TasksMax=` of a service)";
    io::Error::new(
        fault.kind(),
        format!("cannot start a thread ({fault}): {hint}"),
    )
}
