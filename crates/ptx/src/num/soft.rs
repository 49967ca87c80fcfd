//! Exact arithmetic with one rounding, for any binary format and rounding mode.
//!
//! A finite number is `mantissa * 2^exponent`. Operations produce the exact result, or one whose
//! lowest bit is "sticky": set if anything nonzero was cut off below. 128 bits leave enough guard
//! bits for that to round as the exact value would. Source: IEEE 754-2019 §4.3; the sticky bit is
//! explained in Muller et al., Handbook of Floating-Point Arithmetic, chapter 8.

/// Rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Round {
    /// To nearest, ties to even.
    Nearest,
    /// To nearest, ties away from zero.
    NearestAway,
    /// Toward zero.
    Zero,
    /// Toward negative infinity.
    Down,
    /// Toward positive infinity.
    Up,
}

/// A binary format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) exponent_bits: u32,
    /// Without the hidden bit.
    pub(crate) mantissa_bits: u32,
}

pub(crate) const F16: Format = Format {
    exponent_bits: 5,
    mantissa_bits: 10,
};
pub(crate) const BF16: Format = Format {
    exponent_bits: 8,
    mantissa_bits: 7,
};
pub(crate) const TF32: Format = Format {
    exponent_bits: 8,
    mantissa_bits: 10,
};
pub(crate) const F32: Format = Format {
    exponent_bits: 8,
    mantissa_bits: 23,
};
pub(crate) const F64: Format = Format {
    exponent_bits: 11,
    mantissa_bits: 52,
};
pub(crate) const E5M2: Format = Format {
    exponent_bits: 5,
    mantissa_bits: 2,
};

impl Format {
    fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    fn exponent_mask(self) -> u64 {
        (1 << self.exponent_bits) - 1
    }

    fn sign_bit(self) -> u64 {
        1 << (self.exponent_bits + self.mantissa_bits)
    }

    pub(crate) fn infinity(self, negative: bool) -> u64 {
        self.exponent_mask() << self.mantissa_bits | self.sign(negative)
    }

    fn sign(self, negative: bool) -> u64 {
        if negative { self.sign_bit() } else { 0 }
    }

    /// What the device returns for an invalid operation: all ones for formats up to 32 bits.
    pub(crate) fn nan(self) -> u64 {
        if self == F64 {
            0xfff8_0000_0000_0000
        } else {
            self.sign_bit() - 1
        }
    }

    /// The largest finite number.
    pub(crate) fn largest(self, negative: bool) -> u64 {
        (self.infinity(false) - 1) | self.sign(negative)
    }
}

/// A number taken apart.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value {
    Nan,
    Infinite(bool),
    /// Also zero, with its sign.
    Finite(Finite),
}

/// `mantissa * 2^exponent`, negated if `negative`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Finite {
    pub(crate) negative: bool,
    pub(crate) exponent: i32,
    pub(crate) mantissa: u128,
}

use Value::{Infinite, Nan};

pub(crate) fn unpack(bits: u64, format: Format) -> Value {
    let negative = bits & format.sign_bit() != 0;
    let exponent = bits >> format.mantissa_bits & format.exponent_mask();
    let fraction = bits & ((1 << format.mantissa_bits) - 1);
    if exponent == format.exponent_mask() {
        return if fraction == 0 {
            Infinite(negative)
        } else {
            Nan
        };
    }
    let hidden = u64::from(exponent != 0) << format.mantissa_bits;
    Value::Finite(Finite {
        negative,
        exponent: exponent.max(1) as i32 - format.bias() - format.mantissa_bits as i32,
        mantissa: u128::from(fraction | hidden),
    })
}

/// Rounds into a format.
pub(crate) fn pack(value: Value, format: Format, round: Round) -> u64 {
    match value {
        Nan => format.nan(),
        Infinite(negative) => format.infinity(negative),
        Value::Finite(finite) => pack_finite(finite, format, round),
    }
}

