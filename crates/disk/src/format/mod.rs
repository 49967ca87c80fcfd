//! The bytes on the backing: parsing and writing, no I/O. `docs/specs/disk.md` describes them for a
//! second reader.
//!
//! All integers are little-endian. Whatever is parsed may be hostile: lengths are checked before
//! anything is read or allocated by them.

pub mod batch;
pub mod entry;
pub mod superblock;
pub mod unit;

use crc_fast::{CrcAlgorithm, Digest};

/// Length of a block of the device in bytes.
pub const BLOCK: usize = 4096;
/// Blocks of the longest compression unit: 32 KiB.
pub const UNIT_BLOCKS: usize = 8;
/// Map entries of a page.
pub const FANOUT: usize = 512;
/// Payloads begin at multiples of this many bytes.
pub const GRANULE: usize = 16;
/// The shortest segment in bytes.
pub const SEGMENT_MIN: u32 = 64 << 10;
/// The longest segment in bytes: an entry counts 2^20 granules.
pub const SEGMENT_MAX: u32 = 16 << 20;
/// The most segments: an entry has 24 bits for them.
pub const SEGMENTS_MAX: u32 = (1 << 24) - 1;

/// CRC-32C of several pieces as if they were one.
pub(crate) fn crc(pieces: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for piece in pieces {
        digest.update(piece);
    }
    digest.finalize() as u32
}

/// A fixed-length field of `bytes` at `at`.
pub(crate) fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("N bytes")
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(field(bytes, at))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(field(bytes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(field(bytes, at))
}

/// Why bytes are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// They were never written as such, or are damaged.
    #[error("{0}")]
    Damaged(&'static str),
    /// They were made by a newer version.
    #[error("made by a newer version: {what} {found}, this one knows up to {known}")]
    Newer {
        /// What is newer.
        what: &'static str,
        /// Its number.
        found: u32,
        /// The highest number known here.
        known: u32,
    },
}
