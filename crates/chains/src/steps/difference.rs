//! `d`: differences of neighbouring words. `dk`: the same up to six times over, as often as pays on this page.
//!
//! A polynomial of degree `k - 1` sampled at even places has `k`-th differences of zero, and a smooth field is nearly
//! one from word to word. Noise doubles with each time, so the order is chosen for each page: `estimate` predicts
//! the packed size of each from a few windows.
//!
//! After `j` differences the first `j` words are not yet differences of that order; each keeps the order it has. `d`
//! leaves its one first word in place. `dk` moves them to its side, lest they spoil what follows, and leaves zeros
//! there.

#[cfg(target_arch = "x86_64")]
mod counted;
#[cfg(target_arch = "x86_64")]
mod wide;

use narrows_core::Workspace;

use super::map::same_len;
#[cfg(target_arch = "x86_64")]
use crate::simd;
use crate::{
    simd::twin,
    step::{Info, PageError, Side, SideReader, Step, StepId},
    word::{Word, pack_whole, read, unpack_whole, write},
};

/// First differences of words of one width.
#[derive(Debug)]
pub struct First<W> {
    info: Info,
    width: std::marker::PhantomData<W>,
}

/// Differences of up to [`ORDER_MAX`]-th order.
#[derive(Debug)]
pub struct Best<W> {
    info: Info,
    width: std::marker::PhantomData<W>,
}

/// Highest order of `dk`.
pub const ORDER_MAX: usize = 6;

macro_rules! steps {
    ($(($kind:ident, $word:ty, $id:literal, $name:literal, $side:literal)),* $(,)?) => {
        pub(super) const STEPS: &[&dyn Step] = &[$(&$kind::<$word> {
            info: Info { id: StepId($id), name: $name, keeps_length: true, has_side: $side },
            width: std::marker::PhantomData,
        }),*];
    };
}
steps!(
    (First, u8, 0, "d1", false),
    (First, u16, 1, "d2", false),
    (First, u32, 2, "d4", false),
    (First, u64, 3, "d8", false),
    (Best, u8, 4, "dk1", true),
    (Best, u16, 5, "dk2", true),
    (Best, u32, 6, "dk4", true),
    (Best, u64, 7, "dk8", true),
);

impl<W: Word> Step for First<W> {
    fn info(&self) -> &Info {
        &self.info
    }

    fn pack(&self, raw: &[u8], out: &mut [u8], _: &mut Side, _: &mut Workspace) -> Option<usize> {
        let out = out.get_mut(..raw.len())?;
        first::<W>(raw, out);
        Some(raw.len())
    }

    fn unpack(
        &self,
        packed: &[u8],
        _: &mut SideReader<'_>,
        out: &mut [u8],
        _: &mut Workspace,
    ) -> Result<(), PageError> {
        same_len(packed, out)?;
        out.copy_from_slice(packed);
        sum_bytes::<W>(out);
        Ok(())
    }
}

impl<W: Word> Step for Best<W> {
    fn info(&self) -> &Info {
        &self.info
    }

    fn pack(
        &self,
        raw: &[u8],
        out: &mut [u8],
        side: &mut Side,
        _: &mut Workspace,
    ) -> Option<usize> {
        pack_seeded::<W>(raw, out, side, |words| {
            let order = best_order(words).order;
            differences(words, order);
            order
        })
    }

    fn unpack(
        &self,
        packed: &[u8],
        side: &mut SideReader<'_>,
        out: &mut [u8],
        _: &mut Workspace,
    ) -> Result<(), PageError> {
        unpack_seeded::<W>(packed, out, side, sums)
    }
}

/// Packs words that `differ` has made differences of, of the order that it returns.
pub(super) fn pack_seeded<W: Word>(
    raw: &[u8],
    out: &mut [u8],
    side: &mut Side,
    differ: impl FnOnce(&mut [W]) -> usize,
) -> Option<usize> {
    pack_whole::<W>(raw, out, |words, out| {
        let out = out.get_mut(..words.len() * W::LEN)?;
        let order = differ(words);
        put_seeds(words, order, side)?;
        write(words, out);
        Some(out.len())
    })
}

