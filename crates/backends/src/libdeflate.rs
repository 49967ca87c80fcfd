//! libdeflate: DEFLATE in its wrappings on any CPU, and the one unpacker here that is made for untrusted bytes.

use std::{
    ffi::{c_int, c_void},
    ptr::NonNull,
};

use libdeflate_sys as sys;
use narrows_core::{DecodeError, Workspace};

use crate::format::Format;

/// Packs `raw` at about `level`; `None` where it does not fit in `out`.
pub(crate) fn pack(
    format: Format,
    raw: &[u8],
    level: i16,
    out: &mut [u8],
    ws: &mut Workspace,
) -> Option<usize> {
    let compressor = ws.get::<Compressors>().at(level);
    let compress = match format {
        Format::Deflate | Format::W4k => sys::libdeflate_deflate_compress,
        Format::Zlib => sys::libdeflate_zlib_compress,
        Format::Gzip => sys::libdeflate_gzip_compress,
    };
    // SAFETY: the compressor is live and ours alone; the pointers hold the lengths given with them.
    let written = unsafe {
        compress(
            compressor,
            raw.as_ptr().cast(),
            raw.len(),
            out.as_mut_ptr().cast(),
            out.len(),
        )
    };
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
        Format::Deflate | Format::W4k => sys::libdeflate_deflate_decompress_ex,
        Format::Zlib => sys::libdeflate_zlib_decompress_ex,
        Format::Gzip => sys::libdeflate_gzip_decompress_ex,
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
    if result != sys::libdeflate_result_LIBDEFLATE_SUCCESS {
        return Err(DecodeError::corrupt(0, "not a DEFLATE stream"));
    }
    if (read, written) != (packed.len(), out.len()) {
        return Err(DecodeError::corrupt(
            read,
            "DEFLATE stream of another length",
        ));
    }
    Ok(())
}

/// One compressor a level, made when the level is first used: the library fixes the level at allocation.
#[derive(Default)]
struct Compressors([Option<NonNull<sys::libdeflate_compressor>>; 13]);

impl Compressors {
    fn at(&mut self, level: i16) -> *mut sys::libdeflate_compressor {
        let level = usize::from(level.clamp(0, 12).unsigned_abs());
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

/// libdeflate's decompressor.
pub(crate) struct Inflater(NonNull<sys::libdeflate_decompressor>);

impl Default for Inflater {
    fn default() -> Self {
        // SAFETY: allocates and returns null or a decompressor of our own.
        let new = unsafe { sys::libdeflate_alloc_decompressor() };
        Self(NonNull::new(new).expect("memory for a DEFLATE decompressor"))
    }
}

impl Drop for Inflater {
    fn drop(&mut self) {
        // SAFETY: made by `libdeflate_alloc_decompressor` and freed only here.
        unsafe { sys::libdeflate_free_decompressor(self.0.as_ptr()) };
    }
}

// SAFETY: plain memory without thread affinity; `&mut Workspace` lends it to one thread at a time.
unsafe impl Send for Compressors {}
// SAFETY: as for `Compressors`.
unsafe impl Send for Inflater {}
