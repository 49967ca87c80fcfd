//! Large allocations, under the C library's names.
//!
//! All others go on to the C library by its own names (`__libc_malloc` and so on), which need no look-up: a look-up
//! allocates. The C library gets its large memory by an internal call that no library can stand before; hence these.

use std::{
    alloc::{GlobalAlloc, Layout},
    sync::OnceLock,
};

use libc::{c_int, c_void, size_t};

use crate::{
    blocks::BLOCK,
    pager::Pager,
    start::{self, Call},
    sys,
};

unsafe extern "C" {
    fn __libc_malloc(len: size_t) -> *mut c_void;
    fn __libc_calloc(count: size_t, len: size_t) -> *mut c_void;
    fn __libc_realloc(old: *mut c_void, len: size_t) -> *mut c_void;
    fn __libc_memalign(align: size_t, len: size_t) -> *mut c_void;
    fn __libc_free(start: *mut c_void);
}

/// Allocations from here on are managed.
pub(crate) const LARGE: usize = 1 << 20;

/// This library's own memory is the C library's, whatever its length.
#[derive(Debug)]
struct Own;

// SAFETY: long memory is a mapping each, other memory the C library's, which keeps these promises; a layout tells which,
// and is the same when memory is given back.
unsafe impl GlobalAlloc for Own {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_mapped(layout) {
            return sys::map(layout.size()).unwrap_or(std::ptr::null_mut());
        }
        // SAFETY: any length and alignment may be asked for.
        unsafe { __libc_memalign(layout.align(), layout.size()).cast() }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let start = unsafe { self.alloc(layout) };
        if !start.is_null() && !is_mapped(layout) {
            // SAFETY: it was got just now, of that length.
            unsafe { start.write_bytes(0, layout.size()) };
        }
        start
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        match is_mapped(layout) {
            true => sys::unmap(start, layout.size()),
            // SAFETY: the caller got it from here.
            false => unsafe { __libc_free(start.cast()) },
        }
    }
}

/// Tables for the whole arena are long and mostly untouched, which the C library would fill with zeroes.
fn is_mapped(layout: Layout) -> bool {
    layout.size() >= 256 << 10 && layout.align() <= sys::PAGE
}

#[cfg_attr(not(test), global_allocator)]
static OWN: Own = Own;

/// Takes large memory, if memory is managed here.
fn take(len: usize) -> Option<*mut c_void> {
    let call = Call::enter()?;
    call.pager()
        .take(len, true)
        .map(|start| start as *mut c_void)
}

/// The pager that has `start`, and whether this process may use what is there.
fn owner(start: *mut c_void) -> Option<&'static Pager> {
    start::holder(start as usize)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn malloc(len: size_t) -> *mut c_void {
    if len >= LARGE
        && let Some(start) = take(len)
    {
        return start;
    }
    // SAFETY: any length may be asked for.
    unsafe { __libc_malloc(len) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn calloc(count: size_t, len: size_t) -> *mut c_void {
    if let Some(all) = count.checked_mul(len)
        && all >= LARGE
        && let Some(start) = take(all)
    {
        return start;
    }
    // SAFETY: any length may be asked for; an overflow is the C library's to refuse.
    unsafe { __libc_calloc(count, len) }
}

/// # Safety
/// As of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn free(start: *mut c_void) {
    match owner(start) {
        // SAFETY: it is the C library's, as the caller promises.
        None => unsafe { __libc_free(start) },
        Some(pager) => {
            // A forked child has nothing to free.
            if let Some(_call) = Call::enter()
                && !pager.free(start as usize)
            {
                sys::fatal("the program freed large memory that it did not have");
            }
        }
    }
}

/// # Safety
/// As of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn realloc(old: *mut c_void, len: size_t) -> *mut c_void {
    if old.is_null() {
        return malloc(len);
    }
    let old_len = match owner(old) {
        Some(pager) if start::is_managed() => {
            let call = Call::enter();
            let Some(old_len) = pager.len_of(old as usize) else {
                sys::fatal("the program resized large memory that it did not have");
            };
            if call.is_some() && len >= LARGE && pager.resize(old as usize, old_len, len, true) {
                return old;
            }
            old_len
        }
        Some(_) => sys::fatal(start::FORKED),
        None if len < LARGE || !start::is_managed() => {
            // SAFETY: it is the C library's, as the caller promises.
            return unsafe { __libc_realloc(old, len) };
        }
        // SAFETY: as above.
        None => unsafe { next_usable_size(old) },
    };
    let new = malloc(len);
    if !new.is_null() {
        // SAFETY: both are that long, and apart.
        unsafe {
            new.copy_from_nonoverlapping(old, old_len.min(len));
            free(old);
        }
    }
    new
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn memalign(align: size_t, len: size_t) -> *mut c_void {
    if len >= LARGE
        && align <= BLOCK
        && let Some(start) = take(len)
    {
        return start;
    }
    // SAFETY: any length may be asked for.
    unsafe { __libc_memalign(align, len) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn aligned_alloc(align: size_t, len: size_t) -> *mut c_void {
    memalign(align, len)
}

/// # Safety
/// As of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: size_t, len: size_t) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<usize>()) {
        return libc::EINVAL;
    }
    let start = memalign(align, len);
    if start.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller gives a place for it.
    unsafe { *to = start };
    0
}

/// # Safety
/// As of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn reallocarray(old: *mut c_void, count: size_t, len: size_t) -> *mut c_void {
    match count.checked_mul(len) {
        // SAFETY: as the caller promises.
        Some(all) => unsafe { realloc(old, all) },
        None => {
            sys::set_errno(libc::ENOMEM);
            std::ptr::null_mut()
        }
    }
}

/// # Safety
/// As of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn malloc_usable_size(start: *mut c_void) -> size_t {
    match owner(start) {
        Some(pager) => {
            let _call = Call::enter();
            pager.len_of(start as usize).unwrap_or(0)
        }
        // SAFETY: as the caller promises.
        None => unsafe { next_usable_size(start) },
    }
}

/// The C library's, which has no name of its own for it.
///
/// # Safety
/// As of the C library's.
unsafe fn next_usable_size(start: *mut c_void) -> size_t {
    static NEXT: OnceLock<usize> = OnceLock::new();
    let next = *NEXT.get_or_init(|| {
        // SAFETY: the name ends in zero. What looking it up allocates is small, and not managed.
        unsafe { libc::dlsym(libc::RTLD_NEXT, c"malloc_usable_size".as_ptr()) as usize }
    });
    if next == 0 {
        sys::fatal("the C library has no malloc_usable_size");
    }
    // SAFETY: the C library's function is of this type.
    let next: unsafe extern "C" fn(*mut c_void) -> size_t = unsafe { std::mem::transmute(next) };
    // SAFETY: as the caller promises.
    unsafe { next(start) }
}
