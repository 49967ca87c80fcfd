//! Carries connections of other programs, TCP or Unix, many over one session.
//!
//! ```text
//! program -> near end (listens) == one session, packed == far end (connects) -> server
//! ```
//!
//! Message boundaries. What one read yields leaves at once as a chunk: no timer, so a request never waits for more. A
//! stream that is busier than its link fills larger chunks by itself, because the next read finds more.
//!
//! Threads of a connection, at each end: one reads the program and sends, one receives and writes. Where the program
//! takes bytes without waiting, the link's own thread writes them and the second is not woken.

use std::{
    io::Write,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use narrows::{ChannelReader, ChannelWriter, Code, Endpoint, Error, Incoming, Settings};
use narrows_io::{
    Address, Listener, Shutdown, Transport, TransportRead, TransportWrite, Tuning, transport,
};

use crate::{SERVICE_TUNNEL, TransferError};

/// What a connection may have outstanding, in packed bytes.
const WINDOW_LEN: usize = 1 << 20;
/// History of a connection, in bytes.
const HISTORY_LEN: usize = 256 << 10;
/// Longest chunk, in bytes.
const CHUNK_LEN: usize = 256 << 10;
/// Between two attempts to reach the other end.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// How long a connection is held that came while the other end was away.
const HOLD_WITHIN: Duration = Duration::from_secs(10);

/// The near end: carries every connection that `listener` accepts, until it is stopped or the session ends.
///
/// # Errors
/// [`TransferError`] when the session ends otherwise than well.
pub fn near(endpoint: &Endpoint, listener: &Listener) -> Result<(), TransferError> {
    carry_near(endpoint, listener, &mut None)
}

/// [`near`], beginning with the connection that `waiting` holds. One that came when the session had ended already is
/// left there: nothing of it went anywhere, so the next session can carry it.
fn carry_near(
    endpoint: &Endpoint,
    listener: &Listener,
    waiting: &mut Option<Transport>,
) -> Result<(), TransferError> {
    loop {
        let Some(local) = waiting.take().or_else(|| listener.incoming().next()) else {
            return Ok(());
        };
        // Whether a session whose link was lost goes on is not known yet: what it took now could be lost with it.
        endpoint.wait_linked();
        match endpoint.open(SERVICE_TUNNEL) {
            Ok((writer, reader)) => splice(local, writer, reader),
            Err(end) => match endpoint.ended() {
                Some(end) => {
                    *waiting = Some(local);
                    return Err(end.into());
                }
                // The peer's bound on connections: this one is closed, others go on.
                None => tracing::warn!(%end, peer = local.peer, "connection refused"),
            },
        }
    }
}

/// Is told of each session that [`keep_near`] makes, and whether it is the first.
pub type Begun<'a> = dyn FnMut(&Arc<Endpoint>, bool) -> Result<(), Error> + 'a;

/// Keeps a near end going: carries what `listener` accepts over the session that `connect` makes, and over a new one
/// when that is lost. `begun` is told of each session, and whether it is the first.
///
/// A far end that does not answer is waited for, from the start on: who starts first does not matter.
///
/// # Errors
/// The first session cannot be had for a reason that waiting does not mend: keys, a wrong program, flags. Errors of
/// `begun` end it as well.
pub fn keep_near(
    connect: &dyn Fn() -> Result<Arc<Endpoint>, Error>,
    listener: &Listener,
    begun: &mut Begun<'_>,
) -> Result<(), Error> {
    let (mut first, mut told, mut waiting) = (true, false, None);
    let mut waits_since = Instant::now();
    loop {
        match connect() {
            Ok(endpoint) => {
                told = false;
                begun(&endpoint, std::mem::replace(&mut first, false))?;
                match carry_near(&endpoint, listener, &mut waiting) {
                    // At once where somebody waits: the far end may be there again.
                    Err(_) if waiting.is_some() => {
                        waits_since = Instant::now();
                        continue;
                    }
                    Err(fault) => tracing::warn!("{fault}; connecting again"),
                    Ok(()) => return Ok(()),
                }
            }
            Err(end) if first && !matches!(end, Error::Io { .. }) => return Err(end),
            Err(end) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!("{end}; trying again until it answers");
                }
                if waits_since.elapsed() > HOLD_WITHIN {
                    waiting = None;
                }
            }
        }
        thread::sleep(AGAIN_AFTER);
    }
}

