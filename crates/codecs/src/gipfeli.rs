//! Gipfeli: LZ77 with short fixed codes for copies and a three-class code for literals. Own code.
//!
//! A chunk is its length (one byte `n`, then `n` bytes, little-endian) and a block for each 64 KiB of it. A block is
//!
//! 1. the number of its commands, `u16` little-endian;
//! 2. the commands, a stream of bits;
//! 3. a `u32`, big-endian: 0 if the literals are plain bytes, else one bit for each group of 8 symbols that occurs in
//!    the code, group 0 in the highest bit;
//! 4. the literals: plain; or for each group that occurs a byte that names its symbols, 96 in all, then a bit for each
//!    symbol in ascending order, 1 for the 32 of the first class, 0 for the 64 of the second, then a stream of bits.
//!    Within these bytes the lower symbol stands in the higher bit.
//!
//! Streams of bits go from the highest to the lowest bit of 64-bit words stored little-endian; the last is padded.
//! A command starts with three bits `v`. Below 2, literals follow: `v` and the next five bits are a number, which below
//! 53 is the length less one, else less 47 the count of bits that hold the length less one. From 2 on it is a copy of
//! 4 to 67 bytes from up to 65536 bytes back, also from the block before; `COPIES` tells the widths. A literal's code
//! begins with six bits: 0 to 31 are the first class; 32 to 47 with two bits more the second; 48 to 63 with four bits
//! more are the byte itself.

mod bits;
mod literals;
mod pack;
mod unpack;

use narrows_core::{Codec, CodecId, DecodeError, Info, Level, Workspace};

/// Gipfeli with a greedy search.
#[derive(Debug, Clone, Copy)]
pub struct Gipfeli;

static INFO: Info = Info {
    id: CodecId(4),
    name: "gipfeli",
    levels: 0..=0,
    level_default: 0,
    history: false,
    format: "Lenhardt and Alakuijala, Gipfeli (DCC 2012); docs/specs/codec-ids.md",
};

impl Codec for Gipfeli {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn pack(
        &self,
        raw: &[u8],
        _: Level,
        _: &[u8],
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Option<usize> {
        pack::pack(raw, out, ws.get())
    }

    fn unpack(
        &self,
        packed: &[u8],
        _: &[u8],
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Result<(), DecodeError> {
        unpack::unpack(packed, out, ws.get())
    }
}

/// Raw bytes of a block; also the furthest a copy reaches back.
const BLOCK: usize = 64 << 10;

/// Bits and base of the length, then bits of the offset less one, of the copies `v` = 2 to 7.
const COPIES: [Copy; 6] = [
    Copy {
        len_bits: 2,
        len_base: 4,
        offset_bits: 10,
    },
    Copy {
        len_bits: 2,
        len_base: 4,
        offset_bits: 13,
    },
    Copy {
        len_bits: 2,
        len_base: 4,
        offset_bits: 16,
    },
    Copy {
        len_bits: 3,
        len_base: 8,
        offset_bits: 10,
    },
    Copy {
        len_bits: 3,
        len_base: 8,
        offset_bits: 16,
    },
    Copy {
        len_bits: 6,
        len_base: 4,
        offset_bits: 16,
    },
];

struct Copy {
    len_bits: u32,
    len_base: usize,
    offset_bits: u32,
}
