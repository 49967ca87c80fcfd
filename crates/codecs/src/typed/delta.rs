//! Differences of neighbouring numbers, and back.
//!
//! Numbers are little-endian. A difference `d` is folded so that small ones of either sign have zeros above:
//! 0, -1, 1, -2, … become 0, 1, 2, 3, …. Bytes behind the last whole number stay.

/// Writes the folded differences of the numbers of `width` bytes (2, 4 or 8) in `raw`.
pub fn difference(width: usize, raw: &[u8], out: &mut [u8]) {
    assert_eq!(raw.len(), out.len(), "as many bytes out as in");
    match width {
        2 => difference_2(raw, out),
        4 => difference_4(raw, out),
        8 => difference_8(raw, out),
        _ => unreachable!("widths are 2, 4 and 8"),
    }
}

/// Undoes [`difference`] in place.
pub fn sum(width: usize, bytes: &mut [u8]) {
    match width {
        2 => sum_2(bytes),
        4 => sum_4(bytes),
        8 => sum_8(bytes),
        _ => unreachable!("widths are 2, 4 and 8"),
    }
}

macro_rules! of_width {
    ($width:literal, $int:ty, $signed:ty, $difference:ident, $sum:ident) => {
        fn $difference(raw: &[u8], out: &mut [u8]) {
            const TOP: u32 = <$int>::BITS - 1;
            let (numbers, tail) = raw.as_chunks::<$width>();
            let (folded, out_tail) = out.as_chunks_mut::<$width>();
            out_tail.copy_from_slice(tail);
            let mut before = 0;
            for (number, to) in numbers.iter().zip(folded) {
                let this = <$int>::from_le_bytes(*number);
                let difference = this.wrapping_sub(before);
                *to = ((difference << 1) ^ ((difference as $signed) >> TOP) as $int).to_le_bytes();
                before = this;
            }
        }

        fn $sum(bytes: &mut [u8]) {
            let mut before: $int = 0;
            for number in bytes.as_chunks_mut::<$width>().0 {
                let folded = <$int>::from_le_bytes(*number);
                before = before.wrapping_add((folded >> 1) ^ (folded & 1).wrapping_neg());
                *number = before.to_le_bytes();
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
        for width in [2, 4, 8] {
            for len in (0..40).chain([1000, 1001]) {
                let raw: Vec<u8> = (0..len as u32)
                    .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
                    .collect();
                let mut bytes = vec![0; len];
                difference(width, &raw, &mut bytes);
                sum(width, &mut bytes);
                assert_eq!(bytes, raw, "width {width}, length {len}");
            }
        }
    }

    #[test]
    fn small_steps_either_way_leave_zeros_above() {
        let raw: Vec<u8> = [7u32, 9, 8, 8]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect();
        let mut folded = [0; 16];
        difference(4, &raw, &mut folded);
        assert_eq!(
            folded,
            *[14u32, 4, 1, 0].map(u32::to_le_bytes).as_flattened()
        );
    }
}
