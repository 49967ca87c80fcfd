//! Two hosts for tests that need two: network namespaces joined by one link.

use std::{
    ffi::OsStr,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use crate::process::{has, is_root, skip};

/// The hosts' addresses.
pub const ADDRESSES: [&str; 2] = ["10.111.0.1", "10.111.0.2"];

/// Deleted when dropped.
pub struct Hosts([String; 2]);

impl Hosts {
    /// `None`, with the reason printed, where none can be made.
    pub fn new() -> Option<Self> {
        if !is_root() || !has("ip") {
            skip("two network namespaces need root and `ip`");
            return None;
        }
        // Tests of one process run at the same time.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let id = format!("{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let hosts = Self([format!("narrows-a{id}"), format!("narrows-b{id}")]);
        let [a, b] = &hosts.0;
        let mut ready = ip(&format!("netns add {a}"))
            && ip(&format!("netns add {b}"))
            && ip(&format!(
                "link add narrows netns {a} type veth peer name narrows netns {b}"
            ));
        for (name, address) in hosts.0.iter().zip(ADDRESSES) {
            ready = ready
                && ip(&format!("-n {name} addr add {address}/24 dev narrows"))
                && ip(&format!("-n {name} link set lo up"))
                && ip(&format!("-n {name} link set narrows up"));
        }
        if !ready {
            skip("this kernel or container makes no network namespaces joined by veth");
            return None;
        }
        Some(hosts)
    }

    /// Lets no more through from the first to the second than this, in bits a second; whether the kernel does so.
    pub fn shape(&self, rate: &str) -> bool {
        let mut tc = self.on(0, "tc");
        tc.args("qdisc add dev narrows root tbf burst 256kb latency 50ms rate".split(' '));
        tc.arg(rate).status().is_ok_and(|status| status.success())
    }

    /// A program on one of them, 0 or 1. What it mounts is there for it alone.
    pub fn on(&self, host: usize, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.0[host]])
            .arg(program)
            .stdin(Stdio::null());
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.0 {
            ip(&format!("netns del {name}"));
        }
    }
}

fn ip(line: &str) -> bool {
    let status = Command::new("ip")
        .args(line.split_whitespace())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}
