//! Bytes that came and were not taken yet, and the wait for more.
//!
//! Where one request is in flight at a time, most of a round trip is waking up: the server's thread, then the client's. So after
//! some waits that were short, the thread looks for the next request for a moment before it sleeps. It yields between
//! looks, so that whoever has work gets the processor, and only some threads of a process do it at a time. Upstream:
//! [`crate::server`].

use std::{
    io,
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use narrows_io::{Transport, region::Region, transport::Security};

/// Bytes received at once, at most. Longer payloads pass through it.
pub const BUFFER_LEN: usize = 256 << 10;
/// How long to look before sleeping: a client's turn takes less.
const WATCH: Duration = Duration::from_micros(100);
/// A wait that would have been no longer than [`WATCH`], had nobody slept.
const SHORT: Duration = Duration::from_micros(200);
/// Short waits in a row that make it worth looking; one look in vain begins anew.
const SHORT_ENOUGH: u8 = 8;

/// The bytes, of one connection.
pub(crate) struct Inbox {
    /// A region, because a freed vector would stay with the allocator, and memory is what some devices are about.
    buffer: Region,
    from: usize,
    to: usize,
    /// Short waits in a row, up to [`SHORT_ENOUGH`].
    short: u8,
}

/// Why no more bytes come.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    /// An end like any other, unless something was under way.
    #[error("the client left")]
    Left,
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for ReceiveError {
    fn from(fault: io::Error) -> Self {
        if fault.kind() == io::ErrorKind::ConnectionReset { Self::Left } else { Self::Io(fault) }
    }
}

impl Inbox {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { buffer: Region::reserve(BUFFER_LEN)?, from: 0, to: 0, short: 0 })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.from..self.to]
    }

    pub(crate) fn take(&mut self, len: usize) {
        self.from += len;
        debug_assert!(self.from <= self.to, "no more is taken than there is");
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        }
    }

    /// Waits for bytes, watchfully where the client is `lone`: no other request of it is in flight. There is room: the
    /// machines take all but part of an option, a header or a page.
    pub(crate) fn receive(&mut self, transport: &mut Transport, lone: bool) -> Result<(), ReceiveError> {
        if self.from > 0 {
            self.buffer.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        assert!(self.to < self.buffer.len(), "what is left of the input is short");
        let begun = Instant::now();
        let len = match lone && self.watch(transport, begun)? {
            true => return Ok(()),
            false => loop {
                match transport.reader.read(&mut self.buffer[self.to..]) {
                    Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
                    other => break other?,
                }
            },
        };
        let short = lone && begun.elapsed() < SHORT;
        self.short = if short { SHORT_ENOUGH.min(self.short + 1) } else { 0 };
        self.came(len)
    }

    /// Looks for bytes for a moment, if that is promising. Says whether some came.
    fn watch(&mut self, transport: &mut Transport, begun: Instant) -> Result<bool, ReceiveError> {
        // Other transports cannot look without waiting.
        if self.short < SHORT_ENOUGH || transport.security != Security::Plain {
            return Ok(false);
        }
        let Some(_turn) = Turn::take() else { return Ok(false) };
        while begun.elapsed() < WATCH {
            if let Some(len) = transport.reader.read_ready(&mut self.buffer[self.to..])? {
                return self.came(len).map(|()| true);
            }
            thread::yield_now();
        }
        self.short = 0;
        Ok(false)
    }

    fn came(&mut self, len: usize) -> Result<(), ReceiveError> {
        self.to += len;
        if len == 0 { Err(ReceiveError::Left) } else { Ok(()) }
    }
}

/// The right of a thread to watch: at most half of the processors are watched from.
struct Turn;

static WATCHING: AtomicUsize = AtomicUsize::new(0);
static WATCHING_MAX: LazyLock<usize> = LazyLock::new(|| thread::available_parallelism().map_or(1, usize::from) / 2);

impl Turn {
    fn take() -> Option<Self> {
        let turn = (WATCHING.fetch_add(1, Ordering::Relaxed) < *WATCHING_MAX).then(|| Self);
        if turn.is_none() {
            WATCHING.fetch_sub(1, Ordering::Relaxed);
        }
        turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        WATCHING.fetch_sub(1, Ordering::Relaxed);
    }
}
