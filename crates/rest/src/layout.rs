//! The bytes around the frames of a file: head, index, foot (`docs/specs/file.md`). Bytes in and out, no I/O.
//!
//! Neighbours: `write` makes them; `walk` reads them in order, `seek` from the end.

use crc_fast::{CrcAlgorithm, checksum};
use narrows_core::{ChannelId, CodecId, DecodeError, Limits, Seq, limits};
use narrows_format::{HEADER_LEN_MAX, HEADER_LEN_MIN, Header};

use crate::{Element, FileError};

/// A file's first bytes. The first is no text in any encoding, the line ends show a transfer that changed them.
pub(crate) const HEAD_MAGIC: [u8; 8] = *b"\x8aNRWS\r\n\x1a";
/// A foot's first bytes. The first is no frame's.
pub(crate) const FOOT_MAGIC: [u8; 8] = *b"\x8cNRWE\r\n\x1a";
/// The version that is written.
pub(crate) const VERSION: u8 = 1;
/// Bytes of a head.
pub(crate) const HEAD_LEN: usize = 20;
/// Bytes of a foot.
pub(crate) const FOOT_LEN: usize = 40;
/// Chunks are a multiple of this, so that numbers and pages do not straddle two.
pub(crate) const CHUNK_UNIT: usize = 4096;
/// Bytes of an index entry: codec, payload length.
pub(crate) const ENTRY_LEN: usize = 5;
/// Entries of an index frame; the last has fewer.
pub(crate) const ENTRIES_MAX: usize = 1 << 16;
/// Shortest frame: a header and one byte.
pub(crate) const FRAME_LEN_MIN: u64 = HEADER_LEN_MIN as u64 + 1;

/// How a file begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// Content bytes of a chunk; the last may have fewer.
    pub(crate) chunk_len: u32,
    /// Channel of the chunks' frames, even; the index has the next one.
    pub(crate) channel: ChannelId,
    /// What the writer was told that the content is.
    pub(crate) element: Option<Element>,
}

impl Head {
    /// Of a file of such chunks, whose first is `first`. The channel is drawn from that: a stored chunk may hold a file
    /// of this format, and whoever looks for the next frame behind a damaged one must not take those inside for ours.
    pub(crate) fn new(chunk_len: usize, element: Option<Element>, first: &[u8]) -> Self {
        let drawn = xxhash_rust::xxh3::xxh3_64(first) as u16 & !1;
        Self {
            chunk_len: chunk_len as u32,
            channel: ChannelId(drawn.max(2)),
            element,
        }
    }

    /// The channel of the index.
    pub(crate) fn index_channel(&self) -> ChannelId {
        ChannelId(self.channel.0 | 1)
    }

