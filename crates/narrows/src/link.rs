//! One connection of a session: the thread that writes it and the thread that reads it.

use std::{
    io::{self, IoSlice, IoSliceMut, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

use narrows_core::{ChannelId, CodecId, DecodeError, Limits, Seq, Workspace};
use narrows_format::{Frame, HEADER_LEN_MAX, HEADER_LEN_MIN, Header, chunk_check};
use narrows_io::{
    Shutdown, Transport, TransportRead, TransportWrite,
    transport::{Probe, Security},
    watch::Watch,
};
use narrows_pipeline::{Accepted, Bytes, Unpacker};
use narrows_session::{Accept, LinkId, Out, SessionError};
use parking_lot::Mutex;

use crate::endpoint::{End, Inner, LAST_WORDS};

/// Frames gathered for one system call, in bytes: at most, and on a slow link.
const BATCH_LEN: usize = 256 << 10;
const BATCH_LEN_MIN: usize = 64 << 10;
/// A write to the transport is no longer than this many milliseconds of the link's rate, so that the policy's gauges
/// keep moving on slow links.
const WRITE_MS: u64 = 5;
const WRITE_LEN_MIN: usize = 16 << 10;
/// Unsent bytes in the kernel: this many milliseconds of the link's rate, within bounds; where that is less than a writer that
/// has to wait for a processor needs, up to so many more.
const UNSENT_MS: u64 = 2;
const UNSENT_MS_SLOW: u64 = 10;
const UNSENT_LEN_SLOW: u64 = 128 << 10;
const UNSENT_LEN_MIN: u32 = 32 << 10;
const UNSENT_LEN_MAX: u32 = 8 << 20;
/// Shortest span in which it is looked at how fast bytes leave, in nanoseconds.
const PACE_NS: u64 = 8_000_000;
/// A consumer is told of chunks before they are this many bytes, even where more have come.
const UNTOLD_LEN_MAX: usize = 256 << 10;
/// Bytes read ahead: a frame costs one system call, and of large ones no more than this is copied twice.
const READ_AHEAD_LEN: usize = 4 << 10;

pub(crate) struct Link {
    id: LinkId,
    writer: Mutex<Writer>,
    shutdown: Shutdown,
    probe: Probe,
    /// Bytes acknowledged when last asked; `None` where the transport does not tell.
    acked: Option<AtomicU64>,
}

struct Writer {
    half: Box<dyn TransportWrite>,
    batch: Vec<(Header, Payload)>,
    probe: Probe,
    /// Unsent bytes the kernel may hold, as last set; 0 where the transport has no such thing.
    unsent_len: u32,
    pace: Pace,
}

/// How fast bytes left lately. Not how fast writes took them: buffers take the first ones at once, and where nothing ever waits,
/// all of them.
#[derive(Default)]
struct Pace {
    since_ns: u64,
    bytes: u64,
    per_ms: u64,
}

impl Pace {
    /// Bytes a millisecond, 0 at first.
    fn per_ms(&mut self, now_ns: u64) -> u64 {
        let span_ns = now_ns.saturating_sub(self.since_ns);
        if span_ns >= PACE_NS {
            self.per_ms = (self.bytes as f64 * 1e6 / span_ns as f64) as u64;
            (self.since_ns, self.bytes) = (now_ns, 0);
        }
        self.per_ms
    }
}

enum Payload {
    Control(Vec<u8>),
    Chunk(Bytes),
}

impl Link {
    /// Starts the link's threads.
    pub(crate) fn start(inner: &Arc<Inner>, id: LinkId, transport: Transport) -> Arc<Self> {
        let Transport { reader, writer, shutdown, peer, probe, security } = transport;
        let unsent_len = if probe.set_notsent_lowat(UNSENT_LEN_MIN) { UNSENT_LEN_MIN } else { 0 };
        let acked = probe.tcp_info().map(|info| AtomicU64::new(info.acked));
        let pace = Pace { since_ns: inner.engine.clock.now_ns(), ..Pace::default() };
        let writer = Writer { half: writer, batch: Vec::new(), probe: probe.clone(), unsent_len, pace };
        let link = Arc::new(Self { id, writer: Mutex::new(writer), shutdown, probe, acked });
        let (read_inner, read_link) = (inner.clone(), link.clone());
        let (write_inner, write_link) = (inner.clone(), link.clone());
        spawn("link-reader", move || {
            let mut ahead = ReadAhead::new(reader);
            // Else what comes is not what there is to be read.
            ahead.watched = (security == Security::Plain).then(|| (read_link.probe.clone(), Watch::default()));
            let fault = Reader::new(&read_inner, read_link.id, ahead, read_link.probe.clone()).run();
            read_link.over(&read_inner, &peer, fault);
        });
        spawn("link-writer", move || write_link.write_loop(&write_inner));
        link
    }

    /// Sends from the calling thread if nobody else is sending just now.
    pub(crate) fn try_pump(&self, inner: &Inner) -> bool {
        let Some(mut writer) = self.writer.try_lock() else { return false };
        match writer.pump(self.id, inner) {
            Ok(_) => true,
            Err(_) => {
                // The reader notices the same fault and says so.
                self.shutdown.abort();
                true
            }
        }
    }

    /// The session has ended: a peer that does not read to its end has this long.
    pub(crate) fn retire(self: Arc<Self>) {
        spawn("link-closer", move || {
            thread::sleep(LAST_WORDS);
            self.shutdown.abort();
        });
    }

    /// Bytes carried since the last question, and bytes waiting in the kernel now; `None` where the transport does not
    /// tell.
    pub(crate) fn carried(&self) -> Option<(u64, u32)> {
        let before = self.acked.as_ref()?;
        let Some(info) = self.probe.tcp_info() else { return Some((0, 0)) };
        Some((info.acked.saturating_sub(before.swap(info.acked, Relaxed)), info.unsent))
    }

    /// Bytes that came and wait in the kernel; 0 where the transport does not tell.
    pub(crate) fn unread(&self) -> u64 {
        self.probe.unread().unwrap_or(0)
    }

    pub(crate) fn cut(&self) {
        self.shutdown.abort();
    }

    fn write_loop(&self, inner: &Inner) {
        loop {
            match self.writer.lock().pump(self.id, inner) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(_) => return self.shutdown.abort(),
            }
            let mut state = inner.state.lock();
            if !state.links.contains_key(&self.id) {
                drop(state);
                // The peer closed first, and it waits for our end of file: the socket itself lives on with its closer.
                let _ = self.writer.lock().half.finish();
                return;
            }
            if state.machine.can_send(self.id) {
                continue;
            }
            if state.ended.is_some() {
                drop(state);
                let _ = self.writer.lock().half.finish();
                return;
            }
            let starved = state.machine.is_starved().then(|| inner.engine.clock.now_ns());
            inner.to_send.wait(&mut state);
            if let Some(since_ns) = starved {
                inner.tallies.starved_ns.fetch_add(inner.engine.clock.now_ns() - since_ns, Relaxed);
            }
        }
    }

    /// The reader is done: the session goes on without this link, or ends.
    fn over(&self, inner: &Arc<Inner>, peer: &str, result: Result<(), LinkFault>) {
        let ended = inner.state.lock().ended.is_some();
        match result {
            Err(LinkFault::Session(fault)) => {
                inner.end(End::new(fault.code(), fault.to_string()), true);
                // The peer should read why before the connection goes.
                let _ = self.writer.lock().pump(self.id, inner);
            }
            Err(LinkFault::Io(fault)) if !ended => tracing::info!(peer, %fault, "link lost"),
            Ok(()) if !ended => tracing::info!(peer, "the peer closed the link"),
            _ => {}
        }
        let mut state = inner.state.lock();
        state.machine.detach(self.id);
        state.links.remove(&self.id);
        if state.links.is_empty() {
            state.linkless_since_ns = Some(inner.engine.clock.now_ns());
        }
        drop(state);
        inner.to_send.notify_all();
        inner.changed.notify_all();
        inner.keeper_wake.notify_all();
        if !ended {
            self.shutdown.abort();
        }
    }
}

impl Writer {
    /// Takes what may be sent, up to a batch, and sends it. `false` where there was nothing.
    fn pump(&mut self, id: LinkId, inner: &Inner) -> io::Result<bool> {
        let rate_per_ms = self.pace.per_ms(inner.engine.clock.now_ns());
        let write_len = ((rate_per_ms * WRITE_MS) as usize).max(WRITE_LEN_MIN);
        let batch_len = write_len.clamp(BATCH_LEN_MIN, BATCH_LEN);
        let mut len = 0;
        {
            let mut state = inner.state.lock();
            while len < batch_len {
                let (header, payload) = match state.machine.poll_send(id) {
                    None => break,
                    Some(Out::Control(seq, payload)) => (control_header(seq, &payload), Payload::Control(payload)),
                    Some(Out::Frame(frame)) => {
                        state.left(&frame);
                        (frame.header, Payload::Chunk(frame.payload.clone()))
                    }
                };
                len += header.len() + payload.len();
                self.batch.push((header, payload));
            }
        }
        if self.batch.is_empty() {
            return Ok(false);
        }
        inner.changed.notify_all();
        self.set_unsent(rate_per_ms);
        let sent = self.write_batch(inner, len, write_len);
        self.batch.clear();
        sent.map(|()| true)
    }

    /// Lets the kernel hold what the link carries while a woken thread gets a processor, and no more: what it holds was
    /// decided on before what the link is doing now was known.
    fn set_unsent(&mut self, rate_per_ms: u64) {
        let slow = (rate_per_ms * UNSENT_MS_SLOW).min(UNSENT_LEN_SLOW);
        let wanted = (rate_per_ms * UNSENT_MS).max(slow).clamp(UNSENT_LEN_MIN.into(), UNSENT_LEN_MAX.into()) as u32;
        let far = wanted > self.unsent_len / 2 * 3 || wanted < self.unsent_len / 2;
        if self.unsent_len > 0 && far && self.probe.set_notsent_lowat(wanted) {
            self.unsent_len = wanted;
        }
    }

    fn write_batch(&mut self, inner: &Inner, len: usize, write_len: usize) -> io::Result<()> {
        let tallies = &inner.tallies;
        let headers: Vec<_> = self.batch.iter().map(|(header, _)| (header.to_bytes(), header.len())).collect();
        let mut parts: Vec<&[u8]> = Vec::with_capacity(2 * headers.len());
        for ((header, header_len), (_, payload)) in headers.iter().zip(&self.batch) {
            parts.push(&header[..*header_len]);
            parts.push(payload.bytes());
        }
        let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(parts.len());
        let mut parts = parts.into_iter();
        let mut part: &[u8] = &[];
        let mut left = len;
        while left > 0 {
            slices.clear();
            let mut room = write_len;
            while room > 0 {
                if part.is_empty() {
                    let Some(next) = parts.next() else { break };
                    part = next;
                }
                let (now, later) = part.split_at(part.len().min(room));
                slices.push(IoSlice::new(now));
                part = later;
                room -= now.len();
            }
            let sent = write_len - room;
            let began_ns = inner.engine.clock.now_ns();
            self.half.write_slices(&mut slices)?;
            tallies.sending_ns.fetch_add(inner.engine.clock.now_ns() - began_ns, Relaxed);
            tallies.sent_wire.fetch_add(sent as u64, Relaxed);
            self.pace.bytes += sent as u64;
            left -= sent;
        }
        Ok(())
    }
}

impl Payload {
    fn len(&self) -> usize {
        self.bytes().len()
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Control(bytes) => bytes,
            Self::Chunk(bytes) => bytes,
        }
    }
}

