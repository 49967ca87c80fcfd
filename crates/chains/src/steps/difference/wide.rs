//! Sums in vectors of 16 bytes: each lane adds those before it in two to four doublings, then what came before the
//! vector.
//!
//! Of 16 bytes rather than 32, whose halves no shift crosses: the detour takes longer than another vector.

use std::arch::x86_64::{
    __m128i, _mm_add_epi8, _mm_add_epi16, _mm_add_epi32, _mm_loadu_si128, _mm_set1_epi8,
    _mm_set1_epi16, _mm_set1_epi32, _mm_shuffle_epi8, _mm_slli_si128, _mm_storeu_si128,
};

use crate::word::Word;

/// Undoes `ORDER` differences of words of 1, 2 or 4 bytes, `last[j]` being the `j`-th difference at the place before.
/// Returns the words of the last incomplete vector, and leaves `last` as it is there.
#[target_feature(enable = "avx2")]
pub(super) fn sums<'w, W: Word, const ORDER: usize>(
    words: &'w mut [W],
    last: &mut [W; ORDER],
) -> &'w mut [W] {
    assert!(
        W::LEN <= 4,
        "for words of 8 bytes, additions one by one are as fast"
    );
    let done = words.len() / (16 / W::LEN) * (16 / W::LEN);
    let mut carry = last.map(|last| all::<W>(last));
    let places: [u8; 16] = std::array::from_fn(|n| (16 - W::LEN + n % W::LEN) as u8);
    // SAFETY: 16 bytes.
    let to_all = unsafe { _mm_loadu_si128(places.as_ptr().cast()) };
    for words in words[..done].chunks_exact_mut(16 / W::LEN) {
        let place = words.as_mut_ptr().cast::<__m128i>();
        // SAFETY: the chunk has 16 bytes.
        let mut values = unsafe { _mm_loadu_si128(place) };
        for carry in carry.iter_mut().rev() {
            if W::LEN == 1 {
                values = add::<W>(values, _mm_slli_si128::<1>(values));
            }
            if W::LEN <= 2 {
                values = add::<W>(values, _mm_slli_si128::<2>(values));
            }
            values = add::<W>(values, _mm_slli_si128::<4>(values));
            values = add::<W>(values, _mm_slli_si128::<8>(values));
            let before = *carry;
            // Not from the sum, so that vectors wait for one addition of each other.
            *carry = add::<W>(before, _mm_shuffle_epi8(values, to_all));
            values = add::<W>(values, before);
        }
        // SAFETY: as above.
        unsafe { _mm_storeu_si128(place, values) };
    }
    for (last, carry) in last.iter_mut().zip(carry) {
        let mut bytes = [0u8; 16];
        // SAFETY: 16 bytes.
        unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), carry) };
        *last = W::load(&bytes[..W::LEN]);
    }
    &mut words[done..]
}

#[inline]
#[target_feature(enable = "avx2")]
fn add<W: Word>(a: __m128i, b: __m128i) -> __m128i {
    match W::LEN {
        1 => _mm_add_epi8(a, b),
        2 => _mm_add_epi16(a, b),
        _ => _mm_add_epi32(a, b),
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn all<W: Word>(word: W) -> __m128i {
    match W::LEN {
        1 => _mm_set1_epi8(word.wide() as i8),
        2 => _mm_set1_epi16(word.wide() as i16),
        _ => _mm_set1_epi32(word.wide() as i32),
    }
}
