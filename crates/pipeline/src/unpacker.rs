//! One channel's receiving side: frames in, chunks out in order.
//!
//! Frames arrive in order on one link, out of order over several. A frame that stands alone is unpacked by any worker;
//! one that names history waits until all chunks before it are there, and is then unpacked by the worker that made the
//! last of them. At most `depth` chunks are unpacked or wait for the consumer; frames beyond that wait packed, and
//! their credit bounds them. A raw frame is its chunk, and is checked where it arrives.
//!
//! Invariants: slot `i` of `slots` is chunk `next_deliver + i`; every chunk before `next_history` is `Done`, and
//! `history` ends with the last of them.

use std::{
    collections::VecDeque,
    fmt::Debug,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use narrows_core::{ChannelId, Clock, CodecId, DecodeError, Registry, Seq, Workspace};
use narrows_format::{Frame, chunk_check};
use parking_lot::{Condvar, Mutex};

use crate::{BufferPool, Bytes, History, INLINE_LEN, WorkerPool, padding::unpad};

/// What the unpackers of a session share.
#[derive(Clone)]
pub struct Unpacking {
    /// Codecs.
    pub registry: Arc<Registry>,
    /// Threads.
    pub pool: Arc<WorkerPool>,
    /// Buffers for chunks.
    pub buffers: Arc<BufferPool>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chunks unpacked or waiting for the consumer, at most.
    pub depth: usize,
    /// Bytes of history to keep: what was agreed.
    pub history_len_max: usize,
    /// Unpack nothing until the channel's end is known (the published pipeline's scenario B).
    pub whole: bool,
    /// Where the work is counted.
    pub counters: Arc<Counters>,
}

/// What a session's unpackers have done, for feedback to the sender. Counters only grow but for `waiting_bytes`.
#[derive(Debug, Default)]
pub struct Counters {
    /// Bytes unpacked.
    pub raw_bytes: AtomicU64,
    /// Processor time spent on it, in nanoseconds.
    pub unpack_ns: AtomicU64,
    /// Processor time spent reading packed bytes and handing raw ones on, in nanoseconds.
    pub io_ns: AtomicU64,
    /// Time in which threads that unpack or consume were ready to run and had no processor, in nanoseconds.
    pub delayed_ns: AtomicU64,
    /// Packed bytes that arrived and were not unpacked yet.
    pub waiting_bytes: AtomicU64,
    /// Time during which unpacked chunks waited for the consumer while it was busy, in nanoseconds. A consumer that has
    /// no processor is not.
    pub sink_ns: AtomicU64,
}

/// Why a channel's chunks cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    /// A frame's payload is wrong.
    #[error("chunk {seq}: {fault}")]
    Decode {
        /// Which chunk.
        seq: Seq,
        /// What is wrong with it.
        fault: DecodeError,
    },
    /// The channel ended before its chunks were complete.
    #[error("{0}")]
    Aborted(String),
}

/// A chunk in the consumer's hands.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// Its bytes.
    pub bytes: Bytes,
    /// How many of them a direct sink took already.
    pub taken: usize,
    /// What its frame took of the credit.
    pub cost: usize,
}

/// What became of a frame in [`ChunkUnpacker::accept`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// A direct sink consumed its chunk, whose frame took this much of the credit.
    Consumed(usize),
    /// Its chunk can be had, and the consumer was not told: [`ChunkUnpacker::tell`] does.
    Untold,
    /// It is on its way.
    Done,
}

/// Takes as many bytes as it can without waiting, and says how many. Called only while the consumer is idle.
pub type Direct = Box<dyn FnMut(&[u8]) -> usize + Send>;

/// Unpacks the frames of one channel. Shared by the link's reader and the consumer.
#[derive(Clone)]
pub struct ChunkUnpacker(Arc<Inner>);

struct Inner {
    shared: Unpacking,
    channel: ChannelId,
    state: Mutex<State>,
    ready: Condvar,
}

struct State {
    next_deliver: u64,
    slots: VecDeque<Slot>,
    next_history: u64,
    history: History,
    chunks: Option<u64>,
    failed: Option<UnpackError>,
    /// The consumer waits in [`ChunkUnpacker::next`]: nothing delivered is still in its hands.
    idle: bool,
    busy_since: Moment,
    direct: Option<Direct>,
}