/// Why a link is over.
pub(crate) enum LinkFault {
    Io(io::Error),
    Session(SessionError),
}

impl From<io::Error> for LinkFault {
    fn from(fault: io::Error) -> Self {
        Self::Io(fault)
    }
}

impl From<SessionError> for LinkFault {
    fn from(fault: SessionError) -> Self {
        Self::Session(fault)
    }
}

impl From<DecodeError> for LinkFault {
    fn from(fault: DecodeError) -> Self {
        Self::Session(fault.into())
    }
}

/// The header of a control frame.
pub(crate) fn control_header(seq: Seq, payload: &[u8]) -> Header {
    let len = payload.len() as u32;
    let check = chunk_check(ChannelId::CONTROL, seq, payload);
    let channel = ChannelId::CONTROL;
    Header { codec: CodecId::RAW, channel, seq, raw_len: len, packed_len: len, history_len: 0, check }
}

struct Reader<'a> {
    inner: &'a Arc<Inner>,
    id: LinkId,
    ahead: ReadAhead,
    probe: Probe,
    untold: Untold,
    ws: Workspace,
}

/// Chunks whose consumer was not told. To wake it costs as much as to copy a chunk and may take the processor from this
/// thread, so it is told of several at once where the next has come already.
#[derive(Default)]
struct Untold {
    consumer: Option<(ChannelId, Unpacker)>,
    len: usize,
}

