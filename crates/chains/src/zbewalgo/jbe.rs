//! `jbe` and `jbe2`: zero bytes left out. A length, two bytes; a byte for each 8, highest bit first, set where a byte
//! is not zero; these bytes; and what is left of a group of 8, as it is. `jbe2` first trades nibbles within each group.

use crate::step::{BETWEEN_MAX, PageError};

pub(super) fn pack(raw: &[u8], out: &mut Vec<u8>, map: impl Fn(u64) -> u64) -> Option<()> {
    let (groups, tail) = raw.as_chunks::<8>();
    out.extend_from_slice(&u16::try_from(raw.len()).ok()?.to_le_bytes());
    let flags_at = out.len();
    out.resize(flags_at + groups.len(), 0);
    for (n, group) in groups.iter().enumerate() {
        for (place, byte) in map(u64::from_le_bytes(*group))
            .to_le_bytes()
            .into_iter()
            .enumerate()
        {
            if byte != 0 {
                out[flags_at + n] |= 0x80 >> place;
                out.push(byte);
            }
        }
    }
    out.extend_from_slice(tail);
    Some(())
}

pub(super) fn unpack(
    packed: &[u8],
    out: &mut Vec<u8>,
    map: impl Fn(u64) -> u64,
) -> Result<(), PageError> {
    const SHORT: PageError = PageError::Corrupt("jbe is cut short");
    let (len, rest) = packed.split_first_chunk::<2>().ok_or(SHORT)?;
    let len = usize::from(u16::from_le_bytes(*len));
    if len > BETWEEN_MAX {
        return Err(PageError::Corrupt("jbe of too many bytes"));
    }
    let (flags, mut bytes) = rest.split_at_checked(len / 8).ok_or(SHORT)?;
    for &flags in flags {
        let (present, rest) = bytes
            .split_at_checked(flags.count_ones() as usize)
            .ok_or(SHORT)?;
        bytes = rest;
        let mut present = present.iter();
        let group = std::array::from_fn(|place| {
            if flags & (0x80 >> place) == 0 {
                0
            } else {
                *present.next().expect("one for each bit set")
            }
        });
        out.extend_from_slice(&map(u64::from_le_bytes(group)).to_le_bytes());
    }
    if bytes.len() != len % 8 {
        return Err(PageError::Corrupt("jbe of another length"));
    }
    out.extend_from_slice(bytes);
    Ok(())
}

/// High nibbles of the first four bytes trade places with low ones of the last four, so that four small bytes leave
/// four zeros. Its own inverse.
pub(super) fn swap_nibbles(word: u64) -> u64 {
    word & 0xf0f0_f0f0_0f0f_0f0f
        | (word & 0x0f0f_0f0f_0000_0000) >> 28
        | (word & 0x0000_0000_f0f0_f0f0) << 28
}
