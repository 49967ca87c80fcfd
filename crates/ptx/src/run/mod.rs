//! Runs the blocks of a launch, one at a time.
//!
//! `warp` holds a warp's registers and its groups of threads and decides which group is next;
//! `step` executes one instruction for one group; `access`, `call`, `collective`, `matrix` and
//! `fetch` hold the families that are more than arithmetic; `barrier` joins the warps.
//! A warp runs until it waits, ends, or has had its turn; then the next one runs. Warps start when
//! their first turn comes, so a kernel without barriers needs the registers of one warp only.

mod access;
mod barrier;
mod call;
mod collective;
mod fetch;
mod matrix;
mod step;
mod warp;

use barrier::{BARRIERS, Barrier};
use warp::Warp;

use crate::inst::{Code, Lanes, WARP};
use crate::{BlockStats, ErrorKind, KernelError, Launch, Memory};

/// What a worker keeps from block to block: registers, shared memory. Clears itself when it comes
/// to another launch, so that nothing of one program is visible to another.
#[derive(Debug, Default)]
pub struct Scratch {
    owner: u64,
    // Boxed: warps change places at every turn.
    #[allow(clippy::vec_box)]
    pool: Vec<Box<Warp>>,
    slots: Vec<Slot>,
    shared: Vec<u8>,
}

/// A warp's state.
#[derive(Debug)]
enum Slot {
    New,
    Live(Box<Warp>),
    Done,
}

/// Why a kernel stops, before its place is known.
#[derive(Debug)]
pub(crate) struct Fault {
    kind: ErrorKind,
    lane: Option<u32>,
}

type Outcome<T> = Result<T, Box<Fault>>;

fn fault<T>(kind: ErrorKind, lane: Option<usize>) -> Outcome<T> {
    Err(Box::new(Fault {
        kind,
        lane: lane.map(|lane| lane as u32),
    }))
}

/// Runs one block of a launch to its end. Blocks of one launch may run at the same time, each with
/// a `Scratch` of its own.
pub fn run_block<M: Memory>(
    launch: &Launch<'_>,
    block: [u32; 3],
    memory: &M,
    scratch: &mut Scratch,
) -> Result<BlockStats, KernelError> {
    if let Err(what) = check(launch) {
        return Err(KernelError {
            kernel: launch.kernel.name.clone(),
            kind: ErrorKind::Launch(what),
            line: 0,
            source: None,
            block,
            thread: None,
            instruction: String::new(),
        });
    }
    scratch.begin(launch);
    let mut runner = Runner {
        launch,
        code: &launch.linked.module.code,
        constants: &launch.linked.constants,
        memory,
        block,
        shared: std::mem::take(&mut scratch.shared),
        barriers: [Barrier::default(); BARRIERS],
        warp: Box::default(),
        threads_left: launch.block.iter().product(),
        pending: 0,
        stats: BlockStats::default(),
    };
    let result = runner.run(scratch);
    scratch.shared = std::mem::take(&mut runner.shared);
    match result {
        Ok(()) => Ok(runner.stats),
        Err(fault) => {
            let error = runner.describe(*fault);
            scratch.owner = 0;
            Err(error)
        }
    }
}

fn check(launch: &Launch<'_>) -> Result<(), String> {
    let threads = launch
        .block
        .iter()
        .fold(1u64, |all, &n| all.saturating_mul(u64::from(n)));
    let kernel = launch.kernel;
    if threads == 0 || threads > u64::from(kernel.max_threads.max(1)) {
        return Err(format!(
            "a block of {threads} threads, the kernel allows {}",
            kernel.max_threads
        ));
    }
    if kernel
        .required_block
        .is_some_and(|required| required != launch.block)
    {
        return Err(format!(
            "the kernel requires a block of {:?}",
            kernel.required_block
        ));
    }
    if launch.params.len() < kernel.param_bytes as usize {
        return Err(format!(
            "{} bytes of parameters, the kernel takes {}",
            launch.params.len(),
            kernel.param_bytes
        ));
    }
    let shared = u64::from(kernel.static_shared_bytes) + u64::from(launch.dynamic_shared);
    if shared > SHARED_MAX {
        return Err(format!(
            "{shared} bytes of shared memory, there are {SHARED_MAX}"
        ));
    }
    let code = &launch.linked.module.code;
    let known = code.functions.get(kernel.function as usize);
    if !known.is_some_and(|function| function.name == kernel.name && function.is_defined) {
        return Err("the kernel is of another module".into());
    }
    Ok(())
}

