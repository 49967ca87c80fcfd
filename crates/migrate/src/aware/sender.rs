//! What the lanes of a migration share at the sender, and what follows from it: how each page travels.
//!
//! Invariant: a page is left out only where all lanes have come to the round that the packet is in, so that what is
//! known here is what the destination holds. Whatever was not understood sends everything in full from then on.
//! Downstream: [`Encoder`].

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::{
    Blocks, Encoder, HEADER_LEN, INIT_LEN, PAGE_LEN, PAGES_MAX, Packet,
    known::{Hash, Hasher, Known, Seen},
    lanes::Lanes,
    numbers::Numbers,
    packet,
    ring::{Ring, within_reach},
    similar::Similar,
};

/// What the lanes of a migration share at the sender.
#[derive(Debug)]
pub struct Sender {
    hasher: Hasher,
    zero: Hash,
    patience: Duration,
    pub(super) state: Mutex<State>,
    pub(super) moved: Condvar,
    pub(super) keeps_first: AtomicBool,
    pub(super) pages: AtomicU64,
    pub(super) left_out: AtomicU64,
    pub(super) differences: AtomicU64,
    pub(super) copies: AtomicU64,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) blocks: Blocks,
    pub(super) known: Known,
    pub(super) lanes: Lanes,
    numbers: Numbers,
    pub(super) ring: Ring,
    /// Pages kept so far, and packets that kept some or referred to them.
    pub(super) head: u32,
    pub(super) turn: u32,
    pub(super) similar: Similar,
    /// Zero pages travel in packets: one was seen.
    zeros_here: bool,
    /// Something was not understood; from now on everything goes in full.
    pub(super) surprised: bool,
    /// A packet relied on there being no more lanes.
    lanes_fixed: bool,
}

/// Pages so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// In packets.
    pub pages: u64,
    /// Left out, as the destination has them.
    pub left_out: u64,
    /// Sent as difference.
    pub differences: u64,
    /// Made of copies, in part.
    pub copies: u64,
}

impl Sender {
    /// One that has up to `keep_max` pages kept on both sides.
    #[must_use]
    pub fn new(keep_max: usize) -> Self {
        Self::with_patience(keep_max, PATIENCE)
    }

    pub(super) fn with_patience(keep_max: usize, patience: Duration) -> Self {
        let hasher = Hasher::default();
        Self {
            zero: hasher.hash(&[0; PAGE_LEN]),
            hasher,
            patience,
            state: Mutex::new(State {
                blocks: Blocks::default(),
                known: Known::default(),
                lanes: Lanes::default(),
                numbers: Numbers::default(),
                ring: Ring::new(keep_max),
                head: 0,
                turn: 0,
                similar: Similar::new(keep_max),
                zeros_here: false,
                surprised: false,
                lanes_fixed: false,
            }),
            moved: Condvar::new(),
            keeps_first: AtomicBool::new(false),
            pages: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
            differences: AtomicU64::new(0),
            copies: AtomicU64::new(0),
        }
    }

    /// An encoder for the lane whose first packet this is; `None` where it must travel as plain bytes.
    #[must_use]
    pub fn lane(self: &Arc<Self>, init: &[u8]) -> Option<Encoder> {
        let mut state = self.state.lock();
        let lane =
            packet::channel_of(init).filter(|lane| !state.lanes_fixed && state.lanes.join(*lane));
        if lane.is_none() {
            // What it carries is not known from now on.
            state.surprised = true;
        }
        Some(Encoder::new(self.clone(), lane?))
    }

    /// Makes a lane's first chunk, after its kind: `init` and how many pages are kept.
    ///
    /// # Panics
    /// When `out` is not [`FIRST_LEN`](super::FIRST_LEN) long, or `init` not [`INIT_LEN`].
    pub fn first(&self, init: &[u8], out: &mut [u8]) {
        let keep = self.state.lock().ring.len_max() as u32;
        let (packet, pages) = out.split_at_mut(INIT_LEN);
        packet.copy_from_slice(init);
        pages.copy_from_slice(&keep.to_le_bytes());
    }

