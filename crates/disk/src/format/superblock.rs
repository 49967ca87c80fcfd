//! The superblock: what the store is, and where its log and its map were at the last checkpoint.
//!
//! Two copies, at 0 and at 32 KiB. A checkpoint writes one (the second if the generation is odd),
//! flushes, writes the other, flushes: at any time one is whole, and when the store is at rest both
//! say the same, so damage to one loses nothing.
//!
//! | offset | length | field |
//! |---|---|---|
//! | 0 | 8 | `NRWSDISK` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | features a reader must know, 0 |
//! | 16 | 16 | uuid |
//! | 32 | 8 | generation: one more with each write |
//! | 40 | 8 | epoch of the log that follows the checkpoint |
//! | 48 | 8 | size of the device in bytes |
//! | 56 | 4 | segments, the one of the superblocks with them |
//! | 60 | 4 | segment length in bytes |
//! | 64 | 8 | entry of the map's root page, 0 if the map is empty |
//! | 72 | 8 | sequence number of the first batch to replay |
//! | 80 | 4 | segment where it is expected |
//! | 84 | 4 | offset in it |
//! | 88 | 8 | the two segments that follow |
//! | 96 | 4 | CRC of the batch before it |
//! | 100 | 1 | profile: 0 fast, 1 balanced, 2 dense |
//! | 101 | 1 | provisioning: 0 thin, 1 guaranteed |
//! | 102 | 1 | 1 if the store was closed in order |
//! | 4092 | 4 | CRC-32C of the bytes before |
//!
//! Everything else is zero.

use super::{
    BLOCK, FormatError, SEGMENT_MAX, SEGMENT_MIN, SEGMENTS_MAX, crc, field, u32_at, u64_at,
};
use crate::{
    format::entry::Entry,
    settings::{Profile, Provision},
};

/// Where the two copies are.
pub const COPIES: [u64; 2] = [0, 32 << 10];
/// The version written, and the highest one read.
pub const VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"NRWSDISK";

/// A place in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPosition {
    /// Sequence number of the batch that belongs here.
    pub seq: u64,
    /// Segment where it is expected; if it is not there, it begins `next[0]`.
    pub segment: u32,
    /// Offset in that segment.
    pub offset: u32,
    /// The segments that follow.
    pub next: [u32; 2],
    /// Checksum of the batch before.
    pub previous: u32,
}

/// The superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// Drawn when the store is made.
    pub uuid: [u8; 16],
    /// One more with each write.
    pub generation: u64,
    /// Of the log.
    pub epoch: u64,
    /// Size of the device in bytes, a multiple of 4096.
    pub logical: u64,
    /// Segments, the superblocks' with them.
    pub segments: u32,
    /// Segment length in bytes.
    pub segment_len: u32,
    /// Root of the map.
    pub root: Entry,
    /// Where to replay from.
    pub replay: LogPosition,
    /// How hard to compress unless told otherwise.
    pub profile: Profile,
    /// Whether the device may promise more than there is.
    pub provision: Provision,
    /// The store was closed in order.
    pub clean: bool,
}

