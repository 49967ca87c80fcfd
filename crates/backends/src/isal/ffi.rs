//! ISA-L's C interface, as far as we call it. Layouts: `igzip_lib.h` of ISA-L 2.30 and 2.31, the same since 2.24.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    ffi::c_int,
    ptr::{self, NonNull},
};

use narrows_core::Unavailable;

use crate::library::only_64_bit;

/// The functions of an opened library.
pub(super) struct Library {
    stateless_init: unsafe extern "C" fn(*mut Public),
    stateless: unsafe extern "C" fn(*mut Public) -> c_int,
    /// Keeps the functions' code mapped.
    _handle: libloading::Library,
}

impl Library {
    /// Opens ISA-L wherever the system's loader finds it, for as long as the process lives.
    pub(super) fn open() -> Result<&'static Self, Unavailable> {
        let missing = |error: libloading::Error| {
            Unavailable(format!("libisal.so.2 (Debian package libisal2): {error}"))
        };
        only_64_bit()?;
        // SAFETY: ISA-L's initialisers only look at the CPU. The signatures are those of `igzip_lib.h`, which the
        // soname's major version 2 stands for, and the handle lies beside the functions, so it lives as long.
        unsafe {
            let handle = libloading::Library::new("libisal.so.2").map_err(missing)?;
            let stateless_init = *handle
                .get(b"isal_deflate_stateless_init\0")
                .map_err(missing)?;
            let stateless = *handle.get(b"isal_deflate_stateless\0").map_err(missing)?;
            Ok(Box::leak(Box::new(Self {
                stateless_init,
                stateless,
                _handle: handle,
            })))
        }
    }
}

/// The part of `struct isal_zstream` that callers fill. Behind it the library keeps its state.
#[repr(C)]
struct Public {
    next_in: *const u8,
    avail_in: u32,
    total_in: u32,
    next_out: *mut u8,
    avail_out: u32,
    total_out: u32,
    hufftables: *mut u8,
    level: u32,
    level_buf_size: u32,
    level_buf: *mut u8,
    end_of_stream: u16,
    flush: u16,
    gzip_flag: u16,
    hist_bits: u16,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Public>() == 64, "the header's layout");

/// An `isal_zstream` and the buffer that level 1 needs, reused from chunk to chunk.
pub(super) struct Stream {
    stream: NonNull<u8>,
    level_buffer: NonNull<u8>,
}

/// Room for an `isal_zstream`: 82 KiB in the header of 2.30 (a window of 64 KiB and a table of 16), and half more.
const STREAM: Layout = layout(128 << 10);
/// `ISAL_DEF_LVL1_DEFAULT`: 20 KiB and tokens for 64 Ki symbols of four bytes.
const LEVEL_BUFFER: Layout = layout((20 << 10) + (256 << 10));

const fn layout(bytes: usize) -> Layout {
    match Layout::from_size_align(bytes, 64) {
        Ok(layout) => layout,
        Err(_) => panic!("64 is a power of two"),
    }
}

impl Stream {
    /// Packs `raw` as one DEFLATE stream with matches no further than `1 << window_bits`.
    pub(super) fn deflate(
        &mut self,
        library: &Library,
        raw: &[u8],
        level: u32,
        window_bits: u16,
        out: &mut [u8],
    ) -> Option<usize> {
        let avail_in = u32::try_from(raw.len()).ok()?;
        let avail_out = u32::try_from(out.len()).unwrap_or(u32::MAX);
        let stream = self.stream.cast::<Public>().as_ptr();
        // SAFETY: `stream` points to zeroed or initialised memory larger and better aligned than an `isal_zstream`,
        // ours alone. `raw`, `out` and the level buffer outlive the call and hold the lengths given with them, within
        // which the library keeps.
        unsafe {
            (library.stateless_init)(stream);
            (*stream).next_in = raw.as_ptr();
            (*stream).avail_in = avail_in;
            (*stream).next_out = out.as_mut_ptr();
            (*stream).avail_out = avail_out;
            (*stream).level = level;
            (*stream).level_buf = if level == 0 {
                ptr::null_mut()
            } else {
                self.level_buffer.as_ptr()
            };
            (*stream).level_buf_size = if level == 0 {
                0
            } else {
                LEVEL_BUFFER.size() as u32
            };
            (*stream).end_of_stream = 1;
            (*stream).hist_bits = window_bits;
            let done = (library.stateless)(stream) == 0 && (*stream).avail_in == 0;
            done.then_some((*stream).total_out as usize)
        }
    }
}

impl Default for Stream {
    fn default() -> Self {
        Self {
            stream: allocate(STREAM),
            level_buffer: allocate(LEVEL_BUFFER),
        }
    }
}

fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: neither layout is of size 0.
    NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: allocated with these layouts by `default` and freed only here.
        unsafe {
            dealloc(self.stream.as_ptr(), STREAM);
            dealloc(self.level_buffer.as_ptr(), LEVEL_BUFFER);
        }
    }
}

// SAFETY: plain memory without thread affinity; `&mut Workspace` lends it to one thread at a time.
unsafe impl Send for Stream {}
