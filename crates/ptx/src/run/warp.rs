//! A warp: its registers, and its groups of threads.
//!
//! Threads with the same program counter and the same stack of calls are one group. Of the groups
//! that can run, the one deepest in calls runs first, then the one with the lowest program counter,
//! so that a group that branched ahead waits until the others come to it, and they merge. A group
//! that has run long while others could (a spin lock held by one of them) gives way for a while to
//! the one that ran longest ago.

use super::{Outcome, Runner, fault};
use crate::inst::{FALSE, Lanes, WARP};
use crate::{ErrorKind, Launch, Memory};

/// Cost after which a group gives way to others of its warp.
const PATIENCE: i64 = 4096;
/// Cost after which a warp gives way to the next.
const TURN: i64 = 65536;
/// Cost of an atomic, in instructions: spinning on one is noticed sooner.
pub(crate) const ATOMIC_COST: i64 = 32;
/// Thread-instructions after which the launch's budget is asked.
const CHARGE: u64 = 16384;
/// Registers of a warp with all its calls at most; each takes 256 bytes.
const REGISTERS_MAX: usize = 1 << 15;
/// Calls that may nest.
const DEPTH_MAX: u32 = 4096;

/// What a group waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    Nothing,
    Barrier(u32),
    /// Threads of this mask, at a `.sync` instruction.
    Members(u32),
}

/// Threads that run together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    pub(crate) pc: u32,
    pub(crate) mask: u32,
    pub(crate) frame: u32,
    pub(crate) wait: Wait,
    /// When it ran last, in instructions of the warp.
    ran: u64,
}

/// One activation of a function, by threads that called it together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Frame {
    pub(crate) function: u32,
    /// The instruction after the call; `u32::MAX` for the kernel itself.
    pub(crate) return_pc: u32,
    pub(crate) parent: u32,
    pub(crate) depth: u32,
    pub(crate) registers: u32,
    pub(crate) predicates: u32,
    pub(crate) local: u32,
    /// Threads in this frame or in frames above it; 0 marks a free place.
    pub(crate) live: u32,
}

/// A warp. Its vectors are reused from block to block.
#[derive(Debug)]
pub(crate) struct Warp {
    index: u32,
    pub(crate) registers: Vec<Lanes>,
    pub(crate) predicates: Vec<u32>,
    /// Stacks, one after another.
    pub(crate) local: Vec<u8>,
    pub(crate) stack_bytes: u32,
    pub(crate) frames: Vec<Frame>,
    groups: Vec<Group>,
    /// The group that runs; its mask is 0 if none does.
    pub(crate) now: Group,
    /// The frame of the group that runs.
    pub(crate) window: Frame,
    /// Where the group that runs meets another one.
    stop: u32,
    exited: u32,
    /// A `.sync` instruction whose members cannot come executes without them.
    force: bool,
    /// The group that runs was chosen because it waited long.
    is_fair: bool,
    patience: i64,
    turn: i64,
    pub(crate) steps: u64,
    pub(crate) tid: [Lanes; 3],
}

impl Default for Warp {
    fn default() -> Self {
        Warp {
            index: 0,
            registers: Vec::new(),
            predicates: Vec::new(),
            local: Vec::new(),
            stack_bytes: 0,
            frames: Vec::new(),
            groups: Vec::new(),
            now: Group {
                pc: 0,
                mask: 0,
                frame: 0,
                wait: Wait::Nothing,
                ran: 0,
            },
            window: Frame::default(),
            stop: u32::MAX,
            exited: 0,
            force: false,
            is_fair: false,
            patience: 0,
            turn: 0,
            steps: 0,
            tid: [[0; WARP]; 3],
        }
    }
}

/// What one instruction did to the program counter.
pub(crate) enum Flow {
    Next,
    Jump(u32),
    /// The groups changed; choose one.
    Pick,
    /// Let others run.
    Yield,
}

impl Warp {
    pub(crate) fn start(&mut self, launch: &Launch<'_>, index: u32, threads: u32) {
        let function = &launch.linked.module.code.functions[launch.kernel.function as usize];
        let first = index * WARP as u32;
        let count = (threads - first).min(WARP as u32);
        let mask = if count == 32 {
            u32::MAX
        } else {
            (1 << count) - 1
        };
        self.index = index;
        self.grow(function.registers as usize, function.predicates as usize);
        self.predicates[FALSE as usize] = 0;
        self.stack_bytes = launch.kernel.local_bytes.next_multiple_of(16);
        let local = self.stack_bytes as usize * WARP;
        if self.local.len() < local {
            self.local.resize(local, 0);
        }
        self.frames.clear();
        self.frames.push(Frame {
            function: launch.kernel.function,
            return_pc: u32::MAX,
            live: mask,
            ..Frame::default()
        });
        self.groups.clear();
        let group = Group {
            pc: function.entry,
            mask,
            frame: 0,
            wait: Wait::Nothing,
            ran: 0,
        };
        self.groups.push(group);
        self.now = Group { mask: 0, ..group };
        self.exited = !mask;
        self.force = false;
        self.is_fair = false;
        self.steps = 0;
        let [x, y, _] = launch.block;
        for lane in 0..WARP {
            let thread = first + lane as u32;
            self.tid[0][lane] = u64::from(thread % x);
            self.tid[1][lane] = u64::from(thread / x % y);
            self.tid[2][lane] = u64::from(thread / x / y);
        }
    }

