//! Standard input and output as a transport, for `ssh host narrows recv -` and shell pipelines.
//!
//! A pipe cannot be shut down from another thread, so every wait polls the descriptor beside a wake-up socket. The
//! descriptor must not block then; but `O_NONBLOCK` belongs to the open file and would leak into the shell that shares
//! it. Reopening a pipe through `/proc/self/fd` gives an open file of our own. Sockets (as `ssh` and super-servers may
//! give) take the socket path instead; regular files never block for long and terminals are left as they are.

use std::{
    fs::{File, OpenOptions},
    io::{self, IoSlice, Read, Write},
    net::Shutdown as Half,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
        unix::{
            fs::{FileTypeExt, OpenOptionsExt},
            net::UnixStream,
        },
    },
    sync::Arc,
};

use socket2::Socket;

use super::{Shutdown, Transport, TransportRead, TransportWrite, aborted, send_all};
use crate::sys;

/// Standard input and output of this process as one transport. Call it once; nothing else may use them then.
///
/// # Errors
/// A descriptor is closed or cannot be duplicated.
pub fn stdio() -> io::Result<Transport> {
    from_descriptors(
        io::stdin().as_fd(),
        io::stdout().as_fd(),
        Some(libc::STDOUT_FILENO),
    )
}

/// A transport that reads `input` and writes `output`; the end of stream also ends descriptor `also_end`.
fn from_descriptors(
    input: BorrowedFd<'_>,
    output: BorrowedFd<'_>,
    also_end: Option<RawFd>,
) -> io::Result<Transport> {
    let (waker, wake) = UnixStream::pair()?;
    let wake = Arc::new(wake);
    let input = Handle::own(input, OpenOptions::new().read(true))?;
    let output = Handle::own(output, OpenOptions::new().write(true))?;
    let sockets = [&input, &output]
        .into_iter()
        .filter_map(|handle| handle.socket.as_ref().map(Arc::downgrade));
    let shutdown = Shutdown::of_pipes(sockets.collect(), waker);
    let reader = PipeRead {
        handle: input,
        wake: wake.clone(),
        shutdown: shutdown.clone(),
    };
    let writer = PipeWrite {
        handle: Some(output),
        wake,
        shutdown: shutdown.clone(),
        also_end,
    };
    let mut transport = Transport::new(reader, writer, "standard input and output".into());
    transport.shutdown = shutdown;
    Ok(transport)
}

/// A descriptor of our own that the wake-up can interrupt.
struct Handle {
    file: File,
    /// The same descriptor as a socket, if it is one.
    socket: Option<Arc<Socket>>,
}

impl Handle {
    fn own(shared: BorrowedFd<'_>, options: &mut OpenOptions) -> io::Result<Self> {
        let file = File::from(shared.try_clone_to_owned()?);
        let kind = file.metadata()?.file_type();
        if kind.is_fifo() {
            // Without /proc the shared open file stays, and an abort then waits for the peer to move.
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            let reopened = options.custom_flags(libc::O_NONBLOCK).open(path);
            return Ok(Self {
                file: reopened.unwrap_or(file),
                socket: None,
            });
        }
        let socket = match kind.is_socket() {
            true => Some(Arc::new(Socket::from(shared.try_clone_to_owned()?))),
            false => None,
        };
        Ok(Self { file, socket })
    }
}

struct PipeRead {
    handle: Handle,
    wake: Arc<UnixStream>,
    shutdown: Shutdown,
}

impl TransportRead for PipeRead {}

impl Read for PipeRead {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            sys::readable_or(&self.handle.file, &self.wake)?;
            if self.shutdown.is_aborted() {
                return Err(aborted());
            }
            match (&self.handle.file).read(buf) {
                Err(err) if err.kind() == io::ErrorKind::WouldBlock => {}
                Err(err) if err.kind() != io::ErrorKind::Interrupted => {
                    return Err(self.shutdown.explain(err));
                }
                Ok(0) if self.shutdown.is_aborted() && !buf.is_empty() => return Err(aborted()),
                other => return other,
            }
        }
    }
}