fn pack_finite(value: Finite, format: Format, round: Round) -> u64 {
    let sign = format.sign(value.negative);
    if value.mantissa == 0 {
        return sign;
    }
    let bits = 128 - value.mantissa.leading_zeros() as i32;
    let precision = format.mantissa_bits as i32 + 1;
    let exponent_min = 1 - format.bias() - format.mantissa_bits as i32;
    // The unit of the last place, at least that of subnormal numbers.
    let unit = (value.exponent + bits - precision).max(exponent_min);
    let cut = unit - value.exponent;
    let mut kept = if cut <= 0 {
        (value.mantissa << -cut) as u64
    } else {
        cut_off(value, cut, round)
    };
    let mut unit = unit;
    if kept >> precision != 0 {
        kept >>= 1;
        unit += 1;
    }
    if kept >> format.mantissa_bits == 0 {
        return sign | kept;
    }
    let biased = unit + format.bias() + format.mantissa_bits as i32;
    if biased >= format.exponent_mask() as i32 {
        return overflow(value.negative, format, round);
    }
    sign | (biased as u64) << format.mantissa_bits | (kept & ((1 << format.mantissa_bits) - 1))
}

fn overflow(negative: bool, format: Format, round: Round) -> u64 {
    let to_infinity = match round {
        Round::Nearest | Round::NearestAway => true,
        Round::Zero => false,
        Round::Down => negative,
        Round::Up => !negative,
    };
    if to_infinity {
        format.infinity(negative)
    } else {
        format.largest(negative)
    }
}

/// The mantissa without its last `cut` bits, rounded.
fn cut_off(value: Finite, cut: i32, round: Round) -> u64 {
    let (kept, rest, half) = if cut > 127 {
        // All of it lies below half a unit.
        (0, 1, 2)
    } else {
        let kept = (value.mantissa >> cut) as u64;
        (kept, value.mantissa & ((1 << cut) - 1), 1u128 << (cut - 1))
    };
    let up = match round {
        Round::Nearest => rest > half || rest == half && kept & 1 == 1,
        Round::NearestAway => rest >= half,
        Round::Zero => false,
        Round::Down => value.negative && rest != 0,
        Round::Up => !value.negative && rest != 0,
    };
    kept + u64::from(up)
}

/// Shifted so that its highest bit is bit 125: an addition of two stays within 127 bits.
fn normalised(value: Finite) -> Finite {
    let shift = value.mantissa.leading_zeros() as i32 - 2;
    let mantissa = if shift >= 0 {
        value.mantissa << shift
    } else {
        shift_sticky(value.mantissa, -shift as u32)
    };
    Finite {
        exponent: value.exponent - shift,
        mantissa,
        ..value
    }
}

fn shift_sticky(mantissa: u128, by: u32) -> u128 {
    if by == 0 {
        return mantissa;
    }
    if by > 127 {
        return u128::from(mantissa != 0);
    }
    mantissa >> by | u128::from(mantissa & ((1 << by) - 1) != 0)
}

pub(crate) fn add(a: Value, b: Value, round: Round) -> Value {
    let (a, b) = match (a, b) {
        (Nan, _) | (_, Nan) => return Nan,
        (Infinite(x), Infinite(y)) if x != y => return Nan,
        (Infinite(x), _) | (_, Infinite(x)) => return Infinite(x),
        (Value::Finite(a), Value::Finite(b)) => (a, b),
    };
    if a.mantissa == 0 && b.mantissa == 0 {
        let negative = if a.negative == b.negative {
            a.negative
        } else {
            round == Round::Down
        };
        return Value::Finite(Finite { negative, ..a });
    }
    if b.mantissa == 0 {
        return Value::Finite(a);
    }
    if a.mantissa == 0 {
        return Value::Finite(b);
    }
    let (mut a, mut b) = (normalised(a), normalised(b));
    if a.exponent < b.exponent {
        (a, b) = (b, a);
    }
    let b_mantissa = shift_sticky(b.mantissa, (a.exponent - b.exponent) as u32);
    let (negative, mantissa) = if a.negative == b.negative {
        (a.negative, a.mantissa + b_mantissa)
    } else if a.mantissa == b_mantissa {
        (round == Round::Down, 0)
    } else if a.mantissa > b_mantissa {
        (a.negative, a.mantissa - b_mantissa)
    } else {
        (b.negative, b_mantissa - a.mantissa)
    };
    Value::Finite(Finite {
        negative,
        exponent: a.exponent,
        mantissa,
    })
}

