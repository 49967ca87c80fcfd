//! One side of a session: what may be asked of it.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use narrows_core::Gauges;
use narrows_io::{
    metrics::{Kind, Metric},
    transport::Identity,
};
use narrows_session::Code;

use crate::{
    ChannelReader, ChannelWriter, Error,
    inner::{Inner, LAST_WORDS},
};

/// What an endpoint has done so far. Bytes and nanoseconds.
///
/// ```
/// # use std::io::{Read, Write};
/// # let listener = narrows::listen("127.0.0.1:0", narrows::Auth::None)?;
/// # let here = narrows::connect(&listener.local().to_string(), narrows::Auth::None)?;
/// # let there = listener.accept()?;
/// let (mut writer, _) = here.open("zeroes")?;
/// writer.write_all(&[0; 100_000])?;
/// writer.finish()?;
/// let mut incoming = there.accept()?.expect("a channel");
/// std::io::copy(&mut incoming.reader, &mut std::io::sink())?;
/// assert_eq!(there.stats().received_raw, 100_000);
/// assert_eq!(here.stats().sent_raw, 100_000);
/// # Ok::<(), std::io::Error>(())
/// ```
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

impl Stats {
    /// The same for Prometheus; see [`narrows_io::metrics`].
    #[must_use]
    pub fn metrics(&self) -> Vec<Metric> {
        let rows = [
            (
                "sent_raw_bytes",
                "Bytes taken for sending, before packing",
                self.sent_raw,
            ),
            ("sent_wire_bytes", "Bytes written to links", self.sent_wire),
            (
                "received_raw_bytes",
                "Bytes received, after unpacking",
                self.received_raw,
            ),
            (
                "received_wire_bytes",
                "Bytes read from links",
                self.received_wire,
            ),
            ("links_resumed", "Links lost and replaced", self.resumed),
        ];
        let metric = |(name, help, value)| {
            Metric::one(format!("narrows_{name}"), Kind::Counter, help, value as f64)
        };
        rows.map(metric).into()
    }
}

/// A channel that the peer opened.
///
/// ```
/// # use std::io::{Read, Write};
/// # let listener = narrows::listen("127.0.0.1:0", narrows::Auth::None)?;
/// # let here = narrows::connect(&listener.local().to_string(), narrows::Auth::None)?;
/// # let there = listener.accept()?;
/// let (mut writer, _) = here.open("greeting")?;
/// writer.write_all(b"hello")?;
/// writer.finish()?;
/// let mut incoming = there.accept()?.expect("a channel");
/// let mut text = String::new();
/// incoming.reader.read_to_string(&mut text)?;
/// assert_eq!((incoming.service.as_str(), text.as_str()), ("greeting", "hello"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Incoming {
    /// What the peer says it is for.
    pub service: String,
    /// To the peer. Keep it while you read, though you have nothing to say: dropped unfinished, it aborts the channel.
    pub writer: ChannelWriter,
    /// From the peer.
    pub reader: ChannelReader,
}

/// One side of a session: channels of it are opened by either side.
///
/// ```
/// # use std::io::{Read, Write};
/// # let listener = narrows::listen("127.0.0.1:0", narrows::Auth::None)?;
/// # let here = narrows::connect(&listener.local().to_string(), narrows::Auth::None)?;
/// # let there = listener.accept()?;
/// let (mut question, mut answer) = here.open("double")?;
/// question.write_all(&[21])?;
/// question.finish()?;
///
/// let mut asked = there.accept()?.expect("a channel");
/// let mut number = Vec::new();
/// asked.reader.read_to_end(&mut number)?;
/// asked.writer.write_all(&[2 * number[0]])?;
/// asked.writer.finish()?;
///
/// number.clear();
/// answer.read_to_end(&mut number)?;
/// assert_eq!(number, [42]);
/// here.close();
/// assert!(there.accept()?.is_none());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Dropping the last handle ends it; [`Endpoint::close`] ends it well.
#[derive(Debug)]
pub struct Endpoint {
    pub(crate) inner: Arc<Inner>,
}

impl Endpoint {
    /// Opens a channel; the peer finds it in [`Endpoint::accept`] with `service` to say what it is for.
    ///
    /// # Errors
    /// [`Error`] when the session has ended or the peer allows no more channels.
    pub fn open(&self, service: &str) -> Result<(ChannelWriter, ChannelReader), Error> {
        let mut state = self.inner.state.lock();
        if let Some(end) = &state.ended {
            return Err(end.clone());
        }
        let channel = state
            .machine
            .open(service)
            .map_err(|fault| Error::new(fault.code(), fault.to_string()))?;
        let unpacker = self.inner.add_channel(&mut state, channel);
        drop(state);
        self.inner.signals.to_send.notify_all();
        Ok(self.inner.ends(channel, unpacker))
    }

