//! Accepts transports on a TCP or Unix address, until told to stop.
//!
//! Why a wake-up socket beside the listening one: a thread blocked in `accept` cannot be told anything. Both are
//! polled; the listening socket does not block, so a client that leaves between poll and accept stalls nobody.
//!
//! Unix sockets: a stale one (nobody answers) is replaced, a live one or anything else at the path is refused; the file
//! is ours alone (mode 0600) and is removed on drop if it is still ours.

use std::{
    fs, io,
    io::Write,
    iter,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::{
    address::Address,
    sys,
    transport::{Transport, Tuning, buffer_sizes, from_tcp, from_unix},
};

/// Why nothing listens. Each variant is one thing the caller should look at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another process has the address. Stop it or choose another.
    #[error("{0} is in use by another process")]
    InUse(Address),
    /// Something that is not a socket stands at the path; it was left alone.
    #[error("{} exists and is not a socket; remove it or choose another path", .0.display())]
    NotASocket(PathBuf),
    /// Standard input and output cannot be listened on.
    #[error("cannot listen on -; it is one ready connection")]
    Stdio,
    /// Anything else the system says.
    #[error("cannot listen on {address}: {source}")]
    Io {
        /// What was asked for.
        address: Address,
        /// The system's word.
        source: io::Error,
    },
}

/// Before accepting again when the system had nothing left to accept with.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Accepts transports.
#[derive(Debug)]
pub struct Listener {
    raw: RawListener,
    tuning: Tuning,
}

/// A listening socket that gives plain sockets, for the emulator.
#[derive(Debug)]
pub(crate) struct RawListener {
    socket: Socket,
    local: Address,
    wake: UnixStream,
    stop: Stop,
    /// Held for its drop.
    _file: Option<SocketFile>,
}

/// Makes a [`Listener`]'s accept return, from any thread; for good.
#[derive(Debug, Clone)]
pub struct Stop(Arc<UnixStream>);

impl Stop {
    /// Makes the present and every later [`Listener::accept`] return `None`.
    pub fn stop(&self) {
        let _ = (&*self.0).write_all(&[1]);
    }
}

impl Listener {
    /// Listens on `address`. Ask [`crate::secure::require_auth`] first whether it may go without authentication.
    ///
    /// # Errors
    /// See [`ListenError`].
    pub fn bind(address: &Address, tuning: &Tuning) -> Result<Self, ListenError> {
        Ok(Self {
            raw: RawListener::bind(address, tuning)?,
            tuning: *tuning,
        })
    }

    /// The address bound, with the port the system chose if 0 was asked for.
    #[must_use]
    pub fn local(&self) -> &Address {
        self.raw.local()
    }

    /// A handle that ends [`Listener::accept`].
    #[must_use]
    pub fn stopper(&self) -> Stop {
        self.raw.stopper()
    }

    /// Waits for the next connection; `None` once stopped. The stream is plain; pass it through
    /// [`crate::secure::accept`], on a thread of its own, before any application byte.
    ///
    /// # Errors
    /// The process ran out of descriptors or memory; waiting a moment and calling again may succeed.
    pub fn accept(&self) -> io::Result<Option<Transport>> {
        loop {
            let Some((socket, peer)) = self.raw.accept()? else {
                return Ok(None);
            };
            let Some(peer) = peer.as_socket() else {
                // The kernel does not tune these; what it refuses, it bounds.
                buffer_sizes(&socket, &self.tuning)?;
                return Ok(Some(from_unix(socket, self.local().to_string())));
            };
            match from_tcp(socket, peer.to_string(), &self.tuning) {
                Ok(transport) => return Ok(Some(transport)),
                // The client left before its socket was set up.
                Err(err) => tracing::debug!(%peer, %err, "dropped a connection"),
            }
        }
    }
}

impl Listener {
    /// Every connection until somebody stops this. What the process has no means for at the moment is told in the log,
    /// and waits: those in use go on, and may end.
    pub fn incoming(&self) -> impl Iterator<Item = Transport> + '_ {
        iter::from_fn(|| {
            loop {
                match self.accept() {
                    Ok(accepted) => return accepted,
                    Err(fault) => {
                        tracing::warn!(%fault, "cannot accept a connection");
                        thread::sleep(ACCEPT_AGAIN);
                    }
                }
            }
        })
    }
}

impl RawListener {
    pub(crate) fn bind(address: &Address, tuning: &Tuning) -> Result<Self, ListenError> {
        let explain = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => ListenError::InUse(address.clone()),
            _ => ListenError::Io {
                address: address.clone(),
                source,
            },
        };
        let (socket, local, file) = match address {
            Address::Stdio => return Err(ListenError::Stdio),
            Address::Unix(path) => {
                clear_stale(path, address)?;
                let (socket, file) = bind_unix(path).map_err(explain)?;
                (socket, address.clone(), Some(file))
            }
            Address::Tcp { .. } => {
                let socket = bind_tcp(address, tuning).map_err(explain)?;
                let bound = socket
                    .local_addr()
                    .map_err(explain)?
                    .as_socket()
                    .expect("a TCP socket has an IP address");
                (socket, bound.into(), None)
            }
        };
        socket.set_nonblocking(true).map_err(explain)?;
        let (stop, wake) = UnixStream::pair().map_err(explain)?;
        Ok(Self {
            socket,
            local,
            wake,
            stop: Stop(Arc::new(stop)),
            _file: file,
        })
    }

    pub(crate) fn local(&self) -> &Address {
        &self.local
    }

    pub(crate) fn stopper(&self) -> Stop {
        self.stop.clone()
    }

    pub(crate) fn accept(&self) -> io::Result<Option<(Socket, SockAddr)>> {
        loop {
            sys::readable_or(&self.socket, &self.wake)?;
            if sys::is_readable(&self.wake)? {
                return Ok(None);
            }
            let (socket, peer) = match self.socket.accept() {
                Ok(accepted) => accepted,
                Err(err) if is_transient(&err) => continue,
                Err(err) => return Err(err),
            };
            socket.set_nonblocking(false)?;
            return Ok(Some((socket, peer)));
        }
    }
}

