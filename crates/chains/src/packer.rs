//! Packs pages, choosing a chain for each.
//!
//! Pages lie in memory in runs of one kind, so the chain that packed the last page is tried first and taken while it
//! packs about as well (`SIMILAR`), unless it had just replaced another. A page that it does not suit, and one now and
//! then (`Patience`), is looked at (`select`), and the chains that are promising by that look are tried. Noise is
//! refused untried, and so is a page that shows no more signs of structure than the last ones that were tried in vain.
//!
//! `Ratio` makes sure of noise, and trusts the last page's chain only where it packs numbers by an entropy coder; among
//! those that look for repeats the best changes from page to page.

use std::sync::{
    Arc, LazyLock,
    atomic::{AtomicUsize, Ordering},
};

use crate::{
    PAGE,
    chain::{self, Chain, Scratch},
    chains::Chains,
    select::{self, Features, Signs, has_no_repeats, is_noise, look},
    step::PageError,
    steps,
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
    limit: Limit,
    chains: Chains,
    /// The set as it was at `version`.
    now: Arc<[Chain]>,
    /// One bit for each built-in chain that is in it.
    listed: [u64; 4],
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

/// What became of the last page.
#[derive(Debug, Clone, Copy)]
enum Before {
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
struct Beaten {
    /// What the tree named for the last page that was looked at.
    leaf: &'static [u8],
    /// One bit for each built-in chain.
    chains: [u64; 4],
}

/// How often pages are looked at, by what looks came to. All of this is for [`MATCHES`]: among chains of numbers looks
/// find something too often.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// Looks in a row that left a page to the last one's chain, and the longest such page.
    looks: u32,
    longest: usize,
    /// Probes in a row that did.
    probes: u32,
    /// Pages until the next probe.
    left: u32,
    /// Pages until probes may come sooner again.
    rest: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            looks: 0,
            longest: 0,
            probes: 0,
            left: PROBE,
            rest: 0,
        }
    }
}

impl Patience {
    /// Counts a page; whether it is looked at though the last one's chain might do.
    fn is_probe(&mut self) -> bool {
        self.left -= 1;
        self.rest = self.rest.saturating_sub(1);
        let is_probe = self.left == 0;
        if is_probe {
            self.left = PROBE;
        }
        is_probe
    }

    /// Whether a page needs no look though it is longer than [`SIMILAR`] allows: one of zstd, up to twice the last
    /// page's length, that is no longer than ones which looks left to it, of which there were [`VAIN_LOOKS`] in a row.
    /// In text and logs one page of seven is too long only since the page before was short, and a look takes a quarter
    /// of the time that packing does.
    fn passes(self, chain: &Chain, len: usize, before: usize) -> bool {
        self.looks >= VAIN_LOOKS
            && is_one_of(chain, &MATCHES[1..])
            && len <= self.longest.min(2 * before)
    }

    /// Whether chains that were beaten may be tried by this probe.
    fn forgets(self) -> bool {
        self.probes % 2 == 1
    }

    /// Which of [`MATCHES`] this probe tries besides: each of the first ones another, since no look says which is the
    /// best, and later ones now and then.
    fn challenger(self) -> Option<u8> {
        let count = MATCHES.len() as u32;
        (self.probes < count || self.probes.is_multiple_of(4))
            .then(|| MATCHES[(self.probes % count) as usize])
    }

    /// A page was looked at, and is packed by this chain now.
    fn note(&mut self, is_news: bool, probe: bool, best: Option<&Packed>) {
        let is_by = |numbers: &[u8]| best.is_some_and(|best| is_one_of(&best.chain, numbers));
        if is_news {
            let is_soon = self.rest == 0 && is_by(&*MATCHES);
            let (most, rest) = if is_soon {
                (PROBE_SOON, SOON_AGAIN)
            } else {
                (PROBE, self.rest)
            };
            *self = Self {
                left: self.left.min(most),
                rest,
                ..Self::default()
            };
            return;
        }
        self.looks = self.looks.saturating_add(1);
        self.longest = self.longest.max(best.map_or(0, |best| best.len));
        if probe {
            self.probes = self.probes.saturating_add(1);
            self.left = match self.probes.checked_sub(MATCHES.len() as u32) {
                None if self.rest > 0 && is_by(&*MATCHES) => PROBE_SOON,
                Some(more) if is_by(&MATCHES[1..]) => PROBE << (more + 1).min(PROBE_MORE),
                _ => PROBE,
            };
        }
    }
}

