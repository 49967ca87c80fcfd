//! What a link receives: frames to the session and to the channels they belong to.
//!
//! Upstream: [`ReadAhead`]; downstream: `Session::on_frame` and the channel's `ChunkUnpacker`. It never waits for the peer
//! to read: the peer may wait for it to.

use std::{
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use narrows_core::{ChannelId, CodecId, DecodeError, Workspace};
use narrows_format::{Frame, HEADER_LEN_MAX, Header, chunk_check};
use narrows_pipeline::{Accepted, Bytes, ChunkUnpacker, INLINE_LEN};
use narrows_session::Accept;

use super::{Link, LinkFault, ReadAhead};
use crate::inner::Inner;

pub(super) struct Reader<'a> {
    inner: &'a Arc<Inner>,
    link: &'a Link,
    ahead: ReadAhead,
    untold: Untold,
    ws: Workspace,
}

/// Chunks whose consumer was not told. To wake it costs as much as to copy a chunk and may take the processor from this
/// thread, so it is told of several at once where the next has come already.
#[derive(Default)]
struct Untold {
    consumer: Option<(ChannelId, ChunkUnpacker)>,
    len: usize,
}

impl Untold {
    fn add(&mut self, channel: ChannelId, consumer: ChunkUnpacker, len: usize) {
        if self
            .consumer
            .as_ref()
            .is_some_and(|(other, _)| *other != channel)
        {
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
    pub(super) fn new(inner: &'a Arc<Inner>, link: &'a Link, ahead: ReadAhead) -> Self {
        Self {
            inner,
            link,
            ahead,
            untold: Untold::default(),
            ws: Workspace::default(),
        }
    }

    /// Called before `len` bytes are read: nobody waits for a chunk that is here because the next is not.
    fn tell_before(&mut self, len: usize) {
        if self.untold.consumer.is_some() {
            let come = self.ahead.len() + self.link.probe.unread().unwrap_or(0) as usize;
            if come < len || self.untold.len >= UNTOLD_LEN_MAX {
                self.untold.tell();
            }
        }
    }

    /// Reads frames until the link ends; `Ok` where it ends between two frames.
    pub(super) fn run(mut self) -> Result<(), LinkFault> {
        let inner = self.inner;
        loop {
            self.tell_before(HEADER_LEN_MAX);
            let Some(header) = self.read_header()? else {
                return Ok(());
            };
            inner
                .tallies
                .received_wire
                .fetch_add(header.wire_len() as u64, Relaxed);
            let now_ns = inner.engine.clock.now_ns();
            self.link.heard_ns.store(now_ns, Relaxed);
            if header.channel == ChannelId::CONTROL {
                let payload = self.read_payload(&header)?;
                check_control(&header, &payload)?;
                let mut state = inner.state.lock();
                state.machine.on_control(self.link.id, &payload)?;
                inner.drain_events(&mut state);
                // Else credit wakes the writer, which then takes the link from the thread that was sending.
                let waits = state.links.keys().any(|&link| state.machine.can_send(link));
                drop(state);
                if waits {
                    inner.signals.to_send.notify_all();
                }
                continue;
            }
            self.ahead.may_watch =
                header.codec == CodecId::RAW || header.raw_len as usize <= INLINE_LEN;
            inner.tallies.chunk_ns.store(now_ns, Relaxed);
            let payload = self.read_payload(&header)?;
            let Some(unpacker) = self.on_frame(&header)? else {
                continue;
            };
            match unpacker.accept(Frame { header, payload }, &mut self.ws) {
                // This thread must not wait for the peer to read: the peer may wait for it to.
                Accepted::Consumed(cost) => inner.consumed(header.channel, cost, false),
                Accepted::Untold => {
                    self.untold
                        .add(header.channel, unpacker, header.raw_len as usize)
                }
                Accepted::Done => {}
            }
        }
    }

    /// The next frame's header, checked against its channel; `None` at an orderly end. One lock for all of it.
    fn read_header(&mut self) -> Result<Option<Header>, LinkFault> {
        let Self { inner, link, .. } = *self;
        self.ahead.read_header(|bytes| {
            let mut state = None;
            let header = Header::parse(bytes, &inner.receiving.limits, |channel| {
                let state = state.insert(inner.state.lock());
                state.machine.next_seq(link.id, channel)
            })?;
            if header.channel != ChannelId::CONTROL {
                let state = state.get_or_insert_with(|| inner.state.lock());
                state.machine.check_frame(&header)?;
            }
            Ok(header)
        })
    }

    /// A data frame has come whole: who unpacks it, `None` if nobody does. One lock for all of it.
    fn on_frame(&self, header: &Header) -> Result<Option<ChunkUnpacker>, LinkFault> {
        let inner = self.inner;
        let mut state = inner.state.lock();
        if state.machine.on_frame(header)? == Accept::Drop {
            return Ok(None);
        }
        let unpacker = state
            .channels
            .get(&header.channel)
            .map(|held| held.unpacker.clone());
        if inner.receiving.unpacking.whole {
            // Nothing is consumed before the end, so credit must not wait for it.
            state.machine.consumed(header.channel, header.cost());
            drop(state);
            inner.signals.to_send.notify_all();
        }
        Ok(unpacker)
    }

    fn read_payload(&mut self, header: &Header) -> io::Result<Bytes> {
        self.tell_before(header.packed_len as usize);
        let mut payload = self.inner.engine.buffers.take(header.packed_len as usize);
        let (clock, counters) = (&self.inner.engine.clock, self.inner.counters());
        let cpu = clock.thread_cpu_ns();
        self.ahead.fill_payload(&mut payload)?;
        counters
            .io_ns
            .fetch_add(clock.thread_cpu_ns() - cpu, Relaxed);
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

/// A consumer is told of chunks before they are this many bytes, even where more have come.
const UNTOLD_LEN_MAX: usize = 256 << 10;
