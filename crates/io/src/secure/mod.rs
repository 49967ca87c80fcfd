//! Authentication and encryption, done before any application byte is handled.
//!
//! Why here and not in `session`: nothing that parses a frame may see a byte of a peer that has not proved who it is.
//! [`connect`] and [`accept`] take a plain [`Transport`] and give one whose bytes are authenticated; both ends know by
//! then that the other accepted them. A handshake is bounded: 10 s ([`HANDSHAKE_TIME`]) and 64 KiB received
//! ([`HANDSHAKE_LEN_MAX`]).
//!
//! TLS serves where certificates are managed, the pre-shared key where two hosts share one file. The key works through
//! Noise (`NNpsk0`) because rustls has no external keys. Neither `snow` nor our use of it has been audited.
//!
//! Upstream: [`crate::transport`], [`crate::listener`]; downstream: `session`. Reads files at each handshake, so a
//! renewed certificate applies to the next connection.

pub mod keys;
mod noise;
mod pair;
mod psk;
mod tls;
mod tls_files;

use std::{
    fmt, fs,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

pub use pair::Pairing;
pub use psk::{Psk, PskError};
pub use tls_files::FileError;

use crate::{
    address::Address,
    deadline::{Late, deadline},
    transport::{Identity, Security, Transport, TransportRead, TransportWrite},
};

/// How long a peer may take to authenticate.
pub const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Most bytes we take from a peer that has not authenticated: a handshake with a chain of several certificates fits.
pub const HANDSHAKE_LEN_MAX: usize = 64 * 1024;

/// How the two sides prove who they are.
#[derive(Clone)]
pub enum Auth {
    /// Not at all; see [`require_auth`] for where that is allowed.
    None,
    /// TLS 1.3, both sides with a certificate of one authority, from the files nbdkit and QEMU also use.
    Tls {
        /// Holds `ca-cert.pem`, `server-cert.pem` and `server-key.pem` or `client-cert.pem` and `client-key.pem`, and
        /// may hold `ca-crl.pem`.
        dir: PathBuf,
        /// The name the server's certificate must carry, if not the host connected to.
        server_name: Option<String>,
    },
    /// A key both sides hold.
    Psk(Psk),
    /// A code that one side shows and a person types at the other, for one peer.
    Code(Pairing),
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Tls { dir, .. } => write!(f, "Tls({})", dir.display()),
            Self::Psk(psk) => psk.fmt(f),
            Self::Code(pairing) => pairing.fmt(f),
        }
    }
}

/// Which part a process plays in a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Connects.
    Client,
    /// Accepts.
    Server,
}

impl Auth {
    /// Reads what `side` would need, so that a missing file shows at start and not at the first connection.
    ///
    /// # Errors
    /// A file is missing or unreadable, or key and certificate do not match.
    pub fn check(&self, side: Side) -> Result<(), SecureError> {
        match self {
            Self::None | Self::Psk(_) | Self::Code(_) => Ok(()),
            Self::Tls { dir, .. } => match side {
                Side::Client => tls_files::client_config(dir)
                    .map(drop)
                    .map_err(SecureError::Files),
                Side::Server => tls_files::server_config(dir)
                    .map(drop)
                    .map_err(SecureError::Files),
            },
        }
    }
}

