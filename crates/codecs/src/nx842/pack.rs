//! Writes 842. Format: [`super`].

use super::{
    END, INDEX_8, PHRASE, REPEAT, REPEAT_MAX, RING_2, RING_4, RING_8, Ring, SHORT, ZEROS, crc32_be,
};
use crate::lz::{u32_le, u64_le};

/// Where units of 2, 4 and 8 bytes were last seen, by hash.
pub(super) struct Tables {
    two: Box<[u32; 1 << 10]>,
    four: Box<[u32; 1 << 11]>,
    eight: Box<[u32; 1 << 10]>,
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            two: Box::new([0; 1 << 10]),
            four: Box::new([0; 1 << 11]),
            eight: Box::new([0; 1 << 10]),
        }
    }
}

pub(super) fn pack(raw: &[u8], out: &mut [u8], tables: &mut Tables) -> Option<usize> {
    if u32::try_from(raw.len()).is_err() {
        return None;
    }
    tables.two.fill(0);
    tables.four.fill(0);
    tables.eight.fill(0);
    let mut bits = Bits {
        out,
        at: 0,
        word: 0,
        used: 0,
    };
    let phrases = raw.chunks_exact(PHRASE);
    let tail = phrases.remainder();
    let (mut last, mut repeats) = (None, 0);
    for (number, phrase) in phrases.enumerate() {
        let value = u64_le(phrase);
        if last == Some(value) && repeats < REPEAT_MAX {
            repeats += 1;
        } else {
            bits.repeats(&mut repeats)?;
            if last == Some(value) {
                repeats = 1;
            } else if value == 0 {
                bits.put(ZEROS, 5)?;
            } else {
                put_phrase(&mut bits, raw, number * PHRASE, tables)?;
            }
            last = Some(value);
        }
        note(raw, number * PHRASE, tables);
    }
    bits.repeats(&mut repeats)?;
    if !tail.is_empty() {
        bits.put(SHORT, 5)?;
        bits.put(tail.len() as u64, 3)?;
        for &byte in tail {
            bits.put(u64::from(byte), 8)?;
        }
    }
    bits.put(END, 5)?;
    bits.put(u64::from(crc32_be(raw)), 32)?;
    bits.finish()
}

fn put_phrase(bits: &mut Bits<'_>, raw: &[u8], at: usize, tables: &Tables) -> Option<()> {
    if let Some(index) = find::<8, _>(raw, at, at, &tables.eight, RING_8) {
        return bits.put(INDEX_8 << 8 | index, 13);
    }
    let halves = [half(raw, at, at, tables), half(raw, at + 4, at, tables)];
    bits.put(5 * halves[0].form + halves[1].form, 5)?;
    bits.put(halves[0].arguments, halves[0].bits)?;
    bits.put(halves[1].arguments, halves[1].bits)
}

struct Half {
    form: u64,
    arguments: u64,
    bits: u32,
}

/// The shortest form of the four bytes at `at`, in the phrase that began at `written`.
#[inline]
fn half(raw: &[u8], at: usize, written: usize, tables: &Tables) -> Half {
    if let Some(index) = find::<4, _>(raw, at, written, &tables.four, RING_4) {
        return Half {
            form: 4,
            arguments: index,
            bits: 9,
        };
    }
    let data = |at: usize| u64::from(raw[at]) << 8 | u64::from(raw[at + 1]);
    let first = find::<2, _>(raw, at, written, &tables.two, RING_2);
    let second = find::<2, _>(raw, at + 2, written, &tables.two, RING_2);
    match (first, second) {
        (Some(first), Some(second)) => Half {
            form: 3,
            arguments: first << 8 | second,
            bits: 16,
        },
        (Some(first), None) => Half {
            form: 2,
            arguments: first << 16 | data(at + 2),
            bits: 24,
        },
        (None, Some(second)) => Half {
            form: 1,
            arguments: data(at) << 8 | second,
            bits: 24,
        },
        (None, None) => Half {
            form: 0,
            arguments: data(at) << 16 | data(at + 2),
            bits: 32,
        },
    }
}

/// The index of an earlier unit equal to the `N` bytes at `at`.
#[inline]
fn find<const N: usize, const SLOTS: usize>(
    raw: &[u8],
    at: usize,
    written: usize,
    table: &[u32; SLOTS],
    ring: Ring,
) -> Option<u64> {
    let wanted = unit::<N>(raw, at);
    let seen = table[hash(wanted, table.len())] as usize;
    let index = ring.index(seen, written)?;
    (unit::<N>(raw, seen) == wanted).then_some(index)
}

/// Remembers the units of the phrase at `at`.
#[inline]
fn note(raw: &[u8], at: usize, tables: &mut Tables) {
    let Tables { two, four, eight } = tables;
    eight[hash(unit::<8>(raw, at), eight.len())] = at as u32;
    for at in [at, at + 4] {
        four[hash(unit::<4>(raw, at), four.len())] = at as u32;
    }
    for at in [at, at + 2, at + 4, at + 6] {
        two[hash(unit::<2>(raw, at), two.len())] = at as u32;
    }
}

/// The slot of a unit in a table of `slots`, a power of two.
#[inline]
fn hash(unit: u64, slots: usize) -> usize {
    (unit.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - slots.trailing_zeros())) as usize
}

/// The `N` bytes at `at` as a number. Each width by a load of its own: through a buffer of eight bytes the wide load
/// would wait for the narrow store, which costs more than all the rest.
#[inline(always)]
fn unit<const N: usize>(raw: &[u8], at: usize) -> u64 {
    match N {
        2 => u64::from(u16::from_le_bytes([raw[at], raw[at + 1]])),
        4 => u64::from(u32_le(&raw[at..])),
        _ => u64_le(&raw[at..]),
    }
}

/// Writes bits, highest first.
struct Bits<'a> {
    out: &'a mut [u8],
    at: usize,
    word: u64,
    used: u32,
}

impl Bits<'_> {
    /// Appends the lowest `bits` bits of `value`, at most 32, which has no others.
    #[inline]
    fn put(&mut self, value: u64, bits: u32) -> Option<()> {
        self.word = self.word << bits | value;
        self.used += bits;
        if self.used >= 32 {
            self.used -= 32;
            let four = (self.word >> self.used) as u32;
            self.out
                .get_mut(self.at..self.at + 4)?
                .copy_from_slice(&four.to_be_bytes());
            self.at += 4;
        }
        Some(())
    }

    /// Writes the repeats that were counted, if any.
    #[inline]
    fn repeats(&mut self, repeats: &mut u64) -> Option<()> {
        if *repeats > 0 {
            self.put(REPEAT << 6 | (*repeats - 1), 11)?;
            *repeats = 0;
        }
        Some(())
    }

    /// Pads to a multiple of eight bytes and returns the length.
    fn finish(mut self) -> Option<usize> {
        if self.used > 0 {
            self.put(0, 32 - self.used)?;
        }
        if !self.at.is_multiple_of(8) {
            self.put(0, 32)?;
        }
        Some(self.at)
    }
}
