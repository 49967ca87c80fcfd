//! What becomes of what the peer sent: frames go to their channels, the session's events are acted on.

use narrows_core::{ChannelId, Limits};
use narrows_pipeline::{ChunkUnpacker, Counters, Unpacking};
use narrows_session::Event;
use parking_lot::MutexGuard;

use super::Inner;
use crate::{
    Error,
    state::{ChannelState, State},
};

/// What only receivers need.
pub(crate) struct Receiving {
    /// The bounds both sides live with when this side receives.
    pub(crate) limits: Limits,
    pub(crate) unpacking: Unpacking,
}

impl Inner {
    pub(crate) fn add_channel(&self, state: &mut State, channel: ChannelId) -> ChunkUnpacker {
        let unpacker = ChunkUnpacker::new(self.receiving.unpacking.clone(), channel);
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

    /// `here`, the calling thread may tell the peer itself.
    pub(crate) fn consumed(&self, channel: ChannelId, cost: usize, here: bool) {
        if self.receiving.unpacking.whole {
            return;
        }
        let mut state = self.state.lock();
        state.machine.consumed(channel, cost);
        self.drain_events(&mut state);
        let speak = state.machine.has_messages();
        drop(state);
        // A frame may take any link, but a credit is for one, or the last for all, whose writer alone can say it.
        if speak && !(here && self.try_pump() && !self.state.lock().machine.has_messages()) {
            self.signals.to_send.notify_all();
        }
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
                    self.signals.arrived.notify_one();
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
                    let many =
                        state.incoming.len() > usize::from(self.receiving.limits.channels_max);
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
                    MutexGuard::unlocked(state, || {
                        self.sending.packing.policy.lock().feedback(&feedback)
                    });
                }
                Event::Bye { code, text } => bye = Some(Error::new(code, text)),
            }
        }
        self.signals.changed.notify_all();
        if let Some(end) = bye {
            MutexGuard::unlocked(state, || self.end(end, false));
        }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.receiving.unpacking.counters
    }
}
