//! `pk`: blocks of 16 words, each word as many bits as the widest of its block.
//!
//! Packed bytes: one width a block, in bits; then the blocks, lowest bits first, 16 words of `b` bits being `2b` bytes;
//! the last block may hold fewer words and ends at a whole byte; then the bytes behind the last whole word.

#[cfg(target_arch = "x86_64")]
mod wide;

use narrows_core::Workspace;

#[cfg(target_arch = "x86_64")]
use crate::simd;
use crate::{
    step::{Info, PageError, Side, SideReader, Step, StepId},
    word::{Word, pack_whole, unpack_whole},
};

/// For words of one width.
#[derive(Debug)]
pub struct Bitpack<W> {
    info: Info,
    width: std::marker::PhantomData<W>,
}

/// Words of a block.
const BLOCK: usize = 16;

steps_by_width!(
    Bitpack, keeps_length: false, has_side: false,
    (u8, 12, "pk1"), (u16, 13, "pk2"), (u32, 14, "pk4"), (u64, 15, "pk8")
);

/// Whether this step is one of these.
pub(crate) fn packs_in_blocks(id: StepId) -> bool {
    STEPS.iter().any(|step| step.id() == id)
}

impl<W: Word> Step for Bitpack<W> {
    fn info(&self) -> &Info {
        &self.info
    }

    fn pack(&self, raw: &[u8], out: &mut [u8], _: &mut Side, _: &mut Workspace) -> Option<usize> {
        pack_whole::<W>(raw, out, |words, out| pack_words(words, out))
    }

    fn unpack(
        &self,
        packed: &[u8],
        _: &mut SideReader<'_>,
        out: &mut [u8],
        _: &mut Workspace,
    ) -> Result<(), PageError> {
        unpack_whole::<W>(packed, out, unpack_all::<W, false>)
    }
}

/// Packs `words` into the front of `out` and returns the packed length, or `None` if it does not fit.
#[inline]
pub(crate) fn pack_words<W: Word>(words: &[W], out: &mut [u8]) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
        fn second<W: Word>(words: &[W], out: &mut [u8]) -> Option<usize> {
            pack_by(words, out, |block, width, out| {
                let room = out.get_mut(..2 * width as usize + SLACK);
                match (block.try_into(), room) {
                    (Ok(block), Some(room)) if wide::packs::<W>(width) => {
                        wide::pack_block::<W>(block, width, room);
                        2 * width as usize
                    }
                    _ => pack_block::<W>(block, width, out),
                }
            })
        }
        if simd::is_available() {
            // SAFETY: the processor has the features, as just asked.
            return unsafe { second::<W>(words, out) };
        }
    }
    pack_by(words, out, pack_block::<W>)
}

/// Fills `words` from all of `packed`; see [`unpack_words`].
pub(crate) fn unpack_all<W: Word, const FOLDED: bool>(
    packed: &[u8],
    words: &mut [W],
) -> Result<(), PageError> {
    match unpack_words::<W, FOLDED>(packed, words)? {
        len if len == packed.len() => Ok(()),
        _ => Err(PageError::Corrupt("bit blocks of another length")),
    }
}

/// Fills `words` from the front of `packed` and returns how many bytes that took. With `FOLDED` their signs are
/// unfolded on the way, as step `zz` has it.
#[inline]
pub(crate) fn unpack_words<W: Word, const FOLDED: bool>(
    packed: &[u8],
    words: &mut [W],
) -> Result<usize, PageError> {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
        fn second<W: Word, const FOLDED: bool>(
            packed: &[u8],
            words: &mut [W],
        ) -> Result<usize, PageError> {
            unpack_by(packed, words, |bytes, width, block| {
                match block.try_into() {
                    Ok(block) if width <= wide::WIDE_MAX => {
                        wide::unpack_block::<W, FOLDED>(bytes, width, block)
                    }
                    _ => unpack_block::<W, FOLDED>(bytes, width, block),
                }
            })
        }
        if simd::is_available() {
            // SAFETY: the processor has the features, as just asked.
            return unsafe { second::<W, FOLDED>(packed, words) };
        }
    }
    unpack_by(packed, words, unpack_block::<W, FOLDED>)
}

