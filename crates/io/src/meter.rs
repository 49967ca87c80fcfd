//! What a run cost: clock, CPU time, memory, and the kernel's numbers for a TCP connection.
//!
//! Reads only; each call is one system call or one small file, cheap enough per chunk (clock, thread CPU) or per
//! second (the rest). All times are nanoseconds, all sizes bytes.

use std::{fs, io, mem, os::fd::AsRawFd};

/// A monotonic clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock;

impl Clock {
    /// Nanoseconds since an arbitrary fixed moment; never goes back, the same for every thread.
    #[must_use]
    pub fn now_ns(self) -> u64 {
        clock_ns(libc::CLOCK_MONOTONIC)
    }
}

/// CPU time of this process, all its threads, ended ones included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Spent in our own code.
    pub user_ns: u64,
    /// Spent in the kernel for us.
    pub system_ns: u64,
}

impl CpuTime {
    /// The process's CPU time so far.
    #[must_use]
    pub fn of_process() -> Self {
        // SAFETY: rusage holds integers only, for which all zero bytes are a value.
        let mut usage: libc::rusage = unsafe { mem::zeroed() };
        // SAFETY: `usage` is a writable rusage; with RUSAGE_SELF and a valid pointer the call cannot fail.
        unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
        let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000;
        Self {
            user_ns: ns(usage.ru_utime),
            system_ns: ns(usage.ru_stime),
        }
    }

    /// User and system time together.
    #[must_use]
    pub fn total_ns(self) -> u64 {
        self.user_ns + self.system_ns
    }

    /// What was spent since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
        }
    }
}

/// CPU nanoseconds of the calling thread: what a worker measures a codec with, since wall time also counts its
/// neighbours.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Nanoseconds that the calling thread was ready to run and had no processor, because others had it or its group's
/// quota was used up: the second figure of Linux's `schedstat`. 0 where the kernel does not tell.
#[must_use]
pub fn thread_delayed_ns() -> u64 {
    let figures = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    figures
        .split_whitespace()
        .nth(1)
        .and_then(|figure| figure.parse().ok())
        .unwrap_or(0)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a writable timespec; both clocks used exist on every kernel we run on.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Resident memory of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Now (`VmRSS`).
    pub resident: u64,
    /// The most so far (`VmHWM`).
    pub peak: u64,
}

impl Memory {
    /// Reads `/proc/self/status`.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn of_process() -> io::Result<Self> {
        let status = fs::read_to_string("/proc/self/status")?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok())
                .map(|kib| kib * 1024)
        };
        field("VmRSS:")
            .zip(field("VmHWM:"))
            .map(|(resident, peak)| Self { resident, peak })
            .ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    "/proc/self/status names no resident memory",
                )
            })
    }
}

/// Excerpt of the kernel's `TCP_INFO`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round trip.
    pub rtt_ns: u64,
    /// Shortest round trip of the last minutes: what the path takes when no queue stands in it.
    pub rtt_min_ns: u64,
    /// Segments in flight the sender allows itself, times their length.
    pub window: u64,
    /// Segments sent again since the start.
    pub retransmits: u32,
    /// Latest estimate of the delivery rate, bytes per second; 0 before the first.
    pub delivery_bytes_per_s: u64,
    /// The estimate was limited by how little we had to send: the link may be faster.
    pub app_limited: bool,
    /// Bytes written here and not sent yet.
    pub unsent: u32,
    /// Bytes the peer's kernel acknowledged since the start.
    pub acked: u64,
    /// Time something was in flight.
    pub busy_ns: u64,
    /// Part of `busy_ns` in which the peer's window was the limit.
    pub peer_limited_ns: u64,
    /// Part of `busy_ns` in which our send buffer was the limit.
    pub buffer_limited_ns: u64,
}

impl TcpInfo {
    /// Asks the kernel about `socket`; `None` if it is not TCP or the kernel (before 4.10) tells too little.
    #[must_use]
    pub fn of(socket: &impl AsRawFd) -> Option<Self> {
        // Offsets of `struct tcp_info` in <linux/tcp.h>, which only ever grows at its end; libc's own copy of the
        // structure stops before the delivery rate.
        const NEEDED: usize = 192;
        let mut raw = [0_u8; 256];
        let mut len = raw.len() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes into `raw`, which is that long and outlives the call.
        let code = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                raw.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        if code != 0 || (len as usize) < NEEDED {
            return None;
        }
        let u32_at =
            |at: usize| u32::from_ne_bytes(raw[at..at + 4].try_into().expect("four bytes"));
        let u64_at =
            |at: usize| u64::from_ne_bytes(raw[at..at + 8].try_into().expect("eight bytes"));
        // Bit fields fill from the low end on little-endian machines, from the high end on others.
        let app_limited = if cfg!(target_endian = "little") {
            0x01
        } else {
            0x80
        };
        Some(Self {
            rtt_ns: u64::from(u32_at(68)) * 1000,
            rtt_min_ns: u64::from(u32_at(148)) * 1000,
            window: u64::from(u32_at(80)) * u64::from(u32_at(16)),
            retransmits: u32_at(100),
            delivery_bytes_per_s: u64_at(160),
            app_limited: raw[7] & app_limited != 0,
            unsent: u32_at(144),
            acked: u64_at(120),
            busy_ns: u64_at(168) * 1000,
            peer_limited_ns: u64_at(176) * 1000,
            buffer_limited_ns: u64_at(184) * 1000,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_grows_with_work_and_wall_time_bounds_one_thread() {
        let (wall, cpu, process) = (Clock.now_ns(), thread_cpu_ns(), CpuTime::of_process());
        let mut sum = 0_u64;
        while thread_cpu_ns() - cpu < 30_000_000 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
        assert!(Clock.now_ns() - wall >= 30_000_000);
        assert!(CpuTime::of_process().since(process).total_ns() >= 10_000_000);
    }

    #[test]
    fn peak_memory_keeps_what_was_given_back() {
        let before = Memory::of_process().unwrap();
        drop(std::hint::black_box(vec![1_u8; 64 << 20]));
        let after = Memory::of_process().unwrap();
        assert!(
            after.peak >= before.resident + (48 << 20),
            "{before:?} {after:?}"
        );
        assert!(after.peak >= after.resident);
    }

    #[test]
    fn tcp_info_counts_what_was_acknowledged() {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[0; 10_000]).unwrap();
        far.read_exact(&mut [0; 10_000]).unwrap();
        far.write_all(&[1]).unwrap();
        near.read_exact(&mut [0; 1]).unwrap();
        let info = TcpInfo::of(&near).unwrap();
        assert!(
            info.acked >= 10_000 && info.rtt_ns > 0 && info.unsent == 0,
            "{info:?}"
        );
        assert_eq!(
            TcpInfo::of(&std::os::unix::net::UnixStream::pair().unwrap().0),
            None
        );
    }
}
