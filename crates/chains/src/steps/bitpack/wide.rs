//! Blocks of bits to words and back with AVX2.
//!
//! To words: a shuffle brings the bytes of each word into a lane of its own, a shift of each lane drops the bits before
//! the word, a mask those behind it. Back: neighbours join in lanes of twice the length until lanes have 8 bytes; a
//! shift and a shuffle bring the second of a half of the vector behind the first.
//!
//! Where the bytes lie and how far to shift is the same in all blocks of one width, so it is in tables ([`Lanes`],
//! [`Joint`]). Both halves of a vector are loaded and stored by themselves, since a shuffle does not cross them.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_cvtsi32_si128, _mm_loadu_si128, _mm_setzero_si128, _mm_storeu_si128,
    _mm_unpackhi_epi64, _mm_unpacklo_epi64, _mm256_and_si256, _mm256_castsi128_si256,
    _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_inserti128_si256, _mm256_loadu_si256,
    _mm256_mullo_epi16, _mm256_or_si256, _mm256_packus_epi16, _mm256_packus_epi32,
    _mm256_permute2x128_si256, _mm256_permute4x64_epi64, _mm256_set1_epi16, _mm256_set1_epi32,
    _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_sll_epi64,
    _mm256_sllv_epi32, _mm256_sllv_epi64, _mm256_srl_epi16, _mm256_srl_epi32, _mm256_srl_epi64,
    _mm256_srli_epi16, _mm256_srli_epi32, _mm256_srli_epi64, _mm256_srlv_epi32, _mm256_srlv_epi64,
    _mm256_storeu_si256, _mm256_sub_epi16, _mm256_sub_epi32, _mm256_sub_epi64,
    _mm256_unpackhi_epi64, _mm256_unpacklo_epi64, _mm256_xor_si256,
};

use super::{BLOCK, SLACK};
use crate::word::Word;

/// The widest words of 8 bytes that have a table: beyond, a word may lie in 9 bytes.
pub(super) const WIDE_MAX: u32 = 57;

/// How words come out of the 16 bytes that each half of a vector is loaded with.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Lanes<S> {
    /// For each byte of the vector the place it comes from, or 0x80 for zero.
    shuffle: [u8; 32],
    /// For each lane how far its word lies above the lowest bit.
    shifts: S,
}