/// Undoes [`pack_seeded`]: `restore` gets the differences, with the first words in their places, and the order.
pub(super) fn unpack_seeded<W: Word>(
    packed: &[u8],
    out: &mut [u8],
    side: &mut SideReader<'_>,
    restore: impl FnOnce(&mut [W], usize),
) -> Result<(), PageError> {
    same_len(packed, out)?;
    unpack_whole::<W>(packed, out, |packed, words| {
        read(packed, words);
        let order = take_seeds(words, side)?;
        restore(words, order);
        Ok(())
    })
}

twin! { fn first<W: Word>(raw: &[u8], out: &mut [u8]) = first_portable; }

#[inline(always)]
fn first_portable<W: Word>(raw: &[u8], out: &mut [u8]) {
    let whole = raw.len() / W::LEN * W::LEN;
    out.copy_from_slice(raw);
    if whole == 0 {
        return;
    }
    let pairs = raw[W::LEN..whole]
        .chunks_exact(W::LEN)
        .zip(raw[..whole - W::LEN].chunks_exact(W::LEN));
    for ((word, before), to) in pairs.zip(out[W::LEN..whole].chunks_exact_mut(W::LEN)) {
        W::load(word).minus(W::load(before)).store(to);
    }
}

fn sum_bytes<W: Word>(bytes: &mut [u8]) {
    let mut sum = W::default();
    for bytes in bytes.chunks_exact_mut(W::LEN) {
        sum = sum.plus(W::load(bytes));
        sum.store(bytes);
    }
}

twin! {
    /// Replaces `words` by their `order`-th differences.
    pub(crate) fn differences<W: Word>(words: &mut [W], order: usize) = differences_portable;
}

#[inline(always)]
fn differences_portable<W: Word>(words: &mut [W], order: usize) {
    // Two registers of words at once.
    match W::LEN {
        1 => differences_of::<W, 64>(words, order),
        2 => differences_of::<W, 32>(words, order),
        4 => differences_of::<W, 16>(words, order),
        _ => differences_of::<W, 8>(words, order),
    }
}

#[inline(always)]
fn differences_of<W: Word, const GROUP: usize>(words: &mut [W], order: usize) {
    for done in 0..order {
        // From the end, so that the words before a group are still as they were.
        let mut end = words.len();
        while end >= done + 1 + GROUP {
            let at = end - GROUP;
            let before: [W; GROUP] = *words[at - 1..].first_chunk().expect("a group and more");
            let group: &mut [W; GROUP] = words[at..].first_chunk_mut().expect("a group");
            for (word, before) in group.iter_mut().zip(before) {
                *word = word.minus(before);
            }
            end = at;
        }
        for n in (done + 1..end).rev() {
            words[n] = words[n].minus(words[n - 1]);
        }
    }
}

/// Undoes [`differences`].
pub(crate) fn sums<W: Word>(words: &mut [W], order: usize) {
    match order {
        0 => {}
        1 => sums_of::<W, 1>(words),
        2 => sums_of::<W, 2>(words),
        3 => sums_of::<W, 3>(words),
        4 => sums_of::<W, 4>(words),
        5 => sums_of::<W, 5>(words),
        _ => sums_of::<W, 6>(words),
    }
}

