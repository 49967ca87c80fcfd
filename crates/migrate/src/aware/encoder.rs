//! The sending side: one [`Sender`] a migration, one [`Encoder`] a lane.

use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::{
    Blocks, COPIES, HEADER_LEN, INIT_LEN, KEEP, PAGE_LEN, PAGES_AT, PAGES_MAX, Packet, Page, SYNCED,
    copies::{self, Copied, Last},
    known::{Hash, Hasher, Known, Seen},
    packet,
    similar::{self, Sample, Similar},
    sparse,
    store::Lanes,
};

/// A difference longer than this is not worth unpacking: the codec packs the page itself as well.
const DIFFERENCE_MAX: usize = PAGE_LEN / 2;
/// A page that has no more bytes of its own than this is not kept: the pages that the rest is copied from are. Of programs and documents that is
/// every seventh page and costs a three-hundredth of the bytes; a database in memory keeps half as much, and travels in no more.
const OWN_MIN: usize = PAGE_LEN / 2;
/// Bytes of a packet's chunk beside its pages, at most: what makes a page is shorter than the page.
const TAIL_MAX: usize = 1 + PAGES_MAX / 8 + 5 + HEADER_LEN + 12;
/// How long a lane waits for the others to come to the round it is in. What they lack is in their sockets already, so it is a
/// matter of their threads' turns; without it the round's first packets would go in full.
const PATIENCE: Duration = Duration::from_millis(200);

/// On a link up to this rate, in bytes a second, pages are kept when they are sent for the first time. Most will not change: two
/// copies of a page, one at either end, cost some microseconds, and what one page in twenty saves takes as long at 500 Mbit/s.
/// Bytes that other pages have are looked for up to this rate too.
const FIRST_KEPT_RATE_MAX: u64 = 60_000_000;

/// What the lanes of a migration share at the sender.
#[derive(Debug)]
pub struct Sender {
    hasher: Hasher,
    zero: Hash,
    patience: Duration,
    state: Mutex<State>,
    moved: Condvar,
    keeps_first: AtomicBool,
    pages: AtomicU64,
    left_out: AtomicU64,
    differences: AtomicU64,
    copies: AtomicU64,
}

#[derive(Debug)]
struct State {
    blocks: Blocks,
    known: Known,
    lanes: Lanes,
    numbers: Numbers,
    similar: Similar,
    /// Zero pages travel in packets: one was seen.
    zeros_here: bool,
    /// Something was not understood; from now on everything goes in full.
    surprised: bool,
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
        Some(Encoder {
            sender: self.clone(),
            lane: lane?,
            round: 0,
            before: [0; HEADER_LEN],
            tail: Vec::new(),
            samples: Vec::new(),
            packed: Vec::new(),
            copied: Vec::new(),
        })
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

/// One lane's packets.
#[derive(Debug)]
pub struct Encoder {
    sender: Arc<Sender>,
    lane: u8,
    /// SYNCs passed.
    round: u32,
    /// The header before, as the receiver has it.
    before: [u8; HEADER_LEN],
    tail: Vec<u8>,
    /// Of the packet's pages.
    samples: Vec<Sample>,
    /// Their differences.
    packed: Vec<u8>,
    /// What is copied into them.
    copied: Vec<Copied>,
}

/// Tells by the packets' numbers when all lanes have come. Each has a packet in the first round, its SYNC, and that has a lower number than any
/// of the next round; so once a packet of the next round was seen and all numbers below it, there is no lane whose thread has yet to get its turn.
#[derive(Debug, Default)]
struct Numbers {
    /// All below were seen.
    next: u64,
    /// Those seen above.
    ahead: BTreeSet<u64>,
    /// Behind the highest of the first round.
    first_end: u64,
    complete: bool,
}

impl Numbers {
    /// Where so many are missing, a lane carries packets that are not understood.
    const AHEAD_MAX: usize = 4096;

    fn note(&mut self, number: u64, round: u32) {
        if self.complete || number < self.next || self.ahead.len() >= Self::AHEAD_MAX {
            return;
        }
        self.ahead.insert(number);
        while self.ahead.remove(&self.next) {
            self.next += 1;
        }
        if round == 0 {
            self.first_end = self.first_end.max(number.saturating_add(1));
        }
        self.complete = self.first_end > 0 && self.next > self.first_end;
        if self.complete {
            self.ahead.clear();
        }
    }
}

/// How one page travels.
enum Way {
    Full,
    LeftOut,
    /// It is to be kept, and what is kept serves to make it.
    Kept {
        /// It was sent before.
        again: bool,
    },
}

/// A page that is to be kept.
struct Kept {
    index: usize,
    place: usize,
    form: Form,
    /// On slow links.
    samples: Range<usize>,
}

/// What of a page that is kept travels.
enum Form {
    Full,
    /// Against the version before: these bytes.
    Difference(Range<usize>),
    /// What is not in these copies.
    Copies(Range<usize>),
}

impl Encoder {
    /// Length of the buffer that [`Encoder::pack`] needs.
    #[must_use]
    pub fn room(&self, packet: &Packet) -> usize {
        PAGES_AT + packet.payload_len() + TAIL_MAX
    }

