//! A unit: up to 8 blocks, or one page of the map, packed as one and checked as one.
//!
//! | offset | length | field |
//! |---|---|---|
//! | 0 | 4 | CRC-32C of the tag (8 bytes), bytes 4 to 8, and the packed bytes |
//! | 4 | 2 | packed length in bytes |
//! | 6 | 1 | codec |
//! | 7 | 1 | blocks, 1 to 8 |
//! | 8 | | packed bytes, then zeroes to a multiple of 16 |
//!
//! The tag is the first block's number, or of a map page its level and number. So a unit read from
//! the wrong place, or one that is left from another life of its segment, does not pass for the
//! wanted one.

use super::{BLOCK, FormatError, UNIT_BLOCKS, crc, u16_at, u32_at};

/// Length of a unit's header in bytes.
pub const HEADER: usize = 8;
/// The longest unit in bytes, header and padding with it.
pub const UNIT_MAX: usize = (HEADER + UNIT_BLOCKS * BLOCK).next_multiple_of(super::GRANULE);
/// Codec number of blocks that are each packed by a chain of page transforms
/// (`docs/specs/chain.md`): `blocks` lengths of 2 bytes, then the packed pages.
pub const CODEC_CHAINS: u8 = 255;

/// What a unit's checksum is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// Data that begins with this block.
    Block(u64),
    /// A page of the map.
    Page {
        /// 0 for pages of blocks' entries, one more for pages that name those.
        level: u8,
        /// Number within the level.
        index: u64,
    },
}

impl Tag {
    /// As it enters the checksum and stands in records.
    #[must_use]
    pub fn number(self) -> u64 {
        match self {
            Self::Block(block) => block,
            Self::Page { level, index } => (u64::from(level) + 1) << 48 | index,
        }
    }
}

/// A parsed unit.
#[derive(Debug, Clone, Copy)]
pub struct Unit<'a> {
    /// Number of the codec.
    pub codec: u8,
    /// Blocks that the packed bytes make.
    pub blocks: usize,
    /// The packed bytes.
    pub packed: &'a [u8],
}

impl<'a> Unit<'a> {
    /// Checks a unit.
    ///
    /// # Errors
    /// [`FormatError::Damaged`] if it is not the unit `tag`.
    pub fn parse(bytes: &'a [u8], tag: Tag) -> Result<Self, FormatError> {
        if bytes.len() < HEADER {
            return Err(FormatError::Damaged("a unit shorter than its header"));
        }
        let len = usize::from(u16_at(bytes, 4));
        let blocks = usize::from(bytes[7]);
        let packed = bytes
            .get(HEADER..HEADER + len)
            .ok_or(FormatError::Damaged("a unit longer than its place"))?;
        if !(1..=UNIT_BLOCKS).contains(&blocks) {
            return Err(FormatError::Damaged("a unit of no or too many blocks"));
        }
        if u32_at(bytes, 0) != checksum(tag, &bytes[4..HEADER + len]) {
            return Err(FormatError::Damaged("a unit's checksum is wrong"));
        }
        Ok(Self {
            codec: bytes[6],
            blocks,
            packed,
        })
    }
}

/// Fills in the header of a unit whose packed bytes are already behind it.
pub fn write_header(bytes: &mut [u8], tag: Tag, codec: u8, blocks: usize) {
    let len = (bytes.len() - HEADER) as u16;
    bytes[4..6].copy_from_slice(&len.to_le_bytes());
    bytes[6] = codec;
    bytes[7] = blocks as u8;
    let sum = checksum(tag, &bytes[4..]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
}

fn checksum(tag: Tag, rest: &[u8]) -> u32 {
    crc(&[&tag.number().to_le_bytes(), rest])
}
