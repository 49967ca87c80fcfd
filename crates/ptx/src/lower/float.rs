//! Floating-point instructions.

use super::integer::Shape;
use super::lane::{binary, ternary, unary};
use super::modifiers::Modifiers;
use crate::inst::Alu;
use crate::num::approx;
use crate::num::float::{self, Arith, MinMax, Mode};
use crate::num::soft::{BF16, F16, Format, Round};
use crate::text::ast::Type;

/// Applies a function of 16-bit values to a lane, once or to both halves.
fn halves(is_pair: bool, f: impl Fn([u64; 3]) -> u64 + Send + Sync + 'static) -> Alu {
    ternary(move |a: u64, b: u64, c: u64| {
        let low = f([a & 0xffff, b & 0xffff, c & 0xffff]);
        if is_pair {
            low | f([a >> 16 & 0xffff, b >> 16 & 0xffff, c >> 16 & 0xffff]) << 16
        } else {
            low
        }
    })
}

/// Format of a half type, and whether there are two in a register.
fn half(ty: Type) -> Option<(Format, bool)> {
    Some(match ty {
        Type::F(16) => (F16, false),
        Type::F16x2 => (F16, true),
        Type::Bf16 => (BF16, false),
        Type::Bf16x2 => (BF16, true),
        _ => return None,
    })
}

/// The half type of an operation of mixed precision.
fn small(word: &str) -> Option<Type> {
    Type::parse(word).filter(|ty| matches!(ty, Type::F(16) | Type::Bf16))
}

/// Applies an `f32` operation to both halves of a 64-bit lane.
fn pair32(f: impl Fn(f32, f32, f32) -> f32 + Send + Sync + 'static) -> Alu {
    let part = |x: u64| f32::from_bits(x as u32);
    ternary(move |a: u64, b: u64, c: u64| {
        let low = f(part(a), part(b), part(c)).to_bits();
        let high = f(part(a >> 32), part(b >> 32), part(c >> 32)).to_bits();
        u64::from(high) << 32 | u64::from(low)
    })
}

/// `add`, `sub`, `mul`, `div`.
pub(crate) fn arithmetic(op: Arith, ty: Type, mods: &mut Modifiers<'_>) -> Result<Shape, String> {
    // `div.full` and `div.approx` may be wrong in the last places; ours are right.
    mods.ignore(&["full", "approx", "noftz"]);
    let mode = mods.mode();
    if let (Type::F(32), Some(small)) = (ty, mods.find(small)) {
        // The first operand is a half, which is exact in f32.
        let format = half(small).map_or(F16, |(format, _)| format);
        let f = binary(move |a: u64, b: f32| {
            float::arith32(op, float::widen(a & 0xffff, format) as f32, b, mode)
        });
        return Ok(Shape {
            f,
            sources: vec![small, ty],
        });
    }
    let f = match ty {
        Type::F(32) if mode == Mode::PLAIN => match op {
            Arith::Add => binary(|a: f32, b: f32| float::canonical(a + b)),
            Arith::Sub => binary(|a: f32, b: f32| float::canonical(a - b)),
            Arith::Mul => binary(|a: f32, b: f32| float::canonical(a * b)),
            Arith::Div => binary(|a: f32, b: f32| float::canonical(a / b)),
        },
        Type::F(32) => binary(move |a: f32, b: f32| float::arith32(op, a, b, mode)),
        Type::F(64) => binary(move |a: f64, b: f64| float::arith64(op, a, b, mode.round)),
        Type::F32x2 => pair32(move |a, b, _| float::arith32(op, a, b, mode)),
        _ => {
            let (format, is_pair) = half(ty).ok_or_else(|| format!("not with type {ty:?}"))?;
            let of: fn([f64; 3]) -> f64 = match op {
                Arith::Add => |[a, b, _]| float::add_odd(a, b),
                Arith::Sub => |[a, b, _]| float::add_odd(a, -b),
                Arith::Mul => |[a, b, _]| a * b,
                Arith::Div => return Err("no division of halves".into()),
            };
            halves(is_pair, move |bits| float::small(format, mode, bits, of))
        }
    };
    Ok(Shape {
        f,
        sources: vec![ty; 2],
    })
}

