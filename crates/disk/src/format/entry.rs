//! A map entry: where one block is, in 8 bytes.
//!
//! | bits | field |
//! |---|---|
//! | 40..64 | segment |
//! | 20..40 | first granule of the unit in the segment |
//! | 8..20 | granules of the unit, its header with it |
//! | 5..8 | the block's index in the unit |
//! | 2..5 | blocks of the unit, less one |
//! | 0..2 | state: 0 never written or trimmed, 1 zero, 2 data |

use super::{GRANULE, SEGMENTS_MAX, UNIT_BLOCKS};

/// Where a unit is and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Number of the segment.
    pub segment: u32,
    /// First granule in it.
    pub granule: u32,
    /// Granules, the unit's header with them.
    pub granules: u16,
}

impl Place {
    /// Length in bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        usize::from(self.granules) * GRANULE
    }

    /// First byte within the segment.
    #[must_use]
    pub fn offset(self) -> u32 {
        self.granule * GRANULE as u32
    }
}

/// Where one block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Entry(pub u64);

impl Entry {
    /// Never written, or trimmed. Reads as zeroes.
    pub const NONE: Self = Self(0);
    /// Zeroes were written.
    pub const ZERO: Self = Self(1);

    /// Block `index` of `blocks` of the unit at `place`.
    #[must_use]
    pub fn data(place: Place, index: usize, blocks: usize) -> Self {
        debug_assert!(index < blocks && blocks <= UNIT_BLOCKS && place.segment <= SEGMENTS_MAX);
        Self(
            u64::from(place.segment) << 40
                | u64::from(place.granule) << 20
                | u64::from(place.granules) << 8
                | (index as u64) << 5
                | (blocks as u64 - 1) << 2
                | 2,
        )
    }

    /// The unit's place, where the block has data.
    #[must_use]
    pub fn place(self) -> Option<Place> {
        (self.0 & 3 == 2).then_some(Place {
            segment: (self.0 >> 40) as u32,
            granule: (self.0 >> 20) as u32 & 0xf_ffff,
            granules: (self.0 >> 8) as u16 & 0xfff,
        })
    }

    /// The block's index in its unit.
    #[must_use]
    pub fn index(self) -> usize {
        (self.0 >> 5) as usize & 7
    }

    /// Blocks of its unit.
    #[must_use]
    pub fn blocks(self) -> usize {
        ((self.0 >> 2) as usize & 7) + 1
    }

    /// Bytes of the unit that this block accounts for. The shares of a unit's blocks add up to its
    /// length.
    #[must_use]
    pub fn share(self) -> u32 {
        let Some(place) = self.place() else { return 0 };
        let (len, blocks) = (place.bytes(), self.blocks());
        (len / blocks + usize::from(self.index() < len % blocks)) as u32
    }

    /// Whether the entry can be one of a store of `segments` segments of `segment_len` bytes.
    #[must_use]
    pub fn is_sound(self, segments: u32, segment_len: u32) -> bool {
        match self.place() {
            None => self.0 <= 1,
            Some(place) => {
                (1..segments).contains(&place.segment)
                    && place.granules > 0
                    && place.offset() as usize + place.bytes() <= segment_len as usize
                    && self.index() < self.blocks()
            }
        }
    }
}
