//! Byte shuffle: the first bytes of all numbers, then all second bytes, and so on; and back.
//!
//! Plain loops that the compiler vectorises, compiled a second time for AVX2 and chosen at run time. Bytes behind the
//! last whole number stay where they are.

/// Splits numbers of `width` bytes (2, 4 or 8) into planes.
pub fn shuffle(width: usize, raw: &[u8], planes: &mut [u8]) {
    assert_eq!(raw.len(), planes.len(), "as many bytes out as in");
    dispatch(width, Way::Split, raw, planes);
}

/// Joins the planes that [`shuffle`] made.
pub fn unshuffle(width: usize, planes: &[u8], raw: &mut [u8]) {
    assert_eq!(raw.len(), planes.len(), "as many bytes out as in");
    dispatch(width, Way::Join, planes, raw);
}

#[derive(Clone, Copy)]
enum Way {
    Split,
    Join,
}

fn dispatch(width: usize, way: Way, from: &[u8], to: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the feature is there, as just detected.
        return unsafe { avx2(width, way, from, to) };
    }
    portable(width, way, from, to);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(width: usize, way: Way, from: &[u8], to: &mut [u8]) {
    portable(width, way, from, to);
}

#[inline(always)]
fn portable(width: usize, way: Way, from: &[u8], to: &mut [u8]) {
    match (width, way) {
        (2, Way::Split) => split_2(from, to),
        (4, Way::Split) => split_4(from, to),
        (8, Way::Split) => split_8(from, to),
        (2, Way::Join) => join_2(from, to),
        (4, Way::Join) => join_4(from, to),
        (8, Way::Join) => join_8(from, to),
        _ => unreachable!("widths are 2, 4 and 8"),
    }
}

// Shifts of whole numbers, which vectorise; picking bytes out of arrays does not.
macro_rules! of_width {
    ($width:literal, $int:ty, $split:ident, $join:ident) => {
        #[inline(always)]
        fn $split(raw: &[u8], planes: &mut [u8]) {
            let (numbers, raw_tail) = raw.as_chunks::<$width>();
            let count = numbers.len();
            let (planes, tail) = planes.split_at_mut(count * $width);
            tail.copy_from_slice(raw_tail);
            let (blocks, rest) = numbers.as_chunks::<BLOCK>();
            for (n, block) in blocks.iter().enumerate() {
                for (plane, bytes) in split_block(block).iter().enumerate() {
                    planes[plane * count + n * BLOCK..][..BLOCK].copy_from_slice(bytes);
                }
            }
            for (n, number) in rest.iter().enumerate() {
                for plane in 0..$width {
                    planes[plane * count + blocks.len() * BLOCK + n] = number[plane];
                }
            }
        }

        #[inline(always)]
        fn $join(planes: &[u8], raw: &mut [u8]) {
            let (numbers, tail) = raw.as_chunks_mut::<$width>();
            let count = numbers.len();
            let (planes, planes_tail) = planes.split_at(count * $width);
            tail.copy_from_slice(planes_tail);
            let (blocks, rest) = numbers.as_chunks_mut::<BLOCK>();
            let whole = blocks.len() * BLOCK;
            for (n, block) in blocks.iter_mut().enumerate() {
                let mut numbers = [0 as $int; BLOCK];
                for plane in 0..$width {
                    let from: &[u8; BLOCK] = planes[plane * count + n * BLOCK..]
                        .first_chunk()
                        .expect("a block of every plane");
                    for (number, &byte) in numbers.iter_mut().zip(from) {
                        *number |= <$int>::from(byte) << (8 * plane);
                    }
                }
                for (to, number) in block.iter_mut().zip(&numbers) {
                    *to = number.to_le_bytes();
                }
            }
            for (n, number) in rest.iter_mut().enumerate() {
                *number = std::array::from_fn(|plane| planes[plane * count + whole + n]);
            }
        }
    };
}

of_width!(2, u16, split_2, join_2);
of_width!(4, u32, split_4, join_4);
of_width!(8, u64, split_8, join_8);

