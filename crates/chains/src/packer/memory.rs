//! What was learnt from the last pages.

use super::contest::{Builtins, MATCHES, Packed};
use crate::{chain::Chain, select::Signs};

/// What became of the last page.
#[derive(Debug, Clone, Copy)]
pub(super) enum Before {
    /// There was none, or it was noise.
    Nothing,
    Packed {
        chain: Chain,
        len: usize,
        /// It was packed by the chain of the page before it, if there was one: the next may be, too.
        again: bool,
    },
    /// No chain made it short enough; the most signs that it and those tried in vain just before it showed.
    Refused { signs: Signs, tried: u32 },
}

/// Chains that packed pages longer than the last page's chain did, since that began to be it: they are not tried again
/// for a while ([`Patience::forgets`]), and not until pages look otherwise. Only where one of [`MATCHES`] beat another
/// does the look not matter.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Beaten {
    /// What the tree named for the last page that was looked at.
    pub(super) leaf: &'static [u8],
    pub(super) chains: Builtins,
}

impl Beaten {
    /// The page at hand is of this leaf, and `best` is what the last page's chain made of it.
    pub(super) fn turn_to(&mut self, leaf: &'static [u8], best: Option<Packed>) {
        if leaf == self.leaf {
            return;
        }
        let holds = best
            .and_then(|best| best.chain.builtin())
            .is_some_and(|number| MATCHES.contains(&number));
        let before = std::mem::replace(
            self,
            Self {
                leaf,
                chains: Builtins::default(),
            },
        );
        for &number in MATCHES.iter().filter(|_| holds) {
            if before.chains.has(number) {
                self.chains.add(number);
            }
        }
    }
}

/// Which of LZ-T and zstd is tried on pages of which a look says that there are repeats, but not who packs them
/// shorter. LZ-T takes four fifths of the time.
#[derive(Debug, Clone, Default)]
pub(super) struct Rivals {
    /// By what the tree named: whether LZ-T was shorter where both packed a page, and how often in a row it was that
    /// one.
    won: Vec<(&'static [u8], bool, u32)>,
}

impl Rivals {
    pub(super) fn note(&mut self, leaf: &'static [u8], is_lzt: bool) {
        match self.won.iter_mut().find(|(named, ..)| *named == leaf) {
            Some((_, winner, times)) if *winner == is_lzt => *times = times.saturating_add(1),
            Some((_, winner, times)) => (*winner, *times) = (is_lzt, 1),
            None => self.won.push((leaf, is_lzt, 1)),
        }
    }

    /// Whether LZ-T is the one to be tried, or zstd; `None` where neither was shorter often enough.
    pub(super) fn is_lzt(&self, leaf: &'static [u8]) -> Option<bool> {
        let of_leaf = self.won.iter().find(|(named, ..)| *named == leaf);
        of_leaf.and_then(|&(_, is_lzt, times)| (times >= TIMES_WON).then_some(is_lzt))
    }
}

/// So often in a row LZ-T or zstd has to be shorter before it alone is tried: after one time, memory of Python and an
/// ext4 image are 1 % longer.
const TIMES_WON: u32 = 2;
