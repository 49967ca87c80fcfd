//! One connected byte stream, split into a read half and a write half that two threads own.
//!
//! Why boxes of traits: TCP, Unix sockets, pipes, a child process, TLS and Noise all look alike to `pipeline` and
//! `session`, and a virtual call per 256 KiB write costs nothing that a meter could see. Why two halves: a session
//! reads credit while it writes frames; neither may wait for the other.
//!
//! Invariants: `writer.finish()` sends the end of stream and leaves reading possible; [`Shutdown::abort`] makes
//! every blocked call of either half return `ConnectionAborted`, from any thread. Blocking I/O, no thread of its own.
//! Upstream: [`crate::listener`], [`connect`]; around it: [`crate::secure`]; downstream: `session`, `pipeline`.

mod child;
mod connect;
mod pipe;
mod socket;
mod throttle;

use std::{
    fmt,
    io::{self, IoSlice, Read, Write},
    net::SocketAddr,
    os::unix::net::UnixStream,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use socket2::Socket;

use crate::{meter::TcpInfo, sys};

pub use child::{ChildHandle, spawn};
pub(crate) use connect::buffer_sizes;
pub use connect::{ConnectError, connect};
pub use pipe::stdio;
pub(crate) use socket::{from_tcp, from_unix};
pub use throttle::throttled;

/// The half that receives. `read` returning 0 is the peer's orderly end of stream, never a fault.
pub trait TransportRead: Read + Send {
    /// Reads what is there without waiting; `None` where nothing is, or where the stream cannot tell.
    ///
    /// # Errors
    /// As for reading.
    fn read_ready(&mut self, _buf: &mut [u8]) -> io::Result<Option<usize>> {
        Ok(None)
    }
}

/// The half that sends.
pub trait TransportWrite: Write + Send {
    /// Sends every byte of `bufs`, header and payload in one system call where the kernel takes them.
    ///
    /// Not called `write_slices`: the standard library may add that name to `Write`.
    ///
    /// `bufs` is advanced while bytes leave; its content afterwards is unspecified.
    ///
    /// # Errors
    /// The connection broke (`BrokenPipe`, `ConnectionReset`) or was aborted here (`ConnectionAborted`).
    fn write_slices(&mut self, bufs: &mut [IoSlice<'_>]) -> io::Result<()>;

    /// Sends as much as goes without waiting and returns how much: 0 where nothing does, or the stream cannot tell.
    ///
    /// # Errors
    /// As for writing.
    fn try_write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
        Ok(0)
    }

    /// Sends what is buffered and the end of stream; the peer then reads 0. Nothing may be written afterwards.
    ///
    /// # Errors
    /// As for writing.
    fn finish(&mut self) -> io::Result<()>;
}

/// A connected stream. Take `reader` and `writer` out and give each to its thread.
pub struct Transport {
    /// Receives.
    pub reader: Box<dyn TransportRead>,
    /// Sends.
    pub writer: Box<dyn TransportWrite>,
    /// Who is at the other end, for messages to people.
    pub peer: String,
    /// Aborts both halves from any thread.
    pub shutdown: Shutdown,
    /// Reads the kernel's view of the link.
    pub probe: Probe,
    /// What authenticated the peer.
    pub security: Security,
    /// Who that showed it to be, where this side accepted it.
    pub identity: Option<Identity>,
}

/// What stands between the bytes and the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Security {
    /// Neither encrypted nor authenticated by us.
    Plain,
    /// TLS 1.3.
    Tls,
    /// Noise with a pre-shared key.
    Psk,
}

/// Who a peer has proved to be: the names in its certificate, or whose pre-shared key it holds. Equal for connections of
/// one peer, and of no two that the certificates' authority, or the file of keys, tells apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity(Arc<str>);

impl Identity {
    /// Of the names in a certificate, in its order; `None` without one.
    pub(crate) fn of_certificate(names: &[String]) -> Option<Self> {
        // Quoted, so that no list of names reads as another.
        (!names.is_empty()).then(|| Self(format!("certificate {names:?}").into()))
    }

    /// Of a user in the file of keys.
    #[must_use]
    pub fn of_key(user: &str) -> Self {
        Self(format!("key {user}").into())
    }
}

/// Socket settings. [`Tuning::default`] suits a link that a compressor feeds.
#[derive(Debug, Clone, Copy)]
pub struct Tuning {
    /// Unsent bytes the kernel holds before a write blocks (`TCP_NOTSENT_LOWAT`); `None` leaves the system's value.
    ///
    /// Default 256 KiB: with megabytes of unsent data in the kernel a sender believes in a link ten times too fast.
    pub notsent_lowat: Option<u32>,
    /// `SO_SNDBUF` in bytes. Default `None`: a fixed buffer would switch off the kernel's own tuning.
    pub send_buffer: Option<usize>,
    /// `SO_RCVBUF` in bytes; default `None`.
    pub recv_buffer: Option<usize>,
    /// How long one address may take to answer. Default 10 s.
    pub connect_timeout: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            notsent_lowat: Some(256 * 1024),
            send_buffer: None,
            recv_buffer: None,
            connect_timeout: Duration::from_secs(10),
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport")
            .field("peer", &self.peer)
            .field("security", &self.security)
            .finish_non_exhaustive()
    }
}

impl Transport {
    pub(crate) fn new(
        reader: impl TransportRead + 'static,
        writer: impl TransportWrite + 'static,
        peer: String,
    ) -> Self {
        Self {
            reader: Box::new(reader),
            writer: Box::new(writer),
            peer,
            shutdown: Shutdown::default(),
            probe: Probe::default(),
            security: Security::Plain,
            identity: None,
        }
    }
}