    pub(crate) fn to_bytes(self) -> [u8; HEAD_LEN] {
        let mut bytes = [0; HEAD_LEN];
        bytes[..8].copy_from_slice(&HEAD_MAGIC);
        bytes[8] = VERSION;
        bytes[9] = self.element.map_or(0, code_of);
        bytes[10..12].copy_from_slice(&self.channel.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.chunk_len.to_le_bytes());
        let check = crc(&[&bytes[..16]]);
        bytes[16..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Reads a head that lies at byte `at`.
    pub(crate) fn parse(bytes: &[u8; HEAD_LEN], at: u64) -> Result<Self, FileError> {
        if bytes[..8] != HEAD_MAGIC {
            return Err(FileError::NotNarrows);
        }
        if crc(&[&bytes[..16]]) != u32_at(bytes, 16) {
            return Err(FileError::damaged(at, "the head's check differs"));
        }
        if bytes[8] != VERSION {
            return Err(FileError::Version(bytes[8]));
        }
        // An element that a newer writer knows is still only a hint.
        let element = Element::ALL
            .into_iter()
            .find(|element| code_of(*element) == bytes[9]);
        let (channel, chunk_len) = (
            u16::from_le_bytes([bytes[10], bytes[11]]),
            u32_at(bytes, 12),
        );
        let sound = channel >= 2
            && channel.is_multiple_of(2)
            && (CHUNK_UNIT..=limits::CHUNK_LEN_MAX).contains(&(chunk_len as usize))
            && (chunk_len as usize).is_multiple_of(CHUNK_UNIT);
        if !sound {
            return Err(FileError::damaged(at, "a head with numbers out of range"));
        }
        Ok(Self {
            chunk_len,
            channel: ChannelId(channel),
            element,
        })
    }

    /// Reads the header of a frame, of which `next` of a channel is expected. Lengths are within what the head allows.
    pub(crate) fn frame(
        &self,
        bytes: &[u8],
        next: impl FnOnce(ChannelId) -> Option<Seq>,
    ) -> Result<Header, DecodeError> {
        let allowed = Limits {
            chunk_len_max: (self.chunk_len as usize).max(ENTRIES_MAX * ENTRY_LEN),
            history_len_max: 0,
            ..Limits::default()
        };
        Header::parse(bytes, &allowed, next)
    }
}

/// How a file ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Foot {
    /// Content bytes.
    pub(crate) content_len: u64,
    /// XXH3-64 of the content.
    pub(crate) content_check: u64,
    /// Bytes before the index: the head and the chunks' frames.
    pub(crate) index_at: u64,
    /// Bytes of the index' frames.
    pub(crate) index_len: u32,
}

impl Foot {
    pub(crate) fn to_bytes(self, head: &Head) -> [u8; FOOT_LEN] {
        let mut bytes = [0; FOOT_LEN];
        bytes[..8].copy_from_slice(&FOOT_MAGIC);
        bytes[8..16].copy_from_slice(&self.content_len.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.content_check.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.index_at.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.index_len.to_le_bytes());
        let check = foot_check(head, &bytes);
        bytes[36..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Reads what a foot at byte `at` says, unchecked: whose head it must agree with is found by what it says.
    pub(crate) fn claims(bytes: &[u8; FOOT_LEN], at: u64) -> Result<Self, FileError> {
        if bytes[..8] != FOOT_MAGIC {
            return Err(FileError::damaged(at, "no end of a file"));
        }
        Ok(Self {
            content_len: u64_at(bytes, 8),
            content_check: u64_at(bytes, 16),
            index_at: u64_at(bytes, 24),
            index_len: u32_at(bytes, 32),
        })
    }

    /// Reads the foot at byte `at` of the file with this head.
    pub(crate) fn parse(bytes: &[u8; FOOT_LEN], head: &Head, at: u64) -> Result<Self, FileError> {
        let foot = Self::claims(bytes, at)?;
        if foot_check(head, bytes) != u32_at(bytes, 36) {
            return Err(FileError::damaged(
                at,
                "the check of the file's end differs",
            ));
        }
        Ok(foot)
    }

    /// Chunks of the content.
    pub(crate) fn chunks(&self, head: &Head) -> u64 {
        self.content_len.div_ceil(head.chunk_len.into())
    }

    /// Bytes from the head to the end of the foot, if they are not more than can be.
    pub(crate) fn file_len(&self) -> Option<u64> {
        self.index_at
            .checked_add(u64::from(self.index_len) + FOOT_LEN as u64)
    }
}

/// A chunk's frame as the index has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) codec: CodecId,
    /// Bytes of the payload.
    pub(crate) packed_len: u32,
}

impl Entry {
    pub(crate) fn of(header: &Header) -> Self {
        Self {
            codec: header.codec,
            packed_len: header.packed_len,
        }
    }

    /// Bytes of the frame, of which the chunk has `raw_len`.
    pub(crate) fn frame_len(&self, raw_len: u32) -> u64 {
        let short = raw_len <= SHORT_MAX && self.packed_len <= SHORT_MAX;
        let header = if short {
            HEADER_LEN_MIN
        } else {
            HEADER_LEN_MAX
        };
        header as u64 + u64::from(self.packed_len)
    }

    pub(crate) fn to_bytes(self) -> [u8; ENTRY_LEN] {
        let [a, b, c, d] = self.packed_len.to_le_bytes();
        [self.codec.0, a, b, c, d]
    }

    pub(crate) fn parse(&[codec, a, b, c, d]: &[u8; ENTRY_LEN]) -> Self {
        Self {
            codec: CodecId(codec),
            packed_len: u32::from_le_bytes([a, b, c, d]),
        }
    }
}

/// Longest chunk and payload of a frame with a short header (`docs/specs/frame.md`).
const SHORT_MAX: u32 = 1 << 16;

fn code_of(element: Element) -> u8 {
    match element {
        Element::F16 => 1,
        Element::F32 => 2,
        Element::F64 => 3,
        Element::I8 => 4,
        Element::I16 => 5,
        Element::I32 => 6,
        Element::I64 => 7,
        Element::U8 => 8,
        Element::U16 => 9,
        Element::U32 => 10,
        Element::U64 => 11,
    }
}

/// Without the head's own check: a CRC over bytes and their CRC is the same for all.
fn foot_check(head: &Head, foot: &[u8; FOOT_LEN]) -> u32 {
    crc(&[&head.to_bytes()[..16], &foot[..36]])
}

/// CRC-32C of the parts together.
fn crc(parts: &[&[u8]]) -> u32 {
    match parts {
        [one] => checksum(CrcAlgorithm::Crc32Iscsi, one) as u32,
        _ => checksum(CrcAlgorithm::Crc32Iscsi, &parts.concat()) as u32,
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("fields lie within"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("fields lie within"))
}
