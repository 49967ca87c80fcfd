//! Calls and returns: arguments are copied from frame to frame.

use super::warp::{Flow, Warp};
use super::{Outcome, Runner, fault};
use crate::inst::{Call, CallTarget, FUNCTION_BASE, Formal, Lanes, Slot, WARP};
use crate::{ErrorKind, Memory};

impl<M: Memory> Runner<'_, M> {
    pub(crate) fn call(&mut self, mask: u32, call: &Call) -> Outcome<Flow> {
        if mask == 0 {
            return Ok(Flow::Next);
        }
        let code = self.code;
        let (callee, mask) = match call.target {
            CallTarget::Function(index) => (index, mask),
            CallTarget::Indirect(src) => {
                // Threads with another target come here again: they stay at this instruction.
                let first = mask.trailing_zeros() as usize;
                let targets = *self.warp.lanes(self.constants, src);
                let same = (0..WARP).fold(0, |same, lane| {
                    same | u32::from(targets[lane] == targets[first]) << lane
                });
                let offset = targets[first].wrapping_sub(FUNCTION_BASE);
                let index = offset / 16;
                let known = code.functions.get(index as usize);
                if !offset.is_multiple_of(16) || !known.is_some_and(|known| known.is_defined) {
                    return fault(ErrorKind::Target(targets[first]), Some(first));
                }
                let other = mask & !same;
                if other != 0 {
                    self.warp.split(other, self.warp.now.pc);
                }
                (index as u32, mask & same)
            }
        };
        let off = self.warp.now.mask & !mask;
        if off != 0 {
            self.warp.split(off, self.warp.now.pc + 1);
        }
        self.warp.now.mask = mask;
        let caller = &code.functions[self.warp.window.function as usize];
        let target = &code.functions[callee as usize];
        let above = self.warp.window;
        let values = gather(&self.warp, self.constants, call);
        self.warp.enter((callee, target), caller, mask)?;
        for ((slot, formal), value) in call.args.iter().zip(&target.params).zip(&values) {
            match (*slot, *formal) {
                (
                    Slot::Frame { offset, size },
                    Formal::Frame {
                        offset: to,
                        size: formal_size,
                    },
                ) => {
                    let to = self.warp.window.local + to;
                    self.warp
                        .copy(mask, above.local + offset, to, size.min(formal_size))?;
                }
                (Slot::Value { .. }, Formal::Frame { offset, size }) => {
                    let to = self.warp.window.local + offset;
                    self.warp.put(mask, to, size.min(8), value)?;
                }
                (Slot::Value { .. }, Formal::Reg { slot, .. }) => {
                    self.warp.write(slot, mask, value)
                }
                (Slot::Frame { offset, .. }, Formal::Reg { slot, size }) => {
                    let value = self.warp.take(mask, above.local + offset, size.min(8))?;
                    self.warp.write(slot, mask, &value);
                }
            }
        }
        self.warp.now.pc = target.entry;
        Ok(Flow::Pick)
    }

    pub(crate) fn return_from(&mut self, mask: u32) -> Outcome<Flow> {
        if mask == 0 {
            return Ok(Flow::Next);
        }
        if self.warp.window.return_pc == u32::MAX {
            return Ok(self.exit(mask));
        }
        let off = self.warp.now.mask & !mask;
        if off != 0 {
            self.warp.split(off, self.warp.now.pc + 1);
        }
        self.warp.now.mask = mask;
        let code = self.code;
        let from = self.warp.window;
        let formals = &code.functions[from.function as usize].returns;
        let site = &code.insts[from.return_pc as usize - 1];
        let crate::inst::Op::Call(call) = &site.op else {
            return fault(ErrorKind::Target(0), None);
        };
        let results: Vec<Lanes> = formals
            .iter()
            .map(|formal| match *formal {
                Formal::Reg { slot, .. } => {
                    Ok(self.warp.registers[(from.registers + slot) as usize])
                }
                Formal::Frame { offset, size } => {
                    self.warp.take(mask, from.local + offset, size.min(8))
                }
            })
            .collect::<Outcome<_>>()?;
        self.warp.leave();
        for ((slot, formal), value) in call.returns.iter().zip(formals).zip(&results) {
            match (*slot, *formal) {
                (
                    Slot::Frame { offset, size },
                    Formal::Frame {
                        offset: at,
                        size: formal_size,
                    },
                ) => {
                    let to = self.warp.window.local + offset;
                    self.warp
                        .copy(mask, from.local + at, to, size.min(formal_size))?;
                }
                (Slot::Value { to, .. }, _) => self.warp.write(to, mask, value),
                (Slot::Frame { offset, .. }, Formal::Reg { size, .. }) => {
                    let to = self.warp.window.local + offset;
                    self.warp.put(mask, to, size.min(8), value)?;
                }
            }
        }
        Ok(Flow::Pick)
    }

    pub(crate) fn exit(&mut self, mask: u32) -> Flow {
        self.threads_left -= mask.count_ones();
        self.warp.exit(mask);
        if self.warp.now.mask != 0 {
            self.warp.now.pc += 1;
        }
        Flow::Pick
    }
}

/// The values of register arguments, read in the caller's window.
fn gather(warp: &Warp, constants: &[Lanes], call: &Call) -> Vec<Lanes> {
    call.args
        .iter()
        .map(|slot| match slot {
            Slot::Value { from, .. } => *warp.lanes(constants, *from),
            Slot::Frame { .. } => [0; WARP],
        })
        .collect()
}

impl Warp {
    /// Range of a thread's stack, checked.
    pub(crate) fn stack(&self, lane: usize, at: u64, len: u32) -> Option<std::ops::Range<usize>> {
        let end = at.checked_add(u64::from(len))?;
        if end > u64::from(self.stack_bytes) {
            return None;
        }
        let begin = lane * self.stack_bytes as usize + at as usize;
        Some(begin..begin + len as usize)
    }

    fn copy(&mut self, mask: u32, from: u32, to: u32, len: u32) -> Outcome<()> {
        for lane in lanes_of(mask) {
            let from = self.stack(lane, u64::from(from), len);
            let to = self.stack(lane, u64::from(to), len);
            match (from, to) {
                (Some(from), Some(to)) => self.local.copy_within(from, to.start),
                _ => return fault(ErrorKind::Stack, Some(lane)),
            }
        }
        Ok(())
    }

    fn put(&mut self, mask: u32, to: u32, len: u32, value: &Lanes) -> Outcome<()> {
        for lane in lanes_of(mask) {
            let Some(range) = self.stack(lane, u64::from(to), len) else {
                return fault(ErrorKind::Stack, Some(lane));
            };
            self.local[range].copy_from_slice(&value[lane].to_le_bytes()[..len as usize]);
        }
        Ok(())
    }

    fn take(&self, mask: u32, from: u32, len: u32) -> Outcome<Lanes> {
        let mut value = [0; WARP];
        for lane in lanes_of(mask) {
            let Some(range) = self.stack(lane, u64::from(from), len) else {
                return fault(ErrorKind::Stack, Some(lane));
            };
            let mut bytes = [0; 8];
            bytes[..len as usize].copy_from_slice(&self.local[range]);
            value[lane] = u64::from_le_bytes(bytes);
        }
        Ok(value)
    }
}

/// The lanes of a mask, lowest first.
pub(crate) fn lanes_of(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (lane < 32).then_some(lane as usize)
    })
}