/// The client's fault, not ours: `accept(2)` says to go on.
fn is_transient(err: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, HostUnreachable, Interrupted, NetworkDown, NetworkUnreachable,
        WouldBlock,
    };
    let kind = err.kind();
    [
        ConnectionAborted,
        HostUnreachable,
        Interrupted,
        NetworkDown,
        NetworkUnreachable,
        WouldBlock,
    ]
    .contains(&kind)
}

fn bind_tcp(address: &Address, tuning: &Tuning) -> io::Result<Socket> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for target in address.resolve()? {
        let open = || {
            let socket = Socket::new(
                Domain::for_address(target),
                Type::STREAM,
                Some(Protocol::TCP),
            )?;
            socket.set_reuse_address(true)?;
            buffer_sizes(&socket, tuning)?;
            socket.bind(&target.into())?;
            socket.listen(128)?;
            Ok(socket)
        };
        match open() {
            Ok(socket) => return Ok(socket),
            Err(err) => last = err,
        }
    }
    Err(last)
}

/// Removes a socket nobody answers; refuses anything else that stands at `path`.
fn clear_stale(path: &Path, address: &Address) -> Result<(), ListenError> {
    match fs::symlink_metadata(path) {
        Err(_) => return Ok(()),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ListenError::NotASocket(path.into()));
        }
        Ok(_) => {}
    }
    // Without waiting: one whose queue is full answers nobody, and is live all the same.
    let knock = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.connect(&SockAddr::unix(path)?)
    };
    match knock() {
        Err(err) if err.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)
            .map_err(|source| ListenError::Io {
                address: address.clone(),
                source,
            }),
        _ => Err(ListenError::InUse(address.clone())),
    }
}

fn bind_unix(path: &Path) -> io::Result<(Socket, SocketFile)> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let found = fs::symlink_metadata(path)?;
    let file = SocketFile {
        path: path.into(),
        device: found.dev(),
        inode: found.ino(),
    };
    // Before `listen` nobody can connect, so there is no moment at which others may.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    socket.listen(128)?;
    Ok((socket, file))
}

/// Removes the socket's file when the listener goes, unless somebody replaced it meanwhile.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode));
        if ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixListener, sync::mpsc, thread, time::Duration};

    use super::*;
    use crate::transport;

    #[test]
    fn accept_returns_when_stopped() {
        let listener = Listener::bind(
            &Address::parse("127.0.0.1:0", 0).unwrap(),
            &Tuning::default(),
        )
        .unwrap();
        let stop = listener.stopper();
        let waiting = thread::spawn(move || {
            (
                listener.accept().unwrap().is_none(),
                listener.accept().unwrap().is_none(),
            )
        });
        thread::sleep(Duration::from_millis(30));
        stop.stop();
        assert_eq!(waiting.join().unwrap(), (true, true));
    }

    #[test]
    fn unix_path_is_never_taken_from_somebody_else_and_goes_on_drop() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sock");
        let address = Address::Unix(path.clone());
        let tuning = Tuning::default();
        fs::write(&path, "precious").unwrap();
        assert!(matches!(
            Listener::bind(&address, &tuning),
            Err(ListenError::NotASocket(_))
        ));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        fs::remove_file(&path).unwrap();

        // A listener dropped without care leaves a stale file.
        drop(UnixListener::bind(&path).unwrap());
        let listener = Listener::bind(&address, &tuning).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert!(matches!(
            Listener::bind(&address, &tuning),
            Err(ListenError::InUse(_))
        ));
        drop(listener);
        assert!(!path.exists());

        // One whose queue is full is live, and nobody waits for it for ever.
        let busy = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        busy.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        busy.listen(0).unwrap();
        let _queued = UnixStream::connect(&path).unwrap();
        let (done, waiting) = mpsc::channel();
        thread::spawn(move || {
            let connect_timeout = Duration::from_millis(100);
            let connected = transport::connect(
                &address,
                &Tuning {
                    connect_timeout,
                    ..tuning
                },
            );
            done.send((Listener::bind(&address, &tuning), connected))
                .unwrap();
        });
        let (bound, connected) = waiting
            .recv_timeout(Duration::from_secs(20))
            .expect("neither waits for ever");
        assert!(matches!(bound, Err(ListenError::InUse(_))), "{bound:?}");
        assert!(
            matches!(connected, Err(transport::ConnectError::Timeout { .. })),
            "{connected:?}"
        );
    }
}
