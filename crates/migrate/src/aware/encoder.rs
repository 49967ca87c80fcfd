//! The sending side of one lane: packets to chunks, without what the destination has.
//!
//! Upstream: [`Sender`], which knows what that is and how each page travels; downstream: the channel's packer. Work
//! memory stays from packet to packet.

use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use super::{
    COPIES, HEADER_LEN, KEEP, PAGE_LEN, PAGES_AT, PAGES_MAX, Packet, Page, TURN,
    copies::{self, Copied, Last},
    packet,
    ring::Ring,
    sender::{Sender, State, Way},
    similar::{self, Sample, Similar},
    sparse,
};

/// A difference longer than this is not worth unpacking: the codec packs the page itself as well.
const DIFFERENCE_MAX: usize = PAGE_LEN / 2;
/// A page that has no more bytes of its own than this is not kept: the pages that the rest is copied from are. Of
/// programs and documents that is every seventh page and costs a three-hundredth of the bytes; a database in memory
/// keeps half as much, and travels in no more.
const OWN_MIN: usize = PAGE_LEN / 2;
/// Bytes of a packet's chunk beside its pages, at most: what makes a page is shorter than the page.
const TAIL_MAX: usize = 10 + PAGES_MAX / 8 + 5 + HEADER_LEN + 12;

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

/// A page that is to be kept.
struct Kept {
    index: usize,
    place: usize,
    /// Where the version sent before is.
    before: Option<u32>,
    form: Form,
    /// On slow links.
    samples: Range<usize>,
}

/// What of a page that is kept travels.
enum Form {
    Full,
    /// Against the version before: these bytes.
    Difference {
        position: u32,
        packed: Range<usize>,
    },
    /// What is not in these copies.
    Copies(Range<usize>),
}

impl Encoder {
    pub(super) fn new(sender: Arc<Sender>, lane: u8) -> Self {
        Self {
            sender,
            lane,
            round: 0,
            before: [0; HEADER_LEN],
            tail: Vec::new(),
            samples: Vec::new(),
            packed: Vec::new(),
            copied: Vec::new(),
        }
    }

    /// Length of the buffer that [`Encoder::pack`] needs.
    #[must_use]
    pub fn room(&self, packet: &Packet) -> usize {
        PAGES_AT + packet.payload_len() + TAIL_MAX
    }

    /// The lane goes on with something else than packets.
    pub fn surprised(&self) {
        self.sender.state.lock().surprised = true;
    }

