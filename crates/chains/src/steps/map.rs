//! Steps that replace each word by another, whatever its neighbours: `zz`, `sw`, `fm`.
//!
//! `zz` folds two's complement numbers so that those near zero, of either sign, become small: `2n`, or `-2n - 1`. `sw`
//! swaps the bytes of big-endian words. `fm` maps the bits of floats to integers in the order of the floats: where the
//! sign is set all other bits are inverted, so that a field that crosses zero has small differences there.

use std::marker::PhantomData;

use narrows_core::Workspace;

use crate::{
    simd::twin,
    step::{Info, PageError, Side, SideReader, Step, StepId},
    word::Word,
};

/// One function of words, and its inverse.
#[derive(Debug)]
pub struct Map<W, F> {
    info: Info,
    of: PhantomData<(W, F)>,
}

/// A function of words that has an inverse.
pub(crate) trait Function: Copy + Default + std::fmt::Debug + Send + Sync + 'static {
    fn forward<W: Word>(word: W) -> W;
    fn back<W: Word>(word: W) -> W;
}

macro_rules! functions {
    ($($name:ident: $forward:expr, $back:expr;)*) => {$(
        #[derive(Debug, Clone, Copy, Default)]
        pub(crate) struct $name;

        impl Function for $name {
            #[inline(always)]
            fn forward<W: Word>(word: W) -> W {
                $forward(word)
            }
            #[inline(always)]
            fn back<W: Word>(word: W) -> W {
                $back(word)
            }
        }
    )*};
}
functions! {
    Zigzag: W::zigzag, W::unzigzag;
    Swap: W::swap, W::swap;
    Ordered: W::ordered, W::ordered;
}

macro_rules! steps {
    ($(($word:ty, $function:ident, $id:literal, $name:literal)),* $(,)?) => {
        pub(super) const STEPS: &[&dyn Step] = &[$(&Map::<$word, $function> {
            info: Info { id: StepId($id), name: $name, keeps_length: true, has_side: false },
            of: PhantomData,
        }),*];
    };
}
steps!(
    (u8, Zigzag, 8, "zz1"),
    (u16, Zigzag, 9, "zz2"),
    (u32, Zigzag, 10, "zz4"),
    (u64, Zigzag, 11, "zz8"),
    (u16, Swap, 28, "sw2"),
    (u32, Swap, 29, "sw4"),
    (u64, Swap, 30, "sw8"),
    (u16, Ordered, 31, "fm2"),
    (u32, Ordered, 32, "fm4"),
    (u64, Ordered, 33, "fm8"),
);

impl<W: Word, F: Function> Step for Map<W, F> {
    fn info(&self) -> &Info {
        &self.info
    }

    fn pack(&self, raw: &[u8], out: &mut [u8], _: &mut Side, _: &mut Workspace) -> Option<usize> {
        let out = out.get_mut(..raw.len())?;
        forward::<W, F>(raw, out);
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
        back::<W, F>(packed, out);
        Ok(())
    }
}

/// What every step that keeps its length checks first.
pub(super) fn same_len(packed: &[u8], out: &[u8]) -> Result<(), PageError> {
    if packed.len() == out.len() {
        Ok(())
    } else {
        Err(PageError::Corrupt("bytes of another length"))
    }
}

twin! { fn forward<W: Word, F: Function>(raw: &[u8], out: &mut [u8]) = forward_portable; }
twin! { fn back<W: Word, F: Function>(packed: &[u8], out: &mut [u8]) = back_portable; }

#[inline(always)]
fn forward_portable<W: Word, F: Function>(raw: &[u8], out: &mut [u8]) {
    map::<W>(raw, out, F::forward);
}

#[inline(always)]
fn back_portable<W: Word, F: Function>(packed: &[u8], out: &mut [u8]) {
    map::<W>(packed, out, F::back);
}

/// Each whole word through `f`; the bytes behind the last as they are. Both slices have one length.
#[inline(always)]
fn map<W: Word>(from: &[u8], to: &mut [u8], f: impl Fn(W) -> W) {
    let whole = from.len() / W::LEN * W::LEN;
    for (from, to) in from[..whole]
        .chunks_exact(W::LEN)
        .zip(to[..whole].chunks_exact_mut(W::LEN))
    {
        f(W::load(from)).store(to);
    }
    to[whole..].copy_from_slice(&from[whole..]);
}
