//! `po8`: doubles as what they are beside the polynomial through those before them.
//!
//! Differences of the bits of floats ([`difference`](super::difference)) jump wherever an exponent changes, and a field
//! that falls to its border by powers of two has a jump every few words. So here the polynomial runs through the
//! numbers: the last one to six as integers of one unit, an eighth of the last place of the largest of them, with the
//! coefficients of differences. Only its value becomes a float again, and what is left is a difference of floats as
//! integers in order, as of `fm`. Integers alone, so it is the same on any machine.
//!
//! Side: as of `dk`, the order and the first words.

use narrows_core::Workspace;

use super::difference::{ORDER_MAX, pack_seeded, unpack_seeded};
use crate::{
    simd::twin,
    step::{Info, PageError, Side, SideReader, Step, StepId},
    word::Word,
};

/// See the module.
#[derive(Debug)]
pub struct Polynomial;

pub(super) const STEPS: &[&dyn Step] = &[&Polynomial];

impl Step for Polynomial {
    fn info(&self) -> &Info {
        &Info {
            id: StepId(58),
            name: "po8",
            keeps_length: true,
            has_side: true,
        }
    }

    fn pack(
        &self,
        raw: &[u8],
        out: &mut [u8],
        side: &mut Side,
        _: &mut Workspace,
    ) -> Option<usize> {
        pack_seeded(raw, out, side, |words| {
            let order = best_order(words);
            differ(words, order);
            order
        })
    }

    fn unpack(
        &self,
        packed: &[u8],
        side: &mut SideReader<'_>,
        out: &mut [u8],
        _: &mut Workspace,
    ) -> Result<(), PageError> {
        unpack_seeded(packed, out, side, restore)
    }
}

twin! { fn best_order(words: &[u64]) -> usize = best_order_portable; }
twin! { fn differ(words: &mut [u64], order: usize) = differ_portable; }
twin! { fn restore(words: &mut [u64], order: usize) = restore_portable; }

/// The order that leaves fewest bits in four windows.
#[inline(always)]
fn best_order_portable(words: &[u64]) -> usize {
    const WINDOW: usize = 32;
    if words.len() < 4 * (WINDOW + ORDER_MAX) {
        return words.len().min(1);
    }
    let bits = |order: usize| -> u32 {
        let windows = words.chunks_exact(words.len() / 4);
        windows
            .map(|part| {
                (0..WINDOW)
                    .map(|n| left(&part[..=ORDER_MAX + n], order).zigzag().bit_len())
                    .sum::<u32>()
            })
            .sum()
    };
    (1..=ORDER_MAX)
        .min_by_key(|&order| bits(order))
        .expect("six orders")
}

/// What the last of `words` is beside the forecast from those before.
#[inline(always)]
fn left(words: &[u64], order: usize) -> u64 {
    let (last, before) = words.split_last().expect("a word and those before");
    last.ordered()
        .wrapping_sub(forecast(before, order).ordered())
}

#[inline(always)]
fn differ_portable(words: &mut [u64], order: usize) {
    for n in (order..words.len()).rev() {
        words[n] = left(&words[..=n], order);
    }
}

#[inline(always)]
fn restore_portable(words: &mut [u64], order: usize) {
    for n in order..words.len() {
        words[n] = words[n]
            .wrapping_add(forecast(&words[..n], order).ordered())
            .ordered();
    }
}

/// Of the words before, the last first: alternating binomials.
const COEFFICIENTS: [&[i64]; ORDER_MAX + 1] = [
    &[],
    &[1],
    &[2, -1],
    &[3, -3, 1],
    &[4, -6, 4, -1],
    &[5, -10, 10, -5, 1],
    &[6, -15, 20, -15, 6, -1],
];

/// Bits below the last place of the largest number.
const BELOW: u32 = 3;
/// Bits of a double's fraction.
const FRACTION: u32 = 52;

/// The next double on the polynomial through the last `order` of `before`. Infinities count as numbers of the next
/// exponent.
#[inline(always)]
fn forecast(before: &[u64], order: usize) -> u64 {
    let terms = || before.iter().rev().zip(COEFFICIENTS[order]);
    let unit = terms().map(|(word, _)| exponent(*word)).max().unwrap_or(1);
    // 53 bits and 3 below, times 63 at most: 62 bits.
    let sum = terms()
        .map(|(word, coefficient)| coefficient * integer(*word, unit))
        .sum::<i64>();
    float(sum, unit)
}

