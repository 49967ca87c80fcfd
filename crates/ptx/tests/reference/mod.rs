//! What instructions compute, written apart from the interpreter: integers in wide arithmetic or
//! bit by bit, floating point by `rustc_apfloat`, LLVM's softfloat.

#![allow(unreachable_pub)]

mod comparisons;
mod conversions;
mod floats;
mod integers;

/// The class of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    R16,
    R32,
    R64,
    F32,
    F64,
    P,
}

use Class::{F32, F64, P, R16, R32, R64};

impl Class {
    pub fn bits(self) -> u32 {
        match self {
            R16 => 16,
            R32 | F32 => 32,
            R64 | F64 => 64,
            P => 1,
        }
    }
}

/// One form of an instruction.
pub struct Form {
    /// With `{d}`, `{a}`, `{b}`, `{c}` for operands.
    pub text: String,
    pub to: Class,
    pub from: Vec<Class>,
    #[allow(clippy::type_complexity)]
    pub eval: Box<dyn Fn(&[u64]) -> u64>,
}

fn mask(value: i128, bits: u32) -> u64 {
    (value as u128 & ((1u128 << bits) - 1)) as u64
}

fn read(value: u64, bits: u32, signed: bool) -> i128 {
    let value = i128::from(value) & ((1i128 << bits) - 1);
    if signed && value >> (bits - 1) & 1 != 0 {
        value - (1i128 << bits)
    } else {
        value
    }
}

fn clamp(value: i128, bits: u32, signed: bool) -> i128 {
    let (low, high) = if signed {
        (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
    } else {
        (0, (1i128 << bits) - 1)
    };
    value.max(low).min(high)
}

fn integer_class(bits: u32) -> Class {
    match bits {
        16 => R16,
        32 => R32,
        _ => R64,
    }
}

/// All forms.
pub fn forms() -> Vec<Form> {
    let mut forms = Vec::new();
    integers::integers(&mut forms);
    integers::packed(&mut forms);
    integers::products(&mut forms);
    integers::bits(&mut forms);
    floats::floats(&mut forms);
    floats::halves(&mut forms);
    conversions::conversions(&mut forms);
    conversions::small_formats(&mut forms);
    comparisons::comparisons(&mut forms);
    forms
}

fn add_form(
    forms: &mut Vec<Form>,
    text: String,
    (to, from): (Class, Vec<Class>),
    eval: impl Fn(&[u64]) -> u64 + 'static,
) {
    let eval = Box::new(eval);
    forms.push(Form {
        text,
        to,
        from,
        eval,
    });
}
