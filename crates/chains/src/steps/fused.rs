//! `dk`, `zz` and then `pk` or `ce` as one stage: the words are read once and stay words until they are packed.

use std::marker::PhantomData;

use narrows_core::Workspace;

use super::{
    bitpack,
    classes::{self, BitLen},
    difference::{best_order, differences, put_seeds, sums, take_seeds},
};
use crate::{
    simd::twin,
    step::{Info, PageError, Side, SideReader, Step, StepId},
    word::{Word, pack_whole, unpack_whole},
};

/// Folded differences, packed by `C`.
#[derive(Debug)]
struct Folded<W, C>(PhantomData<(W, C)>);

/// The last of the three steps.
trait Coder: std::fmt::Debug + Send + Sync + 'static {
    fn pack<W: Word>(
        words: &[W],
        out: &mut [u8],
        side: &mut Side,
        ws: &mut Workspace,
    ) -> Option<usize>;
    /// Fills `words`, unfolded.
    fn unpack<W: Word>(
        packed: &[u8],
        words: &mut [W],
        side: &mut SideReader<'_>,
        ws: &mut Workspace,
    ) -> Result<(), PageError>;
}

#[derive(Debug)]
struct Bitpack;

#[derive(Debug)]
struct Lengths;

impl Coder for Bitpack {
    fn pack<W: Word>(
        words: &[W],
        out: &mut [u8],
        _: &mut Side,
        _: &mut Workspace,
    ) -> Option<usize> {
        bitpack::pack_words(words, out)
    }

    fn unpack<W: Word>(
        packed: &[u8],
        words: &mut [W],
        _: &mut SideReader<'_>,
        _: &mut Workspace,
    ) -> Result<(), PageError> {
        bitpack::unpack_all::<W, true>(packed, words)
    }
}

impl Coder for Lengths {
    fn pack<W: Word>(
        words: &[W],
        out: &mut [u8],
        side: &mut Side,
        ws: &mut Workspace,
    ) -> Option<usize> {
        classes::pack_words(words, BitLen, out, side, ws.get())
    }

    fn unpack<W: Word>(
        packed: &[u8],
        words: &mut [W],
        side: &mut SideReader<'_>,
        ws: &mut Workspace,
    ) -> Result<(), PageError> {
        classes::unpack_words(packed, BitLen, words, side, ws.get())?;
        unfold(words);
        Ok(())
    }
}

/// One stage in place of the first three of `ids`.
pub(super) fn find(ids: &[StepId]) -> Option<&'static dyn Step> {
    const STAGES: [(&dyn Step, u8); 8] = [
        (&Folded::<u8, Bitpack>(PhantomData), 12),
        (&Folded::<u16, Bitpack>(PhantomData), 13),
        (&Folded::<u32, Bitpack>(PhantomData), 14),
        (&Folded::<u64, Bitpack>(PhantomData), 15),
        (&Folded::<u8, Lengths>(PhantomData), 20),
        (&Folded::<u16, Lengths>(PhantomData), 21),
        (&Folded::<u32, Lengths>(PhantomData), 22),
        (&Folded::<u64, Lengths>(PhantomData), 23),
    ];
    let &[StepId(difference), StepId(zigzag), StepId(coder)] = ids.first_chunk::<3>()?;
    // The ids of each kind of step go by width.
    let width = coder % 4;
    let (stage, _) = STAGES.iter().find(|(_, id)| *id == coder)?;
    (difference == 4 + width && zigzag == 8 + width).then_some(*stage)
}

impl<W: Word, C: Coder> Step for Folded<W, C> {
    fn info(&self) -> &Info {
        // The number of its first step; a page lists the steps, not the stage.
        const {
            let id = StepId(4 + W::LEN.trailing_zeros() as u8);
            &Info {
                id,
                name: "dk-zz",
                keeps_length: false,
                has_side: true,
            }
        }
    }

    fn pack(
        &self,
        raw: &[u8],
        out: &mut [u8],
        side: &mut Side,
        ws: &mut Workspace,
    ) -> Option<usize> {
        pack_whole::<W>(raw, out, |words, out| {
            let order = best_order(words).order;
            differences(words, order);
            let start = side.bytes().len();
            put_seeds(words, order, side)?;
            let seeds = side.bytes().len() - start;
            fold(words);
            let len = C::pack(words, out, side, ws)?;
            side.move_back(start, seeds);
            Some(len)
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
            C::unpack(packed, words, side, ws)?;
            let order = take_seeds(words, side)?;
            sums(words, order);
            Ok(())
        })
    }
}

twin! { fn fold<W: Word>(words: &mut [W]) = fold_portable; }
twin! { fn unfold<W: Word>(words: &mut [W]) = unfold_portable; }

#[inline(always)]
fn fold_portable<W: Word>(words: &mut [W]) {
    words.iter_mut().for_each(|word| *word = word.zigzag());
}

#[inline(always)]
fn unfold_portable<W: Word>(words: &mut [W]) {
    words.iter_mut().for_each(|word| *word = word.unzigzag());
}
