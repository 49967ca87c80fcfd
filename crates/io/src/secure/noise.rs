//! A pre-shared key through Noise, pattern `NNpsk0`: both sides prove that they hold the key, and each connection gets
//! fresh keys, so a key stolen later opens no recorded stream.
//!
//! On the wire: client `MAGIC, len, message 1`; server `MAGIC, len, message 2`, or `len` 0 to refuse; client one
//! transport message, by which the server knows that message 1 was no replay. Then messages `len u16 big-endian,
//! ciphertext` of at most 65,535 bytes. An empty one ends the stream; an end without it is a cut.
//!
//! The two directions count their own nonces and have their own keys, so two threads share the state behind a lock that
//! only rekeying (every 64 GiB) takes for itself. AES-GCM and not ChaCha20: the faster of the two in ring wherever the
//! CPU has AES.

use std::{
    io::{self, IoSlice, Read, Write},
    sync::Arc,
};

use parking_lot::RwLock;
use snow::{Builder, HandshakeState, StatelessTransportState};

use super::{Bounded, HANDSHAKE_LEN_MAX, Halves, Psk, SecureError, Speaks};
use crate::transport::{Identity, Transport, TransportRead, TransportWrite};

/// First bytes of either side: narrows, pre-shared key, version 1.
pub(super) const MAGIC: &[u8; 8] = b"NRWSPSK1";
const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_BLAKE2s";
const TAG_LEN: usize = 16;
const MESSAGE_LEN_MAX: usize = 65_535;
const PAYLOAD_LEN_MAX: usize = MESSAGE_LEN_MAX - TAG_LEN;
/// An ephemeral key and an empty sealed payload.
const HANDSHAKE_MESSAGE_LEN: usize = 32 + TAG_LEN;
/// Messages per system call.
const BATCH: usize = 4;
/// Vectored writes up to this total are copied together into one message, larger ones are sealed slice by slice.
const GATHER_LEN_MAX: usize = 4096;
/// Messages after which a direction changes its key; far inside what AES-GCM allows for one key.
///
/// Small in unit tests, so that they cross it.
const REKEY_EVERY: u64 = if cfg!(test) { 8 } else { 1 << 20 };

type State = Arc<RwLock<StatelessTransportState>>;

pub(super) fn connect(link: &mut Transport, psk: &Psk) -> Result<Halves, SecureError> {
    let mut noise = builder(psk)
        .build_initiator()
        .expect("pattern and key are complete");
    let mut reader = Bounded::new(&mut *link.reader);
    send_handshake(&mut noise, &mut *link.writer)?;
    if !recv_handshake(&mut noise, &mut reader)? {
        return Err(SecureError::KeyMismatch);
    }
    let state = noise
        .into_stateless_transport_mode()
        .expect("both messages are done");
    let mut writer = Sealer::new(Arc::new(RwLock::new(state)));
    writer
        .seal(&[1])
        .and_then(|()| writer.send(&mut *link.writer))
        .map_err(SecureError::Io)?;
    Ok(halves(writer, 0))
}

/// Takes a peer that holds one of `keys`. Once its message is here that shows that, `judge` says whether it may be judged.
pub(super) fn accept(
    link: &mut Transport,
    keys: &[Psk],
    judge: &dyn Fn() -> bool,
) -> Result<Halves, SecureError> {
    let mut reader = Bounded::new(&mut *link.reader);
    let message = read_message(&mut reader, false)?.ok_or(SecureError::Closed)?;
    let responder = |psk: &Psk| {
        let mut noise = builder(psk)
            .build_responder()
            .expect("pattern and key are complete");
        let read = noise.read_message(&message, &mut [0; TAG_LEN]);
        read.ok().map(|_| noise)
    };
    let found = if judge() {
        keys.iter()
            .find_map(|psk| Some((responder(psk)?, psk.user())))
    } else {
        None
    };
    let Some((mut noise, user)) = found else {
        let _ = link.writer.write_all(&[MAGIC, &[0_u8; 2][..]].concat());
        return Err(SecureError::KeyMismatch);
    };
    send_handshake(&mut noise, &mut *link.writer)?;
    let state = noise
        .into_stateless_transport_mode()
        .expect("both messages are done");
    let mut confirmation = [0; 2 + 1 + TAG_LEN];
    reader
        .read_exact(&mut confirmation)
        .map_err(|err| explain(err, &reader))?;
    let mut word = [0; 1 + TAG_LEN];
    let opened = state.read_message(0, &confirmation[2..], &mut word);
    if !matches!(opened, Ok(1)) {
        return Err(SecureError::KeyMismatch);
    }
    Ok(Halves {
        identity: Some(Identity::of_key(user)),
        ..halves(Sealer::new(Arc::new(RwLock::new(state))), 1)
    })
}