/// All sums in one pass: the additions of one word depend on those of the word before by one each, so they overlap.
#[inline(always)]
fn sums_of<W: Word, const ORDER: usize>(words: &mut [W]) {
    // `last[j]` is the `j`-th difference at the place before.
    let mut last = [W::default(); ORDER];
    let (seeds, words) = words.split_at_mut(ORDER.min(words.len()));
    for (n, word) in seeds.iter_mut().enumerate() {
        // An `n`-th difference only: those of higher order start behind it.
        last[n] = *word;
        for j in (0..n).rev() {
            last[j] = last[j].plus(last[j + 1]);
        }
        *word = last[0];
    }
    #[cfg(target_arch = "x86_64")]
    let words = match simd::is_available() && W::LEN <= 4 {
        // SAFETY: the processor has the features, as just asked.
        true => unsafe { wide::sums(words, &mut last) },
        false => words,
    };
    for word in words {
        let mut value = *word;
        for last in last.iter_mut().rev() {
            value = value.plus(*last);
            *last = value;
        }
        *word = value;
    }
}

/// Moves the first `order` words to `side` behind the order: a nibble for the bytes of each, low nibble first, then
/// these bytes, little-endian.
pub(crate) fn put_seeds<W: Word>(words: &mut [W], order: usize, side: &mut Side) -> Option<()> {
    let mut nibbles = [0u8; ORDER_MAX.div_ceil(2)];
    for (n, word) in words.iter().take(order).enumerate() {
        nibbles[n / 2] |= (word.zigzag().bit_len().div_ceil(8) as u8) << (4 * (n % 2));
    }
    side.put(&[order as u8])?;
    side.put(&nibbles[..order.div_ceil(2)])?;
    for word in words.iter_mut().take(order) {
        let folded = word.zigzag();
        side.put(&folded.wide().to_le_bytes()[..folded.bit_len().div_ceil(8) as usize])?;
        *word = W::default();
    }
    Some(())
}

/// Undoes [`put_seeds`] and returns the order.
pub(crate) fn take_seeds<W: Word>(
    words: &mut [W],
    side: &mut SideReader<'_>,
) -> Result<usize, PageError> {
    let order = usize::from(side.byte()?);
    if order > ORDER_MAX || order > words.len() {
        return Err(PageError::Corrupt("differences of too high an order"));
    }
    let nibbles = side.take(order.div_ceil(2))?;
    for (n, word) in words[..order].iter_mut().enumerate() {
        let len = usize::from(nibbles[n / 2] >> (4 * (n % 2)) & 0xf);
        if len > W::LEN {
            return Err(PageError::Corrupt("a first word longer than a word"));
        }
        let mut wide = [0; 8];
        wide[..len].copy_from_slice(side.take(len)?);
        *word = W::truncate(u64::from_le_bytes(wide)).unzigzag();
    }
    Ok(order)
}

/// An order of differences and what the whole page is expected to take with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub order: usize,
    /// Bits of [`SAMPLES`] folded differences, each as long as the longest of four.
    pub bits: u32,
}

/// Words that an estimate looks at.
pub(crate) const SAMPLES: usize = WINDOWS * WINDOW;
/// Words of a window, and those before it that its differences need.
pub(crate) const SPAN: usize = WINDOW + ORDER_MAX;
const WINDOWS: usize = 4;
const WINDOW: usize = 32;

/// The order whose differences take fewest bits, judged by four windows of `words`.
pub(crate) fn best_order<W: Word>(words: &[W]) -> Estimate {
    // SAFETY: these words are as many bytes, of which any is one.
    let bytes =
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), size_of_val(words)) };
    match estimate_counted::<W, { ORDER_MAX + 1 }, false>(bytes) {
        Some(estimate) => estimate,
        None => best_order_any(words),
    }
}

twin! { fn best_order_any<W: Word>(words: &[W]) -> Estimate = best_order_portable; }

/// [`estimate`] of the words in `bytes`, if the processor has instructions for it, and `bytes` has a window.
pub(crate) fn estimate_counted<W: Word, const ORDERS: usize, const SWAPPED: bool>(
    bytes: &[u8],
) -> Option<Estimate> {
    #[cfg(target_arch = "x86_64")]
    if simd::counts_zeros() && bytes.len() >= SPAN * W::LEN {
        // SAFETY: the processor has the features, as just asked.
        return Some(unsafe { counted::estimate::<W, ORDERS, SWAPPED>(bytes) });
    }
    None
}

