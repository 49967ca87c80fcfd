//! The hashes of `hash`, eight positions at a time.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm256_add_epi32, _mm256_and_si256,
    _mm256_broadcastsi128_si256, _mm256_mullo_epi32, _mm256_or_si256, _mm256_set1_epi32,
    _mm256_setr_epi8, _mm256_setr_epi32, _mm256_shuffle_epi8, _mm256_slli_epi32, _mm256_srli_epi32,
    _mm256_storeu_si256,
};

use super::hash::{BLOCK, Block, FACTORS, Hasher, POSITION_BITS, Page, TABLE_BITS};

/// Eight positions at a time. Used only where `simd::is_available` said yes.
pub(super) struct Avx2;

impl Hasher for Avx2 {
    #[inline(always)]
    fn hash(page: &Page, start: usize, block: &mut Block) {
        // SAFETY: AVX2 is there. `start` is below the page's end and the block's bytes are read up to 17 beyond its
        // end, which the page's slack has; stores are of 8 words at multiples of 8 in arrays of 64.
        unsafe {
            let windows = _mm256_setr_epi8(
                0, 1, 2, 3, 1, 2, 3, 4, 2, 3, 4, 5, 3, 4, 5, 6, //
                4, 5, 6, 7, 5, 6, 7, 8, 6, 7, 8, 9, 7, 8, 9, 10,
            );
            let factors = FACTORS.map(|factor| _mm256_set1_epi32(factor as i32));
            let tag = _mm256_set1_epi32(-(1 << POSITION_BITS));
            let mut positions = _mm256_add_epi32(
                _mm256_set1_epi32(start as i32),
                _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
            );
            for i in (0..BLOCK).step_by(8) {
                let load = |at: usize| {
                    let bytes = _mm_loadu_si128(page.as_ptr().add(start + at).cast::<__m128i>());
                    _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), windows)
                };
                let hash = _mm256_add_epi32(
                    _mm256_mullo_epi32(load(i), factors[0]),
                    _mm256_mullo_epi32(load(i + 1), factors[1]),
                );
                let entries = _mm256_or_si256(
                    _mm256_and_si256(_mm256_slli_epi32::<{ TABLE_BITS as i32 }>(hash), tag),
                    positions,
                );
                let slots = _mm256_srli_epi32::<{ 32 - TABLE_BITS as i32 }>(hash);
                _mm256_storeu_si256(block.slots.as_mut_ptr().add(i).cast::<__m256i>(), slots);
                _mm256_storeu_si256(block.entries.as_mut_ptr().add(i).cast::<__m256i>(), entries);
                positions = _mm256_add_epi32(positions, _mm256_set1_epi32(8));
            }
        }
    }
}
