//! System calls, with what the headers of older systems lack: `UFFDIO_MOVE` came with Linux 6.8.
//!
//! Calls of the memory family go to the kernel by number, because this library interposes their names.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

use libc::{c_int, c_long, c_ulong, c_void};

/// A page of the kernel.
pub(crate) const PAGE: usize = 4096;

const fn iowr(number: c_ulong, len: usize) -> c_ulong {
    3 << 30 | (len as c_ulong) << 16 | 0xaa << 8 | number
}

const API: c_ulong = iowr(0x3f, size_of::<Api>());
const REGISTER: c_ulong = iowr(0, size_of::<Register>());
const WAKE: c_ulong = 2 << 30 | (size_of::<Range>() as c_ulong) << 16 | 0xaa << 8 | 2;
const COPY: c_ulong = iowr(3, size_of::<Transfer>());
const ZEROPAGE: c_ulong = iowr(4, size_of::<ZeroPage>());
const MOVE: c_ulong = iowr(5, size_of::<Transfer>());
const WRITEPROTECT: c_ulong = iowr(6, size_of::<WriteProtect>());

const FEATURE_FLAG_WP: u64 = 1 << 0;
const FEATURE_MOVE: u64 = 1 << 16;
const MODE_MISSING: u64 = 1 << 0;
const MODE_WP: u64 = 1 << 1;
const COPY_MODE_WP: u64 = 1 << 1;
const MOVE_MODE_DONTWAKE: u64 = 1 << 0;
const MOVE_MODE_ALLOW_SRC_HOLES: u64 = 1 << 1;
const EVENT_PAGEFAULT: u8 = 0x12;
const FAULT_WRITE: u64 = 1 << 0;
const FAULT_WP: u64 = 1 << 1;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Range {
    start: u64,
    len: u64,
}

#[repr(C)]
struct Register {
    range: Range,
    mode: u64,
    ioctls: u64,
}

/// Of `UFFDIO_COPY` and `UFFDIO_MOVE`.
#[repr(C)]
struct Transfer {
    to: u64,
    from: u64,
    len: u64,
    mode: u64,
    done: i64,
}

#[repr(C)]
struct ZeroPage {
    range: Range,
    mode: u64,
    done: i64,
}

#[repr(C)]
struct WriteProtect {
    range: Range,
    mode: u64,
}

#[repr(C)]
#[derive(Default)]
struct Message {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    thread: u64,
}

/// A fault that a thread waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) address: usize,
    pub(crate) is_write: bool,
    /// The page is there and write-protected.
    pub(crate) is_protected: bool,
}

/// How [`Uffd::copy`] leaves the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protect {
    /// The next write to one of them is told.
    Yes,
    No,
}

/// A userfaultfd in thread mode.
#[derive(Debug)]
pub(crate) struct Uffd(OwnedFd);

impl Uffd {
    /// Opens one by the system call, or by `/dev/userfaultfd` where the call is not allowed.
    pub(crate) fn open() -> io::Result<Self> {
        // SAFETY: the call takes flags only and gives a new descriptor or an error.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
        let fd = match fd {
            0.. => fd as RawFd,
            _ => by_device()?,
        };
        // SAFETY: the descriptor is new and nobody else's.
        let uffd = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        let features = FEATURE_FLAG_WP | FEATURE_MOVE;
        let mut api = Api {
            api: 0xaa,
            features,
            ioctls: 0,
        };
        uffd.control(API, &mut api)?;
        Ok(uffd)
    }