enum Slot {
    Missing,
    Packed(Frame<Bytes>),
    Running,
    Done(Chunk),
}

impl Debug for ChunkUnpacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unpacker")
            .field("channel", &self.0.channel)
            .finish_non_exhaustive()
    }
}

impl ChunkUnpacker {
    /// An unpacker for a channel without frames so far.
    #[must_use]
    pub fn new(shared: Unpacking, channel: ChannelId) -> Self {
        let state = State {
            next_deliver: 0,
            slots: VecDeque::new(),
            next_history: 0,
            history: History::new(shared.history_len_max),
            chunks: None,
            failed: None,
            idle: false,
            busy_since: Moment::default(),
            direct: None,
        };
        Self(Arc::new(Inner {
            shared,
            channel,
            state: Mutex::new(state),
            ready: Condvar::new(),
        }))
    }

    /// Sets where chunks may go without waking the consumer.
    pub fn set_direct(&self, direct: Direct) {
        self.0.state.lock().direct = Some(direct);
    }

    /// Takes a frame that the session accepted as new. Raw ones, and small ones in order, are unpacked on the spot with
    /// `ws`.
    pub fn accept(&self, frame: Frame<Bytes>, ws: &mut Workspace) -> Accepted {
        let mut state = self.0.state.lock();
        // The link's reader may have had it in hand when the channel ended.
        if state.failed.is_some() {
            return Accepted::Done;
        }
        let Some(slot) = frame.header.seq.0.checked_sub(state.next_deliver) else {
            return Accepted::Done;
        };
        let slot = slot as usize;
        if slot >= state.slots.len() {
            state.slots.resize_with(slot + 1, || Slot::Missing);
        }
        self.0
            .shared
            .counters
            .waiting_bytes
            .fetch_add(frame.payload.len() as u64, Ordering::Relaxed);
        // Summing a raw chunk takes less than waking a worker, and what is unpacked of it takes no more memory.
        let raw = frame.header.codec == CodecId::RAW && frame.header.history_len == 0;
        let small = frame.header.raw_len as usize <= INLINE_LEN;
        let in_turn = frame.header.seq.0 == state.next_history && slot < self.0.shared.depth;
        if (raw || small && in_turn) && !self.0.shared.whole {
            state.slots[slot] = Slot::Running;
            let history = state.history.last(frame.header.history_len as usize);
            drop(state);
            self.0.unpack(&frame, &history, ws, false);
            return self.0.deliver_directly();
        }
        state.slots[slot] = Slot::Packed(frame);
        if self.0.shared.whole
            && self.0.shared.counters.waiting_bytes.load(Ordering::Relaxed) > WHOLE_LEN_MAX
        {
            drop(state);
            self.0.fail(UnpackError::Aborted(
                "the message is longer than the 1 GiB that a naive receiver holds".into(),
            ));
            return Accepted::Done;
        }
        self.0.schedule(&mut state);
        Accepted::Done
    }

    /// Wakes the consumer for what [`Accepted::Untold`] left.
    pub fn tell(&self) {
        self.0.ready.notify_one();
    }

    /// The next chunk in order; `None` at the channel's end. Waits.
    ///
    /// # Errors
    /// [`UnpackError`] when there will be no next chunk; the same one ever after.
    pub fn next(&self) -> Result<Option<Chunk>, UnpackError> {
        let mut state = self.0.state.lock();
        if !std::mem::replace(&mut state.idle, true) {
            self.0.count_consumer(&mut state.busy_since);
        }
        loop {
            if let Some(chunk) = state.pop_done() {
                state.idle = false;
                let clock = &self.0.shared.clock;
                (state.busy_since.now_ns, state.busy_since.cpu_ns) =
                    (clock.now_ns(), clock.thread_cpu_ns());
                self.0.schedule(&mut state);
                return Ok(Some(chunk));
            }
            // First: a session that ends behind the last chunk takes nothing from a channel that is whole.
            if state.chunks == Some(state.next_deliver) {
                return Ok(None);
            }
            if let Some(fault) = &state.failed {
                return Err(fault.clone());
            }
            self.0.ready.wait(&mut state);
        }
    }

