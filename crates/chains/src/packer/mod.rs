//! Packs pages, choosing a chain for each.
//!
//! Pages lie in memory in runs of one kind, so the chain that packed the last page is tried first and taken while it
//! packs about as well (`SIMILAR`), unless it had just replaced another. A page that it does not suit, and one now and
//! then (`probe`), is looked at (`select`), and the chains that are promising by that look are tried. Noise is
//! refused untried, and so is a page that shows no more signs of structure than the last ones that were tried in vain.
//!
//! `Ratio` makes sure of noise, and trusts the last page's chain only where it packs numbers by an entropy coder; among
//! those that look for repeats the best changes from page to page.
//!
//! | module | holds |
//! |---|---|
//! | `contest` | chains in turn on one page |
//! | `memory` | what was learnt from the last pages |
//! | `probe` | when a page is looked at though the last one's chain might do |

mod contest;
mod memory;
mod probe;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use contest::{Builtins, Contest, DIFFERENCES, Look, MATCHES, Packed, SWAPPED, is_one_of};
use memory::{Beaten, Before, Rivals};
use probe::Patience;

use crate::{
    PAGE,
    chain::{self, Chain, Scratch},
    chains::Chains,
    select::{self, Features, Signs, has_no_repeats, is_noise, look},
    step::PageError,
};

/// How much work a page is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Packs numbers faster than LZ4 packs text.
    Fast,
    /// As `Fast`, but numbers by an entropy coder, about as fast as LZ4 is on text.
    Dense,
    /// Never slower than zstd at level 1.
    Balanced,
    /// Everything that may pack best is tried.
    Ratio,
}

/// What sets the profiles apart, beside the trees that choose for them.
#[derive(Debug, Clone, Copy)]
struct Manner {
    /// Everything that may pack best is tried on every page, rather than the first that packs.
    thorough: bool,
    /// Takes no chain that is slower than the profile promises, however short.
    strict: bool,
    /// Learns which of LZ-T and zstd packs such pages shorter, and tries the others of [`MATCHES`] now and then.
    learns: bool,
    /// Blocks that a page was packed by in need are tried first on the next one, too.
    blocks_again: bool,
    /// zstd by its hasty settings.
    hasty: bool,
}

impl Profile {
    const fn manner(self) -> Manner {
        const DENSE: Manner = Manner {
            thorough: false,
            strict: false,
            learns: false,
            blocks_again: false,
            hasty: false,
        };
        match self {
            Self::Fast => Manner {
                strict: true,
                blocks_again: true,
                ..DENSE
            },
            Self::Dense => DENSE,
            Self::Balanced => Manner {
                learns: true,
                hasty: true,
                ..DENSE
            },
            Self::Ratio => Manner {
                thorough: true,
                ..DENSE
            },
        }
    }
}

/// Packed pages longer than this are refused, since their store would save nothing. Clones share it, and it may change
/// while packers work.
#[derive(Debug, Clone)]
pub struct Limit(Arc<AtomicUsize>);

impl Default for Limit {
    /// 3264 bytes: the largest class but a whole page of zram's allocator, with zspages of four pages.
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(3264)))
    }
}

impl Limit {
    /// The longest packed page that is worth storing, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// From now on packed pages have at most `bytes`, which is at most [`PAGE`].
    pub fn set(&self, bytes: usize) {
        self.0.store(bytes.min(PAGE), Ordering::Relaxed);
    }
}

/// Packs and unpacks for one thread and one stream of pages: scratch memory, and what was learnt from the last pages.
#[derive(Debug)]
pub struct PagePacker {
    profile: Profile,
    manner: Manner,
    limit: Limit,
    chains: Chains,
    /// The set as it was at `version`.
    now: Arc<[Chain]>,
    /// The built-in chains in it.
    listed: Builtins,
    /// Places of the others in it, which are tried whatever a page looks like.
    own: Vec<usize>,
    version: u64,
    before: Before,
    beaten: Beaten,
    patience: Patience,
    rivals: Rivals,
    pages: u32,
    trial: Box<[u8; PAGE]>,
    scratch: Scratch,
}

/// What the last page's chain made of a page.
#[derive(Debug, Clone, Copy, Default)]
struct First {
    best: Option<Packed>,
    /// The chain, if it could not pack this one.
    failed: Option<Chain>,
}

impl PagePacker {
    /// A packer with the built-in chains and the default limit.
    #[must_use]
    pub fn new(profile: Profile) -> Self {
        Self::with(profile, Limit::default(), Chains::default())
    }

