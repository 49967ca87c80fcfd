//! What a link sends: frames that the session has ready, gathered for one system call and timed.
//!
//! The only lock held while a thread waits for a socket is the one around this. Upstream: `Session::poll_send`;
//! downstream: the transport.

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
    pace: Pace,
}

/// How fast bytes left lately. Not how fast writes took them: buffers take the first ones at once, and where nothing
/// ever waits, all of them.
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

impl Writer {
    pub(super) fn new(half: Box<dyn TransportWrite>, probe: Probe, now_ns: u64) -> Self {
        let unsent_len = if probe.set_notsent_lowat(UNSENT_LEN_MIN) {
            UNSENT_LEN_MIN
        } else {
            0
        };
        Self {
            half,
            batch: Vec::new(),
            probe,
            unsent_len,
            pace: Pace {
                since_ns: now_ns,
                ..Pace::default()
            },
        }
    }

    /// Takes what may be sent, up to a batch, and sends it. `false` where there was nothing.
    pub(super) fn pump(&mut self, id: LinkId, inner: &Inner) -> io::Result<bool> {
        let rate_per_ms = self.pace.per_ms(inner.engine.clock.now_ns());
        let write_len = ((rate_per_ms * WRITE_MS) as usize).max(WRITE_LEN_MIN);
        let batch_len = write_len.clamp(BATCH_LEN_MIN, BATCH_LEN);
        let mut len = 0;
        {
            let mut state = inner.state.lock();
            while len < batch_len {
                let (header, payload) = match state.machine.poll_send(id) {
                    None => break,
                    Some(Out::Control(seq, payload)) => {
                        (control_header(seq, &payload), Payload::Control(payload))
                    }
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
        inner.signals.changed.notify_all();
        self.set_unsent(rate_per_ms);
        let sent = self.write_batch(inner, len, write_len);
        self.batch.clear();
        sent.map(|()| true)
    }

    /// Lets the kernel hold what the link carries while a woken thread gets a processor, and no more: what it holds was
    /// decided on before what the link is doing now was known.
    fn set_unsent(&mut self, rate_per_ms: u64) {
        let slow = (rate_per_ms * UNSENT_MS_SLOW).min(UNSENT_LEN_SLOW);
        let wanted = (rate_per_ms * UNSENT_MS)
            .max(slow)
            .clamp(UNSENT_LEN_MIN.into(), UNSENT_LEN_MAX.into()) as u32;
        let far = wanted > self.unsent_len / 2 * 3 || wanted < self.unsent_len / 2;
        if self.unsent_len > 0 && far && self.probe.set_notsent_lowat(wanted) {
            self.unsent_len = wanted;
        }
    }

    fn write_batch(&mut self, inner: &Inner, len: usize, write_len: usize) -> io::Result<()> {
        let tallies = &inner.tallies;
        let headers: Vec<_> = self
            .batch
            .iter()
            .map(|(header, _)| (header.to_bytes(), header.len()))
            .collect();
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
            tallies
                .sending_ns
                .fetch_add(inner.engine.clock.now_ns() - began_ns, Relaxed);
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

/// The header of a control frame.
pub(crate) fn control_header(seq: Seq, payload: &[u8]) -> Header {
    let len = payload.len() as u32;
    let check = chunk_check(ChannelId::CONTROL, seq, payload);
    let channel = ChannelId::CONTROL;
    Header {
        codec: CodecId::RAW,
        channel,
        seq,
        raw_len: len,
        packed_len: len,
        history_len: 0,
        check,
    }
}

/// Frames gathered for one system call, in bytes: at most, and on a slow link.
const BATCH_LEN: usize = 256 << 10;
const BATCH_LEN_MIN: usize = 64 << 10;
/// A write to the transport is no longer than this many milliseconds of the link's rate, so that the policy's gauges
/// keep moving on slow links.
const WRITE_MS: u64 = 5;
const WRITE_LEN_MIN: usize = 16 << 10;
/// Unsent bytes in the kernel: this many milliseconds of the link's rate, within bounds; where that is less than a
/// writer that has to wait for a processor needs, up to so many more.
const UNSENT_MS: u64 = 2;
const UNSENT_MS_SLOW: u64 = 10;
const UNSENT_LEN_SLOW: u64 = 128 << 10;
const UNSENT_LEN_MIN: u32 = 32 << 10;
const UNSENT_LEN_MAX: u32 = 8 << 20;
/// Shortest span in which it is looked at how fast bytes leave, in nanoseconds.
const PACE_NS: u64 = 8_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_is_what_left_in_the_last_span_and_nothing_before_it() {
        let mut pace = Pace {
            since_ns: 5,
            ..Pace::default()
        };
        pace.bytes = 1 << 20;
        assert_eq!(pace.per_ms(5 + PACE_NS - 1), 0);
        assert_eq!(pace.per_ms(5 + PACE_NS), (1 << 20) / (PACE_NS / 1_000_000));
        // Nothing left since, for a while: not what it was before.
        assert_eq!(pace.per_ms(6 + PACE_NS), (1 << 20) / (PACE_NS / 1_000_000));
        assert_eq!(pace.per_ms(5 + 2 * PACE_NS), 0);
    }
}