impl Untold {
    fn add(&mut self, channel: ChannelId, consumer: Unpacker, len: usize) {
        if self.consumer.as_ref().is_some_and(|(other, _)| *other != channel) {
            self.tell();
        }
        self.consumer = Some((channel, consumer));
        self.len += len;
    }

    fn tell(&mut self) {
        self.len = 0;
        if let Some((_, consumer)) = self.consumer.take() {
            consumer.tell();
        }
    }
}

impl Drop for Untold {
    fn drop(&mut self) {
        self.tell();
    }
}

impl<'a> Reader<'a> {
    fn new(inner: &'a Arc<Inner>, id: LinkId, ahead: ReadAhead, probe: Probe) -> Self {
        Self { inner, id, ahead, probe, untold: Untold::default(), ws: Workspace::default() }
    }

    /// Called before `len` bytes are read: nobody waits for a chunk that is here because the next is not.
    fn tell_before(&mut self, len: usize) {
        if self.untold.consumer.is_some() {
            let come = self.ahead.len() + self.probe.unread().unwrap_or(0) as usize;
            if come < len || self.untold.len >= UNTOLD_LEN_MAX {
                self.untold.tell();
            }
        }
    }

    /// Reads frames until the link ends; `Ok` where it ends between two frames.
    fn run(mut self) -> Result<(), LinkFault> {
        let inner = self.inner;
        loop {
            self.tell_before(HEADER_LEN_MAX);
            let id = self.id;
            let next_seq = |channel| inner.state.lock().machine.next_seq(id, channel);
            let Some(header) = self.ahead.read_header(&inner.limits, next_seq)? else { return Ok(()) };
            inner.tallies.received_wire.fetch_add(header.wire_len() as u64, Relaxed);
            inner.tallies.heard_ns.store(inner.engine.clock.now_ns(), Relaxed);
            if header.channel == ChannelId::CONTROL {
                let payload = self.read_payload(&header)?;
                check_control(&header, &payload)?;
                let mut state = inner.state.lock();
                state.machine.on_control(id, &payload)?;
                inner.drain_events(&mut state);
                // Else credit wakes the writer, which then takes the link from the thread that was sending.
                let waits = state.links.keys().any(|&link| state.machine.can_send(link));
                drop(state);
                if waits {
                    inner.to_send.notify_all();
                }
                continue;
            }
            inner.state.lock().machine.check_frame(&header)?;
            let payload = self.read_payload(&header)?;
            if inner.state.lock().machine.on_frame(&header)? == Accept::Drop {
                continue;
            }
            if inner.unpacking.whole {
                // Nothing is consumed before the end, so credit must not wait for it.
                inner.state.lock().machine.consumed(header.channel, header.cost());
                inner.to_send.notify_one();
            }
            let Some(unpacker) = inner.unpacker(header.channel) else { continue };
            match unpacker.accept(Frame { header, payload }, &mut self.ws) {
                // This thread must not wait for the peer to read: the peer may wait for it to.
                Accepted::Consumed(cost) => inner.consumed(header.channel, cost, false),
                Accepted::Untold => self.untold.add(header.channel, unpacker, header.raw_len as usize),
                Accepted::Done => {}
            }
        }
    }