impl Superblock {
    /// Its bytes.
    #[must_use]
    pub fn write(&self) -> [u8; BLOCK] {
        let mut out = [0; BLOCK];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[16..32].copy_from_slice(&self.uuid);
        out[32..40].copy_from_slice(&self.generation.to_le_bytes());
        out[40..48].copy_from_slice(&self.epoch.to_le_bytes());
        out[48..56].copy_from_slice(&self.logical.to_le_bytes());
        out[56..60].copy_from_slice(&self.segments.to_le_bytes());
        out[60..64].copy_from_slice(&self.segment_len.to_le_bytes());
        out[64..72].copy_from_slice(&self.root.0.to_le_bytes());
        out[72..80].copy_from_slice(&self.replay.seq.to_le_bytes());
        out[80..84].copy_from_slice(&self.replay.segment.to_le_bytes());
        out[84..88].copy_from_slice(&self.replay.offset.to_le_bytes());
        out[88..92].copy_from_slice(&self.replay.next[0].to_le_bytes());
        out[92..96].copy_from_slice(&self.replay.next[1].to_le_bytes());
        out[96..100].copy_from_slice(&self.replay.previous.to_le_bytes());
        out[100] = match self.profile {
            Profile::Fast => 0,
            Profile::Balanced => 1,
            Profile::Dense => 2,
        };
        out[101] = match self.provision {
            Provision::Thin => 0,
            Provision::Guaranteed => 1,
        };
        out[102] = u8::from(self.clean);
        let sum = crc(&[&out[..BLOCK - 4]]);
        out[BLOCK - 4..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads one copy.
    ///
    /// # Errors
    /// [`FormatError`] if there is none, it is damaged, or it was made by a newer version.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        if bytes.len() < BLOCK || &bytes[..8] != MAGIC {
            return Err(FormatError::Damaged("no superblock"));
        }
        let bytes = &bytes[..BLOCK];
        if u32_at(bytes, BLOCK - 4) != crc(&[&bytes[..BLOCK - 4]]) {
            return Err(FormatError::Damaged("the superblock's checksum is wrong"));
        }
        for (what, at, known) in [("format version", 8, VERSION), ("feature bits", 12, 0)] {
            let found = u32_at(bytes, at);
            if found > known {
                return Err(FormatError::Newer { what, found, known });
            }
        }
        let superblock = Self {
            uuid: field(bytes, 16),
            generation: u64_at(bytes, 32),
            epoch: u64_at(bytes, 40),
            logical: u64_at(bytes, 48),
            segments: u32_at(bytes, 56),
            segment_len: u32_at(bytes, 60),
            root: Entry(u64_at(bytes, 64)),
            replay: LogPosition {
                seq: u64_at(bytes, 72),
                segment: u32_at(bytes, 80),
                offset: u32_at(bytes, 84),
                next: [u32_at(bytes, 88), u32_at(bytes, 92)],
                previous: u32_at(bytes, 96),
            },
            profile: match bytes[100] {
                0 => Profile::Fast,
                1 => Profile::Balanced,
                2 => Profile::Dense,
                _ => return Err(FormatError::Damaged("an unknown profile")),
            },
            provision: match bytes[101] {
                0 => Provision::Thin,
                1 => Provision::Guaranteed,
                _ => return Err(FormatError::Damaged("an unknown provisioning")),
            },
            clean: bytes[102] != 0,
        };
        superblock.check()?;
        Ok(superblock)
    }

    fn check(&self) -> Result<(), FormatError> {
        let (segments, len) = (self.segments, self.segment_len);
        let inside = |segment: u32| (1..segments).contains(&segment);
        let sound = (SEGMENT_MIN..=SEGMENT_MAX).contains(&len)
            && (len as usize).is_multiple_of(BLOCK)
            && (2..=SEGMENTS_MAX).contains(&segments)
            && self.logical > 0
            && self.logical.is_multiple_of(BLOCK as u64)
            && self.logical <= logical_max(segments, len)
            && self.root.is_sound(segments, len)
            && inside(self.replay.segment)
            && self.replay.next.into_iter().all(inside)
            && self.replay.offset <= len
            && (self.replay.offset as usize).is_multiple_of(BLOCK);
        if sound {
            Ok(())
        } else {
            Err(FormatError::Damaged(
                "the superblock's numbers contradict each other",
            ))
        }
    }
}

/// The largest device on so many segments: 64 TiB, and 1024 times the segments' bytes, so that a
/// small image cannot ask for much memory.
#[must_use]
pub fn logical_max(segments: u32, segment_len: u32) -> u64 {
    (u64::from(segments) * u64::from(segment_len) * 1024).min(1 << 46)
}
