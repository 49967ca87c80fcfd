//! What a link sends: frames that the session has ready, gathered for one system call and timed.
//!
//! The only lock held while a thread waits for a socket is the one around this. Upstream: `Session::poll_send`; downstream: the transport.

use std::{
    io::{self, IoSlice},
    sync::atomic::Ordering::Relaxed,
};

use narrows_core::{ChannelId, CodecId, Seq};
use narrows_format::{Header, chunk_check};
use narrows_io::{TransportWrite, transport::Probe};
use narrows_pipeline::Bytes;
use narrows_session::{LinkId, Out};

use crate::inner::Inner;

pub(super) struct Writer {
    pub(super) half: Box<dyn TransportWrite>,
    batch: Vec<(Header, Payload)>,
    probe: Probe,
    /// Unsent bytes the kernel may hold, as last set; 0 where the transport has no such thing.
    unsent_len: u32,
}

enum Payload {
    Control(Vec<u8>),
    Chunk(Bytes),
}

impl Writer {
    pub(super) fn new(half: Box<dyn TransportWrite>, probe: Probe) -> Self {
        let unsent_len = if probe.set_notsent_lowat(UNSENT_LEN_MIN) { UNSENT_LEN_MIN } else { 0 };
        Self { half, batch: Vec::new(), probe, unsent_len }
    }

    /// Takes what may be sent, up to a batch, and sends it. `false` where there was nothing.
    pub(super) fn pump(&mut self, id: LinkId, inner: &Inner) -> io::Result<bool> {
        let mut len = 0;
        {
            let mut state = inner.state.lock();
            while len < BATCH_LEN {
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
        let sent = self.write_batch(inner, len);
        self.batch.clear();
        sent.map(|()| true)
    }

    /// Lets the kernel hold what the link carries while a woken thread gets a processor, and no more: what it holds was
    /// decided on before what the link is doing now was known.
    fn set_unsent(&mut self, rate_per_ms: u64) {
        let wanted = (rate_per_ms * UNSENT_MS).clamp(UNSENT_LEN_MIN.into(), UNSENT_LEN_MAX.into()) as u32;
        let far = wanted > self.unsent_len / 2 * 3 || wanted < self.unsent_len / 2;
        if self.unsent_len > 0 && far && self.probe.set_notsent_lowat(wanted) {
            self.unsent_len = wanted;
        }
    }

    fn write_batch(&mut self, inner: &Inner, len: usize) -> io::Result<()> {
        let tallies = &inner.tallies;
        let rate_per_ms = tallies.sent_wire.load(Relaxed) * 1_000_000 / tallies.sending_ns.load(Relaxed).max(1);
        self.set_unsent(rate_per_ms);
        let headers: Vec<_> = self.batch.iter().map(|(header, _)| (header.to_bytes(), header.len())).collect();
        let mut parts: Vec<&[u8]> = Vec::with_capacity(2 * headers.len());
        for ((header, header_len), (_, payload)) in headers.iter().zip(&self.batch) {
            parts.push(&header[..*header_len]);
            parts.push(payload.bytes());
        }
        let most = ((rate_per_ms * WRITE_MS) as usize).max(WRITE_LEN_MIN);
        let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(parts.len());
        let mut parts = parts.into_iter();
        let mut part: &[u8] = &[];
        let mut left = len;
        while left > 0 {
            slices.clear();
            let mut room = most;
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
            let sent = most - room;
            let began_ns = inner.engine.clock.now_ns();
            self.half.write_slices(&mut slices)?;
            tallies.sending_ns.fetch_add(inner.engine.clock.now_ns() - began_ns, Relaxed);
            tallies.sent_wire.fetch_add(sent as u64, Relaxed);
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

/// The header of a control frame.
pub(crate) fn control_header(seq: Seq, payload: &[u8]) -> Header {
    let len = payload.len() as u32;
    let check = chunk_check(ChannelId::CONTROL, seq, payload);
    let channel = ChannelId::CONTROL;
    Header { codec: CodecId::RAW, channel, seq, raw_len: len, packed_len: len, history_len: 0, check }
}

/// Frames gathered for one system call, in bytes.
const BATCH_LEN: usize = 256 << 10;
/// A write to the transport is no longer than this many milliseconds of the link's rate, so that the policy's gauges
/// keep moving on slow links.
const WRITE_MS: u64 = 5;
const WRITE_LEN_MIN: usize = 16 << 10;
/// Unsent bytes in the kernel: this many milliseconds of the link's rate, within bounds.
const UNSENT_MS: u64 = 2;
const UNSENT_LEN_MIN: u32 = 128 << 10;
const UNSENT_LEN_MAX: u32 = 8 << 20;
