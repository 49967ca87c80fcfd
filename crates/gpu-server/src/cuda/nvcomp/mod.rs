//! Packing and unpacking on the GPU, with NVIDIA's nvCOMP where it is installed.
//!
//! ```text
//!  packed bytes ─┐                       one copy up               ┌─ raw bytes, where they belong
//!  pointers      ├─▶ staging (host) ──▶ scratch (device) ──▶ nvCOMP ┤
//!  lengths      ─┘                                                  └─ lengths, statuses ─▶ one copy down: checked
//! ```
//!
//! A batch is many chunks of one format. Its pointers and lengths lie in device memory, in one block with the packed
//! bytes, so that a batch is one copy up, one call and one copy down. What a chunk came to is its own: a bad one fails
//! nobody else's. nvCOMP does not check its input as our codecs do, so give it only bytes whose checksum was right.

mod library;

use std::{ffi::c_void, sync::Arc};

pub use library::{Format, LIBRARY_VARIABLE, Nvcomp};

use super::{Driver, Raw, Session};
use crate::{Failure, cuda::Functions};
use library::{Calls, Opts};
use narrows_gpu_abi::Status;

/// Chunks of a batch, at most.
const BATCH_MAX: usize = 4096;
/// What every part of the scratch memory begins at a multiple of: more than any format asks for.
const PART_ALIGN: usize = 256;

/// A packed chunk, and where in device memory its raw bytes go.
#[derive(Debug, Clone, Copy)]
pub struct Packed<'a> {
    /// The packed bytes, whose check was right.
    pub bytes: &'a [u8],
    /// Device address of the raw bytes.
    pub to: u64,
    /// Their length.
    pub len: usize,
}

/// A chunk in device memory.
#[derive(Debug, Clone, Copy)]
pub struct Unpacked {
    /// Device address.
    pub at: u64,
    /// Length in bytes.
    pub len: usize,
}

/// Why a chunk has to be done by a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// `nvcompStatus_t` of this chunk.
    #[error("nvCOMP says {0}")]
    Status(u32),
    /// It came to another length than it should.
    #[error("nvCOMP made {0} bytes")]
    Length(usize),
    /// It did not get smaller.
    #[error("it does not get smaller")]
    NotSmaller,
    /// Its address does not suit the format.
    #[error("its address is not as the format wants it")]
    Alignment,
}

/// What became of one chunk.
pub type Made<T> = Result<T, Refused>;

/// Device memory of a packer.
pub struct Area {
    session: Arc<Session>,
    address: u64,
    len: usize,
}

impl std::fmt::Debug for Area {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Area({:#x}, {})", self.address, self.len)
    }
}

impl Area {
    fn new(session: &Arc<Session>, len: usize) -> Result<Self, Failure> {
        let mut address = 0;
        // SAFETY: writes one address.
        session.call("cuMemAlloc", |calls| unsafe {
            (calls.mem_alloc)(&raw mut address, len.max(1))
        })?;
        Ok(Self {
            session: session.clone(),
            address,
            len,
        })
    }

    /// Its device address.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the address is this area's, and nothing uses it any more: every batch was waited for.
        let _ = self.session.call("cuMemFree", |calls| unsafe {
            (calls.mem_free)(self.address)
        });
    }
}

/// Packs and unpacks in a context of its own.
pub struct GpuPacker {
    scratch: Option<Area>,
    stream: Raw,
    nvcomp: Arc<Nvcomp>,
    session: Arc<Session>,
}

impl std::fmt::Debug for GpuPacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GpuPacker")
            .field("nvcomp", &self.nvcomp)
            .finish_non_exhaustive()
    }
}

impl Drop for GpuPacker {
    fn drop(&mut self) {
        // SAFETY: the stream is this packer's, and all of its work was waited for.
        let _ = self.session.call("cuStreamDestroy", |calls| unsafe {
            (calls.stream_destroy)(self.stream.0)
        });
    }
}

