//! When a page is looked at though the last one's chain might do.

use super::contest::{MATCHES, Packed, is_one_of};
use crate::chain::Chain;

/// How often pages are looked at, by what looks came to. All of this is for [`MATCHES`]: among chains of numbers looks
/// find something too often.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
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
    pub(super) fn is_probe(&mut self) -> bool {
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
    pub(super) fn passes(self, chain: &Chain, len: usize, before: usize) -> bool {
        self.looks >= VAIN_LOOKS
            && is_one_of(chain, &MATCHES[1..])
            && len <= self.longest.min(2 * before)
    }

    /// Whether chains that were beaten may be tried by this probe.
    pub(super) fn forgets(self) -> bool {
        self.probes % 2 == 1
    }

    /// Which of [`MATCHES`] this probe tries besides: each of the first ones another, since no look says which is the
    /// best, and later ones now and then.
    pub(super) fn challenger(self) -> Option<u8> {
        let count = MATCHES.len() as u32;
        (self.probes < count || self.probes.is_multiple_of(4))
            .then(|| MATCHES[(self.probes % count) as usize])
    }

    /// A page was looked at, and is packed by this chain now.
    pub(super) fn note(&mut self, is_news: bool, probe: bool, best: Option<&Packed>) {
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

/// Every so many pages a page is looked at though the last one's chain might do.
const PROBE: u32 = 64;
/// As [`PROBE`], while not all of [`MATCHES`] have been tried since one of them became the best.
const PROBE_SOON: u32 = 16;
/// Where the best changes more often than every so many pages, probes come at [`PROBE`] all the same.
const SOON_AGAIN: u32 = 256;
/// So often at most [`PROBE`] is doubled while probes of zstd change nothing: each takes as long as packing two pages,
/// and zstd at level 1 itself is what these pages are to be packed as fast as.
const PROBE_MORE: u32 = 4;

/// So many looks that changed nothing are believed.
const VAIN_LOOKS: u32 = 8;
