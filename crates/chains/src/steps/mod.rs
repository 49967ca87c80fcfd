//! All steps, by number and by name, and the chains that are built in.
//!
//! | module | steps | what they do |
//! |---|---|---|
//! | [`difference`] | `d` `dk` | differences of neighbours, once or up to six times |
//! | [`lag`] | `lag` | differences to the word some places before |
//! | [`polynomial`] | `po` | what doubles are beside a polynomial through those before |
//! | [`image`] | `im` | what is left of forecasts from the left and above |
//! | [`map`] | `zz` `sw` `fm` | signs folded, bytes swapped, floats as integers in order |
//! | [`mask`] | `mk` | one frequent word taken out |
//! | [`decimal`] | `al` | decimal floats as integers |
//! | [`planes`] | `t` `bt` | planes of bytes, planes of bits |
//! | [`bitpack`] | `pk` | blocks of 16 words, each as wide as its widest |
//! | [`classes`] | `ce` `ex` | Huffman-coded lengths or exponents, and raw bits |
//! | [`number`] | `num` `numq` | numbers of a text, by columns |
//! | [`block`] | `lz4` `zstd` `zstdl` `deflate` `deflates` `lzt` `lzts` | what looks for repeats |
//!
//! Most come for words of 1, 2, 4 and 8 bytes, and the width is the last letter of their name.

/// `STEPS`: one kind of step for words of each width. The type has two fields, `info` and `width`.
macro_rules! steps_by_width {
    ($kind:ident, keeps_length: $keeps:literal, has_side: $side:literal, $(($word:ty, $id:literal, $name:literal)),*) => {
        pub(super) const STEPS: &[&dyn $crate::step::Step] = &[$(&$kind::<$word> {
            info: Info { id: $crate::step::StepId($id), name: $name, keeps_length: $keeps, has_side: $side },
            width: std::marker::PhantomData,
        }),*];
    };
}

pub mod bitpack;
pub mod block;
pub mod classes;
pub mod decimal;
pub mod difference;
pub mod image;
pub mod lag;
pub mod map;
pub mod mask;
pub mod number;
pub mod planes;
pub mod polynomial;

mod fused;

use crate::step::{PageError, Step, StepId};

/// The step of this number.
///
/// # Errors
/// [`PageError::UnknownStep`] if there is none.
pub fn by_id(id: StepId) -> Result<&'static dyn Step, PageError> {
    all()
        .find(|step| step.id() == id)
        .ok_or(PageError::UnknownStep(id))
}

/// The step of this name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn Step> {
    all().find(|step| step.name() == name)
}

/// All steps.
pub fn all() -> impl Iterator<Item = &'static dyn Step> {
    GROUPS.iter().flat_map(|group| group.iter().copied())
}

const GROUPS: &[&[&dyn Step]] = &[
    difference::STEPS,
    lag::STEPS,
    image::STEPS,
    map::STEPS,
    mask::STEPS,
    decimal::STEPS,
    planes::STEPS,
    bitpack::STEPS,
    classes::STEPS,
    classes::EXPONENT_STEPS,
    block::STEPS,
    number::STEPS,
    polynomial::STEPS,
];

/// One stage in place of the first of `ids`, and in place of how many.
pub(crate) fn fused(ids: &[StepId]) -> Option<(&'static dyn Step, usize)> {
    fused::find(ids).map(|stage| (stage, 3))
}

/// The number of the built-in chain of these steps, which must be there.
pub(crate) fn builtin(names: &str) -> u8 {
    BUILTINS
        .iter()
        .position(|builtin| *builtin == names)
        .expect("it is built in") as u8
}

/// The built-in chains by number. One that was released keeps its number for ever.
pub(crate) const BUILTINS: &[&str] = &[
    "lz4",
    "zstd",
    "deflate",
    "dk8-zz8-pk8",
    "dk4-zz4-pk4",
    "dk2-zz2-pk2",
    "dk1-zz1-pk1",
    "dk8-zz8-ce8",
    "dk4-zz4-ce4",
    "dk2-zz2-ce2",
    "dk1-zz1-ce1",
    "d8-lz4",
    "d8-zstd",
    "d4-zstd",
    "d8-deflate",
    "t8-zstd",
    "t4-zstd",
    "t2-zstd",
    "t8-deflate",
    "t4-deflate",
    "t2-deflate",
    "d4-t4-deflate",
    "d2-t2-deflate",
    "ex8",
    "ex4",
    "ex2",
    "exb",
    "al8-dk8-zz8-ce8",
    "al4-dk4-zz4-ce4",
    "al8-t8-deflate",
    "al4-t4-deflate",
    "al8-d8-t8-deflate",
    "fm8-dk8-zz8-ce8",
    "fm4-dk4-zz4-ce4",
    "sw4-dk4-zz4-ce4",
    "sw4-fm4-dk4-zz4-ce4",
    "sw2-dk2-zz2-ce2",
    "mk8-dk8-zz8-ce8",
    "mk4-dk4-zz4-ce4",
    "mk2-dk2-zz2-ce2",
    "mk4-fm4-dk4-zz4-ce4",
    "mk8-deflate",
    "sw4-mk4-dk4-zz4-ce4",
    "sw4-t4-deflate",
    "lag8-zz8-ce8",
    "lag4-zz4-ce4",
    "lag2-zz2-ce2",
    "lag1-zz1-ce1",
    "lag8-dk8-zz8-ce8",
    "lag4-dk4-zz4-ce4",
    "lag2-dk2-zz2-ce2",
    "lag1-dk1-zz1-ce1",
    "bt-deflate",
    "t4-bt-deflate",
    "al8-lag8-zz8-ce8",
    "al8-mk8-dk8-zz8-ce8",
    "mk4-ex4",
    "ce1",
    "sw4-dk4-zz4-pk4",
    "sw2-dk2-zz2-pk2",
    "al8-dk8-zz8-pk8",
    "al4-dk4-zz4-pk4",
    "d4-lz4",
    "mk8-lz4",
    "mk8-zstd",
    "mk4-dk4-zz4-pk4",
    "mk8-dk8-zz8-pk8",
    "mk2-dk2-zz2-pk2",
    "d8-mk8-deflate",
    "d8-mk8-lz4",
    "sw4-t4-zstd",
    "lag8-mk8-deflate",
    "d8-t8-deflate",
    "lzt",
    "lzts",
    "d8-lzt",
    "d8-lzts",
    "d4-lzt",
    "d4-lzts",
    "t8-lzts",
    "t4-lzts",
    "t2-lzts",
    "mk8-lzt",
    "mk8-lzts",
    "mk4-lzts",
    "d8-mk8-lzt",
    "d8-mk8-lzts",
    "bt-lzts",
    "d8-t8-lzts",
    "t8-lzt",
    "t4-lzt",
    "t2-lzt",
    "deflates",
    "num-deflate",
    "num-deflates",
    "num-lzts",
    "im1-deflate",
    "im1-zz1-ce1",
    "im2-zz2-ce2",
    "im2-zz2-t2-deflate",
    "im4-zz4-ce4",
    "im4-zz4-t4-deflate",
    "im8-zz8-ce8",
    "zstdl",
    "numq-deflate",
    "numq-deflates",
    "numq-lzts",
    "po8-zz8-ce8",
    "t4-lz4",
];
