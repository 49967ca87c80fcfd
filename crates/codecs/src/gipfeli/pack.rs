//! Greedy Gipfeli search. Format: [`super`].

use super::{
    BLOCK,
    bits::BitWriter,
    literals::{self, append},
};
use crate::lz::{copy_literals, match_len, u32_le};

/// Tables and streams kept from chunk to chunk.
pub(super) struct Scratch {
    table: Box<[u32; 1 << HASH_BITS]>,
    commands: BitWriter,
    literal_bits: BitWriter,
    /// The literals of the block, and room for a move of 16 bytes.
    literals: Vec<u8>,
    literal_count: usize,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            table: Box::new([0; 1 << HASH_BITS]),
            commands: BitWriter::default(),
            literal_bits: BitWriter::default(),
            literals: vec![0; BLOCK + 16],
            literal_count: 0,
        }
    }
}

/// 2^14 positions of four bytes: as much memory as the original's 2^15 of two, but they reach into the block before.
const HASH_BITS: u32 = 14;
/// Longest copy in bytes.
const COPY_MAX: usize = 67;

pub(super) fn pack(raw: &[u8], out: &mut [u8], scratch: &mut Scratch) -> Option<usize> {
    let len = i32::try_from(raw.len()).ok()?.unsigned_abs();
    let len_bytes = 4 - len.leading_zeros() as usize / 8;
    let mut at = 0;
    append(out, &mut at, &[len_bytes as u8])?;
    append(out, &mut at, &len.to_le_bytes()[..len_bytes])?;
    scratch.table.fill(0);
    for start in (0..raw.len()).step_by(BLOCK) {
        let end = raw.len().min(start + BLOCK);
        let commands = search(raw, start, end, scratch);
        append(out, &mut at, &commands.to_le_bytes())?;
        scratch.commands.write_to(out, &mut at)?;
        let literals = &scratch.literals[..scratch.literal_count];
        literals::write(literals, &mut scratch.literal_bits, out, &mut at)?;
    }
    Some(at)
}

/// Fills the streams with `raw[start..end]` and returns the number of commands.
fn search(raw: &[u8], start: usize, end: usize, scratch: &mut Scratch) -> u16 {
    let Scratch {
        table,
        commands,
        literals,
        literal_count,
        ..
    } = scratch;
    commands.clear();
    *literal_count = 0;
    let mut count = 0;
    let mut literals_from = start;
    let mut at = start.max(1);
    // The hash reads four bytes; the last few of a block are not worth a search.
    let search_end = end.saturating_sub(8);
    let data = &raw[..end];
    while at < search_end {
        let four = u32_le(&data[at..]);
        let slot = &mut table[hash(four)];
        let seen = *slot as usize;
        *slot = at as u32;
        if at - seen > BLOCK || u32_le(&data[seen..]) != four {
            at += 1 + ((at - literals_from) >> 5);
            continue;
        }
        let distance = at - seen;
        let len = 4 + match_len(data, seen + 4, at + 4);
        count += put_literals(commands, at - literals_from);
        copy_literals(
            literals,
            *literal_count,
            raw,
            literals_from,
            at - literals_from,
        )
        .expect("a block has no more literals than bytes");
        *literal_count += at - literals_from;
        count += put_copies(commands, distance, len);
        at += len;
        literals_from = at;
        if at < search_end {
            table[hash(u32_le(&data[at - 1..]))] = (at - 1) as u32;
        }
    }
    count += put_literals(commands, end - literals_from);
    copy_literals(
        literals,
        *literal_count,
        raw,
        literals_from,
        end - literals_from,
    )
    .expect("a block has no more literals than bytes");
    *literal_count += end - literals_from;
    count
}

#[inline]
fn hash(four: u32) -> usize {
    (four.wrapping_mul(0x1e35_a7bd) >> (32 - HASH_BITS)) as usize
}

/// Writes the command for `len` literals, if there are any, and returns how many commands that took.
#[inline]
fn put_literals(commands: &mut BitWriter, len: usize) -> u16 {
    if len == 0 {
        return 0;
    }
    let value = len as u32 - 1;
    if value < 53 {
        commands.put(u64::from(value), 8);
    } else {
        let bits = (32 - value.leading_zeros()).max(6);
        commands.put(u64::from(47 + bits), 8);
        commands.put(u64::from(value), bits);
    }
    1
}

/// Writes a match of at least 4 bytes as copies of 4 to 67 and returns how many that took.
#[inline]
fn put_copies(commands: &mut BitWriter, distance: usize, mut len: usize) -> u16 {
    let mut count = 0;
    let offset = distance as u32 - 1;
    while len > COPY_MAX {
        // Leave at least four for the last copy.
        let part = COPY_MAX.min(len - 4);
        put_copy(commands, offset, part as u32);
        len -= part;
        count += 1;
    }
    put_copy(commands, offset, len as u32);
    count + 1
}

/// The shortest command for one copy; the numbers are those of [`super::COPIES`].
#[inline]
fn put_copy(commands: &mut BitWriter, offset: u32, len: u32) {
    match (len, offset) {
        (..8, ..0x400) => commands.put(u64::from((2 << 12) | (len - 4) << 10 | offset), 15),
        (..8, ..0x2000) => commands.put(u64::from((3 << 15) | (len - 4) << 13 | offset), 18),
        (..8, _) => commands.put(u64::from((4 << 18) | (len - 4) << 16 | offset), 21),
        (..16, ..0x400) => commands.put(u64::from((5 << 13) | (len - 8) << 10 | offset), 16),
        (..16, _) => commands.put(u64::from((6 << 19) | (len - 8) << 16 | offset), 22),
        _ => commands.put(u64::from((7 << 22) | (len - 4) << 16 | offset), 25),
    }
}