fn builder(psk: &Psk) -> Builder<'_> {
    let builder = Builder::new(PATTERN.parse().expect("a pattern snow knows"));
    builder
        .psk(0, psk.key())
        .and_then(|builder| builder.prologue(MAGIC))
        .expect("each set once")
}

fn send_handshake(
    noise: &mut HandshakeState,
    writer: &mut dyn TransportWrite,
) -> Result<(), SecureError> {
    let mut message = [0; 10 + HANDSHAKE_MESSAGE_LEN];
    message[..8].copy_from_slice(MAGIC);
    message[8..10].copy_from_slice(&(HANDSHAKE_MESSAGE_LEN as u16).to_be_bytes());
    noise
        .write_message(&[], &mut message[10..])
        .expect("our own message, in order, into enough room");
    writer.write_all(&message).map_err(SecureError::Io)
}

/// Takes the peer's handshake message; false for a refusal.
fn recv_handshake(
    noise: &mut HandshakeState,
    reader: &mut Bounded<'_>,
) -> Result<bool, SecureError> {
    let Some(message) = read_message(reader, true)? else {
        return Ok(false);
    };
    noise
        .read_message(&message, &mut [0; TAG_LEN])
        .map_err(|_| SecureError::KeyMismatch)?;
    Ok(true)
}

/// The peer's handshake message; `None` for a refusal, where that may come.
fn read_message(
    reader: &mut Bounded<'_>,
    may_refuse: bool,
) -> Result<Option<[u8; HANDSHAKE_MESSAGE_LEN]>, SecureError> {
    let mut head = [0; 10];
    reader
        .read_exact(&mut head)
        .map_err(|err| explain(err, reader))?;
    if reader.speaks() != Speaks::Psk {
        return Err(SecureError::Protocol {
            expected: "a pre-shared key",
            found: reader.speaks().words(),
        });
    }
    let len = usize::from(u16::from_be_bytes([head[8], head[9]]));
    if len == 0 && may_refuse {
        return Ok(None);
    }
    if len != HANDSHAKE_MESSAGE_LEN {
        return Err(SecureError::Protocol {
            expected: "a pre-shared key",
            found: "is of another version",
        });
    }
    let mut message = [0; HANDSHAKE_MESSAGE_LEN];
    reader
        .read_exact(&mut message)
        .map_err(|err| explain(err, reader))?;
    Ok(Some(message))
}

pub(super) fn explain(err: io::Error, seen: &Bounded<'_>) -> SecureError {
    match (err.kind(), seen.speaks()) {
        _ if seen.is_spent() => SecureError::TooLong(HANDSHAKE_LEN_MAX),
        (
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset,
            Speaks::Nothing | Speaks::Psk,
        ) => SecureError::Closed,
        (io::ErrorKind::UnexpectedEof, speaks) => SecureError::Protocol {
            expected: "a pre-shared key",
            found: speaks.words(),
        },
        _ => SecureError::Io(err),
    }
}

fn halves(sealer: Sealer, recv_nonce: u64) -> Halves {
    let state = sealer.state.clone();
    Halves {
        reader: Box::new(move |inner| {
            Box::new(NoiseRead {
                inner,
                state,
                nonce: recv_nonce,
                packed: vec![0; BATCH * (2 + MESSAGE_LEN_MAX)],
                start: 0,
                end: 0,
                plain: vec![0; MESSAGE_LEN_MAX],
                taken: 0,
                left: 0,
                ended: false,
            })
        }),
        writer: Box::new(move |inner| Box::new(NoiseWrite { inner, sealer })),
        identity: None,
    }
}

/// Seals messages into a buffer.
struct Sealer {
    state: State,
    nonce: u64,
    packed: Vec<u8>,
    /// Bytes of `packed` in use; the rest stays initialised, so that no message pays for clearing.
    len: usize,
}

impl Sealer {
    fn new(state: State) -> Self {
        Self {
            state,
            nonce: 0,
            packed: vec![0; BATCH * (2 + MESSAGE_LEN_MAX)],
            len: 0,
        }
    }

    fn is_full(&self) -> bool {
        self.packed.len() - self.len < 2 + MESSAGE_LEN_MAX
    }

