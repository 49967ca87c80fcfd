//! `mmap` and its family: large private anonymous memory is managed.

use libc::{c_int, c_long, c_void, off_t, size_t};

use crate::{
    start::{self, Call},
    sys::{self, PAGE},
};

/// Mappings from here on are managed: smaller ones are an interpreter's own pools of small objects.
const LARGE: usize = 2 << 20;
/// Flags of mappings that are managed. `MAP_STACK` and `MAP_FIXED` are not among them.
const PLAIN: c_int =
    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_POPULATE;

fn answer(value: c_long) -> *mut c_void {
    value as *mut c_void
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn mmap(
    start: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    let is_plain = flags & !PLAIN == 0 && flags & libc::MAP_ANONYMOUS != 0;
    if len >= LARGE
        && is_plain
        && protection == libc::PROT_READ | libc::PROT_WRITE
        && let Some(call) = Call::enter()
        && let Some(start) = call.pager().take(len, false)
    {
        return start as *mut c_void;
    }
    if flags & libc::MAP_FIXED != 0 && reaches(start as usize, len) {
        return over(start, len, protection, flags & !libc::MAP_FIXED);
    }
    let words = [
        start as usize,
        len,
        protection as usize,
        flags as usize,
        fd as usize,
        offset as usize,
    ];
    answer(sys::pass(libc::SYS_mmap, words))
}

/// Whether a range has managed memory in it.
fn reaches(start: usize, len: usize) -> bool {
    let last = start.saturating_add(len.saturating_sub(1));
    start::holder(start).is_some() || start::holder(last).is_some()
}

/// A mapping in place of managed memory: of the same sort it is that memory, emptied; any other would be taken for
/// ours, so it is refused.
fn over(start: *mut c_void, len: size_t, protection: c_int, flags: c_int) -> *mut c_void {
    let is_same = flags & !PLAIN == 0
        && flags & libc::MAP_ANONYMOUS != 0
        && protection == libc::PROT_READ | libc::PROT_WRITE
        && start::holder(start as usize + len.saturating_sub(1)).is_some();
    if is_same && madvise(start, len, libc::MADV_DONTNEED) == 0 {
        return start;
    }
    sys::say(
        "the program maps something in place of large memory, which is not supported: refused",
    );
    answer(refuse(libc::ENOMEM).into())
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn mmap64(
    start: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    mmap(start, len, protection, flags, fd, offset)
}

/// A range is whole pages, or the call is wrong.
fn pages(start: *mut c_void, len: size_t) -> Option<(usize, usize)> {
    let is_whole = (start as usize).is_multiple_of(PAGE) && len > 0;
    let len = len.checked_next_multiple_of(PAGE)?;
    is_whole.then_some((start as usize, len))
}

fn refuse(error: c_int) -> c_int {
    sys::set_errno(error);
    -1
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn munmap(start: *mut c_void, len: size_t) -> c_int {
    let Some(pager) = start::holder(start as usize) else {
        return sys::pass(libc::SYS_munmap, [start as usize, len, 0, 0, 0, 0]) as c_int;
    };
    let Some((start, len)) = pages(start, len) else {
        return refuse(libc::EINVAL);
    };
    if let Some(_call) = Call::enter() {
        pager.unmap(start, len);
    }
    0
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn madvise(start: *mut c_void, len: size_t, advice: c_int) -> c_int {
    let Some(pager) = start::holder(start as usize) else {
        let words = [start as usize, len, advice as usize, 0, 0, 0];
        return sys::pass(libc::SYS_madvise, words) as c_int;
    };
    if len == 0 {
        return 0;
    }
    let Some((start, len)) = pages(start, len) else {
        return refuse(libc::EINVAL);
    };
    match advice {
        libc::MADV_DONTNEED => {
            if let Some(_call) = Call::enter() {
                pager.discard(start, len);
            }
            0
        }
        libc::MADV_REMOVE => refuse(libc::EINVAL),
        // Hints that need not be taken.
        _ => 0,
    }
}

/// # Safety
/// As of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_len: size_t,
    len: size_t,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let Some(pager) = start::holder(old as usize) else {
        if flags & libc::MREMAP_FIXED != 0 && reaches(to as usize, len) {
            return answer(refuse(libc::EINVAL).into());
        }
        let words = [old as usize, old_len, len, flags as usize, to as usize, 0];
        return answer(sys::pass(libc::SYS_mremap, words));
    };
    let failed = |error| answer(refuse(error).into());
    let (Some((start, old_len)), Some((_, len))) = (pages(old, old_len), pages(old, len)) else {
        return failed(libc::EINVAL);
    };
    if flags & !libc::MREMAP_MAYMOVE != 0 {
        return failed(libc::EINVAL);
    }
    let Some(call) = Call::enter() else {
        return failed(libc::ENOMEM);
    };
    if len <= old_len {
        if len < old_len {
            pager.unmap(start + len, old_len - len);
        }
        return old;
    }
    if start.is_multiple_of(crate::blocks::BLOCK) && pager.resize(start, old_len, len, false) {
        return old;
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        return failed(libc::ENOMEM);
    }
    let Some(new) = call.pager().take(len, false) else {
        return failed(libc::ENOMEM);
    };
    // SAFETY: both are that long, and apart; the old one is the program's until it is unmapped below.
    unsafe { (new as *mut u8).copy_from_nonoverlapping(old.cast(), old_len) };
    pager.unmap(start, old_len);
    new as *mut c_void
}

macro_rules! refused {
    ($($name:ident($($argument:ident: $type:ty),*) by $number:ident;)*) => {$(
        /// Locked memory cannot be taken away, so managed memory cannot be locked.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        extern "C" fn $name(start: *const c_void, len: size_t $(, $argument: $type)*) -> c_int {
            if reaches(start as usize, len) {
                sys::say("large memory cannot be locked: refused");
                return refuse(libc::EPERM);
            }
            let words = [start as usize, len, $($argument as usize,)* 0];
            let mut all = [0; 6];
            all[..words.len()].copy_from_slice(&words);
            sys::pass(libc::$number, all) as c_int
        }
    )*};
}

refused! {
    mlock() by SYS_mlock;
    mlock2(flags: c_int) by SYS_mlock2;
}

/// All memory cannot be locked where some of it is to go.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn mlockall(flags: c_int) -> c_int {
    if start::is_managed() {
        sys::say("memory cannot be locked within a limit: refused");
        return refuse(libc::EPERM);
    }
    sys::pass(libc::SYS_mlockall, [flags as usize, 0, 0, 0, 0, 0]) as c_int
}