/// Exact for mantissas of 64 bits together with 64.
pub(crate) fn mul(a: Value, b: Value) -> Value {
    match (a, b) {
        (Nan, _) | (_, Nan) => Nan,
        (Infinite(x), Infinite(y)) => Infinite(x != y),
        (Infinite(x), Value::Finite(b)) | (Value::Finite(b), Infinite(x)) => {
            if b.mantissa == 0 {
                Nan
            } else {
                Infinite(x != b.negative)
            }
        }
        (Value::Finite(a), Value::Finite(b)) => Value::Finite(Finite {
            negative: a.negative != b.negative,
            exponent: a.exponent + b.exponent,
            mantissa: a.mantissa * b.mantissa,
        }),
    }
}

pub(crate) fn div(a: Value, b: Value) -> Value {
    match (a, b) {
        (Nan, _) | (_, Nan) | (Infinite(_), Infinite(_)) => Nan,
        (Infinite(x), Value::Finite(b)) => Infinite(x != b.negative),
        (Value::Finite(a), Infinite(y)) => Value::Finite(Finite {
            negative: a.negative != y,
            exponent: 0,
            mantissa: 0,
        }),
        (Value::Finite(a), Value::Finite(b)) => {
            let negative = a.negative != b.negative;
            if b.mantissa == 0 {
                return if a.mantissa == 0 {
                    Nan
                } else {
                    Infinite(negative)
                };
            }
            let shift = a.mantissa.leading_zeros();
            let dividend = a.mantissa << shift.min(127);
            let sticky = u128::from(dividend % b.mantissa != 0);
            Value::Finite(Finite {
                negative,
                exponent: a.exponent - b.exponent - shift.min(127) as i32,
                mantissa: (dividend / b.mantissa) | sticky,
            })
        }
    }
}

pub(crate) fn sqrt(a: Value) -> Value {
    match a {
        Nan | Infinite(true) => Nan,
        Infinite(false) => a,
        Value::Finite(a) if a.mantissa == 0 => Value::Finite(a),
        Value::Finite(a) if a.negative => Nan,
        Value::Finite(a) => {
            let mut shift = a.mantissa.leading_zeros() as i32;
            shift -= (a.exponent - shift) & 1;
            let square = a.mantissa << shift;
            let root = square.isqrt();
            let sticky = u128::from(root * root != square);
            // One bit more, so that the sticky bit lies below the root's.
            Value::Finite(Finite {
                negative: false,
                exponent: (a.exponent - shift) / 2 - 1,
                mantissa: root << 1 | sticky,
            })
        }
    }
}

/// An integer's value, exactly.
pub(crate) fn of_integer(negative: bool, magnitude: u64) -> Value {
    Value::Finite(Finite {
        negative,
        exponent: 0,
        mantissa: u128::from(magnitude),
    })
}

/// `a * b + c` with one rounding.
pub(crate) fn fma(a: u64, b: u64, c: u64, format: Format, round: Round) -> u64 {
    let product = mul(unpack(a, format), unpack(b, format));
    pack(add(product, unpack(c, format), round), format, round)
}

/// From one format to another.
pub(crate) fn convert(bits: u64, from: Format, to: Format, round: Round) -> u64 {
    pack(unpack(bits, from), to, round)
}
