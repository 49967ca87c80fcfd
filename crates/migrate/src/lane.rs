//! One of QEMU's sockets joined to its channel.
//!
//! Every chunk's first byte is its kind ([`aware::kind`]): plain bytes, a multifd channel's first packet, or a multifd
//! packet taken apart. So a lane falls back to plain bytes with its next chunk, whatever it was before.
//!
//! Ends. An orderly end travels behind all data of its direction. A fault of the source's socket, or of writing to the
//! destination's, ends the migration: see [`Migration::fail`]. Two things look like faults and are none: a destination
//! that is done may reset a socket whose last bytes it had no need to read, and a source that is done need not take the
//! end of the return path.

use std::{io, sync::Arc, time::Duration};

use narrows::{ChannelReader, ChannelWriter, Code, Error};
use narrows_io::{Transport, TransportRead, TransportWrite};

use crate::{
    aware::{self, Decoder, Encoder, kind},
    migration::Migration,
    thread::spawn,
};

/// Which QEMU the socket belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The source: what it says is the guest.
    Source,
    /// The destination: what it says is the return path.
    Destination,
}

/// Runs `over` when dropped: when the last thread of a lane is done.
struct Over<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for Over<F> {
    fn drop(&mut self) {
        if let Some(over) = self.0.take() {
            over();
        }
    }
}

/// Joins `local` and a channel on threads of their own; `over` is called when both directions have ended.
pub fn join(
    migration: &Arc<Migration>,
    side: Side,
    local: Transport,
    writer: ChannelWriter,
    reader: ChannelReader,
    over: impl FnOnce() + Send + Sync + 'static,
) {
    let Transport {
        reader: from,
        writer: to,
        shutdown,
        peer,
        ..
    } = local;
    let (out, back) = (migration.clone(), migration.clone());
    let over = Arc::new(parking_lot::Mutex::new(Over(Some(move || {
        back.left();
        over();
    }))));
    if let Err(end) = migration.joined(&shutdown) {
        tracing::debug!(%end, peer, "a socket came after the end");
        return;
    }
    let over_in = over.clone();
    spawn("migrate-out", move || {
        outward(&out, side, from, writer);
        drop(over);
    });
    let back = migration.clone();
    spawn("migrate-in", move || {
        inward(&back, side, to, reader);
        drop(over_in);
    });
}

/// From the socket to the channel.
fn outward(migration: &Migration, side: Side, from: Box<dyn TransportRead>, writer: ChannelWriter) {
    let mut out = Outward {
        migration,
        from,
        writer,
    };
    let result = match side {
        Side::Source if migration.options.aware => out.detect(),
        _ => out.plain(),
    };
    let result = match result {
        Err(Fault::Socket(_)) if side == Side::Destination => out.finish(),
        other => other,
    };
    match result {
        // The last bytes count as sent when they are with the other QEMU, not when they are in our hands.
        Ok(()) => drop(out.writer.wait_consumed()),
        Err(Fault::Session(end)) => migration.lost(&end),
        Err(Fault::Socket(fault)) => {
            migration.fail(
                Code::FAILED,
                &format!("the connection to the source's QEMU broke: {fault}"),
            );
        }
    }
}

/// Why a direction ended early.
enum Fault {
    /// The channel or session.
    Session(Error),
    /// The socket.
    Socket(io::Error),
}

impl From<Error> for Fault {
    fn from(end: Error) -> Self {
        Self::Session(end)
    }
}

struct Outward<'a> {
    migration: &'a Migration,
    from: Box<dyn TransportRead>,
    writer: ChannelWriter,
}

impl Outward<'_> {
    /// Looks what the socket carries and goes on from there.
    fn detect(&mut self) -> Result<(), Fault> {
        let mut first = [0; aware::INIT_LEN];
        // What one read yields decides: QEMU writes a channel's first packet in one piece, and nobody shall wait for
        // more.
        let mut len = read(&mut *self.from, &mut first)?;
        if len == 0 {
            return self.finish();
        }
        if aware::is_multifd(&first[..len]) {
            len += fill(&mut *self.from, &mut first[len..])?;
            if let Some(mut encoder) = self.migration.sender.lane(&first[..len]) {
                let mut chunk = self.writer.buffer_for(1 + aware::FIRST_LEN);
                chunk[0] = kind::INIT;
                self.migration.sender.first(&first, &mut chunk[1..]);
                self.writer.push(chunk)?;
                return self.packets(&mut encoder);
            }
        }
        self.push_plain(&[&first[..len]])?;
        self.plain()
    }

    /// A multifd channel, packet by packet.
    fn packets(&mut self, encoder: &mut Encoder) -> Result<(), Fault> {
        let mut header = [0; aware::HEADER_LEN];
        loop {
            let len = fill(&mut *self.from, &mut header)?;
            if len < header.len() {
                self.push_plain(&[&header[..len]])?;
                return self.finish();
            }
            let packet = match aware::Packet::parse(&header) {
                Ok(packet) => packet,
                Err(surprise) => {
                    tracing::info!(%surprise, "a multifd channel goes on as plain bytes");
                    encoder.surprised();
                    self.push_plain(&[&header])?;
                    return self.plain();
                }
            };
            let mut chunk = self.writer.buffer_for(encoder.room(&packet));
            let pages = &mut chunk[aware::PAGES_AT..][..packet.payload_len()];
            let len = fill(&mut *self.from, pages)?;
            if len < pages.len() {
                let cut = pages[..len].to_vec();
                self.push_plain(&[&header, &cut])?;
                return self.finish();
            }
            self.migration.pace(header.len() + len);
            let len = encoder.pack(&header, &packet, &mut chunk);
            chunk.truncate(len);
            self.writer.push(chunk)?;
            self.writer.wait_unconsumed_chunks(PACKETS_MAX)?;
        }
    }

    /// Whatever it is.
    fn plain(&mut self) -> Result<(), Fault> {
        loop {
            let mut buf = self.writer.buffer();
            buf[0] = kind::PLAIN;
            let mut filled = 1 + read(&mut *self.from, &mut buf[1..])?;
            if filled == 1 {
                return self.finish();
            }
            // What is there already goes along; what is not is not waited for.
            while filled < buf.len() {
                match self
                    .from
                    .read_ready(&mut buf[filled..])
                    .map_err(Fault::Socket)?
                {
                    None | Some(0) => break,
                    Some(len) => filled += len,
                }
            }
            self.migration.pace(filled);
            if filled < buf.len() / 2 {
                self.writer.push(self.writer.buffer_of(&buf[..filled]))?;
            } else {
                buf.truncate(filled);
                self.writer.push(buf)?;
            }
        }
    }

    fn push_plain(&mut self, parts: &[&[u8]]) -> Result<(), Fault> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len == 0 {
            return Ok(());
        }
        let mut chunk = self.writer.buffer_for(1 + len);
        chunk[0] = kind::PLAIN;
        let mut at = 1;
        for part in parts {
            chunk[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        Ok(self.writer.push(chunk)?)
    }

    fn finish(&mut self) -> Result<(), Fault> {
        Ok(self.writer.finish()?)
    }
}

