//! Loads, stores, atomics, asynchronous copies.

use super::function::{Body, Symbol};
use super::modifiers::Modifiers;
use crate::inst::{Address, Element, Op, Place, REG_SINK, Reg, Special, Src};
use crate::text::ast::{Operand, Type};
use crate::{Atomic, AtomicOp, Width};

/// The place that a state space modifier names.
pub(crate) fn space(word: &str) -> Option<Place> {
    Some(match word {
        "global" | "const" => Place::Global,
        "shared" | "shared::cta" => Place::Shared,
        "local" => Place::Local,
        "param" | "param::entry" | "param::func" => Place::Param,
        _ => return None,
    })
}

/// Modifiers about caches, ordering and scope. Every access is strong enough: blocks of a launch
/// see each other's stores in program order, and caches do not exist.
const HINTS: [&str; 36] = [
    "weak",
    "relaxed",
    "acquire",
    "release",
    "acq_rel",
    "volatile",
    "mmio",
    "cta",
    "cluster",
    "gpu",
    "sys",
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "nc",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
    "L2::evict_last",
    "L2::evict_normal",
    "L2::evict_first",
    "L2::cache_hint",
    "L2::64B",
    "L2::128B",
    "L2::256B",
    "unified",
    "noftz",
    "sc",
    "aligned",
    "generic",
];

