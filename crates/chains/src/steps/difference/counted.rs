//! Estimates in vectors of 32 bytes, on processors that count the zeros of each word of a vector.
//!
//! A difference of order `k` is that of order `k - 1` less the one at the word before. So the words are loaded where
//! they lie and one to six places before, as many vectors as there are orders, and nothing moves between lanes
//! afterwards. Vectors of 64 bytes, which these processors have too, are a little faster here, and all that comes after
//! is 3 to 10 % slower.

use std::arch::x86_64::{
    __m256i, _mm_extract_epi16, _mm_hadd_epi16, _mm_minpos_epu16, _mm_or_si128, _mm_set1_epi16,
    _mm_setzero_si128, _mm_sub_epi16, _mm_unpackhi_epi64, _mm256_add_epi32, _mm256_castsi256_si128,
    _mm256_cvtepi32_epi16, _mm256_cvtepu8_epi32, _mm256_cvtepu16_epi32, _mm256_extracti128_si256,
    _mm256_loadu_si256, _mm256_lzcnt_epi32, _mm256_lzcnt_epi64, _mm256_set_epi64x,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_ternarylogic_epi64,
};

use super::{Estimate, ORDER_MAX, SAMPLES, SPAN, WINDOWS};
use crate::{
    simd::words::{minus, plus},
    word::Word,
};

/// [`super::estimate`] of the words in `bytes`, at least [`SPAN`], whose bytes are the other way round if `SWAPPED`.
#[target_feature(enable = "avx2,avx512f,avx512cd,avx512vl")]
pub(super) fn estimate<W: Word, const ORDERS: usize, const SWAPPED: bool>(
    bytes: &[u8],
) -> Estimate {
    let count = bytes.len() / W::LEN;
    let apart = (count - SPAN) / (WINDOWS - 1);
    // Of each order the zeros before the longest of four folded differences, summed over all fours.
    let mut zeros = [_mm256_setzero_si256(); ORDERS];
    // Every eighth word in a lane, in two vectors if these are words of eight bytes.
    let parts = W::LEN.div_ceil(4);
    for n in 0..WINDOWS * parts {
        let span = &bytes[n / parts * apart * W::LEN..][..SPAN * W::LEN];
        let mut longest = [_mm256_setzero_si256(); ORDERS];
        for start in (ORDER_MAX * W::LEN + n % parts * 32..span.len()).step_by(parts * 32) {
            let mut words = [_mm256_setzero_si256(); ORDERS];
            for (back, words) in words.iter_mut().enumerate() {
                *words = load::<W, SWAPPED>(&span[start - back * W::LEN..]);
            }
            for (order, longest) in longest.iter_mut().enumerate() {
                // `longest | word ^ 2 * word`, which has as many bits as the longest folded one.
                let twice = plus::<W>(words[0], words[0]);
                *longest = _mm256_ternarylogic_epi64::<0xf6>(*longest, words[0], twice);
                for back in 0..ORDERS - 1 - order {
                    words[back] = minus::<W>(words[back], words[back + 1]);
                }
            }
        }
        for (zeros, longest) in zeros.iter_mut().zip(longest) {
            *zeros = _mm256_add_epi32(*zeros, leading_zeros::<W>(longest));
        }
    }
    let mut rows = [_mm_setzero_si128(); 8];
    for (row, zeros) in rows.iter_mut().zip(zeros) {
        *row = _mm256_cvtepi32_epi16(zeros);
    }
    let [a, b, c, d, e, f, g, h] = rows;
    let low = _mm_hadd_epi16(_mm_hadd_epi16(a, b), _mm_hadd_epi16(c, d));
    let high = _mm_hadd_epi16(_mm_hadd_epi16(e, f), _mm_hadd_epi16(g, h));
    let all = (if W::LEN == 8 { 64 } else { 32 }) * SAMPLES / 4;
    let bits = _mm_sub_epi16(_mm_set1_epi16(all as i16), _mm_hadd_epi16(low, high));
    // The first of the least.
    let least = _mm_minpos_epu16(bits);
    Estimate {
        order: _mm_extract_epi16::<1>(least) as usize,
        bits: 4 * _mm_extract_epi16::<0>(least) as u32,
    }
}

/// The first 32 bytes of `bytes`.
#[inline]
#[target_feature(enable = "avx2,avx512f,avx512cd,avx512vl")]
fn load<W: Word, const SWAPPED: bool>(bytes: &[u8]) -> __m256i {
    // SAFETY: the slice has them.
    let words = unsafe { _mm256_loadu_si256(bytes[..32].as_ptr().cast()) };
    if !SWAPPED {
        return words;
    }
    let (low, high) = match W::LEN {
        1 => return words,
        2 => (0x0607_0405_0203_0001, 0x0e0f_0c0d_0a0b_0809),
        4 => (0x0405_0607_0001_0203, 0x0c0d_0e0f_0809_0a0b),
        _ => (0x0001_0203_0405_0607, 0x0809_0a0b_0c0d_0e0f),
    };
    _mm256_shuffle_epi8(words, _mm256_set_epi64x(high, low, high, low))
}

/// The zeros before the longest of each four words, as if words of one and two bytes had four. Of these `longest` still
/// has several in a row.
#[inline]
#[target_feature(enable = "avx2,avx512f,avx512cd,avx512vl")]
fn leading_zeros<W: Word>(longest: __m256i) -> __m256i {
    let halves = _mm_or_si128(
        _mm256_castsi256_si128(longest),
        _mm256_extracti128_si256::<1>(longest),
    );
    match W::LEN {
        8 => _mm256_lzcnt_epi64(longest),
        4 => _mm256_lzcnt_epi32(longest),
        2 => _mm256_lzcnt_epi32(_mm256_cvtepu16_epi32(halves)),
        _ => {
            let quarters = _mm_or_si128(halves, _mm_unpackhi_epi64(halves, halves));
            _mm256_lzcnt_epi32(_mm256_cvtepu8_epi32(quarters))
        }
    }
}
