//! What a glance at a page tells: how its words differ, how its bytes repeat.
//!
//! Each feature is a byte. A few windows of the page stand for all of it; pages are small enough for that.

use crate::{
    PAGE,
    simd::twin,
    steps::difference::{SAMPLES, best_order},
    word::{Word, read},
};

/// How many there are.
pub const FEATURES: usize = 22;

/// One number for each of [`NAMES`].
pub type Features = [u8; FEATURES];

/// What they are.
pub const NAMES: [&str; FEATURES] = [
    "bits of differences of 8-byte words",
    "bits of differences of 4-byte words",
    "bits of differences of 2-byte words",
    "bits of differences of bytes",
    "bits of differences of 4-byte words, big-endian",
    "bits of differences of 2-byte words, big-endian",
    "order of differences of 8-byte words",
    "order of differences of 4-byte words",
    "order of differences of 2-byte words",
    "different bytes",
    "zero bytes",
    "bytes of text",
    "8-byte words seen before",
    "bytes equal to that 8 before",
    "bytes equal to that 4 before",
    "bytes equal to that before",
    "decimal doubles",
    "decimal floats",
    "most frequent 4-byte word",
    "different highest bytes of 8-byte words",
    "different highest bytes of 4-byte words",
    "different highest bytes of 2-byte words",
];

/// Whether a page looks as if nothing could pack it: its bytes are as different as random ones, no word came twice, and
/// differences at no width need fewer bits.
#[must_use]
pub fn is_noise(features: &Features) -> bool {
    const FULL: u8 = 244;
    features[..6].iter().all(|&bits| bits >= FULL) && features[9] >= 140 && features[12] == 0
}

twin! {
    /// Looks at `page`.
    pub fn look(page: &[u8; PAGE]) -> Features = look_portable;
}

#[inline(always)]
fn look_portable(page: &[u8; PAGE]) -> Features {
    let mut features = [0; FEATURES];
    let (mut words8, mut words4, mut words2) = ([0u64; PAGE / 8], [0u32; PAGE / 4], [0u16; PAGE / 2]);
    read(page, &mut words8);
    read(page, &mut words4);
    read(page, &mut words2);
    let (eight, four, two) = (differences(&words8[..]), differences(&words4[..]), differences(&words2[..]));
    features[0] = eight.0;
    features[1] = four.0;
    features[2] = two.0;
    features[3] = differences(&page[..]).0;
    features[4] = differences(&swapped(&words4)[..]).0;
    features[5] = differences(&swapped(&words2)[..]).0;
    features[6] = eight.1;
    features[7] = four.1;
    features[8] = two.1;

    // 16 windows of 32 bytes; 24 of each lie behind bytes of the window.
    let mut seen = [0u64; 4];
    let (mut zeros, mut text, mut lag8, mut lag4, mut lag1) = (0u32, 0u32, 0u32, 0u32, 0u32);
    let mut words_seen = [0u64; 16];
    let mut again = 0u32;
    let mut high = [[0u64; 4]; 3];
    for window in page.as_chunks::<256>().0.iter().map(|part| &part[64..96]) {
        for &byte in &window[8..24] {
            seen[usize::from(byte >> 6)] |= 1 << (byte & 63);
        }
        for n in 8..32 {
            zeros += u32::from(window[n] == 0);
            text += u32::from(matches!(window[n], b' '..=b'~' | b'\n'));
            lag8 += u32::from(window[n] == window[n - 8]);
            lag4 += u32::from(window[n] == window[n - 4]);
            lag1 += u32::from(window[n] == window[n - 1]);
        }
        for (high, width) in high.iter_mut().zip([8, 4, 2]) {
            for byte in window.iter().skip(width - 1).step_by(width) {
                high[usize::from(byte >> 6)] |= 1 << (byte & 63);
            }
        }
        for bytes in window.as_chunks::<8>().0 {
            let hash = (u64::from_le_bytes(*bytes).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize;
            again += u32::from(words_seen[hash / 64] >> (hash % 64) & 1 == 1);
            words_seen[hash / 64] |= 1 << (hash % 64);
        }
    }
    let share = |count: u32| (count * 255 / 384) as u8;
    let different = |seen: &[u64; 4]| seen.iter().map(|bits| bits.count_ones()).sum::<u32>().min(255) as u8;
    features[9] = different(&seen);
    features[10] = share(zeros);
    features[11] = share(text);
    // Of 64 words into 1024 places, two random ones are expected to meet.
    features[12] = (again.saturating_sub(4) * 4).min(255) as u8;
    features[13] = share(lag8);
    features[14] = share(lag4);
    features[15] = share(lag1);
    features[16] = decimals(std::array::from_fn(|n| f64::from_bits(words8[n * 32 + 7])), false);
    features[17] = decimals(std::array::from_fn(|n| f64::from(f32::from_bits(words4[n * 64 + 7]))), true);
    features[18] = frequent(&words4);
    features[19] = different(&high[0]);
    features[20] = different(&high[1]);
    features[21] = different(&high[2]);
    features
}

/// The best order of differences, with the bits of each as a share of 255 of the word's.
#[inline(always)]
fn differences<W: Word>(words: &[W]) -> (u8, u8) {
    let estimate = best_order(words);
    ((estimate.bits * 255 / (SAMPLES as u32 * W::BITS)) as u8, estimate.order as u8)
}

/// How many of 16 floats are an integer divided by one of three powers of ten, times 15.
#[inline(always)]
fn decimals(floats: [f64; 16], is_single: bool) -> u8 {
    // More digits than a number has do no harm while the integer is exact, so that few powers need be tried.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let powers = if is_single { [1e1, 1e3, 1e5] } else { [1e3, 1e6, 1e10] };
    let most = if is_single { 8_388_608.0 } else { 1_125_899_906_842_624.0 };
    let mut exact = [false; 16];
    for power in powers {
        for (exact, float) in exact.iter_mut().zip(floats) {
            let scaled = float * power;
            let nearest = (scaled + ROUND) - ROUND;
            let back = nearest / power;
            let same = if is_single { back as f32 == float as f32 } else { back == float };
            *exact |= same && scaled.abs() < most && float != 0.0;
        }
    }
    exact.iter().filter(|exact| **exact).count() as u8 * 15
}

/// How often the most frequent of 32 words occurs among them, times 7.
#[inline(always)]
fn frequent(words: &[u32; PAGE / 4]) -> u8 {
    let sample: [u32; 32] = std::array::from_fn(|n| words[n * 32 + 5]);
    let most = sample.iter().map(|word| sample.iter().filter(|other| *other == word).count()).max();
    most.unwrap_or(0) as u8 * 7
}

#[inline(always)]
fn swapped<W: Word, const N: usize>(words: &[W; N]) -> [W; N] {
    let mut swapped = *words;
    swapped.iter_mut().for_each(|word| *word = word.swap());
    swapped
}
