//! Pinned memory between lanes and the device.

use std::sync::{Arc, mpsc};

use narrows_gpu_abi::Status;
use narrows_gpu_wire::{Row, Span};

use super::{Raw, Session};
use crate::{
    Failure,
    lane::{Sink, Source},
};

/// Bytes of a slot, and slots of a ring: one is filled while others are copied.
const SLOT_LEN: usize = 1 << 20;
const SLOTS: usize = 4;

/// Pinned memory with an event that tells when the device is done with it.
pub(super) struct Slot {
    session: Arc<Session>,
    memory: Raw,
    event: Raw,
}

impl Slot {
    fn new(session: &Arc<Session>) -> Result<Self, Failure> {
        let (mut memory, mut event) = (Raw::NULL, Raw::NULL);
        // SAFETY: each writes one handle.
        session.call("pinned memory", |calls| unsafe {
            match (calls.host_alloc)(&raw mut memory.0, SLOT_LEN, 0) {
                0 => (calls.event_create)(&raw mut event.0, 2),
                status => status,
            }
        })?;
        Ok(Self {
            session: session.clone(),
            memory,
            event,
        })
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the memory has so many bytes, is nobody else's, and the device is done with it: `wait` came before.
        unsafe { std::slice::from_raw_parts_mut(self.memory.0.cast(), SLOT_LEN) }
    }

    /// Waits until the device is done with it.
    fn wait(&self) -> Result<(), Failure> {
        // SAFETY: the event is this slot's.
        self.session.call("cuEventSynchronize", |calls| unsafe {
            (calls.event_sync)(self.event.0)
        })
    }

