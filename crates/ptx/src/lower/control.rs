//! Branches, calls, barriers, fences.

use super::function::{Body, Symbol};
use super::modifiers::Modifiers;
use crate::inst::{BarrierOp, Call, CallTarget, Formal, Op, PredSrc, Slot, Src};
use crate::text::ast::{Operand, Type};

impl<'t> Body<'_, 't> {
    pub(crate) fn control(
        &mut self,
        opcode: &str,
        operands: &[Operand<'t>],
        mods: &mut Modifiers<'_>,
    ) -> Result<Op, String> {
        match opcode {
            "bra" => {
                mods.take("uni");
                let [Operand::Name(label, 0)] = operands else {
                    return Err("a label expected".into());
                };
                self.branch_to(0, label);
                Ok(Op::Branch { to: 0 })
            }
            "brx" => self.branch_indexed(operands, mods),
            "call" => {
                mods.take("uni");
                self.call(operands)
            }
            "ret" => {
                mods.take("uni");
                Ok(if self.is_kernel { Op::Exit } else { Op::Return })
            }
            "exit" => Ok(Op::Exit),
            "trap" | "brkpt" => Ok(Op::Trap),
            "nanosleep" => {
                mods.take("u32");
                Ok(Op::Yield)
            }
            "bar" | "barrier" => self.barrier(operands, mods),
            // One processor at a time runs a block, and memory between blocks is the loader's,
            // which orders single accesses; a fence has nothing to add.
            "membar" | "fence" => {
                mods.ignore(&[
                    "cta",
                    "gl",
                    "sys",
                    "gpu",
                    "cluster",
                    "sc",
                    "acq_rel",
                    "acquire",
                    "release",
                    "proxy",
                    "alias",
                    "async",
                    "async.global",
                    "async.shared::cta",
                    "generic",
                    "global",
                    "shared::cta",
                    "mbarrier_init",
                ]);
                mods.find(|word| word.starts_with("async").then_some(()));
                Ok(Op::Nop)
            }
            "griddepcontrol" => {
                mods.ignore(&["launch_dependents", "wait"]);
                Ok(Op::Nop)
            }
            "setmaxnreg" => {
                mods.ignore(&["inc", "dec", "sync", "aligned", "u32"]);
                Ok(Op::Nop)
            }
            _ => Ok(Op::Nop),
        }
    }

    fn branch_indexed(
        &mut self,
        operands: &[Operand<'t>],
        mods: &mut Modifiers<'_>,
    ) -> Result<Op, String> {
        mods.take("idx");
        mods.take("uni");
        let [index, Operand::Name(list, 0)] = operands else {
            return Err("an index and a list expected".into());
        };
        let labels = self
            .targets(list)
            .ok_or_else(|| format!("{list} is no list of labels"))?;
        let s = self.src(index, Type::U(32))?;
        for (entry, label) in labels.iter().enumerate() {
            self.branch_to(entry, label);
        }
        Ok(Op::BranchIndexed {
            s,
            to: vec![0; labels.len()],
        })
    }

    fn call(&mut self, operands: &[Operand<'t>]) -> Result<Op, String> {
        let (returns, rest) = match operands {
            [Operand::List(list), rest @ ..] => (&list[..], rest),
            rest => (&[][..], rest),
        };
        let [Operand::Name(name, 0), rest @ ..] = rest else {
            return Err("a function expected".into());
        };
        let args = match rest.first() {
            Some(Operand::List(list)) => &list[..],
            _ => &[][..],
        };
        let own = self.index as usize;
        match self.symbol(name)? {
            Symbol::Function(index) => {
                let callee = self.unit.code.functions[index as usize].clone();
                if !callee.is_defined {
                    return self.builtin(&callee.name, returns, args);
                }
                self.unit.calls[own].push(index);
                let returns = self.slots(returns, &callee.returns, true)?;
                let args = self.slots(args, &callee.params, false)?;
                let target = CallTarget::Function(index);
                Ok(Op::Call(Box::new(Call {
                    target,
                    returns,
                    args,
                })))
            }
            Symbol::Reg { slot, .. } => {
                self.unit.calls[own].push(u32::MAX);
                let returns = self.slots(returns, &[], true)?;
                let args = self.slots(args, &[], false)?;
                let target = CallTarget::Indirect(Src::reg(slot));
                Ok(Op::Call(Box::new(Call {
                    target,
                    returns,
                    args,
                })))
            }
            _ => Err(format!("{name} is no function")),
        }
    }

    /// Where the caller has its arguments or wants its results.
    fn slots(
        &mut self,
        operands: &[Operand<'t>],
        formals: &[Formal],
        is_result: bool,
    ) -> Result<Vec<Slot>, String> {
        let size_of = |index: usize| match formals.get(index) {
            Some(Formal::Frame { size, .. } | Formal::Reg { size, .. }) => *size,
            None => 8,
        };
        let mut slots = Vec::new();
        for (index, operand) in operands.iter().enumerate() {
            let frame = match operand {
                Operand::Name(name, 0) => match self.symbol(name) {
                    Ok(Symbol::Frame(offset)) => Some(offset),
                    _ => None,
                },
                _ => None,
            };
            let size = size_of(index);
            slots.push(match frame {
                // An indirect call copies what the callee's formal holds, at most a page.
                Some(offset) if formals.is_empty() => Slot::Frame { offset, size: 4096 },
                Some(offset) => Slot::Frame { offset, size },
                None if is_result => {
                    let (to, _) = self.dst(operand)?;
                    Slot::Value {
                        from: Src::reg(to),
                        to,
                    }
                }
                None => {
                    let from = self.src(operand, Type::B(64))?;
                    Slot::Value {
                        from,
                        to: crate::inst::REG_SINK,
                    }
                }
            });
        }
        Ok(slots)
    }

    /// Functions that the driver provides.
    fn builtin(
        &mut self,
        name: &str,
        returns: &[Operand<'t>],
        args: &[Operand<'t>],
    ) -> Result<Op, String> {
        match name {
            // Output goes nowhere; the number of arguments printed is not known here.
            "vprintf" | "free" => {
                self.zero_result(returns)?;
                Ok(Op::Nop)
            }
            "malloc" => {
                self.zero_result(returns)?;
                Ok(Op::Nop)
            }
            "__assertfail" => {
                let mut values = Vec::new();
                for (operand, ty) in
                    args.iter()
                        .take(3)
                        .zip([Type::U(64), Type::U(64), Type::U(32)])
                {
                    values.push(self.argument(operand, ty)?);
                }
                let zero = self.value(0)?;
                values.resize(3, zero);
                Ok(Op::Assert {
                    message: values[0],
                    file: values[1],
                    line: values[2],
                })
            }
            _ => Err(format!("function {name} has no body")),
        }
    }

    /// The value of an argument, which usually lies in the frame.
    fn argument(&mut self, operand: &Operand<'t>, ty: Type) -> Result<Src, String> {
        if let Operand::Name(name, 0) = operand
            && matches!(self.symbol(name)?, Symbol::Frame(_))
        {
            let address = self.address(
                &Operand::Bracket(vec![operand.clone()]),
                crate::inst::Place::Param,
            )?;
            let d = self.temporary()?;
            let element = crate::inst::Element {
                bytes: ty.bytes(),
                sign_to: 0,
            };
            self.emit(Op::Load {
                d: vec![d],
                address,
                element,
            });
            return Ok(Src::reg(d));
        }
        self.src(operand, ty)
    }

    fn zero_result(&mut self, returns: &[Operand<'t>]) -> Result<(), String> {
        let zero = self.value(0)?;
        for operand in returns {
            match operand {
                Operand::Name(name, 0) if matches!(self.symbol(name)?, Symbol::Frame(_)) => {
                    let address = self.address(
                        &Operand::Bracket(vec![operand.clone()]),
                        crate::inst::Place::Param,
                    )?;
                    let element = crate::inst::Element {
                        bytes: 4,
                        sign_to: 0,
                    };
                    self.emit(Op::Store {
                        s: vec![zero],
                        address,
                        element,
                    });
                }
                _ => {
                    let (d, _) = self.dst(operand)?;
                    self.emit(Op::Mov { d, s: zero });
                }
            }
        }
        Ok(())
    }

    fn barrier(
        &mut self,
        operands: &[Operand<'t>],
        mods: &mut Modifiers<'_>,
    ) -> Result<Op, String> {
        if mods.take("warp") {
            mods.take("sync");
            let [members] = operands else {
                return Err("a mask of members expected".into());
            };
            return Ok(Op::WarpBarrier {
                members: self.src(members, Type::B(32))?,
            });
        }
        if mods.take("cluster") {
            // A cluster is one block; its barrier is the block's.
            mods.ignore(&["aligned", "acquire", "release", "relaxed"]);
            let id = self.value(0)?;
            if mods.take("arrive") {
                return Ok(Op::Nop);
            }
            mods.take("wait");
            return Ok(Op::Barrier {
                id,
                count: None,
                op: BarrierOp::Sync,
            });
        }
        mods.ignore(&["cta", "aligned"]);
        if mods.take("arrive") {
            let [id, count] = operands else {
                return Err("a barrier and a number of threads expected".into());
            };
            let (id, count) = (self.src(id, Type::U(32))?, self.src(count, Type::U(32))?);
            return Ok(Op::Barrier {
                id,
                count: Some(count),
                op: BarrierOp::Arrive,
            });
        }
        if mods.take("red") {
            return self.barrier_reduce(operands, mods);
        }
        mods.take("sync");
        let (id, count) = match operands {
            [] => (self.value(0)?, None),
            [id] => (self.src(id, Type::U(32))?, None),
            [id, count] => (
                self.src(id, Type::U(32))?,
                Some(self.src(count, Type::U(32))?),
            ),
            _ => return Err("at most two operands expected".into()),
        };
        Ok(Op::Barrier {
            id,
            count,
            op: BarrierOp::Sync,
        })
    }

    fn barrier_reduce(
        &mut self,
        operands: &[Operand<'t>],
        mods: &mut Modifiers<'_>,
    ) -> Result<Op, String> {
        let (d, id, count, p) = match operands {
            [d, id, p] => (d, id, None, p),
            [d, id, count, p] => (d, id, Some(count), p),
            _ => return Err("three or four operands expected".into()),
        };
        let id = self.src(id, Type::U(32))?;
        let count = count
            .map(|count| self.src(count, Type::U(32)))
            .transpose()?;
        let p: PredSrc = self.pred_src(p)?;
        let op = if mods.take("popc") {
            mods.take("u32");
            BarrierOp::Count {
                d: self.dst(d)?.0,
                p,
            }
        } else if mods.take("and") {
            mods.take("pred");
            BarrierOp::And {
                d: self.pred_dst(d)?,
                p,
            }
        } else if mods.take("or") {
            mods.take("pred");
            BarrierOp::Or {
                d: self.pred_dst(d)?,
                p,
            }
        } else {
            return Err("no operation".into());
        };
        Ok(Op::Barrier { id, count, op })
    }
}
