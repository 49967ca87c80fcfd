//! Which family an instruction belongs to, and the instructions that only move and compute.

use super::function::{Body, Symbol};
use super::integer::Shape;
use super::modifiers::Modifiers;
use super::{compare, convert, float, integer};
use crate::inst::{
    Alu, LOCAL_WINDOW, Logic, Op, PARAM_WINDOW, PRED_SINK, Place, PredSrc, SHARED_WINDOW, Special,
};
use crate::num::float::Arith;
use crate::text::ast::{Instruction, Operand, Type};

impl<'t> Body<'_, 't> {
    pub(crate) fn dispatch(
        &mut self,
        instruction: &Instruction<'t>,
        mods: &mut Modifiers<'_>,
    ) -> Result<Op, String> {
        let operands = &instruction.operands[..];
        let opcode = instruction.opcode;
        match opcode {
            "mov" => self.mov(operands, mods),
            "ld" | "ldu" | "st" | "atom" | "red" | "prefetch" | "prefetchu" | "cp"
            | "applypriority" | "discard" => self.memory(opcode, operands, mods),
            "bra" | "brx" | "call" | "ret" | "exit" | "trap" | "brkpt" | "nanosleep" | "bar"
            | "barrier" | "membar" | "fence" | "pmevent" | "setmaxnreg" | "griddepcontrol" => {
                self.control(opcode, operands, mods)
            }
            "shfl" | "vote" | "match" | "activemask" | "redux" | "elect" => {
                self.collective(opcode, operands, mods)
            }
            "mma" | "ldmatrix" | "stmatrix" | "movmatrix" => self.matrix(opcode, operands, mods),
            "tex" | "tld4" | "txq" => self.texture(opcode, operands, mods),
            "setp" => self.setp(operands, mods),
            "set" => self.set(operands, mods),
            "selp" | "slct" => self.select(opcode, operands, mods),
            "testp" => self.testp(operands, mods),
            "cvt" => {
                let (_, width) = self.dst(operands.first().ok_or("no operands")?)?;
                let shape = convert::convert(width, mods)?;
                self.alu(operands, shape)
            }
            "createpolicy" => {
                // A policy of caches: any value does, since there are none.
                mods.find_all();
                let (d, _) = self.dst(operands.first().ok_or("no operands")?)?;
                Ok(Op::Mov {
                    d,
                    s: self.value(0)?,
                })
            }
            "cvta" => self.cvta(operands, mods),
            "isspacep" => self.isspacep(operands, mods),
            "lop3" => self.lop3(operands, mods),
            "bfi" => self.bfi(operands, mods),
            "and" | "or" | "xor" | "not" if mods.take("pred") => self.pred_logic(opcode, operands),
            _ => self.compute(opcode, operands, mods),
        }
    }

    fn alu(&mut self, operands: &[Operand<'t>], shape: Shape) -> Result<Op, String> {
        let (d, s) = operands.split_first().ok_or("no operands")?;
        let s = self.sources(s, &shape.sources)?;
        let (d, _) = self.dst(d)?;
        Ok(Op::Alu { f: shape.f, d, s })
    }

    fn compute(
        &mut self,
        opcode: &str,
        operands: &[Operand<'t>],
        mods: &mut Modifiers<'_>,
    ) -> Result<Op, String> {
        match opcode {
            "addc" | "subc" | "madc" => return self.with_carry(opcode, operands, mods),
            "add" | "sub" | "mad" if mods.take("cc") => {
                return self.carry(opcode, true, operands, mods);
            }
            "shf" => {
                let shape = integer::funnel(mods)?;
                mods.take("b32");
                return self.alu(operands, shape);
            }
            "prmt" => {
                let shape = integer::permute(mods)?;
                mods.take("b32");
                return self.alu(operands, shape);
            }
            "dp4a" | "dp2a" => {
                let shape = integer::dot(opcode, mods)?;
                return self.alu(operands, shape);
            }
            _ => {}
        }
        let ty = mods.ty()?;
        let is_float = ty.is_float();
        let shape = match opcode {
            "add" if is_float => float::arithmetic(Arith::Add, ty, mods)?,
            "sub" if is_float => float::arithmetic(Arith::Sub, ty, mods)?,
            "mul" if is_float => float::arithmetic(Arith::Mul, ty, mods)?,
            "div" if is_float => float::arithmetic(Arith::Div, ty, mods)?,
            "fma" | "mad" if is_float => float::fma(ty, mods)?,
            "min" | "max" if is_float => {
                float::extreme(opcode == "max", ty, operands.len().saturating_sub(1), mods)?
            }
            "abs" | "neg" if is_float => float::sign(opcode, ty, mods)?,
            "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" => {
                float::function(opcode, ty, mods)?
            }
            "copysign" => float::copysign(ty)?,
            "add" | "sub" | "min" | "max" => integer::arithmetic(opcode, ty, mods)?,
            "mul" | "mad" => integer::multiply(ty, opcode == "mad", mods)?,
            "mul24" | "mad24" => integer::multiply24(ty, opcode == "mad24", mods)?,
            "div" | "rem" => integer::divide(ty, opcode == "rem")?,
            "abs" | "neg" | "sad" => integer::signs(opcode, ty)?,
            "and" | "or" | "xor" | "not" | "cnot" => integer::logic(opcode, ty)?,
            "shl" | "shr" => integer::shift(opcode, ty)?,
            "popc" | "clz" | "brev" | "bfind" => integer::bits(opcode, ty, mods)?,
            "bfe" | "szext" | "bmsk" | "fns" => integer::field(opcode, ty, mods)?,
            _ => return Err("no such instruction".into()),
        };
        self.alu(operands, shape)
    }

    fn with_carry(
        &mut self,
        opcode: &str,
        operands: &[Operand<'t>],
        mods: &mut Modifiers<'_>,
    ) -> Result<Op, String> {
        let writes = mods.take("cc");
        self.carry(opcode, writes, operands, mods)
    }

    fn carry(
        &mut self,
        opcode: &str,
        writes: bool,
        operands: &[Operand<'t>],
        mods: &mut Modifiers<'_>,
    ) -> Result<Op, String> {
        let ty = mods.ty()?;
        let (f, reads) = integer::carry(opcode, ty, mods)?;
        let (d, s) = operands.split_first().ok_or("no operands")?;
        let s = self.sources(s, &vec![ty; s.len().min(3)])?;
        let (d, _) = self.dst(d)?;
        Ok(Op::Carry {
            f,
            d,
            s,
            reads,
            writes,
            bits: ty.bits(),
        })
    }

    fn mov(&mut self, operands: &[Operand<'t>], mods: &mut Modifiers<'_>) -> Result<Op, String> {
        let ty = mods.ty()?;
        let [to, from] = operands else {
            return Err("two operands expected".into());
        };
        if ty == Type::Pred {
            let (d, a) = (self.pred_dst(to)?, self.pred_src(from)?);
            return Ok(Op::Predicate {
                op: Logic::And,
                d,
                a,
                b: PredSrc::TRUE,
            });
        }
        match (to, from) {
            (_, Operand::Vector(parts)) => {
                let bits = ty.bits() / (parts.len().max(1) as u32);
                let parts = parts
                    .iter()
                    .map(|part| self.src(part, Type::B(bits as u8)))
                    .collect::<Result<Vec<_>, _>>()?;
                let (d, _) = self.dst(to)?;
                Ok(Op::Pack { d, parts, bits })
            }
            (Operand::Vector(parts), _) => {
                let bits = ty.bits() / (parts.len().max(1) as u32);
                let s = self.src(from, ty)?;
                let high = if ty.bits() == 128 {
                    self.high_half(from)?
                } else {
                    s
                };
                let d = parts
                    .iter()
                    .map(|part| match part {
                        Operand::Sink => Ok(None),
                        _ => self.dst(part).map(|(d, _)| Some(d)),
                    })
                    .collect::<Result<Vec<_>, String>>()?;
                Ok(Op::Unpack {
                    d,
                    s: [s, high],
                    bits,
                })
            }
            _ if ty.bits() == 128 => {
                let parts = vec![self.src(from, ty)?, self.high_half(from)?];
                Ok(Op::Pack {
                    d: self.dst(to)?.0,
                    parts,
                    bits: 64,
                })
            }
            _ => {
                if let Some(what) = special(from) {
                    let (d, _) = self.dst(to)?;
                    return Ok(Op::Special { d, what, add: 0 });
                }
                let s = self.src(from, ty)?;
                let (d, _) = self.dst(to)?;
                Ok(Op::Mov { d, s })
            }
        }
    }

    /// The second register of a 128-bit value.
    pub(crate) fn high_half(&mut self, operand: &Operand<'t>) -> Result<crate::inst::Src, String> {
        match operand {
            Operand::Name(name, 0) => match self.symbol(name)? {
                Symbol::Reg { slot, bits: 128 } => Ok(crate::inst::Src::reg(slot + 1)),
                _ => Err("a register of 128 bits expected".into()),
            },
            _ => self.value(0),
        }
    }

    fn logic_with(
        &mut self,
        mods: &mut Modifiers<'_>,
        operand: Option<&Operand<'t>>,
    ) -> Result<Option<(Logic, PredSrc)>, String> {
        let logic = mods.find(|word| {
            Some(match word {
                "and" => Logic::And,
                "or" => Logic::Or,
                "xor" => Logic::Xor,
                _ => return None,
            })
        });
        match (logic, operand) {
            (Some(logic), Some(operand)) => Ok(Some((logic, self.pred_src(operand)?))),
            (None, None) => Ok(None),
            _ => Err("a boolean operator and its operand belong together".into()),
        }
    }

    fn setp(&mut self, operands: &[Operand<'t>], mods: &mut Modifiers<'_>) -> Result<Op, String> {
        let op = mods.find(compare::operator).ok_or("no comparison")?;
        let ftz = mods.take("ftz");
        let ty = mods.ty()?;
        let [d, a, b, rest @ ..] = operands else {
            return Err("three operands expected".into());
        };
        let with = self.logic_with(mods, rest.first())?;
        let (p, q) = match d {
            Operand::Pair(p, q) => (self.pred_dst(p)?, self.pred_dst(q)?),
            _ => (self.pred_dst(d)?, PRED_SINK),
        };
        let s = [self.src(a, ty)?, self.src(b, ty)?];
        if matches!(ty, Type::F16x2 | Type::Bf16x2) {
            let f = compare::halves(op, ty, ftz).ok_or("no such comparison")?;
            return Ok(Op::TestPair { f, p, q, s, with });
        }
        let f = compare::comparison(op, ty, ftz).ok_or("no such comparison")?;
        Ok(Op::Test { f, p, q, s, with })
    }

    fn set(&mut self, operands: &[Operand<'t>], mods: &mut Modifiers<'_>) -> Result<Op, String> {
        let op = mods.find(compare::operator).ok_or("no comparison")?;
        let ftz = mods.take("ftz");
        let (to, ty) = (mods.ty()?, mods.ty()?);
        let [d, a, b, rest @ ..] = operands else {
            return Err("three operands expected".into());
        };
        let with = self.logic_with(mods, rest.first())?;
        let (d, _) = self.dst(d)?;
        let s = [self.src(a, ty)?, self.src(b, ty)?];
        if matches!(ty, Type::F16x2 | Type::Bf16x2) {
            let value = match to {
                Type::F16x2 => 0x3c00,
                Type::Bf16x2 => 0x3f80,
                _ => 0xffff,
            };
            let f = compare::halves(op, ty, ftz).ok_or("no such comparison")?;
            return Ok(Op::SetPair {
                f,
                d,
                s,
                with,
                value,
            });
        }
        let value = match to {
            Type::F(32) => u64::from(1f32.to_bits()),
            Type::F(16) => 0x3c00,
            Type::Bf16 => 0x3f80,
            _ => crate::num::int::ones(to.bits()),
        };
        let f = compare::comparison(op, ty, ftz).ok_or("no such comparison")?;
        Ok(Op::Set {
            f,
            d,
            s,
            with,
            value,
        })
    }

    fn select(
        &mut self,
        opcode: &str,
        operands: &[Operand<'t>],
        mods: &mut Modifiers<'_>,
    ) -> Result<Op, String> {
        let ftz = mods.take("ftz");
        let ty = mods.ty()?;
        let [d, a, b, c] = operands else {
            return Err("four operands expected".into());
        };
        let s = [self.src(a, ty)?, self.src(b, ty)?];
        if opcode == "selp" {
            let (p, (d, _)) = (self.pred_src(c)?, self.dst(d)?);
            return Ok(Op::Select { d, p, s });
        }
        let by = mods.ty()?;
        let c = self.src(c, by)?;
        let f: Alu = match by {
            Type::S(32) => {
                super::lane::ternary(|a: u64, b: u64, c: i32| if c >= 0 { a } else { b })
            }
            Type::F(32) => super::lane::ternary(move |a: u64, b: u64, c: f32| {
                let c = if ftz { crate::num::float::flush(c) } else { c };
                if c >= 0.0 { a } else { b }
            }),
            _ => return Err("slct compares s32 or f32".into()),
        };
        let (d, _) = self.dst(d)?;
        Ok(Op::Alu {
            f,
            d,
            s: [s[0], s[1], c],
        })
    }

    fn testp(&mut self, operands: &[Operand<'t>], mods: &mut Modifiers<'_>) -> Result<Op, String> {
        let ty = mods.ty()?;
        let [d, a] = operands else {
            return Err("two operands expected".into());
        };
        let f = mods
            .find(|word| compare::class(word, ty))
            .ok_or("no such class")?;
        let (p, a) = (self.pred_dst(d)?, self.src(a, ty)?);
        Ok(Op::Test {
            f,
            p,
            q: PRED_SINK,
            s: [a, a],
            with: None,
        })
    }

    fn pred_logic(&mut self, opcode: &str, operands: &[Operand<'t>]) -> Result<Op, String> {
        let (d, sources) = operands.split_first().ok_or("no operands")?;
        let d = self.pred_dst(d)?;
        let a = self.pred_src(sources.first().ok_or("no operand")?)?;
        let (op, b) = match opcode {
            "not" => (Logic::Xor, PredSrc::TRUE),
            _ => {
                let b = self.pred_src(sources.get(1).ok_or("no second operand")?)?;
                let op = match opcode {
                    "and" => Logic::And,
                    "or" => Logic::Or,
                    _ => Logic::Xor,
                };
                (op, b)
            }
        };
        Ok(Op::Predicate { op, d, a, b })
    }

    fn cvta(&mut self, operands: &[Operand<'t>], mods: &mut Modifiers<'_>) -> Result<Op, String> {
        let to_space = mods.take("to");
        let place = mods.find(super::access::space).ok_or("no space")?;
        let ty = mods.ty()?;
        let [d, a] = operands else {
            return Err("two operands expected".into());
        };
        // A parameter of a function lies in its frame, which is local memory.
        let is_frame = match a {
            Operand::Name(name, _) => matches!(self.symbol(name), Ok(Symbol::Frame(_))),
            _ => false,
        };
        let window = match place {
            Place::Param if is_frame || !self.is_kernel => LOCAL_WINDOW,
            Place::Shared => SHARED_WINDOW,
            Place::Local => LOCAL_WINDOW,
            Place::Param => PARAM_WINDOW,
            _ => 0,
        };
        let s = self.src(a, ty)?;
        let (d, _) = self.dst(d)?;
        if window == 0 || ty.bits() != 64 {
            return Ok(Op::Mov { d, s });
        }
        let by = if to_space {
            window.wrapping_neg()
        } else {
            window
        };
        let f = super::lane::unary(move |a: u64| a.wrapping_add(by));
        Ok(Op::Alu { f, d, s: [s; 3] })
    }

    fn isspacep(
        &mut self,
        operands: &[Operand<'t>],
        mods: &mut Modifiers<'_>,
    ) -> Result<Op, String> {
        let place = mods.find(super::access::space).ok_or("no space")?;
        let [d, a] = operands else {
            return Err("two operands expected".into());
        };
        let (d, s) = (self.pred_dst(d)?, self.src(a, Type::U(64))?);
        Ok(Op::IsSpace { d, place, s })
    }

    fn lop3(&mut self, operands: &[Operand<'t>], mods: &mut Modifiers<'_>) -> Result<Op, String> {
        mods.take("b32");
        let [d, s @ .., table] = operands else {
            return Err("five operands expected".into());
        };
        let Operand::Int(table) = table else {
            return Err(
                "the table is a number (the form with a predicate is not supported)".into(),
            );
        };
        let s = self.sources(s, &[Type::B(32); 3])?;
        let (d, _) = self.dst(d)?;
        Ok(Op::Alu {
            f: integer::lop3((*table & 0xff) as u32),
            d,
            s,
        })
    }

    /// Four sources: the position and length become one, where both are constants.
    fn bfi(&mut self, operands: &[Operand<'t>], mods: &mut Modifiers<'_>) -> Result<Op, String> {
        let ty = mods.ty()?;
        let bits = ty.bits();
        let [d, a, b, pos, len] = operands else {
            return Err("five operands expected".into());
        };
        let (a, b) = (self.src(a, ty)?, self.src(b, ty)?);
        let (pos, len) = (self.src(pos, Type::U(32))?, self.src(len, Type::U(32))?);
        let place = self.temporary()?;
        let f = super::lane::binary(|pos: u64, len: u64| (pos & 0xff) << 8 | len & 0xff);
        self.emit(Op::Alu {
            f,
            d: place,
            s: [pos, len, len],
        });
        let f = super::lane::ternary(move |a: u64, b: u64, c: u64| {
            crate::num::int::bfi(a, b, c >> 8, c & 0xff, bits)
        });
        let (d, _) = self.dst(d)?;
        Ok(Op::Alu {
            f,
            d,
            s: [a, b, crate::inst::Src::reg(place)],
        })
    }
}

/// The special register that an operand names.
pub(crate) fn special(operand: &Operand<'_>) -> Option<Special> {
    let axis = |field: &str| match field {
        "x" => Some(0),
        "y" => Some(1),
        "z" => Some(2),
        _ => None,
    };
    Some(match operand {
        Operand::Field("%tid", field) => Special::Tid(axis(field)?),
        Operand::Field("%ntid", field) => Special::Ntid(axis(field)?),
        Operand::Field("%ctaid", field) => Special::Ctaid(axis(field)?),
        Operand::Field("%nctaid", field) => Special::Nctaid(axis(field)?),
        // Without clusters every block is a cluster of its own.
        Operand::Field("%clusterid", field) => Special::Ctaid(axis(field)?),
        Operand::Field("%nclusterid", field) => Special::Nctaid(axis(field)?),
        Operand::Field("%cluster_ctaid", _) => Special::Zero,
        Operand::Field("%cluster_nctaid", _) => Special::One,
        Operand::Name(name, 0) => match *name {
            "%laneid" => Special::Laneid,
            "%warpid" => Special::Warpid,
            "%nwarpid" => Special::Nwarpid,
            "%smid" | "%gridid" | "%cluster_ctarank" => Special::Zero,
            "%nsmid" | "%cluster_nctarank" => Special::One,
            "%lanemask_eq" => Special::LanemaskEq,
            "%lanemask_le" => Special::LanemaskLe,
            "%lanemask_lt" => Special::LanemaskLt,
            "%lanemask_ge" => Special::LanemaskGe,
            "%lanemask_gt" => Special::LanemaskGt,
            "%clock" => Special::Clock,
            "%clock_hi" => Special::ClockHi,
            "%clock64" => Special::Clock64,
            "%globaltimer" => Special::GlobalTimer,
            "%globaltimer_lo" => Special::GlobalTimerLo,
            "%globaltimer_hi" => Special::GlobalTimerHi,
            "%dynamic_smem_size" => Special::DynamicShared,
            "%total_smem_size" | "%aggr_smem_size" => Special::TotalShared,
            name if name.starts_with("%envreg") || name.starts_with("%pm") => Special::Zero,
            _ => return None,
        },
        _ => return None,
    })
}