    /// The channel ends after `chunks` chunks.
    pub fn finish(&self, chunks: u64) {
        let mut state = self.0.state.lock();
        state.chunks = Some(chunks);
        self.0.schedule(&mut state);
        self.0.ready.notify_all();
    }

    /// The channel ends at once; the consumer learns why. Chunks not delivered yet are dropped.
    pub fn abort(&self, why: &str) {
        self.0.fail(UnpackError::Aborted(why.into()));
    }
}

/// A thread's clocks at one moment.
#[derive(Debug, Default)]
struct Moment {
    now_ns: u64,
    cpu_ns: u64,
    delayed_ns: u64,
}

impl Inner {
    /// Counts what the consumer took for a chunk.
    fn count_consumer(&self, since: &mut Moment) {
        let (clock, counters) = (&self.shared.clock, &self.shared.counters);
        if since.now_ns == 0 {
            return;
        }
        let mut busy_ns = clock.now_ns().saturating_sub(since.now_ns);
        let cpu_ns = clock.thread_cpu_ns().saturating_sub(since.cpu_ns);
        counters
            .io_ns
            .fetch_add(cpu_ns.min(busy_ns), Ordering::Relaxed);
        if busy_ns > DELAY_MIN_NS {
            let delayed_ns = clock.thread_delayed_ns();
            let lost_ns = delayed_ns.saturating_sub(since.delayed_ns).min(busy_ns);
            since.delayed_ns = delayed_ns;
            counters.delayed_ns.fetch_add(lost_ns, Ordering::Relaxed);
            busy_ns -= lost_ns;
        }
        counters.sink_ns.fetch_add(busy_ns, Ordering::Relaxed);
    }

    fn fail(&self, fault: UnpackError) {
        let mut state = self.state.lock();
        state.failed.get_or_insert(fault);
        for slot in state.slots.drain(..) {
            if let Slot::Packed(frame) = slot {
                self.shared
                    .counters
                    .waiting_bytes
                    .fetch_sub(frame.payload.len() as u64, Ordering::Relaxed);
            }
        }
        state.direct = None;
        self.ready.notify_all();
    }

    /// Starts what may be unpacked now.
    fn schedule(self: &Arc<Self>, state: &mut State) {
        if self.shared.whole
            && state
                .chunks
                .is_none_or(|chunks| chunks > state.next_deliver + state.slots.len() as u64)
        {
            return;
        }
        for slot in 0..state.slots.len().min(self.shared.depth) {
            let seq = state.next_deliver + slot as u64;
            let Slot::Packed(frame) = &state.slots[slot] else {
                continue;
            };
            if frame.header.history_len > 0 && seq != state.next_history {
                continue;
            }
            let Slot::Packed(frame) = std::mem::replace(&mut state.slots[slot], Slot::Running)
            else {
                unreachable!()
            };
            let history = state.history.last(frame.header.history_len as usize);
            let inner = self.clone();
            self.shared
                .pool
                .spawn(move |ws| inner.unpack(&frame, &history, ws, true));
        }
    }

    /// Unpacks a frame and everything that waited for just this chunk. `wake` tells the consumer.
    fn unpack(
        self: &Arc<Self>,
        frame: &Frame<Bytes>,
        history: &History,
        ws: &mut Workspace,
        wake: bool,
    ) {
        let seq = frame.header.seq;
        match self.unpack_one(frame, history, ws) {
            Ok(bytes) => {
                let mut state = self.state.lock();
                let Some(slot) = seq
                    .0
                    .checked_sub(state.next_deliver)
                    .map(|slot| slot as usize)
                else {
                    return;
                };
                // A failed channel has no slots left.
                if slot >= state.slots.len() || state.failed.is_some() {
                    return;
                }
                state.slots[slot] = Slot::Done(Chunk {
                    bytes,
                    taken: 0,
                    cost: frame.header.cost(),
                });
                state.advance_history();
                self.schedule(&mut state);
                if slot == 0 && wake {
                    self.ready.notify_one();
                }
            }
            Err(fault) => self.fail(UnpackError::Decode { seq, fault }),
        }
    }

