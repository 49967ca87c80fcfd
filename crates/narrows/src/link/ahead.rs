//! Reads headers and payloads off a transport: of small frames several with one system call, of long ones next to
//! nothing twice.
//!
//! Invariant: `start <= end <= READ_AHEAD_LEN`; `buf[start..end]` came and was not taken. Limits are checked from the
//! header, before anything is allocated for its payload.

use std::{
    io::{self, IoSliceMut, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use narrows_core::Clock;
use narrows_format::{HEADER_LEN_MAX, HEADER_LEN_MIN, Header};
use narrows_io::{TransportRead, transport::Probe, watch::Watch};

use super::LinkFault;

/// Reads headers and payloads off a transport.
pub(crate) struct ReadAhead {
    half: Box<dyn TransportRead>,
    /// Tells what came on its socket, where that may be looked for before sleeping.
    pub(super) watched: Option<(Probe, Watch)>,
    /// Whether that is worth a processor's time. What comes by chunks that are long and packed needs the processors
    /// itself, at this end and where both are one machine: looking cost 5 % of them, and 2 % of speed, at 2.5 Gbit/s.
    pub(super) may_watch: bool,
    /// Where it is noted when bytes came last, and by which clock.
    pub(super) noted: Option<(Arc<dyn Clock>, Arc<AtomicU64>)>,
    buf: Box<[u8; READ_AHEAD_LEN]>,
    start: usize,
    end: usize,
}

impl ReadAhead {
    pub(crate) fn new(half: Box<dyn TransportRead>) -> Self {
        Self {
            half,
            watched: None,
            may_watch: false,
            noted: None,
            buf: Box::new([0; READ_AHEAD_LEN]),
            start: 0,
            end: 0,
        }
    }

    /// Reads with `read`, after looking for a moment whether there is something.
    fn wait(
        &mut self,
        read: impl FnOnce(&mut dyn TransportRead, &mut [u8; READ_AHEAD_LEN]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut watch = None;
        if let Some((probe, look)) = &mut self.watched
            && self.may_watch
            && look
                .look(|| Ok(probe.unread().filter(|&len| len > 0)))?
                .is_none()
        {
            watch = Some((look, Instant::now()));
        }
        let len = read(&mut *self.half, &mut self.buf);
        if let Some((watch, begun)) = watch {
            watch.waited(begun.elapsed());
        }
        if let Some((clock, at_ns)) = &self.noted {
            at_ns.store(clock.now_ns(), Relaxed);
        }
        len
    }

    /// Bytes that are here.
    pub(super) fn len(&self) -> usize {
        self.end - self.start
    }

    /// What came and was not taken.
    pub(crate) fn come(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }

    /// The next header, as `parse` has it from what came; `None` at an orderly end between frames.
    pub(crate) fn read_header(
        &mut self,
        parse: impl FnOnce(&[u8]) -> Result<Header, LinkFault>,
    ) -> Result<Option<Header>, LinkFault> {
        if self.fill(HEADER_LEN_MIN)? == 0 {
            return Ok(None);
        }
        let len = Header::len_from(self.buf[self.start])?;
        if self.fill(len)? < len {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let header = parse(&self.buf[self.start..self.end])?;
        self.start += len;
        Ok(Some(header))
    }

    /// Reads until `needed` bytes are buffered or the stream ends; returns how many are.
    fn fill(&mut self, needed: usize) -> io::Result<usize> {
        debug_assert!(needed <= HEADER_LEN_MAX);
        if self.end - self.start < needed && READ_AHEAD_LEN - self.start < HEADER_LEN_MAX {
            self.buf.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        while self.end - self.start < needed {
            let end = self.end;
            match self.wait(|half, buf| half.read(&mut buf[end..])) {
                Ok(0) => break,
                Ok(len) => self.end += len,
                Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(self.end - self.start)
    }

    /// Fills `out`, and reads the next frame's header with the same call where it has come already.
    pub(crate) fn fill_payload(&mut self, out: &mut [u8]) -> io::Result<()> {
        let mut filled = out.len().min(self.end - self.start);
        out[..filled].copy_from_slice(&self.buf[self.start..self.start + filled]);
        self.start += filled;
        while filled < out.len() {
            let rest = out.len() - filled;
            let unfilled = &mut out[filled..];
            match self.wait(|half, buf| {
                half.read_vectored(&mut [IoSliceMut::new(unfilled), IoSliceMut::new(buf)])
            }) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => {
                    filled += len.min(rest);
                    (self.start, self.end) = (0, len.saturating_sub(rest));
                }
                Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Hands the transport's half back with what was read ahead of it, for the threads that take over.
    pub(crate) fn into_half(self) -> Box<dyn TransportRead> {
        if self.start == self.end {
            return self.half;
        }
        Box::new(Chained(
            io::Cursor::new(self.buf[self.start..self.end].to_vec()).chain(self.half),
        ))
    }
}

struct Chained(io::Chain<io::Cursor<Vec<u8>>, Box<dyn TransportRead>>);

impl Read for Chained {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }

    fn read_vectored(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.read_vectored(parts)
    }
}

impl TransportRead for Chained {}

/// Bytes read ahead: a frame costs one system call, and of large ones no more than this is copied twice.
const READ_AHEAD_LEN: usize = 4 << 10;