/// Why a peer was not authenticated. Each variant is one thing somebody should do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecureError {
    /// Our own files are at fault.
    #[error(transparent)]
    Files(#[from] FileError),
    /// The peer said too little for too long.
    #[error("the peer did not authenticate within {} s; is narrows with the same security flags at the other end?", .0.as_secs())]
    Timeout(Duration),
    /// The peer said too much before it was authenticated.
    #[error(
        "the peer sent more than {0} bytes without authenticating; it is not narrows, or means harm"
    )]
    TooLong(usize),
    /// The peer speaks something else.
    #[error("expected {expected}, but the peer {found}; give both sides the same security flags")]
    Protocol {
        /// What our flags ask for.
        expected: &'static str,
        /// What came.
        found: &'static str,
    },
    /// We do not trust the peer: its certificate.
    #[error(
        "the peer's certificate was refused here: {0}; both sides need certificates of one authority (`narrows keys`), and the server's must name the host"
    )]
    Untrusted(String),
    /// The peer does not trust us, or refused our offer.
    #[error("the peer refused us: {0}; its own log says more")]
    Refused(String),
    /// The keys differ.
    #[error(
        "the pre-shared keys differ; copy the same key file to both sides and choose the same user in it"
    )]
    KeyMismatch,
    /// The codes differ.
    #[error(
        "the code is wrong; there is one guess, so start the receiver again, and type the code that it shows then"
    )]
    WrongCode,
    /// The code was guessed at before.
    #[error("the code is used up; start the receiver again, and type the code that it shows then")]
    CodeSpent,
    /// Who the peer is, is proved, and not allowed.
    #[error("the peer is {0}, who is not among those allowed here (--allow)")]
    NotAllowed(String),
    /// The peer left in the middle.
    #[error(
        "the peer hung up during authentication; look at its log: wrong key or certificate, or other flags"
    )]
    Closed,
    /// The TLS conversation itself was faulty.
    #[error("the TLS handshake failed: {0}")]
    Tls(String),
    /// The connection broke.
    #[error("the connection broke during authentication: {0}")]
    Io(#[source] io::Error),
}

/// Authenticates as the side that connected. `host` is what was connected to ([`Address::host`]): the server's
/// certificate must name it.
///
/// # Errors
/// See [`SecureError`]; the connection is closed then.
pub fn connect(transport: Transport, auth: &Auth, host: &str) -> Result<Transport, SecureError> {
    match auth {
        Auth::None => Ok(transport),
        Auth::Tls { dir, server_name } => {
            let config = tls_files::client_config(dir)?;
            let name = server_name.as_deref().unwrap_or(host);
            bounded(transport, HANDSHAKE_TIME, Security::Tls, |link| {
                tls::connect(link, config, name)
            })
        }
        Auth::Psk(psk) => bounded(transport, HANDSHAKE_TIME, Security::Psk, |link| {
            noise::connect(link, psk)
        }),
        Auth::Code(pairing) => bounded(transport, HANDSHAKE_TIME, Security::Psk, |link| {
            pair::connect(link, pairing)
        }),
    }
}

/// Authenticates as the side that accepted.
///
/// # Errors
/// See [`SecureError`]; the connection is closed then. Log it and accept the next.
pub fn accept(transport: Transport, auth: &Auth) -> Result<Transport, SecureError> {
    accept_within(transport, auth, HANDSHAKE_TIME)
}

/// [`accept`] of those only whose certificate carries one of `names`, as its common name or among its alternative
/// names. Without names, of all. Who may connect by a key, the key says: [`Psk::with_others`].
///
/// # Errors
/// As [`accept`], and [`SecureError::NotAllowed`].
pub fn accept_named(
    transport: Transport,
    auth: &Auth,
    names: &[String],
) -> Result<Transport, SecureError> {
    match auth {
        Auth::Tls { dir, .. } => {
            let config = tls_files::server_config(dir)?;
            bounded(transport, HANDSHAKE_TIME, Security::Tls, |link| {
                tls::accept(link, config, tls::Confirm::Byte, names)
            })
        }
        auth => accept(transport, auth),
    }
}

/// [`accept`] with a time limit of its own.
///
/// # Errors
/// As [`accept`].
pub fn accept_within(
    transport: Transport,
    auth: &Auth,
    time: Duration,
) -> Result<Transport, SecureError> {
    match auth {
        Auth::None => Ok(transport),
        Auth::Tls { dir, .. } => {
            let config = tls_files::server_config(dir)?;
            bounded(transport, time, Security::Tls, |link| {
                tls::accept(link, config, tls::Confirm::Byte, &[])
            })
        }
        Auth::Psk(psk) => bounded(transport, time, Security::Psk, |link| {
            noise::accept(link, &psk.all(), &|| true)
        }),
        Auth::Code(pairing) => bounded(transport, time, Security::Psk, |link| {
            pair::accept(link, pairing)
        }),
    }
}