    /// A packer that shares its limit and its set of chains with others.
    #[must_use]
    pub fn with(profile: Profile, limit: Limit, chains: Chains) -> Self {
        let manner = profile.manner();
        let version = chains.version();
        let now = chains.now();
        let mut packer = Self {
            profile,
            manner,
            limit,
            chains,
            now,
            listed: Builtins::default(),
            own: vec![],
            version,
            before: Before::Nothing,
            beaten: Beaten::default(),
            patience: Patience::default(),
            rivals: Rivals::default(),
            pages: 0,
            trial: Box::new([0; PAGE]),
            scratch: if manner.hasty {
                Scratch::hasty()
            } else {
                Scratch::default()
            },
        };
        packer.take_chains();
        packer
    }

    /// Learns anew which chains are in the set.
    fn take_chains(&mut self) {
        self.now = self.chains.now();
        self.before = Before::Nothing;
        self.listed = Builtins::default();
        self.own.clear();
        for (n, chain) in self.now.iter().enumerate() {
            match chain.builtin() {
                Some(number) => self.listed.add(number),
                None => self.own.push(n),
            }
        }
    }

    /// What it was made for.
    #[must_use]
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// Packs `page` into the front of `out` and returns the packed length, or `None` where that would exceed the limit:
    /// the page is then stored as it is.
    pub fn pack(&mut self, page: &[u8; PAGE], out: &mut [u8; PAGE]) -> Option<usize> {
        let out = &mut out[..self.limit.bytes()];
        let version = self.chains.version();
        if version != self.version {
            self.version = version;
            self.take_chains();
        }
        self.pages = self.pages.wrapping_add(1);
        let probe = self.patience.is_probe();
        let first = self.by_last(page, out);
        if let Some(packed) = first.best
            && !probe
            && self.is_enough(packed)
        {
            return Some(packed.len);
        }
        if !probe && self.is_like_refused(page) || first.best.is_none() && self.is_refused(page) {
            return None;
        }
        let features = look(page);
        let best = self.best_of(&features, page, out, first, probe);
        self.remember(best, page, probe);
        best.map(|best| best.len)
    }

    /// Packs `page` by the chain of the last one, unless that has just replaced another.
    fn by_last(&mut self, page: &[u8; PAGE], out: &mut [u8]) -> First {
        match self.before {
            Before::Packed { chain, again, .. } if again || self.manner.thorough => {
                // Not in vain if it is too long: what others make of the page must be shorter.
                let best = chain
                    .pack(page, out, &mut self.scratch)
                    .map(|len| Packed { chain, len });
                let failed = best.is_none().then_some(chain);
                First { best, failed }
            }
            _ => First::default(),
        }
    }

    /// Whether the page needs no look, since the last one's chain packed it about as well.
    fn is_enough(&mut self, Packed { chain, len }: Packed) -> bool {
        let Before::Packed { len: before, .. } = self.before else {
            return false;
        };
        let trusted = !self.manner.thorough || !chain.ends_in_matches() && !chain.ends_in_blocks();
        let is_similar =
            len <= before + before / SIMILAR || self.patience.passes(&chain, len, before);
        if !trusted || !is_similar {
            return false;
        }
        // Pages may drift to where another is shorter; `Ratio` lets them by no more than a page is like the
        // last one.
        let like = if self.manner.thorough {
            len.min(before)
        } else {
            len
        };
        self.before = Before::Packed {
            chain,
            len: like,
            again: true,
        };
        true
    }

    /// Whether the page shows no more signs of structure than the last ones, which were tried in vain.
    fn is_like_refused(&self, page: &[u8; PAGE]) -> bool {
        match &self.before {
            Before::Refused {
                signs,
                tried: VAIN..,
            } => !self.manner.thorough && Signs::of(page).are_within(signs),
            _ => false,
        }
    }

    /// Whether the page is noise.
    fn is_refused(&mut self, page: &[u8; PAGE]) -> bool {
        let is_refused = !self.pages.is_multiple_of(PROBE_NOISE)
            && is_noise(page)
            && (!self.manner.thorough || has_no_repeats(page));
        if is_refused && !matches!(self.before, Before::Refused { .. }) {
            self.before = Before::Nothing;
        }
        is_refused
    }

    /// What a look came to is for the next page to begin with.
    fn remember(&mut self, best: Option<Packed>, page: &[u8; PAGE], probe: bool) {
        let is_news = !matches!(
            (best, self.before),
            (Some(Packed { chain, .. }), Before::Packed { chain: before, .. }) if chain == before
        );
        self.patience.note(is_news, probe, best.as_ref());
        if is_news {
            self.beaten = Beaten::default();
        }
        self.before = match (best, &self.before) {
            (Some(Packed { chain, len }), before) => {
                // Blocks that were tried since nothing else packed say little of the next page.
                let in_need = !probe && !self.manner.blocks_again && chain.ends_in_blocks();
                let again = match before {
                    Before::Packed {
                        chain: before,
                        again,
                        ..
                    } => probe || *before == chain && (*again || !in_need),
                    _ => !in_need,
                };
                Before::Packed { chain, len, again }
            }
            (None, Before::Refused { signs, tried }) => Before::Refused {
                signs: Signs::of(page).most(signs),
                tried: tried + 1,
            },
            (None, _) => Before::Refused {
                signs: Signs::of(page),
                tried: 1,
            },
        };
    }