/// What the parts of a batch come to, one after the other.
#[derive(Default)]
struct Layout(usize);

impl Layout {
    fn part(&mut self, len: usize) -> Result<usize, Failure> {
        let at = self.0.next_multiple_of(PART_ALIGN);
        self.0 = at.checked_add(len).ok_or(Status::INVALID_VALUE)?;
        Ok(at)
    }
}

/// What nvCOMP is told of a chunk: where it reads, where it writes, and how much.
struct Line {
    input: u64,
    input_len: usize,
    output: u64,
    room: usize,
}

/// Where a batch lies in the scratch memory.
struct Batch {
    base: u64,
    arrays: Arrays,
    /// The packed bytes of each chunk.
    packed: Vec<usize>,
    temp: usize,
    temp_len: usize,
}

impl Batch {
    /// The device address of a part.
    fn at(&self, part: usize) -> u64 {
        self.base + part as u64
    }

    /// The first `len` bytes as they are copied up: the arrays, with a line for each chunk.
    fn staged(&self, len: usize, lines: &[Line]) -> Vec<u8> {
        let (arrays, mut staging) = (&self.arrays, vec![0; len]);
        let mut put = |at: usize, number: fn(&Line) -> u64| {
            for (line, slot) in lines.iter().zip(staging[at..].chunks_exact_mut(8)) {
                slot.copy_from_slice(&number(line).to_le_bytes());
            }
        };
        put(arrays.inputs, |line| line.input);
        put(arrays.input_lens, |line| line.input_len as u64);
        put(arrays.outputs, |line| line.output);
        put(arrays.rooms, |line| line.room as u64);
        // A status that nvCOMP does not write is no success.
        staging[arrays.statuses..arrays.end].fill(0xff);
        staging
    }
}

/// Where the arrays of a batch lie in the scratch memory.
struct Arrays {
    inputs: usize,
    input_lens: usize,
    outputs: usize,
    rooms: usize,
    /// From here on it is the GPU that writes: lengths, then statuses.
    lens: usize,
    statuses: usize,
    end: usize,
}

impl Arrays {
    fn new(layout: &mut Layout, count: usize) -> Result<Self, Failure> {
        Ok(Self {
            inputs: layout.part(8 * count)?,
            input_lens: layout.part(8 * count)?,
            outputs: layout.part(8 * count)?,
            rooms: layout.part(8 * count)?,
            lens: layout.part(8 * count)?,
            statuses: layout.part(4 * count)?,
            end: layout.0,
        })
    }
}

impl GpuPacker {
    /// A packer on the driver's device.
    ///
    /// # Errors
    /// No context or stream can be had.
    pub fn new(driver: &Arc<Driver>, nvcomp: Arc<Nvcomp>) -> Result<Self, Failure> {
        let session = Session::new(driver.clone(), Arc::new(|_| {}))?;
        let mut stream = Raw::NULL;
        // SAFETY: writes one handle.
        session.call("cuStreamCreate", |calls| unsafe {
            (calls.stream_create)(&raw mut stream.0, 1, 0)
        })?;
        Ok(Self {
            scratch: None,
            stream,
            nvcomp,
            session,
        })
    }

    /// Device memory.
    ///
    /// # Errors
    /// There is not as much.
    pub fn area(&self, len: usize) -> Result<Area, Failure> {
        Area::new(&self.session, len)
    }

    /// Copies to the beginning of an area, and waits for it.
    ///
    /// # Errors
    /// More bytes than it has; the driver's.
    pub fn write(&self, area: &Area, bytes: &[u8]) -> Result<(), Failure> {
        if bytes.len() > area.len {
            return Err(Status::INVALID_VALUE.into());
        }
        self.up(area.address, bytes)?;
        self.finish()
    }

