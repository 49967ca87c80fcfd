//! Comparisons: `setp`, `set`, `testp`.

// NaN makes `!(a < b)` and `a >= b` differ, and that is what the unordered operators say.
#![allow(
    clippy::neg_cmp_op_on_partial_ord,
    clippy::eq_op,
    clippy::double_comparisons
)]

use super::lane::{test, with_integer};
use crate::inst::Test;
use crate::num::float::{self, Mode};
use crate::num::soft::{BF16, F16};
use crate::text::ast::Type;

/// The names of comparison operators.
pub(crate) fn operator(word: &str) -> Option<&'static str> {
    const NAMES: [&str; 18] = [
        "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu",
        "gtu", "geu", "num", "nan",
    ];
    NAMES.into_iter().find(|name| *name == word)
}

/// Evaluates a comparison of two ordered-or-not numbers.
macro_rules! compared {
    ($op:expr, $T:ty, $of:expr) => {{
        let of = $of;
        Some(match $op {
            "eq" => test(move |a: $T, b: $T| of(a) == of(b)),
            "ne" => test(move |a: $T, b: $T| {
                let (a, b) = (of(a), of(b));
                a < b || a > b
            }),
            "lt" => test(move |a: $T, b: $T| of(a) < of(b)),
            "le" => test(move |a: $T, b: $T| of(a) <= of(b)),
            "gt" => test(move |a: $T, b: $T| of(a) > of(b)),
            "ge" => test(move |a: $T, b: $T| of(a) >= of(b)),
            // Unordered: true if either is NaN.
            "equ" => test(move |a: $T, b: $T| {
                let (a, b) = (of(a), of(b));
                !(a < b || a > b)
            }),
            "neu" => test(move |a: $T, b: $T| of(a) != of(b)),
            "ltu" => test(move |a: $T, b: $T| !(of(a) >= of(b))),
            "leu" => test(move |a: $T, b: $T| !(of(a) > of(b))),
            "gtu" => test(move |a: $T, b: $T| !(of(a) <= of(b))),
            "geu" => test(move |a: $T, b: $T| !(of(a) < of(b))),
            "num" => test(move |a: $T, b: $T| {
                let (a, b) = (of(a), of(b));
                a == a && b == b
            }),
            "nan" => test(move |a: $T, b: $T| {
                let (a, b) = (of(a), of(b));
                a != a || b != b
            }),
            _ => return None,
        })
    }};
}

/// The test of a comparison.
pub(crate) fn comparison(op: &str, ty: Type, ftz: bool) -> Option<Test> {
    match ty {
        Type::F(32) if ftz => compared!(op, f32, float::flush),
        Type::F(32) => compared!(op, f32, |a: f32| a),
        Type::F(64) => compared!(op, f64, |a: f64| a),
        Type::F(16) => compared!(op, u16, move |a: u16| half(a, false, ftz)),
        Type::Bf16 => compared!(op, u16, move |a: u16| half(a, true, ftz)),
        _ => integers(op, ty),
    }
}

fn half(bits: u16, is_bf16: bool, ftz: bool) -> f64 {
    let format = if is_bf16 { BF16 } else { F16 };
    let value = float::widen(u64::from(bits), format);
    let mode = Mode { ftz, ..Mode::PLAIN };
    if mode.ftz && value.abs() < float::widen(1 << format.mantissa_bits, format) {
        0.0
    } else {
        value
    }
}

/// The tests of both halves of packed operands.
pub(crate) fn halves(op: &str, ty: Type, ftz: bool) -> Option<[Test; 2]> {
    let is_bf16 = ty == Type::Bf16x2;
    let low = compared!(op, u32, move |a: u32| half(a as u16, is_bf16, ftz))?;
    let high = compared!(op, u32, move |a: u32| half((a >> 16) as u16, is_bf16, ftz))?;
    Some([low, high])
}

fn integers(op: &str, ty: Type) -> Option<Test> {
    let ty = match (op, ty) {
        // These names compare as unsigned whatever the type says.
        ("lo" | "ls" | "hi" | "hs", Type::S(bits)) => Type::U(bits),
        _ => ty,
    };
    with_integer!(ty, T => match op {
        "eq" => test(|a: T, b: T| a == b),
        "ne" => test(|a: T, b: T| a != b),
        "lt" | "lo" => test(|a: T, b: T| a < b),
        "le" | "ls" => test(|a: T, b: T| a <= b),
        "gt" | "hi" => test(|a: T, b: T| a > b),
        "ge" | "hs" => test(|a: T, b: T| a >= b),
        _ => return None,
    })
}

/// `testp`: the class of a number.
pub(crate) fn class(word: &str, ty: Type) -> Option<Test> {
    use std::num::FpCategory::{Normal, Subnormal};
    macro_rules! of {
        ($T:ty) => {
            match word {
                "finite" => test(|a: $T, _| a.is_finite()),
                "infinite" => test(|a: $T, _| a.is_infinite()),
                "number" => test(|a: $T, _| !a.is_nan()),
                "notanumber" => test(|a: $T, _| a.is_nan()),
                // Zero counts as normal.
                "normal" => test(|a: $T, _| a == 0.0 || a.classify() == Normal),
                "subnormal" => test(|a: $T, _| a.classify() == Subnormal),
                _ => return None,
            }
        };
    }
    Some(match ty {
        Type::F(32) => of!(f32),
        Type::F(64) => of!(f64),
        _ => return None,
    })
}
