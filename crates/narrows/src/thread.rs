//! Threads of a session.

use narrows_session::Code;

use crate::inner::End;

/// Starts a thread. Where the system has none left, what needed it ends, in words, and not the process.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), End> {
    match std::thread::Builder::new().name(name.into()).spawn(run) {
        Ok(_) => Ok(()),
        Err(fault) => Err(End::new(
            Code::FAILED,
            format!("cannot start a thread ({fault}): allow more of them (`ulimit -u`, `TasksMax=` of a service)"),
        )),
    }
}
