//! What the threads of an endpoint share, and what they do to its state: links, channels, packers and keeper.
//!
//! Invariant: `state` is held for moments only, never while a thread waits for a socket. Whoever changes what others
//! wait for notifies the condition that names it.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use narrows_core::{Ahead, ChannelId, Gauges, Limits};
use narrows_format::Frame;
use narrows_pipeline::{
    Bytes, ChunkUnpacker, Counters, INLINE_LEN, Outlet, Packing, Stopped, UnpackError, Unpacking,
};
use narrows_session::{Code, Event, Session};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::{
    ChannelReader, ChannelWriter, Engine, Error, Settings,
    state::{ChannelState, State},
    tallies::Tallies,
};

pub(crate) struct Inner {
    pub(crate) engine: Engine,
    pub(crate) settings: Settings,
    /// The bounds both sides live with when this side receives.
    pub(crate) limits: Limits,
    pub(crate) packing: Packing,
    pub(crate) unpacking: Unpacking,
    pub(crate) state: Mutex<State>,
    /// A link may have something to send.
    pub(crate) to_send: Condvar,
    /// A frame left, credit came, a channel or the session ended.
    pub(crate) changed: Condvar,
    /// The peer opened a channel, or the session ended. Apart from `changed`, which small messages touch all the time.
    pub(crate) arrived: Condvar,
    /// The keeper should look now.
    pub(crate) monitor_wake: Condvar,
    pub(crate) began_ns: u64,
    /// Chunks of a channel under way at once.
    pub(crate) depth: u64,
    pub(crate) tallies: Tallies,
    /// Packed bytes that may wait for the links before a channel that has some waiting may add to them.
    pub(crate) backlog_max: AtomicU64,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Breaks the circle between the packers, which hold their outlet, and the endpoint, which holds what packers share.
pub(crate) struct WeakOutlet(pub(crate) std::sync::Weak<Inner>);

impl Outlet for WeakOutlet {
    fn admit(&self, channel: ChannelId, most: Ahead) -> Result<(), Stopped> {
        self.0.upgrade().ok_or(Stopped)?.admit(channel, most)
    }

    fn packed(&self, channel: ChannelId, frames: &mut dyn Iterator<Item = Frame<Bytes>>) {
        if let Some(inner) = self.0.upgrade() {
            inner.packed(channel, frames);
        }
    }

    fn flush(&self, here: bool) {
        if let Some(inner) = self.0.upgrade() {
            inner.flush(here);
        }
    }

    fn gauges(&self) -> Gauges {
        self.0
            .upgrade()
            .map(|inner| inner.gauges())
            .unwrap_or_default()
    }
}

impl Inner {
    pub(crate) fn ends(
        self: &Arc<Self>,
        channel: ChannelId,
        unpacker: ChunkUnpacker,
    ) -> (ChannelWriter, ChannelReader) {
        (
            ChannelWriter::new(self.clone(), channel),
            ChannelReader::new(self.clone(), channel, unpacker),
        )
    }

    pub(crate) fn add_channel(&self, state: &mut State, channel: ChannelId) -> ChunkUnpacker {
        let unpacker = ChunkUnpacker::new(self.unpacking.clone(), channel);
        let held = ChannelState {
            unpacker: unpacker.clone(),
            admitted: 0,
            packed: 0,
            left: 0,
            held: Vec::new(),
            ended: None,
        };
        state.channels.insert(channel, held);
        unpacker
    }

    pub(crate) fn unpacker(&self, channel: ChannelId) -> Option<ChunkUnpacker> {
        self.state
            .lock()
            .channels
            .get(&channel)
            .map(|held| held.unpacker.clone())
    }

    fn admit(&self, channel: ChannelId, most: Ahead) -> Result<(), Stopped> {
        let mut state = self.state.lock();
        loop {
            if state.ended.is_some() {
                return Err(Stopped);
            }
            let held = state
                .channels
                .get(&channel)
                .filter(|held| held.ended.is_none())
                .ok_or(Stopped)?;
            // A naive channel holds its whole message, as the scheme it reproduces does.
            let few = held.admitted - held.left < self.depth;
            // A decision is as good as what was known when it was made, so chunks are decided on when a worker is
            // about to be free, not a queue's length before.
            let soon = state.in_hand(channel) <= self.engine.workers() as u64;
            let none_waits = held.admitted == held.left;
            let queued_max = most.queued_bytes.min(self.backlog_max.load(Relaxed));
            let short = (none_waits || state.machine.queued_bytes() <= queued_max)
                && state.machine.unconsumed_bytes(channel) <= most.unconsumed_bytes;
            if few && soon && short || self.settings.is_naive() {
                state
                    .channels
                    .get_mut(&channel)
                    .expect("looked up above")
                    .admitted += 1;
                return Ok(());
            }
            self.changed.wait(&mut state);
        }
    }