/// `fma` and floating-point `mad`.
pub(crate) fn fma(ty: Type, mods: &mut Modifiers<'_>) -> Result<Shape, String> {
    let mode = mods.mode();
    if let (Type::F(32), Some(small)) = (ty, mods.find(small)) {
        let format = half(small).map_or(F16, |(format, _)| format);
        let wide = move |a: u64| float::widen(a & 0xffff, format) as f32;
        let f = ternary(move |a: u64, b: u64, c: f32| float::fma32_with(wide(a), wide(b), c, mode));
        return Ok(Shape {
            f,
            sources: vec![small, small, ty],
        });
    }
    let f = match ty {
        Type::F(32) if mode == Mode::PLAIN => {
            ternary(|a: f32, b: f32, c: f32| float::canonical(float::fma32(a, b, c)))
        }
        Type::F(32) => ternary(move |a: f32, b: f32, c: f32| float::fma32_with(a, b, c, mode)),
        Type::F(64) => ternary(move |a: f64, b: f64, c: f64| float::fma64(a, b, c, mode.round)),
        Type::F32x2 => pair32(move |a, b, c| float::fma32_with(a, b, c, mode)),
        _ => {
            let (format, is_pair) = half(ty).ok_or_else(|| format!("not with type {ty:?}"))?;
            halves(is_pair, move |bits| {
                float::small(format, mode, bits, |[a, b, c]| float::add_odd(a * b, c))
            })
        }
    };
    Ok(Shape {
        f,
        sources: vec![ty; 3],
    })
}

/// `min` and `max`, of two or three operands.
pub(crate) fn extreme(
    is_max: bool,
    ty: Type,
    count: usize,
    mods: &mut Modifiers<'_>,
) -> Result<Shape, String> {
    let ftz = mods.take("ftz");
    let how = MinMax {
        is_max,
        nan: mods.take("NaN"),
        xorsign_abs: mods
            .find(|word| (word == "xorsign").then_some(()))
            .is_some(),
    };
    mods.take("abs");
    let mode = Mode { ftz, ..Mode::PLAIN };
    let pick32 = move |a: f32, b: f32| {
        let (a, b) = (float::input(a, mode), float::input(b, mode));
        let value = float::min_max(f64::from(a), f64::from(b), how);
        value.map_or(f32::from_bits(0x7fff_ffff), |value| value as f32)
    };
    let f = match ty {
        Type::F(32) if count == 3 => ternary(move |a: f32, b: f32, c: f32| pick32(pick32(a, b), c)),
        Type::F(32) => binary(pick32),
        Type::F(64) => binary(move |a: f64, b: f64| {
            float::min_max(a, b, how).unwrap_or(float::canonical64(f64::NAN))
        }),
        _ => {
            let (format, is_pair) = half(ty).ok_or_else(|| format!("not with type {ty:?}"))?;
            halves(is_pair, move |[a, b, _]| {
                let value = float::min_max(float::widen(a, format), float::widen(b, format), how);
                value.map_or(format.nan(), |value| {
                    float::small_output(value, format, mode)
                })
            })
        }
    };
    Ok(Shape {
        f,
        sources: vec![ty; count],
    })
}

