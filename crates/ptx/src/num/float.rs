//! Floating-point operations as the device defines them, on top of the processor's own where those
//! round alike. Source: PTX ISA, sections on floating-point and half precision instructions.

use super::soft::{self, BF16, F32, F64, Format, Round};

/// Rounding and the modifiers that change what goes in and comes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mode {
    pub(crate) round: Round,
    /// Subnormal operands and results become zero.
    pub(crate) ftz: bool,
    /// Clamp the result to 0..1; NaN becomes 0.
    pub(crate) sat: bool,
    /// Clamp negative results to 0; NaN stays.
    pub(crate) relu: bool,
}

impl Mode {
    pub(crate) const PLAIN: Mode = Mode {
        round: Round::Nearest,
        ftz: false,
        sat: false,
        relu: false,
    };
}

/// The device's NaN: the sign and payload of operands are lost.
pub(crate) fn canonical(value: f32) -> f32 {
    if value.is_nan() {
        f32::from_bits(0x7fff_ffff)
    } else {
        value
    }
}

/// The device's NaN in double precision.
pub(crate) fn canonical64(value: f64) -> f64 {
    if value.is_nan() {
        f64::from_bits(F64.nan())
    } else {
        value
    }
}

pub(crate) fn flush(value: f32) -> f32 {
    if value.to_bits() & 0x7f80_0000 == 0 {
        f32::from_bits(value.to_bits() & 0x8000_0000)
    } else {
        value
    }
}

/// Operand of an `f32` instruction.
pub(crate) fn input(value: f32, mode: Mode) -> f32 {
    if mode.ftz { flush(value) } else { value }
}

/// Result of an `f32` instruction.
pub(crate) fn output(value: f32, mode: Mode) -> f32 {
    let mut value = canonical(value);
    if mode.ftz {
        value = flush(value);
    }
    if mode.sat {
        value = saturate(value);
    }
    if mode.relu && value < 0.0 {
        value = 0.0;
    }
    value
}

/// To 0..1, NaN and -0 to 0.
pub(crate) fn saturate(value: f32) -> f32 {
    if value > 0.0 { value.min(1.0) } else { 0.0 }
}

/// The sum, rounded to odd: rounding it again, to a format with at least two bits less, gives what
/// rounding the exact sum gives (Boldo and Melquiond, 2008). The error comes from Knuth's two-sum.
pub(crate) fn add_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let b_part = sum - a;
    let error = (a - (sum - b_part)) + (b - b_part);
    let bits = sum.to_bits();
    let is_even = bits & 1 == 0;
    if error != 0.0 && is_even && sum.is_finite() {
        let away = (error > 0.0) == (sum > 0.0);
        f64::from_bits(if away { bits + 1 } else { bits - 1 })
    } else {
        sum
    }
}

/// `a * b + c` with one rounding. The product of two `f32` is exact in `f64`.
pub(crate) fn fma32(a: f32, b: f32, c: f32) -> f32 {
    add_odd(f64::from(a) * f64::from(b), f64::from(c)) as f32
}

/// Which arithmetic operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arith {
    Add,
    Sub,
    Mul,
    Div,
}

/// An operation on bits of a format with any rounding.
pub(crate) fn exact(op: Arith, a: u64, b: u64, format: Format, round: Round) -> u64 {
    let (x, y) = (soft::unpack(a, format), soft::unpack(b, format));
    let value = match op {
        Arith::Add => soft::add(x, y, round),
        Arith::Sub => {
            let sign = 1 << (format.exponent_bits + format.mantissa_bits);
            soft::add(x, soft::unpack(b ^ sign, format), round)
        }
        Arith::Mul => soft::mul(x, y),
        Arith::Div => soft::div(x, y),
    };
    soft::pack(value, format, round)
}

/// An `f32` operation.
pub(crate) fn arith32(op: Arith, a: f32, b: f32, mode: Mode) -> f32 {
    let (a, b) = (input(a, mode), input(b, mode));
    let value = if mode.round == Round::Nearest {
        match op {
            Arith::Add => a + b,
            Arith::Sub => a - b,
            Arith::Mul => a * b,
            Arith::Div => a / b,
        }
    } else {
        let (a, b) = (u64::from(a.to_bits()), u64::from(b.to_bits()));
        f32::from_bits(exact(op, a, b, F32, mode.round) as u32)
    };
    output(value, mode)
}

