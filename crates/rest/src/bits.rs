//! Codec 32, `bits`: a chunk of two byte values, as masks and arrays of booleans are, with one bit for each byte.
//!
//! Why: zstd codes each byte of a mask anew, in a bit at best, and looks for repeats among eight times the bytes. With
//! the bits side by side it packs such chunks 1.5 to 2 times as dense, and several times as fast.
//!
//! Packed bytes: the two values, then a zstd frame of `len / 8` bytes, rounded up: bit `i % 8` of byte `i / 8`, counted
//! from the lowest, is set where byte `i` of the chunk is the second value. Bits behind the last are zero.

use narrows_codecs::zstd::Zstd;
use narrows_core::{Codec, CodecId, DecodeError, Info, Level, Workspace};

/// The codec of two values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bits;

/// Its number.
pub(crate) const BITS: CodecId = CodecId(32);

static INFO: Info = Info {
    id: BITS,
    name: "bits",
    levels: -200..=22,
    level_default: 1,
    history: false,
    format: "docs/specs/codec-ids.md, bits",
};

/// A one in each byte of a word.
const ONES: u64 = 0x0101_0101_0101_0101;
/// Bit `i` in byte `i`.
const DIAGONAL: u64 = 0x8040_2010_0804_0201;
/// Multiplied by ones and zeros in bytes, moves that of byte `i` to bit `56 + i`.
const GATHER: u64 = 0x0102_0408_1020_4080;

/// The bits between the steps.
#[derive(Default)]
struct Scratch(Vec<u8>);

/// The two values of `chunk`, the first byte's before the other; `None` if it has one value or more than two.
pub(crate) fn two_values(chunk: &[u8]) -> Option<[u8; 2]> {
    let first = *chunk.first()?;
    // Blocks are judged as a whole, so that there is no branch for each byte.
    let is_same = |block: &[u8]| block.iter().fold(0, |all, byte| all | byte ^ first) == 0;
    let other = chunk.chunks(BLOCK).find(|block| !is_same(block))?;
    let second = *other.iter().find(|byte| **byte != first)?;
    let (blocks, rest) = chunk.as_chunks::<BLOCK>();
    let is_either = |block: &[u8; BLOCK]| {
        let words = block.as_chunks::<8>().0.iter();
        let wrong = words.map(|word| differs(u64::from_le_bytes(*word), first, second));
        wrong.fold(0, |all, wrong| all | wrong) == 0
    };
    let fits = blocks.iter().all(is_either);
    let fits = fits && rest.iter().all(|byte| [first, second].contains(byte));
    fits.then_some([first, second])
}

/// Bytes that are judged at once.
const BLOCK: usize = 512;

/// That byte, eight times.
fn every(byte: u8) -> u64 {
    ONES * u64::from(byte)
}

/// Which bytes of `word` are the second value, each as 1.
fn seconds(word: u64, first: u8, second: u8) -> u64 {
    let shift = (first ^ second).trailing_zeros();
    ((word ^ every(first)) >> shift) & ONES
}

/// Not zero where a byte of `word` is neither value.
fn differs(word: u64, first: u8, second: u8) -> u64 {
    let expected = seconds(word, first, second) * u64::from(first ^ second);
    word ^ every(first) ^ expected
}