/// Which of LZ-T and zstd is tried on pages of which a look says that there are repeats, but not who packs them
/// shorter. LZ-T takes four fifths of the time.
#[derive(Debug, Clone, Default)]
struct Rivals {
    /// By what the tree named: whether LZ-T was shorter where both packed a page, and how often in a row it was that
    /// one.
    won: Vec<(&'static [u8], bool, u32)>,
}

impl Rivals {
    fn note(&mut self, leaf: &'static [u8], is_lzt: bool) {
        match self.won.iter_mut().find(|(named, ..)| *named == leaf) {
            Some((_, winner, times)) if *winner == is_lzt => *times = times.saturating_add(1),
            Some((_, winner, times)) => (*winner, *times) = (is_lzt, 1),
            None => self.won.push((leaf, is_lzt, 1)),
        }
    }

    /// Whether LZ-T is the one to be tried, or zstd; `None` where neither was shorter often enough.
    fn is_lzt(&self, leaf: &'static [u8]) -> Option<bool> {
        let of_leaf = self.won.iter().find(|(named, ..)| *named == leaf);
        of_leaf.and_then(|&(_, is_lzt, times)| (times >= TIMES_WON).then_some(is_lzt))
    }
}

fn is_one_of(chain: &Chain, numbers: &[u8]) -> bool {
    chain
        .builtin()
        .is_some_and(|number| numbers.contains(&number))
}

/// The chain that packed a page shortest so far.
#[derive(Debug, Clone, Copy)]
struct Packed {
    chain: Chain,
    len: usize,
}

/// Chains in turn on one page, of which the shortest stays in `out`.
struct Contest<'a> {
    page: &'a [u8; PAGE],
    /// As long as a packed page may be.
    out: &'a mut [u8],
    trial: &'a mut [u8; PAGE],
    scratch: &'a mut Scratch,
    best: Option<Packed>,
    /// The last page's chain, if it could not pack this one: it cannot now.
    failed: Option<Chain>,
    /// One bit for each built-in chain that may still be tried.
    left: [u64; 4],
}

impl Contest<'_> {
    /// The longest packed page that would be an improvement.
    fn most(&self) -> usize {
        self.best.map_or(self.out.len(), |best| best.len - 1)
    }

    fn attempt(&mut self, chain: &Chain) {
        let most = self.most();
        if let Some(len) = chain.pack(self.page, &mut self.trial[..most], self.scratch) {
            self.out[..len].copy_from_slice(&self.trial[..len]);
            self.best = Some(Packed { chain: *chain, len });
        }
    }

    /// Tries a built-in chain unless it has been tried or is not in the set.
    fn builtin(&mut self, number: u8) {
        if self.leave_out(number)
            && !self
                .failed
                .is_some_and(|failed| is_one_of(&failed, &[number]))
        {
            self.attempt(&Chain::builtins()[usize::from(number)]);
        }
    }

    /// Whether this chain might still have been tried.
    fn leave_out(&mut self, number: u8) -> bool {
        let was_left = self.is_left(number);
        self.left[usize::from(number / 64)] &= !(1 << (number % 64));
        was_left
    }

    fn is_left(&self, number: u8) -> bool {
        has_bit(&self.left, number)
    }
}

fn has_bit(chains: &[u64; 4], number: u8) -> bool {
    chains[usize::from(number / 64)] >> (number % 64) & 1 == 1
}