/// From the channel to the socket.
fn inward(
    migration: &Migration,
    side: Side,
    mut to: Box<dyn TransportWrite>,
    mut reader: ChannelReader,
) {
    let mut decoder = None;
    let mut listening = true;
    loop {
        let chunk = match reader.next_chunk() {
            Ok(Some(chunk)) => chunk,
            Ok(None) => {
                let _ = to.finish();
                return;
            }
            Err(end) => return migration.lost(&end),
        };
        if !listening {
            continue;
        }
        match deliver(migration, &mut decoder, chunk, &mut *to) {
            Ok(()) => {}
            Err(Fault::Session(end)) => return migration.fail(end.code(), end.text()),
            // A source that no longer listens either says so in its own direction, or is done.
            Err(Fault::Socket(fault)) if side == Side::Source => {
                tracing::debug!(%fault, "the source does not take the return path any more");
                listening = false;
            }
            Err(Fault::Socket(fault)) => {
                let text = format!(
                    "the connection to the destination's QEMU broke: {fault}; if it was started by hand to wait for \
                     one connection, give `migrate run --channels 0`, or `migrate serve --qmp`"
                );
                return migration.fail(Code::FAILED, &text);
            }
        }
    }
}

/// Writes one chunk's bytes to the socket.
fn deliver(
    migration: &Migration,
    decoder: &mut Option<Decoder>,
    chunk: &[u8],
    to: &mut dyn TransportWrite,
) -> Result<(), Fault> {
    let refused = |what: &str| {
        Fault::Session(Error::new(
            Code::PROTOCOL,
            format!("refused from the peer: {what}"),
        ))
    };
    let (&kind, bytes) = chunk
        .split_first()
        .ok_or_else(|| refused("an empty chunk"))?;
    match kind {
        kind::PLAIN => to.write_all(bytes).map_err(Fault::Socket),
        kind::INIT => {
            let lane = migration
                .receiver
                .lane(bytes)
                .map_err(|fault| refused(&fault.to_string()))?;
            *decoder = Some(lane);
            to.write_all(&bytes[..aware::INIT_LEN])
                .map_err(Fault::Socket)
        }
        kind::PACKET => {
            let decoder = decoder
                .as_mut()
                .ok_or_else(|| refused("a packet before its channel's first"))?;
            // The pages it refers to may still be under way on other lanes.
            while !decoder.is_ready(chunk, WAIT) {
                if let Some(end) = migration.endpoint.ended() {
                    return Err(Fault::Session(end));
                }
            }
            let mut unpacked = decoder
                .unpack(chunk)
                .map_err(|fault| refused(&fault.to_string()))?;
            to.write_slices(&mut unpacked.slices())
                .map_err(Fault::Socket)
        }
        _ => Err(refused("a chunk of unknown kind")),
    }
}

/// Packets of a lane on their way, 8 MiB of pages. Why: pages that pack to next to nothing wait for no link and fill no
/// window, but the destination must take them all apart while the guest stands still.
const PACKETS_MAX: usize = 16;

/// Between two looks whether the session still stands.
const WAIT: Duration = Duration::from_millis(100);

fn read(from: &mut dyn TransportRead, buf: &mut [u8]) -> Result<usize, Fault> {
    loop {
        match from.read(buf) {
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map_err(Fault::Socket),
        }
    }
}

/// Reads until `buf` is full or the stream ends; returns how much.
fn fill(from: &mut dyn TransportRead, buf: &mut [u8]) -> Result<usize, Fault> {
    let mut filled = 0;
    while filled < buf.len() {
        match read(from, &mut buf[filled..])? {
            0 => break,
            len => filled += len,
        }
    }
    Ok(filled)
}
