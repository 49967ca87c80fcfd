//! zstd frames by the reference library.
//!
//! Positive levels are the library's own. At negative levels, where the library would leave literals as they are, we
//! have them packed with Huffman codes all the same: plain zstd frames for any decoder, faster and denser than LZ4 on
//! text, and it finds the entropy of float weights, in which there is nothing to match. Frames carry neither checksum
//! nor content size nor dictionary id: the outer frame has what is needed of these.
//!
//! History is a prefix (`ZSTD_CCtx_refPrefix`), and the window is widened until it reaches all of it.

use std::{ffi::c_void, fmt, ptr::NonNull};

use narrows_core::{Codec, CodecId, DecodeError, Info, Level, Workspace};
use zstd_safe::zstd_sys::{
    ZSTD_CCtx, ZSTD_CCtx_refPrefix, ZSTD_CCtx_reset, ZSTD_CCtx_setParameter,
    ZSTD_CCtx_setPledgedSrcSize, ZSTD_DCtx, ZSTD_DCtx_refPrefix, ZSTD_DCtx_reset,
    ZSTD_DCtx_setParameter, ZSTD_EndDirective as End, ZSTD_ParamSwitch_e as Switch,
    ZSTD_ResetDirective as Reset, ZSTD_cParameter as CParameter, ZSTD_compress2,
    ZSTD_compressStream2, ZSTD_createCCtx, ZSTD_createDCtx, ZSTD_dParameter as DParameter,
    ZSTD_decompressDCtx, ZSTD_estimateCCtxSize_usingCParams, ZSTD_findFrameCompressedSize,
    ZSTD_freeCCtx, ZSTD_freeDCtx, ZSTD_getCParams, ZSTD_inBuffer, ZSTD_isError, ZSTD_outBuffer,
};

/// zstd at levels -200 to 22.
#[derive(Debug, Clone, Copy)]
pub struct Zstd;

static INFO: Info = Info {
    id: CodecId(9),
    name: "zstd",
    levels: -200..=22,
    level_default: 1,
    history: true,
    format: "RFC 8878",
};

