//! The frame header: 16 bytes for chunks of up to 64 KiB without history, 24 for all others.
//!
//! Why two fixed shapes rather than variable-length numbers: every field has one offset, a header is read in one or
//! two steps, and no number has two spellings. Why the check covers the whole sequence number though only 16 bits
//! of it travel: a frame that was replayed, reordered beyond 32,767 chunks or moved to another channel fails it.

use crc_fast::{CrcAlgorithm, Digest};
use narrows_core::{ChannelId, CodecId, DecodeError, Limits, Seq, limits};

/// Length of the short header, in bytes; every header is at least this long.
pub const HEADER_LEN_MIN: usize = 16;
/// Length of the long header, in bytes.
pub const HEADER_LEN_MAX: usize = 24;

const VERSION: u8 = 1;
const FLAG_LONG: u8 = 0b0001;
const FLAGS_KNOWN: u8 = FLAG_LONG;
const SHORT_RAW_LEN_MAX: u32 = 1 << 16;

/// Least a frame takes of its channel's credit, in bytes. Holding a frame costs memory beside its bytes; a window full
/// of frames of one byte must not hold more than one full of large ones.
pub const FRAME_COST_MIN: usize = 256;

/// What a frame says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Format of the payload.
    pub codec: CodecId,
    /// The lane it belongs to.
    pub channel: ChannelId,
    /// Which chunk of the lane.
    pub seq: Seq,
    /// Raw bytes, 1 to 16 MiB.
    pub raw_len: u32,
    /// Payload bytes, 1 to [`packed_len_max`].
    pub packed_len: u32,
    /// Raw bytes directly before this chunk that the codec refers to; 0 where the frame stands alone.
    pub history_len: u32,
    /// [`chunk_check`] of the raw bytes.
    pub check: u32,
}

/// Longest payload for a chunk of `raw_len` bytes. A sender that keeps chunks only if smaller never exceeds
/// `raw_len`; the published pipeline's plain variant sends what the codec made, and some codecs grow by a sixth.
#[must_use]
pub const fn packed_len_max(raw_len: u32) -> u32 {
    raw_len + raw_len / 6 + 64
}

/// CRC-32C (RFC 3720 §12.1) over channel (u16 LE), sequence number (u64 LE) and the raw bytes. Naming the place in
/// the sum means that the right bytes in the wrong place are noticed too.
#[must_use]
pub fn chunk_check(channel: ChannelId, seq: Seq, raw: &[u8]) -> u32 {
    let mut place = [0; 10];
    place[..2].copy_from_slice(&channel.0.to_le_bytes());
    place[2..].copy_from_slice(&seq.0.to_le_bytes());
    let mut sum = Digest::new(CrcAlgorithm::Crc32Iscsi);
    sum.update(&place);
    sum.update(raw);
    sum.finalize() as u32
}

impl Header {
    /// Length of this header on the wire: 16 or 24.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "no header is empty")]
    pub fn len(&self) -> usize {
        if self.is_long() {
            HEADER_LEN_MAX
        } else {
            HEADER_LEN_MIN
        }
    }

