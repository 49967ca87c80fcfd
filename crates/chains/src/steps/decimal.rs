//! `al`: floats that were written as decimals become integers.
//!
//! Most columns of measurements hold `21.4`, not the 64 random-looking bits nearest to it. Such a float is an integer
//! divided by a power of ten, and the division gives back every bit (Afroozeh, Kuffo, Boncz: ALP, SIGMOD 2024). Numbers
//! that are no such decimals repeat the integer before them and are listed.
//!
//! Packed bytes: integers in two's complement, as wide as the floats; then the bytes behind the last whole float.
//! Side: the power of ten; the number of exceptions, their places, two bytes each; their floats.

use narrows_core::Workspace;

use super::map::same_len;
use crate::step::{Info, PageError, Side, SideReader, Step, StepId};

/// For `f32`.
#[derive(Debug)]
pub struct Decimal4;

/// For `f64`.
#[derive(Debug)]
pub struct Decimal8;

pub(super) const STEPS: &[&dyn Step] = &[&Decimal4, &Decimal8];

/// The powers that are tried; up to 10^22 they are exact.
const POWERS: [f64; 18] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17,
];

/// Added to a double below 2^51, it leaves the nearest integer in the lowest bits of the sum.
const ROUND: f64 = 6_755_399_441_055_744.0;

/// The integer nearest to `scaled`, which is below 2^51 either way.
#[inline(always)]
fn nearest(scaled: f64) -> i64 {
    (scaled + ROUND).to_bits().wrapping_sub(ROUND.to_bits()) as i64
}

/// Where there are more exceptions than one in so many, the page is not one of decimals.
const EXCEPTIONS: usize = 8;

macro_rules! of_width {
    ($step:ident, $id:literal, $name:literal, $float:ty, $signed:ty, $limit:literal) => {
        impl Step for $step {
            fn info(&self) -> &Info {
                &Info {
                    id: StepId($id),
                    name: $name,
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
                const WIDTH: usize = size_of::<$float>();
                let integer = |bytes: &[u8; WIDTH], power: f64| {
                    let float = <$float>::from_le_bytes(*bytes);
                    let scaled = f64::from(float) * power;
                    let nearest = nearest(scaled) as $signed;
                    // Not so for NaN, infinities and -0 either.
                    let exact = scaled.abs() < $limit
                        && ((nearest as f64 / power) as $float).to_bits() == float.to_bits();
                    (nearest, exact)
                };
                let (floats, tail) = raw.as_chunks::<WIDTH>();
                let samples = || floats.iter().step_by(floats.len() / 30 + 1);
                let enough = samples().count() * 7 / 8;
                let power = POWERS.iter().position(|&power| {
                    samples().filter(|f| integer(f, power).1).count() >= enough
                })?;
                let out = out.get_mut(..raw.len())?;
                let (integers, to) = out.as_chunks_mut::<WIDTH>();
                to.copy_from_slice(tail);
                let mut places = [0u16; crate::step::BETWEEN_MAX / WIDTH];
                let mut count = 0;
                let mut before: $signed = 0;
                for (n, (float, to)) in floats.iter().zip(integers).enumerate() {
                    let (nearest, exact) = integer(float, POWERS[power]);
                    before = if exact { nearest } else { before };
                    places[count] = n as u16;
                    count += usize::from(!exact);
                    *to = before.to_le_bytes();
                }
                if count * EXCEPTIONS > floats.len() {
                    return None;
                }
                side.put(&[power as u8])?;
                side.put(&(count as u16).to_le_bytes())?;
                for place in &places[..count] {
                    side.put(&place.to_le_bytes())?;
                }
                for place in &places[..count] {
                    side.put(&floats[usize::from(*place)])?;
                }
                Some(raw.len())
            }

            fn unpack(
                &self,
                packed: &[u8],
                side: &mut SideReader<'_>,
                out: &mut [u8],
                _: &mut Workspace,
            ) -> Result<(), PageError> {
                const WIDTH: usize = size_of::<$float>();
                same_len(packed, out)?;
                let power = usize::from(side.byte()?);
                let power = *POWERS
                    .get(power)
                    .ok_or(PageError::Corrupt("no such power of ten"))?;
                let count = usize::from(u16::from_le_bytes(side.array()?));
                let places = side.take(2 * count)?.as_chunks::<2>().0;
                let exceptions = side.take(WIDTH * count)?.as_chunks::<WIDTH>().0;
                let (integers, tail) = packed.as_chunks::<WIDTH>();
                let (floats, to) = out.as_chunks_mut::<WIDTH>();
                to.copy_from_slice(tail);
                for (integer, float) in integers.iter().zip(floats.iter_mut()) {
                    *float = ((<$signed>::from_le_bytes(*integer) as f64 / power) as $float)
                        .to_le_bytes();
                }
                for (place, exception) in places.iter().zip(exceptions) {
                    let place = usize::from(u16::from_le_bytes(*place));
                    *floats
                        .get_mut(place)
                        .ok_or(PageError::Corrupt("an exception outside the page"))? = *exception;
                }
                Ok(())
            }
        }
    };
}

// Nearly any `f32` is some decimal of nine digits, but these pack worse than its own bits, hence the bound.
of_width!(Decimal4, 42, "al4", f32, i32, 8_388_608.0);
of_width!(Decimal8, 43, "al8", f64, i64, 1_125_899_906_842_624.0);