    fn read_payload(&mut self, header: &Header) -> io::Result<Bytes> {
        self.tell_before(header.packed_len as usize);
        let mut payload = self.inner.engine.buffers.take(header.packed_len as usize);
        self.ahead.fill_payload(&mut payload)?;
        Ok(Bytes::new(payload))
    }
}

pub(crate) fn check_control(header: &Header, payload: &[u8]) -> Result<(), DecodeError> {
    if header.codec != CodecId::RAW {
        return Err(DecodeError::corrupt(1, "packed control frame"));
    }
    if chunk_check(header.channel, header.seq, payload) != header.check {
        return Err(DecodeError::corrupt(header.len(), "chunk check differs"));
    }
    Ok(())
}

/// Reads headers and payloads off a transport.
pub(crate) struct ReadAhead {
    half: Box<dyn TransportRead>,
    /// Tells what came on its socket, where that may be looked for before sleeping.
    watched: Option<(Probe, Watch)>,
    buf: Box<[u8; READ_AHEAD_LEN]>,
    start: usize,
    end: usize,
}

impl ReadAhead {
    pub(crate) fn new(half: Box<dyn TransportRead>) -> Self {
        Self { half, watched: None, buf: Box::new([0; READ_AHEAD_LEN]), start: 0, end: 0 }
    }

