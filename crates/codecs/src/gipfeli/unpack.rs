//! Reads Gipfeli. Format: [`super`].

use narrows_core::DecodeError;

use super::{
    BLOCK, COPIES,
    bits::BitReader,
    literals::{self, take},
};
use crate::lz::{copy_literals, copy_match};

/// The commands and literals of one block.
#[derive(Default)]
pub(super) struct Scratch {
    /// Offset and length; offset 0 means literals.
    commands: Vec<(u32, u32)>,
    literals: Vec<u8>,
}

pub(super) fn unpack(
    packed: &[u8],
    out: &mut [u8],
    scratch: &mut Scratch,
) -> Result<(), DecodeError> {
    let mut at = 0;
    if raw_len(packed, &mut at) != Some(out.len()) {
        return Err(DecodeError::corrupt(0, "Gipfeli chunk of another length"));
    }
    let mut written = 0;
    while written < out.len() {
        let end = out.len().min(written + BLOCK);
        let read = block(packed, &mut at, &mut out[..end], written, scratch);
        read.ok_or(DecodeError::corrupt(at, "not a Gipfeli block"))?;
        written = end;
    }
    if at == packed.len() {
        Ok(())
    } else {
        Err(DecodeError::corrupt(at, "bytes after the Gipfeli chunk"))
    }
}

fn raw_len(packed: &[u8], at: &mut usize) -> Option<usize> {
    let len_bytes = usize::from(take(packed, at, 1)?[0]);
    let mut len = [0; 4];
    len.get_mut(..len_bytes)?
        .copy_from_slice(take(packed, at, len_bytes)?);
    Some(u32::from_le_bytes(len) as usize)
}

/// Fills `out[written..]` from the block at `packed[*at..]`; copies may reach before `written`.
fn block(
    packed: &[u8],
    at: &mut usize,
    out: &mut [u8],
    mut written: usize,
    scratch: &mut Scratch,
) -> Option<()> {
    let Scratch { commands, literals } = scratch;
    let count = take(packed, at, 2)?;
    let count = u16::from_le_bytes([count[0], count[1]]);
    let mut bits = BitReader::new(&packed[*at..]);
    let (mut literal_count, mut total) = (0, 0);
    commands.clear();
    for _ in 0..count {
        let kind = bits.read(3);
        let (offset, len) = if kind < 2 {
            let value = kind << 5 | bits.read(5);
            let len = if value < 53 {
                value
            } else {
                bits.read(value - 47)
            } + 1;
            literal_count += len as usize;
            (0, len)
        } else {
            let copy = &COPIES[kind as usize - 2];
            let len = bits.read(copy.len_bits) + copy.len_base as u32;
            (bits.read(copy.offset_bits) + 1, len)
        };
        total += len as usize;
        commands.push((offset, len));
    }
    *at += bits.bytes_read()?;
    if total != out.len() - written {
        return None;
    }
    literals::read(packed, at, literal_count, literals)?;
    let mut used = 0;
    for &(offset, len) in commands.iter() {
        let len = len as usize;
        if offset == 0 {
            copy_literals(out, written, literals, used, len)?;
            used += len;
        } else {
            copy_match(out, written, offset as usize, len)?;
        }
        written += len;
    }
    Some(())
}