    fn record(&self, stream: Raw) -> Result<(), Failure> {
        // SAFETY: the event is this slot's, the stream this session's.
        self.session.call("cuEventRecord", |calls| unsafe {
            (calls.event_record)(self.event.0, stream.0)
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let _ = self.wait();
        // SAFETY: the device is done with both, and nobody else has them.
        let _ = self.session.call("freeing pinned memory", |calls| unsafe {
            (calls.event_destroy)(self.event.0);
            (calls.host_free)(self.memory.0)
        });
    }
}

/// Slots in turn, and a stream for what the session itself has to do. Its context goes after them, with the session.
pub(super) struct Ring {
    slots: Vec<Slot>,
    at: usize,
    stream: Raw,
}

impl Ring {
    pub(super) fn new(session: &Arc<Session>) -> Result<Self, Failure> {
        let mut stream = Raw::NULL;
        // SAFETY: writes one handle.
        session.call("cuStreamCreate", |calls| unsafe {
            (calls.stream_create)(&raw mut stream.0, 1, 0)
        })?;
        Ok(Self {
            slots: Vec::new(),
            at: 0,
            stream,
        })
    }

    pub(super) fn stream(&self) -> Raw {
        self.stream
    }

    /// Copies all of a source's bytes to the device as they come, in the stream's order.
    pub(super) fn upload(
        &mut self,
        session: &Arc<Session>,
        stream: Raw,
        dst: Span,
        source: Source,
        checked: Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut rows = Runs::new(dst);
        let put = |bytes: &[u8]| -> Result<(), Failure> {
            checked.clone()?;
            for piece in bytes.chunks(SLOT_LEN) {
                if self.slots.len() < SLOTS {
                    self.slots.push(Slot::new(session)?);
                    self.at = self.slots.len() - 1;
                }
                let slot = &mut self.slots[self.at];
                self.at = (self.at + 1) % SLOTS;
                slot.wait()?;
                slot.bytes()[..piece.len()].copy_from_slice(piece);
                let base = slot.memory.0 as usize;
                rows.next(piece.len(), |address, range| {
                    // SAFETY: the span is within one allocation of this session; the slot holds the bytes until its
                    // event has come.
                    session.call("cuMemcpyHtoD", |calls| unsafe {
                        let from = (base + range.start) as *const std::ffi::c_void;
                        (calls.copy_up)(address, from, range.len(), stream.0)
                    })
                })?;
                slot.record(stream)?;
            }
            Ok(())
        };
        source.take(dst.checked_len().unwrap_or(0), put)
    }
}

/// A span's runs of bytes, for pieces of any length.
struct Runs {
    rows: Box<dyn Iterator<Item = Row> + Send>,
    row: Row,
}

impl Runs {
    fn new(span: Span) -> Self {
        Self {
            rows: Box::new(span.joined().iter_rows()),
            row: Row { base: 0, len: 0 },
        }
    }

    /// Calls `run` with the address of each run of the next `len` bytes, and which of them it holds.
    fn next(
        &mut self,
        len: usize,
        mut run: impl FnMut(u64, std::ops::Range<usize>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut done = 0;
        while done < len {
            if self.row.len == 0 {
                self.row = self.rows.next().ok_or(Status::INVALID_VALUE)?;
            }
            let now = self.row.len.min((len - done) as u64);
            run(self.row.base, done..done + now as usize)?;
            self.row = Row {
                base: self.row.base + now,
                len: self.row.len - now,
            };
            done += now as usize;
        }
        Ok(())
    }
}

/// What a stream's reader is given.
pub(super) enum Download {
    /// Slots that fill in order, and where their bytes go.
    Pieces {
        slots: mpsc::Receiver<Result<(Slot, usize), Failure>>,
        spare: mpsc::Sender<Slot>,
        len: u64,
        sink: Sink,
    },
    /// Dropped when everything before it has been sent.
    Marker(#[expect(dead_code, reason = "what counts is when it is dropped")] mpsc::Sender<()>),
}

/// The thread that sends what is read from one stream.
pub(super) fn reader(session: &Arc<Session>) -> Result<mpsc::Sender<Download>, Failure> {
    let (sender, jobs) = mpsc::channel();
    session.aside(move |session| {
        for job in jobs {
            if let Download::Pieces {
                slots,
                spare,
                len,
                sink,
            } = job
                && let Err(failure) = send(slots, &spare, len, sink)
            {
                (session.faults)(failure);
            }
        }
    })?;
    Ok(sender)
}

fn send(
    slots: mpsc::Receiver<Result<(Slot, usize), Failure>>,
    spare: &mpsc::Sender<Slot>,
    len: u64,
    sink: Sink,
) -> Result<(), Failure> {
    let mut current: Option<(Slot, usize, usize)> = None;
    sink.fill(len, |mut out| -> Result<(), Failure> {
        while !out.is_empty() {
            let (mut slot, at, end) = match current.take() {
                Some(current) => current,
                None => {
                    let (slot, len) =
                        slots.recv().map_err(|_| Failure::from(Status::UNKNOWN))??;
                    slot.wait()?;
                    (slot, 0, len)
                }
            };
            let now = out.len().min(end - at);
            out[..now].copy_from_slice(&slot.bytes()[at..at + now]);
            out = &mut out[now..];
            if at + now < end {
                current = Some((slot, at + now, end));
            } else {
                let _ = spare.send(slot);
            }
        }
        Ok(())
    })
}

/// Copies from the device in the stream's order; the bytes are sent by the stream's reader.
pub(super) fn download(
    session: &Arc<Session>,
    stream: Raw,
    src: Span,
    sink: Sink,
    checked: Result<(), Failure>,
    reader: &mpsc::Sender<Download>,
) -> Result<(), Failure> {
    let len = src.checked_len().unwrap_or(0);
    let (filled, slots) = mpsc::channel();
    let (spare, returned) = mpsc::channel();
    let job = Download::Pieces {
        slots,
        spare,
        len,
        sink,
    };
    reader
        .send(job)
        .map_err(|_| Failure::from(Status::UNKNOWN))?;
    if let Err(failure) = checked {
        let _ = filled.send(Err(failure));
        return Ok(());
    }
    let (mut rows, mut left, mut made) = (Runs::new(src), len, 0);
    while left > 0 {
        let piece = left.min(SLOT_LEN as u64) as usize;
        let slot = if made < 2 * SLOTS {
            Slot::new(session)?
        } else {
            returned
                .recv()
                .map_err(|_| Failure::from(Status::UNKNOWN))?
        };
        made += 1;
        let base = slot.memory.0 as usize;
        let copied = rows.next(piece, |address, range| {
            // SAFETY: the span is within one allocation of this session; the slot is nobody's until its event has come.
            session.call("cuMemcpyDtoH", |calls| unsafe {
                let to = (base + range.start) as *mut std::ffi::c_void;
                (calls.copy_down)(to, address, range.len(), stream.0)
            })
        });
        let copied = copied.and_then(|()| slot.record(stream));
        let sent = filled.send(copied.map(|()| (slot, piece)));
        if sent.is_err() {
            return Ok(());
        }
        left -= piece as u64;
    }
    Ok(())
}