/// Fills `block` with the words of `width` bits in `bytes`, which are those of the block and [`SLACK`] more; with
/// `FOLDED` their signs are unfolded. Words of 8 bytes have at most [`WIDE_MAX`] bits.
#[target_feature(enable = "avx2")]
#[allow(
    clippy::too_many_lines,
    reason = "a SIMD kernel: one arm for each width"
)]
pub(super) fn unpack_block<W: Word, const FOLDED: bool>(
    bytes: &[u8],
    width: u32,
    block: &mut [W; BLOCK],
) {
    let width = width.min(W::BITS) as usize;
    assert!(bytes.len() == 2 * width + SLACK, "the block and its slack");
    let load = |at: usize| -> __m128i {
        debug_assert!(at + 16 <= bytes.len());
        // SAFETY: every `at` below is at most the block's length, as 16 bytes from there are within the slack.
        unsafe { _mm_loadu_si128(bytes.as_ptr().add(at).cast()) }
    };
    let halves = |low: usize, high: usize| -> __m256i {
        _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(load(low)), load(high))
    };
    let to = block.as_mut_ptr().cast::<__m256i>();
    match W::LEN {
        1 => {
            let lanes = &BYTES[width];
            let spread = _mm256_shuffle_epi8(halves(0, width), vector(&lanes.shuffle));
            // There is no shift of 16-bit lanes by different counts, but a product moves each to the top.
            let top = _mm256_mullo_epi16(spread, vector(as_bytes(&lanes.shifts)));
            let mut words = _mm256_srl_epi16(top, _mm_cvtsi32_si128(16 - width as i32));
            if FOLDED {
                let one = _mm256_set1_epi16(1);
                let signs = _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_and_si256(words, one));
                words = _mm256_xor_si256(_mm256_srli_epi16::<1>(words), signs);
                words = _mm256_and_si256(words, _mm256_set1_epi16(0xff));
            }
            let packed = _mm256_packus_epi16(words, words);
            let (low, high) = (
                _mm256_castsi256_si128(packed),
                _mm256_extracti128_si256::<1>(packed),
            );
            let both = _mm_unpacklo_epi64(low, high);
            // SAFETY: a block of bytes has 16.
            unsafe { _mm_storeu_si128(to.cast(), both) };
        }
        2 => {
            let mask = _mm256_set1_epi32(((1u32 << width) - 1) as i32);
            let bytes = halves(0, width);
            let mut fours = [_mm256_setzero_si256(); 2];
            for (four, lanes) in fours.iter_mut().zip(&PAIRS[width]) {
                let spread = _mm256_shuffle_epi8(bytes, vector(&lanes.shuffle));
                *four = _mm256_and_si256(
                    _mm256_srlv_epi32(spread, vector(as_bytes(&lanes.shifts))),
                    mask,
                );
            }
            let mut words = _mm256_packus_epi32(fours[0], fours[1]);
            if FOLDED {
                let one = _mm256_set1_epi16(1);
                let signs = _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_and_si256(words, one));
                words = _mm256_xor_si256(_mm256_srli_epi16::<1>(words), signs);
            }
            // SAFETY: a block of 2-byte words has 32 bytes.
            unsafe { _mm256_storeu_si256(to, words) };
        }
        4 => {
            let lanes = &FOURS[width];
            let (shuffle, above) = (vector(&lanes.shuffle), vector(&ABOVE[width]));
            let shifts = vector(as_bytes(&lanes.shifts));
            let beyond = _mm256_sub_epi32(_mm256_set1_epi32(32), shifts);
            let mask = _mm256_set1_epi32(((1u64 << width) - 1) as u32 as i32);
            for n in 0..2 {
                let bytes = halves(n * width, (2 * n + 1) * width / 2);
                let low = _mm256_srlv_epi32(_mm256_shuffle_epi8(bytes, shuffle), shifts);
                let high = _mm256_sllv_epi32(_mm256_shuffle_epi8(bytes, above), beyond);
                let mut words = _mm256_and_si256(_mm256_or_si256(low, high), mask);
                if FOLDED {
                    let one = _mm256_set1_epi32(1);
                    let signs =
                        _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_and_si256(words, one));
                    words = _mm256_xor_si256(_mm256_srli_epi32::<1>(words), signs);
                }
                // SAFETY: a block of 4-byte words has 64 bytes.
                unsafe { _mm256_storeu_si256(to.add(n), words) };
            }
        }
        _ => {
            let width = width.min(WIDE_MAX as usize);
            let mask = _mm256_set1_epi64x(((1u64 << width) - 1) as i64);
            for n in 0..4 {
                let lanes = &EIGHTS[width][n % 2];
                let bytes = halves(n * width / 2, (2 * n + 1) * width / 4);
                let spread = _mm256_shuffle_epi8(bytes, vector(&lanes.shuffle));
                let mut words = _mm256_and_si256(
                    _mm256_srlv_epi64(spread, vector(as_bytes(&lanes.shifts))),
                    mask,
                );
                if FOLDED {
                    let one = _mm256_set1_epi64x(1);
                    let signs =
                        _mm256_sub_epi64(_mm256_setzero_si256(), _mm256_and_si256(words, one));
                    words = _mm256_xor_si256(_mm256_srli_epi64::<1>(words), signs);
                }
                // SAFETY: a block of 8-byte words has 128 bytes.
                unsafe { _mm256_storeu_si256(to.add(n), words) };
            }
        }
    }
}

/// Whether [`pack_block`] packs words of that many bits.
pub(super) fn packs<W: Word>(width: u32) -> bool {
    match W::LEN {
        1 | 2 => true,
        _ => width <= 30 || width == 32,
    }
}