/// Aborts a transport from any thread. Clones act on the same stream; holding one keeps no descriptor open.
#[derive(Clone, Default)]
pub struct Shutdown(Arc<ShutdownInner>);

#[derive(Default)]
struct ShutdownInner {
    aborted: AtomicBool,
    sockets: Vec<Weak<Socket>>,
    /// Writing end of a pair whose other end pipe halves poll beside their descriptor.
    waker: Option<UnixStream>,
}

impl fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shutdown")
            .field("aborted", &self.is_aborted())
            .finish_non_exhaustive()
    }
}

impl Shutdown {
    pub(crate) fn of_sockets<'a>(sockets: impl IntoIterator<Item = &'a Arc<Socket>>) -> Self {
        let sockets = sockets.into_iter().map(Arc::downgrade).collect();
        Self(Arc::new(ShutdownInner {
            sockets,
            ..ShutdownInner::default()
        }))
    }

    pub(crate) fn of_pipes(sockets: Vec<Weak<Socket>>, waker: UnixStream) -> Self {
        Self(Arc::new(ShutdownInner {
            aborted: AtomicBool::new(false),
            sockets,
            waker: Some(waker),
        }))
    }

    /// Ends both halves: blocked and later calls return `ConnectionAborted`. The peer sees a reset or an end of
    /// stream in the middle of something; an orderly end is [`TransportWrite::finish`]. Repeating it does nothing.
    pub fn abort(&self) {
        if self.0.aborted.swap(true, Ordering::SeqCst) {
            return;
        }
        for socket in self.0.sockets.iter().filter_map(Weak::upgrade) {
            sys::reset(&socket);
        }
        if let Some(mut waker) = self.0.waker.as_ref() {
            let _ = waker.write_all(&[1]);
        }
    }

    /// Whether [`Shutdown::abort`] was called.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.0.aborted.load(Ordering::SeqCst)
    }

    /// The error of an aborted half, else `err` itself: after an abort the kernel's own word is only a symptom.
    pub(crate) fn explain(&self, err: io::Error) -> io::Error {
        if self.is_aborted() { aborted() } else { err }
    }
}

pub(crate) fn aborted() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionAborted,
        "the connection was aborted on this side",
    )
}

/// Asks the kernel about a transport's socket while others read and write it.
#[derive(Clone, Default)]
pub struct Probe(Weak<Socket>);

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Probe({})",
            if self.0.strong_count() > 0 {
                "open"
            } else {
                "none"
            }
        )
    }
}

impl Probe {
    pub(crate) fn of(socket: &Arc<Socket>) -> Self {
        Self(Arc::downgrade(socket))
    }

    /// The kernel's numbers for this connection; `None` if it is not TCP or is closed.
    #[must_use]
    pub fn tcp_info(&self) -> Option<TcpInfo> {
        TcpInfo::of(&*self.0.upgrade()?)
    }

    /// Our and the peer's address and port, as the kernel here has them; `None` if this is no IP socket or is closed.
    /// One of IPv4 is one also where a socket of IPv6 accepted it, which maps it.
    #[must_use]
    pub fn ends(&self) -> Option<[SocketAddr; 2]> {
        let socket = self.0.upgrade()?;
        let ends = [
            socket.local_addr().ok()?.as_socket()?,
            socket.peer_addr().ok()?.as_socket()?,
        ];
        Some(ends.map(|end| SocketAddr::new(end.ip().to_canonical(), end.port())))
    }

    /// Bytes that came and were not read yet; `None` if the connection is closed.
    #[must_use]
    pub fn unread(&self) -> Option<u64> {
        rustix::io::ioctl_fionread(&*self.0.upgrade()?).ok()
    }

    /// Process at the other end of a Unix socket, as the kernel knew it when the socket was connected; `None` if this
    /// is no Unix socket, or the process is of another namespace.
    #[must_use]
    pub fn peer_pid(&self) -> Option<u32> {
        sys::peer_pid(&*self.0.upgrade()?)
    }

    /// Whether the peer has closed the connection, or it broke; what came before may still be there to read.
    #[must_use]
    pub fn is_hung_up(&self) -> bool {
        self.0
            .upgrade()
            .is_none_or(|socket| sys::is_hung_up(&socket))
    }

    /// Fixes `SO_SNDBUF` while the connection runs, which ends the kernel's own tuning of it; returns whether it is
    /// open.
    #[must_use]
    pub fn set_send_buffer(&self, bytes: usize) -> bool {
        self.0
            .upgrade()
            .is_some_and(|socket| socket.set_send_buffer_size(bytes).is_ok())
    }

    /// Changes `TCP_NOTSENT_LOWAT` while the connection runs; returns whether it is an open TCP connection.
    #[must_use]
    pub fn set_notsent_lowat(&self, bytes: u32) -> bool {
        self.0
            .upgrade()
            .is_some_and(|socket| socket.set_tcp_notsent_lowat(bytes).is_ok())
    }
}

/// Sends all of `bufs` through `write`, a call that may take only part; shared by sockets and pipes.
pub(crate) fn send_all(
    mut bufs: &mut [IoSlice<'_>],
    mut write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
) -> io::Result<()> {
    // Drops leading empty slices, so that a wholly empty message writes nothing rather than failing.
    IoSlice::advance_slices(&mut bufs, 0);
    while !bufs.is_empty() {
        match write(bufs) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(sent) => IoSlice::advance_slices(&mut bufs, sent),
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => return Err(err),
        }
    }
    Ok(())
}
