//! The loop that waits: listeners, TLS, and a thread for each connection.
//!
//! A device that runs [inline](Execution::Inline): one thread receives as much as is there, does every request in it
//! and sends the replies together; with many small requests in flight that is two system calls for a batch of them, and
//! with one in flight no thread hands it to another. A device that [waits](Execution::Workers): see `parallel`.
//!
//! A connection takes one of [`Config::connections_max`] when its handshake is done. Until then it waits in a
//! [`Lobby`], where strangers cannot keep others out. Upstream: whoever starts a [`Server`]; downstream:
//! [`Handshake`], [`Transmission`]; around them `narrows-io`.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use narrows_core::block::Execution;
use narrows_io::{
    Address, Listener, Lobby, Shutdown, Stop, Stranger, Transport, Tuning, allocator,
    deadline::{Late, deadline},
    limits::strangers_max,
    listener::ListenError,
    secure::{self, Auth, HANDSHAKE_TIME, SecureError, Side},
};
use parking_lot::Mutex;

use crate::{
    ended::Ended,
    export::{ExportError, Exports},
    handshake::{Agreed, Handshake, Step, Tls},
    inbox::{Inbox, ReceiveError},
    out::Out,
    parallel,
    transmission::{Next, Transmission},
};

/// What a server needs to know.
#[derive(Debug, Clone)]
pub struct Config {
    /// What is offered.
    pub exports: Exports,
    /// Directory of the server's certificates, as `narrows keys` and nbdkit have them. Clients need one too.
    pub tls_certificates: Option<PathBuf>,
    /// Allow plain connections from other hosts even so.
    pub insecure: bool,
    /// Names of clients that may connect, as their certificates carry them; all of the authority's where there are none.
    pub allow: Vec<String>,
    /// Connections served at once, at most; one more is closed when its handshake is done.
    pub connections_max: usize,
}

impl Config {
    fn auth(&self) -> Auth {
        match &self.tls_certificates {
            Some(dir) => Auth::Tls {
                dir: dir.clone(),
                server_name: None,
            },
            None => Auth::None,
        }
    }
}

