//! Differences of neighbouring numbers, and back.
//!
//! Numbers are little-endian. A difference `d` is folded so that small ones of either sign have zeros above:
//! 0, -1, 1, -2, … become 0, 1, 2, 3, …. Bytes behind the last whole number stay.

/// Which numbers are subtracted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// None: bytes as they are.
    Plain,
    /// The integers the bytes spell.
    Integer,
    /// Floats: the bits read as an integer that grows with the number, so that neighbours in value are neighbours
    /// here, across zero too.
    Float,
}

/// Writes the folded differences of the numbers of `width` bytes (2, 4 or 8) in `raw`.
pub fn difference(width: usize, kind: Kind, raw: &[u8], out: &mut [u8]) {
    assert_eq!(raw.len(), out.len(), "as many bytes out as in");
    match (width, kind) {
        (_, Kind::Plain) => out.copy_from_slice(raw),
        (2, _) => difference_2(kind, raw, out),
        (4, _) => difference_4(kind, raw, out),
        (8, _) => difference_8(kind, raw, out),
        _ => unreachable!("widths are 2, 4 and 8"),
    }
}

/// Undoes [`difference`] in place.
pub fn sum(width: usize, kind: Kind, bytes: &mut [u8]) {
    match (width, kind) {
        (_, Kind::Plain) => {}
        (2, _) => sum_2(kind, bytes),
        (4, _) => sum_4(kind, bytes),
        (8, _) => sum_8(kind, bytes),
        _ => unreachable!("widths are 2, 4 and 8"),
    }
}

macro_rules! of_width {
    ($width:literal, $int:ty, $signed:ty, $difference:ident, $sum:ident) => {
        fn $difference(kind: Kind, raw: &[u8], out: &mut [u8]) {
            const TOP: u32 = <$int>::BITS - 1;
            // A negative float's bits fall as it grows: turn all but the sign round.
            let mask = if kind == Kind::Float { <$int>::MAX >> 1 } else { 0 };
            let ordered = |bits: $int| bits ^ (((bits as $signed) >> TOP) as $int & mask);
            let (numbers, tail) = raw.as_chunks::<$width>();
            let (folded, out_tail) = out.as_chunks_mut::<$width>();
            out_tail.copy_from_slice(tail);
            let mut before = 0;
            for (number, to) in numbers.iter().zip(folded) {
                let this = ordered(<$int>::from_le_bytes(*number));
                let difference = this.wrapping_sub(before);
                *to = ((difference << 1) ^ ((difference as $signed) >> TOP) as $int).to_le_bytes();
                before = this;
            }
        }

        fn $sum(kind: Kind, bytes: &mut [u8]) {
            const TOP: u32 = <$int>::BITS - 1;
            let mask = if kind == Kind::Float { <$int>::MAX >> 1 } else { 0 };
            let mut before: $int = 0;
            for number in bytes.as_chunks_mut::<$width>().0 {
                let folded = <$int>::from_le_bytes(*number);
                before = before.wrapping_add((folded >> 1) ^ (folded & 1).wrapping_neg());
                *number = (before ^ (((before as $signed) >> TOP) as $int & mask)).to_le_bytes();
            }
        }
    };
}

of_width!(2, u16, i16, difference_2, sum_2);
of_width!(4, u32, i32, difference_4, sum_4);
of_width!(8, u64, i64, difference_8, sum_8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_undo_differences() {
        for kind in [Kind::Plain, Kind::Integer, Kind::Float] {
            for width in [2, 4, 8] {
                for len in (0..40).chain([1000, 1001]) {
                    let raw: Vec<u8> = (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
                    let mut bytes = vec![0; len];
                    difference(width, kind, &raw, &mut bytes);
                    sum(width, kind, &mut bytes);
                    assert_eq!(bytes, raw, "{kind:?}, width {width}, length {len}");
                }
            }
        }
    }

    #[test]
    fn neighbouring_floats_have_small_differences_across_zero() {
        let raw: Vec<u8> = [1.0f32, 1.0000001, -0.0, 0.0].iter().flat_map(|f| f.to_le_bytes()).collect();
        let mut folded = [0; 16];
        difference(4, Kind::Float, &raw, &mut folded);
        assert_eq!(folded[4..8], 2u32.to_le_bytes(), "one step up");
        assert_eq!(folded[12..], 2u32.to_le_bytes(), "-0 to 0 is one step");
    }
}
