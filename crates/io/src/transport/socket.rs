//! Transports over a connected socket, TCP or Unix.
//!
//! Writes carry `MSG_NOSIGNAL`: a library must not depend on its process ignoring `SIGPIPE`.

use std::{
    io::{self, IoSlice, Read, Write},
    net::Shutdown as Half,
    sync::Arc,
};

use socket2::Socket;

use super::{Probe, Shutdown, Transport, TransportRead, TransportWrite, Tuning, aborted, send_all};

/// Wraps a connected TCP socket: no Nagle delay, few unsent bytes in the kernel.
pub(crate) fn from_tcp(socket: Socket, peer: String, tuning: &Tuning) -> io::Result<Transport> {
    socket.set_tcp_nodelay(true)?;
    socket.set_keepalive(true)?;
    if let Some(bytes) = tuning.notsent_lowat {
        socket.set_tcp_notsent_lowat(bytes)?;
    }
    let socket = Arc::new(socket);
    let mut transport = from_pair(socket.clone(), socket.clone(), peer);
    transport.probe = Probe::of(&socket);
    Ok(transport)
}

/// Wraps a connected Unix socket.
pub(crate) fn from_unix(socket: Socket, peer: String) -> Transport {
    let socket = Arc::new(socket);
    let mut transport = from_pair(socket.clone(), socket.clone(), peer);
    transport.probe = Probe::of(&socket);
    transport
}

/// A transport that reads one socket and writes another (or the same).
pub(super) fn from_pair(input: Arc<Socket>, output: Arc<Socket>, peer: String) -> Transport {
    let shutdown = Shutdown::of_sockets([&input, &output]);
    let reader = SocketRead {
        socket: input,
        shutdown: shutdown.clone(),
    };
    let writer = SocketWrite {
        socket: output,
        shutdown: shutdown.clone(),
    };
    let mut transport = Transport::new(reader, writer, peer);
    transport.shutdown = shutdown;
    transport
}

pub(super) struct SocketRead {
    pub(super) socket: Arc<Socket>,
    pub(super) shutdown: Shutdown,
}

impl TransportRead for SocketRead {
    fn read_ready(&mut self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::net::recv(&*self.socket, &mut *buf, rustix::net::RecvFlags::DONTWAIT) {
            Ok((0, _)) if self.shutdown.is_aborted() && !buf.is_empty() => Err(aborted()),
            Ok((len, _)) => Ok(Some(len)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(err) => Err(self.shutdown.explain(err.into())),
        }
    }
}

impl Read for SocketRead {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match (&*self.socket).read(buf) {
            // A socket shut down from this side also reads as ended; only the flag tells the two apart.
            Ok(0) if self.shutdown.is_aborted() && !buf.is_empty() => Err(aborted()),
            Err(err) if err.kind() != io::ErrorKind::Interrupted => Err(self.shutdown.explain(err)),
            other => other,
        }
    }

    fn read_vectored(&mut self, bufs: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
        match rustix::io::readv(&*self.socket, bufs) {
            Ok(0) if self.shutdown.is_aborted() => Err(aborted()),
            Err(rustix::io::Errno::INTR) => Err(io::ErrorKind::Interrupted.into()),
            Err(err) => Err(self.shutdown.explain(err.into())),
            Ok(len) => Ok(len),
        }
    }
}

pub(super) struct SocketWrite {
    pub(super) socket: Arc<Socket>,
    pub(super) shutdown: Shutdown,
}

impl Write for SocketWrite {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.socket
            .send_with_flags(buf, libc::MSG_NOSIGNAL)
            .map_err(|err| self.shutdown.explain(err))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.socket
            .send_vectored_with_flags(bufs, libc::MSG_NOSIGNAL)
            .map_err(|err| self.shutdown.explain(err))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TransportWrite for SocketWrite {
    fn write_slices(&mut self, bufs: &mut [IoSlice<'_>]) -> io::Result<()> {
        let socket = &*self.socket;
        send_all(bufs, |bufs| {
            socket.send_vectored_with_flags(bufs, libc::MSG_NOSIGNAL)
        })
        .map_err(|err| self.shutdown.explain(err))
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self
            .socket
            .send_with_flags(bytes, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
        {
            Err(err)
                if matches!(
                    err.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(0)
            }
            other => other.map_err(|err| self.shutdown.explain(err)),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        match self.socket.shutdown(Half::Write) {
            // The peer hung up first: it is not listening for our end of stream.
            Err(err)
                if err.kind() == io::ErrorKind::NotConnected && !self.shutdown.is_aborted() =>
            {
                Ok(())
            }
            other => other.map_err(|err| self.shutdown.explain(err)),
        }
    }
}
