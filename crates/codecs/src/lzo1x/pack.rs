//! Greedy LZO1X search. Format: the table in [`super`].

use super::{END, M2_DISTANCE_MAX, M3_DISTANCE_MAX, M4_DISTANCE_MAX};
use crate::lz::{copy_literals, match_len, u32_le, u64_le};

/// Where each hash was last seen: position in the chunk, as `u32`.
pub(super) struct Table(Box<[u32; 1 << HASH_BITS]>);

impl Default for Table {
    fn default() -> Self {
        Self(Box::new([0; 1 << HASH_BITS]))
    }
}

/// Bits of a hash. 2^13 entries are 32 KiB, which stays in the first cache.
const HASH_BITS: u32 = 13;

pub(super) fn pack(raw: &[u8], out: &mut [u8], table: &mut Table) -> Option<usize> {
    if u32::try_from(raw.len()).is_err() {
        return None;
    }
    let mut writer = Writer {
        out,
        at: 0,
        first: true,
    };
    let table = &mut *table.0;
    table.fill(0);
    let mut literals_from = 0;
    // The last 12 bytes are literals, so that a probe may read 8 bytes without asking.
    let end = raw.len().saturating_sub(12);
    let mut at = 1;
    while at < end {
        let slot = &mut table[hash(u64_le(&raw[at..]))];
        let seen = *slot as usize;
        *slot = at as u32;
        let distance = at - seen;
        if distance > M4_DISTANCE_MAX || u32_le(&raw[seen..]) != u32_le(&raw[at..]) {
            at += 1 + ((at - literals_from) >> 5);
            continue;
        }
        let (mut start, mut from) = (at, seen);
        while start > literals_from && from > 0 && raw[start - 1] == raw[from - 1] {
            start -= 1;
            from -= 1;
        }
        let len = at - start + 4 + match_len(raw, seen + 4, at + 4);
        writer.literals(raw, literals_from, start - literals_from)?;
        writer.copy(distance, len)?;
        at = start + len;
        literals_from = at;
        if at < end {
            // One place inside the match: cheap, and finds the phrase again when it comes shifted.
            table[hash(u64_le(&raw[at - 2..]))] = (at - 2) as u32;
        }
    }
    writer.literals(raw, literals_from, raw.len() - literals_from)?;
    writer.bytes(&END)?;
    Some(writer.at)
}

/// Hashes five bytes: four give too many candidates that end at once on text.
#[inline]
fn hash(eight: u64) -> usize {
    ((eight << 24).wrapping_mul(889_523_592_379) >> (64 - HASH_BITS)) as usize
}

struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
    /// No instruction yet: a run of literals may use the chunk's special first byte.
    first: bool,
}

impl Writer<'_> {
    /// Writes `len` literals from `raw[from..]`: up to 3 ride in the last two bits of the match before, more become a
    /// run.
    #[inline(always)]
    fn literals(&mut self, raw: &[u8], from: usize, len: usize) -> Option<()> {
        match len {
            0 => {}
            1..=238 if self.first => self.byte(17 + len as u8)?,
            1..=3 => *self.out.get_mut(self.at.checked_sub(2)?)? |= len as u8,
            4..=18 => self.byte(len as u8 - 3)?,
            _ => {
                self.byte(0)?;
                self.extension(len - 18)?;
            }
        }
        self.first &= len == 0;
        copy_literals(self.out, self.at, raw, from, len)?;
        self.at += len;
        Some(())
    }

    /// Writes a match of at least 4 bytes, in as many instructions as its length needs (one).
    #[inline(always)]
    fn copy(&mut self, distance: usize, len: usize) -> Option<()> {
        self.first = false;
        if len <= 8 && distance <= M2_DISTANCE_MAX {
            let distance = distance - 1;
            return self.bytes(&[
                (((len - 1) << 5) | ((distance & 7) << 2)) as u8,
                (distance >> 3) as u8,
            ]);
        }
        let (tag, len_max, distance) = if distance <= M3_DISTANCE_MAX {
            (0x20, 33, distance - 1)
        } else {
            let distance = distance - M3_DISTANCE_MAX;
            (0x10 | ((distance >> 14) << 3) as u8, 9, distance & 0x3fff)
        };
        if len <= len_max {
            self.byte(tag | (len - 2) as u8)?;
        } else {
            self.byte(tag)?;
            self.extension(len - len_max)?;
        }
        self.bytes(&((distance << 2) as u16).to_le_bytes())
    }

    /// A length above what its field holds, at least 1: a zero byte for each 255, then the rest, 1 to 255.
    fn extension(&mut self, more: usize) -> Option<()> {
        let zeros = (more - 1) / 255;
        self.out.get_mut(self.at..self.at + zeros)?.fill(0);
        self.at += zeros;
        self.byte((more - 255 * zeros) as u8)
    }

    #[inline]
    fn byte(&mut self, byte: u8) -> Option<()> {
        self.bytes(&[byte])
    }

    #[inline]
    fn bytes<const N: usize>(&mut self, bytes: &[u8; N]) -> Option<()> {
        self.out
            .get_mut(self.at..self.at + N)?
            .copy_from_slice(bytes);
        self.at += N;
        Some(())
    }
}