/// Shared memory of a block at most, static and dynamic: what the largest devices have.
const SHARED_MAX: u64 = 228 << 10;

impl Scratch {
    fn begin(&mut self, launch: &Launch<'_>) {
        let owner = launch.budget.id();
        if self.owner != owner {
            self.owner = owner;
            self.pool.clear();
            self.shared.clear();
        }
        self.slots.clear();
        let bytes = dynamic_base(launch) + launch.dynamic_shared;
        self.shared.clear();
        self.shared.resize(bytes as usize, 0);
    }
}

/// Where the dynamic array begins in shared memory.
fn dynamic_base(launch: &Launch<'_>) -> u32 {
    launch.kernel.static_shared_bytes.next_multiple_of(16)
}

/// One block being run.
pub(crate) struct Runner<'a, M> {
    launch: &'a Launch<'a>,
    code: &'a Code,
    constants: &'a [Lanes],
    memory: &'a M,
    block: [u32; 3],
    shared: Vec<u8>,
    barriers: [Barrier; BARRIERS],
    /// The warp whose turn it is.
    warp: Box<Warp>,
    /// Threads that have not exited.
    threads_left: u32,
    /// Thread-instructions not yet taken from the budget.
    pending: u64,
    stats: BlockStats,
}

impl<M: Memory> Runner<'_, M> {
    fn run(&mut self, scratch: &mut Scratch) -> Outcome<()> {
        let threads: u32 = self.launch.block.iter().product();
        let warps = threads.div_ceil(WARP as u32);
        scratch.slots.resize_with(warps as usize, || Slot::New);
        loop {
            let (mut progressed, mut live) = (false, false);
            for index in 0..warps {
                let slot = &mut scratch.slots[index as usize];
                let warp = match std::mem::replace(slot, Slot::Done) {
                    Slot::Done => continue,
                    Slot::New => {
                        let mut warp = scratch.pool.pop().unwrap_or_default();
                        warp.start(self.launch, index, threads);
                        warp
                    }
                    Slot::Live(warp) if !warp.has_ready() => {
                        *slot = Slot::Live(warp);
                        live = true;
                        continue;
                    }
                    Slot::Live(warp) => warp,
                };
                progressed = true;
                self.warp = warp;
                self.turn()?;
                let warp = std::mem::take(&mut self.warp);
                if warp.is_done() {
                    scratch.pool.push(warp);
                } else {
                    scratch.slots[index as usize] = Slot::Live(warp);
                    live = true;
                }
                self.release(&mut scratch.slots);
            }
            if !live {
                return self.charge();
            }
            if !progressed {
                self.blame(&mut scratch.slots);
                return fault(ErrorKind::Deadlock, None);
            }
        }
    }

    /// For a deadlock's report: makes a waiting warp the current one.
    fn blame(&mut self, slots: &mut [Slot]) {
        for slot in slots {
            if let Slot::Live(warp) = slot {
                self.warp = std::mem::take(warp);
                self.warp.show_waiting();
                return;
            }
        }
    }

    fn charge(&mut self) -> Outcome<()> {
        self.stats.thread_instructions += self.pending;
        let pending = std::mem::take(&mut self.pending);
        if self.launch.budget.take(pending) {
            Ok(())
        } else {
            fault(ErrorKind::Budget, None)
        }
    }

    fn describe(&self, fault: Fault) -> KernelError {
        let pc = self.warp.pc();
        let [x, y, _] = self.launch.block;
        KernelError {
            kernel: self.launch.kernel.name.clone(),
            kind: fault.kind,
            line: self.code.insts.get(pc as usize).map_or(0, |inst| inst.line),
            source: self.code.source(pc),
            block: self.block,
            thread: fault.lane.map(|lane| {
                let thread = self.warp.index() * WARP as u32 + lane;
                [thread % x, thread / x % y, thread / x / y]
            }),
            instruction: self.code.instruction(pc),
        }
    }
}