/// `abs` and `neg`: the sign bit alone.
pub(crate) fn sign(opcode: &str, ty: Type, mods: &mut Modifiers<'_>) -> Result<Shape, String> {
    let mode = Mode {
        ftz: mods.take("ftz"),
        ..Mode::PLAIN
    };
    let (sign, width) = match ty {
        Type::F(64) => (1 << 63, 64),
        Type::F(32) => (1 << 31, 32),
        Type::F32x2 => (1 << 63 | 1 << 31, 64),
        _ => match half(ty) {
            Some((_, true)) => (0x8000_8000u64, 16),
            Some(_) => (0x8000, 16),
            None => return Err(format!("not with type {ty:?}")),
        },
    };
    let flush = move |x: u64| {
        if mode.ftz && width == 32 {
            u64::from(float::flush(f32::from_bits(x as u32)).to_bits())
        } else {
            x
        }
    };
    let f = if opcode == "abs" {
        unary(move |a: u64| flush(a) & !sign)
    } else {
        unary(move |a: u64| flush(a) ^ sign)
    };
    Ok(Shape {
        f,
        sources: vec![ty],
    })
}

/// `rcp`, `sqrt`, and the functions that exist only as approximations.
pub(crate) fn function(opcode: &str, ty: Type, mods: &mut Modifiers<'_>) -> Result<Shape, String> {
    let approximate = mods.take("approx");
    let mode = mods.mode();
    let f = match (ty, opcode) {
        (Type::F(64), "rcp") if approximate => {
            unary(|a: f64| approx::upper(1.0 / approx::upper(a)))
        }
        (Type::F(64), "rcp") => unary(move |a: f64| float::arith64(Arith::Div, 1.0, a, mode.round)),
        (Type::F(64), "sqrt") => unary(move |a: f64| float::sqrt64(a, mode.round)),
        (Type::F(64), "rsqrt") if mode.ftz => {
            unary(|a: f64| approx::upper(approx::rsqrt64(approx::upper(a))))
        }
        (Type::F(64), "rsqrt") => unary(|a: f64| float::canonical64(approx::rsqrt64(a))),
        (Type::F(32), "rcp") => unary(move |a: f32| float::arith32(Arith::Div, 1.0, a, mode)),
        (Type::F(32), "sqrt") => unary(move |a: f32| float::sqrt32(a, mode)),
        (Type::F(32), _) => {
            let of = approximation(opcode)?;
            unary(move |a: f32| float::output(of(float::input(a, mode)), mode))
        }
        _ => {
            let (format, is_pair) = half(ty).ok_or_else(|| format!("not with type {ty:?}"))?;
            let of: fn([f64; 3]) -> f64 = match opcode {
                "ex2" => |[a, ..]| a.exp2(),
                "tanh" => |[a, ..]| a.tanh(),
                _ => return Err(format!("not with type {ty:?}")),
            };
            halves(is_pair, move |bits| float::small(format, mode, bits, of))
        }
    };
    Ok(Shape {
        f,
        sources: vec![ty],
    })
}

fn approximation(opcode: &str) -> Result<fn(f32) -> f32, String> {
    Ok(match opcode {
        "rsqrt" => approx::rsqrt,
        "sin" => approx::sin,
        "cos" => approx::cos,
        "lg2" => approx::lg2,
        "ex2" => approx::ex2,
        "tanh" => approx::tanh,
        _ => return Err("unknown function".into()),
    })
}

/// `copysign d, a, b`: the magnitude of `b` with the sign of `a`.
pub(crate) fn copysign(ty: Type) -> Result<Shape, String> {
    let f = match ty {
        Type::F(32) => binary(|a: f32, b: f32| b.copysign(a)),
        Type::F(64) => binary(|a: f64, b: f64| b.copysign(a)),
        _ => return Err(format!("not with type {ty:?}")),
    };
    Ok(Shape {
        f,
        sources: vec![ty; 2],
    })
}

/// Rounds to an integer in floating point.
pub(crate) fn to_integral(value: f64, round: Round) -> f64 {
    match round {
        Round::Nearest => value.round_ties_even(),
        Round::NearestAway => value.round(),
        Round::Zero => value.trunc(),
        Round::Down => value.floor(),
        Round::Up => value.ceil(),
    }
}