    /// The lane goes on with something else than packets.
    pub fn surprised(&self) {
        self.sender.state.lock().surprised = true;
    }

    /// Makes a packet's chunk in place: `chunk` holds the packet's pages at [`PAGES_AT`] and is [`Encoder::room`] long. Returns
    /// the chunk's length.
    ///
    /// # Panics
    /// When `chunk` is shorter than [`Encoder::room`].
    pub fn pack(&mut self, header: &[u8; HEADER_LEN], packet: &Packet, chunk: &mut [u8]) -> usize {
        let (ways, synced) = self.ways(header, packet, &chunk[PAGES_AT..]);
        let search = self.sender.keeps_first.load(Relaxed);
        self.samples.clear();
        let (mut place, mut kept) = (0, Vec::new());
        for (index, way) in ways.iter().enumerate().filter(|(_, way)| !matches!(way, Way::LeftOut)) {
            if let Way::Kept { again } = way {
                let from = self.samples.len();
                // Most that were sent before become differences.
                if search && !again {
                    similar::samples(page_of(chunk, index), &mut self.samples);
                }
                kept.push(Kept { index, place, form: Form::Full, samples: from..self.samples.len() });
            }
            place += 1;
        }
        let left_out = packet.normal - place;
        let keeps = self.keep(header, packet, chunk, search, &mut kept);
        let front = self.arrange(&ways, &kept, chunk);
        let flags = if synced.is_some() { SYNCED } else { 0 } | if keeps != 0 { KEEP } else { 0 };
        self.tail.clear();
        self.tail.extend(synced);
        if keeps != 0 {
            self.tail.extend_from_slice(&keeps.to_le_bytes());
        }
        let sent = if left_out == 0 {
            *header
        } else {
            packet::without(header, packet, |index| matches!(ways[index], Way::LeftOut))
        };
        let mut predicted = Vec::new();
        packet::write_header(&sent, &self.before, &mut predicted);
        sparse::write_len(predicted.len(), &mut self.tail);
        self.tail.extend_from_slice(&predicted);
        self.before = sent;
        let made = self.made(&kept);
        chunk[..4].copy_from_slice(&[super::kind::PACKET, made as u8, flags, 0]);
        chunk[4..PAGES_AT].copy_from_slice(&((front - PAGES_AT) as u32).to_le_bytes());
        let end = front + self.tail.len();
        chunk[front..end].copy_from_slice(&self.tail);
        self.sender.pages.fetch_add(packet.normal as u64, Relaxed);
        self.sender.left_out.fetch_add(left_out as u64, Relaxed);
        if packet.sync {
            self.round = self.sender.state.lock().lanes.passed(self.lane);
            self.sender.moved.notify_all();
        }
        end
    }

