//! `ce`: words as a Huffman-coded class and raw bits, for numbers whose size is known about but not their value.
//!
//! The class of a word is its length in bits. Classes of differences have a narrow distribution of one of few shapes
//! about some middle, so tables of code lengths relative to that middle are built in (`tables.rs`, made by
//! `examples/train_classes.rs`), and a page says which it uses and where the middle lies. A page that none suits brings
//! its own. `ex` codes floats the same way, with their exponents for classes.
//!
//! Side: a byte that names the table, or 255 before 16 bytes of code lengths, a nibble each, low one first; then a
//! byte, the class of symbol 1 plus 64. Symbol 0 is the word 0, symbols 1 to 30 are classes, 31 escapes to a whole
//! word.
//!
//! Packed bytes: the lengths of the first three streams, two bytes each, little-endian; four streams; the bytes behind
//! the last whole word. Word `i` is in stream `i % 4`: its symbol's code, then its bits below the highest, highest bit
//! first in the byte. Codes are canonical: shorter before longer, then by symbol.

mod coder;
mod exponent;
mod huffman;
mod tables;

use std::marker::PhantomData;

use narrows_core::Workspace;

use self::coder::Classes;
pub(crate) use self::coder::{pack_words, unpack_words};
#[doc(hidden)]
pub use self::huffman::training;
use crate::{
    step::{Info, PageError, Side, SideReader, Step},
    word::{Word, pack_whole, unpack_whole},
};

/// Words by their length in bits.
#[derive(Debug)]
pub struct Lengths<W> {
    info: Info,
    width: PhantomData<W>,
}

steps_by_width!(
    Lengths, keeps_length: false, has_side: true,
    (u8, 20, "ce1"), (u16, 21, "ce2"), (u32, 22, "ce4"), (u64, 23, "ce8")
);

pub(super) use exponent::STEPS as EXPONENT_STEPS;

/// The class of a word is its length in bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BitLen;

impl<W: Word> Classes<W> for BitLen {
    #[inline(always)]
    fn class(&self, word: W) -> usize {
        word.bit_len() as usize
    }

    #[inline(always)]
    fn raw_bits(&self, class: usize) -> u32 {
        class.saturating_sub(1) as u32
    }

    #[inline(always)]
    fn base(&self, class: usize) -> u64 {
        if class == 0 { 0 } else { 1 << (class - 1) }
    }
}

impl<W: Word> Step for Lengths<W> {
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
            pack_words(words, BitLen, out, side, ws.get())
        })
    }

    fn unpack(
        &self,
        packed: &[u8],
        side: &mut SideReader<'_>,
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Result<(), PageError> {
        unpack_whole::<W>(packed, out, |packed, words| {
            unpack_words(packed, BitLen, words, side, ws.get())
        })
    }
}

/// Instead of a table's number: the page brings its own.
const OWN: u8 = 0xff;
/// Symbols of a table.
const SYMBOLS: usize = 32;
/// Symbol of a word outside the classes of its page.
const ESCAPE: usize = 31;
/// Classes that have symbols, from symbol 1.
const WINDOW: usize = 30;
/// Longest code in bits.
const CODE_MAX: u32 = 10;
/// Most classes: 0 is the word 0, 1 to 64 are classes, 65 is a word without one.
const CLASSES: usize = 66;