/// `pack_block` packs a block into the front of what it is given and returns how many bytes that took; it may write
/// behind them.
#[inline(always)]
fn pack_by<W: Word>(
    words: &[W],
    out: &mut [u8],
    pack_block: impl Fn(&[W], u32, &mut [u8]) -> usize,
) -> Option<usize> {
    let (widths, data) = out.split_at_mut_checked(words.len().div_ceil(BLOCK))?;
    let mut len = 0;
    for (block, width) in words.chunks(BLOCK).zip(widths.iter_mut()) {
        *width = block
            .iter()
            .fold(W::default(), |all, &word| all.or(word))
            .bit_len() as u8;
        len += (usize::from(*width) * block.len()).div_ceil(8);
    }
    // Known before anything is packed, so a page that does not fit costs little.
    if len > data.len() {
        return None;
    }
    let mut at = 0;
    for (block, &width) in words.chunks(BLOCK).zip(&*widths) {
        at += pack_block(block, u32::from(width), &mut data[at..]);
    }
    Some(widths.len() + len)
}

/// Packs one block into `out`, whose room was checked, and returns its bytes. May write zeros behind them.
#[inline(always)]
fn pack_block<W: Word>(block: &[W], width: u32, out: &mut [u8]) -> usize {
    let len = (width as usize * block.len()).div_ceil(8);
    let mut bits = Bits {
        out,
        at: 0,
        held: 0,
        fill: 0,
    };
    match (block.first_chunk::<BLOCK>(), width) {
        (Some(_), 0) => {}
        // Several words make one unit, so that there are fewer steps that wait for each other.
        (Some(block), 1..=14) => {
            for four in block.as_chunks::<4>().0 {
                let low = four[0].wide() | four[1].wide() << width;
                let high = four[2].wide() | four[3].wide() << width;
                bits.put(low | high << (2 * width), 4 * width);
            }
        }
        (Some(block), 15..=28) => {
            for two in block.as_chunks::<2>().0 {
                bits.put(two[0].wide() | two[1].wide() << width, 2 * width);
            }
        }
        (_, 0..=56) => block.iter().for_each(|word| bits.put(word.wide(), width)),
        _ => {
            for word in block {
                bits.put(word.wide() & 0xffff_ffff, 32);
                bits.put(word.wide() >> 32, width - 32);
            }
        }
    }
    bits.finish();
    len
}

struct Bits<'a> {
    out: &'a mut [u8],
    at: usize,
    /// Bits not yet passed by `at`: fewer than 8 between two calls.
    held: u64,
    fill: u32,
}

impl Bits<'_> {
    /// Appends `count` bits, at most 56.
    #[inline(always)]
    fn put(&mut self, bits: u64, count: u32) {
        self.held |= bits << self.fill;
        self.fill += count;
        self.flush();
        let whole = self.fill & !7;
        self.at += (whole / 8) as usize;
        self.held >>= whole;
        self.fill -= whole;
    }

    #[inline(always)]
    fn flush(&mut self) {
        let bytes = self.held.to_le_bytes();
        match self.out.get_mut(self.at..self.at + 8) {
            Some(to) => to.copy_from_slice(&bytes),
            None => {
                // Near the end of `out`: what does not fit is zeros.
                let to = self.out.get_mut(self.at..).unwrap_or_default();
                let len = to.len();
                to.copy_from_slice(&bytes[..len]);
            }
        }
    }

    #[inline(always)]
    fn finish(&mut self) {
        if self.fill > 0 {
            self.flush();
        }
    }
}

/// `unpack_block` takes a block's bytes and [`SLACK`] more, its width, and the words.
#[inline(always)]
fn unpack_by<W: Word>(
    packed: &[u8],
    words: &mut [W],
    unpack_block: impl Fn(&[u8], u32, &mut [W]),
) -> Result<usize, PageError> {
    const SHORT: PageError = PageError::Corrupt("bit blocks are cut short");
    let (widths, mut data) = packed
        .split_at_checked(words.len().div_ceil(BLOCK))
        .ok_or(SHORT)?;
    for (block, &width) in words.chunks_mut(BLOCK).zip(widths) {
        if u32::from(width) > W::BITS {
            return Err(PageError::Corrupt("bits of a word wider than the word"));
        }
        let len = (usize::from(width) * block.len()).div_ceil(8);
        if let Some(bytes) = data.get(..len + SLACK) {
            unpack_block(bytes, u32::from(width), block);
        } else {
            let mut padded = [0; BLOCK * 8 + SLACK];
            padded[..len].copy_from_slice(data.get(..len).ok_or(SHORT)?);
            unpack_block(&padded[..len + SLACK], u32::from(width), block);
        }
        data = &data[len..];
    }
    Ok(packed.len() - data.len())
}