/// Packs `block` in `width` bits a word, which [`packs`], to the front of `out`, and writes whatever to the rest of it:
/// `out` is as long as the packed block and [`SLACK`].
#[target_feature(enable = "avx2")]
pub(super) fn pack_block<W: Word>(block: &[W; BLOCK], width: u32, out: &mut [u8]) {
    let width = width.min(W::BITS.min(32)) as usize;
    assert!(out.len() == 2 * width + SLACK, "the block and its slack");
    let from = block.as_ptr().cast::<__m256i>();
    let count = |bits: usize| _mm_cvtsi32_si128(bits as i32);
    let mut store = |at: usize, half: __m128i| {
        debug_assert!(at + 16 <= out.len());
        // SAFETY: every `at` below is at most the block's length, as 16 bytes from there are within the slack.
        unsafe { _mm_storeu_si128(out.as_mut_ptr().add(at).cast(), half) };
    };
    match W::LEN {
        1 => {
            // SAFETY: a block of bytes has 16.
            let words = unsafe { _mm_loadu_si128(from.cast()) };
            let pairs = join::<8>(_mm256_castsi128_si256(words), count(8 - width));
            let fours = join::<16>(pairs, count(16 - 2 * width));
            let eights = join::<32>(fours, count(32 - 4 * width));
            store(0, _mm256_castsi256_si128(eights));
            store(
                width,
                _mm_unpackhi_epi64(_mm256_castsi256_si128(eights), _mm_setzero_si128()),
            );
        }
        2 => {
            // SAFETY: a block of 2-byte words has 32 bytes.
            let words = unsafe { _mm256_loadu_si256(from) };
            let pairs = join::<16>(words, count(16 - width));
            let fours = join::<32>(pairs, count(32 - 2 * width));
            let joined = join_eights(fours, &JOINTS[2 * width]);
            store(0, _mm256_castsi256_si128(joined));
            store(width, _mm256_extracti128_si256::<1>(joined));
        }
        _ => {
            for n in 0..2 {
                // SAFETY: a block of 4-byte words has 64 bytes, and one of 8-byte words 128.
                let pairs = unsafe {
                    if W::LEN == 4 {
                        join::<32>(_mm256_loadu_si256(from.add(n)), count(32 - width))
                    } else {
                        let (a, b) = (
                            _mm256_loadu_si256(from.add(2 * n)),
                            _mm256_loadu_si256(from.add(2 * n + 1)),
                        );
                        let (first, second) =
                            (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
                        let pairs = _mm256_or_si256(first, _mm256_sll_epi64(second, count(width)));
                        _mm256_permute4x64_epi64::<0b11_01_10_00>(pairs)
                    }
                };
                let joint = &JOINTS[width];
                let joined = join_eights(pairs, joint);
                // The second half begins with what the first has of its byte, if anything.
                let first = _mm256_permute2x128_si256::<0x08>(joined, joined);
                let joined =
                    _mm256_or_si256(joined, _mm256_shuffle_epi8(first, vector(&joint.shared)));
                store(n * width, _mm256_castsi256_si128(joined));
                store(
                    (2 * n + 1) * width / 2,
                    _mm256_extracti128_si256::<1>(joined),
                );
            }
        }
    }
}

/// Of each two lanes of `LEN` bits one, the second moved down by `gap`, the bits that it has no use for.
#[inline]
#[target_feature(enable = "avx2")]
fn join<const LEN: u32>(lanes: __m256i, gap: __m128i) -> __m256i {
    let (low, high) = match LEN {
        8 => (_mm256_set1_epi16(0xff), _mm256_set1_epi16(!0xff)),
        16 => (_mm256_set1_epi32(0xffff), _mm256_set1_epi32(!0xffff)),
        _ => (
            _mm256_set1_epi64x(0xffff_ffff),
            _mm256_set1_epi64x(!0xffff_ffff),
        ),
    };
    let (first, second) = (_mm256_and_si256(lanes, low), _mm256_and_si256(lanes, high));
    let second = match LEN {
        8 => _mm256_srl_epi16(second, gap),
        16 => _mm256_srl_epi32(second, gap),
        _ => _mm256_srl_epi64(second, gap),
    };
    _mm256_or_si256(first, second)
}

/// In each half the second lane of 8 bytes behind the bits of the first.
#[inline]
#[target_feature(enable = "avx2")]
fn join_eights(lanes: __m256i, joint: &Joint) -> __m256i {
    let shifted = _mm256_sllv_epi64(lanes, vector(as_bytes(&joint.shifts)));
    let first = _mm256_shuffle_epi8(shifted, vector(&joint.first));
    let second = _mm256_shuffle_epi8(shifted, vector(&joint.second));
    _mm256_or_si256(first, second)
}

/// How lanes of 8 bytes join, of twice as many bits each as the number of the joint. The second half starts in the
/// middle of a byte if that is where the first ends.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Joint {
    shifts: [u64; 4],
    first: [u8; 32],
    second: [u8; 32],
    /// For the first byte of the second half the place in the first half of the byte that they share.
    shared: [u8; 32],
}

static JOINTS: [Joint; 33] = {
    let mut all = [Joint {
        shifts: [0; 4],
        first: [0x80; 32],
        second: [0x80; 32],
        shared: [0x80; 32],
    }; 33];
    let mut number = 0;
    while number < all.len() {
        let bits = 2 * number;
        let joint = &mut all[number];
        let mut half = 0;
        while half < 2 {
            let start = half * 2 * bits % 8;
            let to = (start + bits) / 8;
            joint.shifts[2 * half] = start as u64;
            joint.shifts[2 * half + 1] = ((start + bits) % 8) as u64;
            let mut byte = 0;
            while byte < 8 {
                joint.first[16 * half + byte] = byte as u8;
                if to + byte < 16 {
                    joint.second[16 * half + to + byte] = 8 + byte as u8;
                }
                byte += 1;
            }
            half += 1;
        }
        if 2 * bits % 8 != 0 {
            joint.shared[16] = (2 * bits / 8) as u8;
        }
        number += 1;
    }
    all
};

