//! What packers and channels that send do: chunks are admitted, frames submitted, waits end.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use narrows_core::{Ahead, ChannelId, Gauges};
use narrows_format::Frame;
use narrows_pipeline::{Bytes, INLINE_LEN, Outlet, Packing, Stopped};
use narrows_session::Session;

use super::Inner;
use crate::{Error, state::State};

/// What only senders need.
pub(crate) struct Sending {
    pub(crate) packing: Packing,
    /// Chunks of a channel under way at once.
    pub(crate) depth: u64,
    /// Packed bytes that may wait for the links before a channel that has some waiting may add to them.
    pub(crate) backlog_max: AtomicU64,
}

/// Breaks the circle between the packers, which hold their outlet, and the endpoint, which holds what packers share.
pub(crate) struct WeakOutlet(pub(crate) std::sync::Weak<Inner>);

impl Outlet for WeakOutlet {
    fn admit(&self, channel: ChannelId, most: Ahead) -> Result<Gauges, Stopped> {
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
    fn admit(&self, channel: ChannelId, most: Ahead) -> Result<Gauges, Stopped> {
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
            let few = held.admitted - held.left < self.sending.depth;
            // A decision is as good as what was known when it was made, so chunks are decided on when a worker is
            // about to be free, not a queue's length before.
            let soon = state.in_hand(channel) <= self.engine.workers() as u64;
            let none_waits = held.admitted == held.left;
            let queued_max = most
                .queued_bytes
                .min(self.sending.backlog_max.load(Relaxed));
            let short = (none_waits || state.machine.queued_bytes() <= queued_max)
                && state.machine.unconsumed_bytes(channel) <= most.unconsumed_bytes;
            if few && soon && short || self.settings.is_naive() {
                state
                    .channels
                    .get_mut(&channel)
                    .expect("looked up above")
                    .admitted += 1;
                return Ok(self.gauges_of(&state));
            }
            self.signals.changed.wait(&mut state);
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
        self.signals.changed.notify_all();
    }

    /// Sends what is queued: by the calling thread where it may and that is soon done, else by the link's writer.
    ///
    /// A wake-up costs some 10 µs and moves the bytes to another processor's cache; but a thread that waits for a slow
    /// link cannot feed the workers meanwhile, and where processors are to spare two threads read and write at once.
    fn flush(&self, here: bool) {
        if !(here && self.try_pump()) {
            self.signals.to_send.notify_one();
        }
    }

    /// Sends on the first link from the calling thread, where that is soon done.
    pub(super) fn try_pump(&self) -> bool {
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
            self.signals.changed.wait(&mut state);
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
        self.signals.to_send.notify_all();
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
            self.signals.changed.wait(&mut state);
        }
    }
}

/// From so many processors on, one thread reads chunks and sums them and another sends: raw over loopback is 1.15 times
/// as fast with two at each end and 1.2 to 1.4 times with four; with one the second is in the way.
const HANDED_ON: f64 = 2.0;
