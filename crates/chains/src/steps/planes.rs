//! `t`: bytes of words sorted into planes, so that each kind of byte lies together. `bt`: bits of bytes likewise.
//!
//! Byte `b` of word `i` of `n` moves to `b * n + i`. `bt` moves bit `b` of byte `i` to bit `i % 8` of byte `b * n + i /
//! 8`, with `n` an eighth of the bytes. What is left behind the last whole word, or group of 8 bytes, stays where it
//! is.

use narrows_codecs::typed::shuffle::{shuffle, unshuffle};
use narrows_core::Workspace;

use super::map::same_len;
use crate::step::{Info, PageError, Side, SideReader, Step, StepId};

/// Planes of bytes of words of `width` bytes.
#[derive(Debug)]
pub struct Planes {
    info: Info,
    width: usize,
}

/// Planes of bits.
#[derive(Debug)]
pub struct BitPlanes;

pub(super) const STEPS: &[&dyn Step] = &[
    &Planes {
        info: Info {
            id: StepId(34),
            name: "t2",
            keeps_length: true,
            has_side: false,
        },
        width: 2,
    },
    &Planes {
        info: Info {
            id: StepId(35),
            name: "t4",
            keeps_length: true,
            has_side: false,
        },
        width: 4,
    },
    &Planes {
        info: Info {
            id: StepId(36),
            name: "t8",
            keeps_length: true,
            has_side: false,
        },
        width: 8,
    },
    &BitPlanes,
];

impl Step for Planes {
    fn info(&self) -> &Info {
        &self.info
    }

    fn pack(&self, raw: &[u8], out: &mut [u8], _: &mut Side, _: &mut Workspace) -> Option<usize> {
        shuffle(self.width, raw, out.get_mut(..raw.len())?);
        Some(raw.len())
    }

    fn unpack(
        &self,
        packed: &[u8],
        _: &mut SideReader<'_>,
        out: &mut [u8],
        _: &mut Workspace,
    ) -> Result<(), PageError> {
        same_len(packed, out)?;
        unshuffle(self.width, packed, out);
        Ok(())
    }
}

impl Step for BitPlanes {
    fn info(&self) -> &Info {
        &Info {
            id: StepId(37),
            name: "bt",
            keeps_length: true,
            has_side: false,
        }
    }

    fn pack(&self, raw: &[u8], out: &mut [u8], _: &mut Side, _: &mut Workspace) -> Option<usize> {
        let out = out.get_mut(..raw.len())?;
        let (groups, tail) = raw.as_chunks::<8>();
        let (planes, to) = out.split_at_mut(8 * groups.len());
        for (n, group) in groups.iter().enumerate() {
            for (bit, byte) in transpose(*group).into_iter().enumerate() {
                planes[bit * groups.len() + n] = byte;
            }
        }
        to.copy_from_slice(tail);
        Some(raw.len())
    }

    fn unpack(
        &self,
        packed: &[u8],
        _: &mut SideReader<'_>,
        out: &mut [u8],
        _: &mut Workspace,
    ) -> Result<(), PageError> {
        same_len(packed, out)?;
        let (groups, to) = out.as_chunks_mut::<8>();
        let count = groups.len();
        let (planes, tail) = packed.split_at(8 * count);
        for (n, group) in groups.iter_mut().enumerate() {
            *group = transpose(std::array::from_fn(|bit| planes[bit * count + n]));
        }
        to.copy_from_slice(tail);
        Ok(())
    }
}

/// Bit `b` of byte `i` becomes bit `i` of byte `b`, by swapping ever larger squares (Warren, Hacker's Delight, §7-3).
#[inline]
fn transpose(bytes: [u8; 8]) -> [u8; 8] {
    let mut x = u64::from_le_bytes(bytes);
    for (by, mask) in [
        (7, 0x00aa_00aa_00aa_00aa),
        (14, 0x0000_cccc_0000_cccc),
        (28, 0x0000_0000_f0f0_f0f0),
    ] {
        let differ = (x ^ (x >> by)) & mask;
        x ^= differ ^ (differ << by);
    }
    x.to_le_bytes()
}
