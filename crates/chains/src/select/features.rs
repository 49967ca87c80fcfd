//! What a glance at a page tells: how its words differ, how its bytes repeat.
//!
//! Each feature is a byte. A few windows of the page stand for all of it; pages are small enough for that.

use crate::{
    PAGE,
    simd::twin,
    steps::difference::{Estimate, SAMPLES, SPAN, estimate, estimate_counted},
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

/// Place of "bits of differences of 4-byte words".
pub const BITS4: usize = 1;

/// Place of the same, big-endian.
pub const BITS4_SWAPPED: usize = 4;

/// Place of "bytes equal to that 8 before", in 255ths.
pub const LAG8: usize = 13;

/// Looks at `page`.
#[must_use]
pub fn look(page: &[u8; PAGE]) -> Features {
    let mut features = look_at_bytes(page);
    let by_width = widths_counted(page).unwrap_or_else(|| widths(page));
    for (n, estimate) in by_width.iter().enumerate() {
        let word_bits = [64, 32, 16, 8, 32, 16][n];
        features[n] = (estimate.bits * 255 / (SAMPLES as u32 * word_bits)) as u8;
        if n < 3 {
            features[6 + n] = estimate.order as u8;
        }
    }
    features
}

/// The best orders of differences of words of 8, 4, 2 and 1 bytes, and of big-endian ones of 4 and 2. Of the last three
/// higher orders are rarely the best.
type Widths = [Estimate; 6];

twin! { fn widths(page: &[u8; PAGE]) -> Widths = widths_portable; }

#[inline(always)]
fn widths_portable(page: &[u8; PAGE]) -> Widths {
    [
        estimate::<_, 7>(PAGE / 8, |at| words(page, at, u64::from_le_bytes)),
        estimate::<_, 7>(PAGE / 4, |at| words(page, at, u32::from_le_bytes)),
        estimate::<_, 7>(PAGE / 2, |at| words(page, at, u16::from_le_bytes)),
        estimate::<_, 3>(PAGE, |at| words(page, at, u8::from_le_bytes)),
        estimate::<_, 3>(PAGE / 4, |at| words(page, at, u32::from_be_bytes)),
        estimate::<_, 3>(PAGE / 2, |at| words(page, at, u16::from_be_bytes)),
    ]
}

fn widths_counted(page: &[u8; PAGE]) -> Option<Widths> {
    Some([
        estimate_counted::<u64, 7, false>(page)?,
        estimate_counted::<u32, 7, false>(page)?,
        estimate_counted::<u16, 7, false>(page)?,
        estimate_counted::<u8, 3, false>(page)?,
        estimate_counted::<u32, 3, true>(page)?,
        estimate_counted::<u16, 3, true>(page)?,
    ])
}

twin! { fn look_at_bytes(page: &[u8; PAGE]) -> Features = look_at_bytes_portable; }

/// All features but those of [`Widths`].
#[inline(always)]
fn look_at_bytes_portable(page: &[u8; PAGE]) -> Features {
    let mut features = [0; FEATURES];
    // 16 windows of 32 bytes; 24 of each lie behind bytes of the window.
    let mut seen = [[0u8; 256]; 4];
    // In a lane each; of the 32 the last eight do not count.
    let [mut zeros, mut text, mut lag8, mut lag4, mut lag1] = [[0u8; 32]; 5];
    let mut words_seen = [0u64; 16];
    let mut again = 0u32;
    for part in page.as_chunks::<256>().0 {
        let window: &[u8; 32] = part[64..96].first_chunk().expect("32 bytes");
        for &byte in &window[8..24] {
            seen[0][usize::from(byte)] = 1;
        }
        let lanes = |at: usize| -> &[u8; 32] { part[at..].first_chunk().expect("32 bytes") };
        let (here, before8, before4, before1) = (lanes(72), lanes(64), lanes(68), lanes(71));
        for n in 0..32 {
            zeros[n] += u8::from(here[n] == 0);
            text[n] += u8::from(here[n].wrapping_sub(b' ') < 95);
            lag8[n] += u8::from(here[n] == before8[n]);
            lag4[n] += u8::from(here[n] == before4[n]);
            lag1[n] += u8::from(here[n] == before1[n]);
        }
        for (seen, bytes) in
            seen[1..]
                .iter_mut()
                .zip([&[7, 15][..], &[3, 11, 19, 27], &[1, 9, 17, 25]])
        {
            for &byte in bytes {
                seen[usize::from(window[byte])] = 1;
            }
        }
        for bytes in window.as_chunks::<8>().0 {
            let hash =
                (u64::from_le_bytes(*bytes).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize;
            again += (words_seen[hash / 64] >> (hash % 64)) as u32 & 1;
            words_seen[hash / 64] |= 1 << (hash % 64);
        }
    }
    let share = |lanes: [u8; 32]| {
        (lanes[..24]
            .iter()
            .map(|&count| u32::from(count))
            .sum::<u32>()
            * 255
            / 384) as u8
    };
    // Halves, since a sum of bytes as bytes is the fastest.
    let half = |seen: &[u8]| u32::from(seen.iter().sum::<u8>());
    let different = |seen: &[u8; 256]| (half(&seen[..128]) + half(&seen[128..])).min(255) as u8;
    features[9] = different(&seen[0]);
    features[10] = share(zeros);
    features[11] = share(text);
    // Of 64 words into 1024 places, two random ones are expected to meet.
    features[12] = (again.saturating_sub(4) * 4).min(255) as u8;
    features[LAG8] = share(lag8);
    features[14] = share(lag4);
    features[15] = share(lag1);
    let (doubles, floats) = (page.as_chunks::<8>().0, page.as_chunks::<4>().0);
    // Subnormal ones, as which processors take small integers, are not decimals, and some take long to multiply.
    let double = |bits: u64| f64::from_bits(if bits << 1 >> 53 == 0 { 0 } else { bits });
    let float = |bits: u32| f32::from_bits(if bits << 1 >> 24 == 0 { 0 } else { bits });
    features[16] = decimals(
        std::array::from_fn(|n| double(u64::from_le_bytes(doubles[n * 32 + 7]))),
        false,
    );
    features[17] = decimals(
        std::array::from_fn(|n| float(u32::from_le_bytes(floats[n * 64 + 7])).into()),
        true,
    );
    features[18] = frequent(floats);
    features[19] = different(&seen[1]);
    features[20] = different(&seen[2]);
    features[21] = different(&seen[3]);
    features
}

/// The words from the `at`-th on.
#[inline(always)]
fn words<W: Word, const LEN: usize>(
    page: &[u8; PAGE],
    at: usize,
    word: impl Fn([u8; LEN]) -> W,
) -> [W; SPAN] {
    let words: &[[u8; LEN]; SPAN] = page.as_chunks::<LEN>().0[at..]
        .first_chunk()
        .expect("a span of the page");
    // `map` would be a call of its own.
    std::array::from_fn(|n| word(words[n]))
}

/// How many of 16 floats are an integer divided by one of three powers of ten, times 15.
#[inline(always)]
fn decimals(floats: [f64; 16], is_single: bool) -> u8 {
    // More digits than a number has do no harm while the integer is exact, so that few powers need be tried.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let powers = if is_single {
        [1e1, 1e3, 1e5]
    } else {
        [1e3, 1e6, 1e10]
    };
    let most = if is_single {
        8_388_608.0
    } else {
        1_125_899_906_842_624.0
    };
    // `back` is rounded twice on its way from `scaled`; far from an integer there is no need to divide.
    let near = if is_single {
        1.0 / 4_194_304.0
    } else {
        1.0 / 1_125_899_906_842_624.0
    };
    let mut exact = [false; 16];
    for power in powers {
        let may_be = floats.iter().fold(false, |any, float| {
            let scaled = float * power;
            let nearest = (scaled + ROUND) - ROUND;
            any | ((scaled - nearest).abs() <= nearest.abs() * near)
                & (scaled.abs() < most)
                & (*float != 0.0)
        });
        if !may_be {
            continue;
        }
        for (exact, float) in exact.iter_mut().zip(floats) {
            let scaled = float * power;
            let nearest = (scaled + ROUND) - ROUND;
            let back = nearest / power;
            let same = if is_single {
                back as f32 == float as f32
            } else {
                back == float
            };
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
        most = most.max(
            sample
                .iter()
                .map(|&other| u32::from(other == word))
                .sum::<u32>(),
        );
    }
    most as u8 * 7
}
