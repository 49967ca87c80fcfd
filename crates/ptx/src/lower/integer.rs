//! Integer, logic and shift instructions.

use super::lane::{binary, is_integer, ternary, unary, with_integer};
use super::modifiers::Modifiers;
use crate::inst::{Alu, Carry};
use crate::num::int::{self, PrmtMode};
use crate::text::ast::Type;

/// An operation and the types of its operands, for constants among them.
pub(crate) struct Shape {
    pub(crate) f: Alu,
    pub(crate) sources: Vec<Type>,
}

fn shape(f: Alu, sources: &[Type]) -> Result<Shape, String> {
    Ok(Shape {
        f,
        sources: sources.to_vec(),
    })
}

fn no_type(ty: Type) -> String {
    format!("not with type {ty:?}")
}

/// `add`, `sub`, `min`, `max` of integers.
pub(crate) fn arithmetic(
    opcode: &str,
    ty: Type,
    mods: &mut Modifiers<'_>,
) -> Result<Shape, String> {
    if matches!(ty, Type::U16x2 | Type::S16x2) {
        return packed(opcode, ty, mods);
    }
    if !is_integer(ty) {
        return Err(no_type(ty));
    }
    let (sat, relu) = (mods.take("sat"), mods.take("relu"));
    let f = with_integer!(ty, T => match (opcode, sat) {
        ("add", false) => binary(|a: T, b: T| a.wrapping_add(b)),
        ("add", true) => binary(|a: T, b: T| a.saturating_add(b)),
        ("sub", false) => binary(|a: T, b: T| a.wrapping_sub(b)),
        ("sub", true) => binary(|a: T, b: T| a.saturating_sub(b)),
        ("min", _) if relu => binary(|a: T, b: T| a.min(b).max(T::default())),
        ("min", _) => binary(|a: T, b: T| a.min(b)),
        ("max", _) if relu => binary(|a: T, b: T| a.max(b).max(T::default())),
        _ => binary(|a: T, b: T| a.max(b)),
    });
    shape(f.ok_or_else(|| no_type(ty))?, &[ty, ty])
}

fn packed(opcode: &str, ty: Type, mods: &mut Modifiers<'_>) -> Result<Shape, String> {
    let relu = mods.take("relu");
    let signed = ty == Type::S16x2;
    let of: fn(u16, u16) -> u16 = match (opcode, signed) {
        ("add", _) => u16::wrapping_add,
        ("sub", _) => u16::wrapping_sub,
        ("min", false) => |a, b| a.min(b),
        ("max", false) => |a, b| a.max(b),
        ("min", true) => |a, b| (a as i16).min(b as i16) as u16,
        ("max", true) => |a, b| (a as i16).max(b as i16) as u16,
        _ => return Err(no_type(ty)),
    };
    let half = move |a: u32, b: u32| {
        let value = of(a as u16, b as u16);
        u32::from(if relu && (value as i16) < 0 { 0 } else { value })
    };
    let f = binary(move |a: u32, b: u32| half(a, b) | half(a >> 16, b >> 16) << 16);
    shape(f, &[Type::B(32), Type::B(32)])
}

/// `mul` and `mad` of integers: `.lo`, `.hi`, `.wide`.
pub(crate) fn multiply(
    ty: Type,
    with_add: bool,
    mods: &mut Modifiers<'_>,
) -> Result<Shape, String> {
    let sat = mods.take("sat");
    if mods.take("wide") {
        let (f, wide) = match ty {
            Type::U(16) => (
                ternary(|a: u16, b: u16, c: u32| (u32::from(a) * u32::from(b)).wrapping_add(c)),
                Type::U(32),
            ),
            Type::S(16) => (
                ternary(|a: i16, b: i16, c: u32| {
                    ((i32::from(a) * i32::from(b)) as u32).wrapping_add(c)
                }),
                Type::S(32),
            ),
            Type::U(32) => (
                ternary(|a: u32, b: u32, c: u64| (u64::from(a) * u64::from(b)).wrapping_add(c)),
                Type::U(64),
            ),
            Type::S(32) => (
                ternary(|a: i32, b: i32, c: u64| {
                    ((i64::from(a) * i64::from(b)) as u64).wrapping_add(c)
                }),
                Type::S(64),
            ),
            _ => return Err(no_type(ty)),
        };
        return shape(f, &[ty, ty, wide][..2 + usize::from(with_add)]);
    }
    let f = if mods.take("hi") {
        high(ty, sat)?
    } else {
        mods.take("lo");
        with_integer!(ty, T => ternary(|a: T, b: T, c: T| a.wrapping_mul(b).wrapping_add(c)))
            .ok_or_else(|| no_type(ty))?
    };
    shape(f, &[ty; 3][..2 + usize::from(with_add)])
}

