//! `ex`: floats as a Huffman-coded exponent, and sign and fraction as they are.
//!
//! Weights, noise and coordinates have fractions that nothing predicts, but their exponents are few. The class of a
//! float is how far its exponent is below the page's highest. Lowest bits that are the same in all words of the page
//! (those of an `f32` held in an `f64`, or a sign) are left out.
//!
//! Before that the sign moves below the fraction. Side: how many low bits are left out; if any, one word that has them;
//! then the page's highest exponent as `u16`, little-endian; then as `ce`. Packed bytes: as `ce`.

use std::marker::PhantomData;

use narrows_core::Workspace;

use super::coder::{Classes, pack_words, unpack_words};
use crate::{
    step::{Info, PageError, Side, SideReader, Step, StepId},
    word::{Word, pack_whole, unpack_whole},
};

/// Floats of one format.
#[derive(Debug)]
pub(super) struct Exponent<W> {
    info: Info,
    /// Bits of the exponent.
    exponent: u32,
    width: PhantomData<W>,
}

macro_rules! steps {
    ($(($word:ty, $id:literal, $name:literal, $exponent:literal)),*) => {
        pub(crate) const STEPS: &[&dyn Step] = &[$(&Exponent::<$word> {
            info: Info { id: StepId($id), name: $name, keeps_length: false, has_side: true },
            exponent: $exponent,
            width: PhantomData,
        }),*];
    };
}
steps!(
    (u16, 24, "ex2", 5),
    (u16, 25, "exb", 8),
    (u32, 26, "ex4", 8),
    (u64, 27, "ex8", 11)
);

/// The class of a word is its exponent, 63 being the page's highest.
#[derive(Debug, Clone, Copy)]
struct ByExponent {
    /// Bits below the exponent.
    fraction: u32,
    highest: u64,
}

impl<W: Word> Classes<W> for ByExponent {
    #[inline(always)]
    fn class(&self, word: W) -> usize {
        let below = self.highest - (word.wide() >> self.fraction);
        match below {
            _ if word == W::default() => 0,
            0..63 => 63 - below as usize,
            _ => 65,
        }
    }

    #[inline(always)]
    fn raw_bits(&self, class: usize) -> u32 {
        if class == 0 { 0 } else { self.fraction }
    }

    #[inline(always)]
    fn base(&self, class: usize) -> u64 {
        if class == 0 {
            0
        } else {
            (self.highest + class as u64).wrapping_sub(63) << self.fraction
        }
    }
}

impl<W: Word> Step for Exponent<W> {
    fn info(&self) -> &Info {
        &self.info
    }

    fn pack(
        &self,
        raw: &[u8],
        out: &mut [u8],
        side: &mut Side,
        ws: &mut Workspace,
    ) -> Option<usize> {
        pack_whole::<W>(raw, out, |words, out| {
            let mut differ = 0;
            for word in words.iter_mut() {
                *word = word.rotate_left(1);
            }
            let first = words.first()?.wide();
            for word in words.iter() {
                differ |= word.wide() ^ first;
            }
            let fraction = W::BITS - self.exponent;
            let low = differ.trailing_zeros().min(fraction);
            let mut highest = 0;
            for word in words.iter_mut() {
                *word = W::truncate(word.wide() >> low);
                highest = highest.max(word.wide());
            }
            let classes = ByExponent {
                fraction: fraction - low,
                highest: highest >> (fraction - low),
            };
            // The side of this step stands before that of the coder, which is read after it.
            side.put(&[low as u8])?;
            if low > 0 {
                side.put(&first.to_le_bytes()[..W::LEN])?;
            }
            side.put(&(classes.highest as u16).to_le_bytes())?;
            pack_words(words, classes, out, side, ws.get())
        })
    }

    fn unpack(
        &self,
        packed: &[u8],
        side: &mut SideReader<'_>,
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Result<(), PageError> {
        let fraction = W::BITS - self.exponent;
        let low = u32::from(side.byte()?);
        if low > fraction {
            return Err(PageError::Corrupt("more low bits than a fraction has"));
        }
        let first = if low > 0 {
            W::load(side.take(W::LEN)?).wide() & ((1 << low) - 1)
        } else {
            0
        };
        let highest = u64::from(u16::from_le_bytes(side.array()?));
        if highest >> self.exponent != 0 {
            return Err(PageError::Corrupt("an exponent of too many bits"));
        }
        unpack_whole::<W>(packed, out, |packed, words| {
            unpack_words(
                packed,
                ByExponent {
                    fraction: fraction - low,
                    highest,
                },
                words,
                side,
                ws.get(),
            )?;
            for word in words.iter_mut() {
                *word = W::truncate(word.wide() << low | first).rotate_right(1);
            }
            Ok(())
        })
    }
}