    /// Decides on each page that follows the header; with the number of lanes where the packet relies on them.
    fn ways(&mut self, header: &[u8; HEADER_LEN], packet: &Packet, pages: &[u8]) -> (Vec<Way>, Option<u8>) {
        let sender = self.sender.clone();
        let hashes: Vec<Hash> =
            pages.chunks_exact(PAGE_LEN).take(packet.normal).map(|page| sender.hasher.hash(page)).collect();
        let mut ways = Vec::with_capacity(packet.normal);
        let mut state = sender.state.lock();
        state.zeros_here |= packet.zero > 0;
        state.numbers.note(packet::number(header), self.round);
        let synced = if packet.normal > 0 { self.synced(&mut state) } else { None };
        let Some(block) = state.blocks.number(packet::block(header)) else {
            state.surprised = true;
            ways.resize_with(packet.normal, || Way::Full);
            return (ways, None);
        };
        if synced.is_some() {
            state.lanes.merge_to(self.round);
        }
        let keeps_first = sender.keeps_first.load(Relaxed);
        for (index, offset) in packet.offsets(header).enumerate() {
            let hash = hashes.get(index).copied().unwrap_or(sender.zero);
            let seen = state.known.note((block, offset), hash, self.round);
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
    fn synced(&self, state: &mut MutexGuard<'_, State>) -> Option<u8> {
        if self.round == 0 || state.surprised || !state.zeros_here || !state.numbers.complete {
            return None;
        }
        if !state.lanes.all_at(self.round) {
            let round = self.round;
            self.sender.moved.wait_while_for(state, |state| !state.lanes.all_at(round), self.sender.patience);
        }
        if !state.lanes.all_at(self.round) || state.surprised {
            return None;
        }
        let lanes = u8::try_from(state.lanes.len()).ok()?;
        Some(*state.lanes_fixed.get_or_insert(lanes))
    }

    /// Finds what pages have in common with those that are kept, then wants them kept too; returns which were, by their places.
    fn keep(
        &mut self,
        header: &[u8; HEADER_LEN],
        packet: &Packet,
        chunk: &[u8],
        search: bool,
        pages: &mut [Kept],
    ) -> u128 {
        if pages.is_empty() {
            return 0;
        }
        let offsets: Vec<u64> = packet.offsets(header).collect();
        let sender = self.sender.clone();
        let mut state = sender.state.lock();
        let State { blocks, lanes, similar, .. } = &mut *state;
        let Some(block) = blocks.number(packet::block(header)) else { return 0 };
        self.packed.clear();
        self.copied.clear();
        // All before the first is wanted: the receiver has none of a packet's pages before it has made all.
        for Kept { index, form, samples, .. } in &mut *pages {
            let page = page_of(chunk, *index);
            if let Some(before) = lanes.kept((block, offsets[*index])) {
                let from = self.packed.len();
                if difference(page, before, &mut self.packed) {
                    *form = Form::Difference(from..self.packed.len());
                    continue;
                }
            }
            if search && samples.start == samples.end {
                let from = self.samples.len();
                similar::samples(page, &mut self.samples);
                *samples = from..self.samples.len();
            }
            let from = self.copied.len();
            similar.find(block, page, &self.samples[samples.clone()], lanes, &mut self.copied);
            if self.copied.len() > from {
                *form = Form::Copies(from..self.copied.len());
            }
        }
        let mut keeps = 0;
        for Kept { index, place, samples, form } in pages {
            let own = |copies: &Range<usize>| {
                PAGE_LEN - self.copied[copies.clone()].iter().map(|copy| copy.len).sum::<usize>()
            };
            if matches!(form, Form::Copies(copies) if own(copies) <= OWN_MIN) {
                continue;
            }
            if let Some(number) = lanes.want(self.lane, (block, offsets[*index]), page_of(chunk, *index)) {
                keeps |= 1_u128 << *place;
                similar.learn(number, &self.samples[samples.clone()]);
            }
        }
        keeps
    }

    /// Moves what travels of the pages to the front of the chunk; returns where that ends.
    fn arrange(&self, ways: &[Way], kept: &[Kept], chunk: &mut [u8]) -> usize {
        let (mut to, mut kept) = (PAGES_AT, kept.iter().peekable());
        for (index, _) in ways.iter().enumerate().filter(|(_, way)| !matches!(way, Way::LeftOut)) {
            let at = PAGES_AT + index * PAGE_LEN;
            let mut bring = |from: usize, len: usize| {
                if to != from {
                    chunk.copy_within(from..from + len, to);
                }
                to += len;
            };
            match kept.next_if(|kept| kept.index == index).map(|kept| &kept.form) {
                Some(Form::Difference(_)) => {}
                Some(Form::Copies(copies)) => {
                    let mut done = 0;
                    for copy in &self.copied[copies.clone()] {
                        bring(at + done, copy.at - done);
                        done = copy.at + copy.len;
                    }
                    bring(at + done, PAGE_LEN - done);
                }
                Some(Form::Full) | None => bring(at, PAGE_LEN),
            }
        }
        to
    }

    /// Appends how pages are made to the tail, and counts them.
    fn made(&mut self, kept: &[Kept]) -> usize {
        let (mut differences, mut copied, mut last) = (0, 0, Last::default());
        for Kept { place, form, .. } in kept {
            match form {
                Form::Difference(packed) => {
                    let packed = &self.packed[packed.clone()];
                    differences += 1;
                    self.tail.push(*place as u8);
                    sparse::write_len(packed.len(), &mut self.tail);
                    self.tail.extend_from_slice(packed);
                }
                Form::Copies(copies) => {
                    copied += 1;
                    self.tail.push(*place as u8 | COPIES);
                    copies::write(&self.copied[copies.clone()], &mut last, &mut self.tail);
                }
                Form::Full => {}
            }
        }
        self.sender.differences.fetch_add(differences as u64, Relaxed);
        self.sender.copies.fetch_add(copied as u64, Relaxed);
        differences + copied
    }
}

/// Page `index` of a chunk.
fn page_of(chunk: &[u8], index: usize) -> &Page {
    chunk[PAGES_AT + index * PAGE_LEN..].first_chunk().expect("a page")
}

/// Appends a page's difference against `before`; `false` and nothing where it is not worth it.
fn difference(page: &Page, before: &Page, out: &mut Vec<u8>) -> bool {
    let from = out.len();
    let mut rest = *page;
    rest.iter_mut().zip(before).for_each(|(byte, before)| *byte ^= before);
    sparse::write(&rest, out);
    let worth = out.len() - from <= DIFFERENCE_MAX;
    if !worth {
        out.truncate(from);
    }
    worth
}