    fn control<T>(&self, request: c_ulong, argument: &mut T) -> io::Result<()> {
        // SAFETY: each request is called with the structure of its definition above, which outlives the call.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), request, argument as *mut T) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Has faults in absent pages of a range told, and with `writes` those in write-protected ones.
    pub(crate) fn register(&self, start: usize, len: usize, writes: bool) -> io::Result<()> {
        let mode = MODE_MISSING | if writes { MODE_WP } else { 0 };
        let range = Range {
            start: start as u64,
            len: len as u64,
        };
        self.control(
            REGISTER,
            &mut Register {
                range,
                mode,
                ioctls: 0,
            },
        )
    }

    /// Waits for a fault. Several threads may wait; each fault goes to one.
    pub(crate) fn wait(&self) -> io::Result<Option<Fault>> {
        let mut message = Message::default();
        let to: *mut Message = &mut message;
        // SAFETY: `to` has room for one message, and a message is plain numbers.
        let len = unsafe { libc::read(self.0.as_raw_fd(), to.cast(), size_of::<Message>()) };
        if len < 0 {
            let fault = io::Error::last_os_error();
            return match fault.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN) => Ok(None),
                _ => Err(fault),
            };
        }
        let is_fault = len as usize == size_of::<Message>() && message.event == EVENT_PAGEFAULT;
        Ok(is_fault.then_some(Fault {
            address: message.address as usize,
            is_write: message.flags & FAULT_WRITE != 0,
            is_protected: message.flags & FAULT_WP != 0,
        }))
    }

    /// Puts a copy of `from` at `to`, whose pages are absent, and wakes who waits for them.
    pub(crate) fn copy(&self, to: usize, from: &[u8], protect: Protect) -> io::Result<()> {
        let mode = if protect == Protect::Yes {
            COPY_MODE_WP
        } else {
            0
        };
        self.transfer(COPY, [to, from.as_ptr() as usize, from.len()], mode)
    }

    /// Moves the pages at `from` to `to`, where they are absent, and wakes who waits for them there. Pages absent
    /// at `from` stay absent.
    pub(crate) fn move_in(&self, to: usize, from: usize, len: usize) -> io::Result<()> {
        self.transfer(MOVE, [to, from, len], MOVE_MODE_ALLOW_SRC_HOLES)
    }

    /// As [`Uffd::move_in`], where nobody waits at `to`.
    pub(crate) fn move_out(&self, to: usize, from: usize, len: usize) -> io::Result<()> {
        let mode = MOVE_MODE_ALLOW_SRC_HOLES | MOVE_MODE_DONTWAKE;
        self.transfer(MOVE, [to, from, len], mode)
    }

    fn transfer(&self, request: c_ulong, what: [usize; 3], mode: u64) -> io::Result<()> {
        let [to, from, len] = what.map(|number| number as u64);
        let mut at = 0;
        while at < len {
            let (to, from, len) = (to + at, from + at, len - at);
            let mut transfer = Transfer {
                to,
                from,
                len,
                mode,
                done: 0,
            };
            match self.control(request, &mut transfer) {
                Ok(()) => return Ok(()),
                Err(fault) if fault.raw_os_error() == Some(libc::EAGAIN) => {
                    at += transfer.done.max(0) as u64;
                }
                // Some were done before one that could not be.
                Err(fault) if transfer.done > 0 => {
                    at += transfer.done as u64;
                    if at == len {
                        return Err(fault);
                    }
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Has absent pages of a range read as zeroes; pages that are there stay, one by one.
    pub(crate) fn zero(&self, start: usize, len: usize) -> io::Result<()> {
        for page in (start..start + len).step_by(PAGE) {
            let range = Range {
                start: page as u64,
                len: PAGE as u64,
            };
            let mut zero = ZeroPage {
                range,
                mode: 0,
                done: 0,
            };
            loop {
                match self.control(ZEROPAGE, &mut zero) {
                    Err(fault) if fault.raw_os_error() == Some(libc::EAGAIN) => {}
                    Err(fault) if fault.raw_os_error() == Some(libc::EEXIST) => {
                        self.wake(page, PAGE)?;
                        break;
                    }
                    other => {
                        other?;
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Lets threads go on that wait for pages of a range.
    pub(crate) fn wake(&self, start: usize, len: usize) -> io::Result<()> {
        self.control(
            WAKE,
            &mut Range {
                start: start as u64,
                len: len as u64,
            },
        )
    }

    /// Takes the write protection of a range away, and wakes who waits to write.
    pub(crate) fn unprotect(&self, start: usize, len: usize) -> io::Result<()> {
        let range = || Range {
            start: start as u64,
            len: len as u64,
        };
        loop {
            match self.control(
                WRITEPROTECT,
                &mut WriteProtect {
                    range: range(),
                    mode: 0,
                },
            ) {
                Err(fault) if fault.raw_os_error() == Some(libc::EAGAIN) => {}
                other => return other,
            }
        }
    }
}

fn by_device() -> io::Result<RawFd> {
    let refused = io::Error::last_os_error();
    let Ok(device) = std::fs::File::open("/dev/userfaultfd") else {
        return Err(refused);
    };
    const NEW: c_ulong = 0xaa << 8;
    // SAFETY: the request takes flags only and gives a new descriptor or an error.
    match unsafe { libc::ioctl(device.as_raw_fd(), NEW, libc::O_CLOEXEC) } {
        fd @ 0.. => Ok(fd),
        _ => Err(io::Error::last_os_error()),
    }
}

fn result(value: c_long) -> io::Result<usize> {
    if (-4095..0).contains(&value) || value == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(value as usize)
}

/// Reserves `len` bytes that cost memory as they are touched, in small pages, and that no child inherits: there
/// nobody would answer its faults.
pub(crate) fn reserve(len: usize) -> io::Result<usize> {
    let start = map(len).ok_or_else(io::Error::last_os_error)? as usize;
    for advice in [libc::MADV_NOHUGEPAGE, libc::MADV_DONTFORK] {
        advise(start, len, advice)?;
    }
    Ok(start)
}

/// The kernel's page.
pub(crate) fn page_len() -> usize {
    // SAFETY: asks for a number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// New anonymous memory, which costs nothing until it is touched.
pub(crate) fn map(len: usize) -> Option<*mut u8> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new anonymous mapping touches nothing that exists.
    let start = result(unsafe {
        libc::syscall(
            libc::SYS_mmap,
            0_usize,
            len,
            protection,
            flags,
            -1_isize,
            0_usize,
        )
    });
    start.ok().map(|start| start as *mut u8)
}

/// Gives back what [`map`] gave.
pub(crate) fn unmap(start: *mut u8, len: usize) {
    // SAFETY: the caller had it from `map`, of that length, and uses it no more.
    unsafe { libc::syscall(libc::SYS_munmap, start, len) };
}

/// `madvise` by its number.
pub(crate) fn advise(start: usize, len: usize, advice: c_int) -> io::Result<()> {
    // SAFETY: callers name ranges of mappings that this library reserved, or pass a program's call on.
    result(unsafe { libc::syscall(libc::SYS_madvise, start, len, advice) }).map(drop)
}

/// Passes a program's call of the memory family on, and returns what the kernel says.
pub(crate) fn pass(number: c_long, arguments: [usize; 6]) -> c_long {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the program asked for exactly this call.
    unsafe { libc::syscall(number, a, b, c, d, e, f) }
}

/// Maps a file that another process shares.
pub(crate) fn share(file: &std::fs::File, len: usize) -> io::Result<*mut c_void> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let fd = file.as_raw_fd() as isize;
    // SAFETY: a new mapping touches nothing that exists.
    let start = result(unsafe {
        libc::syscall(
            libc::SYS_mmap,
            0_usize,
            len,
            protection,
            libc::MAP_SHARED,
            fd,
            0_usize,
        )
    })?;
    Ok(start as *mut c_void)
}

/// Ends the program with a sentence: its memory is not what it was.
pub(crate) fn fatal(text: &str) -> ! {
    say(text);
    // SAFETY: ends the process.
    unsafe { libc::_exit(FATAL) }
}

/// Says a sentence on standard error, without allocating or locking.
pub(crate) fn say(text: &str) {
    for part in ["narrows memory run: ", text, "\n"] {
        // SAFETY: the bytes are a slice's.
        unsafe { libc::write(2, part.as_ptr().cast(), part.len()) };
    }
}

/// Exit code of a program that we had to end.
const FATAL: c_int = 70;

/// Sets the C library's error of this thread.
pub(crate) fn set_errno(error: c_int) {
    // SAFETY: the place is this thread's own.
    unsafe { *libc::__errno_location() = error };
}