/// Chains that `Ratio` always tries, whatever a page looks like: no tree may cost it the best of these.
static ALWAYS: LazyLock<[u8; 4]> =
    LazyLock::new(|| ["zstd", "deflate", "lzts", "numq-deflate"].map(steps::builtin));

/// Chains of pages that hold text and the like. No look says which of them is the best.
static MATCHES: LazyLock<[u8; 3]> = LazyLock::new(|| ["lzt", "zstdl", "zstd"].map(steps::builtin));

/// What LZ-T makes of differences of doubles.
static DIFFERENCES: LazyLock<u8> = LazyLock::new(|| steps::builtin("d8-lzt"));

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
static SWAPPED: LazyLock<u8> = LazyLock::new(|| steps::builtin("t4-lz4"));

/// Where three bytes of five are those of eight before, probes try [`DIFFERENCES`].
const MOST_OF_LAG8: u8 = 153;

/// So often in a row LZ-T or zstd has to be shorter before it alone is tried: after one time, memory of Python and an
/// ext4 image are 1 % longer.
const TIMES_WON: u32 = 2;

/// Every so many pages a page is looked at though the last one's chain might do.
const PROBE: u32 = 64;
/// As [`PROBE`], while not all of [`MATCHES`] have been tried since one of them became the best.
const PROBE_SOON: u32 = 16;
/// Where the best changes more often than every so many pages, probes come at [`PROBE`] all the same.
const SOON_AGAIN: u32 = 256;
/// So often at most [`PROBE`] is doubled while probes of zstd change nothing: each takes as long as packing two pages,
/// and zstd at level 1 itself is what these pages are to be packed as fast as.
const PROBE_MORE: u32 = 4;
/// As [`PROBE`], where pages look like noise, which is seldom wrong and cheap to say.
const PROBE_NOISE: u32 = 1024;
/// So many pages are tried in vain, with none between that packs, before others are refused for being like them.
const VAIN: u32 = 8;

impl PagePacker {
    /// A packer with the built-in chains and the default limit.
    #[must_use]
    pub fn new(profile: Profile) -> Self {
        Self::with(profile, Limit::default(), Chains::default())
    }