    /// Copies from the beginning of an area.
    ///
    /// # Errors
    /// More bytes than it has; the driver's.
    pub fn read(&self, area: &Area, out: &mut [u8]) -> Result<(), Failure> {
        if out.len() > area.len {
            return Err(Status::INVALID_VALUE.into());
        }
        self.down(out, area.address)
    }

    /// Unpacks chunks to where they belong in `to`, and waits for it. Each has a result of its own.
    ///
    /// # Errors
    /// The driver's or nvCOMP's, for the whole batch; a chunk that does not lie in `to`, or too many of them.
    pub fn unpack(
        &mut self,
        format: Format,
        chunks: &[Packed<'_>],
        to: &Area,
    ) -> Result<Vec<Made<()>>, Failure> {
        let inside = |chunk: &Packed<'_>| within(to, chunk.to, chunk.len);
        if chunks.len() > BATCH_MAX || !chunks.iter().all(inside) {
            return Err(Status::INVALID_VALUE.into());
        }
        let nvcomp = self.nvcomp.clone();
        let (calls, mut needs) = (nvcomp.calls(format), library::Alignments::default());
        // SAFETY: writes one structure.
        self.call("alignments", || unsafe {
            (calls.unpack_alignments)(Opts::unpack(), &raw mut needs)
        })?;
        let suits = |chunk: &&Packed<'_>| chunk.to.is_multiple_of(needs.output.max(1) as u64);
        let suited: Vec<Packed<'_>> = chunks.iter().filter(suits).copied().collect();
        let mut results = self.unpack_batch(calls, &suited)?.into_iter();
        let result = |chunk: &Packed<'_>| {
            if suits(&chunk) {
                results.next().unwrap_or(Err(Refused::Alignment))
            } else {
                Err(Refused::Alignment)
            }
        };
        Ok(chunks.iter().map(result).collect())
    }

