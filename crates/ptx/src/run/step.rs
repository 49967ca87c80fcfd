//! One instruction, for the group that runs.

use super::call::lanes_of;
use super::warp::{Flow, Warp};
use super::{Outcome, Runner, fault};
use crate::inst::{
    FUNCTION_BASE, Inst, LOCAL_WINDOW, Lanes, Op, PARAM_WINDOW, Place, Pred, PredSrc, Reg,
    SHARED_WINDOW, Special, Src, WARP,
};
use crate::{ErrorKind, Memory};

impl Warp {
    /// The vector that an operand names.
    #[inline(always)]
    pub(crate) fn lanes<'s>(&'s self, constants: &'s [Lanes], src: Src) -> &'s Lanes {
        let (slot, is_constant) = src.slot();
        if is_constant {
            &constants[slot]
        } else {
            &self.registers[self.window.registers as usize + slot]
        }
    }

    /// One lane of an operand.
    pub(crate) fn lane(&self, constants: &[Lanes], src: Src, lane: usize) -> u64 {
        self.lanes(constants, src)[lane]
    }

    /// Writes the lanes of `mask`.
    #[inline(always)]
    pub(crate) fn write(&mut self, d: Reg, mask: u32, value: &Lanes) {
        let to = &mut self.registers[self.window.registers as usize + d as usize];
        if mask == u32::MAX {
            *to = *value;
        } else {
            for lane in 0..WARP {
                let keep = u64::from(mask >> lane & 1).wrapping_sub(1);
                to[lane] = to[lane] & keep | value[lane] & !keep;
            }
        }
    }

    #[inline(always)]
    pub(crate) fn predicate(&self, p: PredSrc) -> u32 {
        self.predicates[(self.window.predicates + p.slot) as usize] ^ p.flip
    }

    #[inline(always)]
    pub(crate) fn set_predicate(&mut self, d: Pred, mask: u32, value: u32) {
        let to = &mut self.predicates[(self.window.predicates + d) as usize];
        *to = *to & !mask | value & mask;
    }
}

