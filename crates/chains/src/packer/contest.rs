//! Chains in turn on one page: the shortest wins.

use std::sync::LazyLock;

use super::Profile;
use crate::{
    PAGE,
    chain::{Chain, Scratch},
    select::{self, Expected, Features},
    steps,
};

pub(super) fn is_one_of(chain: &Chain, numbers: &[u8]) -> bool {
    chain
        .builtin()
        .is_some_and(|number| numbers.contains(&number))
}

/// The chain that packed a page shortest so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packed {
    pub(super) chain: Chain,
    pub(super) len: usize,
}

/// Chains in turn on one page, of which the shortest stays in `out`.
pub(super) struct Contest<'a> {
    pub(super) page: &'a [u8; PAGE],
    /// As long as a packed page may be.
    pub(super) out: &'a mut [u8],
    pub(super) trial: &'a mut [u8; PAGE],
    pub(super) scratch: &'a mut Scratch,
    pub(super) best: Option<Packed>,
    /// The last page's chain, if it could not pack this one: it cannot now.
    pub(super) failed: Option<Chain>,
    /// Built-in chains that may still be tried.
    pub(super) left: Builtins,
}

impl Contest<'_> {
    /// The longest packed page that would be an improvement.
    pub(super) fn most(&self) -> usize {
        self.best.map_or(self.out.len(), |best| best.len - 1)
    }

    pub(super) fn attempt(&mut self, chain: &Chain) {
        let most = self.most();
        if let Some(len) = chain.pack(self.page, &mut self.trial[..most], self.scratch) {
            self.out[..len].copy_from_slice(&self.trial[..len]);
            self.best = Some(Packed { chain: *chain, len });
        }
    }

    /// Tries a built-in chain unless it has been tried or is not in the set.
    pub(super) fn builtin(&mut self, number: u8) {
        if self.leave_out(number)
            && !self
                .failed
                .is_some_and(|failed| is_one_of(&failed, &[number]))
        {
            self.attempt(&Chain::builtins()[usize::from(number)]);
        }
    }

    /// Whether this chain might still have been tried.
    pub(super) fn leave_out(&mut self, number: u8) -> bool {
        let was_left = self.left.has(number);
        self.left.remove(number);
        was_left
    }

    /// Leaves out what was packed already, and of LZ-T and zstd the one that is known to be longer if the other did
    /// it.
    pub(super) fn leave_out_known(&mut self, is_lzt: Option<bool>) {
        let Some(best) = self.best else { return };
        if let Some(number) = best.chain.builtin() {
            self.leave_out(number);
        }
        let [lzt, _, zstd] = *MATCHES;
        match is_lzt {
            Some(true) if is_one_of(&best.chain, &[lzt]) => self.leave_out(zstd),
            Some(false) if is_one_of(&best.chain, &[zstd]) => self.leave_out(lzt),
            _ => false,
        };
    }

    /// Tries the promising ones in turn: the first that packs is enough unless `all` are asked for.
    pub(super) fn promising(&mut self, look: &Look<'_>, is_lzt: Option<bool>, all: bool) {
        let [lzt, _, zstd] = *MATCHES;
        // Where LZ-T has packed the page already, zstd is the other one.
        let prefer_lzt = is_lzt == Some(true) && self.left.has(lzt);
        for number in select::promising(look.profile, look.features) {
            self.builtin(if number == zstd && prefer_lzt {
                lzt
            } else {
                number
            });
            if !all && self.best.is_some() {
                break;
            }
        }
    }

    /// Tries what may be the best though no look says so.
    pub(super) fn everything(&mut self, look: &Look<'_>) {
        self.builtin(look.by_width.chain);
        // What others would take costs little beside all of this, and is the shortest now and then.
        for other in [Profile::Fast, Profile::Dense] {
            select::promising(other, look.features).for_each(|number| self.builtin(number));
            self.builtin(select::by_width(other, look.features).chain);
        }
        ALWAYS.iter().for_each(|&number| self.builtin(number));
        let best = self.best.and_then(|best| best.chain.builtin());
        for [_, longer] in LONGER.iter().filter(|[chain, _]| Some(*chain) == best) {
            self.builtin(*longer);
        }
    }
}

/// What a look at the page found.
#[derive(Debug)]
pub(super) struct Look<'a> {
    pub(super) profile: Profile,
    pub(super) features: &'a Features,
    pub(super) by_width: Expected,
}

impl Look<'_> {
    /// Doubles that hardly change repeat as they are, and ten times as well by their differences. The tree names one
    /// chain for them.
    pub(super) fn differs_little(&self) -> bool {
        self.features[select::LAG8] >= MOST_OF_LAG8
            && self.features[select::BITS4] <= self.features[select::BITS4_SWAPPED]
    }
}

/// A set of built-in chains, one bit for each.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Builtins([u64; 4]);

impl Builtins {
    pub(super) fn has(&self, number: u8) -> bool {
        self.0[usize::from(number / 64)] >> (number % 64) & 1 == 1
    }

    pub(super) fn add(&mut self, number: u8) {
        self.0[usize::from(number / 64)] |= 1 << (number % 64);
    }

    pub(super) fn remove(&mut self, number: u8) {
        self.0[usize::from(number / 64)] &= !(1 << (number % 64));
    }

    pub(super) fn add_all(&mut self, others: Self) {
        self.0
            .iter_mut()
            .zip(others.0)
            .for_each(|(own, others)| *own |= others);
    }

    /// Those that are not among `others`.
    pub(super) fn without(self, others: Self) -> Self {
        Self(std::array::from_fn(|n| self.0[n] & !others.0[n]))
    }
}

/// Chains that `Ratio` always tries, whatever a page looks like: no tree may cost it the best of these.
static ALWAYS: LazyLock<[u8; 4]> =
    LazyLock::new(|| ["zstd", "deflate", "lzts", "numq-deflate"].map(steps::builtin));

/// Chains of pages that hold text and the like. No look says which of them is the best.
pub(super) static MATCHES: LazyLock<[u8; 3]> =
    LazyLock::new(|| ["lzt", "zstdl", "zstd"].map(steps::builtin));

/// What LZ-T makes of differences of doubles.
pub(super) static DIFFERENCES: LazyLock<u8> = LazyLock::new(|| steps::builtin("d8-lzt"));

/// Where the first is the best, the second may be, too, and is too slow to be tried always.
static LONGER: LazyLock<[[u8; 2]; 7]> = LazyLock::new(|| {
    [
        ["deflate", "deflates"],
        ["numq-deflate", "numq-deflates"],
        ["dk8-zz8-ce8", "po8-zz8-ce8"],
        ["dk8-zz8-pk8", "po8-zz8-ce8"],
        ["fm8-dk8-zz8-ce8", "po8-zz8-ce8"],
        ["lag8-dk8-zz8-ce8", "po8-zz8-ce8"],
        ["mk8-dk8-zz8-ce8", "po8-zz8-ce8"],
    ]
    .map(|chains| chains.map(steps::builtin))
});

/// What `Fast` has for numbers in big-endian words that repeat: LZ-T packs them a quarter shorter, and unpacks them
/// slower than LZ4 does text.
pub(super) static SWAPPED: LazyLock<u8> = LazyLock::new(|| steps::builtin("t4-lz4"));

/// Where three bytes of five are those of eight before, probes try [`DIFFERENCES`].
const MOST_OF_LAG8: u8 = 153;