    /// Appends one message of at most [`PAYLOAD_LEN_MAX`] bytes; the caller has looked at [`Sealer::is_full`].
    fn seal(&mut self, payload: &[u8]) -> io::Result<()> {
        let room = &mut self.packed[self.len..];
        let len = self
            .state
            .read()
            .write_message(self.nonce, payload, &mut room[2..])
            .map_err(io::Error::other)?;
        room[..2].copy_from_slice(&(len as u16).to_be_bytes());
        self.len += 2 + len;
        self.nonce += 1;
        if self.nonce.is_multiple_of(REKEY_EVERY) {
            self.state.write().rekey_outgoing();
        }
        Ok(())
    }

    fn send(&mut self, writer: &mut dyn TransportWrite) -> io::Result<()> {
        let sent = writer.write_all(&self.packed[..self.len]);
        self.len = 0;
        sent
    }
}

struct NoiseWrite {
    inner: Box<dyn TransportWrite>,
    sealer: Sealer,
}

impl NoiseWrite {
    fn seal_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        for payload in bytes.chunks(PAYLOAD_LEN_MAX) {
            if self.sealer.is_full() {
                self.sealer.send(&mut *self.inner)?;
            }
            self.sealer.seal(payload)?;
        }
        Ok(())
    }
}

impl Write for NoiseWrite {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.seal_all(buf)?;
        self.sealer.send(&mut *self.inner)?;
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl TransportWrite for NoiseWrite {
    fn write_slices(&mut self, bufs: &mut [IoSlice<'_>]) -> io::Result<()> {
        let total: usize = bufs.iter().map(|buf| buf.len()).sum();
        if total <= GATHER_LEN_MAX {
            let mut together = [0; GATHER_LEN_MAX];
            let mut len = 0;
            for buf in bufs.iter() {
                together[len..len + buf.len()].copy_from_slice(buf);
                len += buf.len();
            }
            self.seal_all(&together[..len])?;
        } else {
            for buf in bufs.iter() {
                self.seal_all(buf)?;
            }
        }
        self.sealer.send(&mut *self.inner)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.sealer.seal(&[])?;
        self.sealer.send(&mut *self.inner)?;
        self.inner.finish()
    }
}

struct NoiseRead {
    inner: Box<dyn TransportRead>,
    state: State,
    nonce: u64,
    /// Messages as received; `start..end` is not opened yet.
    packed: Vec<u8>,
    start: usize,
    end: usize,
    /// One opened message that did not fit the caller's buffer; `taken..left` is still owed.
    plain: Vec<u8>,
    taken: usize,
    left: usize,
    ended: bool,
}

impl TransportRead for NoiseRead {}

impl Read for NoiseRead {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < out.len() {
            if self.taken < self.left {
                let len = (out.len() - filled).min(self.left - self.taken);
                out[filled..filled + len]
                    .copy_from_slice(&self.plain[self.taken..self.taken + len]);
                self.taken += len;
                filled += len;
            } else if self.ended {
                break;
            } else if let Some(message) = self.message() {
                match self.open(message, &mut out[filled..]) {
                    Ok(len) => filled += len,
                    // What was good goes out first; the next call meets the same message and fails alone.
                    Err(_) if filled > 0 => break,
                    Err(err) => return Err(err),
                }
            } else if filled > 0 {
                break;
            } else {
                self.fill()?;
            }
        }
        Ok(filled)
    }
}

impl NoiseRead {
    /// Where in `packed` the next whole message's ciphertext lies.
    fn message(&self) -> Option<std::ops::Range<usize>> {
        let have = &self.packed[self.start..self.end];
        let len = usize::from(u16::from_be_bytes([*have.first()?, *have.get(1)?]));
        (have.len() >= 2 + len).then(|| self.start + 2..self.start + 2 + len)
    }

    /// Opens a message straight into `out` if that surely holds it, else into `plain`; returns the bytes put in `out`.
    fn open(&mut self, message: std::ops::Range<usize>, out: &mut [u8]) -> io::Result<usize> {
        let direct = out.len() >= message.len();
        let target = if direct { out } else { &mut self.plain[..] };
        let opened =
            self.state
                .read()
                .read_message(self.nonce, &self.packed[message.clone()], target);
        let faulty = |_| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "a message was altered on its way",
            )
        };
        let len = opened.map_err(faulty)?;
        self.start = message.end;
        self.nonce += 1;
        if self.nonce.is_multiple_of(REKEY_EVERY) {
            self.state.write().rekey_incoming();
        }
        self.ended = len == 0;
        if direct {
            return Ok(len);
        }
        (self.taken, self.left) = (0, len);
        Ok(0)
    }

    fn fill(&mut self) -> io::Result<()> {
        self.packed.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        match self.inner.read(&mut self.packed[self.end..])? {
            0 => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the connection ended without the peer's end mark; the stream may be cut short",
            )),
            len => {
                self.end += len;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests;
