//! Processor time of QEMU, without that of the guest: what the migration itself cost its process.
//!
//! From `/proc/PID/stat` less the `stat` of the virtual processors' threads, in ticks of a hundredth of a second
//! (`USER_HZ`, fixed on Linux since 2.6).

use std::fs;

const TICK_NS: u64 = 10_000_000;

/// QEMU's process and its virtual processors.
#[derive(Debug, Clone, Default)]
pub struct QemuCpu {
    pid: u32,
    vcpus: Vec<u32>,
}

impl QemuCpu {
    /// Of a process on this machine; `vcpus` are the ids of the threads that run the guest.
    #[must_use]
    pub fn new(pid: u32, vcpus: Vec<u32>) -> Self {
        Self { pid, vcpus }
    }

    /// Used so far, in nanoseconds; `None` where the process has gone or is none of ours to see.
    #[must_use]
    pub fn used_ns(&self) -> Option<u64> {
        let all = ticks(&format!("/proc/{}/stat", self.pid))?;
        let guest: u64 = self
            .vcpus
            .iter()
            .filter_map(|tid| ticks(&format!("/proc/{}/task/{tid}/stat", self.pid)))
            .sum();
        Some(all.saturating_sub(guest) * TICK_NS)
    }
}

fn ticks(path: &str) -> Option<u64> {
    let stat = fs::read_to_string(path).ok()?;
    // The name in brackets may hold anything; fields 14 and 15 are counted from behind it.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_time_is_read_and_a_thread_can_be_left_out() {
        let mut sum = 0_u64;
        let began = std::time::Instant::now();
        while began.elapsed().as_millis() < 60 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
        let pid = std::process::id();
        let all = QemuCpu::new(pid, Vec::new()).used_ns().unwrap();
        assert!(all >= 2 * TICK_NS, "{all}");
        let without = QemuCpu::new(pid, vec![pid]).used_ns().unwrap();
        assert!(without <= QemuCpu::new(pid, Vec::new()).used_ns().unwrap());
        assert_eq!(QemuCpu::new(u32::MAX, Vec::new()).used_ns(), None);
    }
}