impl Codec for Bits {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn pack(
        &self,
        raw: &[u8],
        level: Level,
        _: &[u8],
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Option<usize> {
        let values @ [first, second] = two_values(raw)?;
        let (head, room) = out.split_at_mut_checked(2)?;
        head.copy_from_slice(&values);
        let mut scratch = std::mem::take(ws.get::<Scratch>());
        let bits = &mut scratch.0;
        bits.clear();
        let (words, rest) = raw.as_chunks::<8>();
        bits.extend(words.iter().map(|word| {
            let seconds = seconds(u64::from_le_bytes(*word), first, second);
            (seconds.wrapping_mul(GATHER) >> 56) as u8
        }));
        if !rest.is_empty() {
            let set = rest.iter().rev();
            bits.push(set.fold(0, |bits, byte| bits << 1 | u8::from(*byte == second)));
        }
        let packed = Zstd.pack(bits, level, &[], room, ws);
        *ws.get::<Scratch>() = scratch;
        packed.map(|len| 2 + len)
    }

    fn unpack(
        &self,
        packed: &[u8],
        _: &[u8],
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Result<(), DecodeError> {
        let Some((&[first, second], frame)) = packed.split_first_chunk::<2>() else {
            return Err(DecodeError::corrupt(packed.len(), "two values are missing"));
        };
        let mut scratch = std::mem::take(ws.get::<Scratch>());
        scratch.0.resize(out.len().div_ceil(8), 0);
        let unpacked = Zstd.unpack(frame, &[], &mut scratch.0, ws);
        if unpacked.is_ok() {
            spread(&scratch.0, [first, second], out);
        }
        *ws.get::<Scratch>() = scratch;
        unpacked
    }
}

/// A byte of `out` for each bit.
fn spread(bits: &[u8], [first, second]: [u8; 2], out: &mut [u8]) {
    let word = |bits: u8| {
        // Bit `i` in byte `i`, then carried to that byte's highest bit, and down to its lowest.
        let diagonal = every(bits) & DIAGONAL;
        let seconds = ((diagonal + every(0x7f)) >> 7) & ONES;
        (every(first) ^ (seconds * u64::from(first ^ second))).to_le_bytes()
    };
    let (words, rest) = out.as_chunks_mut::<8>();
    for (out, bits) in words.iter_mut().zip(bits) {
        *out = word(*bits);
    }
    if let Some(bits) = bits.last().filter(|_| !rest.is_empty()) {
        rest.copy_from_slice(&word(*bits)[..rest.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(len: usize, [first, second]: [u8; 2], seed: u64) -> Vec<u8> {
        let mut state = seed | 1;
        let bits = (0..len).map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state >> 61 == 0
        });
        bits.map(|bit| if bit { second } else { first }).collect()
    }

    // Goal: any two values come back. Method: lengths around a word and a block, pairs that differ in any bits.
    #[test]
    fn masks_come_back() {
        let mut ws = Workspace::default();
        for len in (2..70).chain([511, 512, 513, 1027, 65_536]) {
            for values in [[0, 1], [1, 0], [0, 255], [7, 135], [254, 255], [16, 8]] {
                let mut raw = mask(len, values, len as u64);
                raw[0] = values[0];
                raw[len - 1] = values[1];
                let mut packed = vec![0; len + 100];
                let len = Bits.pack(&raw, Level(1), &[], &mut packed, &mut ws);
                let len = len.expect("there is room");
                let mut back = vec![9; raw.len()];
                Bits.unpack(&packed[..len], &[], &mut back, &mut ws)
                    .unwrap();
                assert_eq!(back, raw);
            }
        }
    }

    #[test]
    fn other_chunks_are_declined() {
        let mut third = mask(5000, [3, 5], 1);
        assert_eq!(two_values(&third).map(|[a, b]| a ^ b), Some(6));
        for at in [1, 511, 512, 2500, 4999] {
            let before = std::mem::replace(&mut third[at], 4);
            assert_eq!(two_values(&third), None, "at {at}");
            third[at] = before;
        }
        assert_eq!(two_values(&[8; 3000]), None);
        assert_eq!(two_values(&[]), None);
    }

    // Goal: no cut and no other length is taken for a chunk. Method: each.
    #[test]
    fn cuts_and_other_lengths_are_refused() {
        let (mut ws, raw) = (Workspace::default(), mask(900, [0, 1], 5));
        let mut packed = vec![0; 1000];
        let len = Bits
            .pack(&raw, Level(1), &[], &mut packed, &mut ws)
            .unwrap();
        let mut back = vec![0; raw.len() + 64];
        for cut in 0..len {
            let cut = &packed[..cut];
            assert!(Bits.unpack(cut, &[], &mut back[..900], &mut ws).is_err());
        }
        for other in [1, 896, 905, 964] {
            let back = &mut back[..other];
            assert!(Bits.unpack(&packed[..len], &[], back, &mut ws).is_err());
        }
    }
}
