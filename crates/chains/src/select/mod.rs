//! Which chains a page may be packed by best, judged by a glance at it.
//!
//! [`noise`] says at once what nothing packs. [`features`] looks at some hundred bytes; a tree of thresholds turns what
//! it saw into a short list of chains, the most promising first. The trees are made by `examples/train_selector.rs`
//! from the sizes of pages under all chains (`model.rs` says from which), and nothing is lost but ratio where they are
//! wrong.

pub mod features;
mod model;
pub mod noise;
pub mod tree;

use std::sync::LazyLock;

pub use self::{
    features::{BITS4, BITS4_SWAPPED, FEATURES, Features, LAG8, look},
    noise::{Signs, has_no_repeats, is_noise},
};
use crate::{
    PAGE, Profile,
    steps::{self, BUILTINS},
};

/// What a tree names for such a page: numbers of built-in chains, or [`BY_WIDTH`]. The same for pages that look alike.
#[must_use]
pub fn leaf(profile: Profile, features: &Features) -> &'static [u8] {
    let tree = match profile {
        Profile::Fast | Profile::Dense => model::FAST,
        Profile::Balanced => model::BALANCED,
        Profile::Ratio => model::RATIO,
    };
    tree::leaf(tree, features)
}

/// Numbers of built-in chains that a tree expects to pack such a page well, the most promising first.
pub fn promising(profile: Profile, features: &Features) -> impl Iterator<Item = u8> {
    let leaf = leaf(profile, features);
    let by_width = by_width(profile, features).chain;
    leaf.iter().map(move |&chain| match chain {
        BY_WIDTH => by_width,
        _ if profile == Profile::Dense => CODED_OF[usize::from(chain)],
        _ => chain,
    })
}

/// In a leaf, what [`by_width`] says, which is no chain's number.
pub const BY_WIDTH: u8 = 0xff;

/// A chain and what is expected of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Number of a built-in chain.
    pub chain: u8,
    /// Bytes of the page, packed.
    pub len: usize,
}

/// The built-in chain of numbers that is expected to pack such a page shortest: differences at the width where they
/// need fewest bits. No training is behind it, so it holds for data that no tree has seen.
#[must_use]
pub fn by_width(profile: Profile, features: &Features) -> Expected {
    // Bits that a word takes beside those of its value, 1.7 of them, as a share of 255 of the word.
    const BESIDE: [u16; 6] = [7, 14, 27, 54, 14, 27];
    // A page of decimals, of which most are such; how short they get is not known from the look.
    const DECIMAL: u8 = 12 * 15;
    const DECIMALS_LEN: usize = PAGE / 2;
    let by_width = if profile == Profile::Fast {
        &*PACKED
    } else {
        &*CODED
    };
    let cost = |n: usize| u16::from(features[n]) + BESIDE[n];
    let best = (0..6).min_by_key(|&n| cost(n)).expect("six widths");
    match best {
        _ if features[16] >= DECIMAL => Expected {
            chain: by_width[6],
            len: DECIMALS_LEN,
        },
        _ if features[17] >= DECIMAL => Expected {
            chain: by_width[7],
            len: DECIMALS_LEN,
        },
        _ => Expected {
            chain: by_width[best],
            len: usize::from(cost(best)) * PAGE / 255,
        },
    }
}

/// Built-in chains that pack numbers, by feature, and of decimal doubles and floats.
static CODED: LazyLock<[u8; 8]> = LazyLock::new(|| {
    numbers([
        "dk8-zz8-ce8",
        "dk4-zz4-ce4",
        "dk2-zz2-ce2",
        "dk1-zz1-ce1",
        "sw4-dk4-zz4-ce4",
        "sw2-dk2-zz2-ce2",
        "al8-dk8-zz8-ce8",
        "al4-dk4-zz4-ce4",
    ])
});

/// Of each built-in chain the one with coded lengths in place of blocks of bits, or with LZ-T in place of LZ4, if that
/// is built in too; else itself.
static CODED_OF: LazyLock<Vec<u8>> =
    LazyLock::new(|| named_alike(|names| names.replace("-pk", "-ce").replace("-lz4", "-lzt")));

/// Of each built-in chain the one with blocks of bits in place of coded lengths, as above.
static BLOCKS_OF: LazyLock<Vec<u8>> =
    LazyLock::new(|| named_alike(|names| names.replace("-ce", "-pk")));

/// Of each built-in chain the one whose name that makes of its own; itself where none has it.
fn named_alike(other: impl Fn(&str) -> String) -> Vec<u8> {
    let number = |names: String| BUILTINS.iter().position(|builtin| *builtin == names);
    BUILTINS
        .iter()
        .enumerate()
        .map(|(own, names)| number(other(names)).unwrap_or(own) as u8)
        .collect()
}

/// Of a built-in chain the one with blocks of bits in place of coded lengths, if that is built in too. Where a page
/// holds both words of few bits and words of many, it is the shorter one.
#[must_use]
pub fn blocks_of(chain: u8) -> Option<u8> {
    let blocks = BLOCKS_OF[usize::from(chain)];
    (blocks != chain).then_some(blocks)
}

/// As [`CODED`], without an entropy coder.
static PACKED: LazyLock<[u8; 8]> = LazyLock::new(|| {
    numbers([
        "dk8-zz8-pk8",
        "dk4-zz4-pk4",
        "dk2-zz2-pk2",
        "dk1-zz1-pk1",
        "sw4-dk4-zz4-pk4",
        "sw2-dk2-zz2-pk2",
        "al8-dk8-zz8-pk8",
        "al4-dk4-zz4-pk4",
    ])
});

fn numbers(names: [&str; 8]) -> [u8; 8] {
    names.map(steps::builtin)
}