/// Mutual TLS inside another protocol, whose client has just asked for it: STARTTLS of NBD. Nothing but TLS itself
/// passes, so any TLS 1.3 client with a certificate will do. `dir` is that of [`Auth::Tls`], `names` are as in
/// [`accept_named`].
///
/// # Errors
/// See [`SecureError`]; the connection is closed then.
pub fn start_tls(
    transport: Transport,
    dir: &Path,
    names: &[String],
) -> Result<Transport, SecureError> {
    let config = tls_files::server_config(dir)?;
    bounded(transport, HANDSHAKE_TIME, Security::Tls, |link| {
        tls::accept(link, config, tls::Confirm::Nothing, names)
    })
}

/// An address beyond this host, and no authentication.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// To listen on.
    #[error(
        "refusing to listen on {0} without authentication: anybody who reaches it could send data; give --tls-certificates \
         DIR or --tls-psk FILE (`narrows keys` makes them), listen on 127.0.0.1 or unix:PATH, or insist with --insecure"
    )]
    Listen(Address),
    /// To connect to.
    #[error(
        "refusing to connect to {0} without authentication: anybody on the way could read and change the data; give \
         --tls-certificates DIR or --tls-psk FILE, as at the other side (`narrows keys` makes them), or insist with --insecure"
    )]
    Connect(Address),
}

/// The rule for listening: loopback and Unix sockets may be plain, all else needs TLS or a key unless `insecure`.
///
/// # Errors
/// [`Refused`], whose text says which flags help.
pub fn require_auth(listen: &Address, auth: &Auth, insecure: bool) -> Result<(), Refused> {
    if may_be_plain(listen, auth, insecure) {
        Ok(())
    } else {
        Err(Refused::Listen(listen.clone()))
    }
}

/// The same rule for connecting.
///
/// # Errors
/// [`Refused`], whose text says which flags help.
pub fn require_auth_to(peer: &Address, auth: &Auth, insecure: bool) -> Result<(), Refused> {
    if may_be_plain(peer, auth, insecure) {
        Ok(())
    } else {
        Err(Refused::Connect(peer.clone()))
    }
}

fn may_be_plain(address: &Address, auth: &Auth, insecure: bool) -> bool {
    insecure || address.is_local() || !matches!(auth, Auth::None)
}

/// Runs `handshake` under a deadline; on failure gives the peer a moment to read why, then closes.
fn bounded(
    mut transport: Transport,
    time: Duration,
    security: Security,
    handshake: impl FnOnce(&mut Transport) -> Result<Halves, SecureError>,
) -> Result<Transport, SecureError> {
    let result = match deadline(&transport.shutdown.clone(), time, || {
        handshake(&mut transport)
    }) {
        Ok(result) => result,
        Err(Late::Timeout(_)) => return Err(SecureError::Timeout(time)),
        Err(Late::NoThread(error)) => return Err(SecureError::Io(error)),
    };
    match result {
        Ok(halves) => Ok(halves.wrap(transport, security)),
        Err(err) => {
            // Closing a socket with unread bytes sends a reset, and that destroys the alert on its way to the peer.
            let _ = deadline(
                &transport.shutdown.clone(),
                Duration::from_millis(300),
                || {
                    let _ = transport.writer.finish();
                    let _ = io::copy(
                        &mut transport.reader.by_ref().take(HANDSHAKE_LEN_MAX as u64),
                        &mut io::sink(),
                    );
                },
            );
            Err(err)
        }
    }
}