fn high(ty: Type, sat: bool) -> Result<Alu, String> {
    Ok(match ty {
        Type::U(16) => ternary(|a: u16, b: u16, c: u16| {
            (((u32::from(a) * u32::from(b)) >> 16) as u16).wrapping_add(c)
        }),
        Type::S(16) => ternary(|a: i16, b: i16, c: i16| {
            (((i32::from(a) * i32::from(b)) >> 16) as i16).wrapping_add(c)
        }),
        Type::U(32) => ternary(|a: u32, b: u32, c: u32| {
            (((u64::from(a) * u64::from(b)) >> 32) as u32).wrapping_add(c)
        }),
        Type::S(32) if sat => ternary(|a: i32, b: i32, c: i32| {
            (((i64::from(a) * i64::from(b)) >> 32) as i32).saturating_add(c)
        }),
        Type::S(32) => ternary(|a: i32, b: i32, c: i32| {
            (((i64::from(a) * i64::from(b)) >> 32) as i32).wrapping_add(c)
        }),
        Type::U(64) => ternary(|a: u64, b: u64, c: u64| {
            (((u128::from(a) * u128::from(b)) >> 64) as u64).wrapping_add(c)
        }),
        Type::S(64) => ternary(|a: i64, b: i64, c: i64| {
            (((i128::from(a) * i128::from(b)) >> 64) as i64).wrapping_add(c)
        }),
        _ => return Err(no_type(ty)),
    })
}

/// `mul24` and `mad24`: the low 24 bits of each factor.
pub(crate) fn multiply24(
    ty: Type,
    with_add: bool,
    mods: &mut Modifiers<'_>,
) -> Result<Shape, String> {
    let is_high = mods.take("hi");
    let sat = mods.take("sat");
    mods.take("lo");
    let signed = match ty {
        Type::U(32) => false,
        Type::S(32) => true,
        _ => return Err(no_type(ty)),
    };
    let part = move |a: u64| {
        if signed {
            int::sign_extend(a, 24)
        } else {
            (a & 0xff_ffff) as i64
        }
    };
    let f = ternary(move |a: u64, b: u64, c: i32| {
        let product = ((part(a) * part(b)) >> if is_high { 16 } else { 0 }) as i32;
        (if sat {
            product.saturating_add(c)
        } else {
            product.wrapping_add(c)
        }) as u32
    });
    shape(f, &[ty; 3][..2 + usize::from(with_add)])
}

/// `div` and `rem` of integers. A divisor of zero gives all ones, and the dividend as remainder,
/// which PTX leaves open.
pub(crate) fn divide(ty: Type, remainder: bool) -> Result<Shape, String> {
    if !is_integer(ty) {
        return Err(no_type(ty));
    }
    let f = with_integer!(ty, T => if remainder {
        binary(|a: T, b: T| if b == 0 { a } else { a.wrapping_rem(b) })
    } else {
        binary(|a: T, b: T| if b == 0 { !0 } else { a.wrapping_div(b) })
    });
    shape(f.ok_or_else(|| no_type(ty))?, &[ty, ty])
}

/// `abs`, `neg`, `sad` of integers.
pub(crate) fn signs(opcode: &str, ty: Type) -> Result<Shape, String> {
    if !is_integer(ty) {
        return Err(no_type(ty));
    }
    let f = match opcode {
        "neg" => with_integer!(ty, T => unary(|a: T| (0 as T).wrapping_sub(a))),
        "abs" => match ty {
            Type::S(16) => Some(unary(i16::wrapping_abs)),
            Type::S(32) => Some(unary(i32::wrapping_abs)),
            Type::S(64) => Some(unary(i64::wrapping_abs)),
            _ => None,
        },
        _ => with_integer!(ty, T => {
            ternary(|a: T, b: T, c: T| c.wrapping_add(a.max(b).wrapping_sub(a.min(b))))
        }),
    };
    let count = if opcode == "sad" { 3 } else { 1 };
    shape(f.ok_or_else(|| no_type(ty))?, &[ty; 3][..count])
}