    /// What the link carries, bytes a second, 0 while that is unknown; and how many processors each end has for it.
    pub fn set_link(&self, rate: u64, processors: f64) {
        let most = (FIRST_KEPT_RATE * processors).min(FIRST_KEPT_RATE_MAX) as u64;
        self.keeps_first.store((1..=most).contains(&rate), Relaxed);
    }

    /// Decides on each page that follows the header.
    pub(super) fn ways(
        &self,
        header: &[u8; HEADER_LEN],
        packet: &Packet,
        pages: &[u8],
        round: u32,
    ) -> Vec<Way> {
        let hashes: Vec<Hash> = pages
            .chunks_exact(PAGE_LEN)
            .take(packet.normal)
            .map(|page| self.hasher.hash(page))
            .collect();
        let mut ways = Vec::with_capacity(packet.normal);
        let mut state = self.state.lock();
        state.zeros_here |= packet.zero > 0;
        state.numbers.note(packet::number(header), round);
        let level = packet.normal > 0 && self.is_level(&mut state, round);
        state.lanes_fixed |= level;
        let synced = level && state.zeros_here;
        let Some(block) = state.blocks.number(packet::block(header)) else {
            state.surprised = true;
            ways.resize_with(packet.normal, || Way::Full);
            return ways;
        };
        let keeps = level && state.has_room();
        let keeps_first = self.keeps_first.load(Relaxed);
        for (index, offset) in packet.offsets(header).enumerate() {
            let hash = hashes.get(index).copied().unwrap_or(self.zero);
            let seen = state.known.note((block, offset), hash, round);
            if index < packet.normal {
                ways.push(match seen {
                    Seen::Same if synced => Way::LeftOut,
                    // Which pages will change is not known yet.
                    Seen::Never if keeps && keeps_first => Way::Kept { before: None },
                    Seen::Never => Way::Full,
                    _ if keeps => Way::Kept {
                        before: state.known.kept((block, offset)),
                    },
                    _ => Way::Full,
                });
            }
        }
        ways
    }

    /// Whether all lanes there will be are in `round`; waits a moment for it. Before that nothing is kept or referred
    /// to either: see [`aware`](super) for why.
    fn is_level(&self, state: &mut MutexGuard<'_, State>, round: u32) -> bool {
        if round == 0 || state.surprised {
            return false;
        }
        if !state.lanes.all_at(round) {
            self.moved
                .wait_while_for(state, |state| !state.lanes.all_at(round), self.patience);
        }
        state.lanes.all_at(round) && state.numbers.is_complete() && !state.surprised
    }

    /// Pages so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            pages: self.pages.load(Relaxed),
            left_out: self.left_out.load(Relaxed),
            differences: self.differences.load(Relaxed),
            copies: self.copies.load(Relaxed),
        }
    }
}

impl State {
    /// Whether pages are kept, and there are positions left: 16 TiB of them.
    fn has_room(&self) -> bool {
        let positions = u32::MAX - (2 * PAGES_MAX) as u32;
        self.ring.len_max() > 0 && self.head < positions && self.turn < positions
    }

    /// The oldest page that may be referred to.
    pub(super) fn oldest(&self) -> u32 {
        within_reach(self.ring.len_max(), self.head).start
    }
}

/// How one page travels.
pub(super) enum Way {
    Full,
    LeftOut,
    /// It is to be kept, and what is kept serves to make it.
    Kept {
        /// Where the version sent before is, if one was kept.
        before: Option<u32>,
    },
}

/// How long a lane waits for the others to come to the round it is in. What they lack is in their sockets already, so
/// it is a matter of their threads' turns; without it the round's first packets would go in full.
const PATIENCE: Duration = Duration::from_millis(200);

/// On a link up to this rate for each processor of an end, in bytes a second, pages are kept when they are sent for the
/// first time. Most will not change: two copies of a page, one at either end, cost some microseconds, and what one page in
/// twenty saves takes as long at 700 Mbit/s where an end has one processor (docs/results/migrate.md). Bytes that other
/// pages have are looked for up to this rate too.
const FIRST_KEPT_RATE: f64 = 7.5e7;
/// And at most, however many processors: all lanes look in one table.
const FIRST_KEPT_RATE_MAX: f64 = 1.5e8;