/// `fma.f32`.
pub(crate) fn fma32_with(a: f32, b: f32, c: f32, mode: Mode) -> f32 {
    let (a, b, c) = (input(a, mode), input(b, mode), input(c, mode));
    let value = if mode.round == Round::Nearest {
        fma32(a, b, c)
    } else {
        let bits = [a, b, c].map(|x| u64::from(x.to_bits()));
        f32::from_bits(soft::fma(bits[0], bits[1], bits[2], F32, mode.round) as u32)
    };
    output(value, mode)
}

/// An `f64` operation.
pub(crate) fn arith64(op: Arith, a: f64, b: f64, round: Round) -> f64 {
    if round == Round::Nearest {
        return canonical64(match op {
            Arith::Add => a + b,
            Arith::Sub => a - b,
            Arith::Mul => a * b,
            Arith::Div => a / b,
        });
    }
    f64::from_bits(exact(op, a.to_bits(), b.to_bits(), F64, round))
}

/// `fma.f64`.
pub(crate) fn fma64(a: f64, b: f64, c: f64, round: Round) -> f64 {
    if round == Round::Nearest {
        return canonical64(a.mul_add(b, c));
    }
    f64::from_bits(soft::fma(a.to_bits(), b.to_bits(), c.to_bits(), F64, round))
}

/// The square root of an `f32`.
pub(crate) fn sqrt32(a: f32, mode: Mode) -> f32 {
    let a = input(a, mode);
    let value = if mode.round == Round::Nearest {
        a.sqrt()
    } else {
        let root = soft::sqrt(soft::unpack(u64::from(a.to_bits()), F32));
        f32::from_bits(soft::pack(root, F32, mode.round) as u32)
    };
    output(value, mode)
}

/// The square root of an `f64`.
pub(crate) fn sqrt64(a: f64, round: Round) -> f64 {
    if round == Round::Nearest {
        return canonical64(a.sqrt());
    }
    let root = soft::sqrt(soft::unpack(a.to_bits(), F64));
    f64::from_bits(soft::pack(root, F64, round))
}

/// How `min` and `max` treat NaN and signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MinMax {
    pub(crate) is_max: bool,
    /// A NaN operand makes the result NaN; otherwise the other operand is the result.
    pub(crate) nan: bool,
    /// Compare magnitudes; the result's sign is the exclusive or of both.
    pub(crate) xorsign_abs: bool,
}

/// The smaller or larger; -0 is below +0. `None` stands for the format's NaN.
pub(crate) fn min_max(a: f64, b: f64, how: MinMax) -> Option<f64> {
    let (x, y) = if how.xorsign_abs {
        (a.abs(), b.abs())
    } else {
        (a, b)
    };
    let value = match (x.is_nan(), y.is_nan()) {
        (true, true) => return None,
        (true, _) | (_, true) if how.nan => return None,
        (true, false) => y,
        (false, true) => x,
        (false, false) => {
            let x_below = x < y || x == y && x.is_sign_negative();
            if x_below != how.is_max { x } else { y }
        }
    };
    if how.xorsign_abs {
        let negative = a.is_sign_negative() != b.is_sign_negative();
        return Some(if negative { -value } else { value });
    }
    Some(value)
}

/// The value of a number in a small format (16 bits or fewer, or `tf32`).
pub(crate) fn widen(bits: u64, format: Format) -> f64 {
    if format == BF16 {
        return f64::from(f32::from_bits((bits as u32) << 16));
    }
    if format == F32 || format == soft::TF32 {
        return f64::from(f32::from_bits(bits as u32));
    }
    let mantissa_bits = format.mantissa_bits;
    let exponent_max = (1 << format.exponent_bits) - 1;
    let exponent = bits >> mantissa_bits & exponent_max;
    let fraction = bits & ((1 << mantissa_bits) - 1);
    let negative = bits >> (mantissa_bits + format.exponent_bits) & 1;
    let bias = (1i64 << (format.exponent_bits - 1)) - 1;
    let magnitude = if exponent == exponent_max {
        0x7ff << 52 | fraction << (52 - mantissa_bits)
    } else if exponent != 0 {
        ((exponent as i64 - bias + 1023) as u64) << 52 | fraction << (52 - mantissa_bits)
    } else {
        let unit = 1023 + 1 - bias - i64::from(mantissa_bits);
        (fraction as f64 * f64::from_bits((unit as u64) << 52)).to_bits()
    };
    f64::from_bits(magnitude | negative << 63)
}