/// Bounds a session of up to `connections_max` connections: many may be open, and each has a small share.
pub fn set_limits(settings: &mut Settings, connections_max: u16) {
    let limits = &mut settings.limits;
    limits.channels_max = connections_max;
    limits.window_len = limits.window_len.min(WINDOW_LEN);
    limits.history_len_max = HISTORY_LEN;
    limits.chunk_len_max = CHUNK_LEN;
}

/// The far end: connects each connection of the session to `target`.
///
/// # Errors
/// [`TransferError`] when the session ends otherwise than well.
pub fn far(endpoint: &Endpoint, target: &Address) -> Result<(), TransferError> {
    while let Some(incoming) = endpoint.accept()? {
        let target = target.clone();
        // A server that is slow to accept must not hold up the other connections.
        spawn("tunnel-connect", move || {
            let Incoming {
                service,
                writer,
                reader,
            } = incoming;
            if service != SERVICE_TUNNEL {
                let end = "this end carries connections; use `narrows recv` for files";
                return writer.abort(Code::PROTOCOL, end);
            }
            match transport::connect(&target, &Tuning::default()) {
                Ok(local) => splice(local, writer, reader),
                Err(fault) => {
                    tracing::warn!(%fault, "the server does not answer");
                    writer.abort(Code::FAILED, &fault.to_string());
                }
            }
        });
    }
    Ok(())
}

/// Joins a program's connection and a channel, on threads of their own.
fn splice(local: Transport, writer: ChannelWriter, reader: ChannelReader) {
    let Transport {
        reader: from,
        writer: to,
        shutdown,
        peer,
        ..
    } = local;
    let to = Arc::new(Mutex::new(to));
    let direct = to.clone();
    // Runs only while the receiving thread waits for its next chunk, so the lock is free. A fault shows there too.
    reader.set_direct(Box::new(move |bytes| {
        direct
            .lock()
            .map_or(0, |mut to| to.try_write(bytes).unwrap_or(0))
    }));
    let (out_shutdown, out_peer) = (shutdown.clone(), peer.clone());
    spawn("tunnel-out", move || {
        outward(from, writer, &out_shutdown, &out_peer)
    });
    spawn("tunnel-in", move || inward(&to, reader, &shutdown, &peer));
}

fn outward(
    mut from: Box<dyn TransportRead>,
    mut writer: ChannelWriter,
    shutdown: &Shutdown,
    peer: &str,
) {
    let ended: Result<(), Error> = (|| {
        let mut buf = writer.buffer();
        loop {
            let mut filled = match from.read(&mut buf) {
                Ok(0) => return writer.finish(),
                Ok(len) => len,
                Err(fault) => return Err(local_fault(&fault)),
            };
            let mut over = false;
            while filled < buf.len() {
                match from.read_ready(&mut buf[filled..]) {
                    Ok(Some(0)) => {
                        over = true;
                        break;
                    }
                    Ok(Some(len)) => filled += len,
                    Ok(None) => break,
                    Err(fault) => return Err(local_fault(&fault)),
                }
            }
            if filled < buf.len() / 2 {
                writer.push(writer.buffer_of(&buf[..filled]))?;
            } else {
                let next = writer.buffer();
                let mut full = std::mem::replace(&mut buf, next);
                full.truncate(filled);
                writer.push(full)?;
            }
            if over {
                return writer.finish();
            }
        }
    })();
    if let Err(end) = ended {
        tracing::debug!(%end, peer, "connection ends");
        shutdown.abort();
        writer.abort(end.code(), end.text());
    }
}

fn inward(
    to: &Mutex<Box<dyn TransportWrite>>,
    mut reader: ChannelReader,
    shutdown: &Shutdown,
    peer: &str,
) {
    loop {
        match reader.next_chunk() {
            Ok(Some(chunk)) => {
                let sent = to.lock().map_or(Ok(()), |mut to| to.write_all(chunk));
                if let Err(fault) = sent {
                    reader.abort(Code::FAILED, local_fault(&fault).text());
                    return shutdown.abort();
                }
            }
            Ok(None) => {
                let _ = to.lock().map(|mut to| to.finish());
                return;
            }
            Err(end) => {
                tracing::debug!(%end, peer, "connection ends");
                return shutdown.abort();
            }
        }
    }
}

fn local_fault(fault: &std::io::Error) -> Error {
    Error::new(
        Code::FAILED,
        format!("the connection behind the tunnel broke: {fault}"),
    )
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) {
    if let Err(fault) = narrows_io::thread::spawn(name, run) {
        tracing::error!("a connection is dropped: {fault}");
    }
}
