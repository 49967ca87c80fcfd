//! Bytes that came and were not taken yet, and the wait for more.
//!
//! Where one request is in flight at a time, most of a round trip is waking up: the server's thread, then the client's.
//! So after some waits that were short, the thread looks for the next request for a moment before it sleeps
//! ([`Watch`]). Upstream: [`crate::server`].

use std::{io, time::Instant};

use narrows_io::{TransportRead, region::Region, transport::Security, watch::Watch};

/// Bytes received at once, at most. Longer payloads pass through it.
pub const BUFFER_LEN: usize = 256 << 10;

/// The bytes, of one connection.
pub(crate) struct Inbox {
    /// A region, because a freed vector would stay with the allocator, and memory is what some devices are about.
    buffer: Region,
    from: usize,
    to: usize,
    watch: Watch,
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
        if fault.kind() == io::ErrorKind::ConnectionReset {
            Self::Left
        } else {
            Self::Io(fault)
        }
    }
}

impl Inbox {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            buffer: Region::reserve(BUFFER_LEN)?,
            from: 0,
            to: 0,
            watch: Watch::default(),
        })
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
    pub(crate) fn receive(
        &mut self,
        reader: &mut dyn TransportRead,
        security: Security,
        lone: bool,
    ) -> Result<(), ReceiveError> {
        if self.from > 0 {
            self.buffer.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        assert!(
            self.to < self.buffer.len(),
            "what is left of the input is short"
        );
        // Other transports cannot look without waiting.
        if lone && security == Security::Plain {
            let room = &mut self.buffer[self.to..];
            if let Some(len) = self.watch.look(|| reader.read_ready(room))? {
                return self.came(len);
            }
        }
        let begun = Instant::now();
        let len = read(reader, &mut self.buffer[self.to..])?;
        if lone {
            self.watch.waited(begun.elapsed())
        } else {
            self.watch.discourage()
        }
        self.came(len)
    }

    fn came(&mut self, len: usize) -> Result<(), ReceiveError> {
        self.to += len;
        if len == 0 {
            Err(ReceiveError::Left)
        } else {
            Ok(())
        }
    }
}

/// Receives straight into a caller's buffer, past the inbox, which must be empty. Returns how many bytes came, at least
/// one.
///
/// # Errors
/// See [`ReceiveError`].
pub(crate) fn receive_into(
    reader: &mut dyn TransportRead,
    room: &mut [u8],
) -> Result<usize, ReceiveError> {
    match read(reader, room)? {
        0 => Err(ReceiveError::Left),
        len => Ok(len),
    }
}

fn read(reader: &mut dyn TransportRead, room: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(room) {
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