    fn unpack_one(
        &self,
        frame: &Frame<Bytes>,
        history: &History,
        ws: &mut Workspace,
    ) -> Result<Bytes, DecodeError> {
        let (clock, counters) = (&self.shared.clock, &self.shared.counters);
        let header = &frame.header;
        counters
            .waiting_bytes
            .fetch_sub(u64::from(header.packed_len), Ordering::Relaxed);
        let (wall, cpu) = (clock.now_ns(), clock.thread_cpu_ns());
        let (id, payload) = if header.codec == CodecId::PADDED {
            unpad(&frame.payload)?
        } else {
            (header.codec, &frame.payload[..])
        };
        let bytes = if header.codec == CodecId::RAW {
            frame.payload.clone()
        } else {
            let codec = self
                .shared
                .registry
                .by_id(id)
                .ok_or(DecodeError::Unsupported(id))?;

            if history.len() < header.history_len as usize {
                return Err(DecodeError::corrupt(
                    14,
                    "more history than the channel carried",
                ));
            }
            let mut scratch = std::mem::take(ws.get::<Scratch>());
            let history = history.assemble(&mut scratch.0);
            let mut bytes = self.shared.buffers.take(header.raw_len as usize);
            // A panic is a bug in the codec; to the channel it is damage.
            let unpacked = catch_unwind(AssertUnwindSafe(|| {
                codec.unpack(payload, history, &mut bytes, ws)
            }));
            *ws.get::<Scratch>() = scratch;
            unpacked.unwrap_or_else(|_| Err(DecodeError::corrupt(0, "the codec failed")))?;
            Arc::new(bytes)
        };
        if chunk_check(header.channel, header.seq, &bytes) != header.check {
            return Err(DecodeError::corrupt(header.len(), "chunk check differs"));
        }
        let (wall_ns, cpu_ns) = (clock.now_ns() - wall, clock.thread_cpu_ns() - cpu);
        counters.unpack_ns.fetch_add(cpu_ns, Ordering::Relaxed);
        counters
            .delayed_ns
            .fetch_add(wall_ns.saturating_sub(cpu_ns), Ordering::Relaxed);
        counters
            .raw_bytes
            .fetch_add(u64::from(header.raw_len), Ordering::Relaxed);
        Ok(bytes)
    }

    /// Offers the next chunk to the direct sink.
    fn deliver_directly(&self) -> Accepted {
        let mut state = self.state.lock();
        let Some(Slot::Done(_)) = state.slots.front() else {
            return Accepted::Done;
        };
        if state.idle
            && let Some(mut direct) = state.direct.take()
        {
            let Some(Slot::Done(chunk)) = state.slots.front_mut() else {
                unreachable!("looked at above")
            };
            let cpu = self.shared.clock.thread_cpu_ns();
            chunk.taken += direct(&chunk.bytes[chunk.taken..]);
            self.shared
                .counters
                .io_ns
                .fetch_add(self.shared.clock.thread_cpu_ns() - cpu, Ordering::Relaxed);
            let consumed = (chunk.taken == chunk.bytes.len()).then_some(chunk.cost);
            state.direct = Some(direct);
            if let Some(cost) = consumed {
                drop(state.pop_done());
                // The consumer waits for chunks, one of which may have overtaken this one on another link, but also for
                // the end that may come right behind the last of them.
                let next = matches!(state.slots.front(), Some(Slot::Done(_)));
                if next || state.chunks == Some(state.next_deliver) {
                    self.ready.notify_one();
                }
                return Accepted::Consumed(cost);
            }
        }
        Accepted::Untold
    }
}

/// Packed bytes a receiver of scenario B holds, whose credit does not bound it.
const WHOLE_LEN_MAX: u64 = 1 << 30;

/// In less nobody notices a missing processor, in nanoseconds; to ask takes microseconds.
const DELAY_MIN_NS: u64 = 1_000_000;

/// Where a worker puts history together.
#[derive(Default)]
struct Scratch(Vec<u8>);

