//! Streams: input and output as they come, in the manner of zstd's buffers.

use std::{
    ffi::{c_int, c_void},
    io,
    sync::{Arc, Mutex, PoisonError},
};

use narrows_rest::{Decoder, Options, Progress, Writer};

use crate::{
    boundary,
    context::Cctx,
    error::{Error, ErrorCode},
};

/// Input of a stream.
#[repr(C)]
#[derive(Debug)]
pub struct InBuffer {
    /// Where it begins; may be null if size is 0.
    pub src: *const c_void,
    /// Its length.
    pub size: usize,
    /// How far it was read; moved on by the call.
    pub pos: usize,
}

/// Output of a stream.
#[repr(C)]
#[derive(Debug)]
pub struct OutBuffer {
    /// Where it begins; may be null if size is 0.
    pub dst: *mut c_void,
    /// Its length.
    pub size: usize,
    /// How far it was written; moved on by the call.
    pub pos: usize,
}

/// What a call of narrows_compress_stream() is to do once the input is read.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndDirective {
    /// Wait for more.
    Continue = 0,
    /// End the file. Call again, with the same, until 0 is returned.
    End = 1,
}

/// A decompression context. Used by one thread at a time.
#[derive(Debug, Default)]
pub struct Dctx {
    decoder: Option<Decoder>,
    broken: bool,
}

/// A stream being packed: what was packed waits here until there is room for it.
#[derive(Debug, Default)]
pub(crate) struct Packing {
    writer: Option<Writer<Packed>>,
    packed: Packed,
    /// How much of what waits was given out.
    given: usize,
    /// The file was ended; what is left of it waits.
    ended: bool,
}

/// Bytes that the writer made. Shared with it, and locked alone.
#[derive(Debug, Clone, Default)]
struct Packed(Arc<Mutex<Vec<u8>>>);

impl io::Write for Packed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut packed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        packed.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Input that is taken at once, at most: more of it would wait in memory.
const PIECE: usize = 256 << 10;

impl Packing {
    pub(crate) fn is_in_progress(&self) -> bool {
        self.writer.is_some() || self.ended
    }

    fn writer(&mut self, options: &Options) -> Result<&mut Writer<Packed>, Error> {
        if self.writer.is_none() {
            self.writer = Some(Writer::new(self.packed.clone(), options)?);
        }
        Ok(self.writer.as_mut().expect("it was just made"))
    }

    /// Gives out what waits, as far as there is room; how much still waits.
    fn give(&mut self, out: &mut Out<'_>) -> usize {
        let mut packed = self.packed.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.given += out.put(&packed[self.given..]);
        if self.given == packed.len() {
            packed.clear();
            self.given = 0;
        }
        packed.len() - self.given
    }
}

/// Room for output.
struct Out<'a> {
    room: &'a mut [u8],
    pos: &'a mut usize,
}

impl Out<'_> {
    /// Puts as much as there is room for; how much.
    fn put(&mut self, bytes: &[u8]) -> usize {
        let room = &mut self.room[*self.pos..];
        let len = room.len().min(bytes.len());
        room[..len].copy_from_slice(&bytes[..len]);
        *self.pos += len;
        len
    }
}

/// Input, and how far it was read.
struct In<'a> {
    bytes: &'a [u8],
    pos: &'a mut usize,
}

impl<'a> In<'a> {
    /// The next piece; empty where there is none.
    fn piece(&self) -> &'a [u8] {
        let rest = &self.bytes[*self.pos..];
        &rest[..rest.len().min(PIECE)]
    }
}

/// # Safety
/// Each is null or points at a live buffer that nobody else uses during `'a`.
unsafe fn buffers<'a>(
    output: *mut OutBuffer,
    input: *mut InBuffer,
) -> Result<(Out<'a>, In<'a>), Error> {
    // SAFETY: the caller's promise.
    unsafe {
        let (output, input) = (boundary::exclusive(output)?, boundary::exclusive(input)?);
        if output.pos > output.size || input.pos > input.size {
            return Err(Error::new(ErrorCode::InvalidArgument, "pos is beyond size"));
        }
        let out = Out {
            room: boundary::bytes_mut(output.dst.cast(), output.size)?,
            pos: &mut output.pos,
        };
        let bytes = boundary::bytes(input.src.cast(), input.size)?;
        Ok((
            out,
            In {
                bytes,
                pos: &mut input.pos,
            },
        ))
    }
}