    /// Makes a packet's chunk in place: `chunk` holds the packet's pages at [`PAGES_AT`] and is [`Encoder::room`] long.
    /// Returns the chunk's length.
    ///
    /// # Panics
    /// When `chunk` is shorter than [`Encoder::room`].
    pub fn pack(&mut self, header: &[u8; HEADER_LEN], packet: &Packet, chunk: &mut [u8]) -> usize {
        let ways = self
            .sender
            .ways(header, packet, &chunk[PAGES_AT..], self.round);
        let search = self.sender.keeps_first.load(Relaxed);
        self.samples.clear();
        let (mut place, mut kept) = (0, Vec::new());
        for (index, way) in ways
            .iter()
            .enumerate()
            .filter(|(_, way)| !matches!(way, Way::LeftOut))
        {
            if let Way::Kept { before } = *way {
                let from = self.samples.len();
                // Most that were sent before become differences.
                if search && before.is_none() {
                    similar::samples(page_of(chunk, index), &mut self.samples);
                }
                kept.push(Kept {
                    index,
                    place,
                    before,
                    form: Form::Full,
                    samples: from..self.samples.len(),
                });
            }
            place += 1;
        }
        let left_out = packet.normal - place;
        self.tail.clear();
        let (flags, head) = self.keep(header, packet, chunk, search, &mut kept);
        let front = self.arrange(&ways, &kept, chunk);
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
        let made = self.made(&kept, head);
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

    /// Finds for each page how it is made of those that are kept. All before the first of them is kept: the receiver
    /// has none of a packet's pages before it has made all.
    fn compare(
        &mut self,
        chunk: &[u8],
        search: bool,
        pages: &mut [Kept],
        (ring, similar, oldest): (&Ring, &Similar, u32),
    ) {
        self.packed.clear();
        self.copied.clear();
        for Kept {
            index,
            before,
            form,
            samples,
            ..
        } in pages
        {
            let page = page_of(chunk, *index);
            let before = before.filter(|position| *position >= oldest);
            if let Some((position, before)) =
                before.and_then(|position| Some((position, ring.page(position)?)))
            {
                let from = self.packed.len();
                if difference(page, before, &mut self.packed) {
                    *form = Form::Difference {
                        position,
                        packed: from..self.packed.len(),
                    };
                    continue;
                }
            }
            if search && samples.start == samples.end {
                let from = self.samples.len();
                similar::samples(page, &mut self.samples);
                *samples = from..self.samples.len();
            }
            let from = self.copied.len();
            similar.find(
                page,
                &self.samples[samples.clone()],
                ring,
                oldest,
                &mut self.copied,
            );
            if self.copied.len() > from {
                *form = Form::Copies(from..self.copied.len());
            }
        }
    }

    /// Whether a page of this form need not be kept: the receiver has it, and for long enough.
    fn is_there(&self, form: &Form, lasts: impl Fn(u32) -> bool) -> bool {
        match form {
            Form::Full => false,
            Form::Difference { position, packed } => packed.is_empty() && lasts(*position),
            Form::Copies(copies) => {
                let copies = &self.copied[copies.clone()];
                let copied: usize = copies.iter().map(|copy| copy.len).sum();
                PAGE_LEN - copied <= OWN_MIN && copies.iter().all(|copy| lasts(copy.source))
            }
        }
    }

    /// Finds what pages have in common with those that are kept, then keeps them too. Appends the packet's turn, where
    /// it is one of those that keep or refer; returns its flags, and how many pages were kept before.
    fn keep(
        &mut self,
        header: &[u8; HEADER_LEN],
        packet: &Packet,
        chunk: &[u8],
        search: bool,
        pages: &mut [Kept],
    ) -> (u8, u32) {
        if pages.is_empty() {
            return (0, 0);
        }
        let offsets: Vec<u64> = packet.offsets(header).collect();
        let sender = self.sender.clone();
        let mut state = sender.state.lock();
        let (oldest, head) = (state.oldest(), state.head);
        let State {
            blocks,
            known,
            ring,
            similar,
            ..
        } = &mut *state;
        let Some(block) = blocks.number(packet::block(header)) else {
            return (0, 0);
        };
        self.compare(chunk, search, pages, (ring, similar, oldest));
        // What will not be there much longer is kept again.
        let lasts = |position: u32| position >= oldest + (head - oldest) / 2;
        let (mut keeps, mut next) = (0, head);
        for Kept {
            index,
            place,
            samples,
            form,
            ..
        } in &*pages
        {
            let there = self.is_there(form, lasts);
            if !there && ring.put(next, page_of(chunk, *index)) {
                keeps |= 1_u128 << *place;
                known.keep((block, offsets[*index]), next);
                similar.learn(next, &self.samples[samples.clone()]);
                next += 1;
            }
        }
        state.head = next;
        if keeps == 0 && pages.iter().all(|page| matches!(page.form, Form::Full)) {
            return (0, head);
        }
        sparse::write_len(state.turn as usize, &mut self.tail);
        sparse::write_len(head as usize, &mut self.tail);
        state.turn += 1;
        if keeps == 0 {
            return (TURN, head);
        }
        self.tail.extend_from_slice(&keeps.to_le_bytes());
        (TURN | KEEP, head)
    }

    /// Moves what travels of the pages to the front of the chunk; returns where that ends.
    fn arrange(&self, ways: &[Way], kept: &[Kept], chunk: &mut [u8]) -> usize {
        let (mut to, mut kept) = (PAGES_AT, kept.iter().peekable());
        for (index, _) in ways
            .iter()
            .enumerate()
            .filter(|(_, way)| !matches!(way, Way::LeftOut))
        {
            let at = PAGES_AT + index * PAGE_LEN;
            let mut bring = |from: usize, len: usize| {
                if to != from {
                    chunk.copy_within(from..from + len, to);
                }
                to += len;
            };
            match kept
                .next_if(|kept| kept.index == index)
                .map(|kept| &kept.form)
            {
                Some(Form::Difference { .. }) => {}
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
    fn made(&mut self, kept: &[Kept], head: u32) -> usize {
        let (mut differences, mut copied, mut last) = (0, 0, Last(head));
        for Kept { place, form, .. } in kept {
            match form {
                Form::Difference { position, packed } => {
                    let packed = &self.packed[packed.clone()];
                    differences += 1;
                    self.tail.push(*place as u8);
                    last.write(*position, &mut self.tail);
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
        self.sender
            .differences
            .fetch_add(differences as u64, Relaxed);
        self.sender.copies.fetch_add(copied as u64, Relaxed);
        differences + copied
    }
}

/// Page `index` of a chunk.
fn page_of(chunk: &[u8], index: usize) -> &Page {
    chunk[PAGES_AT + index * PAGE_LEN..]
        .first_chunk()
        .expect("a page")
}

/// Appends a page's difference against `before`; `false` and nothing where it is not worth it.
fn difference(page: &Page, before: &Page, out: &mut Vec<u8>) -> bool {
    let from = out.len();
    let mut rest = *page;
    rest.iter_mut()
        .zip(before)
        .for_each(|(byte, before)| *byte ^= before);
    sparse::write(&rest, out);
    let worth = out.len() - from <= DIFFERENCE_MAX;
    if !worth {
        out.truncate(from);
    }
    worth
}