impl<M: Memory> Runner<'_, M> {
    pub(crate) fn step(&mut self, inst: &Inst) -> Outcome<Flow> {
        let mask = self.warp.now.mask & self.warp.predicate(inst.guard);
        let constants = self.constants;
        match &inst.op {
            Op::Alu { f, d, s } => {
                let mut out = [0; WARP];
                let sources = s.map(|s| self.warp.lanes(constants, s));
                f(&mut out, sources);
                self.warp.write(*d, mask, &out);
            }
            Op::Mov { d, s } => {
                let value = *self.warp.lanes(constants, *s);
                self.warp.write(*d, mask, &value);
            }
            Op::Test { f, p, q, s, with } => {
                let sources = s.map(|s| self.warp.lanes(constants, s));
                let value = f(sources);
                let (yes, no) = match with {
                    None => (value, !value),
                    Some((logic, c)) => {
                        let c = self.warp.predicate(*c);
                        (logic.of(value, c), logic.of(!value, c))
                    }
                };
                self.warp.set_predicate(*p, mask, yes);
                self.warp.set_predicate(*q, mask, no);
            }
            Op::Select { d, p, s } => {
                let p = self.warp.predicate(*p);
                let [a, b] = s.map(|s| self.warp.lanes(constants, s));
                let mut out = [0; WARP];
                for lane in 0..WARP {
                    let keep = u64::from(p >> lane & 1).wrapping_sub(1);
                    out[lane] = b[lane] & keep | a[lane] & !keep;
                }
                self.warp.write(*d, mask, &out);
            }
            Op::Predicate { op, d, a, b } => {
                let value = op.of(self.warp.predicate(*a), self.warp.predicate(*b));
                self.warp.set_predicate(*d, mask, value);
            }
            Op::Load {
                d,
                address,
                element,
            } => self.load(mask, d, address, *element)?,
            Op::Store {
                s,
                address,
                element,
            } => self.store(mask, s, address, *element)?,
            Op::Branch { to } => {
                if mask == self.warp.now.mask {
                    return Ok(Flow::Jump(*to));
                }
                if mask != 0 {
                    self.warp.split(mask, *to);
                    self.warp.now.pc += 1;
                    return Ok(Flow::Pick);
                }
            }
            Op::Return => return self.return_from(mask),
            Op::Exit if mask != 0 => return Ok(self.exit(mask)),
            Op::Exit | Op::Nop => {}
            Op::Call(call) => return self.call(mask, call),
            Op::Barrier { id, count, op } => return self.barrier(mask, (*id, *count), *op),
            _ if mask == 0 => {}
            _ => return self.seldom(mask, &inst.op),
        }
        Ok(Flow::Next)
    }

    /// Instructions that are less frequent; `mask` is not 0.
    #[allow(clippy::too_many_lines, reason = "a table: one arm an instruction")]
    fn seldom(&mut self, mask: u32, op: &Op) -> Outcome<Flow> {
        let constants = self.constants;
        let first = mask.trailing_zeros() as usize;
        match op {
            Op::Special { d, what, add } => {
                let value = self.special(*what).map(|lane| lane.wrapping_add(*add));
                self.warp.write(*d, mask, &value);
            }
            Op::Pack { d, parts, bits } => self.pack(mask, *d, parts, *bits),
            Op::Unpack { d, s, bits } => self.unpack(mask, d, *s, *bits),
            Op::Carry { .. } => self.carry(mask, op),
            Op::TestPair { f, p, q, s, with } => {
                let sources = s.map(|s| self.warp.lanes(constants, s));
                let values = [f[0](sources), f[1](sources)];
                for (d, value) in [*p, *q].into_iter().zip(values) {
                    let value = self.combine(value, with);
                    self.warp.set_predicate(d, mask, value);
                }
            }
            Op::Set {
                f,
                d,
                s,
                with,
                value,
            } => {
                let test = f(s.map(|s| self.warp.lanes(constants, s)));
                let test = self.combine(test, with);
                let out =
                    std::array::from_fn(|lane| if test >> lane & 1 != 0 { *value } else { 0 });
                self.warp.write(*d, mask, &out);
            }
            Op::SetPair {
                f,
                d,
                s,
                with,
                value,
            } => {
                let sources = s.map(|s| self.warp.lanes(constants, s));
                let tests = [f[0](sources), f[1](sources)];
                let [low, high] = tests.map(|test| self.combine(test, with));
                let part = |test: u32, lane: usize| if test >> lane & 1 != 0 { *value } else { 0 };
                let out = std::array::from_fn(|lane| part(low, lane) | part(high, lane) << 16);
                self.warp.write(*d, mask, &out);
            }
            Op::IsSpace { d, place, s } => {
                let addresses = self.warp.lanes(constants, *s);
                let value = (0..WARP).fold(0, |value, lane| {
                    value | u32::from(is_in(*place, addresses[lane])) << lane
                });
                self.warp.set_predicate(*d, mask, value);
            }
            Op::CopyAsync {
                to,
                from,
                bytes,
                source,
            } => {
                self.copy_async(mask, to, from, (*bytes, *source))?;
            }
            Op::Atomic {
                d,
                address,
                request,
                s,
            } => {
                self.spend(super::warp::ATOMIC_COST);
                self.atomic(mask, *d, address, (*request, *s))?;
            }
            Op::BranchIndexed { s, to } => return self.branch_indexed(mask, *s, to),
            Op::Mma(mma) => self.mma(mask, mma),
            Op::LoadMatrix {
                d,
                address,
                transposed,
            } => {
                self.load_matrix(mask, d, address, *transposed)?;
            }
            Op::StoreMatrix {
                s,
                address,
                transposed,
            } => {
                self.store_matrix(mask, s, address, *transposed)?;
            }
            Op::MoveMatrix { d, s } => self.move_matrix(mask, *d, *s),
            Op::Tex(tex) => self.fetch(mask, tex)?,
            Op::TexQuery { d, handle, what } => self.tex_query(mask, *d, *handle, *what)?,
            Op::Trap => return fault(ErrorKind::Trap(String::new()), Some(first)),
            Op::Assert {
                message,
                file,
                line,
            } => {
                return self.assert_failed(first, [*message, *file, *line]);
            }
            Op::Yield => return Ok(Flow::Yield),
            Op::Unsupported(message) => {
                let message = self.code.messages.get(*message as usize);
                let message = message.cloned().unwrap_or_default();
                return fault(ErrorKind::Unsupported(message), Some(first));
            }
            _ => return self.collective(mask, op),
        }
        Ok(Flow::Next)
    }

    fn combine(&self, test: u32, with: &Option<(crate::inst::Logic, PredSrc)>) -> u32 {
        match with {
            None => test,
            Some((logic, c)) => logic.of(test, self.warp.predicate(*c)),
        }
    }

    fn carry(&mut self, mask: u32, op: &Op) {
        let Op::Carry {
            f,
            d,
            s,
            reads,
            writes,
            bits,
        } = op
        else {
            return;
        };
        let flag = PredSrc {
            slot: crate::inst::CARRY,
            flip: 0,
        };
        let carry = if *reads { self.warp.predicate(flag) } else { 0 };
        let [a, b, c] = s.map(|s| self.warp.lanes(self.constants, s));
        let limit = crate::num::int::ones(*bits);
        let (mut out, mut flags) = ([0; WARP], 0);
        for lane in 0..WARP {
            let operands = [a[lane], b[lane], c[lane]].map(|lane| lane & limit);
            let [a, b, c] = operands;
            let (value, flag) = f(a, b, c, carry >> lane & 1 != 0);
            out[lane] = value;
            flags |= u32::from(flag) << lane;
        }
        self.warp.write(*d, mask, &out);
        if *writes {
            self.warp.set_predicate(crate::inst::CARRY, mask, flags);
        }
    }

    fn pack(&mut self, mask: u32, d: Reg, parts: &[Src], bits: u32) {
        let per_register = (64 / bits.clamp(1, 64)) as usize;
        let limit = crate::num::int::ones(bits);
        let chunks: Vec<Lanes> = parts
            .chunks(per_register)
            .map(|chunk| {
                let mut out = [0; WARP];
                for (index, &part) in chunk.iter().enumerate() {
                    let part = self.warp.lanes(self.constants, part);
                    let shift = bits * index as u32;
                    for lane in 0..WARP {
                        out[lane] |= (part[lane] & limit) << shift;
                    }
                }
                out
            })
            .collect();
        for (index, value) in chunks.iter().enumerate() {
            self.warp.write(d + index as u32, mask, value);
        }
    }

    fn unpack(&mut self, mask: u32, d: &[Option<Reg>], s: [Src; 2], bits: u32) {
        let sources = s.map(|s| *self.warp.lanes(self.constants, s));
        let limit = crate::num::int::ones(bits);
        for (index, d) in d.iter().enumerate() {
            let Some(d) = *d else { continue };
            let at = bits * index as u32;
            let source = &sources[(at / 64 != 0) as usize];
            let value = source.map(|lane| lane >> (at % 64) & limit);
            self.warp.write(d, mask, &value);
        }
    }

    fn branch_indexed(&mut self, mask: u32, s: Src, to: &[u32]) -> Outcome<Flow> {
        let index = *self.warp.lanes(self.constants, s);
        for lane in lanes_of(mask) {
            let Some(&pc) = to.get(index[lane] as usize) else {
                return fault(ErrorKind::Target(index[lane]), Some(lane));
            };
            // Threads with one target merge when the next group is chosen.
            self.warp.split(1 << lane, pc);
        }
        if self.warp.now.mask != 0 {
            self.warp.now.pc += 1;
        }
        Ok(Flow::Pick)
    }

    fn assert_failed(&mut self, lane: usize, sources: [Src; 3]) -> Outcome<Flow> {
        let [message, file, line] = sources.map(|s| self.warp.lane(self.constants, s, lane));
        let text = |address: u64| {
            let mut text = String::new();
            for at in 0..200 {
                match self.memory.load_u8(address.wrapping_add(at)) {
                    Ok(byte @ 0x20..=0x7e) => text.push(byte as char),
                    _ => break,
                }
            }
            text
        };
        let what = format!(
            ": assertion {} failed at {}:{}",
            text(message),
            text(file),
            line as u32
        );
        fault(ErrorKind::Trap(what), Some(lane))
    }

    fn special(&self, what: Special) -> Lanes {
        let launch = self.launch;
        let all = |value: u64| [value; WARP];
        let mask = |f: fn(u32) -> u32| std::array::from_fn(|lane| u64::from(f(lane as u32)));
        // One block per processor at a time: the clock counts its instructions.
        let clock = self.stats.warp_instructions;
        let timer = launch.start_ns.wrapping_add(clock);
        match what {
            Special::Tid(axis) => self.warp.tid[axis as usize],
            Special::Ntid(axis) => all(launch.block[axis as usize].into()),
            Special::Ctaid(axis) => all(self.block[axis as usize].into()),
            Special::Nctaid(axis) => all(launch.grid[axis as usize].into()),
            Special::Laneid => std::array::from_fn(|lane| lane as u64),
            Special::Warpid => all(self.warp.index().into()),
            Special::Nwarpid => {
                all(u64::from(launch.block.iter().product::<u32>()).div_ceil(WARP as u64))
            }
            Special::Zero => all(0),
            Special::One => all(1),
            Special::LanemaskEq => mask(|lane| 1 << lane),
            Special::LanemaskLe => mask(|lane| u32::MAX >> (31 - lane)),
            Special::LanemaskLt => mask(|lane| (1 << lane) - 1),
            Special::LanemaskGe => mask(|lane| u32::MAX << lane),
            Special::LanemaskGt => mask(|lane| u32::MAX << lane << 1),
            Special::Clock => all(clock & 0xffff_ffff),
            Special::ClockHi => all(clock >> 32),
            Special::Clock64 => all(clock),
            Special::GlobalTimer => all(timer),
            Special::GlobalTimerLo => all(timer & 0xffff_ffff),
            Special::GlobalTimerHi => all(timer >> 32),
            Special::DynamicShared => all(launch.dynamic_shared.into()),
            Special::TotalShared => all(self.shared.len() as u64),
            Special::DynamicSharedBase => all(super::dynamic_base(launch).into()),
            Special::FrameBase => all(self.warp.window.local.into()),
        }
    }
}

/// Whether a generic address lies in a place.
fn is_in(place: Place, address: u64) -> bool {
    let window = address & !0xffff_ffff;
    match place {
        Place::Shared => window == SHARED_WINDOW,
        Place::Local => window == LOCAL_WINDOW,
        Place::Param => window == PARAM_WINDOW,
        _ => !(SHARED_WINDOW..FUNCTION_BASE).contains(&address),
    }
}
