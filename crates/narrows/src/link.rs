//! One connection of a session: the thread that writes it and the thread that reads it.

mod ahead;
mod reader;
mod writer;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::sleep,
};

use narrows_core::DecodeError;
use narrows_io::{
    Shutdown, Transport,
    transport::{Probe, Security},
    watch::Watch,
};
use narrows_session::{LinkId, SessionError};
use parking_lot::Mutex;

pub(crate) use self::{ahead::ReadAhead, reader::check_control, writer::control_header};
use self::{reader::Reader, writer::Writer};
use crate::{
    Error,
    inner::{Inner, LAST_WORDS},
    thread::spawn,
};

pub(crate) struct Link {
    id: LinkId,
    writer: Mutex<Writer>,
    shutdown: Shutdown,
    probe: Probe,
    /// Bytes acknowledged when last asked; `None` where the transport does not tell.
    acked: Option<AtomicU64>,
    /// When a frame came last: a peer is asked for a sign of life where none did for a while.
    heard_ns: AtomicU64,
    /// When bytes came last: on a slow link one long frame may take longer than any silence allowed.
    came_ns: Arc<AtomicU64>,
}

impl Link {
    /// Starts the link's threads, whose link is in the state's list by the time that its lock is free.
    pub(crate) fn start(
        inner: &Arc<Inner>,
        id: LinkId,
        transport: Transport,
    ) -> Result<Arc<Self>, Error> {
        let Transport {
            reader,
            writer,
            shutdown,
            peer,
            probe,
            security,
            ..
        } = transport;
        let acked = probe.tcp_info().map(|info| AtomicU64::new(info.acked));
        let now_ns = inner.engine.clock.now_ns();
        let writer = Mutex::new(Writer::new(writer, probe.clone(), now_ns));
        let came_ns = Arc::new(AtomicU64::new(now_ns));
        let heard_ns = AtomicU64::new(now_ns);
        let link = Arc::new(Self {
            id,
            writer,
            shutdown,
            probe,
            acked,
            heard_ns,
            came_ns,
        });
        let (read_inner, read_link) = (inner.clone(), link.clone());
        let (write_inner, write_link) = (inner.clone(), link.clone());
        // First the one that ends by itself where its link is in no list, because the other could not be started.
        spawn("link-writer", move || write_link.write_loop(&write_inner))?;
        spawn("link-reader", move || {
            let mut ahead = ReadAhead::new(reader);
            ahead.noted = Some((read_inner.engine.clock.clone(), read_link.came_ns.clone()));
            // Else what comes is not what there is to be read.
            ahead.watched =
                (security == Security::Plain).then(|| (read_link.probe.clone(), Watch::default()));
            let fault = Reader::new(&read_inner, &read_link, ahead).run();
            read_link.over(&read_inner, &peer, fault);
        })?;
        Ok(link)
    }

    /// Sends from the calling thread if nobody else is sending just now.
    pub(crate) fn try_pump(&self, inner: &Inner) -> bool {
        let Some(mut writer) = self.writer.try_lock() else {
            return false;
        };
        match writer.pump(self.id, inner) {
            Ok(_) => true,
            Err(_) => {
                // The reader notices the same fault and says so.
                self.shutdown.abort();
                true
            }
        }
    }

    /// The session has ended: a peer that does not read to its end has this long.
    pub(crate) fn retire(self: Arc<Self>) {
        let link = self.clone();
        let closer = spawn("link-closer", move || {
            sleep(LAST_WORDS);
            link.shutdown.abort();
        });
        if closer.is_err() {
            self.shutdown.abort();
        }
    }

    /// Bytes carried since the last question, whether more wait in the kernel now, and whether a queue stands on the
    /// way; `None` where the transport does not tell.
    pub(crate) fn carried(&self) -> Option<(u64, bool, bool)> {
        let before = self.acked.as_ref()?;
        let Some(info) = self.probe.tcp_info() else {
            return Some((0, false, false));
        };
        let carried = info.acked.saturating_sub(before.swap(info.acked, Relaxed));
        Some((
            carried,
            info.unsent > 0,
            info.rtt_ns > 2 * info.rtt_min_ns + STANDING_NS,
        ))
    }

    /// Bytes that came and wait in the kernel; 0 where the transport does not tell.
    pub(crate) fn unread(&self) -> u64 {
        self.probe.unread().unwrap_or(0)
    }

    /// How long no frame has come.
    pub(crate) fn unheard_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.heard_ns.load(Relaxed))
    }

    /// How long nothing at all has come.
    pub(crate) fn silent_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.came_ns.load(Relaxed))
    }

    pub(crate) fn cut(&self) {
        self.shutdown.abort();
    }

    fn write_loop(&self, inner: &Inner) {
        loop {
            match self.writer.lock().pump(self.id, inner) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(_) => return self.shutdown.abort(),
            }
            let mut state = inner.state.lock();
            if !state.links.contains_key(&self.id) {
                drop(state);
                // The peer closed first, and it waits for our end of file: the socket itself lives on with its closer.
                let _ = self.writer.lock().half.finish();
                return;
            }
            if state.machine.can_send(self.id) {
                continue;
            }
            if state.ended.is_some() {
                drop(state);
                let _ = self.writer.lock().half.finish();
                return;
            }
            let starved = state
                .machine
                .is_starved()
                .then(|| inner.engine.clock.now_ns());
            inner.signals.to_send.wait(&mut state);
            if let Some(since_ns) = starved {
                inner
                    .tallies
                    .starved_ns
                    .fetch_add(inner.engine.clock.now_ns() - since_ns, Relaxed);
            }
        }
    }

    /// The reader is done: the session goes on without this link, or ends.
    fn over(&self, inner: &Arc<Inner>, peer: &str, result: Result<(), LinkFault>) {
        let ended = inner.state.lock().ended.is_some();
        match result {
            Err(LinkFault::Session(fault)) => {
                inner.end(Error::new(fault.code(), fault.to_string()), true);
                // The peer should read why before the connection goes.
                let _ = self.writer.lock().pump(self.id, inner);
            }
            Err(LinkFault::Io(fault)) if !ended => tracing::info!(peer, %fault, "link lost"),
            Ok(()) if !ended => tracing::info!(peer, "the peer closed the link"),
            _ => {}
        }
        let mut state = inner.state.lock();
        state.machine.detach(self.id);
        state.links.remove(&self.id);
        if state.links.is_empty() {
            state.linkless_since_ns = Some(inner.engine.clock.now_ns());
        }
        drop(state);
        inner.signals.to_send.notify_all();
        inner.signals.changed.notify_all();
        inner.signals.monitor_wake.notify_all();
        if !ended {
            self.shutdown.abort();
        }
    }
}

/// Why a link is over.
pub(crate) enum LinkFault {
    Io(io::Error),
    Session(SessionError),
}

impl From<io::Error> for LinkFault {
    fn from(fault: io::Error) -> Self {
        Self::Io(fault)
    }
}

impl From<SessionError> for LinkFault {
    fn from(fault: SessionError) -> Self {
        Self::Session(fault)
    }
}

impl From<DecodeError> for LinkFault {
    fn from(fault: DecodeError) -> Self {
        Self::Session(fault.into())
    }
}

/// A round trip longer than twice the shortest by this many nanoseconds shows a queue on the way.
const STANDING_NS: u64 = 2_000_000;
