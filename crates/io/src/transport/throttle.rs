//! A transport that sends no faster than it is told, so that others have the rest of the link.

use std::{
    io::{self, IoSlice, Write},
    thread,
    time::{Duration, Instant},
};

use super::{Transport, TransportWrite};

/// Sends that much ahead of time at most, so that the average holds over a short while.
const AHEAD: Duration = Duration::from_millis(50);

/// `transport`, sending at most `bytes_per_s` on average.
#[must_use]
pub fn throttled(transport: Transport, bytes_per_s: f64) -> Transport {
    let Transport { writer, .. } = transport;
    Transport {
        writer: Box::new(Throttle {
            inner: writer,
            bytes_per_s: bytes_per_s.max(1.0),
            due: Instant::now(),
        }),
        ..transport
    }
}

struct Throttle {
    inner: Box<dyn TransportWrite>,
    bytes_per_s: f64,
    /// When what was sent would have left at the rate.
    due: Instant,
}

impl Throttle {
    /// Waits until more may leave, and counts `len` bytes.
    fn pay(&mut self, len: usize) {
        let now = Instant::now();
        thread::sleep(self.due.saturating_duration_since(now + AHEAD));
        let takes = Duration::from_secs_f64(len as f64 / self.bytes_per_s);
        self.due = self.due.max(now) + takes;
    }
}

impl Write for Throttle {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.pay(written);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl TransportWrite for Throttle {
    fn write_slices(&mut self, bufs: &mut [IoSlice<'_>]) -> io::Result<()> {
        self.pay(bufs.iter().map(|buf| buf.len()).sum());
        self.inner.write_slices(bufs)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.inner.finish()
    }
}
