//! Where one page is, in eight bytes.
//!
//! ```text
//! bit  63 ─────────────── 18 │ 17 ── 6 │ 5     │ 4    │ 3    │ 2 ── 0
//!      place, 46 bits        │ len - 1 │ apart │ deep │ idle │ kind
//! ```
//!
//! All zero is a page that was never written, so a fresh table costs no memory.

/// What a slot says of its page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Never written, or trimmed. Reads as zeroes.
    Hole = 0,
    /// Zeroes that were written.
    Zero = 1,
    /// One 64-bit word over and over; the object is the word.
    Same = 2,
    /// The object is the packed page.
    Packed = 3,
    /// The object is the page.
    Raw = 4,
    /// The object is a quarter of the packed four pages of its group, of which the first byte is the number of a
    /// dictionary, or 0.
    Cluster = 5,
    /// The place is a frame of the backing file.
    Backed = 6,
    /// The object is the number of a dictionary of the store, and the page packed with it.
    Primed = 7,
}

impl Kind {
    pub(crate) const ALL: [Self; 8] = [
        Self::Hole,
        Self::Zero,
        Self::Same,
        Self::Packed,
        Self::Raw,
        Self::Cluster,
        Self::Backed,
        Self::Primed,
    ];

    /// Whether the place is that of an object in memory.
    pub(crate) fn has_object(self) -> bool {
        matches!(
            self,
            Self::Same | Self::Packed | Self::Raw | Self::Cluster | Self::Primed
        )
    }
}

/// One slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(pub(crate) u64);

const IDLE: u64 = 1 << 3;
const DEEP: u64 = 1 << 4;
const APART: u64 = 1 << 5;
const LEN_AT: u32 = 6;
const PLACE_AT: u32 = 18;

impl Slot {
    pub(crate) const HOLE: Self = Self(0);
    pub(crate) const ZERO: Self = Self(Kind::Zero as u64);

    /// `len` from 1 to 4096; `place` below 2^46.
    pub(crate) fn new(kind: Kind, len: usize, place: u64) -> Self {
        debug_assert!(
            (1..=4096).contains(&len) && place < 1 << (64 - PLACE_AT),
            "{len} bytes at {place}"
        );
        Self(kind as u64 | (len as u64 - 1) << LEN_AT | place << PLACE_AT)
    }

    pub(crate) fn kind(self) -> Kind {
        Kind::ALL[(self.0 & 7) as usize % Kind::ALL.len()]
    }

    /// Length of the object.
    pub(crate) fn len(self) -> usize {
        (self.0 >> LEN_AT & 4095) as usize + 1
    }

    pub(crate) fn place(self) -> u64 {
        self.0 >> PLACE_AT
    }

    /// Not read or written since the keeper last came by.
    pub(crate) fn is_idle(self) -> bool {
        self.0 & IDLE != 0
    }

    /// Packed as hard as we can already; packing again would be in vain.
    pub(crate) fn is_deep(self) -> bool {
        self.0 & DEEP != 0
    }

    /// Tried as a cluster with its neighbours as they are, in vain.
    pub(crate) fn is_apart(self) -> bool {
        self.0 & APART != 0
    }

    pub(crate) fn with_idle(self, idle: bool) -> Self {
        Self(if idle { self.0 | IDLE } else { self.0 & !IDLE })
    }

    pub(crate) fn with_deep(self) -> Self {
        Self(self.0 | DEEP)
    }

    pub(crate) fn with_apart(self) -> Self {
        Self(self.0 | APART)
    }

    /// The same page elsewhere.
    pub(crate) fn moved(self, place: u64) -> Self {
        Self(self.0 & ((1 << PLACE_AT) - 1) | place << PLACE_AT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_comes_back_whatever_the_others_are() {
        for kind in Kind::ALL {
            for len in [1, 2, 3632, 4096] {
                for place in [0, 1, (1 << 46) - 1] {
                    let slot = Slot::new(kind, len, place).with_idle(true).with_deep();
                    assert!(!slot.is_apart());
                    let slot = slot.with_apart();
                    assert_eq!((slot.kind(), slot.len(), slot.place()), (kind, len, place));
                    assert!(
                        slot.is_idle()
                            && slot.is_deep()
                            && slot.is_apart()
                            && !slot.with_idle(false).is_idle()
                    );
                    assert_eq!(slot.moved(7).place(), 7);
                    assert_eq!(slot.moved(place), slot);
                }
            }
        }
    }
}