    /// The next channel that the peer opened; `None` when the session has ended well. Waits.
    ///
    /// # Errors
    /// [`Error`] when the session ended otherwise.
    pub fn accept(&self) -> Result<Option<Incoming>, Error> {
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
                Some(end) if end.code() == Code::DONE => return Ok(None),
                Some(end) => return Err(end.clone()),
                None => self.inner.signals.arrived.wait(&mut state),
            }
        }
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let Inner {
            tallies,
            engine,
            receiving,
            began_ns,
            ..
        } = &*self.inner;
        Stats {
            sent_raw: tallies.sent_raw.load(Relaxed),
            sent_wire: tallies.sent_wire.load(Relaxed),
            received_raw: receiving.unpacking.counters.raw_bytes.load(Relaxed),
            received_wire: tallies.received_wire.load(Relaxed),
            elapsed_ns: engine.clock.now_ns() - began_ns,
            resumed: tallies.resumed.load(Relaxed),
        }
    }

    /// What the link was measured to carry from here, in bytes per second. Only the adaptive plan measures it, and only once
    /// the link has held something up: `None` until then.
    #[must_use]
    pub fn link_bytes_per_s(&self) -> Option<f64> {
        self.inner.sending.packing.policy.lock().link_bytes_per_s()
    }

    /// Processors that this end has for packing: of one host with both ends, half.
    #[must_use]
    pub fn processors(&self) -> f64 {
        let state = self.inner.state.lock();
        self.inner.processors(&state)
    }

    /// State of links and workers at this moment.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        self.inner.gauges()
    }

    /// Bounds the packed bytes that wait for the links, all channels together: what is taken in is then not much older
    /// than what leaves. A channel of which nothing waits may always add one chunk. Unbounded at first.
    pub fn set_backlog_max(&self, bytes: u64) {
        self.inner.sending.backlog_max.store(bytes, Relaxed);
        self.inner.signals.changed.notify_all();
    }

    /// Whether the peer says that it takes channels of this service ([`crate::Settings::services`] there).
    #[must_use]
    pub fn peer_takes(&self, service: &str) -> bool {
        let state = self.inner.state.lock();
        let agent = state.machine.peer().map(|hello| hello.agent.as_str());
        agent.is_some_and(|agent| agent.split(' ').skip(2).any(|word| word == service))
    }

    /// Who opened this session, where the peer had to prove that to this side: by a certificate or a pre-shared key.
    #[must_use]
    pub fn identity(&self) -> Option<&Identity> {
        self.inner.identity.as_ref()
    }

    /// Whether both ends run on one machine, as far as both know.
    #[must_use]
    pub fn shares_host(&self) -> bool {
        self.inner.state.lock().machine.shares_host()
    }

    /// Whether the session has a link now; without one it waits for the initiator to make another.
    #[must_use]
    pub fn is_linked(&self) -> bool {
        let state = self.inner.state.lock();
        state.ended.is_none() && !state.links.is_empty()
    }

    /// Whether messages are packed whole before any of it is sent, so that nothing is answered before the end.
    #[must_use]
    pub fn is_naive(&self) -> bool {
        self.inner.settings.is_naive()
    }

    /// How long the session waits for a link.
    #[must_use]
    pub fn resume_within(&self) -> std::time::Duration {
        self.inner.settings.resume_within
    }

    /// Waits until the session has a link, or has ended.
    pub fn wait_linked(&self) {
        let mut state = self.inner.state.lock();
        while state.ended.is_none() && state.links.is_empty() {
            self.inner
                .signals
                .changed
                .wait_for(&mut state, std::time::Duration::from_millis(20));
        }
    }

    /// The session's end, once it has come.
    #[must_use]
    pub fn ended(&self) -> Option<Error> {
        self.inner.state.lock().ended.clone()
    }

    /// Ends the session well: says so, sends what was queued, and waits until the links are closed.
    pub fn close(&self) {
        self.inner
            .end(Error::new(Code::DONE, "the work is done"), true);
        self.inner.wait_linkless(LAST_WORDS);
    }

    /// Ends the session at once, tells the peer why, and waits a moment for it to hear.
    pub fn fail(&self, code: Code, text: &str) {
        self.inner.end(Error::new(code, text), true);
        self.inner.wait_linkless(LAST_WORDS);
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.inner
            .end(Error::new(Code::CANCELLED, "the peer gave up"), true);
    }
}
