//! Packs pages, choosing a chain for each.
//!
//! Pages lie in memory in runs of one kind, so the chain that packed the last page is tried first and taken while it packs
//! about as well ([`SIMILAR`]). Every [`PROBE`]-th page, and one that it does not suit, is tried with others.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::{
    PAGE,
    chain::{self, Chain, Scratch},
    chains::Chains,
    step::UnpackError,
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

/// Every so many pages all chains have their chance.
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
        Self {
            profile,
            limit,
            chains,
            now,
            version,
            last: None,
            pages: 0,
            trial: Box::new([0; PAGE]),
            scratch: Scratch::default(),
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
            self.now = self.chains.now();
            self.last = None;
        }
        self.pages = self.pages.wrapping_add(1);
        if let Some(last) = &mut self.last
            && !self.pages.is_multiple_of(PROBE)
        {
            let most = (last.len + last.len / SIMILAR).min(limit);
            if let Some(len) = last.chain.pack(page, &mut out[..most], &mut self.scratch) {
                last.len = len;
                return Some(len);
            }
        }
        let mut best: Option<Last> = None;
        for chain in self.now.iter() {
            let most = best.map_or(limit, |best| best.len - 1);
            if let Some(len) = chain.pack(page, &mut self.trial[..most], &mut self.scratch) {
                out[..len].copy_from_slice(&self.trial[..len]);
                best = Some(Last { chain: *chain, len });
            }
        }
        self.last = best;
        best.map(|best| best.len)
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
