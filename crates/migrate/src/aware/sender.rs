//! What the lanes of a migration share at the sender, and what follows from it: how each page travels.
//!
//! Invariant: a page is left out or made of others only where all lanes have come to the round that the packet is in, so that what is known
//! here is what the destination holds. Whatever was not understood sends everything in full from then on. Downstream: [`Encoder`].

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::{
    Blocks, Encoder, HEADER_LEN, INIT_LEN, PAGE_LEN, Packet,
    known::{Hash, Hasher, Known, Seen},
    numbers::Numbers,
    packet,
    similar::Similar,
    store::Lanes,
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
    known: Known,
    pub(super) lanes: Lanes,
    numbers: Numbers,
    pub(super) similar: Similar,
    /// Zero pages travel in packets: one was seen.
    zeros_here: bool,
    /// Something was not understood; from now on everything goes in full.
    pub(super) surprised: bool,
    /// As many lanes take part, once one relied on it.
    lanes_fixed: Option<u8>,
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
                lanes: Lanes::new(keep_max),
                numbers: Numbers::default(),
                similar: Similar::new(keep_max),
                zeros_here: false,
                surprised: false,
                lanes_fixed: None,
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
        let lane = packet::channel_of(init).filter(|lane| state.lanes_fixed.is_none() && state.lanes.join(*lane));
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
        let keep = self.state.lock().lanes.keep_max() as u32;
        let (packet, pages) = out.split_at_mut(INIT_LEN);
        packet.copy_from_slice(init);
        pages.copy_from_slice(&keep.to_le_bytes());
    }

    /// What the link carries, bytes a second; 0 while that is unknown.
    pub fn set_link(&self, rate: u64) {
        self.keeps_first.store((1..=FIRST_KEPT_RATE_MAX).contains(&rate), Relaxed);
    }

    /// Decides on each page that follows the header; with the number of lanes where the packet relies on them.
    pub(super) fn ways(
        &self,
        header: &[u8; HEADER_LEN],
        packet: &Packet,
        pages: &[u8],
        round: u32,
    ) -> (Vec<Way>, Option<u8>) {
        let hashes: Vec<Hash> =
            pages.chunks_exact(PAGE_LEN).take(packet.normal).map(|page| self.hasher.hash(page)).collect();
        let mut ways = Vec::with_capacity(packet.normal);
        let mut state = self.state.lock();
        state.zeros_here |= packet.zero > 0;
        state.numbers.note(packet::number(header), round);
        let synced = if packet.normal > 0 { self.synced(&mut state, round) } else { None };
        let Some(block) = state.blocks.number(packet::block(header)) else {
            state.surprised = true;
            ways.resize_with(packet.normal, || Way::Full);
            return (ways, None);
        };
        if synced.is_some() {
            state.lanes.merge_to(round);
        }
        let keeps_first = self.keeps_first.load(Relaxed);
        for (index, offset) in packet.offsets(header).enumerate() {
            let hash = hashes.get(index).copied().unwrap_or(self.zero);
            let seen = state.known.note((block, offset), hash, round);
            if index < packet.normal {
                ways.push(match seen {
                    Seen::Same if synced.is_some() => Way::LeftOut,
                    Seen::Other if synced.is_some() => Way::Kept { again: true },
                    // Which pages will change is not known yet: as many as there is room for.
                    Seen::Never if keeps_first && synced.is_some() && state.lanes.has_room() => {
                        Way::Kept { again: false }
                    }
                    _ => Way::Full,
                });
            }
        }
        (ways, synced)
    }

    /// Whether what is known of pages is what the destination holds now; waits a moment for it to become so.
    fn synced(&self, state: &mut MutexGuard<'_, State>, round: u32) -> Option<u8> {
        if round == 0 || state.surprised || !state.zeros_here || !state.numbers.is_complete() {
            return None;
        }
        if !state.lanes.all_at(round) {
            self.moved.wait_while_for(state, |state| !state.lanes.all_at(round), self.patience);
        }
        if !state.lanes.all_at(round) || state.surprised {
            return None;
        }
        let lanes = u8::try_from(state.lanes.len()).ok()?;
        Some(*state.lanes_fixed.get_or_insert(lanes))
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

/// How one page travels.
pub(super) enum Way {
    Full,
    LeftOut,
    /// It is to be kept, and what is kept serves to make it.
    Kept {
        /// It was sent before.
        again: bool,
    },
}

/// How long a lane waits for the others to come to the round it is in. What they lack is in their sockets already, so it is a
/// matter of their threads' turns; without it the round's first packets would go in full.
const PATIENCE: Duration = Duration::from_millis(200);

/// On a link up to this rate, in bytes a second, pages are kept when they are sent for the first time. Most will not change: two
/// copies of a page, one at either end, cost some microseconds, and what one page in twenty saves takes as long at 500 Mbit/s.
/// Bytes that other pages have are looked for up to this rate too.
const FIRST_KEPT_RATE_MAX: u64 = 60_000_000;
