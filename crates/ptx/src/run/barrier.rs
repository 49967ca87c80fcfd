//! Barriers of a block.

use super::warp::{Flow, Wait};
use super::{Outcome, Runner, Slot, fault};
use crate::inst::{BarrierOp, Op, PredSrc, Src};
use crate::{ErrorKind, Memory};

/// Barriers of a block.
pub(crate) const BARRIERS: usize = 16;

/// One barrier: who has come, and what they brought.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Barrier {
    arrived: u32,
    /// Threads to wait for; 0 stands for all of the block that have not exited.
    expected: u32,
    /// Warps that have come with at least one thread.
    warps: u32,
    count: u32,
    is_any: bool,
    is_not_all: bool,
}

impl<M: Memory> Runner<'_, M> {
    pub(crate) fn barrier(
        &mut self,
        mask: u32,
        (id, count): (Src, Option<Src>),
        op: BarrierOp,
    ) -> Outcome<Flow> {
        if mask == 0 {
            return Ok(Flow::Next);
        }
        let lane = mask.trailing_zeros() as usize;
        let number = self.warp.lane(self.constants, id, lane) as usize;
        let expected = count.map_or(0, |count| {
            self.warp.lane(self.constants, count, lane) as u32
        });
        if number >= BARRIERS {
            let what = format!("barrier {number}: there are {BARRIERS}");
            return fault(ErrorKind::Unsupported(what), Some(lane));
        }
        let brought = match op {
            BarrierOp::And { p, .. } | BarrierOp::Or { p, .. } | BarrierOp::Count { p, .. } => {
                self.warp.predicate(p) & mask
            }
            _ => self.warp.predicate(PredSrc::TRUE) & mask,
        };
        let barrier = &mut self.barriers[number];
        barrier.arrived += mask.count_ones();
        barrier.expected = expected;
        // Given a number of threads, a device counts whole warps: exited threads count with theirs.
        let warp = 1u32 << (self.warp.index() & 31);
        if expected != 0 && barrier.warps & warp == 0 {
            barrier.warps |= warp;
            barrier.arrived += self.warp.exited().count_ones();
        }
        barrier.count += brought.count_ones();
        barrier.is_any |= brought != 0;
        barrier.is_not_all |= brought != mask;
        if op == BarrierOp::Arrive {
            return Ok(Flow::Next);
        }
        self.warp.wait(mask, Wait::Barrier(number as u32));
        if self.warp.now.mask != 0 {
            self.warp.now.pc += 1;
        }
        Ok(Flow::Pick)
    }

    /// Opens the barriers at which everyone has come. Threads that exited are not waited for.
    pub(super) fn release(&mut self, slots: &mut [Slot]) {
        for number in 0..BARRIERS {
            let barrier = self.barriers[number];
            let expected = match barrier.expected {
                0 => self.threads_left,
                expected => expected,
            };
            if barrier.arrived == 0 || barrier.arrived < expected {
                continue;
            }
            self.barriers[number] = Barrier::default();
            for slot in &mut *slots {
                let Slot::Live(warp) = slot else { continue };
                let mut groups = std::mem::take(warp.groups_mut());
                for group in &mut groups {
                    if group.wait != Wait::Barrier(number as u32) {
                        continue;
                    }
                    group.wait = Wait::Nothing;
                    warp.now = *group;
                    warp.enter_window();
                    if let Op::Barrier { op, .. } = &self.code.insts[group.pc as usize].op {
                        let mask = group.mask;
                        match *op {
                            BarrierOp::And { d, .. } => {
                                warp.set_predicate(
                                    d,
                                    mask,
                                    if barrier.is_not_all { 0 } else { u32::MAX },
                                );
                            }
                            BarrierOp::Or { d, .. } => {
                                warp.set_predicate(
                                    d,
                                    mask,
                                    if barrier.is_any { u32::MAX } else { 0 },
                                );
                            }
                            BarrierOp::Count { d, .. } => {
                                warp.write(d, mask, &[u64::from(barrier.count); 32]);
                            }
                            _ => {}
                        }
                    }
                    warp.now.mask = 0;
                    group.pc += 1;
                }
                *warp.groups_mut() = groups;
            }
        }
    }
}
