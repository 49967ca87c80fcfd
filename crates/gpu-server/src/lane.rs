//! The ways between client and device: the control channel's answers, and lanes for the bytes of copies.
//!
//! A lane belongs to one stream of the client's choice, so its bytes come in the order in which that stream uses them,
//! and a stream that waits holds up no other's copies.

use std::{
    collections::{BTreeSet, HashMap},
    io::{BufRead, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use narrows::{ChannelReader, ChannelWriter, Code, Error, Incoming};
use narrows_gpu_wire::Reply;
use parking_lot::{Condvar, Mutex};

use crate::{
    content::{Held, Keeping},
    ended,
};

/// How long a lane may come after the message that names it: they may travel on different connections.
const LANE_WITHIN: Duration = Duration::from_secs(10);

/// Where answers go. Each leaves at once.
#[derive(Debug)]
pub struct Outbox {
    writer: Mutex<ChannelWriter>,
    /// Lanes whose number of whole reads has changed since the client was told.
    delivered: Mutex<HashMap<u32, u64>>,
}

impl Outbox {
    /// Answers go to `writer`.
    #[must_use]
    pub fn new(writer: ChannelWriter) -> Self {
        Self {
            writer: Mutex::new(writer),
            delivered: Mutex::default(),
        }
    }

    /// Sends a reply. A client that is gone is noticed by whoever reads from it.
    pub fn say(&self, reply: &Reply) {
        let mut bytes = Vec::new();
        reply.put(&mut bytes);
        self.send(&bytes);
    }

    /// Sends a reply of a call that synchronises: what was read by then is told before.
    pub fn say_synced(&self, reply: &Reply) {
        let mut bytes = Vec::new();
        // Held until it is sent: no other answer may overtake what its own read depends on.
        let mut delivered = self.delivered.lock();
        for (lane, reads) in delivered.drain() {
            Reply::Delivered { lane, reads }.put(&mut bytes);
        }
        reply.put(&mut bytes);
        self.send(&bytes);
    }

    /// Sends no more, and waits until the client has what was sent.
    ///
    /// # Errors
    /// [`Error`] when the client is gone first.
    pub fn finish(&self) -> Result<(), Error> {
        let mut writer = self.writer.lock();
        writer.finish()?;
        writer.wait_consumed()
    }

    fn send(&self, bytes: &[u8]) {
        let mut writer = self.writer.lock();
        let sent = writer.write_all(bytes).and_then(|()| writer.flush());
        if let Err(fault) = sent {
            tracing::debug!("an answer is lost: {fault}");
        }
    }
}

/// A channel that carries the bytes of copies, both ways.
#[derive(Debug)]
pub struct Lane {
    number: u32,
    reader: Mutex<ChannelReader>,
    writer: Mutex<ChannelWriter>,
    reads: AtomicU64,
    /// Copies to the device take turns, and those from it.
    turns: [Turns; 2],
}

/// The order in which copies use one direction of a lane: that of their messages, though streams may share it. A copy
/// waits for earlier messages only, so no two wait for each other.
#[derive(Debug, Default)]
struct Turns {
    state: Mutex<TurnsState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct TurnsState {
    issued: u64,
    now: u64,
    /// Turns that ended before they came.
    given_up: BTreeSet<u64>,
}

/// A copy's turn on a lane.
#[derive(Debug)]
pub struct Turn {
    lane: Arc<Lane>,
    back: bool,
    number: u64,
}

impl Turn {
    /// The next turn of this lane; `back` for a copy from the device.
    #[must_use]
    pub fn next(lane: Arc<Lane>, back: bool) -> Self {
        let mut state = lane.turns[usize::from(back)].state.lock();
        let number = state.issued;
        state.issued += 1;
        drop(state);
        Self { lane, back, number }
    }

    fn turns(&self) -> &Turns {
        &self.lane.turns[usize::from(self.back)]
    }

    fn wait(&self) -> &Lane {
        let turns = self.turns();
        let mut state = turns.state.lock();
        while state.now != self.number {
            turns.changed.wait(&mut state);
        }
        &self.lane
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let turns = self.turns();
        let mut state = turns.state.lock();
        state.given_up.insert(self.number);
        loop {
            let now = state.now;
            if !state.given_up.remove(&now) {
                break;
            }
            state.now += 1;
        }
        drop(state);
        turns.changed.notify_all();
    }
}

/// The lanes of a session, as they come.
#[derive(Debug, Default)]
pub struct Lanes {
    state: Mutex<LanesState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LanesState {
    found: HashMap<u32, Arc<Lane>>,
    over: bool,
}

impl Lanes {
    /// Takes a channel for lane `number`.
    pub fn add(&self, number: u32, incoming: Incoming) {
        let lane = Lane {
            number,
            reader: Mutex::new(incoming.reader),
            writer: Mutex::new(incoming.writer),
            reads: AtomicU64::new(0),
            turns: Default::default(),
        };
        self.state.lock().found.insert(number, Arc::new(lane));
        self.changed.notify_all();
    }

    /// The lane of this number; waits a while for it.
    #[must_use]
    pub fn get(&self, number: u32) -> Option<Arc<Lane>> {
        let mut state = self.state.lock();
        loop {
            if let Some(lane) = state.found.get(&number) {
                return Some(lane.clone());
            }
            if state.over || self.changed.wait_for(&mut state, LANE_WITHIN).timed_out() {
                return None;
            }
        }
    }

    /// No more come.
    pub fn close(&self) {
        self.state.lock().over = true;
        self.changed.notify_all();
    }

    /// Lets go of all of them.
    pub fn clear(&self) {
        self.state.lock().found.clear();
    }
}

/// Where the bytes of a copy to the device come from.
#[derive(Debug)]
pub enum Source {
    /// They came with the message.
    Inline(Vec<u8>),
    /// They come next on this lane.
    Lane(Turn),
    /// They come next on this lane, and are kept.
    Kept(Turn, Keeping),
    /// They came before and were kept.
    Held(Held),
}

impl Source {
    /// Takes exactly `len` bytes, in pieces. After `put` has failed the rest is still taken, so that the lane's next
    /// copy finds its own.
    ///
    /// # Errors
    /// [`Error`] when the client is gone first; what `put` returned otherwise.
    pub fn take<E: From<Error>>(
        self,
        len: u64,
        mut put: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (turn, mut keeping) = match self {
            Self::Inline(bytes) => return put(&bytes),
            Self::Held(held) => return held.take(put),
            Self::Lane(turn) => (turn, None),
            Self::Kept(turn, keeping) => (turn, Some(keeping)),
        };
        let lane = turn.wait();
        let mut reader = lane.reader.lock();
        let (mut left, mut result) = (len, Ok(()));
        keeping = keeping.filter(Keeping::is_wanted);
        let mut kept = Vec::with_capacity(keeping.as_ref().map_or(0, |_| len as usize));
        while left > 0 {
            let bytes = reader.fill_buf().map_err(Error::from)?;
            if bytes.is_empty() {
                return Err(ended(Code::PROTOCOL, "a lane ended within a copy").into());
            }
            let taken = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            if result.is_ok() {
                result = put(&bytes[..taken]);
            }
            if keeping.is_some() {
                kept.extend_from_slice(&bytes[..taken]);
            }
            reader.consume(taken);
            left -= taken as u64;
        }
        drop(reader);
        // The next copy need not wait for the hash.
        drop(turn);
        match keeping {
            Some(keeping) => result.and(keeping.fill(kept).map_err(E::from)),
            None => result,
        }
    }
}

/// Where the bytes of a copy from the device go.
#[derive(Debug)]
pub enum Sink {
    /// Into the answer of this call.
    Inline {
        /// Which.
        call: u64,
        /// Where answers go.
        outbox: Arc<Outbox>,
    },
    /// To this lane.
    Lane {
        /// Which.
        turn: Turn,
        /// Where its progress is noted.
        outbox: Arc<Outbox>,
    },
}

impl Sink {
    /// Sends `len` bytes that `get` makes, in order. Where it fails they are zeros on a lane, since the client waits for
    /// as many, and none in an answer.
    ///
    /// # Errors
    /// [`Error`] when the client is gone first; what `get` returned otherwise.
    pub fn fill<E: From<Error>>(
        self,
        len: u64,
        mut get: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Inline { call, outbox } => {
                let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
                let result = get(&mut bytes);
                if result.is_err() {
                    bytes.clear();
                }
                outbox.say(&Reply::Data { call, bytes });
                result
            }
            Self::Lane { turn, outbox } => {
                let lane = turn.wait();
                let mut writer = lane.writer.lock();
                let (mut left, mut result) = (len, Ok(()));
                while left > 0 {
                    let mut buf = writer.buffer();
                    buf.truncate(buf.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
                    left -= buf.len() as u64;
                    if result.is_ok() {
                        result = get(&mut buf);
                    }
                    if result.is_err() {
                        buf.fill(0);
                    }
                    writer.push(buf)?;
                }
                drop(writer);
                let reads = lane.reads.fetch_add(1, Relaxed) + 1;
                let mut delivered = outbox.delivered.lock();
                let told = delivered.entry(lane.number).or_default();
                *told = reads.max(*told);
                result
            }
        }
    }
}
