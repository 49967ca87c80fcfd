//! TLS 1.3 through rustls over any transport.
//!
//! One rustls connection serves both directions, so a mutex guards it; it is held while bytes are encrypted or
//! decrypted, never during a call that may block. A peer that stops reading can therefore not stop us reading.
//!
//! Beside TLS itself the server sends one byte when it has accepted the client's certificate. In TLS 1.3 a client
//! is done before the server has judged it; without that byte a refusal would show in the middle of a session.

use std::{
    io::{self, IoSlice, Read, Write},
    mem,
    sync::Arc,
};

use parking_lot::Mutex;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use rustls_pki_types::ServerName;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::{Bounded, Halves, SecureError, Speaks};
use crate::transport::{Identity, Transport, TransportRead, TransportWrite};

/// Most bytes encrypted under one hold of the lock: enough for few system calls, 0.1 ms of the reader's time.
const BATCH_LEN: usize = 256 * 1024;
/// The server's word that the client is accepted.
const ACCEPTED: u8 = 1;

pub(super) fn connect(
    link: &mut Transport,
    config: Arc<ClientConfig>,
    name: &str,
) -> Result<Halves, SecureError> {
    let server = ServerName::try_from(name.to_owned()).map_err(|_| {
        SecureError::Untrusted(format!(
            "`{name}` cannot be a server's name; give --tls-hostname"
        ))
    })?;
    let conn =
        ClientConnection::new(config, server).map_err(|err| SecureError::Tls(err.to_string()))?;
    handshake(link, conn.into(), |conn, io| {
        let mut word = [0];
        while let Err(err) = conn.reader().read_exact(&mut word) {
            if err.kind() != io::ErrorKind::WouldBlock {
                return Err(err);
            }
            if conn.read_tls(io)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            conn.process_new_packets().map_err(io::Error::other)?;
        }
        if word == [ACCEPTED] {
            Ok(())
        } else {
            Err(io::Error::other("the server is not narrows"))
        }
    })
}

/// How the server tells that it accepted the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Confirm {
    /// By [`ACCEPTED`].
    Byte,
    /// Not at all: the protocol within has no room for it.
    Nothing,
}

pub(super) fn accept(
    link: &mut Transport,
    config: Arc<ServerConfig>,
    how: Confirm,
    allowed: &[String],
) -> Result<Halves, SecureError> {
    let conn = ServerConnection::new(config).map_err(|err| SecureError::Tls(err.to_string()))?;
    handshake(link, conn.into(), |conn, io| {
        check_name(conn, allowed)?;
        if how == Confirm::Byte {
            conn.writer().write_all(&[ACCEPTED])?;
        }
        while conn.wants_write() {
            conn.write_tls(io)?;
        }
        Ok(())
    })
}

/// Refuses a peer whose certificate carries none of these names, where there are any.
fn check_name(conn: &Connection, allowed: &[String]) -> io::Result<()> {
    let names = peer_names(conn);
    if allowed.is_empty() || names.iter().any(|name| allowed.contains(name)) {
        return Ok(());
    }
    let who = if names.is_empty() {
        "nameless".into()
    } else {
        names.join(", ").replace(char::is_control, "?")
    };
    Err(io::Error::other(NotAllowed(who)))
}

fn peer_names(conn: &Connection) -> Vec<String> {
    conn.peer_certificates()
        .and_then(|chain| chain.first())
        .map(|certificate| names_of(certificate))
        .unwrap_or_default()
}

/// A certificate's common name and alternative names.
fn names_of(certificate: &[u8]) -> Vec<String> {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return Vec::new();
    };
    let common = parsed.subject().iter_common_name();
    let common = common.filter_map(|name| name.as_str().ok());
    let other = parsed.subject_alternative_name().ok().flatten();
    let other = other.map(|names| names.value.general_names.iter());
    let other = other.into_iter().flatten().filter_map(|name| match name {
        GeneralName::DNSName(name) | GeneralName::RFC822Name(name) => Some(*name),
        _ => None,
    });
    common.chain(other).map(String::from).collect()
}

/// Travels through `io::Error`.
#[derive(Debug, thiserror::Error)]
#[error("{0} is not among those allowed")]
struct NotAllowed(String);

