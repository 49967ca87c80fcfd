//! Streams: input and output as they come, in the manner of zstd's buffers.

use std::ffi::{c_int, c_void};

use narrows_rest::{Decoder, Progress};

use crate::{
    boundary,
    context::Cctx,
    error::{Error, ErrorCode},
    packing::{In, Out, PIECE},
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
            cctx.run(|cctx| cctx.packing.step(&cctx.options, out, input, is_end))
        })
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