/// `and`, `or`, `xor`, `not`, `cnot` of bits.
pub(crate) fn logic(opcode: &str, ty: Type) -> Result<Shape, String> {
    let f = match opcode {
        "and" => binary(|a: u64, b: u64| a & b),
        "or" => binary(|a: u64, b: u64| a | b),
        "xor" => binary(|a: u64, b: u64| a ^ b),
        "cnot" => {
            let limit = int::ones(ty.bits());
            unary(move |a: u64| u64::from(a & limit == 0))
        }
        _ => with_integer!(ty, T => unary(|a: T| !a)).ok_or_else(|| no_type(ty))?,
    };
    let count = if matches!(opcode, "not" | "cnot") {
        1
    } else {
        2
    };
    shape(f, &[ty; 2][..count])
}

/// `shl` and `shr`: amounts beyond the width shift everything out.
pub(crate) fn shift(opcode: &str, ty: Type) -> Result<Shape, String> {
    let left = opcode == "shl";
    let f = with_integer!(ty, T => if left {
        binary(|a: T, by: u32| a.checked_shl(by).unwrap_or(0))
    } else {
        binary(|a: T, by: u32| a >> by.min(T::BITS - 1) >> u32::from(by >= T::BITS))
    });
    shape(f.ok_or_else(|| no_type(ty))?, &[ty, Type::U(32)])
}

/// `shf.l` and `shf.r`.
pub(crate) fn funnel(mods: &mut Modifiers<'_>) -> Result<Shape, String> {
    let left = mods.take("l");
    let wrap = mods.take("wrap");
    mods.ignore(&["r", "clamp"]);
    let f = ternary(move |a: u32, b: u32, c: u32| int::shf(a, b, c, left, wrap));
    shape(f, &[Type::B(32); 3])
}

/// Instructions on bits with one or two operands: counts and positions.
pub(crate) fn bits(opcode: &str, ty: Type, mods: &mut Modifiers<'_>) -> Result<Shape, String> {
    let width = ty.bits();
    let signed = matches!(ty, Type::S(_));
    // A register of another width may hold more than the type's bits.
    let limit = int::ones(width);
    let f = match opcode {
        "popc" => unary(move |a: u64| (a & limit).count_ones()),
        "clz" => unary(move |a: u64| (a & limit).leading_zeros() + width - 64),
        "brev" => unary(move |a: u64| (a & limit).reverse_bits() >> (64 - width)),
        "bfind" => {
            let amount = mods.take("shiftamt");
            unary(move |a: u64| int::bfind(a & limit, width, signed, amount))
        }
        _ => return Err(no_type(ty)),
    };
    shape(f, &[ty])
}

/// `bfe`, `bfi`, `bmsk`, `szext`, `fns`.
pub(crate) fn field(opcode: &str, ty: Type, mods: &mut Modifiers<'_>) -> Result<Shape, String> {
    let width = ty.bits();
    let signed = matches!(ty, Type::S(_));
    let number = Type::U(32);
    match opcode {
        "bfe" => shape(
            ternary(move |a: u64, b: u64, c: u64| int::bfe(a, b, c, width, signed)),
            &[ty, number, number],
        ),
        "szext" => {
            let wrap = mods.take("wrap");
            mods.take("clamp");
            let f = binary(move |a: u64, b: u64| {
                let len = if wrap { b & 31 } else { b.min(32) };
                int::bfe(a, 0, len, 32, signed)
            });
            shape(f, &[ty, number])
        }
        "bmsk" => {
            let wrap = mods.take("wrap");
            mods.take("clamp");
            let f = binary(move |a: u64, b: u64| {
                let (pos, len) = if wrap {
                    (a & 31, b & 31)
                } else {
                    (a.min(32), b.min(32))
                };
                int::ones(len as u32) << pos & 0xffff_ffff
            });
            shape(f, &[ty, number])
        }
        _ => shape(
            ternary(|a: u32, b: u32, c: i32| int::fns(a, b, c)),
            &[ty, number, Type::S(32)],
        ),
    }
}

/// `prmt` with or without a mode.
pub(crate) fn permute(mods: &mut Modifiers<'_>) -> Result<Shape, String> {
    let mode = mods.find(|word| {
        Some(match word {
            "f4e" => PrmtMode::F4e,
            "b4e" => PrmtMode::B4e,
            "rc8" => PrmtMode::Rc8,
            "ecl" => PrmtMode::Ecl,
            "ecr" => PrmtMode::Ecr,
            "rc16" => PrmtMode::Rc16,
            _ => return None,
        })
    });
    let f = match mode {
        None => ternary(int::prmt),
        Some(mode) => {
            ternary(move |a: u32, b: u32, c: u32| int::prmt(a, b, int::prmt_selector(mode, c)))
        }
    };
    shape(f, &[Type::B(32); 3])
}