impl Codec for Zstd {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn pack(
        &self,
        raw: &[u8],
        level: Level,
        history: &[u8],
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Option<usize> {
        ws.get::<Packer>().pack(raw, level, history, out)
    }

    fn unpack(
        &self,
        packed: &[u8],
        history: &[u8],
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Result<(), DecodeError> {
        ws.get::<Unpacker>().unpack(packed, history, out)
    }

    fn context_len(&self, raw_len: usize, level: Level) -> usize {
        // SAFETY: both functions read their arguments only.
        unsafe {
            ZSTD_estimateCCtxSize_usingCParams(ZSTD_getCParams(level.0.into(), raw_len as u64, 0))
        }
    }
}

/// A packing context, reused from chunk to chunk.
pub(crate) struct Packer(NonNull<ZSTD_CCtx>);

impl Packer {
    /// Packs `raw` as one frame.
    pub(crate) fn pack(
        &mut self,
        raw: &[u8],
        level: Level,
        history: &[u8],
        out: &mut [u8],
    ) -> Option<usize> {
        self.begin(raw.len(), level, history)?;
        // SAFETY: the context is live and ours alone, the pointers hold the lengths given with them, and `history`,
        // which `begin` left as prefix, outlives this call, at whose end the library forgets it.
        let written = unsafe {
            ZSTD_compress2(
                self.0.as_ptr(),
                out.as_mut_ptr().cast(),
                out.len(),
                raw.as_ptr().cast::<c_void>(),
                raw.len(),
            )
        };
        ok(written)
    }

    /// Packs `raw` as one frame in which no block crosses a multiple of `plane` bytes, so that each plane of shuffled
    /// numbers gets Huffman codes of its own: one with entropy in it is not spoilt by a neighbour without.
    pub(crate) fn pack_planes(
        &mut self,
        raw: &[u8],
        plane: usize,
        level: Level,
        out: &mut [u8],
    ) -> Option<usize> {
        self.begin(raw.len(), level, &[])?;
        self.set(CParameter::ZSTD_c_experimentalParam9, 1)?; // ZSTD_c_stableInBuffer: spares a copy of the input
        self.set(CParameter::ZSTD_c_experimentalParam10, 1)?; // ZSTD_c_stableOutBuffer: and one of the output
        // SAFETY: the context is live and no frame is open in it.
        ok(unsafe { ZSTD_CCtx_setPledgedSrcSize(self.0.as_ptr(), raw.len() as u64) })?;
        let mut input = ZSTD_inBuffer {
            src: raw.as_ptr().cast(),
            size: 0,
            pos: 0,
        };
        let mut output = ZSTD_outBuffer {
            dst: out.as_mut_ptr().cast(),
            size: out.len(),
            pos: 0,
        };
        while input.size < raw.len() {
            input.size = raw.len().min(input.size + plane.max(1));
            let end = if input.size == raw.len() {
                End::ZSTD_e_end
            } else {
                End::ZSTD_e_flush
            };
            // SAFETY: both buffers describe live slices; they stay where they are until the frame ends, as promised
            // by the two parameters above.
            let left =
                ok(unsafe { ZSTD_compressStream2(self.0.as_ptr(), &mut output, &mut input, end) })?;
            if left != 0 || input.pos != input.size {
                return None;
            }
        }
        Some(output.pos)
    }

    /// Readies the context for one frame of `raw_len` bytes that may refer to `history`.
    fn begin(&mut self, raw_len: usize, level: Level, history: &[u8]) -> Option<()> {
        let level = i32::from(level.0.clamp(*INFO.levels.start(), *INFO.levels.end()));
        // SAFETY: the context is live and ours alone. Resetting also forgets a prefix and a frame given up half-way.
        ok(unsafe { ZSTD_CCtx_reset(self.0.as_ptr(), Reset::ZSTD_reset_session_and_parameters) })?;
        self.set(CParameter::ZSTD_c_compressionLevel, level)?;
        self.set(CParameter::ZSTD_c_contentSizeFlag, 0)?;
        if level < 0 {
            // ZSTD_c_literalCompressionMode
            self.set(
                CParameter::ZSTD_c_experimentalParam5,
                Switch::ZSTD_ps_enable as i32,
            )?;
        }
        if !history.is_empty() {
            let reach = (raw_len + history.len())
                .next_power_of_two()
                .trailing_zeros();
            self.set(
                CParameter::ZSTD_c_windowLog,
                reach.clamp(WINDOW_LOG_MIN, WINDOW_LOG_MAX) as i32,
            )?;
            // SAFETY: the context is live. The caller keeps `history` borrowed until the frame is written.
            ok(unsafe {
                ZSTD_CCtx_refPrefix(self.0.as_ptr(), history.as_ptr().cast(), history.len())
            })?;
        }
        Some(())
    }

    fn set(&mut self, parameter: CParameter, value: i32) -> Option<()> {
        // SAFETY: the context is live and ours alone; a bad value is refused, not undefined.
        ok(unsafe { ZSTD_CCtx_setParameter(self.0.as_ptr(), parameter, value) }).map(drop)
    }
}

/// An unpacking context, reused from chunk to chunk.
pub(crate) struct Unpacker(NonNull<ZSTD_DCtx>);

impl Unpacker {
    /// Unpacks one frame, which must fill `out` and `packed` exactly. In one call, so that `out` itself is the window:
    /// whatever window a hostile frame asks for, nothing is allocated for it.
    pub(crate) fn unpack(
        &mut self,
        packed: &[u8],
        history: &[u8],
        out: &mut [u8],
    ) -> Result<(), DecodeError> {
        const BAD: DecodeError = DecodeError::Corrupt {
            offset: 0,
            what: "not a zstd frame",
        };
        let context = self.0.as_ptr();
        // SAFETY: reads within `packed` only, and is made for untrusted bytes.
        let frame_len =
            ok(unsafe { ZSTD_findFrameCompressedSize(packed.as_ptr().cast(), packed.len()) });
        if frame_len.ok_or(BAD)? != packed.len() {
            return Err(DecodeError::corrupt(
                frame_len.unwrap_or(0),
                "bytes after the zstd frame",
            ));
        }
        // SAFETY: the context is live and ours alone. `history` outlives the decoding below, at whose end the
        // library forgets it; the reset forgets one that was left by a frame refused earlier.
        let ready = unsafe {
            ok(ZSTD_DCtx_reset(context, Reset::ZSTD_reset_session_only)).and_then(|_| {
                ok(ZSTD_DCtx_refPrefix(
                    context,
                    history.as_ptr().cast(),
                    history.len(),
                ))
            })
        };
        ready.ok_or(BAD)?;
        // SAFETY: the pointers hold the lengths given with them; the library is made for untrusted input.
        let written = unsafe {
            ZSTD_decompressDCtx(
                context,
                out.as_mut_ptr().cast(),
                out.len(),
                packed.as_ptr().cast::<c_void>(),
                packed.len(),
            )
        };
        match ok(written) {
            Some(n) if n == out.len() => Ok(()),
            Some(_) => Err(DecodeError::corrupt(
                packed.len(),
                "zstd frame of another length",
            )),
            None => Err(BAD),
        }
    }
}

/// A length or code of the library, `None` where it means an error.
fn ok(code: usize) -> Option<usize> {
    // SAFETY: a pure function of its argument.
    (unsafe { ZSTD_isError(code) } == 0).then_some(code)
}

impl Default for Packer {
    fn default() -> Self {
        // SAFETY: allocates and returns null or a context of our own.
        Self(NonNull::new(unsafe { ZSTD_createCCtx() }).expect("memory for a zstd context"))
    }
}

impl Drop for Packer {
    fn drop(&mut self) {
        // SAFETY: made by `ZSTD_createCCtx` and freed only here.
        unsafe { ZSTD_freeCCtx(self.0.as_ptr()) };
    }
}

impl Default for Unpacker {
    fn default() -> Self {
        // SAFETY: allocates and returns null or a context of our own.
        let context =
            NonNull::new(unsafe { ZSTD_createDCtx() }).expect("memory for a zstd context");
        // SAFETY: the context is live and ours. Only streaming would allocate by this; it costs nothing to say so.
        unsafe {
            ZSTD_DCtx_setParameter(
                context.as_ptr(),
                DParameter::ZSTD_d_windowLogMax,
                WINDOW_LOG_MAX as i32,
            )
        };
        Self(context)
    }
}

impl Drop for Unpacker {
    fn drop(&mut self) {
        // SAFETY: made by `ZSTD_createDCtx` and freed only here.
        unsafe { ZSTD_freeDCtx(self.0.as_ptr()) };
    }
}

impl fmt::Debug for Packer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ZstdPacker")
    }
}