/// Says so where a private key is not private.
fn warn_of_readers(key: &Path) {
    if fs::metadata(key).is_ok_and(|found| found.permissions().mode() & 0o077 != 0) {
        tracing::warn!(path = %key.display(), "other users of this machine can read the key file; chmod 600 it");
    }
}

/// What a handshake gives: functions that wrap each half.
struct Halves {
    reader: Wrap<dyn TransportRead>,
    writer: Wrap<dyn TransportWrite>,
    /// Who a client has proved to be.
    identity: Option<Identity>,
}

type Wrap<T> = Box<dyn FnOnce(Box<T>) -> Box<T>>;

impl Halves {
    fn wrap(self, transport: Transport, security: Security) -> Transport {
        let Transport { reader, writer, .. } = transport;
        Transport {
            reader: (self.reader)(reader),
            writer: (self.writer)(writer),
            security,
            identity: self.identity,
            ..transport
        }
    }
}

/// Reads at most [`HANDSHAKE_LEN_MAX`] bytes and remembers the first, to say what the peer speaks.
struct Bounded<'a> {
    inner: &'a mut dyn TransportRead,
    taken: usize,
    first: [u8; 8],
}

impl<'a> Bounded<'a> {
    fn new(inner: &'a mut dyn TransportRead) -> Self {
        Self {
            inner,
            taken: 0,
            first: [0; 8],
        }
    }

    fn is_spent(&self) -> bool {
        self.taken >= HANDSHAKE_LEN_MAX
    }

    /// What the peer speaks, judged by its first bytes.
    fn speaks(&self) -> Speaks {
        match self.taken {
            0 => Speaks::Nothing,
            _ if noise::MAGIC.starts_with(&self.first[..self.taken.min(8)]) => Speaks::Psk,
            // A TLS record starts with its type, handshake or alert, and a version whose first byte is 3.
            _ if matches!(self.first[0], 0x15 | 0x16) && (self.taken < 2 || self.first[1] == 3) => {
                Speaks::Tls
            }
            _ => Speaks::Else,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speaks {
    Nothing,
    Tls,
    Psk,
    Else,
}

impl Speaks {
    fn words(self) -> &'static str {
        match self {
            Self::Nothing => "says nothing",
            Self::Tls => "speaks TLS",
            Self::Psk => "uses a pre-shared key",
            Self::Else => "speaks without authentication, or is not narrows",
        }
    }
}

impl Read for Bounded<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let room = (HANDSHAKE_LEN_MAX - self.taken).min(buf.len());
        if room == 0 && !buf.is_empty() {
            return Err(io::Error::other("too many bytes before authentication"));
        }
        let read = self.inner.read(&mut buf[..room])?;
        if self.taken < self.first.len() {
            let keep = read.min(self.first.len() - self.taken);
            self.first[self.taken..self.taken + keep].copy_from_slice(&buf[..keep]);
        }
        self.taken += read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_open_addresses_without_authentication_are_refused() {
        let open = Address::parse("0.0.0.0", 4242).unwrap();
        let local = Address::parse("[::1]", 4242).unwrap();
        let tls = Auth::Tls {
            dir: "/x".into(),
            server_name: None,
        };
        assert_eq!(require_auth(&local, &Auth::None, false), Ok(()));
        assert_eq!(require_auth(&open, &tls, false), Ok(()));
        assert_eq!(require_auth(&open, &Auth::None, true), Ok(()));
        let words = require_auth(&open, &Auth::None, false)
            .unwrap_err()
            .to_string();
        assert!(
            words.contains("listen on 0.0.0.0")
                && words.contains("--tls-psk")
                && words.contains("--insecure"),
            "{words}"
        );
        let words = require_auth_to(&open, &Auth::None, false)
            .unwrap_err()
            .to_string();
        assert!(
            words.contains("connect to 0.0.0.0") && words.contains("--tls-psk"),
            "{words}"
        );
    }
}
