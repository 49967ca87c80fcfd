//! Packs pages, choosing a chain for each.
//!
//! Pages lie in memory in runs of one kind, so the chain that packed the last page is tried first and taken while it packs
//! about as well ([`SIMILAR`]). A page that it does not suit, and every [`PROBE`]-th, is looked at (`select`), and the
//! chains that are promising by that look are tried. What looks like noise is refused by the look alone. `Ratio` trusts the
//! last page's chain only where it packs numbers; among those that look for repeats the best changes from page to page.

use std::sync::{
    Arc, LazyLock,
    atomic::{AtomicUsize, Ordering},
};

use crate::{
    PAGE,
    chain::{self, Chain, Scratch},
    chains::Chains,
    select::{
        self, Features,
        features::{is_noise, look},
    },
    step::UnpackError,
    steps,
};

/// How much work a page is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Packs numbers faster than LZ4 packs text.
    Fast,
    /// Never slower than zstd at level 1.
    Balanced,
    /// Everything that may pack best is tried.
    Ratio,
}

/// Packed pages longer than this are refused, since their store would save nothing. Clones share it, and it may change while
/// packers work.
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
pub struct Packer {
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
    last: Option<Last>,
    pages: u32,
    trial: Box<[u8; PAGE]>,
    scratch: Scratch,
}

/// The chain that packed the last page.
#[derive(Debug, Clone, Copy)]
struct Last {
    chain: Chain,
    len: usize,
}

/// Chains that `Ratio` always tries, whatever a page looks like: no tree may cost it the best of these.
static ALWAYS: LazyLock<[u8; 3]> = LazyLock::new(|| ["zstd", "deflate", "lzts"].map(steps::builtin));

/// Every so many pages a page is looked at though the last one's chain might do.
const PROBE: u32 = 64;

impl Packer {
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
            last: None,
            pages: 0,
            trial: Box::new([0; PAGE]),
            scratch: Scratch::default(),
        };
        packer.take_chains();
        packer
    }

    /// Learns anew which chains are in the set.
    fn take_chains(&mut self) {
        self.now = self.chains.now();
        self.last = None;
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
        let probe = self.pages.is_multiple_of(PROBE);
        if let Some(last) = &mut self.last
            && !probe
            && (self.profile != Profile::Ratio || !last.chain.ends_in_matches())
        {
            let most = (last.len + last.len / SIMILAR).min(limit);
            if let Some(len) = last.chain.pack(page, &mut out[..most], &mut self.scratch) {
                last.len = len;
                return Some(len);
            }
        }
        let features = look(page);
        if is_noise(&features) && !probe {
            self.last = None;
            return None;
        }
        self.last = self.best_of(&features, page, out, limit);
        self.last.map(|last| last.len)
    }

    /// Packs `page` by each promising chain, and leaves the shortest in `out`.
    fn best_of(&mut self, features: &Features, page: &[u8; PAGE], out: &mut [u8; PAGE], limit: usize) -> Option<Last> {
        let Self { chains: _, now, listed, own, trial, scratch, profile, .. } = self;
        let mut best: Option<Last> = None;
        let mut attempt = |chain: &Chain| {
            let most = best.map_or(limit, |best| best.len - 1);
            if let Some(len) = chain.pack(page, &mut trial[..most], scratch) {
                out[..len].copy_from_slice(&trial[..len]);
                best = Some(Last { chain: *chain, len });
            }
        };
        let numeric = select::numeric(*profile, features);
        let promising = select::promising(*profile, features);
        let always = if *profile == Profile::Ratio { &*ALWAYS } else { &[][..] };
        let mut tried = [0u64; 4];
        for &number in std::iter::once(&numeric).chain(promising).chain(always) {
            let (word, bit) = (usize::from(number / 64), 1u64 << (number % 64));
            if tried[word] & bit == 0 && listed[word] & bit != 0 {
                attempt(&Chain::builtins()[usize::from(number)]);
            }
            tried[word] |= bit;
        }
        for &chain in own.iter() {
            attempt(&now[chain]);
        }
        best
    }

    /// Fills `page` from what some packer made of it. Any bytes may come.
    ///
    /// # Errors
    /// [`UnpackError`] when `packed` is not a packed page, or one of a newer version.
    pub fn unpack(&mut self, packed: &[u8], page: &mut [u8; PAGE]) -> Result<(), UnpackError> {
        chain::unpack(packed, page, &mut self.scratch)
    }
}

/// A page is like the last one if it packs to no more than this part above it: 9/8.
const SIMILAR: usize = 8;
