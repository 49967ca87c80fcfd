//! The raw system calls of the waiting code: polling a descriptor beside a wake-up, resetting a connection.

use std::{
    fs::OpenOptions,
    io, mem,
    net::Shutdown,
    os::fd::{AsRawFd, RawFd},
    time::Duration,
};

use socket2::Socket;

/// Blocks until `fd` can be read (or ended, or failed) or `wake` can be read.
pub(crate) fn readable_or(fd: &impl AsRawFd, wake: &impl AsRawFd) -> io::Result<()> {
    wait(fd.as_raw_fd(), libc::POLLIN, wake.as_raw_fd(), -1).map(drop)
}

/// Blocks until `fd` can be written (or failed) or `wake` can be read.
pub(crate) fn writable_or(fd: &impl AsRawFd, wake: &impl AsRawFd) -> io::Result<()> {
    wait(fd.as_raw_fd(), libc::POLLOUT, wake.as_raw_fd(), -1).map(drop)
}

/// Whether `fd` could be read now.
pub(crate) fn is_readable(fd: &impl AsRawFd) -> io::Result<bool> {
    wait(fd.as_raw_fd(), libc::POLLIN, fd.as_raw_fd(), 0)
}

/// Whether the peer of `fd` has closed its writing half, or all is over.
pub(crate) fn is_hung_up(fd: &impl AsRawFd) -> bool {
    // Of the descriptor -1 nothing is ever told. A call that fails knows of no peer either.
    wait(fd.as_raw_fd(), libc::POLLRDHUP, -1, 0).unwrap_or(true)
}

fn wait(
    fd: RawFd,
    events: libc::c_short,
    wake: RawFd,
    timeout_ms: libc::c_int,
) -> io::Result<bool> {
    let mut set = [
        libc::pollfd {
            fd,
            events,
            revents: 0,
        },
        libc::pollfd {
            fd: wake,
            events: libc::POLLIN,
            revents: 0,
        },
    ];
    loop {
        // SAFETY: `set` is an array of two initialised pollfd and outlives the call.
        let ready = unsafe { libc::poll(set.as_mut_ptr(), 2, timeout_ms) };
        if ready >= 0 {
            return Ok(ready > 0);
        }
        let err = io::Error::last_os_error();
        if err.kind() != io::ErrorKind::Interrupted {
            return Err(err);
        }
    }
}

/// Process at the other end of a Unix socket; `None` where the kernel knows none.
pub(crate) fn peer_pid(socket: &impl AsRawFd) -> Option<u32> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = mem::size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `peer`, which is that long and outlives the call.
    let code = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    // Sockets that are not Unix, and peers of other namespaces, have process 0.
    (code == 0)
        .then_some(peer.pid)
        .and_then(|pid| u32::try_from(pid).ok())
        .filter(|pid| *pid > 0)
}

/// Points descriptor `fd` at `/dev/null`, so that what it held ends while the number stays taken.
pub(crate) fn replace_with_null(fd: RawFd) -> io::Result<()> {
    let null = OpenOptions::new().write(true).open("/dev/null")?;
    // SAFETY: dup2 takes two numbers; `null` is open, and `fd` is replaced atomically, never left dangling.
    if unsafe { libc::dup2(null.as_raw_fd(), fd) } < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Ends a connection the hard way, from any thread; threads blocked in it return. A TCP peer sees a reset, never an
/// orderly end; a Unix peer sees the end in the middle of something.
pub(crate) fn reset(socket: &Socket) {
    // `shutdown` alone sends an end of stream first, which a plain peer takes for a whole one. Connecting to nowhere
    // sends a reset at once; kernels that refuse that while a thread waits (6.4 to 6.6) fall back to `shutdown`, and so
    // do Unix sockets.
    let _ = socket.set_linger(Some(Duration::ZERO));
    // SAFETY: sockaddr holds integers only, for which all zero bytes are a value.
    let mut nowhere: libc::sockaddr = unsafe { mem::zeroed() };
    nowhere.sa_family = libc::AF_UNSPEC as libc::sa_family_t;
    // SAFETY: `nowhere` is a sockaddr of the length given and outlives the call; the descriptor is open.
    unsafe {
        libc::connect(
            socket.as_raw_fd(),
            &raw const nowhere,
            mem::size_of::<libc::sockaddr>() as u32,
        )
    };
    let _ = socket.shutdown(Shutdown::Both);
}
