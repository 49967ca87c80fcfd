//! `cvt`: between integers, floating-point formats, and packed small formats.

use super::float::to_integral;
use super::integer::Shape;
use super::lane::{binary, ternary, unary};
use super::modifiers::Modifiers;
use crate::inst::Alu;
use crate::num::float::{self, Mode};
use crate::num::int::{ones, sign_extend};
use crate::num::soft::{self, BF16, F16, F32, F64, Format, Round, TF32};
use crate::text::ast::Type;

/// Decodes a conversion into a register of `width` bits.
pub(crate) fn convert(width: u32, mods: &mut Modifiers<'_>) -> Result<Shape, String> {
    if mods.take("pack") {
        return pack(mods);
    }
    let integral = mods.find(|word| {
        Some(match word {
            "rni" => Round::Nearest,
            "rzi" => Round::Zero,
            "rmi" => Round::Down,
            "rpi" => Round::Up,
            _ => return None,
        })
    });
    let finite = mods.take("satfinite");
    let mode = mods.mode();
    let (to, from) = (mods.ty()?, mods.ty()?);
    let how = How {
        mode,
        integral,
        finite,
        width,
    };
    if to.is_float() && matches!(to, Type::F16x2 | Type::Bf16x2 | Type::E4m3x2 | Type::E5m2x2)
        || matches!(from, Type::E4m3x2 | Type::E5m2x2)
    {
        return packed(to, from, &how);
    }
    let f = match (to.is_float(), from.is_float()) {
        (false, false) => integers(to, from, &how),
        (false, true) => to_integer(to, from, &how),
        (true, false) => from_integer(to, from, &how)?,
        (true, true) => floats(to, from, &how)?,
    };
    Ok(Shape {
        f,
        sources: vec![from],
    })
}

struct How {
    mode: Mode,
    integral: Option<Round>,
    finite: bool,
    width: u32,
}

fn is_signed(ty: Type) -> bool {
    matches!(ty, Type::S(_))
}

/// The bits that a register of `width` holds for an integer of type `to`.
fn register(value: i64, to: Type, width: u32) -> u64 {
    let bits = to.bits();
    let cut = value as u64 & ones(bits);
    if is_signed(to) && width > bits {
        sign_extend(cut, bits) as u64 & ones(width)
    } else {
        cut
    }
}

fn integers(to: Type, from: Type, how: &How) -> Alu {
    let (width, bits, signed) = (how.width, from.bits(), is_signed(from));
    if how.mode.sat {
        return unary(move |a: u64| {
            let wide = if signed {
                i128::from(sign_extend(a, bits))
            } else {
                i128::from(a & ones(bits))
            };
            register(clamp(wide, to) as i64, to, width)
        });
    }
    let up = 64 - bits;
    // Zero extension is the usual case, and two shifts less.
    if !signed && !is_signed(to) {
        let mask = ones(bits.min(to.bits()));
        return unary(move |a: u64| a & mask);
    }
    unary(move |a: u64| {
        let value = if signed {
            (a << up) as i64 >> up
        } else {
            (a << up >> up) as i64
        };
        register(value, to, width)
    })
}