impl State {
    fn pop_done(&mut self) -> Option<Chunk> {
        match self
            .slots
            .pop_front_if(|slot| matches!(slot, Slot::Done(_)))
        {
            Some(Slot::Done(chunk)) => {
                self.next_deliver += 1;
                Some(chunk)
            }
            _ => None,
        }
    }

    fn advance_history(&mut self) {
        while let Some(Slot::Done(chunk)) = self
            .slots
            .get((self.next_history - self.next_deliver) as usize)
        {
            self.history.push(&chunk.bytes);
            self.next_history += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use super::*;

    #[derive(Debug)]
    struct NoTime;

    impl Clock for NoTime {
        fn now_ns(&self) -> u64 {
            0
        }

        fn thread_cpu_ns(&self) -> u64 {
            0
        }
    }

    fn shared(counters: Arc<Counters>) -> Unpacking {
        Unpacking {
            registry: Arc::default(),
            pool: WorkerPool::new(1),
            buffers: BufferPool::new(0),
            clock: Arc::new(NoTime),
            depth: 4,
            history_len_max: 0,
            whole: false,
            counters,
        }
    }

    fn frame(seq: u64, bytes: &[u8]) -> Frame<Bytes> {
        let (channel, seq, len) = (ChannelId(2), Seq(seq), bytes.len() as u32);
        let check = chunk_check(channel, seq, bytes);
        let header = narrows_format::Header {
            codec: CodecId::RAW,
            channel,
            seq,
            raw_len: len,
            packed_len: len,
            history_len: 0,
            check,
        };
        let mut payload = BufferPool::new(0).take(bytes.len());
        payload.copy_from_slice(bytes);
        Frame {
            header,
            payload: Bytes::new(payload),
        }
    }

    // Goal: a channel that ended while a link's reader had a frame in hand neither holds it nor tells the sender for
    // ever that it waits.
    #[test]
    fn a_channel_that_has_failed_takes_no_more_frames() {
        let counters = Arc::new(Counters::default());
        let unpacker = ChunkUnpacker::new(shared(counters.clone()), ChannelId(2));
        // Waits for history that has not come.
        let waiting = |seq| {
            let Frame { header, payload } = frame(seq, &[7; 5000]);
            Frame {
                header: narrows_format::Header {
                    codec: CodecId(9),
                    history_len: 9,
                    ..header
                },
                payload,
            }
        };
        let mut ws = Workspace::default();
        assert_eq!(unpacker.accept(waiting(1), &mut ws), Accepted::Done);
        assert_eq!(counters.waiting_bytes.load(Ordering::Relaxed), 5000);
        unpacker.abort("enough");
        assert_eq!(unpacker.accept(waiting(2), &mut ws), Accepted::Done);
        assert_eq!(counters.waiting_bytes.load(Ordering::Relaxed), 0);
        assert!(unpacker.0.state.lock().slots.is_empty());
    }

    // Goal: of two chunks that overtook each other on two links, the later one is not forgotten behind the one that
    // went directly.
    #[test]
    fn a_chunk_that_came_early_follows_one_that_a_direct_sink_took() {
        let unpacker = ChunkUnpacker::new(shared(Arc::default()), ChannelId(2));
        unpacker.set_direct(Box::new(|bytes| bytes.len()));
        let (told, chunks) = mpsc::channel();
        let consumer = unpacker.clone();
        let consumer = thread::spawn(move || {
            while let Ok(Some(chunk)) = consumer.next() {
                told.send(chunk.bytes.to_vec()).unwrap();
            }
        });
        while !unpacker.0.state.lock().idle {
            thread::yield_now();
        }
        let mut ws = Workspace::default();
        assert_eq!(unpacker.accept(frame(1, b"later"), &mut ws), Accepted::Done);
        assert!(matches!(
            unpacker.accept(frame(0, b"first"), &mut ws),
            Accepted::Consumed(_)
        ));
        assert_eq!(
            chunks.recv_timeout(Duration::from_secs(10)).as_deref(),
            Ok(&b"later"[..])
        );
        unpacker.finish(2);
        consumer.join().unwrap();
    }
}