    /// A packer that shares its limit and its set of chains with others.
    #[must_use]
    pub fn with(profile: Profile, limit: Limit, chains: Chains) -> Self {
        let version = chains.version();
        let now = chains.now();
        let mut packer = Self {
            profile,
            limit,
            chains,
            now,
            listed: [0; 4],
            own: vec![],
            version,
            before: Before::Nothing,
            beaten: Beaten::default(),
            patience: Patience::default(),
            rivals: Rivals::default(),
            pages: 0,
            trial: Box::new([0; PAGE]),
            scratch: if profile == Profile::Balanced {
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
        self.listed = [0; 4];
        self.own.clear();
        for (n, chain) in self.now.iter().enumerate() {
            match chain.builtin() {
                Some(number) => self.listed[usize::from(number / 64)] |= 1 << (number % 64),
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
        let limit = self.limit.bytes();
        let version = self.chains.version();
        if version != self.version {
            self.version = version;
            self.take_chains();
        }
        self.pages = self.pages.wrapping_add(1);
        let probe = self.patience.is_probe();
        let mut best = None;
        let mut failed = None;
        if let Before::Packed {
            chain,
            len: before,
            again,
        } = self.before
            && (again || self.profile == Profile::Ratio)
        {
            // Not in vain if it is too long: what others make of the page must be shorter.
            best = chain
                .pack(page, &mut out[..limit], &mut self.scratch)
                .map(|len| Packed { chain, len });
            failed = best.is_none().then_some(chain);
            let trusted = self.profile != Profile::Ratio
                || !chain.ends_in_matches() && !chain.ends_in_blocks();
            if let Some(Packed { len, .. }) = best
                && trusted
                && !probe
                && (len <= before + before / SIMILAR || self.patience.passes(&chain, len, before))
            {
                // Pages may drift to where another is shorter; `Ratio` lets them by no more than a page is like the
                // last one.
                let like = if self.profile == Profile::Ratio {
                    len.min(before)
                } else {
                    len
                };
                self.before = Before::Packed {
                    chain,
                    len: like,
                    again: true,
                };
                return Some(len);
            }
        }
        if let Before::Refused {
            signs: before,
            tried: VAIN..,
        } = &self.before
            && !probe
            && self.profile != Profile::Ratio
            && Signs::of(page).are_within(before)
        {
            return None;
        }
        if best.is_none()
            && !self.pages.is_multiple_of(PROBE_NOISE)
            && is_noise(page)
            && (self.profile != Profile::Ratio || has_no_repeats(page))
        {
            if !matches!(self.before, Before::Refused { .. }) {
                self.before = Before::Nothing;
            }
            return None;
        }
        let features = look(page);
        let best = self.best_of(&features, page, &mut out[..limit], best, failed, probe);
        let is_news = !matches!((best, self.before), (Some(Packed { chain, .. }), Before::Packed { chain: before, .. }) if chain == before);
        self.patience.note(is_news, probe, best.as_ref());
        if is_news {
            self.beaten = Beaten::default();
        }
        self.before = match best {
            Some(Packed { chain, len }) => {
                // Blocks that were tried since nothing else packed say little of the next page.
                let in_need = !probe && self.profile != Profile::Fast && chain.ends_in_blocks();
                let again = match self.before {
                    Before::Packed {
                        chain: before,
                        again,
                        ..
                    } => probe || before == chain && (again || !in_need),
                    _ => !in_need,
                };
                Before::Packed { chain, len, again }
            }
            None => {
                let signs = Signs::of(page);
                match &self.before {
                    Before::Refused {
                        signs: before,
                        tried,
                    } => Before::Refused {
                        signs: signs.most(before),
                        tried: tried + 1,
                    },
                    _ => Before::Refused { signs, tried: 1 },
                }
            }
        };
        best.map(|best| best.len)
    }

    /// Packs `page` by promising chains and leaves the shortest in `out`, where `best` lies if there is one already;
    /// `failed` has not packed it. `Ratio` and a `probe` try each of them; others take the most promising one that
    /// packs at all, since a second would make them slower than they promise on data that changes from page to page.
    fn best_of(
        &mut self,
        features: &Features,
        page: &[u8; PAGE],
        out: &mut [u8],
        best: Option<Packed>,
        failed: Option<Chain>,
        probe: bool,
    ) -> Option<Packed> {
        let Self {
            now,
            listed,
            own,
            trial,
            scratch,
            profile,
            beaten,
            patience,
            rivals,
            ..
        } = self;
        let leaf = select::leaf(*profile, features);
        // Whoever packs such numbers shorter takes longer than `Fast` promises.
        let best = best.filter(|_| *profile != Profile::Fast || leaf != [*SWAPPED]);
        if probe && patience.forgets() {
            *beaten = Beaten {
                leaf,
                ..Beaten::default()
            };
        } else if leaf != beaten.leaf {
            let holds = best
                .and_then(|best| best.chain.builtin())
                .is_some_and(|number| MATCHES.contains(&number));
            let chains = if holds { beaten.chains } else { [0; 4] };
            *beaten = Beaten {
                leaf,
                chains: [0; 4],
            };
            for &number in MATCHES.iter() {
                let (word, bit) = (usize::from(number / 64), 1u64 << (number % 64));
                beaten.chains[word] |= chains[word] & bit;
            }
        }
        let by_width = select::by_width(*profile, features);
        let mut left = *listed;
        if let Some(best) = best
            && *profile != Profile::Ratio
        {
            // One of which this look promises more than what is there is tried again.
            if by_width.len < best.len {
                beaten.chains[usize::from(by_width.chain / 64)] &= !(1 << (by_width.chain % 64));
            }
            left.iter_mut()
                .zip(beaten.chains)
                .for_each(|(left, beaten)| *left &= !beaten);
        }
        let mut contest = Contest {
            page,
            out,
            trial,
            scratch,
            best,
            failed,
            left,
        };
        if let Some(number) = best.and_then(|best| best.chain.builtin()) {
            contest.leave_out(number);
        }
        let [lzt, _, zstd] = *MATCHES;
        let is_lzt = if *profile == Profile::Balanced && !probe {
            rivals.is_lzt(leaf)
        } else {
            None
        };
        if let (Some(is_lzt), Some(best)) = (is_lzt, best)
            && is_one_of(&best.chain, &[if is_lzt { lzt } else { zstd }])
        {
            contest.leave_out(if is_lzt { zstd } else { lzt });
        }
        let before = contest.left;
        // Where LZ-T has packed the page already, zstd is the other one.
        let prefer_lzt = is_lzt == Some(true) && contest.is_left(lzt);
        for number in select::promising(*profile, features) {
            contest.builtin(if number == zstd && prefer_lzt {
                lzt
            } else {
                number
            });
            if *profile != Profile::Ratio && !probe && contest.best.is_some() {
                break;
            }
        }
        if *profile == Profile::Ratio {
            contest.builtin(by_width.chain);
            // What others would take costs little beside all of this, and is the shortest now and then.
            for other in [Profile::Fast, Profile::Dense] {
                select::promising(other, features).for_each(|number| contest.builtin(number));
                contest.builtin(select::by_width(other, features).chain);
            }
            ALWAYS.iter().for_each(|&number| contest.builtin(number));
            let best = contest.best.and_then(|best| best.chain.builtin());
            for [_, longer] in LONGER.iter().filter(|[chain, _]| Some(*chain) == best) {
                contest.builtin(*longer);
            }
        } else if by_width.len <= contest.most() {
            contest.builtin(by_width.chain);
        }
        if (probe || contest.best.is_none())
            && let Some(blocks) = select::blocks_of(by_width.chain)
        {
            contest.builtin(blocks);
        }
        own.iter().for_each(|&chain| contest.attempt(&now[chain]));
        for (beaten, (before, left)) in beaten
            .chains
            .iter_mut()
            .zip(before.iter().zip(contest.left))
        {
            *beaten |= before & !left;
        }
        let has_matches = contest
            .best
            .is_some_and(|best| best.chain.ends_in_matches());
        if *profile == Profile::Balanced
            && probe
            && has_matches
            && let Some(challenger) = patience.challenger()
        {
            contest.builtin(challenger);
        }
        // Doubles that hardly change repeat as they are, and ten times as well by their differences. The tree names one
        // chain for them.
        let differs_little = features[select::LAG8] >= MOST_OF_LAG8
            && features[select::BITS4] <= features[select::BITS4_SWAPPED];
        if *profile != Profile::Ratio && probe && differs_little {
            contest.builtin(*DIFFERENCES);
        }
        let has_packed = |number: u8| {
            best.is_some_and(|best| is_one_of(&best.chain, &[number]))
                || has_bit(&before, number) && !contest.is_left(number)
        };
        if has_packed(lzt)
            && has_packed(zstd)
            && let Some(Packed { chain, .. }) = contest.best
            && is_one_of(&chain, &[lzt, zstd])
        {
            rivals.note(leaf, is_one_of(&chain, &[lzt]));
        }
        contest.best
    }

    /// Fills `page` from what some packer made of it. Any bytes may come.
    ///
    /// # Errors
    /// [`PageError`] when `packed` is not a packed page, or one of a newer version.
    pub fn unpack(&mut self, packed: &[u8], page: &mut [u8; PAGE]) -> Result<(), PageError> {
        chain::unpack(packed, page, &mut self.scratch)
    }
}

/// So many looks that changed nothing are believed.
const VAIN_LOOKS: u32 = 8;

/// A page is like the last one if it packs to no more than this part above it: 9/8.
const SIMILAR: usize = 8;