/// The planes of one block.
#[inline(always)]
fn split_block<const W: usize>(block: &[[u8; W]; BLOCK]) -> [[u8; BLOCK]; W] {
    // Separating bytes at even places from those at odd ones, log2(W) times, leaves the planes in bit-reversed order.
    let mut planes = *block
        .as_flattened()
        .as_chunks::<BLOCK>()
        .0
        .first_chunk::<W>()
        .expect("as many bytes");
    let mut parts = 1;
    while parts < W {
        let mut next = [[0; BLOCK]; W];
        let rows = W / parts;
        for part in 0..parts {
            for pair in 0..rows / 2 {
                let (first, second) = (
                    &planes[part * rows + 2 * pair],
                    &planes[part * rows + 2 * pair + 1],
                );
                let (even, odd) = even_odd(first, second);
                next[part * rows / 2 + pair] = even;
                next[(part + parts) * rows / 2 + pair] = odd;
            }
        }
        planes = next;
        parts *= 2;
    }
    planes
}

/// The bytes at even and at odd places of `first` and `second`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn even_odd(first: &[u8; BLOCK], second: &[u8; BLOCK]) -> ([u8; BLOCK], [u8; BLOCK]) {
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_loadu_si128, _mm_packus_epi16, _mm_set1_epi16, _mm_srli_epi16,
        _mm_storeu_si128,
    };
    let (mut even, mut odd) = ([0; BLOCK], [0; BLOCK]);
    // SAFETY: SSE2 is part of x86-64.
    let low = unsafe { _mm_set1_epi16(0xff) };
    for (half, from) in [first, second].into_iter().enumerate() {
        for (n, bytes) in from.as_chunks::<32>().0.iter().enumerate() {
            let at = half * BLOCK / 2 + 16 * n;
            let (to_even, to_odd) = (&mut even[at..at + 16], &mut odd[at..at + 16]);
            // SAFETY: SSE2 is part of x86-64. `bytes` holds 32 bytes, the targets 16 each; none need be aligned.
            unsafe {
                let a = _mm_loadu_si128(bytes.as_ptr().cast::<__m128i>());
                let b = _mm_loadu_si128(bytes.as_ptr().add(16).cast::<__m128i>());
                let e = _mm_packus_epi16(_mm_and_si128(a, low), _mm_and_si128(b, low));
                let o = _mm_packus_epi16(_mm_srli_epi16(a, 8), _mm_srli_epi16(b, 8));
                _mm_storeu_si128(to_even.as_mut_ptr().cast(), e);
                _mm_storeu_si128(to_odd.as_mut_ptr().cast(), o);
            }
        }
    }
    (even, odd)
}

/// The bytes at even and at odd places of `first` and `second`.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn even_odd(first: &[u8; BLOCK], second: &[u8; BLOCK]) -> ([u8; BLOCK], [u8; BLOCK]) {
    let (mut even, mut odd) = ([0; BLOCK], [0; BLOCK]);
    for (half, from) in [first, second].into_iter().enumerate() {
        for (n, pair) in from.as_chunks::<2>().0.iter().enumerate() {
            [even[half * BLOCK / 2 + n], odd[half * BLOCK / 2 + n]] = *pair;
        }
    }
    (even, odd)
}

/// Numbers handled at once: a cache line of each plane.
const BLOCK: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_lie_where_a_naive_loop_puts_them_and_join_again() {
        for width in [2, 4, 8] {
            for len in (0..40).chain([127, 128, 511, 512, 513, 1023, 4096, 5001]) {
                let raw: Vec<u8> = (0..len).map(|i| (i * 7 + i / 251) as u8).collect();
                let count = len / width;
                let mut naive = raw.clone();
                for at in 0..count * width {
                    naive[at % width * count + at / width] = raw[at];
                }
                let mut planes = vec![0; len];
                shuffle(width, &raw, &mut planes);
                assert_eq!(planes, naive, "width {width}, length {len}");
                let mut twin = vec![0; len];
                portable(width, Way::Split, &raw, &mut twin);
                assert_eq!(twin, naive, "portable, width {width}, length {len}");
                unshuffle(width, &planes, &mut twin);
                assert_eq!(twin, raw, "back, width {width}, length {len}");
                twin.fill(0);
                portable(width, Way::Join, &planes, &mut twin);
                assert_eq!(twin, raw, "portable back, width {width}, length {len}");
            }
        }
    }
}
