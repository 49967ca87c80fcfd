//! DEFLATE and its two wrappings, by libdeflate.
//!
//! `deflate-w4k` is DEFLATE whose matches reach back at most 4 KiB, for devices with no larger window. libdeflate
//! cannot be told to, so here only chunks of up to 4 KiB are packed so, in which no match can reach further; longer
//! ones are declined and travel raw, or go to a backend that has the profile. Unpacking knows no such bound.

use std::{
    ffi::{c_int, c_void},
    fmt,
    ptr::NonNull,
};

use libdeflate_sys as sys;
use narrows_core::{Codec, CodecId, DecodeError, Info, Level, Workspace};

/// DEFLATE, bare or wrapped.
#[derive(Debug, Clone, Copy)]
pub struct Deflate {
    info: &'static Info,
    pack: PackFn,
    unpack: UnpackFn,
}

/// Bare DEFLATE.
pub const DEFLATE: Deflate = Deflate {
    info: &Info {
        id: CodecId(6),
        name: "deflate",
        format: "RFC 1951",
        ..TEMPLATE
    },
    pack: sys::libdeflate_deflate_compress,
    unpack: sys::libdeflate_deflate_decompress_ex,
};

/// DEFLATE with zlib's header and Adler-32.
pub const ZLIB: Deflate = Deflate {
    info: &Info {
        id: CodecId(7),
        name: "zlib",
        format: "RFC 1950",
        ..TEMPLATE
    },
    pack: sys::libdeflate_zlib_compress,
    unpack: sys::libdeflate_zlib_decompress_ex,
};

/// DEFLATE with gzip's header, CRC-32 and length.
pub const GZIP: Deflate = Deflate {
    info: &Info {
        id: CodecId(8),
        name: "gzip",
        format: "RFC 1952",
        ..TEMPLATE
    },
    pack: sys::libdeflate_gzip_compress,
    unpack: sys::libdeflate_gzip_decompress_ex,
};

/// DEFLATE whose matches reach back at most [`W4K_WINDOW`] bytes.
#[derive(Debug, Clone, Copy)]
pub struct DeflateW4k;

/// Reach of a match in `deflate-w4k`, in bytes.
pub const W4K_WINDOW: usize = 4 << 10;

/// The levels of the backends that pack longer chunks: whoever asks for another would have those travel raw.
static W4K: Info = Info {
    id: CodecId(11),
    name: "deflate-w4k",
    levels: 0..=1,
    level_default: 1,
    history: false,
    format: "RFC 1951, distances up to 4096",
};

const TEMPLATE: Info = Info {
    id: CodecId(6),
    name: "",
    levels: 0..=12,
    level_default: 6,
    history: false,
    format: "",
};

impl Codec for Deflate {
    fn info(&self) -> &'static Info {
        self.info
    }

    fn pack(
        &self,
        raw: &[u8],
        level: Level,
        _: &[u8],
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Option<usize> {
        let level = usize::from(level.0.clamp(0, 12).unsigned_abs());
        let compressor = ws.get::<Compressors>().at(level);
        // SAFETY: the compressor is live and ours alone; the pointers hold the lengths given with them.
        let written = unsafe {
            (self.pack)(
                compressor,
                raw.as_ptr().cast(),
                raw.len(),
                out.as_mut_ptr().cast(),
                out.len(),
            )
        };
        (written > 0).then_some(written)
    }

    fn unpack(
        &self,
        packed: &[u8],
        _: &[u8],
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Result<(), DecodeError> {
        let (mut read, mut written) = (0, 0);
        // SAFETY: the decompressor is live and ours alone, the pointers hold the lengths given with them, and the
        // library is made for untrusted input.
        let result = unsafe {
            (self.unpack)(
                ws.get::<Decompressor>().0.as_ptr(),
                packed.as_ptr().cast(),
                packed.len(),
                out.as_mut_ptr().cast(),
                out.len(),
                &mut read,
                &mut written,
            )
        };
        match result {
            sys::libdeflate_result_LIBDEFLATE_SUCCESS
                if written == out.len() && read == packed.len() =>
            {
                Ok(())
            }
            sys::libdeflate_result_LIBDEFLATE_SUCCESS => Err(DecodeError::corrupt(
                read,
                "DEFLATE stream of another length",
            )),
            sys::libdeflate_result_LIBDEFLATE_INSUFFICIENT_SPACE => Err(DecodeError::corrupt(
                0,
                "DEFLATE stream longer than its chunk",
            )),
            _ => Err(DecodeError::corrupt(0, "not a DEFLATE stream")),
        }
    }
}

impl Codec for DeflateW4k {
    fn info(&self) -> &'static Info {
        &W4K
    }

    fn pack(
        &self,
        raw: &[u8],
        level: Level,
        _: &[u8],
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Option<usize> {
        if raw.len() > W4K_WINDOW {
            return None;
        }
        DEFLATE.pack(raw, Level(level.0.clamp(0, 1)), &[], out, ws)
    }

    fn unpack(
        &self,
        packed: &[u8],
        _: &[u8],
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Result<(), DecodeError> {
        DEFLATE.unpack(packed, &[], out, ws)
    }
}

type PackFn = unsafe extern "C" fn(
    *mut sys::libdeflate_compressor,
    *const c_void,
    usize,
    *mut c_void,
    usize,
) -> usize;

type UnpackFn = unsafe extern "C" fn(
    *mut sys::libdeflate_decompressor,
    *const c_void,
    usize,
    *mut c_void,
    usize,
    *mut usize,
    *mut usize,
) -> sys::libdeflate_result;

/// One compressor a level, made when the level is first used: the library fixes the level at allocation.
#[derive(Default)]
struct Compressors([Option<NonNull<sys::libdeflate_compressor>>; 13]);

impl Compressors {
    fn at(&mut self, level: usize) -> *mut sys::libdeflate_compressor {
        self.0[level]
            .get_or_insert_with(|| {
                // SAFETY: allocates and returns null or a compressor of our own.
                let new = unsafe { sys::libdeflate_alloc_compressor(level as c_int) };
                NonNull::new(new).expect("memory for a DEFLATE compressor")
            })
            .as_ptr()
    }
}

impl Drop for Compressors {
    fn drop(&mut self) {
        for compressor in self.0.into_iter().flatten() {
            // SAFETY: made by `libdeflate_alloc_compressor` and freed only here.
            unsafe { sys::libdeflate_free_compressor(compressor.as_ptr()) };
        }
    }
}

struct Decompressor(NonNull<sys::libdeflate_decompressor>);

impl Default for Decompressor {
    fn default() -> Self {
        // SAFETY: allocates and returns null or a decompressor of our own.
        let new = unsafe { sys::libdeflate_alloc_decompressor() };
        Self(NonNull::new(new).expect("memory for a DEFLATE decompressor"))
    }
}

impl Drop for Decompressor {
    fn drop(&mut self) {
        // SAFETY: made by `libdeflate_alloc_decompressor` and freed only here.
        unsafe { sys::libdeflate_free_decompressor(self.0.as_ptr()) };
    }
}

impl fmt::Debug for Compressors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeflateCompressors")
    }
}

// SAFETY: plain memory without thread affinity; `&mut Workspace` lends it to one thread at a time.
unsafe impl Send for Compressors {}
// SAFETY: as for `Compressors`.
unsafe impl Send for Decompressor {}