/// The port registered for NBD.
pub const PORT: u16 = 10809;
/// Bytes that a Unix socket holds.
const UNIX_BUFFER: usize = 1 << 20;

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// An address that others reach, and nothing that authenticates them.
    #[error(transparent)]
    Refused(#[from] secure::Refused),
    /// Our own certificates are at fault.
    #[error(transparent)]
    Auth(#[from] SecureError),
    /// An address cannot be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Two exports of one name, or a name that the protocol does not take.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// The system gives no thread.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    pub(crate) shared: Arc<Shared>,
    acceptors: Vec<(Stop, JoinHandle<()>)>,
    addresses: Vec<Address>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    config: Config,
    stopping: AtomicBool,
    serial: AtomicU64,
    pub(crate) lobby: Arc<Lobby>,
    /// Connections that are open, strangers too.
    open: Mutex<Vec<Open>>,
}

#[derive(Debug)]
struct Open {
    serial: u64,
    /// Its handshake is done.
    served: bool,
    shutdown: Shutdown,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on all of `addresses`, if that may be done so with these certificates or without, and serves until
    /// [`Server::stop`].
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn bind(addresses: &[Address], config: Config) -> Result<Self, ServeError> {
        let auth = config.auth();
        auth.check(Side::Server)?;
        let mut listeners = Vec::with_capacity(addresses.len());
        for address in addresses {
            secure::require_auth(address, &auth, config.insecure)?;
            // Replies are gathered already; a limit on unsent bytes would only cost wake-ups. And a Unix socket, which
            // the kernel does not tune, holds a few long replies, so that we go on while the client takes them.
            let tuning = Tuning {
                notsent_lowat: None,
                send_buffer: matches!(address, Address::Unix(_)).then_some(UNIX_BUFFER),
                ..Tuning::default()
            };
            listeners.push(Listener::bind(address, &tuning)?);
        }
        Ok(Self::start(listeners, config)?)
    }

    /// How clients name `export` here, one address each.
    #[must_use]
    pub fn uris(&self, export: &str) -> Vec<String> {
        let tls = self.shared.config.tls_certificates.is_some();
        let scheme = if tls { "nbds" } else { "nbd" };
        let uri = |address: &Address| match address {
            Address::Unix(path) => {
                format!("{scheme}+unix:///{export}?socket={}", path.display())
            }
            address => format!("{scheme}://{address}/{export}"),
        };
        self.addresses.iter().map(uri).collect()
    }

    /// Serves on all of `listeners` until [`Server::stop`]. Ask [`secure::require_auth`] before binding one.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(listeners: Vec<Listener>, config: Config) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            config,
            stopping: AtomicBool::new(false),
            serial: AtomicU64::new(0),
            lobby: Lobby::new(strangers_max()),
            open: Mutex::default(),
        });
        let mut server = Self {
            shared,
            acceptors: Vec::new(),
            addresses: Vec::new(),
        };
        for listener in listeners {
            let shared = server.shared.clone();
            server.addresses.push(listener.local().clone());
            let stop = listener.stopper();
            let accept = move || accept(&listener, &shared);
            server
                .acceptors
                .push((stop, narrows_io::thread::spawn("nbd-accept", accept)?));
        }
        Ok(server)
    }

    /// Where it listens, with the ports the system chose.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Connections served now: those whose handshake is done.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.served()
    }

    /// Takes no more connections and ends those there are; a request that was begun is finished, its reply may be lost.
    /// Returns when no thread of the server touches a device any more.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        for (stop, _) in &self.acceptors {
            stop.stop();
        }
        for (_, thread) in self.acceptors.drain(..) {
            let _ = thread.join();
        }
        let open: Vec<_> = {
            let mut open = self.shared.open.lock();
            for connection in open.iter() {
                connection.shutdown.abort();
            }
            open.iter_mut()
                .filter_map(|connection| connection.thread.take())
                .collect()
        };
        for thread in open {
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn accept(listener: &Listener, shared: &Arc<Shared>) {
    let local = listener.local().is_local();
    for transport in listener.incoming() {
        let tls = match (
            &shared.config.tls_certificates,
            local || shared.config.insecure,
        ) {
            (Some(_), true) => Tls::Offered,
            (Some(_), false) => Tls::Required,
            (None, true) => Tls::Absent,
            (None, false) => {
                tracing::error!("a plain listener that others reach; the connection is closed");
                continue;
            }
        };
        let stranger = shared.lobby.enter(&transport);
        let mut open = shared.open.lock();
        let serial = shared.serial.fetch_add(1, Ordering::Relaxed);
        let shutdown = transport.shutdown.clone();
        let theirs = shared.clone();
        let work = move || {
            let seat = Seat {
                shared: theirs,
                serial,
            };
            let shared = &seat.shared;
            let peer = transport.peer.clone();
            match converse(transport, tls, &seat, stranger) {
                Ok(()) | Err(Ended::Receive(ReceiveError::Left)) => tracing::debug!(peer, "closed"),
                Err(_) if shared.stopping.load(Ordering::SeqCst) => {}
                Err(fault) if seat.is_served() => {
                    tracing::warn!(peer, "connection closed: {fault}")
                }
                Err(fault) => shared.lobby.refused(&peer, &fault),
            }
            drop(seat);
            allocator::give_back();
        };
        // Under the lock, so that the thread cannot take itself off the list before it is on it.
        match narrows_io::thread::spawn("nbd", work) {
            Ok(thread) => open.push(Open {
                serial,
                served: false,
                shutdown,
                thread: Some(thread),
            }),
            Err(fault) => tracing::warn!("a connection is dropped: {fault}"),
        }
    }
}

impl Shared {
    fn served(&self) -> usize {
        self.open
            .lock()
            .iter()
            .filter(|connection| connection.served)
            .count()
    }
}

/// A connection's place on the list. Given up on drop, so also by a thread in which a device panicked: else each would
/// cost one of [`Config::connections_max`] for good.
struct Seat {
    pub(crate) shared: Arc<Shared>,
    serial: u64,
}

impl Seat {
    /// Takes one of [`Config::connections_max`].
    fn serve(&self) -> Result<(), Ended> {
        let max = self.shared.config.connections_max;
        let mut open = self.shared.open.lock();
        if open.iter().filter(|connection| connection.served).count() >= max {
            return Err(Ended::Busy(max));
        }
        if let Some(connection) = open.iter_mut().find(|one| one.serial == self.serial) {
            connection.served = true;
        }
        Ok(())
    }

    fn is_served(&self) -> bool {
        let open = self.shared.open.lock();
        open.iter()
            .any(|connection| connection.serial == self.serial && connection.served)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shared
            .open
            .lock()
            .retain(|connection| connection.serial != self.serial);
    }
}

fn converse(
    mut transport: Transport,
    tls: Tls,
    seat: &Seat,
    stranger: Stranger,
) -> Result<(), Ended> {
    let config = &seat.shared.config;
    let mut inbox = Inbox::new()?;
    let mut out = Out::default();
    let mut handshake = Handshake::new(config.exports.clone(), tls, &mut out);
    let agreed = loop {
        let shutdown = transport.shutdown.clone();
        let negotiated = deadline(&shutdown, HANDSHAKE_TIME, || {
            negotiate(&mut transport, &mut handshake, &mut inbox, &mut out)
        });
        let negotiated = negotiated.map_err(|late| match late {
            Late::Timeout(_) => Ended::Slow,
            Late::NoThread(error) => Ended::Io(error),
        });
        match negotiated?? {
            Negotiated::Agreed(agreed) => break agreed,
            Negotiated::Closed => return Ok(()),
            Negotiated::StartTls => {
                if !inbox.bytes().is_empty() {
                    return Err(Ended::Smuggled);
                }
                let dir = config
                    .tls_certificates
                    .as_ref()
                    .expect("TLS is offered where there are certificates");
                stranger.spoke();
                transport = secure::start_tls(transport, dir, &config.allow)?;
                handshake.secured();
            }
        }
    };
    seat.serve()?;
    drop(stranger);
    match agreed.export.device.shape().execution {
        Execution::Inline => transmit(transport, Transmission::new(agreed), inbox, out),
        Execution::Workers(workers) => parallel::transmit(transport, agreed, workers, inbox),
    }
}

enum Negotiated {
    Agreed(Agreed),
    StartTls,
    Closed,
}

fn negotiate(
    transport: &mut Transport,
    handshake: &mut Handshake,
    inbox: &mut Inbox,
    out: &mut Out,
) -> Result<Negotiated, Ended> {
    loop {
        let advanced = handshake.advance(inbox.bytes(), out);
        let (taken, step) = match advanced {
            Ok(advanced) => advanced,
            Err(fault) => {
                let _ = send(transport, out);
                return Err(fault.into());
            }
        };
        inbox.take(taken);
        let full = out.is_full();
        send(transport, out)?;
        match step {
            Step::More if full => {}
            Step::More => inbox.receive(&mut *transport.reader, transport.security, false)?,
            Step::StartTls => return Ok(Negotiated::StartTls),
            Step::Transmit(agreed) => return Ok(Negotiated::Agreed(agreed)),
            Step::Close => return Ok(Negotiated::Closed),
        }
    }
}

fn transmit(
    mut transport: Transport,
    mut transmission: Transmission,
    mut inbox: Inbox,
    mut out: Out,
) -> Result<(), Ended> {
    let mut begun = 0;
    loop {
        let (taken, next) = match transmission.advance(inbox.bytes(), &mut out) {
            Ok(advanced) => advanced,
            Err(fault) => {
                // Replies to what was done before the fault, and as much as there is of a read that fails.
                let _ = send(&mut transport, &mut out);
                return Err(fault.into());
            }
        };
        inbox.take(taken);
        send(&mut transport, &mut out)?;
        match next {
            Next::Send => {}
            Next::Receive => {
                let lone = transmission.begun() - begun <= 1;
                begun = transmission.begun();
                inbox.receive(&mut *transport.reader, transport.security, lone)?;
            }
            Next::Close => {
                transport.writer.finish()?;
                return Ok(());
            }
        }
    }
}

fn send(transport: &mut Transport, out: &mut Out) -> Result<(), Ended> {
    if !out.bytes().is_empty() {
        transport.writer.write_all(out.bytes())?;
        transport.writer.flush()?;
        out.clear();
    }
    Ok(())
}
