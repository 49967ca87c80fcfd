//! What a device's chunks fall back to: ISA-L where it is and the level is low, else libdeflate.
//!
//! The same formats by the same names as the device's, so a chunk that the device declines differs in nothing but who
//! made it. `deflate-w4k` is made by ISA-L; libdeflate has no such window, so without ISA-L it declines chunks longer
//! than the window, and they travel raw.

use std::{
    ffi::{c_int, c_void},
    ptr::NonNull,
    sync::{Arc, OnceLock},
};

use libdeflate_sys as libdeflate;
use narrows_core::{Backend, Codec, DecodeError, Level, Workspace};

use crate::{format::Format, isal::IsaL};

/// Reach of a match in `deflate-w4k`, in bytes.
const W4K_WINDOW: usize = 4 << 10;

/// Packs `raw` at about `level`; `None` where it does not fit in `out`.
pub(crate) fn pack(format: Format, raw: &[u8], level: i16, out: &mut [u8], ws: &mut Workspace) -> Option<usize> {
    if (level <= 1 || format == Format::W4k)
        && let Some(igzip) = igzip(format)
    {
        let body_len = igzip.pack(raw, Level(level), &[], format.body_mut(out)?, ws)?;
        return Some(format.seal(raw, out, body_len));
    }
    if format == Format::W4k && raw.len() > W4K_WINDOW {
        return None;
    }
    let compressor = ws.get::<Compressors>().at(level);
    let compress = match format {
        Format::Deflate | Format::W4k => libdeflate::libdeflate_deflate_compress,
        Format::Zlib => libdeflate::libdeflate_zlib_compress,
        Format::Gzip => libdeflate::libdeflate_gzip_compress,
    };
    // SAFETY: the compressor is live and ours alone; the pointers hold the lengths given with them.
    let written = unsafe { compress(compressor, raw.as_ptr().cast(), raw.len(), out.as_mut_ptr().cast(), out.len()) };
    (written > 0).then_some(written)
}

/// Unpacks exactly `out.len()` bytes from exactly `packed`, which is untrusted.
pub(crate) fn unpack(
    format: Format,
    packed: &[u8],
    out: &mut [u8],
    inflater: &mut Inflater,
) -> Result<(), DecodeError> {
    let decompress = match format {
        Format::Deflate | Format::W4k => libdeflate::libdeflate_deflate_decompress_ex,
        Format::Zlib => libdeflate::libdeflate_zlib_decompress_ex,
        Format::Gzip => libdeflate::libdeflate_gzip_decompress_ex,
    };
    let (mut read, mut written) = (0, 0);
    // SAFETY: the decompressor is live and ours alone, the pointers hold the lengths given with them, and the
    // library is made for untrusted input.
    let result = unsafe {
        decompress(
            inflater.0.as_ptr(),
            packed.as_ptr().cast::<c_void>(),
            packed.len(),
            out.as_mut_ptr().cast(),
            out.len(),
            &mut read,
            &mut written,
        )
    };
    if result != libdeflate::libdeflate_result_LIBDEFLATE_SUCCESS {
        return Err(DecodeError::corrupt(0, "not a DEFLATE stream"));
    }
    if (read, written) != (packed.len(), out.len()) {
        return Err(DecodeError::corrupt(read, "DEFLATE stream of another length"));
    }
    Ok(())
}

/// ISA-L's codec for the stream inside `format`, where ISA-L is.
fn igzip(format: Format) -> Option<&'static Arc<dyn Codec>> {
    static CODECS: OnceLock<Vec<Arc<dyn Codec>>> = OnceLock::new();
    let inside = if format == Format::W4k { "deflate-w4k" } else { "deflate" };
    CODECS.get_or_init(|| IsaL.probe().unwrap_or_default()).iter().find(|codec| codec.info().name == inside)
}

/// One compressor a level, made when the level is first used: the library fixes the level at allocation.
#[derive(Default)]
struct Compressors([Option<NonNull<libdeflate::libdeflate_compressor>>; 13]);

impl Compressors {
    fn at(&mut self, level: i16) -> *mut libdeflate::libdeflate_compressor {
        let level = usize::from(level.clamp(0, 12).unsigned_abs());
        self.0[level]
            .get_or_insert_with(|| {
                // SAFETY: allocates and returns null or a compressor of our own.
                let new = unsafe { libdeflate::libdeflate_alloc_compressor(level as c_int) };
                NonNull::new(new).expect("memory for a DEFLATE compressor")
            })
            .as_ptr()
    }
}

impl Drop for Compressors {
    fn drop(&mut self) {
        for compressor in self.0.into_iter().flatten() {
            // SAFETY: made by `libdeflate_alloc_compressor` and freed only here.
            unsafe { libdeflate::libdeflate_free_compressor(compressor.as_ptr()) };
        }
    }
}

/// libdeflate's decompressor.
pub(crate) struct Inflater(NonNull<libdeflate::libdeflate_decompressor>);

impl Default for Inflater {
    fn default() -> Self {
        // SAFETY: allocates and returns null or a decompressor of our own.
        let new = unsafe { libdeflate::libdeflate_alloc_decompressor() };
        Self(NonNull::new(new).expect("memory for a DEFLATE decompressor"))
    }
}

impl Drop for Inflater {
    fn drop(&mut self) {
        // SAFETY: made by `libdeflate_alloc_decompressor` and freed only here.
        unsafe { libdeflate::libdeflate_free_decompressor(self.0.as_ptr()) };
    }
}

// SAFETY: plain memory without thread affinity; `&mut Workspace` lends it to one thread at a time.
unsafe impl Send for Compressors {}
// SAFETY: as for `Compressors`.
unsafe impl Send for Inflater {}