    /// Reads with `read`, after looking for a moment whether there is something.
    fn wait(
        &mut self,
        read: impl FnOnce(&mut dyn TransportRead, &mut [u8; READ_AHEAD_LEN]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let Some((probe, watch)) = &mut self.watched else { return read(&mut *self.half, &mut self.buf) };
        if watch.look(|| Ok(probe.unread().filter(|&len| len > 0)))?.is_some() {
            return read(&mut *self.half, &mut self.buf);
        }
        let begun = Instant::now();
        let len = read(&mut *self.half, &mut self.buf);
        watch.waited(begun.elapsed());
        len
    }

    /// Bytes that are here.
    fn len(&self) -> usize {
        self.end - self.start
    }

    /// The next header; `None` at an orderly end between frames.
    pub(crate) fn read_header(
        &mut self,
        limits: &Limits,
        next_seq: impl FnOnce(ChannelId) -> Option<Seq>,
    ) -> Result<Option<Header>, LinkFault> {
        if self.fill(HEADER_LEN_MIN)? == 0 {
            return Ok(None);
        }
        let len = Header::len_from(self.buf[self.start])?;
        if self.fill(len)? < len {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let header = Header::parse(&self.buf[self.start..self.end], limits, next_seq)?;
        self.start += len;
        Ok(Some(header))
    }

    /// Reads until `needed` bytes are buffered or the stream ends; returns how many are.
    fn fill(&mut self, needed: usize) -> io::Result<usize> {
        debug_assert!(needed <= HEADER_LEN_MAX);
        if self.end - self.start < needed && READ_AHEAD_LEN - self.start < HEADER_LEN_MAX {
            self.buf.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        while self.end - self.start < needed {
            let end = self.end;
            match self.wait(|half, buf| half.read(&mut buf[end..])) {
                Ok(0) => break,
                Ok(len) => self.end += len,
                Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(self.end - self.start)
    }

    /// Fills `out`, and reads the next frame's header with the same call where it has come already.
    pub(crate) fn fill_payload(&mut self, out: &mut [u8]) -> io::Result<()> {
        let mut filled = out.len().min(self.end - self.start);
        out[..filled].copy_from_slice(&self.buf[self.start..self.start + filled]);
        self.start += filled;
        while filled < out.len() {
            let rest = out.len() - filled;
            let unfilled = &mut out[filled..];
            match self.wait(|half, buf| half.read_vectored(&mut [IoSliceMut::new(unfilled), IoSliceMut::new(buf)])) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => {
                    filled += len.min(rest);
                    (self.start, self.end) = (0, len.saturating_sub(rest));
                }
                Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Hands the transport's half back with what was read ahead of it, for the threads that take over.
    pub(crate) fn into_half(self) -> Box<dyn TransportRead> {
        if self.start == self.end {
            return self.half;
        }
        Box::new(Chained(io::Cursor::new(self.buf[self.start..self.end].to_vec()).chain(self.half)))
    }
}

struct Chained(io::Chain<io::Cursor<Vec<u8>>, Box<dyn TransportRead>>);

impl Read for Chained {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }

    fn read_vectored(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.read_vectored(parts)
    }
}

impl TransportRead for Chained {}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) {
    thread::Builder::new().name(name.into()).spawn(run).expect("the system starts threads");
}