    fn packed(&self, channel: ChannelId, frames: &mut dyn Iterator<Item = Frame<Bytes>>) {
        let mut state = self.state.lock();
        if let Some(held) = state.channels.get_mut(&channel) {
            held.packed += 1;
        }
        for frame in frames {
            self.tallies
                .sent_raw
                .fetch_add(frame.header.raw_len.into(), Relaxed);
            if self.settings.is_naive() {
                if let Some(held) = state.channels.get_mut(&channel) {
                    held.held.push(frame);
                }
            } else {
                state.machine.submit(frame);
            }
        }
        self.changed.notify_all();
    }

    /// Sends what is queued: by the calling thread where it may and that is soon done, else by the link's writer.
    ///
    /// A wake-up costs some 10 µs and moves the bytes to another processor's cache; but a thread that waits for a slow
    /// link cannot feed the workers meanwhile, and where processors are to spare two threads read and write at once.
    fn flush(&self, here: bool) {
        if !(here && self.try_pump()) {
            self.to_send.notify_one();
        }
    }

    /// Sends on the first link from the calling thread, where that is soon done.
    fn try_pump(&self) -> bool {
        let state = self.state.lock();
        let alone = self.processors(&state) < HANDED_ON;
        let soon =
            state.machine.queued_bytes() <= INLINE_LEN as u64 || alone && self.link_is_fast();
        let link = state.links.values().next().filter(|_| soon).cloned();
        drop(state);
        link.is_some_and(|link| link.try_pump(self))
    }

    /// Processors that this end has for packing: of one host with both ends, half.
    pub(crate) fn processors(&self, state: &State) -> f64 {
        let ends = if state.machine.shares_host() {
            2.0
        } else {
            1.0
        };
        f64::from(self.engine.workers_at_once()) / ends
    }

    /// Whether a chunk leaves in less time than two wake-ups take.
    fn link_is_fast(&self) -> bool {
        const FAST_BYTES_PER_US: u64 = 800;
        let sending_us = self.tallies.sending_ns.load(Relaxed) / 1000;
        self.tallies.sent_wire.load(Relaxed) > FAST_BYTES_PER_US * sending_us.max(1)
    }

    pub(crate) fn finish(&self, channel: ChannelId) -> Result<(), Error> {
        let mut state = self.state.lock();
        // Frames still with workers come first: the count of chunks must be final.
        while state.end_of(channel).is_none() && state.in_hand(channel) > 0 {
            self.changed.wait(&mut state);
        }
        let held = state
            .channels
            .get_mut(&channel)
            .map(|held| std::mem::take(&mut held.held));
        held.into_iter()
            .flatten()
            .for_each(|frame| state.machine.submit(frame));
        if let Some(end) = state.end_of(channel) {
            return Err(end);
        }
        state.machine.finish(channel);
        self.drain_events(&mut state);
        drop(state);
        self.to_send.notify_all();
        Ok(())
    }

    pub(crate) fn wait_consumed(&self, channel: ChannelId) -> Result<(), Error> {
        self.wait_machine(channel, |machine| machine.is_drained(channel))
    }

    pub(crate) fn wait_unconsumed(&self, channel: ChannelId, bytes_max: u64) -> Result<(), Error> {
        self.wait_machine(channel, |machine| {
            machine.unconsumed_bytes(channel) <= bytes_max
        })
    }

    pub(crate) fn wait_unconsumed_chunks(
        &self,
        channel: ChannelId,
        chunks_max: usize,
    ) -> Result<(), Error> {
        self.wait_machine(channel, |machine| {
            machine.unconsumed_chunks(channel) <= chunks_max
        })
    }

    fn wait_machine(
        &self,
        channel: ChannelId,
        done: impl Fn(&Session<Bytes>) -> bool,
    ) -> Result<(), Error> {
        let mut state = self.state.lock();
        loop {
            // Of an aborted channel nothing is left to wait for, which is not what was waited for.
            if let Some((code, text)) = state.machine.aborted(channel) {
                return Err(Error::new(*code, text));
            }
            if done(&state.machine) {
                return Ok(());
            }
            if let Some(end) = state.end_of(channel) {
                return Err(end);
            }
            self.changed.wait(&mut state);
        }
    }

    pub(crate) fn abort(&self, channel: ChannelId, code: Code, text: &str) {
        let mut state = self.state.lock();
        state.machine.abort(channel, code, text);
        if let Some(held) = state.channels.get_mut(&channel) {
            held.ended.get_or_insert(Error::new(code, text));
            held.unpacker.abort(text);
        }
        drop(state);
        self.to_send.notify_all();
        self.changed.notify_all();
    }