struct PipeWrite {
    /// `None` after the end of stream.
    handle: Option<Handle>,
    wake: Arc<UnixStream>,
    shutdown: Shutdown,
    /// Process-wide descriptor that must end too, so that the peer sees the end of stream.
    also_end: Option<RawFd>,
}

impl PipeWrite {
    fn send(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(handle) = &self.handle else {
            return Err(io::Error::new(
                io::ErrorKind::BrokenPipe,
                "written after the end of stream",
            ));
        };
        loop {
            sys::writable_or(&handle.file, &self.wake)?;
            if self.shutdown.is_aborted() {
                return Err(aborted());
            }
            let sent = match &handle.socket {
                Some(socket) => socket.send_vectored_with_flags(bufs, libc::MSG_NOSIGNAL),
                None => (&handle.file).write_vectored(bufs),
            };
            match sent {
                Err(err) if err.kind() == io::ErrorKind::WouldBlock => {}
                Err(err) if err.kind() != io::ErrorKind::Interrupted => {
                    return Err(self.shutdown.explain(err));
                }
                other => return other,
            }
        }
    }
}

impl Write for PipeWrite {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.send(&[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TransportWrite for PipeWrite {
    fn write_slices(&mut self, bufs: &mut [IoSlice<'_>]) -> io::Result<()> {
        send_all(bufs, |bufs| self.send(bufs))
    }

    fn finish(&mut self) -> io::Result<()> {
        let Some(handle) = self.handle.take() else {
            return Ok(());
        };
        if let Some(socket) = handle.socket {
            return socket
                .shutdown(Half::Write)
                .map_err(|err| self.shutdown.explain(err));
        }
        drop(handle);
        // The reader of a pipe sees its end only when every writing descriptor is gone, descriptor 1 included.
        self.also_end.map_or(Ok(()), sys::replace_with_null)
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;

    fn pair() -> (Transport, io::PipeWriter, io::PipeReader) {
        let (input, feed) = io::pipe().unwrap();
        let (drain, output) = io::pipe().unwrap();
        (
            from_descriptors(input.as_fd(), output.as_fd(), None).unwrap(),
            feed,
            drain,
        )
    }

    #[test]
    fn bytes_pass_both_ways_and_the_end_is_seen() {
        let (mut transport, mut feed, mut drain) = pair();
        feed.write_all(b"in").unwrap();
        drop(feed);
        let mut got = Vec::new();
        transport.reader.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"in");
        // Larger than a pipe holds: the writer must wait for the drain without spinning or failing.
        let big = vec![7; 300_000];
        let writer = thread::spawn(move || {
            transport
                .writer
                .write_slices(&mut [IoSlice::new(b"head"), IoSlice::new(&big)])
                .unwrap();
            transport.writer.finish().unwrap();
        });
        let mut got = Vec::new();
        drain.read_to_end(&mut got).unwrap();
        writer.join().unwrap();
        assert_eq!(got.len(), 300_004);
    }

    #[test]
    fn abort_frees_a_blocked_reader_and_a_blocked_writer() {
        let (transport, _feed, _drain) = pair();
        let Transport {
            mut reader,
            mut writer,
            shutdown,
            ..
        } = transport;
        let reading = thread::spawn(move || reader.read(&mut [0; 8]).unwrap_err().kind());
        let writing = thread::spawn(move || writer.write_all(&[0; 1 << 20]).unwrap_err().kind());
        thread::sleep(Duration::from_millis(50));
        shutdown.abort();
        assert_eq!(reading.join().unwrap(), io::ErrorKind::ConnectionAborted);
        assert_eq!(writing.join().unwrap(), io::ErrorKind::ConnectionAborted);
    }
}