    /// Length of the frame on the wire: header and payload.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        self.len() + self.packed_len as usize
    }

    /// What the frame takes of its channel's credit: its length on the wire, at least [`FRAME_COST_MIN`].
    #[must_use]
    pub fn cost(&self) -> usize {
        self.wire_len().max(FRAME_COST_MIN)
    }

    /// The bytes, in the first [`Header::len`] of the array.
    ///
    /// # Panics
    /// When a length is outside what the format can carry: the maker of the frame broke its own rule.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN_MAX] {
        assert!(
            (1..=limits::CHUNK_LEN_MAX as u32).contains(&self.raw_len),
            "raw length {}",
            self.raw_len
        );
        assert!(
            (1..=packed_len_max(self.raw_len)).contains(&self.packed_len),
            "packed length {}",
            self.packed_len
        );
        let mut bytes = [0; HEADER_LEN_MAX];
        let long = self.is_long();
        bytes[0] = VERSION << 4 | if long { FLAG_LONG } else { 0 };
        bytes[1] = self.codec.0;
        bytes[2..4].copy_from_slice(&self.channel.0.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.seq.0.to_le_bytes()[..2]);
        let checked = if long {
            bytes[6..10].copy_from_slice(&(self.raw_len - 1).to_le_bytes());
            bytes[10..14].copy_from_slice(&(self.packed_len - 1).to_le_bytes());
            bytes[14..18].copy_from_slice(&self.history_len.to_le_bytes());
            18
        } else {
            bytes[6..8].copy_from_slice(&((self.raw_len - 1) as u16).to_le_bytes());
            bytes[8..10].copy_from_slice(&((self.packed_len - 1) as u16).to_le_bytes());
            10
        };
        bytes[checked + 2..checked + 6].copy_from_slice(&self.check.to_le_bytes());
        let sum = header_check(&bytes, checked, self.channel, self.seq);
        bytes[checked..checked + 2].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Bytes of header that follow from the first one, so that a reader knows how many to wait for.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] on another version or an unknown feature bit.
    pub fn len_from(first: u8) -> Result<usize, DecodeError> {
        if first >> 4 != VERSION {
            return Err(DecodeError::corrupt(0, "not a version 1 frame"));
        }
        if first & 0x0f & !FLAGS_KNOWN != 0 {
            return Err(DecodeError::corrupt(0, "unknown feature bit"));
        }
        Ok(if first & FLAG_LONG != 0 {
            HEADER_LEN_MAX
        } else {
            HEADER_LEN_MIN
        })
    }

    /// Reads a header from the front of `bytes` and refuses what `allowed` does not allow. `next_seq` tells the
    /// sequence number expected next on a channel, `None` where the channel is not open; the 16 bits that travel
    /// mean the full number nearest to it.
    ///
    /// # Errors
    /// [`DecodeError::Incomplete`] until the whole header is there, [`DecodeError::Corrupt`] or
    /// [`DecodeError::Limit`] otherwise. Nothing is allocated either way.
    pub fn parse(
        bytes: &[u8],
        allowed: &Limits,
        next_seq: impl FnOnce(ChannelId) -> Option<Seq>,
    ) -> Result<Self, DecodeError> {
        let &first = bytes.first().ok_or(DecodeError::Incomplete {
            needed: HEADER_LEN_MIN,
            have: 0,
        })?;
        let needed = Self::len_from(first)?;
        if bytes.len() < needed {
            return Err(DecodeError::Incomplete {
                needed,
                have: bytes.len(),
            });
        }
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let channel = ChannelId(u16_at(2));
        let long = needed == HEADER_LEN_MAX;
        let checked = if long { 18 } else { 10 };
        let next = next_seq(channel).ok_or(DecodeError::corrupt(2, "channel is not open"))?;
        let seq = nearest(next, u16_at(4));
        if u16_at(checked) != header_check(bytes, checked, channel, seq) {
            return Err(DecodeError::corrupt(checked, "header check differs"));
        }
        let (raw_less_1, packed_less_1, history_len) = if long {
            (u32_at(6), u32_at(10), u32_at(14))
        } else {
            (u16_at(6).into(), u16_at(8).into(), 0)
        };
        let chunk_len_max = if channel == ChannelId::CONTROL {
            limits::CONTROL_LEN_MAX
        } else {
            allowed.chunk_len_max
        };
        let chunk_len_max = chunk_len_max.min(limits::CHUNK_LEN_MAX);
        let history_len_max = allowed.history_len_max.min(limits::HISTORY_LEN_MAX);
        // The check above is no proof of good will: a hostile peer computes it. Lengths are bounded one by one.
        let header = Self {
            codec: CodecId(bytes[1]),
            channel,
            seq,
            raw_len: bounded(raw_less_1, chunk_len_max, "chunk bytes")? + 1,
            packed_len: packed_less_1.saturating_add(1),
            history_len,
            check: u32_at(checked + 2),
        };
        if header.packed_len > packed_len_max(header.raw_len) {
            return Err(DecodeError::corrupt(
                10,
                "payload is longer than any codec makes it",
            ));
        }
        if header.codec == CodecId::RAW && (header.packed_len != header.raw_len || history_len != 0)
        {
            return Err(DecodeError::corrupt(
                6,
                "raw payload of another length than its chunk, or with history",
            ));
        }
        if header.is_long() != long {
            return Err(DecodeError::corrupt(
                0,
                "long header where the short one serves",
            ));
        }
        if history_len as usize > history_len_max {
            return Err(DecodeError::Limit {
                what: "history bytes",
                asked: history_len.into(),
                limit: history_len_max as u64,
            });
        }
        Ok(header)
    }

    fn is_long(&self) -> bool {
        self.raw_len > SHORT_RAW_LEN_MAX
            || self.packed_len > SHORT_RAW_LEN_MAX
            || self.history_len > 0
    }
}