impl<'t> Body<'_, 't> {
    pub(crate) fn memory(
        &mut self,
        opcode: &str,
        operands: &[Operand<'t>],
        mods: &mut Modifiers<'_>,
    ) -> Result<Op, String> {
        match opcode {
            "ld" | "ldu" => self.load(operands, mods),
            "st" => self.store(operands, mods),
            "atom" | "red" => self.atomic(opcode == "red", operands, mods),
            "cp" => self.copy_async(operands, mods),
            // Hints to caches.
            _ => {
                mods.ignore(&["global", "local", "L1", "L2", "tensormap", "L2::evict_last"]);
                mods.ignore(&HINTS);
                Ok(Op::Nop)
            }
        }
    }

    /// An address operand in a place that the instruction names.
    pub(crate) fn address(
        &mut self,
        operand: &Operand<'t>,
        place: Place,
    ) -> Result<Address, String> {
        let items = match operand {
            Operand::Bracket(items) => items,
            Operand::Element(name, index) => &vec![self.element(name, *index)?],
            _ => return Err("an address expected".into()),
        };
        let [item] = &items[..] else {
            return Err("an address of one part expected".into());
        };
        let zero = self.value(0)?;
        let at = |base, offset, place| Address {
            base,
            offset,
            place,
            is_narrow: false,
        };
        match item {
            Operand::Int(value) => Ok(at(zero, *value as i64, place)),
            Operand::Name(name, offset) => {
                let offset = *offset;
                Ok(match self.symbol(name)? {
                    Symbol::Reg { slot, bits } => {
                        let place = match place {
                            Place::Param if !self.is_kernel => Place::Local,
                            place => place,
                        };
                        let is_narrow = bits <= 32;
                        Address {
                            base: Src::reg(slot),
                            offset,
                            place,
                            is_narrow,
                        }
                    }
                    Symbol::Shared(base) => at(zero, i64::from(base) + offset, Place::Shared),
                    Symbol::Frame(base) => at(zero, i64::from(base) + offset, Place::Frame),
                    Symbol::Param(base) => at(zero, i64::from(base) + offset, Place::Param),
                    Symbol::DynamicShared => {
                        let d = self.temporary()?;
                        self.emit_always(Op::Special {
                            d,
                            what: Special::DynamicSharedBase,
                            add: 0,
                        });
                        at(Src::reg(d), offset, Place::Shared)
                    }
                    Symbol::Global(_) => {
                        let base = self.src(&Operand::Name(name, 0), Type::U(64))?;
                        at(base, offset, Place::Global)
                    }
                    _ => return Err(format!("{name} is no address")),
                })
            }
            _ => Err("an address expected".into()),
        }
    }

    /// Emits an instruction without the guard.
    pub(crate) fn emit_always(&mut self, op: Op) {
        let guard = self.set_guard(crate::inst::PredSrc::TRUE);
        self.emit(op);
        self.set_guard(guard);
    }

    fn vector(mods: &mut Modifiers<'_>) -> u32 {
        let lanes = mods.find(|word| match word {
            "v2" => Some(2),
            "v4" => Some(4),
            "v8" => Some(8),
            _ => None,
        });
        lanes.unwrap_or(1)
    }

    fn load(&mut self, operands: &[Operand<'t>], mods: &mut Modifiers<'_>) -> Result<Op, String> {
        let place = mods.find(space).unwrap_or(Place::Generic);
        mods.ignore(&HINTS);
        let count = Self::vector(mods);
        let ty = mods.ty()?;
        let [to, from, ..] = operands else {
            return Err("two operands expected".into());
        };
        let (d, width) = self.destinations(to, count)?;
        let (d, element) = match ty.bits() {
            128 => (
                d.iter().flat_map(|&d| [d, d + 1]).collect(),
                Element {
                    bytes: 8,
                    sign_to: 0,
                },
            ),
            bits => {
                let sign_to = if matches!(ty, Type::S(_)) && width > bits {
                    width
                } else {
                    0
                };
                (
                    d,
                    Element {
                        bytes: ty.bytes(),
                        sign_to,
                    },
                )
            }
        };
        let address = self.address(from, place)?;
        Ok(Op::Load {
            d,
            address,
            element,
        })
    }

    fn destinations(
        &mut self,
        operand: &Operand<'t>,
        count: u32,
    ) -> Result<(Vec<Reg>, u32), String> {
        let list = match operand {
            Operand::Vector(list) => &list[..],
            other => std::slice::from_ref(other),
        };
        if list.len() != count as usize {
            return Err(format!("{count} registers expected"));
        }
        let mut width = 0;
        let mut registers = Vec::new();
        for item in list {
            let (slot, bits) = self.dst(item)?;
            if slot != REG_SINK {
                width = bits;
            }
            registers.push(slot);
        }
        Ok((registers, width))
    }

    /// The values of a scalar or vector operand.
    pub(crate) fn values(&mut self, operand: &Operand<'t>, ty: Type) -> Result<Vec<Src>, String> {
        match operand {
            Operand::Vector(list) => list.iter().map(|item| self.src(item, ty)).collect(),
            other => Ok(vec![self.src(other, ty)?]),
        }
    }

    fn store(&mut self, operands: &[Operand<'t>], mods: &mut Modifiers<'_>) -> Result<Op, String> {
        if mods.take("async") || mods.take("bulk") {
            return Err("asynchronous stores".into());
        }
        let place = mods.find(space).unwrap_or(Place::Generic);
        mods.ignore(&HINTS);
        let count = Self::vector(mods);
        let ty = mods.ty()?;
        let [to, from, ..] = operands else {
            return Err("two operands expected".into());
        };
        let mut s = self.values(from, ty)?;
        if s.len() != count as usize {
            return Err(format!("{count} values expected"));
        }
        let mut bytes = ty.bytes();
        if ty.bits() == 128 {
            s = vec![s[0], self.high_half(from)?];
            bytes = 8;
        }
        let address = self.address(to, place)?;
        Ok(Op::Store {
            s,
            address,
            element: Element { bytes, sign_to: 0 },
        })
    }

    fn atomic(
        &mut self,
        is_red: bool,
        operands: &[Operand<'t>],
        mods: &mut Modifiers<'_>,
    ) -> Result<Op, String> {
        if mods.take("async") {
            return Err("asynchronous reductions".into());
        }
        let place = mods.find(space).unwrap_or(Place::Generic);
        mods.ignore(&HINTS);
        let name = mods.find(atomic_name).ok_or("no operation")?;
        let count = Self::vector(mods);
        let ty = mods.ty()?;
        let request = request(name, ty)?;
        let (d, operands) = if is_red {
            (None, operands)
        } else {
            let (d, rest) = operands.split_first().ok_or("no operands")?;
            (Some(d), rest)
        };
        let [at, rest @ ..] = operands else {
            return Err("an address expected".into());
        };
        let address = self.address(at, place)?;
        let value = rest.first().ok_or("no value")?;
        if count > 1 {
            return self.vector_atomic(d, address, request, value, ty);
        }
        let first = self.src(value, ty)?;
        // `cas` has the comparison first.
        let s = if name == "cas" {
            [self.src(rest.get(1).ok_or("no new value")?, ty)?, first]
        } else {
            [first, first]
        };
        let d = match d {
            None | Some(Operand::Sink) => None,
            Some(d) => Some(self.dst(d)?.0),
        };
        Ok(Op::Atomic {
            d,
            address,
            request,
            s,
        })
    }

    /// A vector is a sequence of single operations; it is not atomic as a whole.
    fn vector_atomic(
        &mut self,
        d: Option<&Operand<'t>>,
        address: Address,
        request: Atomic,
        value: &Operand<'t>,
        ty: Type,
    ) -> Result<Op, String> {
        let values = self.values(value, ty)?;
        let results = match d {
            Some(d) => Some(self.destinations(d, values.len() as u32)?.0),
            None => None,
        };
        for (index, &s) in values.iter().enumerate() {
            let offset = address.offset + i64::from(ty.bytes()) * index as i64;
            let address = Address { offset, ..address };
            let d = results.as_ref().map(|results| results[index]);
            self.emit(Op::Atomic {
                d,
                address,
                request,
                s: [s, s],
            });
        }
        Ok(Op::Nop)
    }

    /// `cp.async`: the copy is done at once, so waiting for it is nothing.
    fn copy_async(
        &mut self,
        operands: &[Operand<'t>],
        mods: &mut Modifiers<'_>,
    ) -> Result<Op, String> {
        if !mods.take("async") {
            return Err("no such copy".into());
        }
        if mods.take("bulk") || mods.take("mbarrier") {
            return Err("bulk copies and their barriers".into());
        }
        if mods.take("commit_group") || mods.take("wait_group") || mods.take("wait_all") {
            return Ok(Op::Nop);
        }
        mods.ignore(&HINTS);
        mods.ignore(&["shared", "shared::cta", "global"]);
        let [to, from, size, rest @ ..] = operands else {
            return Err("three operands expected".into());
        };
        let Operand::Int(bytes @ (4 | 8 | 16)) = size else {
            return Err("4, 8 or 16 bytes expected".into());
        };
        let source = match rest.first() {
            // Either the length of the source or a predicate to ignore it.
            Some(operand) if self.is_pred(operand) => {
                let p = self.pred_src(operand)?;
                let (zero, all) = (self.value(0)?, self.value(*bytes)?);
                let d = self.temporary()?;
                self.emit(Op::Select {
                    d,
                    p,
                    s: [zero, all],
                });
                Some(Src::reg(d))
            }
            Some(operand) => Some(self.src(operand, Type::U(32))?),
            None => None,
        };
        let to = self.address(to, Place::Shared)?;
        let from = self.address(from, Place::Global)?;
        Ok(Op::CopyAsync {
            to,
            from,
            bytes: *bytes as u32,
            source,
        })
    }
}

fn atomic_name(word: &str) -> Option<&'static str> {
    const NAMES: [&str; 11] = [
        "add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec", "sub",
    ];
    NAMES.into_iter().find(|name| *name == word)
}

/// The operation of a name and type.
fn request(name: &str, ty: Type) -> Result<Atomic, String> {
    let width = match ty.bits() {
        16 => Width::B16,
        32 => Width::B32,
        64 => Width::B64,
        _ => return Err(format!("not with type {ty:?}")),
    };
    let signed = matches!(ty, Type::S(_));
    let op = match (name, ty) {
        ("add", Type::F(32)) => AtomicOp::AddF32,
        ("add", Type::F(64)) => AtomicOp::AddF64,
        ("add", Type::F(16)) => AtomicOp::AddF16,
        ("add", Type::F16x2) => AtomicOp::AddF16x2,
        ("add", Type::Bf16) => AtomicOp::AddBf16,
        ("add", Type::Bf16x2) => AtomicOp::AddBf16x2,
        ("min", Type::F(16) | Type::F16x2) => AtomicOp::MinF16,
        ("max", Type::F(16) | Type::F16x2) => AtomicOp::MaxF16,
        ("min", Type::Bf16 | Type::Bf16x2) => AtomicOp::MinBf16,
        ("max", Type::Bf16 | Type::Bf16x2) => AtomicOp::MaxBf16,
        ("exch", _) => AtomicOp::Exchange,
        ("cas", _) => AtomicOp::CompareSwap,
        (_, ty) if ty.is_float() => return Err(format!("not with type {ty:?}")),
        ("add", _) => AtomicOp::Add,
        ("min", _) if signed => AtomicOp::MinS,
        ("max", _) if signed => AtomicOp::MaxS,
        ("min", _) => AtomicOp::MinU,
        ("max", _) => AtomicOp::MaxU,
        ("and", _) => AtomicOp::And,
        ("or", _) => AtomicOp::Or,
        ("xor", _) => AtomicOp::Xor,
        ("inc", _) => AtomicOp::Inc,
        ("dec", _) => AtomicOp::Dec,
        _ => return Err("no such operation".into()),
    };
    Ok(Atomic::shape(width, op))
}
