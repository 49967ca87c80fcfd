//! Threads of a session.

use narrows_session::Code;

use crate::Error;

/// Starts a thread. Where the system has none left, what needed it ends, in words, and not the process.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    narrows_io::thread::spawn(name, run)
        .map(drop)
        .map_err(|fault| Error::new(Code::FAILED, fault.to_string()))
}