#[inline]
#[target_feature(enable = "avx2")]
fn vector(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: 32 bytes.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// Shifts as the vector that they are.
#[inline]
fn as_bytes<T: Shift, const N: usize>(shifts: &[T; N]) -> &[u8; 32] {
    const { assert!(size_of::<[T; N]>() == 32) };
    // SAFETY: 32 bytes, as just asserted, and integers have no padding.
    unsafe { &*shifts.as_ptr().cast() }
}

trait Shift {}
impl Shift for u16 {}
impl Shift for u32 {}
impl Shift for u64 {}

/// Words of a byte in lanes of two; instead of shifts, factors that bring the word's highest bit to the lane's.
static BYTES: [Lanes<[u16; 16]>; 9] = {
    let mut all = [Lanes {
        shuffle: [0x80; 32],
        shifts: [0; 16],
    }; 9];
    let mut width = 1;
    while width < all.len() {
        let mut n = 0;
        while n < 16 {
            let bit = n % 8 * width;
            place(&mut all[width].shuffle, 2, n, bit / 8);
            all[width].shifts[n] = 1 << (16 - bit % 8 - width);
            n += 1;
        }
        width += 1;
    }
    all
};

/// Words of two bytes in lanes of four: of each half of the bytes the first four words, and the other four.
static PAIRS: [[Lanes<[u32; 8]>; 2]; 17] = {
    let mut all = [[Lanes {
        shuffle: [0x80; 32],
        shifts: [0; 8],
    }; 2]; 17];
    let mut width = 0;
    while width < all.len() {
        let mut n = 0;
        while n < 16 {
            let bit = n % 8 * width;
            let lane = n / 8 * 4 + n % 4;
            let lanes = &mut all[width][n / 4 % 2];
            place(&mut lanes.shuffle, 4, lane, bit / 8);
            lanes.shifts[lane] = (bit % 8) as u32;
            n += 1;
        }
        width += 1;
    }
    all
};

/// Words of four bytes. The halves begin at every fourth word, the odd ones at half a byte if the width is odd.
static FOURS: [Lanes<[u32; 8]>; 33] = {
    let mut all = [Lanes {
        shuffle: [0x80; 32],
        shifts: [0; 8],
    }; 33];
    let mut width = 0;
    while width < all.len() {
        let mut n = 0;
        while n < 8 {
            let bit = 4 * width * (n / 4) % 8 + n % 4 * width;
            place(&mut all[width].shuffle, 4, n, bit / 8);
            all[width].shifts[n] = (bit % 8) as u32;
            n += 1;
        }
        width += 1;
    }
    all
};

/// The byte behind the four of each lane of [`FOURS`], alone in its lane.
static ABOVE: [[u8; 32]; 33] = {
    let mut all = [[0x80; 32]; 33];
    let mut width = 0;
    while width < all.len() {
        let mut n = 0;
        while n < 8 {
            let from = FOURS[width].shuffle[4 * n] + 4;
            if from < 16 {
                all[width][4 * n] = from;
            }
            n += 1;
        }
        width += 1;
    }
    all
};

/// Words of eight bytes, in the first and in the second of two vectors: halves begin at every second word.
static EIGHTS: [[Lanes<[u64; 4]>; 2]; WIDE_MAX as usize + 1] = {
    let mut all = [[Lanes {
        shuffle: [0x80; 32],
        shifts: [0; 4],
    }; 2]; WIDE_MAX as usize + 1];
    let mut width = 0;
    while width < all.len() {
        let mut n = 0;
        while n < 8 {
            let bit = 2 * width * (n / 2) % 8 + n % 2 * width;
            let lanes = &mut all[width][n / 4];
            place(&mut lanes.shuffle, 8, n % 4, bit / 8);
            lanes.shifts[n % 4] = (bit % 8) as u64;
            n += 1;
        }
        width += 1;
    }
    all
};

/// Has lane `n` of `len` bytes take the bytes from `from` on, of which those beyond 15 hold nothing of its word.
const fn place(shuffle: &mut [u8; 32], len: usize, n: usize, from: usize) {
    let mut byte = 0;
    while byte < len {
        shuffle[n * len + byte] = if from + byte < 16 {
            (from + byte) as u8
        } else {
            0x80
        };
        byte += 1;
    }
}