impl fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ZstdUnpacker")
    }
}

// SAFETY: a context is plain memory without thread affinity, and `&mut Workspace` lends it to one thread at a time.
unsafe impl Send for Packer {}
// SAFETY: as for `Packer`.
unsafe impl Send for Unpacker {}

/// The library's least window, 1 KiB.
const WINDOW_LOG_MIN: u32 = 10;
/// What every zstd decoder takes without being asked to, 128 MiB.
const WINDOW_LOG_MAX: u32 = 27;

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 8878 §3.1.1: a window of 1 KiB, what the descriptor says comes, one raw block.
    #[test]
    fn a_content_size_may_stand_in_a_frame_and_a_dictionary_may_not() {
        let unpack = |descriptor: u8, fields: &[u8]| {
            let frame = [
                &[0x28, 0xb5, 0x2f, 0xfd, descriptor, 0][..],
                fields,
                &[3 << 3 | 1, 0, 0],
                b"abc",
            ]
            .concat();
            let mut out = [0; 3];
            Zstd.unpack(&frame, &[], &mut out, &mut Workspace::default())
                .is_ok()
                && out == *b"abc"
        };
        assert!(unpack(0, &[]) && unpack(0x80, &[3, 0, 0, 0]) && !unpack(0x80, &[4, 0, 0, 0]));
        assert!(!unpack(0x01, &[7]), "dictionary 7");
    }
}