/// Rounds to a small format.
pub(crate) fn narrow(value: f64, format: Format, round: Round) -> u64 {
    if format == F64 {
        return value.to_bits();
    }
    if round == Round::Nearest
        && let Some(bits) = narrow_normal(value, format)
    {
        return bits;
    }
    soft::convert(value.to_bits(), F64, format, round)
}

/// The usual case: the value is normal in both formats and far from overflow.
fn narrow_normal(value: f64, format: Format) -> Option<u64> {
    let bits = value.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i64 - 1023;
    let bias = (1i64 << (format.exponent_bits - 1)) - 1;
    if exponent < 1 - bias || exponent >= bias {
        return None;
    }
    let cut = 52 - format.mantissa_bits;
    let odd = bits >> cut & 1;
    let rounded = (bits & (u64::MAX >> 1)) + (1 << (cut - 1)) - 1 + odd;
    let rebased = (rounded >> cut) - (((1023 - bias) as u64) << format.mantissa_bits);
    Some(rebased | bits >> 63 << (format.exponent_bits + format.mantissa_bits))
}

/// An operation on numbers of a 16-bit format: exact or rounded to odd in `f64`, then rounded.
pub(crate) fn small(format: Format, mode: Mode, bits: [u64; 3], op: fn([f64; 3]) -> f64) -> u64 {
    let operands = bits.map(|bits| widen(small_input(bits, format, mode), format));
    small_output(op(operands), format, mode)
}

fn small_input(bits: u64, format: Format, mode: Mode) -> u64 {
    let magnitude = (1u64 << (format.exponent_bits + format.mantissa_bits)) - 1;
    if mode.ftz && bits & magnitude < 1 << format.mantissa_bits {
        bits & !magnitude
    } else {
        bits
    }
}

/// Rounds a result to a 16-bit format and applies the mode.
pub(crate) fn small_output(value: f64, format: Format, mode: Mode) -> u64 {
    let mut value = value;
    if mode.sat {
        value = if value > 0.0 { value.min(1.0) } else { 0.0 };
    }
    if mode.relu && value < 0.0 {
        value = 0.0;
    }
    if value.is_nan() {
        return format.nan();
    }
    small_input(narrow(value, format, mode.round), format, mode)
}

/// `e4m3`: no infinities, one NaN, largest 448.
pub(crate) fn widen_e4m3(bits: u64) -> f64 {
    if bits & 0x7f == 0x7f {
        return f64::NAN;
    }
    let format = Format {
        exponent_bits: 4,
        mantissa_bits: 3,
    };
    let exponent = bits >> 3 & 15;
    let fraction = (bits & 7) as f64;
    let magnitude = if exponent == 15 {
        // What would be infinity or NaN in IEEE's layout is the top binade.
        (8.0 + fraction) * 32.0
    } else {
        widen(bits & 0x7f, format)
    };
    if bits & 0x80 != 0 {
        -magnitude
    } else {
        magnitude
    }
}

/// To `e4m3`, saturating to the largest finite number.
pub(crate) fn narrow_e4m3(value: f64) -> u64 {
    if value.is_nan() {
        return 0x7f;
    }
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let magnitude = value.abs();
    if magnitude >= 448.0 {
        return sign | 0x7e;
    }
    // A format with one more exponent bit has the same subnormals if the value is scaled to it.
    let wide = Format {
        exponent_bits: 5,
        mantissa_bits: 3,
    };
    if magnitude >= 2f64.powi(-6) {
        let bits = narrow(magnitude, wide, Round::Nearest) - (8 << 3);
        return sign | bits.min(0x7e);
    }
    sign | (magnitude * 512.0).round_ties_even() as u64
}

/// To `e5m2`, saturating to the largest finite number.
pub(crate) fn narrow_e5m2(value: f64) -> u64 {
    if value.is_nan() {
        return 0x7f;
    }
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let bits = narrow(value.abs(), soft::E5M2, Round::Nearest);
    sign | bits.min(0x7b)
}
