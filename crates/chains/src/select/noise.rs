//! Whether a page looks as if nothing could pack it, said in a fraction of the time that any codec takes to find out.
//!
//! Noise here is what has none of three signs: bytes at some place of the 8-byte words that take few values (text, exponents,
//! high bytes of integers); a word that came before; neighbours that are near each other at some width, as they are
//! where levels vary but not suddenly. Signs are looked for in that order, so that most other pages leave early.

use crate::{PAGE, simd::twin, word::Word};

twin! {
    /// Whether `page` shows no sign of anything that packs.
    pub fn is_noise(page: &[u8; PAGE]) -> bool = is_noise_portable;
}

#[inline(always)]
fn is_noise_portable(page: &[u8; PAGE]) -> bool {
    has_many_values(page) && !has_repeats(page) && !has_near_neighbours(page)
}

/// The 8-byte words of 16 windows of 32 bytes.
#[inline(always)]
fn sample(page: &[u8; PAGE]) -> impl Iterator<Item = &[u8; 8]> {
    page.as_chunks::<256>().0.iter().flat_map(|part| part[96..128].as_chunks::<8>().0)
}

/// Whether all 8 places of a word take many values: 64 random bytes are expected to have 56.7 different ones, with a deviation of
/// 2.4.
#[inline(always)]
fn has_many_values(page: &[u8; PAGE]) -> bool {
    const MANY: u32 = 47;
    let mut seen = [[0u8; 256]; 8];
    for word in sample(page) {
        for (seen, byte) in seen.iter_mut().zip(word) {
            seen[usize::from(*byte)] = 1;
        }
    }
    seen.iter().all(|seen| seen.iter().map(|&seen| u32::from(seen)).sum::<u32>() >= MANY)
}

/// Whether more words come twice in the sample than hashing explains: 2 of 64 into 1024 places.
#[inline(always)]
fn has_repeats(page: &[u8; PAGE]) -> bool {
    const FEW: u64 = 9;
    let mut seen = [0u64; 16];
    let mut again = 0;
    for word in sample(page) {
        let hash = (u64::from_le_bytes(*word).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize;
        again += seen[hash / 64] >> (hash % 64) & 1;
        seen[hash / 64] |= 1 << (hash % 64);
    }
    again > FEW
}

/// Whether first or second differences are small more often than by chance, at any width and in either byte order.
#[inline(always)]
fn has_near_neighbours(page: &[u8; PAGE]) -> bool {
    are_near(page, u64::from_le_bytes)
        || are_near(page, u32::from_le_bytes)
        || are_near(page, u16::from_le_bytes)
        || are_near(page, u8::from_le_bytes)
        || are_near(page, u32::from_be_bytes)
        || are_near(page, u16::from_be_bytes)
}

#[inline(always)]
fn are_near<W: Word, const LEN: usize>(page: &[u8; PAGE], word: impl Fn([u8; LEN]) -> W) -> bool {
    const WINDOW: usize = 32;
    // An eighth of random words are below an eighth of the range; 128 have 16 such, with a deviation of 3.7.
    const CHANCE: u32 = 34;
    let words = page.as_chunks::<LEN>().0;
    let (mut first, mut second) = (0, 0);
    for quarter in words.chunks_exact(words.len() / 4) {
        let window: [W; WINDOW + 2] = std::array::from_fn(|n| word(quarter[n]));
        let once: [W; WINDOW + 1] = std::array::from_fn(|n| window[n + 1].minus(window[n]));
        let twice: [W; WINDOW] = std::array::from_fn(|n| once[n + 1].minus(once[n]));
        let small = |word: &W| u8::from(word.zigzag().is_below(W::BITS - 3));
        first += u32::from(once[..WINDOW].iter().map(small).sum::<u8>());
        second += u32::from(twice.iter().map(small).sum::<u8>());
    }
    first > CHANCE || second > CHANCE
}
