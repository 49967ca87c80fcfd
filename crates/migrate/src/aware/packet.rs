//! QEMU's multifd packets: `MultiFDInit_t` and `MultiFDPacket_t` of its `migration/multifd.h`, all numbers big-endian.
//!
//! | at | what |
//! |---|---|
//! | 0 | magic `11223344` |
//! | 4 | version 1 |
//! | 8 | flags: bit 0 SYNC, bits 1-5 compression, bit 6 device state |
//! | 12 | places for pages: 128, or 0 in a packet without pages |
//! | 16 | pages that follow the header |
//! | 20 | bytes that follow the header; where no page does, anything |
//! | 24 | number of the packet, over all channels (8 bytes) |
//! | 32 | zero pages, named behind the others and not sent (0 before QEMU 9.0) |
//! | 64 | name of the memory block (256 bytes) |
//! | 320 | offsets of the pages in it (128 of 8 bytes) |

use super::sparse;

/// Length of a channel's first packet, in bytes.
pub const INIT_LEN: usize = 64;
/// Length of a packet's header, in bytes.
pub const HEADER_LEN: usize = OFFSETS_AT + 8 * PAGES_MAX;
/// Most pages in a packet.
pub const PAGES_MAX: usize = 128;
/// Length of a page, in bytes.
pub const PAGE_LEN: usize = 4096;
/// Length of a memory block's name, in bytes.
pub(super) const BLOCK_LEN: usize = 256;

const BLOCK_AT: usize = 64;
const OFFSETS_AT: usize = BLOCK_AT + BLOCK_LEN;
const MAGIC: [u8; 8] = [0x11, 0x22, 0x33, 0x44, 0, 0, 0, 1];
const FLAG_SYNC: u32 = 1;

/// Whether a socket's first bytes are those of a multifd channel.
#[must_use]
pub fn is_multifd(first: &[u8]) -> bool {
    first.starts_with(&MAGIC)
}

/// Which channel a first packet belongs to; `None` where it is none.
pub(super) fn channel_of(init: &[u8]) -> Option<u8> {
    (init.len() == INIT_LEN && is_multifd(init)).then(|| init[24])
}

/// A header that is not what is known; the stream may be newer, or compressed by QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unexpected multifd packet: {0}")]
pub struct Surprise(pub &'static str);

/// A header that was understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// A round ends behind it.
    pub sync: bool,
    /// Pages that follow.
    pub normal: usize,
    /// Pages that are zero.
    pub zero: usize,
}

impl Packet {
    /// Reads a header.
    ///
    /// # Errors
    /// [`Surprise`] where anything but the pages, the number and the padding is not as expected.
    pub fn parse(header: &[u8; HEADER_LEN]) -> Result<Self, Surprise> {
        if !is_multifd(header) {
            return Err(Surprise("another magic or version"));
        }
        let flags = u32_at(header, 8);
        if flags & !FLAG_SYNC != 0 {
            return Err(Surprise(
                "flags of compression, device state or later versions",
            ));
        }
        let (places, normal, zero) = (u32_at(header, 12), u32_at(header, 16), u32_at(header, 32));
        let named = normal
            .checked_add(zero)
            .ok_or(Surprise("more pages than a packet holds"))?;
        if named > places || places as usize > PAGES_MAX {
            return Err(Surprise("more pages than a packet holds"));
        }
        // Where no page follows, QEMU before 9.0 leaves the length of its last packet standing.
        if normal > 0 && u64::from(u32_at(header, 20)) != u64::from(normal) * PAGE_LEN as u64 {
            return Err(Surprise("pages of another length"));
        }
        let packet = Self {
            sync: flags & FLAG_SYNC != 0,
            normal: normal as usize,
            zero: zero as usize,
        };
        if packet
            .offsets(header)
            .any(|offset| offset % PAGE_LEN as u64 != 0)
        {
            return Err(Surprise("pages that do not begin at a page"));
        }
        Ok(packet)
    }

    /// Bytes that follow the header.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.normal * PAGE_LEN
    }

    /// Offsets of its pages in their block: those that follow, then those that are zero.
    pub fn offsets<'a>(&self, header: &'a [u8; HEADER_LEN]) -> impl Iterator<Item = u64> + use<'a> {
        header[OFFSETS_AT..]
            .chunks_exact(8)
            .take(self.normal + self.zero)
            .map(u64_of)
    }
}

/// Number of a packet, over all channels, from 0: those of a round are lower than those of the next.
pub(super) fn number(header: &[u8; HEADER_LEN]) -> u64 {
    u64_of(&header[24..32])
}

/// Name of the block a header's pages lie in.
pub(super) fn block(header: &[u8; HEADER_LEN]) -> &[u8; BLOCK_LEN] {
    header[BLOCK_AT..OFFSETS_AT]
        .try_into()
        .expect("the range is as long as the array")
}

