//! Instructions in which the threads of a warp exchange values.

use super::function::Body;
use super::modifiers::Modifiers;
use crate::AtomicOp;
use crate::inst::{Op, PRED_SINK, Reduce, Shuffle, Src, Vote};
use crate::text::ast::{Operand, Type};

impl<'t> Body<'_, 't> {
    pub(crate) fn collective(
        &mut self,
        opcode: &str,
        operands: &[Operand<'t>],
        mods: &mut Modifiers<'_>,
    ) -> Result<Op, String> {
        let is_sync = mods.take("sync");
        match opcode {
            "shfl" => self.shuffle(is_sync, operands, mods),
            "vote" => self.vote(is_sync, operands, mods),
            "match" => self.matching(operands, mods),
            "redux" => self.redux(operands, mods),
            "elect" => {
                let [d, members] = operands else {
                    return Err("two operands expected".into());
                };
                let members = self.src(members, Type::B(32))?;
                let (d, p) = match d {
                    Operand::Pair(d, p) => (self.dst(d)?.0, self.pred_dst(p)?),
                    d => (self.dst(d)?.0, PRED_SINK),
                };
                Ok(Op::Elect { d, p, members })
            }
            _ => {
                mods.take("b32");
                let [d] = operands else {
                    return Err("one operand expected".into());
                };
                Ok(Op::ActiveMask { d: self.dst(d)?.0 })
            }
        }
    }

    fn members(
        &mut self,
        is_sync: bool,
        operand: Option<&Operand<'t>>,
    ) -> Result<Option<Src>, String> {
        match (is_sync, operand) {
            (true, Some(operand)) => Ok(Some(self.src(operand, Type::B(32))?)),
            (false, None) => Ok(None),
            _ => Err("with .sync a mask of members, without none".into()),
        }
    }

    fn shuffle(
        &mut self,
        is_sync: bool,
        operands: &[Operand<'t>],
        mods: &mut Modifiers<'_>,
    ) -> Result<Op, String> {
        let way = mods
            .find(|word| {
                Some(match word {
                    "up" => Shuffle::Up,
                    "down" => Shuffle::Down,
                    "bfly" => Shuffle::Butterfly,
                    "idx" => Shuffle::Index,
                    _ => return None,
                })
            })
            .ok_or("no direction")?;
        let ty = mods.ty()?;
        let [d, a, b, c, rest @ ..] = operands else {
            return Err("four operands expected".into());
        };
        let members = self.members(is_sync, rest.first())?;
        let s = [
            self.src(a, ty)?,
            self.src(b, Type::U(32))?,
            self.src(c, Type::U(32))?,
        ];
        let (d, p) = match d {
            Operand::Pair(d, p) => (self.dst(d)?.0, self.pred_dst(p)?),
            d => (self.dst(d)?.0, PRED_SINK),
        };
        Ok(Op::Shuffle {
            way,
            d,
            p,
            s,
            members,
        })
    }

    fn vote(
        &mut self,
        is_sync: bool,
        operands: &[Operand<'t>],
        mods: &mut Modifiers<'_>,
    ) -> Result<Op, String> {
        let vote = mods
            .find(|word| {
                Some(match word {
                    "all" => Vote::All,
                    "any" => Vote::Any,
                    "uni" => Vote::Uniform,
                    "ballot" => Vote::Ballot,
                    _ => return None,
                })
            })
            .ok_or("no vote")?;
        mods.ignore(&["pred", "b32"]);
        let [d, p, rest @ ..] = operands else {
            return Err("two operands expected".into());
        };
        let members = self.members(is_sync, rest.first())?;
        let p = self.pred_src(p)?;
        if vote == Vote::Ballot {
            return Ok(Op::Ballot {
                d: self.dst(d)?.0,
                p,
                members,
            });
        }
        Ok(Op::VotePred {
            vote,
            d: self.pred_dst(d)?,
            p,
            members,
        })
    }

    fn matching(
        &mut self,
        operands: &[Operand<'t>],
        mods: &mut Modifiers<'_>,
    ) -> Result<Op, String> {
        let all = mods.take("all");
        mods.take("any");
        let ty = mods.ty()?;
        let [d, s, members] = operands else {
            return Err("three operands expected".into());
        };
        let (s, members) = (self.src(s, ty)?, self.src(members, Type::B(32))?);
        let (d, p) = match d {
            Operand::Pair(d, p) => (self.dst(d)?.0, self.pred_dst(p)?),
            d => (self.dst(d)?.0, PRED_SINK),
        };
        Ok(Op::Match {
            all,
            d,
            p,
            s,
            bits: ty.bits(),
            members,
        })
    }

    fn redux(&mut self, operands: &[Operand<'t>], mods: &mut Modifiers<'_>) -> Result<Op, String> {
        let name = mods
            .find(|word| {
                matches!(word, "add" | "min" | "max" | "and" | "or" | "xor").then_some(word)
            })
            .ok_or("no operation")?;
        mods.ignore(&["abs", "NaN"]);
        let ty = mods.ty()?;
        let op = match (name, ty) {
            ("add", _) => Reduce::Integer(AtomicOp::Add),
            ("and", _) => Reduce::Integer(AtomicOp::And),
            ("or", _) => Reduce::Integer(AtomicOp::Or),
            ("xor", _) => Reduce::Integer(AtomicOp::Xor),
            ("min", Type::S(32)) => Reduce::Integer(AtomicOp::MinS),
            ("max", Type::S(32)) => Reduce::Integer(AtomicOp::MaxS),
            ("min", Type::U(32)) => Reduce::Integer(AtomicOp::MinU),
            ("max", Type::U(32)) => Reduce::Integer(AtomicOp::MaxU),
            ("min", Type::F(32)) => Reduce::MinF32,
            ("max", Type::F(32)) => Reduce::MaxF32,
            _ => return Err(format!("not with type {ty:?}")),
        };
        let [d, s, members] = operands else {
            return Err("three operands expected".into());
        };
        let (s, members) = (self.src(s, ty)?, self.src(members, Type::B(32))?);
        Ok(Op::Redux {
            op,
            d: self.dst(d)?.0,
            s,
            members,
        })
    }
}