    /// Packs `page` by promising chains and leaves the shortest in `out`, where `first` lies if it packed it. `Ratio`
    /// and a `probe` try each of them; others take the most promising one that packs at all, since a second would make
    /// them slower than they promise on data that changes from page to page.
    fn best_of(
        &mut self,
        features: &Features,
        page: &[u8; PAGE],
        out: &mut [u8],
        first: First,
        probe: bool,
    ) -> Option<Packed> {
        let Manner {
            thorough,
            strict,
            learns,
            ..
        } = self.manner;
        let leaf = select::leaf(self.profile, features);
        let look = Look {
            profile: self.profile,
            features,
            by_width: select::by_width(self.profile, features),
        };
        // Codecs that pack such numbers shorter take longer than `Fast` promises.
        let best = first.best.filter(|_| !strict || leaf != [*SWAPPED]);
        let is_lzt = if learns && !probe {
            self.rivals.is_lzt(leaf)
        } else {
            None
        };
        let mut contest = Contest {
            left: self.untried(leaf, best, &look, probe),
            page,
            out,
            trial: &mut self.trial,
            scratch: &mut self.scratch,
            best,
            failed: first.failed,
        };
        contest.leave_out_known(is_lzt);
        let before = contest.left;
        contest.promising(&look, is_lzt, thorough || probe);
        if thorough {
            contest.everything(&look);
        } else if look.by_width.len <= contest.most() {
            contest.builtin(look.by_width.chain);
        }
        if (probe || contest.best.is_none())
            && let Some(blocks) = select::blocks_of(look.by_width.chain)
        {
            contest.builtin(blocks);
        }
        self.own
            .iter()
            .for_each(|&chain| contest.attempt(&self.now[chain]));
        self.beaten.chains.add_all(before.without(contest.left));
        if learns
            && probe
            && contest
                .best
                .is_some_and(|best| best.chain.ends_in_matches())
            && let Some(challenger) = self.patience.challenger()
        {
            contest.builtin(challenger);
        }
        if !thorough && probe && look.differs_little() {
            contest.builtin(*DIFFERENCES);
        }
        let [lzt, _, zstd] = *MATCHES;
        let has_packed = |number: u8| {
            best.is_some_and(|best| is_one_of(&best.chain, &[number]))
                || before.has(number) && !contest.left.has(number)
        };
        if has_packed(lzt)
            && has_packed(zstd)
            && let Some(Packed { chain, .. }) = contest.best
            && is_one_of(&chain, &[lzt, zstd])
        {
            self.rivals.note(leaf, is_one_of(&chain, &[lzt]));
        }
        contest.best
    }

    /// The built-in chains that may pack such a page shorter than `best`.
    fn untried(
        &mut self,
        leaf: &'static [u8],
        best: Option<Packed>,
        look: &Look<'_>,
        probe: bool,
    ) -> Builtins {
        if probe && self.patience.forgets() {
            self.beaten = Beaten {
                leaf,
                ..Beaten::default()
            };
        } else {
            self.beaten.turn_to(leaf, best);
        }
        match best {
            Some(best) if !self.manner.thorough => {
                // One of which this look promises more than what is there is tried again.
                if look.by_width.len < best.len {
                    self.beaten.chains.remove(look.by_width.chain);
                }
                self.listed.without(self.beaten.chains)
            }
            _ => self.listed,
        }
    }

    /// Fills `page` from what some packer made of it. Any bytes may come.
    ///
    /// # Errors
    /// [`PageError`] when `packed` is not a packed page, or one of a newer version.
    pub fn unpack(&mut self, packed: &[u8], page: &mut [u8; PAGE]) -> Result<(), PageError> {
        chain::unpack(packed, page, &mut self.scratch)
    }
}

/// As [`PROBE`], where pages look like noise, which is seldom wrong and cheap to say.
const PROBE_NOISE: u32 = 1024;
/// So many pages are tried in vain, with none between that packs, before others are refused for being like them.
const VAIN: u32 = 8;

/// A page is like the last one if it packs to no more than this part above it: 9/8.
const SIMILAR: usize = 8;