/// That of its last place, in powers of two from the smallest there is: 1 also for those below the least exponent.
#[inline(always)]
fn exponent(word: u64) -> u32 {
    ((word >> FRACTION & 0x7ff) as u32).max(1)
}

/// In units of `2^-BELOW` of the last place of numbers with the exponent `unit`, towards zero.
#[inline(always)]
fn integer(word: u64, unit: u32) -> i64 {
    let first = u64::from(word >> FRACTION & 0x7ff != 0) << FRACTION;
    let fraction = word & ((1 << FRACTION) - 1) | first;
    let magnitude = (fraction << BELOW) >> (unit - exponent(word)).min(63);
    if word >> 63 == 0 {
        magnitude as i64
    } else {
        -(magnitude as i64)
    }
}

/// Undoes [`integer`], towards zero, and at most the largest finite number.
#[inline(always)]
fn float(sum: i64, unit: u32) -> u64 {
    const LARGEST: u64 = 0x7fef_ffff_ffff_ffff;
    let magnitude = sum.unsigned_abs();
    let Some(top) = magnitude.checked_ilog2() else {
        return 0;
    };
    let top = top as i32;
    let exponent = unit as i32 - BELOW as i32 + top - FRACTION as i32;
    let bits = match exponent {
        2047.. => LARGEST,
        1.. => {
            let fraction = magnitude << (63 - top) >> (63 - FRACTION);
            (exponent as u64) << FRACTION | fraction & ((1 << FRACTION) - 1)
        }
        // The last place of these is that of exponent 1.
        _ if unit > BELOW => magnitude << (unit - 1 - BELOW),
        _ => magnitude >> (BELOW + 1 - unit),
    };
    bits | (sum as u64) & 1 << 63
}

#[cfg(test)]
mod tests {
    use narrows_testkit::data::Random;

    use super::*;
    use crate::simd::portable;

    // Goal: what was left out comes back, whatever the words. Method: random bits, floats of near exponents, borders of
    // the format; every order and few words, by both twins.
    #[test]
    fn forecasts_are_undone() {
        let mut random = Random(8);
        let special = [
            0,
            1 << 63,
            1,
            0x000f_ffff_ffff_ffff,
            0x0010_0000_0000_0000,
            0x7fef_ffff_ffff_ffff,
            u64::MAX,
        ];
        for order in 0..=ORDER_MAX {
            for count in order..60 {
                let kinds: [&mut dyn FnMut(usize) -> u64; 3] = [
                    &mut |_| random.next_u64(),
                    &mut |n| (1.0 / (n as f64 - 20.5)).to_bits(),
                    &mut |n| special[n * 5 % special.len()],
                ];
                for kind in kinds {
                    let words: Vec<u64> = (0..count).map(kind).collect();
                    let mut there = words.clone();
                    differ(&mut there, order);
                    let mut portably = words.clone();
                    portable(|| differ(&mut portably, order));
                    assert_eq!(there, portably, "order {order}, {count} words");
                    restore(&mut there, order);
                    portable(|| restore(&mut portably, order));
                    assert!(
                        there == words && portably == words,
                        "order {order}, {count} words"
                    );
                }
            }
        }
    }

    // Goal: a polynomial is met exactly, over zero, over changes of the exponent, and in the numbers below the least
    // exponent. Method: cubes.
    #[test]
    fn polynomials_leave_nothing() {
        for scale in [1.0, f64::MIN_POSITIVE / 256.0, f64::from_bits(1)] {
            let words: Vec<u64> = (0..60)
                .map(|n: i32| (f64::from((n - 30).pow(3)) * scale).to_bits())
                .collect();
            for n in 4..60 {
                assert_eq!(left(&words[..=n], 4), 0, "{scale}: {n}");
            }
        }
        for number in [1.5, -1e300, f64::MAX, -f64::from_bits(3)].map(f64::to_bits) {
            assert_eq!(
                float(integer(number, exponent(number)), exponent(number)),
                number
            );
        }
        assert_eq!(float(i64::MAX, 2046), f64::MAX.to_bits());
    }
}
