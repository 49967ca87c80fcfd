//! A child process whose standard input and output are the stream, as `rsync` uses `ssh`.
//!
//! The child gets two socket pairs rather than pipes: sockets can be shut down from another thread, and two pairs keep
//! the end of stream of each direction its own.

use std::{
    io::{self, IoSlice, Read, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use socket2::Socket;

use super::{Transport, TransportRead, TransportWrite, socket::from_pair};

/// How long a child may go on after both its streams ended, before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// Starts `command` with the transport as its standard input and output; its standard error stays ours, so that
/// `ssh` can ask and complain where the user looks.
///
/// The child is waited for when both halves are dropped: for 5 s, then it is killed.
///
/// # Errors
/// The program cannot be started.
pub fn spawn(mut command: Command) -> io::Result<(Transport, ChildHandle)> {
    let peer = command.get_program().to_string_lossy().into_owned();
    let (our_input, child_output) = UnixStream::pair()?;
    let (our_output, child_input) = UnixStream::pair()?;
    command
        .stdin(Stdio::from(OwnedFd::from(child_input)))
        .stdout(Stdio::from(OwnedFd::from(child_output)));
    let child = command.spawn()?;
    // `command` still holds the child's ends; while it lives we would never see an end of stream.
    drop(command);
    let input = Arc::new(Socket::from(OwnedFd::from(our_input)));
    let output = Arc::new(Socket::from(OwnedFd::from(our_output)));
    let Transport {
        reader,
        writer,
        peer,
        shutdown,
        probe,
        security,
        identity,
    } = from_pair(input, output, format!("{peer} (process {})", child.id()));
    let guard = Arc::new(Guard(Mutex::new(child)));
    let handle = ChildHandle(guard.clone());
    let reader = Box::new(Kept {
        inner: Some(reader),
        _guard: guard.clone(),
    });
    let writer = Box::new(Kept {
        inner: Some(writer),
        _guard: guard,
    });
    let transport = Transport {
        reader,
        writer,
        peer,
        shutdown,
        probe,
        security,
        identity,
    };
    Ok((transport, handle))
}

/// The child itself: how it ended.
#[derive(Clone)]
pub struct ChildHandle(Arc<Guard>);

impl ChildHandle {
    /// Waits a moment for its end; its exit code, if it has one.
    #[must_use]
    pub fn exit_code(&self) -> Option<i32> {
        let until = Instant::now() + Duration::from_secs(1);
        loop {
            match self.0.0.lock().try_wait() {
                Ok(Some(status)) => return status.code(),
                Ok(None) if Instant::now() < until => {}
                _ => return None,
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl std::fmt::Debug for ChildHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChildHandle").finish_non_exhaustive()
    }
}

/// A half that keeps the child's guard; the half is dropped (and its socket closed) before the guard waits.
struct Kept<T> {
    inner: Option<T>,
    _guard: Arc<Guard>,
}

impl<T> Kept<T> {
    fn half(&mut self) -> &mut T {
        self.inner.as_mut().expect("taken only by drop")
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        self.inner = None;
    }
}

impl TransportRead for Kept<Box<dyn TransportRead>> {}

impl Read for Kept<Box<dyn TransportRead>> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.half().read(buf)
    }
}

impl Write for Kept<Box<dyn TransportWrite>> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.half().write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.half().flush()
    }
}

impl TransportWrite for Kept<Box<dyn TransportWrite>> {
    fn write_slices(&mut self, bufs: &mut [IoSlice<'_>]) -> io::Result<()> {
        self.half().write_slices(bufs)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.half().finish()
    }
}

struct Guard(Mutex<Child>);

impl Drop for Guard {
    fn drop(&mut self) {
        let child = self.0.get_mut();
        let deadline = Instant::now() + GRACE;
        loop {
            match child.try_wait() {
                Ok(Some(status)) if status.success() => return,
                Ok(Some(status)) => return tracing::info!(%status, "the remote command failed"),
                Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
                _ => break,
            }
        }
        tracing::warn!(
            process = child.id(),
            "the remote command did not end; killing it"
        );
        let _ = child.kill();
        let _ = child.wait();
    }
}
