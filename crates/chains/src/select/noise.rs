//! Whether a page looks as if nothing could pack it, said in a fraction of the time that any codec takes to find out.
//!
//! Noise here is what has none of two signs: bytes that are alike at the same place of 8-byte words (text, exponents,
//! high bytes of integers, words that come again); neighbours that are near each other at some width, as they are where
//! levels vary but not suddenly. Most other pages show the first, and leave early.

#[cfg(target_arch = "x86_64")]
mod wide;

#[cfg(target_arch = "x86_64")]
use crate::simd;
use crate::{PAGE, word::Word};

/// Whether `page` shows no sign of anything that packs.
#[must_use]
pub fn is_noise(page: &[u8; PAGE]) -> bool {
    !has_like_bytes(page) && !has_near_neighbours(page)
}

/// Whether nothing that counts bytes or looks for repeats packs `page` to nine tenths: what [`is_noise`] says of a
/// sample, and of repeats of neighbours only, this finds out of all of it, in twenty times the time.
#[must_use]
pub fn has_no_repeats(page: &[u8; PAGE]) -> bool {
    // Bytes by chance have a sum of squares of 69,632. With this one their entropy is at least 7.2 bits, as Rényi's,
    // which is 2 log 4096 - log of the sum, is never above Shannon's.
    const SQUARES: u32 = 115_000;
    // Three bytes come again by chance once in two pages; a match as long as all that is to be saved has as many.
    const AGAIN: u32 = 256;
    let mut counts = [0u32; 256];
    page.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
    if counts.iter().map(|count| count * count).sum::<u32>() > SQUARES {
        return false;
    }
    let mut last = [0u16; 1 << 12];
    let three = |at: usize| u32::from_le_bytes([page[at], page[at + 1], page[at + 2], 0]);
    let mut again = 0;
    for at in 0..PAGE - 2 {
        let slot = &mut last[(three(at).wrapping_mul(0x9e37_79b1) >> 20) as usize];
        again += u32::from(three(usize::from(*slot)) == three(at) && at > 0);
        *slot = at as u16;
    }
    again < AGAIN
}

/// All counts behind [`is_noise`]. Of data that has structure and yet does not pack, these say as cheaply that the next
/// page is like one that was tried.
#[derive(Debug, Clone, Copy)]
pub struct Signs {
    like: [u32; PLACES],
    near: [Near; 6],
}

impl Signs {
    /// Counts them.
    #[must_use]
    pub fn of(page: &[u8; PAGE]) -> Self {
        let near = [
            near_counts::<u64, false>(page),
            near_counts::<u32, false>(page),
            near_counts::<u16, false>(page),
            near_counts::<u8, false>(page),
            near_counts::<u32, true>(page),
            near_counts::<u16, true>(page),
        ];
        Self {
            like: like_counts(page),
            near,
        }
    }

    /// The higher one of each.
    #[must_use]
    pub fn most(&self, other: &Self) -> Self {
        let near = |n: usize| Near {
            once: self.near[n].once.max(other.near[n].once),
            twice: self.near[n].twice.max(other.near[n].twice),
        };
        Self {
            like: std::array::from_fn(|n| self.like[n].max(other.like[n])),
            near: std::array::from_fn(near),
        }
    }

    /// Whether none of them is higher than that of `refused`, but for chance: what packs shows more of one.
    #[must_use]
    pub fn are_within(&self, refused: &Self) -> bool {
        // Three deviations of the counts of noise, and of higher ones a part.
        const LIKE: u32 = 6;
        const NEAR: u32 = 8;
        let within = |own: u32, refused: u32, more: u32| own <= refused + refused / 16 + more;
        self.like
            .iter()
            .zip(refused.like)
            .all(|(own, refused)| within(*own, refused, LIKE))
            && self.near.iter().zip(refused.near).all(|(own, refused)| {
                within(own.once, refused.once, NEAR) && within(own.twice, refused.twice, NEAR)
            })
    }
}

