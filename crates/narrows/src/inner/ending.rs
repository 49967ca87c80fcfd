//! How channels and the session end, and who hears of it.

use std::time::{Duration, Instant};

use narrows_core::ChannelId;
use narrows_pipeline::UnpackError;
use narrows_session::Code;

use super::Inner;
use crate::Error;

impl Inner {
    pub(crate) fn abort(&self, channel: ChannelId, code: Code, text: &str) {
        let mut state = self.state.lock();
        state.machine.abort(channel, code, text);
        if let Some(held) = state.channels.get_mut(&channel) {
            held.ended.get_or_insert(Error::new(code, text));
            held.unpacker.abort(text);
        }
        drop(state);
        self.signals.to_send.notify_all();
        self.signals.changed.notify_all();
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
        self.signals.to_send.notify_all();
        self.signals.changed.notify_all();
        self.signals.arrived.notify_all();
        self.signals.monitor_wake.notify_all();
        for link in links {
            link.retire();
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

    /// Waits until every link is closed, or long enough: a process that exits earlier takes its last words with it.
    pub(crate) fn wait_linkless(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let mut state = self.state.lock();
        while !state.links.is_empty()
            && !self
                .signals
                .changed
                .wait_until(&mut state, until)
                .timed_out()
        {}
    }
}

/// How long an end waits for the peer to hear of it: what went before it must drain from the link first.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(2);
