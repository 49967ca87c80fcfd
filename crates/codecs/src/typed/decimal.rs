//! Floats that were written as decimals, before zstd.
//!
//! Most columns of measurements hold `21.4`, not the 64 random-looking bits nearest to it. Such a number is an integer
//! divided by a power of ten, and the division gives back every bit; the integers pack many times better than the
//! floats (Afroozeh, Kuffo, Boncz: ALP, SIGMOD 2024). So: one power for the chunk, the integers as differences or as
//! they are, whichever are shorter, split into planes; numbers that are no such decimals are listed behind. Where they
//! are many the chunk holds the floats' own bits instead, so that the codec is never far behind `shuffle` and `delta`.
//!
//! Packed bytes: a byte of `DELTA` and the power (or `NO_POWER`), how many exceptions as `u32` little-endian, then a
//! zstd frame of the planes, as long as the chunk, and of the exceptions: places as `u32`, then numbers.

use narrows_core::{Codec, CodecId, DecodeError, Info, Level, Workspace};

use super::{
    delta, room,
    shuffle::{shuffle, unshuffle},
};
use crate::zstd::{Packer, Unpacker};

/// Decimals in floats of `width` bytes, 4 or 8.
#[derive(Debug, Clone, Copy)]
pub struct Decimal {
    info: &'static Info,
    width: usize,
}

/// For `f32`.
pub const DECIMAL4: Decimal = Decimal {
    info: &Info {
        id: CodecId(28),
        name: "decimal4-zstd",
        ..TEMPLATE
    },
    width: 4,
};

/// For `f64`.
pub const DECIMAL8: Decimal = Decimal {
    info: &Info {
        id: CodecId(29),
        name: "decimal8-zstd",
        ..TEMPLATE
    },
    width: 8,
};

const TEMPLATE: Info = Info {
    id: CodecId(28),
    name: "",
    levels: -200..=22,
    level_default: 1,
    history: false,
    format: "docs/specs/codec-ids.md, typed transforms",
};

/// In the first byte: the numbers are differences.
const DELTA: u8 = 0x80;
/// Instead of a power: the numbers are the bits of the floats.
const NO_POWER: u8 = 0x7f;
/// Bytes before the zstd frame.
const HEADER: usize = 5;

/// The powers that are tried; 10^15 is the last below the 51 bits that [`ROUND`] can round.
const POWERS: [f64; 16] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

#[derive(Default)]
struct Scratch {
    integers: Vec<u8>,
    planes: Vec<u8>,
    places: Vec<u32>,
}

