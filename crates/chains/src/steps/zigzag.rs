//! `zz`: two's complement numbers to numbers that are small where those were near zero, of either sign.

use narrows_core::Workspace;

use crate::{
    simd::twin,
    step::{Side, SideReader, Step, StepId, UnpackError},
    word::Word,
};

/// For words of one width.
#[derive(Debug)]
pub struct Zigzag<W> {
    id: StepId,
    name: &'static str,
    width: std::marker::PhantomData<W>,
}

macro_rules! steps {
    ($(($word:ty, $id:literal, $name:literal)),*) => {
        pub(super) const STEPS: &[&dyn Step] = &[$(&Zigzag::<$word> {
            id: StepId($id),
            name: $name,
            width: std::marker::PhantomData,
        }),*];
    };
}
steps!((u8, 8, "zz1"), (u16, 9, "zz2"), (u32, 10, "zz4"), (u64, 11, "zz8"));

impl<W: Word> Step for Zigzag<W> {
    fn id(&self) -> StepId {
        self.id
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn keeps_length(&self) -> bool {
        true
    }

    fn pack(&self, raw: &[u8], out: &mut [u8], _: &mut Side, _: &mut Workspace) -> Option<usize> {
        let out = out.get_mut(..raw.len())?;
        fold::<W>(raw, out);
        Some(raw.len())
    }

    fn unpack(
        &self,
        packed: &[u8],
        _: &mut SideReader<'_>,
        out: &mut [u8],
        _: &mut Workspace,
    ) -> Result<(), UnpackError> {
        same_len(packed, out)?;
        unfold::<W>(packed, out);
        Ok(())
    }
}

/// What every step that keeps its length checks first.
pub(super) fn same_len(packed: &[u8], out: &[u8]) -> Result<(), UnpackError> {
    if packed.len() == out.len() { Ok(()) } else { Err(UnpackError::Corrupt("bytes of another length")) }
}

twin! { fn fold<W: Word>(raw: &[u8], out: &mut [u8]) = fold_portable; }
twin! { fn unfold<W: Word>(packed: &[u8], out: &mut [u8]) = unfold_portable; }

#[inline(always)]
fn fold_portable<W: Word>(raw: &[u8], out: &mut [u8]) {
    map::<W>(raw, out, W::zigzag);
}

#[inline(always)]
fn unfold_portable<W: Word>(packed: &[u8], out: &mut [u8]) {
    map::<W>(packed, out, W::unzigzag);
}

/// Each whole word through `f`; the bytes behind the last as they are. Both slices have one length.
#[inline(always)]
pub(super) fn map<W: Word>(from: &[u8], to: &mut [u8], f: impl Fn(W) -> W) {
    let whole = from.len() / W::LEN * W::LEN;
    for (from, to) in from[..whole].chunks_exact(W::LEN).zip(to[..whole].chunks_exact_mut(W::LEN)) {
        f(W::load(from)).store(to);
    }
    to[whole..].copy_from_slice(&from[whole..]);
}