fn bounded(less_1: u32, limit: usize, what: &'static str) -> Result<u32, DecodeError> {
    let asked = u64::from(less_1) + 1;
    if asked > limit as u64 {
        return Err(DecodeError::Limit {
            what,
            asked,
            limit: limit as u64,
        });
    }
    Ok(less_1)
}

/// Low half of the CRC-32C over the header's bytes before the check and the full sequence number. A CRC is linear, so
/// whether a flipped bit shows depends on its place alone: `every_bit_flip_is_noticed` covers all headers by trying
/// one of each shape.
fn header_check(bytes: &[u8], checked: usize, channel: ChannelId, seq: Seq) -> u16 {
    chunk_check(channel, seq, &bytes[..checked]) as u16
}

/// The number nearest to `next` whose low 16 bits are `low`.
fn nearest(next: Seq, low: u16) -> Seq {
    let ahead = low.wrapping_sub(next.0 as u16) as i16;
    Seq(next
        .0
        .checked_add_signed(ahead.into())
        .unwrap_or(low.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            chunk_len_max: limits::CHUNK_LEN_MAX,
            history_len_max: limits::HISTORY_LEN_MAX,
            ..Limits::default()
        }
    }

    fn header(raw_len: u32, packed_len: u32, history_len: u32) -> Header {
        let codec = CodecId(9);
        Header {
            codec,
            channel: ChannelId(7),
            seq: Seq(70_001),
            raw_len,
            packed_len,
            history_len,
            check: 0x1234_5678,
        }
    }

    fn parse(bytes: &[u8], next: u64) -> Result<Header, DecodeError> {
        Header::parse(bytes, &limits(), |channel| {
            (channel == ChannelId(7)).then_some(Seq(next))
        })
    }

    const SHAPES: [(u32, u32, u32); 6] = [
        (1, 1, 0),
        (65_536, 65_536, 0),
        (65_537, 9, 0),
        (4096, 1000, 1),
        (1 << 24, 1 << 24, 1 << 26),
        (65_000, 70_000, 0),
    ];

    #[test]
    fn a_header_survives_the_wire() {
        for (raw_len, packed_len, history_len) in SHAPES {
            let header = header(raw_len, packed_len, history_len);
            for next in [70_001, 70_001 - 32_767, 70_001 + 32_768] {
                assert_eq!(parse(&header.to_bytes()[..header.len()], next), Ok(header));
            }
        }
    }

    #[test]
    fn a_small_chunk_costs_16_bytes() {
        assert_eq!(header(4096, 4096, 0).len(), 16);
    }

    // Goal: no single flipped bit passes. Method: every bit of every shape; the payload's check is the last four bytes,
    // whose damage shows when the chunk is checked, so here it must show as a different header.
    #[test]
    fn every_bit_flip_is_noticed() {
        let mut tried = 0;
        for (raw_len, packed_len, history_len) in SHAPES {
            let header = header(raw_len, packed_len, history_len);
            for bit in 0..header.len() * 8 {
                let mut bytes = header.to_bytes();
                bytes[bit / 8] ^= 1 << (bit % 8);
                let got = parse(&bytes[..header.len()], 70_001);
                if bit / 8 >= header.len() - 4 {
                    assert_ne!(got.unwrap().check, header.check);
                } else {
                    assert!(got.is_err(), "{header:?} bit {bit}: {got:?}");
                }
                tried += 1;
            }
        }
        println!("{tried} flips, all noticed");
    }

    #[test]
    fn a_cut_header_asks_for_more() {
        for (raw_len, packed_len, history_len) in SHAPES {
            let header = header(raw_len, packed_len, history_len);
            for cut in 0..header.len() {
                let err = parse(&header.to_bytes()[..cut], 70_001).unwrap_err();
                assert!(
                    matches!(err, DecodeError::Incomplete { .. }),
                    "cut at {cut}: {err}"
                );
            }
        }
    }

    #[test]
    fn another_place_is_noticed() {
        let bytes = header(100, 50, 0).to_bytes();
        assert!(
            parse(&bytes[..16], 70_001 + 65_536).is_err(),
            "replayed a lap later"
        );
        let moved = Header::parse(&bytes[..16], &limits(), |_| Some(Seq(70_001)));
        assert!(moved.is_ok(), "the channel is in the bytes");
        assert!(
            Header::parse(&bytes[..16], &limits(), |_| None).is_err(),
            "channel not open"
        );
    }

    #[test]
    fn what_exceeds_the_limits_is_refused_before_allocation() {
        let small = Limits {
            chunk_len_max: 1 << 16,
            history_len_max: 1 << 10,
            ..Limits::default()
        };
        for header in [header(65_537, 10, 0), header(4096, 10, 2048)] {
            let err = Header::parse(&header.to_bytes(), &small, |_| Some(Seq(70_001))).unwrap_err();
            assert!(matches!(err, DecodeError::Limit { .. }), "{err}");
        }
    }

    // A peer computes the checks, so any length may come with a right one.
    #[test]
    fn a_limit_above_the_formats_bound_means_the_bound() {
        let endless = Limits {
            chunk_len_max: usize::MAX,
            history_len_max: usize::MAX,
            ..Limits::default()
        };
        let (raw_len, history_len) = (limits::CHUNK_LEN_MAX as u32, limits::HISTORY_LEN_MAX as u32);
        for (at, field) in [
            (6, raw_len),
            (6, 3_700_000_000),
            (6, u32::MAX),
            (14, history_len + 1),
            (14, u32::MAX),
        ] {
            let mut bytes = header(raw_len, 9, history_len).to_bytes();
            assert!(Header::parse(&bytes, &endless, |_| Some(Seq(70_001))).is_ok());
            bytes[at..at + 4].copy_from_slice(&field.to_le_bytes());
            let check = header_check(&bytes, 18, ChannelId(7), Seq(70_001));
            bytes[18..20].copy_from_slice(&check.to_le_bytes());
            let err = Header::parse(&bytes, &endless, |_| Some(Seq(70_001))).unwrap_err();
            assert!(
                matches!(err, DecodeError::Limit { .. }),
                "{field} at {at}: {err}"
            );
        }
    }

    #[test]
    fn a_chunk_is_bound_to_its_place() {
        let check = chunk_check(ChannelId(1), Seq(2), b"bytes");
        assert_ne!(check, chunk_check(ChannelId(2), Seq(2), b"bytes"));
        assert_ne!(check, chunk_check(ChannelId(1), Seq(3), b"bytes"));
        assert_ne!(check, chunk_check(ChannelId(1), Seq(2), b"bytez"));
    }
}