/// Bytes behind a block that may be read or written, whatever they are.
const SLACK: usize = 16;

/// Fills `block`; `bytes` are those of the block and [`SLACK`] more.
#[inline(always)]
fn unpack_block<W: Word, const FOLDED: bool>(bytes: &[u8], width: u32, block: &mut [W]) {
    assert!(
        bytes.len() == (width as usize * block.len()).div_ceil(8) + SLACK,
        "the block and its slack"
    );
    let load = |at: usize| {
        debug_assert!(at + 8 <= bytes.len());
        // SAFETY: the callers' `at` is below the block's length in bytes, as asserted above, so 8 bytes from it end
        // within the slack.
        unsafe { bytes.as_ptr().add(at).cast::<u64>().read_unaligned() }.to_le()
    };
    let unfold = |word: W| if FOLDED { word.unzigzag() } else { word };
    if width <= 57 {
        let mask = (1u64 << width) - 1;
        for (n, word) in block.iter_mut().enumerate() {
            let bit = n * width as usize;
            *word = unfold(W::truncate(load(bit / 8) >> (bit % 8) & mask));
        }
    } else {
        let mask = u64::MAX >> (64 - width);
        for (n, word) in block.iter_mut().enumerate() {
            let bit = n * width as usize;
            let (low, high) = (load(bit / 8), load(bit / 8 + 8));
            *word = unfold(W::truncate(
                ((u128::from(low) | u128::from(high) << 64) >> (bit % 8)) as u64 & mask,
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use narrows_testkit::data::Random;

    use super::*;
    use crate::simd::portable;

    // Goal: vectors and scalars read the same words, of any width, folded or not, at any end. Method: every width, with
    // one block wider than the others, and every number of words up to three blocks; then the same bytes cut short.
    fn every_width<W: Word>() {
        let mut random = Random(W::LEN as u64);
        for width in 0..=W::BITS {
            for count in 0..=3 * BLOCK {
                let of_width = |random: &mut Random, width: u32| match width {
                    0 => W::default(),
                    _ => W::truncate(random.next_u64() >> (64 - width)),
                };
                let words: Vec<W> = (0..count)
                    .map(|n| {
                        of_width(
                            &mut random,
                            if n / BLOCK == 1 {
                                W::BITS - width
                            } else {
                                width
                            },
                        )
                    })
                    .collect();
                let mut packed = vec![0; 9 * count + 3];
                let len = pack_words(&words, &mut packed).expect("room");
                assert_eq!(
                    portable(|| pack_words(&words, &mut vec![0; 9 * count + 3])),
                    Some(len)
                );
                for end in [len, packed.len()] {
                    let mut back = vec![W::truncate(0x55); count];
                    assert_eq!(unpack_words::<W, false>(&packed[..end], &mut back), Ok(len));
                    assert!(
                        back == words,
                        "{} bytes, {width} bits, {count} words",
                        W::LEN
                    );
                    assert_eq!(unpack_words::<W, true>(&packed[..end], &mut back), Ok(len));
                    let mut portably = vec![W::truncate(0x55); count];
                    assert_eq!(
                        portable(|| unpack_words::<W, true>(&packed[..end], &mut portably)),
                        Ok(len)
                    );
                    assert!(
                        back == portably,
                        "{} bytes, {width} bits, {count} words",
                        W::LEN
                    );
                    assert!(
                        back.iter()
                            .zip(&words)
                            .all(|(back, word)| back.zigzag() == *word)
                    );
                }
                for end in 0..len {
                    let mut back = vec![W::default(); count];
                    assert!(
                        unpack_words::<W, false>(&packed[..end], &mut back).is_err(),
                        "{end} of {len} bytes"
                    );
                }
            }
        }
    }

    #[test]
    fn words_of_every_width_come_back() {
        every_width::<u8>();
        every_width::<u16>();
        every_width::<u32>();
        every_width::<u64>();
    }
}
