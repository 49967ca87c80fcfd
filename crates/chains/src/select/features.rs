//! What a glance at a page tells: how its words differ, how its bytes repeat.
//!
//! Each feature is a byte. A few windows of the page stand for all of it; pages are small enough for that.

use crate::{
    PAGE,
    simd::twin,
    steps::difference::{SAMPLES, SPAN, estimate},
    word::Word,
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

twin! {
    /// Looks at `page`.
    pub fn look(page: &[u8; PAGE]) -> Features = look_portable;
}

#[inline(always)]
fn look_portable(page: &[u8; PAGE]) -> Features {
    let mut features = [0; FEATURES];
    let eight = differences::<_, 7>(|at| words(page, at, u64::from_le_bytes));
    let four = differences::<_, 7>(|at| words(page, at, u32::from_le_bytes));
    let two = differences::<_, 7>(|at| words(page, at, u16::from_le_bytes));
    features[0] = eight.0;
    features[1] = four.0;
    features[2] = two.0;
    // Of these higher orders are rarely the best.
    features[3] = differences::<_, 3>(|at| words(page, at, u8::from_le_bytes)).0;
    features[4] = differences::<_, 3>(|at| words(page, at, u32::from_be_bytes)).0;
    features[5] = differences::<_, 3>(|at| words(page, at, u16::from_be_bytes)).0;
    features[6] = eight.1;
    features[7] = four.1;
    features[8] = two.1;

    // 16 windows of 32 bytes; 24 of each lie behind bytes of the window.
    let mut seen = [[0u8; 256]; 4];
    let (mut zeros, mut text, mut lag8, mut lag4, mut lag1) = (0u32, 0u32, 0u32, 0u32, 0u32);
    let mut words_seen = [0u64; 16];
    let mut again = 0u32;
    for part in page.as_chunks::<256>().0 {
        let window: &[u8; 32] = part[64..96].first_chunk().expect("32 bytes");
        for &byte in &window[8..24] {
            seen[0][usize::from(byte)] = 1;
        }
        let here: [u8; 24] = std::array::from_fn(|n| window[n + 8]);
        let count = |is: [bool; 24]| u32::from(is.iter().map(|&is| u8::from(is)).sum::<u8>());
        zeros += count(std::array::from_fn(|n| here[n] == 0));
        text += count(std::array::from_fn(|n| here[n].wrapping_sub(b' ') < 95));
        lag8 += count(std::array::from_fn(|n| here[n] == window[n]));
        lag4 += count(std::array::from_fn(|n| here[n] == window[n + 4]));
        lag1 += count(std::array::from_fn(|n| here[n] == window[n + 7]));
        for (seen, bytes) in seen[1..].iter_mut().zip([&[7, 15][..], &[3, 11, 19, 27], &[1, 9, 17, 25]]) {
            for &byte in bytes {
                seen[usize::from(window[byte])] = 1;
            }
        }
        for bytes in window.as_chunks::<8>().0 {
            let hash = (u64::from_le_bytes(*bytes).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize;
            again += (words_seen[hash / 64] >> (hash % 64)) as u32 & 1;
            words_seen[hash / 64] |= 1 << (hash % 64);
        }
    }
    let share = |count: u32| (count * 255 / 384) as u8;
    let different = |seen: &[u8; 256]| seen.iter().map(|&seen| u32::from(seen)).sum::<u32>().min(255) as u8;
    features[9] = different(&seen[0]);
    features[10] = share(zeros);
    features[11] = share(text);
    // Of 64 words into 1024 places, two random ones are expected to meet.
    features[12] = (again.saturating_sub(4) * 4).min(255) as u8;
    features[13] = share(lag8);
    features[14] = share(lag4);
    features[15] = share(lag1);
    let (doubles, floats) = (page.as_chunks::<8>().0, page.as_chunks::<4>().0);
    features[16] = decimals(std::array::from_fn(|n| f64::from_le_bytes(doubles[n * 32 + 7])), false);
    features[17] = decimals(std::array::from_fn(|n| f64::from(f32::from_le_bytes(floats[n * 64 + 7]))), true);
    features[18] = frequent(floats);
    features[19] = different(&seen[1]);
    features[20] = different(&seen[2]);
    features[21] = different(&seen[3]);
    features
}

/// The best order of differences, with the bits of each as a share of 255 of the word's.
#[inline(always)]
fn differences<W: Word, const ORDERS: usize>(window: impl Fn(usize) -> [W; SPAN]) -> (u8, u8) {
    let estimate = estimate::<W, ORDERS>(PAGE / W::LEN, window);
    ((estimate.bits * 255 / (SAMPLES as u32 * W::BITS)) as u8, estimate.order as u8)
}

/// The words from the `at`-th on.
#[inline(always)]
fn words<W: Word, const LEN: usize>(page: &[u8; PAGE], at: usize, word: impl Fn([u8; LEN]) -> W) -> [W; SPAN] {
    let words: &[[u8; LEN]; SPAN] = page.as_chunks::<LEN>().0[at..].first_chunk().expect("a span of the page");
    // `map` would be a call of its own.
    std::array::from_fn(|n| word(words[n]))
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
fn frequent(words: &[[u8; 4]]) -> u8 {
    let sample: [u32; 32] = std::array::from_fn(|n| u32::from_le_bytes(words[n * 32 + 5]));
    let mut most = 0;
    for word in sample {
        most = most.max(sample.iter().map(|&other| u32::from(other == word)).sum::<u32>());
    }
    most as u8 * 7
}
