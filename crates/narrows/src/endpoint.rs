//! One side of a session: what may be asked of it.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use narrows_core::Gauges;
use narrows_session::Code;

use crate::{
    ChannelReader, ChannelWriter, End,
    inner::{Inner, LAST_WORDS},
};

/// What an endpoint has done so far. Bytes and nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Raw bytes of the chunks that went out.
    pub sent_raw: u64,
    /// Bytes written to the links, headers and control frames included.
    pub sent_wire: u64,
    /// Raw bytes of the chunks that came in.
    pub received_raw: u64,
    /// Bytes read from the links.
    pub received_wire: u64,
    /// Time since the session began.
    pub elapsed_ns: u64,
    /// Links lost and replaced.
    pub resumed: u64,
}

/// A channel that the peer opened.
#[derive(Debug)]
pub struct Incoming {
    /// What the peer says it is for.
    pub service: String,
    /// To the peer.
    pub writer: ChannelWriter,
    /// From the peer.
    pub reader: ChannelReader,
}

/// One side of a session. Dropping the last handle ends it; [`Endpoint::close`] ends it well.
#[derive(Debug)]
pub struct Endpoint {
    pub(crate) inner: Arc<Inner>,
}

impl Endpoint {
    /// Opens a channel; the peer finds it in [`Endpoint::accept`] with `service` to say what it is for.
    ///
    /// # Errors
    /// [`End`] when the session has ended or the peer allows no more channels.
    pub fn open(&self, service: &str) -> Result<(ChannelWriter, ChannelReader), End> {
        let mut state = self.inner.state.lock();
        if let Some(end) = &state.ended {
            return Err(end.clone());
        }
        let channel = state
            .machine
            .open(service)
            .map_err(|fault| End::new(fault.code(), fault.to_string()))?;
        let unpacker = self.inner.add_channel(&mut state, channel);
        drop(state);
        self.inner.to_send.notify_all();
        Ok(self.inner.ends(channel, unpacker))
    }

    /// The next channel that the peer opened; `None` when the session has ended well. Waits.
    ///
    /// # Errors
    /// [`End`] when the session ended otherwise.
    pub fn accept(&self) -> Result<Option<Incoming>, End> {
        let mut state = self.inner.state.lock();
        loop {
            if let Some((channel, service)) = state.incoming.pop_front() {
                let Some(unpacker) = state
                    .channels
                    .get(&channel)
                    .map(|held| held.unpacker.clone())
                else {
                    continue;
                };
                drop(state);
                let (writer, reader) = self.inner.ends(channel, unpacker);
                return Ok(Some(Incoming {
                    service,
                    writer,
                    reader,
                }));
            }
            match &state.ended {
                Some(end) if end.code == Code::DONE => return Ok(None),
                Some(end) => return Err(end.clone()),
                None => self.inner.arrived.wait(&mut state),
            }
        }
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let Inner {
            tallies,
            engine,
            unpacking,
            began_ns,
            ..
        } = &*self.inner;
        Stats {
            sent_raw: tallies.sent_raw.load(Relaxed),
            sent_wire: tallies.sent_wire.load(Relaxed),
            received_raw: unpacking.counters.raw_bytes.load(Relaxed),
            received_wire: tallies.received_wire.load(Relaxed),
            elapsed_ns: engine.clock.now_ns() - began_ns,
            resumed: tallies.resumed.load(Relaxed),
        }
    }

    /// Processors that this end has for packing: of one host with both ends, half.
    #[must_use]
    pub fn processors(&self) -> f64 {
        self.inner.processors(&self.inner.state.lock())
    }

    /// State of links and workers at this moment.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        self.inner.gauges()
    }

    /// Bounds the packed bytes that wait for the links, all channels together: what is taken in is then not much older
    /// than what leaves. A channel of which nothing waits may always add one chunk. Unbounded at first.
    pub fn set_backlog_max(&self, bytes: u64) {
        self.inner.backlog_max.store(bytes, Relaxed);
        self.inner.changed.notify_all();
    }

    /// The session's end, once it has come.
    #[must_use]
    pub fn ended(&self) -> Option<End> {
        self.inner.state.lock().ended.clone()
    }

    /// Ends the session well: says so, sends what was queued, and waits until the links are closed.
    pub fn close(&self) {
        self.inner
            .end(End::new(Code::DONE, "the work is done"), true);
        self.inner.wait_linkless(LAST_WORDS);
    }

    /// Ends the session at once, tells the peer why, and waits a moment for it to hear.
    pub fn fail(&self, code: Code, text: &str) {
        self.inner.end(End::new(code, text), true);
        self.inner.wait_linkless(LAST_WORDS);
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.inner
            .end(End::new(Code::CANCELLED, "the peer gave up"), true);
    }
}