/// Whether bytes at the same place of two words are equal more often than by chance.
fn has_like_bytes(page: &[u8; PAGE]) -> bool {
    // 1920 pairs of random bytes have 7.5 equal ones, with a deviation of 2.7; at all eight places together 60, and
    // 7.7.
    const AT_ONE_PLACE: u32 = 20;
    const TOGETHER: u32 = 100;
    let equal = like_counts(page);
    equal.iter().any(|&equal| equal > AT_ONE_PLACE) || equal.iter().sum::<u32>() > TOGETHER
}

fn like_counts(page: &[u8; PAGE]) -> [u32; PLACES] {
    #[cfg(target_arch = "x86_64")]
    if simd::is_available() {
        // SAFETY: the processor has the features, as just asked.
        return unsafe { wide::like_bytes(page) };
    }
    like_bytes(page)
}

/// Places of a byte in a word.
const PLACES: usize = 8;

/// Pairs of equal bytes at each place: those of the four words of each of 16 windows with those of every other.
fn like_bytes(page: &[u8; PAGE]) -> [u32; PLACES] {
    let mut equal = [0; PLACES];
    for one in 1..16 {
        for other in 0..one {
            for (n, byte) in window(page, one).iter().enumerate() {
                let alike = (n % PLACES..32)
                    .step_by(PLACES)
                    .map(|n| u32::from(window(page, other)[n] == *byte));
                equal[n % PLACES] += alike.sum::<u32>();
            }
        }
    }
    equal
}

/// The `n`-th of 16 windows.
fn window(page: &[u8; PAGE], n: usize) -> &[u8; 32] {
    page.as_chunks::<256>().0[n][96..128]
        .first_chunk()
        .expect("32 bytes")
}

/// Whether first or second differences are small more often than by chance, at any width and in either byte order.
fn has_near_neighbours(page: &[u8; PAGE]) -> bool {
    are_near::<u64, false>(page)
        || are_near::<u32, false>(page)
        || are_near::<u16, false>(page)
        || are_near::<u8, false>(page)
        || are_near::<u32, true>(page)
        || are_near::<u16, true>(page)
}

fn are_near<W: Word, const SWAP: bool>(page: &[u8; PAGE]) -> bool {
    // An eighth of random words are below an eighth of the range; 128 have 16 such, with a deviation of 3.7.
    const CHANCE: u32 = 34;
    let near = near_counts::<W, SWAP>(page);
    near.once > CHANCE || near.twice > CHANCE
}

fn near_counts<W: Word, const SWAP: bool>(page: &[u8; PAGE]) -> Near {
    #[cfg(target_arch = "x86_64")]
    if simd::is_available() {
        // SAFETY: the processor has the features, as just asked.
        return unsafe { wide::near::<W, SWAP>(page) };
    }
    near::<W, SWAP>(page)
}

/// Differences between minus and plus a sixteenth of the range, of four windows: first ones, and second ones.
#[derive(Debug, Clone, Copy)]
struct Near {
    once: u32,
    twice: u32,
}

/// Words of a window, whose differences need two more.
const WINDOW: usize = 32;

fn near<W: Word, const SWAP: bool>(page: &[u8; PAGE]) -> Near {
    let mut near = Near { once: 0, twice: 0 };
    for quarter in page.chunks_exact(PAGE / 4) {
        let word = |n: usize| {
            let word = W::load(&quarter[n * W::LEN..(n + 1) * W::LEN]);
            if SWAP { word.swap() } else { word }
        };
        let small = |difference: W| u32::from(difference.zigzag().is_below(W::BITS - 3));
        for n in 0..WINDOW {
            let once = word(n + 1).minus(word(n));
            near.once += small(once);
            near.twice += small(word(n + 2).minus(word(n + 1)).minus(once));
        }
    }
    near
}
