//! 842, the format of POWER's compression unit and of the Linux kernel's software twin. Own code.
//!
//! Raw bytes are cut into phrases of eight. A phrase is a template of five bits and its arguments, highest bit first.
//! Templates 0 to 24 are two halves of four bytes, `5 * first + second`, each in one of five forms:
//!
//! | form | bytes as | bits |
//! |---|---|---|
//! | 0 | four of data | 32 |
//! | 1 | two of data, an index of two | 24 |
//! | 2 | an index of two, two of data | 24 |
//! | 3 | two indices of two | 16 |
//! | 4 | an index of four | 9 |
//!
//! Template 25 is one index of eight bytes. An index counts units of its size in a ring: 256 of two bytes, 512 of four,
//! 256 of eight, the raw byte at position `p` lying in each at `p` modulo its size. An index means the newest bytes
//! that lay there when the phrase began. Beyond these: 27 repeats the phrase before `1 + n` times (`n` of six bits), 28
//! is eight zeros, 29 is `n` bytes of data (`n` of three bits, 1 to 7), which can only end a chunk, 30 is the end.
//! After the end comes the CRC-32 of the raw bytes (polynomial 0x04c11db7 from the highest bit, from 0, not inverted),
//! as the kernel's software writes it, then zeros up to a multiple of eight bytes.

mod pack;
mod unpack;

use narrows_core::{Codec, CodecId, DecodeError, Info, Level, Workspace};

/// 842 as the Linux kernel's `842-generic` speaks it.
#[derive(Debug, Clone, Copy)]
pub struct Nx842;

static INFO: Info = Info {
    id: CodecId(10),
    name: "842",
    levels: 0..=0,
    level_default: 0,
    history: false,
    format: "842 with CRC, docs/specs/codec-ids.md",
};

impl Codec for Nx842 {
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
        _: &mut Workspace,
    ) -> Result<(), DecodeError> {
        unpack::unpack(packed, out)
    }
}

/// Bytes of a phrase.
const PHRASE: usize = 8;
const INDEX_8: u64 = 25;
const REPEAT: u64 = 27;
const ZEROS: u64 = 28;
const SHORT: u64 = 29;
const END: u64 = 30;
/// Most phrases one repeat stands for.
const REPEAT_MAX: u64 = 64;

/// A ring of recent bytes: units of `unit` bytes, found by an index of `bits` bits.
#[derive(Clone, Copy)]
struct Ring {
    unit: usize,
    bits: u32,
}

const RING_2: Ring = Ring { unit: 2, bits: 8 };
const RING_4: Ring = Ring { unit: 4, bits: 9 };
const RING_8: Ring = Ring { unit: 8, bits: 8 };

impl Ring {
    const fn bytes(self) -> usize {
        self.unit << self.bits
    }

    /// Where the unit of `index` lies in the chunk, `written` bytes of which were there when the phrase began. `None`
    /// where nothing was written yet.
    fn position(self, index: usize, written: usize) -> Option<usize> {
        let in_ring = index * self.unit;
        let lap = written - written % self.bytes() + in_ring;
        let position = if lap < written {
            lap
        } else {
            lap.checked_sub(self.bytes())?
        };
        (position + self.unit <= written).then_some(position)
    }

    /// The index of the unit at `position`, if it is still in the ring when `written` bytes are.
    fn index(self, position: usize, written: usize) -> Option<u64> {
        (position < written && written - position <= self.bytes())
            .then(|| (position % self.bytes() / self.unit) as u64)
    }
}

/// CRC-32 from the highest bit on, from 0, not inverted: the kernel's `crc32_be(0, …)`.
fn crc32_be(bytes: &[u8]) -> u32 {
    let eights = bytes.chunks_exact(8);
    let rest = eights.remainder();
    let crc = eights.fold(0u32, |crc, eight| {
        let first = crc.to_be_bytes();
        (0..8).fold(0, |sum, i| {
            let byte = if i < 4 { eight[i] ^ first[i] } else { eight[i] };
            sum ^ CRC[7 - i][usize::from(byte)]
        })
    });
    rest.iter().fold(crc, |crc, &byte| {
        crc << 8 ^ CRC[0][usize::from((crc >> 24) as u8 ^ byte)]
    })
}

/// `CRC[n][b]`: what byte `b` adds when `n` bytes follow it in the same step.
static CRC: [[u32; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u32) << 24;
        let mut n = 0;
        while n < 8 {
            let mut bit = 0;
            while bit < 8 {
                crc = if crc >> 31 == 1 {
                    crc << 1 ^ 0x04c1_1db7
                } else {
                    crc << 1
                };
                bit += 1;
            }
            tables[n][byte] = crc;
            n += 1;
        }
        byte += 1;
    }
    tables
};

#[cfg(test)]
mod tests;