impl Codec for Decimal {
    fn info(&self) -> &'static Info {
        self.info
    }

    fn pack(
        &self,
        raw: &[u8],
        level: Level,
        _: &[u8],
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Option<usize> {
        let mut scratch = std::mem::take(ws.get::<Scratch>());
        let packed = self.pack_with(raw, level, out, &mut scratch, ws.get());
        *ws.get::<Scratch>() = scratch;
        packed
    }

    fn unpack(
        &self,
        packed: &[u8],
        _: &[u8],
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Result<(), DecodeError> {
        let mut scratch = std::mem::take(ws.get::<Scratch>());
        let unpacked = self.unpack_with(packed, out, &mut scratch, ws.get());
        *ws.get::<Scratch>() = scratch;
        unpacked
    }
}

impl Decimal {
    fn pack_with(
        &self,
        raw: &[u8],
        level: Level,
        out: &mut [u8],
        scratch: &mut Scratch,
        zstd: &mut Packer,
    ) -> Option<usize> {
        let Scratch {
            integers,
            planes,
            places,
        } = scratch;
        let count = raw.len() / self.width;
        let integers = room(integers, raw.len());
        let mut mode = match self.width {
            4 => integers_4(raw, integers, places),
            _ => integers_8(raw, integers, places),
        };
        let planes = room(planes, raw.len() + places.len() * (4 + self.width));
        let (numbers, exceptions) = planes.split_at_mut(raw.len());
        // The differences go where the planes will lie only until their size is known.
        delta::difference(self.width, integers, numbers);
        let (plain, differences) = (bits(self.width, integers), bits(self.width, numbers));
        let smooth = if mode == NO_POWER {
            differences + 3 * count < 8 * raw.len()
        } else {
            differences < plain
        };
        if smooth {
            mode |= DELTA;
            integers.copy_from_slice(numbers);
        }
        shuffle(self.width, integers, numbers);
        let (listed, bits_of) = exceptions.split_at_mut(4 * places.len());
        for (n, &place) in places.iter().enumerate() {
            listed[4 * n..][..4].copy_from_slice(&place.to_le_bytes());
            bits_of[self.width * n..][..self.width]
                .copy_from_slice(&raw[self.width * place as usize..][..self.width]);
        }
        let (header, rest) = out.split_at_mut_checked(HEADER)?;
        header[0] = mode;
        header[1..].copy_from_slice(&u32::try_from(places.len()).ok()?.to_le_bytes());
        Some(HEADER + zstd.pack_planes(planes, count, level, rest)?)
    }

    fn unpack_with(
        &self,
        packed: &[u8],
        out: &mut [u8],
        scratch: &mut Scratch,
        zstd: &mut Unpacker,
    ) -> Result<(), DecodeError> {
        const BAD: DecodeError = DecodeError::Corrupt {
            offset: 0,
            what: "not a chunk of decimals",
        };
        let (&[mode, a, b, c, d], frame) = packed.split_first_chunk::<HEADER>().ok_or(BAD)?;
        let count = out.len() / self.width;
        let exceptions = u32::from_le_bytes([a, b, c, d]) as usize;
        // Checked before room is made: a chunk has no more exceptions than numbers.
        if exceptions > count {
            return Err(BAD);
        }
        let planes = room(
            &mut scratch.planes,
            out.len() + exceptions * (4 + self.width),
        );
        zstd.unpack(frame, &[], planes)?;
        let (numbers, exceptions_at) = planes.split_at(out.len());
        unshuffle(self.width, numbers, out);
        if mode & DELTA != 0 {
            delta::sum(self.width, out);
        }
        match (mode & !DELTA, self.width) {
            (NO_POWER, _) => {}
            (power, 4) => floats_4(out, *POWERS.get(usize::from(power)).ok_or(BAD)?),
            (power, _) => floats_8(out, *POWERS.get(usize::from(power)).ok_or(BAD)?),
        }
        let (places, bits_of) = exceptions_at.split_at(4 * exceptions);
        for (place, bits) in places
            .as_chunks::<4>()
            .0
            .iter()
            .zip(bits_of.chunks_exact(self.width))
        {
            let place = u32::from_le_bytes(*place) as usize;
            if place >= count {
                return Err(BAD);
            }
            out[place * self.width..][..self.width].copy_from_slice(bits);
        }
        Ok(())
    }
}

/// Significant bits in all numbers of `width` bytes together, small negative ones counting as small.
fn bits(width: usize, numbers: &[u8]) -> usize {
    let sum = |bits: &mut dyn Iterator<Item = u32>| bits.map(|b| b as usize).sum();
    match width {
        4 => sum(&mut numbers.as_chunks::<4>().0.iter().map(|n| {
            let n = i32::from_le_bytes(*n);
            32 - (n ^ (n >> 31)).leading_zeros()
        })),
        _ => sum(&mut numbers.as_chunks::<8>().0.iter().map(|n| {
            let n = i64::from_le_bytes(*n);
            64 - (n ^ (n >> 63)).leading_zeros()
        })),
    }
}

/// Integers stay below the width of the fraction: nearly any `f32` is some decimal of nine digits, but these pack worse
/// than its own bits.
const LIMIT_4: f64 = (1u64 << 23) as f64;
/// Here the bound is what [`ROUND`] can round.
const LIMIT_8: f64 = (1u64 << 50) as f64;

/// Added to a double below 2^50, it leaves the nearest integer in the lowest bits of the sum.
const ROUND: f64 = 6_755_399_441_055_744.0;

/// The integer nearest to `scaled`, which is below 2^50 either way.
#[inline(always)]
fn nearest(scaled: f64) -> i64 {
    (scaled + ROUND).to_bits().wrapping_sub(ROUND.to_bits()) as i64
}

macro_rules! of_width {
    ($width:literal, $float:ty, $signed:ty, $limit:expr, $integers:ident, $floats:ident) => {
        /// Writes the integers of `raw`'s floats, lists where there is none, and returns the power; or writes the bits
        /// as they are and returns [`NO_POWER`].
        fn $integers(raw: &[u8], integers: &mut [u8], places: &mut Vec<u32>) -> u8 {
            let integer = |bytes: &[u8; $width], power: f64| {
                let float = <$float>::from_le_bytes(*bytes);
                let scaled = f64::from(float) * power;
                let nearest = nearest(scaled) as $signed;
                // Not so for NaN, infinities and -0 either.
                let exact = scaled.abs() < $limit
                    && ((nearest as f64 / power) as $float).to_bits() == float.to_bits();
                (nearest, exact)
            };
            places.clear();
            let numbers = raw.as_chunks::<$width>().0;
            let sample = || numbers.iter().step_by(numbers.len() / 61 + 1);
            let enough = sample().count() * 15 / 16;
            let power = POWERS
                .iter()
                .position(|&power| sample().filter(|n| integer(n, power).1).count() >= enough);
            if let Some(power) = power {
                let (to, tail) = integers.as_chunks_mut::<$width>();
                tail.copy_from_slice(&raw[$width * numbers.len()..]);
                let most = numbers.len() / 8;
                let mut before: $signed = 0;
                for (place, (number, to)) in numbers.iter().zip(to).enumerate() {
                    let (nearest, exact) = integer(number, POWERS[power]);
                    if exact {
                        before = nearest;
                    } else {
                        places.push(place as u32);
                        if places.len() > most {
                            break;
                        }
                    }
                    *to = before.to_le_bytes();
                }
                if places.len() <= most && u32::try_from(numbers.len()).is_ok() {
                    return power as u8;
                }
                places.clear();
            }
            integers.copy_from_slice(raw);
            NO_POWER
        }

        /// Undoes it in place, but for the exceptions.
        fn $floats(numbers: &mut [u8], power: f64) {
            for number in numbers.as_chunks_mut::<$width>().0 {
                let integer = <$signed>::from_le_bytes(*number);
                *number = ((integer as f64 / power) as $float).to_le_bytes();
            }
        }
    };
}

of_width!(4, f32, i32, LIMIT_4, integers_4, floats_4);
of_width!(8, f64, i64, LIMIT_8, integers_8, floats_8);

#[cfg(test)]
mod tests {
    use super::*;

    fn packed_len(codec: Decimal, raw: &[u8]) -> usize {
        let mut ws = Workspace::default();
        let mut packed = vec![0; raw.len() + 1000];
        let len = codec
            .pack(raw, Level(1), &[], &mut packed, &mut ws)
            .expect("room enough");
        let mut out = vec![0xa5; raw.len()];
        codec
            .unpack(&packed[..len], &[], &mut out, &mut ws)
            .expect("own packing");
        assert_eq!(out, raw);
        len
    }

    #[test]
    fn decimals_come_back_to_the_bit_and_small() {
        let values: Vec<f64> = (0..10_000)
            .map(|i| f64::from(i * i % 977 - 300) / 10.0)
            .collect();
        let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        assert!(packed_len(DECIMAL8, &raw) < raw.len() / 4);
        let raw: Vec<u8> = values
            .iter()
            .flat_map(|v| (*v as f32).to_le_bytes())
            .collect();
        assert!(packed_len(DECIMAL4, &raw) < raw.len() / 2);
    }

    #[test]
    fn what_is_no_decimal_comes_back_too() {
        let odd = [
            f64::NAN,
            -f64::NAN,
            f64::INFINITY,
            -0.0,
            1e300,
            5e-324,
            std::f64::consts::PI,
            f64::MAX,
        ];
        let mut values: Vec<f64> = (0..1000).map(|i| f64::from(i) / 100.0).collect();
        for (n, odd) in odd.iter().enumerate() {
            values[n * 100 + 7] = *odd;
        }
        values.extend(odd);
        packed_len(
            DECIMAL8,
            values
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect::<Vec<_>>()
                .as_slice(),
        );
        packed_len(
            DECIMAL4,
            values
                .iter()
                .flat_map(|v| (*v as f32).to_le_bytes())
                .collect::<Vec<_>>()
                .as_slice(),
        );
    }
}