    fn unpack_batch(
        &mut self,
        calls: &Calls,
        chunks: &[Packed<'_>],
    ) -> Result<Vec<Made<()>>, Failure> {
        let count = chunks.len();
        let Some(longest) = chunks.iter().map(|chunk| chunk.len).max() else {
            return Ok(Vec::new());
        };
        let total = chunks.iter().map(|chunk| chunk.len).sum();
        let (stream, mut temp_len) = (self.stream.0, 0);
        // SAFETY: writes one number.
        self.call("workspace", || unsafe {
            let opts = Opts::unpack();
            (calls.unpack_temp)(count, longest, opts, &raw mut temp_len, total, stream)
        })?;
        let batch = self.lay_out(chunks.iter().map(|chunk| chunk.bytes.len()), temp_len)?;
        let line = |(chunk, at): (&Packed<'_>, &usize)| Line {
            input: batch.at(*at),
            input_len: chunk.bytes.len(),
            output: chunk.to,
            room: chunk.len,
        };
        let lines: Vec<Line> = chunks.iter().zip(&batch.packed).map(line).collect();
        let mut staging = batch.staged(batch.temp, &lines);
        for (chunk, at) in chunks.iter().zip(&batch.packed) {
            staging[*at..*at + chunk.bytes.len()].copy_from_slice(chunk.bytes);
        }
        self.up(batch.base, &staging)?;
        let (arrays, at) = (&batch.arrays, |part| batch.at(part));
        // SAFETY: the arrays were copied to the scratch memory, in the stream's order, and point into it and into areas
        // of this packer; the workspace is as long as was asked for.
        let started = self.call("unpacking", || unsafe {
            (calls.unpack)(
                at(arrays.inputs),
                at(arrays.input_lens),
                at(arrays.rooms),
                at(arrays.lens),
                count,
                at(batch.temp),
                batch.temp_len,
                at(arrays.outputs),
                Opts::unpack(),
                at(arrays.statuses),
                stream,
            )
        });
        // Also after a failure nothing may still read the staging memory.
        let told = self.told(&batch);
        started?;
        let result = |(told, chunk): ((usize, u32), &Packed<'_>)| match told {
            (len, 0) if len == chunk.len => Ok(()),
            (len, 0) => Err(Refused::Length(len)),
            (_, status) => Err(Refused::Status(status)),
        };
        Ok(told?.into_iter().zip(chunks).map(result).collect())
    }

    /// Packs chunks that lie in `from`, and waits for it. Each has a result of its own.
    ///
    /// # Errors
    /// As [`GpuPacker::unpack`].
    pub fn pack(
        &mut self,
        format: Format,
        chunks: &[Unpacked],
        from: &Area,
    ) -> Result<Vec<Made<Vec<u8>>>, Failure> {
        let fits = |chunk: &Unpacked| {
            within(from, chunk.at, chunk.len) && chunk.len <= format.chunk_len_max()
        };
        if chunks.len() > BATCH_MAX || !chunks.iter().all(fits) {
            return Err(Status::INVALID_VALUE.into());
        }
        if chunks.is_empty() {
            return Ok(Vec::new());
        }
        let nvcomp = self.nvcomp.clone();
        let (calls, mut needs) = (nvcomp.calls(format), library::Alignments::default());
        // SAFETY: writes one structure.
        self.call("alignments", || unsafe {
            (calls.pack_alignments)(Opts::pack(format), &raw mut needs)
        })?;
        if !chunks
            .iter()
            .all(|chunk| chunk.at.is_multiple_of(needs.input.max(1) as u64))
        {
            return Ok(chunks.iter().map(|_| Err(Refused::Alignment)).collect());
        }
        self.pack_batch(calls, Opts::pack(format), chunks)
    }

    fn pack_batch(
        &mut self,
        calls: &Calls,
        opts: Opts,
        chunks: &[Unpacked],
    ) -> Result<Vec<Made<Vec<u8>>>, Failure> {
        let count = chunks.len();
        let longest = chunks.iter().map(|chunk| chunk.len).max().unwrap_or(0);
        let total = chunks.iter().map(|chunk| chunk.len).sum();
        let (stream, mut temp_len, mut room) = (self.stream.0, 0, 0);
        // SAFETY: each writes one number.
        self.call("workspace", || unsafe {
            match (calls.pack_temp)(count, longest, opts, &raw mut temp_len, total, stream) {
                0 => (calls.packed_max)(longest, opts, &raw mut room),
                status => status,
            }
        })?;
        let batch = self.lay_out(chunks.iter().map(|_| room), temp_len)?;
        let line = |(chunk, at): (&Unpacked, &usize)| Line {
            input: chunk.at,
            input_len: chunk.len,
            output: batch.at(*at),
            room,
        };
        let lines: Vec<Line> = chunks.iter().zip(&batch.packed).map(line).collect();
        self.up(batch.base, &batch.staged(batch.arrays.end, &lines))?;
        let (arrays, at) = (&batch.arrays, |part| batch.at(part));
        // SAFETY: as in `unpack_batch`; the chunks are in an area of this packer.
        let started = self.call("packing", || unsafe {
            (calls.pack)(
                at(arrays.inputs),
                at(arrays.input_lens),
                longest,
                count,
                at(batch.temp),
                batch.temp_len,
                at(arrays.outputs),
                at(arrays.lens),
                opts,
                at(arrays.statuses),
                stream,
            )
        });
        let told = self.told(&batch);
        started?;
        let mut results = Vec::with_capacity(count);
        for (((len, status), chunk), at) in told?.into_iter().zip(chunks).zip(&batch.packed) {
            results.push(match status {
                0 if len > room => Err(Refused::Length(len)),
                0 if len >= chunk.len => Err(Refused::NotSmaller),
                0 => {
                    let mut packed = vec![0; len];
                    self.down(&mut packed, batch.at(*at))?;
                    Ok(packed)
                }
                status => Err(Refused::Status(status)),
            });
        }
        Ok(results)
    }

    /// Scratch memory for a batch: the arrays, room for the packed bytes of each chunk, and the workspace.
    fn lay_out(
        &mut self,
        packed: impl ExactSizeIterator<Item = usize>,
        temp_len: usize,
    ) -> Result<Batch, Failure> {
        let mut layout = Layout::default();
        let arrays = Arrays::new(&mut layout, packed.len())?;
        let packed = packed.map(|len| layout.part(len));
        let packed = packed.collect::<Result<Vec<_>, _>>()?;
        let temp = layout.part(temp_len)?;
        Ok(Batch {
            base: self.scratch(layout.0)?,
            arrays,
            packed,
            temp,
            temp_len,
        })
    }

    /// Lengths and statuses, once the batch is done.
    fn told(&self, batch: &Batch) -> Result<Vec<(usize, u32)>, Failure> {
        let (arrays, count) = (&batch.arrays, batch.packed.len());
        let mut told = vec![0; arrays.end - arrays.lens];
        self.down(&mut told, batch.at(arrays.lens))?;
        let statuses = told[arrays.statuses - arrays.lens..].chunks_exact(4);
        let lens = told.chunks_exact(8).take(count);
        let number = |(len, status): (&[u8], &[u8])| {
            let len = len.try_into().map_or(u64::MAX, u64::from_le_bytes);
            let status = status.try_into().map_or(u32::MAX, u32::from_le_bytes);
            (usize::try_from(len).unwrap_or(usize::MAX), status)
        };
        Ok(lens.zip(statuses).map(number).collect())
    }

    /// Calls nvCOMP with this packer's context current, which is where its runtime library works.
    fn call(&self, what: &str, run: impl FnOnce() -> u32) -> Result<(), Failure> {
        let mut status = 0;
        self.session.call(what, |_| {
            status = run();
            0
        })?;
        if status == 0 {
            return Ok(());
        }
        let text = format!("nvCOMP, {what}: {status}");
        Err(Failure::new(Status::UNKNOWN, text))
    }

    /// Scratch memory of at least this length.
    fn scratch(&mut self, len: usize) -> Result<u64, Failure> {
        match &self.scratch {
            Some(area) if area.len >= len => Ok(area.address),
            _ => {
                self.scratch = None;
                let area = Area::new(&self.session, len.next_power_of_two())?;
                Ok(self.scratch.insert(area).address)
            }
        }
    }

    fn up(&self, to: u64, bytes: &[u8]) -> Result<(), Failure> {
        // SAFETY: the caller's memory is not pinned, so the driver has read it when it returns; the destination is an
        // area of this packer that has room for it.
        self.session.call("cuMemcpyHtoD", |calls| unsafe {
            (calls.copy_up)(
                to,
                bytes.as_ptr().cast::<c_void>(),
                bytes.len(),
                self.stream.0,
            )
        })
    }

    fn down(&self, out: &mut [u8], from: u64) -> Result<(), Failure> {
        // SAFETY: the source is an area of this packer that has as many bytes; `out` stays until they are there.
        self.session.call("cuMemcpyDtoH", |calls| unsafe {
            match (calls.copy_down)(out.as_mut_ptr().cast(), from, out.len(), self.stream.0) {
                0 => (calls.stream_sync)(self.stream.0),
                status => status,
            }
        })
    }

    fn finish(&self) -> Result<(), Failure> {
        let wait = |calls: &Functions| {
            // SAFETY: the stream is this packer's.
            unsafe { (calls.stream_sync)(self.stream.0) }
        };
        self.session.call("cuStreamSynchronize", wait)
    }
}

fn within(area: &Area, at: u64, len: usize) -> bool {
    let offset = at.checked_sub(area.address);
    let end = offset.and_then(|offset| offset.checked_add(len as u64));
    len > 0 && end.is_some_and(|end| end <= area.len as u64)
}