#[inline(always)]
fn best_order_portable<W: Word>(words: &[W]) -> Estimate {
    if words.len() < SPAN {
        return Estimate {
            order: usize::from(words.len() > 1),
            bits: SAMPLES as u32 * W::BITS,
        };
    }
    estimate::<W, { ORDER_MAX + 1 }>(words.len(), |at| {
        *words[at..].first_chunk().expect("a span of words")
    })
}

/// The same among the first `ORDERS` orders, of `count` words, at least [`SPAN`], of which `window` gives those from
/// some place on.
#[inline(always)]
pub(crate) fn estimate<W: Word, const ORDERS: usize>(
    count: usize,
    window: impl Fn(usize) -> [W; SPAN],
) -> Estimate {
    let mut bits = [0u32; ORDERS];
    let apart = (count - SPAN) / (WINDOWS - 1);
    for n in 0..WINDOWS {
        let mut span = window(n * apart);
        for (order, bits) in bits.iter_mut().enumerate() {
            if order > 0 {
                // Over the same words for every order, so that all estimates have one measure.
                let mut next = span;
                for n in 1..SPAN {
                    next[n] = span[n].minus(span[n - 1]);
                }
                span = next;
            }
            // Four words each as long as their longest: a quarter of the counting.
            let folded: [W; WINDOW] = std::array::from_fn(|n| span[ORDER_MAX + n].zigzag());
            for n in 0..WINDOW / 4 {
                let longest = folded[n]
                    .or(folded[n + 8])
                    .or(folded[n + 16].or(folded[n + 24]));
                *bits += 4 * longest.bit_len();
            }
        }
    }
    let (order, &bits) = bits
        .iter()
        .enumerate()
        .min_by_key(|(_, bits)| **bits)
        .expect("one order or more");
    Estimate { order, bits }
}

#[cfg(test)]
mod tests {
    use narrows_testkit::data::Random;

    use super::*;
    use crate::simd::portable;

    // Goal: sums undo differences, by vectors and by scalars. Method: every order, and every number of words up to 70.
    fn every_order<W: Word>() {
        let mut random = Random(W::LEN as u64);
        for order in 0..=ORDER_MAX {
            for count in order..70 {
                let words: Vec<W> = (0..count).map(|_| W::truncate(random.next_u64())).collect();
                let mut there = words.clone();
                differences(&mut there, order);
                let mut portably = there.clone();
                sums(&mut there, order);
                portable(|| sums(&mut portably, order));
                assert!(
                    there == words && portably == words,
                    "{} bytes, order {order}, {count} words",
                    W::LEN
                );
            }
        }
    }

    // Goal: the order of differences does not depend on the processor. Method: words of every length of bits, noise and
    // ramps of every order.
    fn every_estimate<W: Word>() {
        let mut random = Random(W::LEN as u64 + 10);
        for n in 0..2000u64 {
            let count = SPAN + (random.next_u64() % 500) as usize;
            let bits = (n % u64::from(W::BITS)) as u32;
            let mut words: Vec<W> = (0..count)
                .map(|_| W::truncate(random.next_u64() >> (63 - bits)))
                .collect();
            (0..n % 7).for_each(|order| sums(&mut words, order as usize));
            assert_eq!(
                best_order(&words),
                portable(|| best_order(&words)),
                "{} bytes, {n}",
                W::LEN
            );
        }
    }

    #[test]
    fn estimates_are_the_same_everywhere() {
        every_estimate::<u8>();
        every_estimate::<u16>();
        every_estimate::<u32>();
        every_estimate::<u64>();
    }

    #[test]
    fn sums_undo_differences() {
        every_order::<u8>();
        every_order::<u16>();
        every_order::<u32>();
        every_order::<u64>();
    }
}
