//! The counts of `noise` with AVX2.

use std::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_cmpeq_epi8, _mm256_cmpeq_epi16, _mm256_cmpeq_epi32,
    _mm256_cmpeq_epi64, _mm256_loadu_si256, _mm256_permute4x64_epi64, _mm256_set1_epi8,
    _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setzero_si256,
    _mm256_shuffle_epi8, _mm256_storeu_si256, _mm256_sub_epi8,
};

use super::{Near, PLACES, WINDOW, window};
use crate::{
    PAGE,
    simd::words::{minus, plus},
    word::Word,
};

/// As `like_bytes`.
#[target_feature(enable = "avx2")]
pub(super) fn like_bytes(page: &[u8; PAGE]) -> [u32; PLACES] {
    // SAFETY: windows are of 32 bytes.
    let load = |n: usize| unsafe { _mm256_loadu_si256(window(page, n).as_ptr().cast()) };
    let windows: [__m256i; 16] = std::array::from_fn(load);
    let mut equal = [0; PLACES];
    for one in 1..windows.len() {
        let here = windows[one];
        let rotations = [
            here,
            _mm256_permute4x64_epi64::<0b00_11_10_01>(here),
            _mm256_permute4x64_epi64::<0b01_00_11_10>(here),
            _mm256_permute4x64_epi64::<0b10_01_00_11>(here),
        ];
        let mut count = _mm256_setzero_si256();
        for other in &windows[..one] {
            for rotation in rotations {
                count = _mm256_sub_epi8(count, _mm256_cmpeq_epi8(rotation, *other));
            }
        }
        let mut counts = [0u8; 32];
        // SAFETY: 32 bytes.
        unsafe { _mm256_storeu_si256(counts.as_mut_ptr().cast(), count) };
        for (n, count) in counts.iter().enumerate() {
            equal[n % PLACES] += u32::from(*count);
        }
    }
    equal
}

/// As `near`.
#[target_feature(enable = "avx2")]
pub(super) fn near<W: Word, const SWAP: bool>(page: &[u8; PAGE]) -> Near {
    let places: [u8; 32] =
        std::array::from_fn(|n| (n ^ if SWAP { W::LEN - 1 } else { 0 }) as u8 % 16);
    // SAFETY: 32 bytes.
    let places = unsafe { _mm256_loadu_si256(places.as_ptr().cast()) };
    let (middle, high) = (all::<W>(1 << (W::BITS - 4)), all::<W>(7 << (W::BITS - 3)));
    let small = |words: __m256i| {
        equal::<W>(
            _mm256_and_si256(plus::<W>(words, middle), high),
            _mm256_setzero_si256(),
        )
    };
    let (mut once, mut twice) = (_mm256_setzero_si256(), _mm256_setzero_si256());
    for quarter in page.chunks_exact(PAGE / 4) {
        for at in (0..WINDOW * W::LEN).step_by(32) {
            let load = |at: usize| {
                // SAFETY: 32 bytes from two words behind the window's last are within the quarter, which has 1024.
                let bytes = unsafe { _mm256_loadu_si256(quarter[at..at + 32].as_ptr().cast()) };
                if SWAP {
                    _mm256_shuffle_epi8(bytes, places)
                } else {
                    bytes
                }
            };
            let (a, b, c) = (load(at), load(at + W::LEN), load(at + 2 * W::LEN));
            let first = minus::<W>(b, a);
            once = minus::<W>(once, small(first));
            twice = minus::<W>(twice, small(minus::<W>(minus::<W>(c, b), first)));
        }
    }
    Near {
        once: sum::<W>(once),
        twice: sum::<W>(twice),
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn sum<W: Word>(counts: __m256i) -> u32 {
    let mut bytes = [0u8; 32];
    // SAFETY: 32 bytes.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), counts) };
    bytes
        .chunks_exact(W::LEN)
        .map(|word| W::load(word).wide() as u32)
        .sum()
}

#[inline]
#[target_feature(enable = "avx2")]
fn all<W: Word>(word: u64) -> __m256i {
    match W::LEN {
        1 => _mm256_set1_epi8(word as i8),
        2 => _mm256_set1_epi16(word as i16),
        4 => _mm256_set1_epi32(word as i32),
        _ => _mm256_set1_epi64x(word as i64),
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn equal<W: Word>(a: __m256i, b: __m256i) -> __m256i {
    match W::LEN {
        1 => _mm256_cmpeq_epi8(a, b),
        2 => _mm256_cmpeq_epi16(a, b),
        4 => _mm256_cmpeq_epi32(a, b),
        _ => _mm256_cmpeq_epi64(a, b),
    }
}