/// `lop3` with its table.
pub(crate) fn lop3(table: u32) -> Alu {
    match table {
        0x96 => ternary(|a: u64, b: u64, c: u64| a ^ b ^ c),
        0x80 => ternary(|a: u64, b: u64, c: u64| a & b & c),
        0xfe => ternary(|a: u64, b: u64, c: u64| a | b | c),
        _ => ternary(move |a: u32, b: u32, c: u32| int::lop3(a, b, c, table)),
    }
}

/// `dp4a` and `dp2a`.
pub(crate) fn dot(opcode: &str, mods: &mut Modifiers<'_>) -> Result<Shape, String> {
    let (a, b) = (mods.ty()?, mods.ty()?);
    let (sa, sb) = (a == Type::S(32), b == Type::S(32));
    let f = if opcode == "dp4a" {
        ternary(move |a: u32, b: u32, c: u32| int::dp4a(a, b, c, sa, sb))
    } else {
        let high = mods.take("hi");
        mods.take("lo");
        ternary(move |a: u32, b: u32, c: u32| int::dp2a(a, b, c, (sa, sb), high))
    };
    shape(f, &[a, b, Type::S(32)])
}

/// Additions and subtractions with the carry flag; (function, reads the flag).
pub(crate) fn carry(
    opcode: &str,
    ty: Type,
    mods: &mut Modifiers<'_>,
) -> Result<(Carry, bool), String> {
    let is_wide = ty.bits() == 64;
    Ok(match (opcode, is_wide) {
        ("add" | "addc", false) => (
            |a, b, _, carry| {
                let sum = a + b + u64::from(carry);
                (sum & 0xffff_ffff, sum >> 32 != 0)
            },
            opcode == "addc",
        ),
        ("add" | "addc", true) => (
            |a, b, _, carry| {
                let sum = u128::from(a) + u128::from(b) + u128::from(carry);
                (sum as u64, sum >> 64 != 0)
            },
            opcode == "addc",
        ),
        ("sub" | "subc", false) => (
            |a, b, _, borrow| {
                let difference = a.wrapping_sub(b).wrapping_sub(u64::from(borrow));
                (difference & 0xffff_ffff, difference >> 32 != 0)
            },
            opcode == "subc",
        ),
        ("sub" | "subc", true) => (
            |a, b, _, borrow| {
                let difference = u128::from(a)
                    .wrapping_sub(u128::from(b))
                    .wrapping_sub(u128::from(borrow));
                (difference as u64, difference >> 64 != 0)
            },
            opcode == "subc",
        ),
        _ => (multiply_carry(ty, mods)?, opcode == "madc"),
    })
}

fn multiply_carry(ty: Type, mods: &mut Modifiers<'_>) -> Result<Carry, String> {
    let is_high = mods.take("hi");
    mods.take("lo");
    Ok(match (ty, is_high) {
        (Type::U(32) | Type::S(32), false) => |a, b, c, carry| {
            let sum = (a.wrapping_mul(b) & 0xffff_ffff) + c + u64::from(carry);
            (sum & 0xffff_ffff, sum >> 32 != 0)
        },
        (Type::U(32), true) => |a, b, c, carry| {
            let sum = ((a * b) >> 32) + c + u64::from(carry);
            (sum & 0xffff_ffff, sum >> 32 != 0)
        },
        (Type::S(32), true) => |a, b, c, carry| {
            let product = i64::from(a as i32) * i64::from(b as i32);
            let sum = (product as u64 >> 32) + c + u64::from(carry);
            (sum & 0xffff_ffff, sum >> 32 != 0)
        },
        (Type::U(64) | Type::S(64), false) => |a, b, c, carry| {
            let sum = u128::from(a.wrapping_mul(b)) + u128::from(c) + u128::from(carry);
            (sum as u64, sum >> 64 != 0)
        },
        (Type::U(64), true) => |a, b, c, carry| {
            let product = (u128::from(a) * u128::from(b)) >> 64;
            let sum = product + u128::from(c) + u128::from(carry);
            (sum as u64, sum >> 64 != 0)
        },
        (Type::S(64), true) => |a, b, c, carry| {
            let product = (i128::from(a as i64) * i128::from(b as i64)) as u128 >> 64;
            let sum = product + u128::from(c) + u128::from(carry);
            (sum as u64, sum >> 64 != 0)
        },
        _ => return Err(no_type(ty)),
    })
}