fn handshake(
    link: &mut Transport,
    mut conn: Connection,
    confirm: impl FnOnce(&mut Connection, &mut Both<'_>) -> io::Result<()>,
) -> Result<Halves, SecureError> {
    let mut both = Both {
        reader: Bounded::new(&mut *link.reader),
        writer: &mut *link.writer,
    };
    let run = || {
        while conn.is_handshaking() {
            conn.complete_io(&mut both)?;
        }
        confirm(&mut conn, &mut both)
    };
    let result = run();
    if let Err(err) = result {
        // The alert that tells the peer why.
        while conn.wants_write() && conn.write_tls(&mut both).is_ok() {}
        return Err(explain(err, &both.reader));
    }
    let identity = match &conn {
        Connection::Server(_) => Identity::of_certificate(&peer_names(&conn)),
        Connection::Client(_) => None,
    };
    conn.set_buffer_limit(Some(BATCH_LEN));
    let conn = Arc::new(Mutex::new(conn));
    let other = conn.clone();
    Ok(Halves {
        reader: Box::new(move |inner| {
            Box::new(TlsRead {
                inner,
                conn,
                packed: vec![0; BATCH_LEN / 2],
                start: 0,
                end: 0,
                faulty: false,
            })
        }),
        writer: Box::new(move |inner| {
            Box::new(TlsWrite {
                inner,
                conn: other,
                packed: Vec::new(),
            })
        }),
        identity,
    })
}

/// Says whose fault a failed handshake is.
fn explain(err: io::Error, seen: &Bounded<'_>) -> SecureError {
    let err = match err.downcast::<NotAllowed>() {
        Ok(NotAllowed(who)) => return SecureError::NotAllowed(who),
        Err(err) => err,
    };
    if seen.is_spent() {
        return SecureError::TooLong(super::HANDSHAKE_LEN_MAX);
    }
    let wrong = |speaks: Speaks| SecureError::Protocol {
        expected: "TLS",
        found: speaks.words(),
    };
    match err
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>())
    {
        Some(rustls::Error::InvalidCertificate(why)) => SecureError::Untrusted(why.to_string()),
        Some(rustls::Error::NoCertificatesPresented) => {
            SecureError::Untrusted("it sent none".into())
        }
        Some(rustls::Error::AlertReceived(alert)) => {
            SecureError::Refused(format!("TLS alert {alert:?}"))
        }
        Some(rustls::Error::PeerIncompatible(why)) => SecureError::Tls(format!(
            "the peer cannot do what we need (TLS 1.3): {why:?}"
        )),
        Some(_) if matches!(seen.speaks(), Speaks::Psk | Speaks::Else) => wrong(seen.speaks()),
        Some(other) => SecureError::Tls(other.to_string()),
        None => match err.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => {
                if matches!(seen.speaks(), Speaks::Psk | Speaks::Else) {
                    wrong(seen.speaks())
                } else {
                    SecureError::Closed
                }
            }
            _ => SecureError::Io(err),
        },
    }
}

/// Both halves on one thread, as a handshake needs them.
struct Both<'a> {
    reader: Bounded<'a>,
    writer: &'a mut dyn TransportWrite,
}

impl Read for Both<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buf)
    }
}

impl Write for Both<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.writer.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

struct TlsRead {
    inner: Box<dyn TransportRead>,
    conn: Arc<Mutex<Connection>>,
    /// Records as received; `start..end` is not decrypted yet.
    packed: Vec<u8>,
    start: usize,
    end: usize,
    /// The peer broke the protocol behind bytes that were still good.
    faulty: bool,
}

impl TransportRead for TlsRead {}

impl Read for TlsRead {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(len) = self.unpack(out)? {
                return Ok(len);
            }
            // Outside the lock: this may block for as long as the peer is silent.
            self.start = 0;
            self.end = self.inner.read(&mut self.packed)?;
            if self.end == 0 {
                let words =
                    "the connection ended without TLS close_notify; the stream may be cut short";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, words));
            }
        }
    }
}

impl TlsRead {
    /// Decrypts what is here into `out`; `None` if more must be received, `Some(0)` at the orderly end.
    fn unpack(&mut self, out: &mut [u8]) -> io::Result<Option<usize>> {
        let mut conn = self.conn.lock();
        if self.faulty {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the peer broke TLS",
            ));
        }
        let mut filled = 0;
        while filled < out.len() {
            match conn.reader().read(&mut out[filled..]) {
                // An end behind bytes is reported again by the next call.
                Ok(0) => return Ok(Some(filled)),
                Ok(len) => filled += len,
                Err(err) if err.kind() != io::ErrorKind::WouldBlock => return Err(err),
                Err(_) if self.start == self.end => break,
                Err(_) => {
                    self.start += conn.read_tls(&mut &self.packed[self.start..self.end])?;
                    match conn.process_new_packets() {
                        Ok(_) => {}
                        // What was good goes out first; the next call fails.
                        Err(_) if filled > 0 => {
                            self.faulty = true;
                            break;
                        }
                        Err(err) => return Err(io::Error::new(io::ErrorKind::InvalidData, err)),
                    }
                }
            }
        }
        Ok((filled > 0).then_some(filled))
    }
}

struct TlsWrite {
    inner: Box<dyn TransportWrite>,
    conn: Arc<Mutex<Connection>>,
    /// Encrypted records on their way out; empty between calls.
    packed: Vec<u8>,
}

impl TlsWrite {
    /// Lets `fill` give the connection something to encrypt, then sends the records without holding the lock.
    fn send<T>(&mut self, fill: impl FnOnce(&mut Connection) -> io::Result<T>) -> io::Result<T> {
        let mut packed = mem::take(&mut self.packed);
        let mut conn = self.conn.lock();
        let filled = fill(&mut conn)?;
        while conn.wants_write() {
            conn.write_tls(&mut packed)?;
        }
        drop(conn);
        self.inner.write_all(&packed)?;
        packed.clear();
        self.packed = packed;
        Ok(filled)
    }
}

impl Write for TlsWrite {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.send(|conn| conn.writer().write(buf))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send(|conn| conn.writer().write_vectored(bufs))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl TransportWrite for TlsWrite {
    fn write_slices(&mut self, bufs: &mut [IoSlice<'_>]) -> io::Result<()> {
        crate::transport::send_all(bufs, |bufs| self.write_vectored(bufs))
    }

    fn finish(&mut self) -> io::Result<()> {
        self.send(|conn| {
            conn.send_close_notify();
            Ok(())
        })?;
        self.inner.finish()
    }
}
