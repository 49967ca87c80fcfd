//! What atomic operations store.

use super::float::{self, MinMax, Mode};
use super::int::{ones, sign_extend};
use super::soft::{BF16, F16, Format};
use crate::{Atomic, AtomicOp};

/// The value to store where `old` is found.
pub(crate) fn apply(request: &Atomic, old: u64) -> u64 {
    let bits = request.width.bytes() * 8;
    let mask = ones(bits);
    let (old, new) = (old & mask, request.operand & mask);
    let signed = |value| sign_extend(value, bits);
    let value = match request.op {
        AtomicOp::Add => old.wrapping_add(new),
        AtomicOp::MinU => old.min(new),
        AtomicOp::MaxU => old.max(new),
        AtomicOp::MinS => signed(old).min(signed(new)) as u64,
        AtomicOp::MaxS => signed(old).max(signed(new)) as u64,
        AtomicOp::And => old & new,
        AtomicOp::Or => old | new,
        AtomicOp::Xor => old ^ new,
        AtomicOp::Exchange => new,
        AtomicOp::CompareSwap if old == request.compare & mask => new,
        AtomicOp::CompareSwap => old,
        AtomicOp::Inc if old >= new => 0,
        AtomicOp::Inc => old.wrapping_add(1),
        AtomicOp::Dec if old == 0 || old > new => new,
        AtomicOp::Dec => old - 1,
        AtomicOp::AddF32 => {
            let sum = f32::from_bits(old as u32) + f32::from_bits(new as u32);
            u64::from(float::canonical(sum).to_bits())
        }
        AtomicOp::AddF64 => (f64::from_bits(old) + f64::from_bits(new)).to_bits(),
        AtomicOp::AddF16 | AtomicOp::AddF16x2 => halves(bits, old, new, |a, b| add(F16, a, b)),
        AtomicOp::AddBf16 | AtomicOp::AddBf16x2 => halves(bits, old, new, |a, b| add(BF16, a, b)),
        AtomicOp::MinF16 => halves(bits, old, new, |a, b| pick(F16, a, b, false)),
        AtomicOp::MaxF16 => halves(bits, old, new, |a, b| pick(F16, a, b, true)),
        AtomicOp::MinBf16 => halves(bits, old, new, |a, b| pick(BF16, a, b, false)),
        AtomicOp::MaxBf16 => halves(bits, old, new, |a, b| pick(BF16, a, b, true)),
    };
    value & mask
}

fn halves(bits: u32, a: u64, b: u64, of: impl Fn(u64, u64) -> u64) -> u64 {
    let low = of(a & 0xffff, b & 0xffff);
    if bits == 16 {
        low
    } else {
        low | of(a >> 16, b >> 16) << 16
    }
}

fn add(format: Format, a: u64, b: u64) -> u64 {
    float::small(format, Mode::PLAIN, [a, b, 0], |[a, b, _]| {
        float::add_odd(a, b)
    })
}

fn pick(format: Format, a: u64, b: u64, is_max: bool) -> u64 {
    let how = MinMax {
        is_max,
        nan: false,
        xorsign_abs: false,
    };
    let chosen = float::min_max(float::widen(a, format), float::widen(b, format), how);
    chosen.map_or(format.nan(), |value| {
        float::small_output(value, format, Mode::PLAIN)
    })
}
