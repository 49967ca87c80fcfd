//! What a launch is, and what it may cost.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::{Kernel, Linked};

/// Thread-instructions that one launch may still execute; shared by the workers of the launch.
#[derive(Debug)]
pub struct Budget {
    left: AtomicI64,
    id: u64,
}

static LAUNCHES: AtomicU64 = AtomicU64::new(1);

impl Budget {
    /// A budget of so many instructions, each counted once for every active thread.
    pub fn new(thread_instructions: u64) -> Self {
        let left = i64::try_from(thread_instructions).unwrap_or(i64::MAX);
        Budget {
            left: AtomicI64::new(left),
            id: LAUNCHES.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Ends the launch: every worker stops at its next look, with
    /// [`ErrorKind::Budget`](crate::ErrorKind::Budget).
    pub fn cancel(&self) {
        self.left.store(i64::MIN / 2, Ordering::Relaxed);
    }

    /// Thread-instructions left.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed).max(0) as u64
    }

    /// Differs from launch to launch in this process: tells a `Scratch` when to clear itself.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Takes `count`; false if the budget is spent.
    pub(crate) fn take(&self, count: u64) -> bool {
        let count = count.min(i64::MAX as u64 / 4) as i64;
        self.left.fetch_sub(count, Ordering::Relaxed) >= count
    }
}

/// One launch of one kernel.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// The module, with addresses.
    pub linked: &'a Linked,
    /// A kernel of that module.
    pub kernel: &'a Kernel,
    /// Blocks of the grid.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Shared memory besides what the kernel declares, in bytes.
    pub dynamic_shared: u32,
    /// The parameter buffer.
    pub params: &'a [u8],
    /// What the launch may cost.
    pub budget: &'a Budget,
    /// What `%globaltimer` starts from, in nanoseconds; the interpreter reads no clock.
    pub start_ns: u64,
}

/// What a block did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockStats {
    /// Instructions, each counted once for every active thread.
    pub thread_instructions: u64,
    /// Instructions, each counted once for a warp.
    pub warp_instructions: u64,
}
