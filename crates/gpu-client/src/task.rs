//! Work for a stream: run now, or kept in a graph while the stream is captured.

use std::{ffi::c_void, sync::Arc};

use narrows_gpu_abi::Status;
use narrows_gpu_wire::{INLINE_LEN_MAX, Launch, Request, Span};

use crate::{
    ffi::{Answer, Handle, Kind},
    host::HostSpan,
    state::{Client, Event, Function, Stream},
};

/// Where a copy's bytes are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    /// In the program.
    Host(Span),
    /// In the device.
    Device(Span),
}

/// A function of the program that a stream calls.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HostCall {
    /// `CUhostFn`
    Plain { function: usize, data: usize },
    /// `CUstreamCallback`
    Stream {
        function: usize,
        data: usize,
        stream: u64,
    },
}

impl HostCall {
    fn run(self) {
        match self {
            Self::Plain { function, data } => {
                // SAFETY: the program gave this function for this purpose, with its own data.
                let function: extern "C" fn(*mut c_void) = unsafe { std::mem::transmute(function) };
                function(data as *mut c_void);
            }
            Self::Stream {
                function,
                data,
                stream,
            } => {
                // SAFETY: as above.
                let function: extern "C" fn(*mut c_void, u32, *mut c_void) =
                    unsafe { std::mem::transmute(function) };
                function(stream as usize as *mut c_void, 0, data as *mut c_void);
            }
        }
    }
}

/// One piece of work.
#[derive(Clone)]
pub(crate) enum Task {
    Launch {
        function: Arc<Function>,
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
        cooperative: bool,
        params: Vec<u8>,
    },
    Copy {
        to: Place,
        from: Place,
    },
    Memset {
        to: Span,
        element: u32,
        value: u32,
    },
    Host(HostCall),
    Record(Arc<Event>),
    Wait(Arc<Event>),
    Empty,
}

/// Whether a copy waits until it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Sync,
    Async,
}

impl Client {
    /// Has a stream do something: now, or when the graph runs that it is captured into.
    pub(crate) fn submit(&self, stream: &Stream, task: Task) -> Answer {
        if crate::graph::captures(self, stream, &task)? {
            return Ok(());
        }
        self.run(stream, &task)
    }

    /// Has a stream do something now.
    pub(crate) fn run(&self, stream: &Stream, task: &Task) -> Answer {
        self.before(stream)?;
        match task {
            Task::Launch {
                function,
                grid,
                block,
                shared,
                cooperative,
                params,
            } => self.remote.send(&Request::Launch(Launch {
                stream: stream.id,
                kernel: function.kernel(),
                grid: *grid,
                block: *block,
                shared: *shared,
                cooperative: *cooperative,
                params: params.clone(),
            })),
            Task::Copy { to, from } => self.copy(stream, *to, *from, Mode::Async),
            Task::Memset { to, element, value } => self.remote.send(&Request::Memset {
                stream: stream.id,
                dst: *to,
                element: *element,
                value: *value,
            }),
            Task::Host(call) => {
                let call = *call;
                self.remote
                    .callback(stream.id, Box::new(move || call.run()))
            }
            Task::Record(event) => {
                event
                    .recorded
                    .store(true, std::sync::atomic::Ordering::Relaxed);
                self.remote.send(&Request::EventRecord {
                    event: event.id,
                    stream: stream.id,
                })
            }
            Task::Wait(event) => self.remote.send(&Request::StreamWaitEvent {
                stream: stream.id,
                event: event.id,
            }),
            Task::Empty => Ok(()),
        }
    }

    /// Copies between any two places.
    pub(crate) fn copy(&self, stream: &Stream, to: Place, from: Place, mode: Mode) -> Answer {
        match (to, from) {
            (Place::Device(dst), Place::Device(src)) => {
                self.check_span(&dst)?;
                self.check_span(&src)?;
                self.before(stream)?;
                self.remote.send(&Request::CopyDevice {
                    stream: stream.id,
                    dst,
                    src,
                })
            }
            (Place::Device(dst), Place::Host(src)) => self.upload(stream, dst, src, mode),
            (Place::Host(dst), Place::Device(src)) => self.download(stream, dst, src, mode),
            (Place::Host(dst), Place::Host(src)) => {
                self.sync_stream(stream)?;
                let (to, from) = (HostSpan::new(dst)?, HostSpan::new(src)?);
                to.cursor().write(&from.to_vec());
                Ok(())
            }
        }
    }

    /// A copy into memory that is not pinned is done when the call returns, as with the real driver.
    fn download(&self, stream: &Stream, dst: Span, src: Span, mode: Mode) -> Answer {
        self.check_span(&src)?;
        let to = HostSpan::new(dst)?;
        self.before(stream)?;
        let (id, len) = (stream.id, to.len());
        if len == 0 {
            return self.remote.check();
        }
        let mark = self.remote.contents.mark();
        let wait = mode == Mode::Sync || self.pinned.find(dst.base as usize).is_none();
        if len <= INLINE_LEN_MAX as u64 {
            let make = |call| Request::ReadInline {
                stream: id,
                call,
                src,
            };
            if !wait {
                return self.remote.read_later(to, make);
            }
            self.remote.read_inline(to, make)?;
            self.remote.contents.done(Some(id), mark);
            return Ok(());
        }
        let lane = stream.lane(&self.remote)?;
        let ticket = lane
            .read(to, || {
                self.remote.send(&Request::Read {
                    stream: id,
                    lane: lane.number,
                    src,
                })?;
                self.remote.flush_now()
            })
            .or_else(|status| self.remote.check().and(Err(status)))?;
        if wait {
            self.remote.count_round_trip();
            lane.wait(ticket);
            self.remote.contents.done(Some(id), mark);
        }
        self.remote.check()
    }

    pub(crate) fn sync_stream(&self, stream: &Stream) -> Answer {
        let (stream, mark) = (stream.id, self.remote.contents.mark());
        self.remote
            .sync(|call| Request::StreamSync { call, stream })?;
        self.remote.contents.done(Some(stream), mark);
        Ok(())
    }

    pub(crate) fn sync_all(&self) -> Answer {
        let mark = self.remote.contents.mark();
        self.remote.sync(|call| Request::ContextSync { call })?;
        self.remote.contents.done(None, mark);
        Ok(())
    }
}

/// A stream's handle, as its callbacks see it.
pub(crate) fn handle_of(stream: &Stream) -> Handle {
    if stream.id == 0 {
        Handle::NULL
    } else {
        Kind::Stream.handle(stream.id)
    }
}

/// A box at `(x, y, z)` of memory with this pitch and height.
pub(crate) fn span(
    base: u64,
    origin: [u64; 3],
    pitch: u64,
    height: u64,
    extent: [u64; 3],
) -> Answer<Span> {
    let slice = pitch.checked_mul(height).ok_or(Status::INVALID_VALUE)?;
    let offset = origin[1]
        .checked_mul(pitch)
        .and_then(|y| origin[2].checked_mul(slice)?.checked_add(y))
        .and_then(|yz| yz.checked_add(origin[0]))
        .ok_or(Status::INVALID_VALUE)?;
    let span = Span {
        base: base.checked_add(offset).ok_or(Status::INVALID_VALUE)?,
        row: extent[0],
        rows: extent[1],
        pitch,
        slices: extent[2],
        slice_pitch: slice,
    };
    span.checked_len().ok_or(Status::INVALID_VALUE)?;
    Ok(span)
}