fn clamp(value: i128, to: Type) -> i128 {
    let bits = to.bits();
    if is_signed(to) {
        value.clamp(-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
    } else {
        value.clamp(0, (1i128 << bits) - 1)
    }
}

/// A floating-point type's value. Every one fits `f64`.
fn value_of(ty: Type, ftz: bool) -> fn(u64) -> f64 {
    match (ty, ftz) {
        (Type::F(64), _) => f64::from_bits,
        (Type::F(16), _) => |a| float::widen(a & 0xffff, F16),
        (Type::Bf16, _) => |a| float::widen(a & 0xffff, BF16),
        (_, true) => |a| f64::from(float::flush(f32::from_bits(a as u32))),
        (_, false) => |a| f64::from(f32::from_bits(a as u32)),
    }
}

fn to_integer(to: Type, from: Type, how: &How) -> Alu {
    let value = value_of(from, how.mode.ftz);
    let (round, width) = (how.integral.unwrap_or(Round::Zero), how.width);
    let is_wide = from == Type::F(64) || to.bits() == 64;
    let nan = if is_wide { 1u64 << (to.bits() - 1) } else { 0 };
    unary(move |a: u64| {
        let value = value(a);
        if value.is_nan() {
            return register(nan as i64, to, width);
        }
        let whole = to_integral(value, round);
        // `as` saturates; i128 holds every 64-bit integer.
        register(clamp(whole as i128, to) as i64, to, width)
    })
}

fn format_of(ty: Type) -> Result<Format, String> {
    Ok(match ty {
        Type::F(64) => F64,
        Type::F(32) => F32,
        Type::F(16) => F16,
        Type::Bf16 => BF16,
        Type::Tf32 => TF32,
        _ => return Err(format!("no conversion with type {ty:?}")),
    })
}

fn from_integer(to: Type, from: Type, how: &How) -> Result<Alu, String> {
    let (bits, signed) = (from.bits(), is_signed(from));
    let mode = how.mode;
    let nearest = mode.round == Round::Nearest && !mode.sat;
    Ok(match to {
        Type::F(32) if nearest && signed => unary(move |a: u64| sign_extend(a, bits) as f32),
        Type::F(32) if nearest => unary(move |a: u64| (a & ones(bits)) as f32),
        Type::F(64) if nearest && signed => unary(move |a: u64| sign_extend(a, bits) as f64),
        Type::F(64) if nearest => unary(move |a: u64| (a & ones(bits)) as f64),
        _ => {
            let format = format_of(to)?;
            unary(move |a: u64| {
                let value = if signed {
                    let value = sign_extend(a, bits);
                    soft::of_integer(value < 0, value.unsigned_abs())
                } else {
                    soft::of_integer(false, a & ones(bits))
                };
                saturated(soft::pack(value, format, mode.round), to, mode)
            })
        }
    })
}

/// Clamps the bits of a floating-point type to 0..1 where `.sat` says so.
fn saturated(bits: u64, ty: Type, mode: Mode) -> u64 {
    if !mode.sat && !mode.relu {
        return bits;
    }
    let value = value_of(ty, false)(bits);
    let one = format_of(ty).map_or(0, |format| {
        soft::convert(1f64.to_bits(), F64, format, Round::Zero)
    });
    if value.is_nan() {
        if mode.sat { 0 } else { bits }
    } else if value <= 0.0 {
        0
    } else if mode.sat && value >= 1.0 {
        one
    } else {
        bits
    }
}

fn floats(to: Type, from: Type, how: &How) -> Result<Alu, String> {
    let (format, value) = (format_of(to)?, value_of(from, how.mode.ftz));
    let (mode, integral, finite) = (how.mode, how.integral, how.finite);
    let plain = integral.is_none() && !mode.sat && !mode.relu && !mode.ftz && !finite;
    Ok(match (to, from) {
        (Type::F(64), Type::F(32)) if plain => unary(|a: f32| float::canonical64(f64::from(a))),
        (Type::F(32), Type::F(16)) if plain => {
            unary(|a: u64| float::canonical(float::widen(a & 0xffff, F16) as f32))
        }
        (Type::F(32), Type::F(64)) if plain && mode.round == Round::Nearest => {
            unary(|a: f64| float::canonical(a as f32))
        }
        _ => unary(move |a: u64| {
            let mut value = value(a);
            if let Some(round) = integral {
                value = to_integral(value, round);
            }
            let mut bits = if value.is_nan() {
                format.nan()
            } else {
                float::narrow(value, format, mode.round)
            };
            if mode.ftz && to == Type::F(32) {
                bits = u64::from(float::flush(f32::from_bits(bits as u32)).to_bits());
            }
            if finite && !value.is_nan() {
                bits = finite_bits(bits, format);
            }
            saturated(bits, to, mode)
        }),
    })
}

/// The largest finite number in place of infinity.
fn finite_bits(bits: u64, format: Format) -> u64 {
    if bits == format.infinity(false) {
        format.largest(false)
    } else if bits == format.infinity(true) {
        format.largest(true)
    } else {
        bits
    }
}

/// Conversions to and from two values in a register.
fn packed(to: Type, from: Type, how: &How) -> Result<Shape, String> {
    let mode = how.mode;
    let finite = how.finite;
    let narrow = move |value: f64| -> u64 {
        let value = if mode.relu && value < 0.0 { 0.0 } else { value };
        match to {
            Type::E4m3x2 => float::narrow_e4m3(value),
            Type::E5m2x2 => float::narrow_e5m2(value),
            _ => {
                let format = if to == Type::F16x2 { F16 } else { BF16 };
                let bits = float::small_output(value, format, Mode { ftz: false, ..mode });
                if finite && !value.is_nan() {
                    finite_bits(bits, format)
                } else {
                    bits
                }
            }
        }
    };
    let width = if matches!(to, Type::E4m3x2 | Type::E5m2x2) {
        8
    } else {
        16
    };
    match from {
        Type::F(32) => {
            let value = value_of(from, mode.ftz);
            let f = binary(move |a: u64, b: u64| narrow(value(a)) << width | narrow(value(b)));
            Ok(Shape {
                f,
                sources: vec![from; 2],
            })
        }
        Type::F16x2 | Type::Bf16x2 | Type::E4m3x2 | Type::E5m2x2 => {
            let part: fn(u64) -> f64 = match from {
                Type::F16x2 => |a| float::widen(a & 0xffff, F16),
                Type::Bf16x2 => |a| float::widen(a & 0xffff, BF16),
                Type::E4m3x2 => |a| float::widen_e4m3(a & 0xff),
                _ => |a| float::widen(a & 0xff, soft::E5M2),
            };
            let shift = if matches!(from, Type::F16x2 | Type::Bf16x2) {
                16
            } else {
                8
            };
            let f = unary(move |a: u64| narrow(part(a >> shift)) << width | narrow(part(a)));
            Ok(Shape {
                f,
                sources: vec![from],
            })
        }
        _ => Err(format!("no conversion from {from:?} to {to:?}")),
    }
}

/// `cvt.pack.sat`: two integers clamped into one register.
fn pack(mods: &mut Modifiers<'_>) -> Result<Shape, String> {
    mods.take("sat");
    let (to, from) = (mods.ty()?, mods.ty()?);
    let with_rest = mods.take("b32");
    if from != Type::S(32) || !matches!(to.bits(), 8 | 16) {
        return Err(format!("no packing of {from:?} into {to:?}"));
    }
    let bits = to.bits();
    let part = move |a: i32| clamp(i128::from(a), to) as u64 & ones(bits);
    let f = ternary(move |a: i32, b: i32, c: u64| {
        let both = part(a) << bits | part(b);
        if with_rest {
            (c << (2 * bits) | both) & 0xffff_ffff
        } else {
            both
        }
    });
    let mut sources = vec![from; 2];
    if with_rest {
        sources.push(Type::B(32));
    }
    Ok(Shape { f, sources })
}