/// The header without those of its pages that `left_out` says, the places behind filled with zeros.
pub(super) fn without(
    header: &[u8; HEADER_LEN],
    packet: &Packet,
    left_out: impl Fn(usize) -> bool,
) -> [u8; HEADER_LEN] {
    let mut out = *header;
    out[OFFSETS_AT..].fill(0);
    let kept = header[OFFSETS_AT..]
        .chunks_exact(8)
        .take(packet.normal + packet.zero)
        .enumerate();
    let mut normal = packet.normal;
    let mut places = out[OFFSETS_AT..].chunks_exact_mut(8);
    for (index, offset) in kept {
        if index < packet.normal && left_out(index) {
            normal -= 1;
        } else {
            places
                .next()
                .expect("no more are kept than there were")
                .copy_from_slice(offset);
        }
    }
    out[16..20].copy_from_slice(&(normal as u32).to_be_bytes());
    out[20..24].copy_from_slice(&((normal * PAGE_LEN) as u32).to_be_bytes());
    out
}

/// Appends `header` as what differs from its prediction: the lane's header before, and each page one behind the other.
pub(super) fn write_header(
    header: &[u8; HEADER_LEN],
    before: &[u8; HEADER_LEN],
    out: &mut Vec<u8>,
) {
    let mut rest = *header;
    let named = named(header);
    rest[..OFFSETS_AT]
        .iter_mut()
        .zip(before)
        .for_each(|(byte, before)| *byte ^= before);
    for index in (0..PAGES_MAX).rev() {
        let at = OFFSETS_AT + 8 * index;
        let value =
            u64_of(&header[at..at + 8]).wrapping_sub(predicted(header, before, named, index));
        rest[at..at + 8].copy_from_slice(&value.to_be_bytes());
    }
    sparse::write(&rest, out);
}

/// Reads what [`write_header`] wrote; `None` where it is no header.
pub(super) fn read_header(bytes: &[u8], before: &[u8; HEADER_LEN]) -> Option<[u8; HEADER_LEN]> {
    let mut header = [0; HEADER_LEN];
    sparse::read(bytes, &mut header)?;
    header[..OFFSETS_AT]
        .iter_mut()
        .zip(before)
        .for_each(|(byte, before)| *byte ^= before);
    let named = named(&header);
    for index in 0..PAGES_MAX {
        let at = OFFSETS_AT + 8 * index;
        let value =
            u64_of(&header[at..at + 8]).wrapping_add(predicted(&header, before, named, index));
        header[at..at + 8].copy_from_slice(&value.to_be_bytes());
    }
    Some(header)
}

/// Offset `index` as far as one can tell from those before it.
fn predicted(
    header: &[u8; HEADER_LEN],
    before: &[u8; HEADER_LEN],
    named: usize,
    index: usize,
) -> u64 {
    let at = OFFSETS_AT + 8 * index;
    if index > 0 && index < named {
        u64_of(&header[at - 8..at]).wrapping_add(PAGE_LEN as u64)
    } else {
        u64_of(&before[at..at + 8])
    }
}

/// Pages a header names, if one believes it.
fn named(header: &[u8; HEADER_LEN]) -> usize {
    (u32_at(header, 16) as usize)
        .saturating_add(u32_at(header, 32) as usize)
        .min(PAGES_MAX)
}

fn u32_at(header: &[u8; HEADER_LEN], at: usize) -> u32 {
    u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"))
}

fn u64_of(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

#[cfg(test)]
pub(crate) mod made {
    //! Packets as QEMU makes them.

    use super::*;

    /// A header of these pages.
    pub(crate) fn header(
        sync: bool,
        number: u64,
        block_name: &str,
        normal: &[u64],
        zero: &[u64],
    ) -> [u8; HEADER_LEN] {
        let mut header = [0; HEADER_LEN];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&u32::from(sync).to_be_bytes());
        let places: u32 = if normal.is_empty() && zero.is_empty() {
            0
        } else {
            128
        };
        header[12..16].copy_from_slice(&places.to_be_bytes());
        header[16..20].copy_from_slice(&(normal.len() as u32).to_be_bytes());
        header[20..24].copy_from_slice(&((normal.len() * PAGE_LEN) as u32).to_be_bytes());
        header[24..32].copy_from_slice(&number.to_be_bytes());
        header[32..36].copy_from_slice(&(zero.len() as u32).to_be_bytes());
        header[BLOCK_AT..BLOCK_AT + block_name.len()].copy_from_slice(block_name.as_bytes());
        for (place, offset) in header[OFFSETS_AT..]
            .chunks_exact_mut(8)
            .zip(normal.iter().chain(zero))
        {
            place.copy_from_slice(&offset.to_be_bytes());
        }
        header
    }

    /// A channel's first packet.
    pub(crate) fn init(channel: u8) -> [u8; INIT_LEN] {
        let mut init = [0; INIT_LEN];
        init[..8].copy_from_slice(&MAGIC);
        init[24] = channel;
        init
    }
}