/// Compresses a stream: reads input and writes output as far as there is both. Returns how many bytes wait for room in
/// output (call again before you give more input), or an error. end is a narrows_end_directive; with
/// NARROWS_END_DIRECTIVE_END, 0 says that the file is whole, and the next call begins another.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn narrows_compress_stream(
    cctx: *mut Cctx,
    output: *mut OutBuffer,
    input: *mut InBuffer,
    end: c_int,
) -> usize {
    // SAFETY: the caller's promises, as the crate's head lists them.
    unsafe {
        boundary::call(|| {
            let cctx = boundary::exclusive(cctx)?;
            let (out, input) = buffers(output, input)?;
            let is_end = match end {
                it if it == EndDirective::Continue as c_int => false,
                it if it == EndDirective::End as c_int => true,
                _ => return Err(ErrorCode::InvalidArgument.into()),
            };
            cctx.run(|cctx| compress(cctx, out, input, is_end))
        })
    }
}

fn compress(
    cctx: &mut Cctx,
    mut out: Out<'_>,
    input: In<'_>,
    is_end: bool,
) -> Result<usize, Error> {
    use io::Write;
    let packing = &mut cctx.packing;
    if packing.ended && (!is_end || !input.piece().is_empty()) {
        return Err(Error::new(
            ErrorCode::StageWrong,
            "the file was ended: call with END until 0",
        ));
    }
    loop {
        let waiting = packing.give(&mut out);
        if waiting > 0 {
            return Ok(waiting);
        }
        if packing.ended {
            packing.ended = false;
            return Ok(0);
        }
        match input.piece() {
            [] if is_end => {
                packing.writer(&cctx.options)?;
                let writer = packing.writer.take().expect("it was just made");
                writer.finish()?;
                packing.ended = true;
            }
            [] => return Ok(0),
            piece => {
                let written = packing.writer(&cctx.options)?.write(piece);
                *input.pos += written.map_err(narrows_rest::FileError::from_io)?;
            }
        }
    }
}

/// Makes a decompression context; never null. Free it by narrows_dctx_free().
#[unsafe(no_mangle)]
pub extern "C" fn narrows_dctx_create() -> *mut Dctx {
    Box::into_raw(Box::default())
}

/// Frees a decompression context. A null pointer is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn narrows_dctx_free(dctx: *mut Dctx) -> usize {
    // SAFETY: the caller's promises, as the crate's head lists them.
    unsafe {
        boundary::call(|| {
            drop(boundary::take_back(dctx));
            Ok(0)
        })
    }
}

/// Drops the stream in progress, after an error too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn narrows_dctx_reset(dctx: *mut Dctx) -> usize {
    // SAFETY: the caller's promises, as the crate's head lists them.
    unsafe {
        boundary::call(|| {
            *boundary::exclusive(dctx)? = Dctx::default();
            Ok(0)
        })
    }
}

/// Unpacks a stream: reads input and writes output as far as there is both. Returns 0 where a file has ended, all of its
/// content was written and no more input is there; otherwise a positive number, and input that ends so was cut. Files
/// that follow one another are read as one. After an error, narrows_dctx_reset() begins anew.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn narrows_decompress_stream(
    dctx: *mut Dctx,
    output: *mut OutBuffer,
    input: *mut InBuffer,
) -> usize {
    // SAFETY: the caller's promises, as the crate's head lists them.
    unsafe {
        boundary::call(|| {
            let dctx = boundary::exclusive(dctx)?;
            let (out, input) = buffers(output, input)?;
            if dctx.broken {
                return Err(ErrorCode::Internal.into());
            }
            // Taken back below; a panic leaves it.
            dctx.broken = true;
            let result = decompress(&mut dctx.decoder, out, input);
            dctx.broken = false;
            result
        })
    }
}

fn decompress(
    decoder: &mut Option<Decoder>,
    mut out: Out<'_>,
    input: In<'_>,
) -> Result<usize, Error> {
    loop {
        // Between files there is none, so that the input may end there.
        let Some(at_work) = decoder else {
            let piece = input.piece();
            if piece.is_empty() {
                return Ok(0);
            }
            decoder.insert(Decoder::new()).feed(piece);
            *input.pos += piece.len();
            continue;
        };
        match at_work.step()? {
            Progress::Content(content) => {
                let len = out.put(content);
                if len == 0 {
                    return Ok(content.len());
                }
                at_work.consume(len);
            }
            Progress::NeedsInput => {
                let piece = input.piece();
                if piece.is_empty() {
                    return Ok(PIECE);
                }
                at_work.feed(piece);
                *input.pos += piece.len();
            }
            Progress::End => {
                let unused = decoder.take().map(Decoder::into_unused).unwrap_or_default();
                if !unused.is_empty() {
                    decoder.insert(Decoder::new()).feed(&unused);
                }
            }
        }
    }
}
