//! A box of bytes in device memory: rows of one length, at a pitch, in slices at a pitch.

use crate::codec::{Field, Structure, WireError, structure};

structure! {
    /// Where the bytes of a copy are. A plain range is one row.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Span {
        /// Address of the first byte.
        pub base: u64,
        /// Bytes of a row.
        pub row: u64,
        /// Rows of a slice.
        pub rows: u64,
        /// Bytes from one row to the next.
        pub pitch: u64,
        /// Slices.
        pub slices: u64,
        /// Bytes from one slice to the next.
        pub slice_pitch: u64,
    }
}

/// Bytes of a span that lie side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Address of the first.
    pub base: u64,
    /// How many.
    pub len: u64,
}

impl Span {
    /// A plain range.
    #[must_use]
    pub const fn linear(base: u64, len: u64) -> Self {
        Self {
            base,
            row: len,
            rows: 1,
            pitch: len,
            slices: 1,
            slice_pitch: len,
        }
    }

    /// Bytes in it; `None` where they are more than can be counted, or would lie beyond the last address.
    #[must_use]
    pub fn checked_len(&self) -> Option<u64> {
        let len = self.row.checked_mul(self.rows)?.checked_mul(self.slices)?;
        if len > 0 {
            self.end()?;
        }
        Some(len)
    }

    /// The address behind its last byte.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        let slices = self.slices.checked_sub(1)?.checked_mul(self.slice_pitch)?;
        let rows = self.rows.checked_sub(1)?.checked_mul(self.pitch)?;
        self.base
            .checked_add(slices)?
            .checked_add(rows)?
            .checked_add(self.row)
    }

    /// Whether rows lie in order, without overlapping: what a destination needs.
    #[must_use]
    pub fn is_sane(&self) -> bool {
        let slice = self.rows.saturating_sub(1).checked_mul(self.pitch);
        (self.rows <= 1 || self.pitch >= self.row)
            && (self.slices <= 1
                || slice
                    .and_then(|slice| slice.checked_add(self.row))
                    .is_some_and(|slice| self.slice_pitch >= slice))
    }

    /// The same bytes with as few rows as there can be.
    #[must_use]
    pub fn joined(mut self) -> Self {
        if self.rows > 1 && self.pitch == self.row {
            self.row *= self.rows;
            self.rows = 1;
            self.pitch = self.row;
        }
        if self.slices > 1 && self.rows == 1 && self.slice_pitch == self.row {
            self.row *= self.slices;
            self.slices = 1;
            self.pitch = self.row;
            self.slice_pitch = self.row;
        }
        self
    }

    /// Its rows, in order. Only of a span whose length was checked.
    pub fn iter_rows(self) -> impl Iterator<Item = Row> {
        let rows = if self.row == 0 { 0 } else { self.rows };
        (0..self.slices).flat_map(move |slice| {
            (0..rows).map(move |row| Row {
                base: self
                    .base
                    .wrapping_add(slice.wrapping_mul(self.slice_pitch))
                    .wrapping_add(row.wrapping_mul(self.pitch)),
                len: self.row,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_know_their_bytes() {
        let span = Span {
            base: 100,
            row: 10,
            rows: 3,
            pitch: 16,
            slices: 2,
            slice_pitch: 64,
        };
        assert_eq!(span.checked_len(), Some(60));
        assert_eq!(span.end(), Some(100 + 64 + 32 + 10));
        let bases: Vec<_> = span.iter_rows().map(|row| row.base).collect();
        assert_eq!(bases, [100, 116, 132, 164, 180, 196]);
        let tight = Span {
            pitch: 10,
            slice_pitch: 30,
            ..span
        };
        assert_eq!(tight.joined(), Span::linear(100, 60));
        assert_eq!(Span::linear(u64::MAX, 2).checked_len(), None);
    }
}