    /// `here`, the calling thread may tell the peer itself.
    pub(crate) fn consumed(&self, channel: ChannelId, cost: usize, here: bool) {
        if self.unpacking.whole {
            return;
        }
        let mut state = self.state.lock();
        state.machine.consumed(channel, cost);
        self.drain_events(&mut state);
        let speak = state.machine.has_messages();
        drop(state);
        // A frame may take any link, but a credit is for one, or the last for all, whose writer alone can say it.
        if speak && !(here && self.try_pump() && !self.state.lock().machine.has_messages()) {
            self.to_send.notify_all();
        }
    }

    pub(crate) fn end_of(&self, channel: ChannelId) -> Error {
        self.state
            .lock()
            .end_of(channel)
            .unwrap_or_else(|| Error::new(Code::FAILED, "the channel has ended"))
    }

    pub(crate) fn unpack_failed(&self, channel: ChannelId, fault: &UnpackError) -> Error {
        match fault {
            UnpackError::Decode { .. } => {
                let end = Error::new(Code::CORRUPT, format!("received damaged data: {fault}"));
                self.end(end.clone(), true);
                end
            }
            // Where nobody else ended it, the unpacker did: a message that is longer than it holds.
            UnpackError::Aborted(why) => {
                let ended = self.state.lock().end_of(channel);
                ended.unwrap_or_else(|| Error::new(Code::LIMIT, why.clone()))
            }
        }
    }

    /// Ends the session, once. `say` tells the peer; the link writers then send what is queued and close.
    pub(crate) fn end(&self, end: Error, say: bool) {
        let mut state = self.state.lock();
        if state.ended.is_some() {
            return;
        }
        tracing::debug!(code = end.code().0, text = end.text(), "session ends");
        if say {
            state.machine.bye(end.code(), end.text());
        }
        for held in state.channels.values_mut() {
            held.unpacker.abort(end.text());
        }
        state.ended = Some(end);
        let links: Vec<_> = state.links.values().cloned().collect();
        drop(state);
        self.to_send.notify_all();
        self.changed.notify_all();
        self.arrived.notify_all();
        self.monitor_wake.notify_all();
        for link in links {
            link.retire();
        }
    }

    /// Waits until every link is closed, or long enough: a process that exits earlier takes its last words with it.
    pub(crate) fn wait_linkless(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let mut state = self.state.lock();
        while !state.links.is_empty() && !self.changed.wait_until(&mut state, until).timed_out() {}
    }

    /// Acts on what the state machine reports. Called with the state locked, so that a channel exists before the
    /// first frame of it can be looked up.
    pub(crate) fn drain_events(&self, state: &mut MutexGuard<'_, State>) {
        let mut bye = None;
        while let Some(event) = state.machine.poll_event() {
            match event {
                Event::Opened { channel, service } => {
                    self.add_channel(state, channel);
                    state.incoming.push_back((channel, service));
                    self.arrived.notify_one();
                }
                Event::Finished { channel, chunks } => {
                    if let Some(held) = state.channels.get(&channel) {
                        held.unpacker.finish(chunks);
                    }
                }
                Event::Aborted {
                    channel,
                    code,
                    text,
                } => {
                    // One that waits to be taken is taken all the same and then says why, but they must not pile up.
                    let many = state.incoming.len() > usize::from(self.limits.channels_max);
                    if many
                        && state
                            .incoming
                            .iter()
                            .any(|(waiting, _)| *waiting == channel)
                    {
                        state.incoming.retain(|(waiting, _)| *waiting != channel);
                        state
                            .channels
                            .remove(&channel)
                            .inspect(|held| held.unpacker.abort(&text));
                    } else if let Some(held) = state.channels.get_mut(&channel) {
                        held.unpacker.abort(&text);
                        held.ended.get_or_insert(Error::new(code, text));
                    }
                }
                Event::Closed(channel) => drop(state.channels.remove(&channel)),
                Event::Feedback(mut feedback) => {
                    feedback.now_ns = self.engine.clock.now_ns() - self.began_ns;
                    // The policy's lock is never held while the state's is waited for, so this order is safe.
                    MutexGuard::unlocked(state, || self.packing.policy.lock().feedback(&feedback));
                }
                Event::Bye { code, text } => bye = Some(Error::new(code, text)),
            }
        }
        self.changed.notify_all();
        if let Some(end) = bye {
            MutexGuard::unlocked(state, || self.end(end, false));
        }
    }

    /// The reader of a channel is gone: what was kept for an ended one goes too.
    pub(crate) fn forget(&self, channel: ChannelId) {
        let mut state = self.state.lock();
        if state
            .channels
            .get(&channel)
            .is_some_and(|held| held.ended.is_some())
        {
            state.channels.remove(&channel);
        }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.unpacking.counters
    }
}

/// From so many processors on, one thread reads chunks and sums them and another sends: raw over loopback is 1.15 times
/// as fast with two at each end and 1.2 to 1.4 times with four; with one the second is in the way.
const HANDED_ON: f64 = 2.0;
/// How long an end waits for the peer to hear of it: what went before it must drain from the link first.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(2);