    fn grow(&mut self, registers: usize, predicates: usize) {
        if self.registers.len() < registers {
            self.registers.resize(registers, [0; WARP]);
        }
        if self.predicates.len() < predicates {
            self.predicates.resize(predicates, 0);
        }
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn pc(&self) -> u32 {
        self.now.pc
    }

    /// Threads that have exited or never were.
    pub(crate) fn exited(&self) -> u32 {
        self.exited
    }

    pub(crate) fn is_done(&self) -> bool {
        self.exited == u32::MAX
    }

    /// Whether a group can run now.
    pub(crate) fn has_ready(&self) -> bool {
        self.now.mask != 0
            || self
                .groups
                .iter()
                .any(|group| !matches!(group.wait, Wait::Barrier(_)))
    }

    /// For reports: shows the first waiting group as the one that runs.
    pub(crate) fn show_waiting(&mut self) {
        if let Some(&group) = self.groups.first() {
            self.now = group;
        }
    }

    pub(crate) fn groups_mut(&mut self) -> &mut Vec<Group> {
        &mut self.groups
    }

    /// Chooses the group to run; false if none can.
    fn pick(&mut self) -> bool {
        self.put_back();
        self.merge();
        let live = !self.exited;
        let ready = |group: &Group| match group.wait {
            Wait::Nothing => true,
            Wait::Members(members) => members & live & !group.mask == 0,
            Wait::Barrier(_) => false,
        };
        let frames = &self.frames;
        let rank = |group: &Group| (u32::MAX - frames[group.frame as usize].depth, group.pc);
        let chosen = (0..self.groups.len())
            .filter(|&at| ready(&self.groups[at]))
            .min_by_key(|&at| rank(&self.groups[at]));
        if let Some(at) = chosen {
            self.choose(at);
            self.is_fair = false;
            return true;
        }
        // Only groups that wait for members are left, and those will not come.
        let forced = (0..self.groups.len())
            .filter(|&at| matches!(self.groups[at].wait, Wait::Members(_)))
            .min_by_key(|&at| rank(&self.groups[at]));
        match forced {
            Some(at) => {
                self.choose(at);
                self.force = true;
                true
            }
            None => false,
        }
    }

    fn put_back(&mut self) {
        if self.now.mask != 0 {
            let ran = self.steps;
            self.groups.push(Group { ran, ..self.now });
            self.now.mask = 0;
        }
    }

    fn merge(&mut self) {
        let mut at = 0;
        while at < self.groups.len() {
            let group = self.groups[at];
            let same = (at + 1..self.groups.len()).find(|&other| {
                let other = &self.groups[other];
                other.pc == group.pc && other.frame == group.frame && other.wait == group.wait
            });
            match same {
                Some(other) => {
                    let other = self.groups.swap_remove(other);
                    self.groups[at].mask |= other.mask;
                }
                None => at += 1,
            }
        }
    }

    fn choose(&mut self, at: usize) {
        self.now = self.groups.swap_remove(at);
        self.now.wait = Wait::Nothing;
        self.enter_window();
        self.find_stop();
    }

    /// Caches the frame of the group that runs.
    pub(crate) fn enter_window(&mut self) {
        self.window = self.frames[self.now.frame as usize];
    }

    fn find_stop(&mut self) {
        let ahead = self
            .groups
            .iter()
            .map(|group| group.pc)
            .filter(|&pc| pc > self.now.pc);
        self.stop = ahead.min().unwrap_or(u32::MAX);
    }

    /// Lets the group that ran longest ago run for a while; false if there is no other.
    fn pick_oldest(&mut self) -> bool {
        let oldest = (0..self.groups.len())
            .filter(|&at| self.groups[at].wait == Wait::Nothing)
            .min_by_key(|&at| self.groups[at].ran);
        let Some(at) = oldest else { return false };
        let before = self.now;
        let ran = self.steps;
        self.choose(at);
        if before.mask != 0 {
            self.groups.push(Group { ran, ..before });
            self.find_stop();
        }
        self.is_fair = true;
        true
    }

    /// Splits threads off the group that runs, to go on elsewhere.
    pub(crate) fn split(&mut self, mask: u32, pc: u32) {
        self.now.mask &= !mask;
        let ran = self.steps;
        self.groups.push(Group {
            pc,
            mask,
            wait: Wait::Nothing,
            ran,
            ..self.now
        });
    }

    /// Makes threads of the group that runs wait at its instruction.
    pub(crate) fn wait(&mut self, mask: u32, wait: Wait) {
        self.now.mask &= !mask;
        let ran = self.steps;
        self.groups.push(Group {
            mask,
            wait,
            ran,
            ..self.now
        });
    }

    /// Whether a `.sync` instruction may run for `mask`; otherwise its threads wait from now on.
    pub(crate) fn assembled(&mut self, mask: u32, members: u32) -> bool {
        if members & !self.exited & !mask == 0 || std::mem::take(&mut self.force) {
            return true;
        }
        self.wait(mask, Wait::Members(members));
        if self.now.mask != 0 {
            // Those that the guard turned off go on.
            self.now.pc += 1;
        }
        false
    }

    pub(crate) fn exit(&mut self, mask: u32) {
        self.exited |= mask;
        self.now.mask &= !mask;
        for frame in &mut self.frames {
            frame.live &= !mask;
        }
    }

    /// Opens a frame for the threads of `mask` and makes it the current one.
    pub(crate) fn enter(
        &mut self,
        callee: (u32, &crate::inst::FunctionCode),
        caller: &crate::inst::FunctionCode,
        mask: u32,
    ) -> Outcome<()> {
        let above = self.window;
        let (function, code) = callee;
        let frame = Frame {
            function,
            return_pc: self.now.pc + 1,
            parent: self.now.frame,
            depth: above.depth + 1,
            registers: above.registers + caller.registers,
            predicates: above.predicates + caller.predicates,
            local: above.local + caller.frame_bytes.next_multiple_of(16).max(16),
            live: mask,
        };
        let registers = frame.registers as usize + code.registers as usize;
        let local_end = frame.local + code.frame_bytes;
        if frame.depth > DEPTH_MAX || registers > REGISTERS_MAX || local_end > self.stack_bytes {
            return fault(ErrorKind::Stack, Some(mask.trailing_zeros() as usize));
        }
        self.grow(
            registers,
            frame.predicates as usize + code.predicates as usize,
        );
        self.predicates[(frame.predicates + FALSE) as usize] &= !mask;
        let place = self.frames.iter().position(|frame| frame.live == 0);
        let place = place.unwrap_or_else(|| {
            self.frames.push(frame);
            self.frames.len() - 1
        });
        self.frames[place] = frame;
        self.now.frame = place as u32;
        self.enter_window();
        Ok(())
    }

    /// Leaves the current frame with the threads that run.
    pub(crate) fn leave(&mut self) {
        self.frames[self.now.frame as usize].live &= !self.now.mask;
        self.now.pc = self.window.return_pc;
        self.now.frame = self.window.parent;
        self.enter_window();
    }
}

impl<M: Memory> Runner<'_, M> {
    /// Runs the current warp until it waits, ends, or has had its turn.
    pub(crate) fn turn(&mut self) -> Outcome<()> {
        let code = self.code;
        self.warp.turn = TURN;
        self.warp.patience = PATIENCE;
        while self.warp.pick() {
            loop {
                let inst = &code.insts[self.warp.now.pc as usize];
                self.warp.steps += 1;
                self.stats.warp_instructions += 1;
                self.pending += u64::from(self.warp.now.mask.count_ones());
                if self.pending >= CHARGE {
                    self.charge()?;
                }
                self.spend(1);
                match self.step(inst)? {
                    Flow::Next => {
                        self.warp.now.pc += 1;
                        if self.warp.now.pc == self.warp.stop {
                            break;
                        }
                    }
                    Flow::Jump(pc) => {
                        self.warp.now.pc = pc;
                        if self.warp.is_fair {
                            self.warp.find_stop();
                        } else if !self.warp.groups.is_empty() {
                            break;
                        }
                    }
                    Flow::Pick => break,
                    Flow::Yield => {
                        self.warp.now.pc += 1;
                        self.warp.patience = 0;
                        self.warp.turn -= PATIENCE;
                    }
                }
                if self.warp.patience <= 0 {
                    self.warp.patience = PATIENCE;
                    if self.warp.turn <= 0 {
                        self.warp.put_back();
                        return Ok(());
                    }
                    let was_fair = self.warp.is_fair;
                    if was_fair || !self.warp.pick_oldest() {
                        self.warp.is_fair = false;
                        if !self.warp.groups.is_empty() {
                            break;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Counts cost against the turn of the group and of the warp.
    pub(crate) fn spend(&mut self, cost: i64) {
        self.warp.patience -= cost;
        self.warp.turn -= cost;
    }
}
