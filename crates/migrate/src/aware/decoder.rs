//! The receiving side: one [`Receiver`] a migration, one [`Decoder`] a lane.

use std::{io::IoSlice, sync::Arc, time::Duration};

use narrows::core::DecodeError;
use parking_lot::{Condvar, Mutex};

use super::{
    Blocks, COPIES, HEADER_LEN, INIT_LEN, KEEP, Key, PAGE_LEN, PAGES_AT, PAGES_MAX, Packet, Page, SYNCED,
    copies::{self, Last, Source},
    corrupt, packet, sparse,
    store::Lanes,
};

/// What the lanes of a migration share at the receiver.
#[derive(Debug)]
pub struct Receiver {
    keep_max: usize,
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Debug)]
struct State {
    blocks: Blocks,
    lanes: Lanes,
}

impl Receiver {
    /// One that keeps up to `keep_max` pages, if the sender wants as many.
    #[must_use]
    pub fn new(keep_max: usize) -> Self {
        let state = State { blocks: Blocks::default(), lanes: Lanes::new(0) };
        Self { keep_max, state: Mutex::new(state), moved: Condvar::new() }
    }

    /// A decoder for the lane that begins with this chunk, after its kind; see [`Sender::first`](super::Sender::first).
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] where it is none, its lane is there already, or it wants more pages kept than may be or other lanes want.
    pub fn lane(self: &Arc<Self>, first: &[u8]) -> Result<Decoder, DecodeError> {
        let (init, keep) = first.split_last_chunk().ok_or_else(|| corrupt(1, "a first packet cut short"))?;
        let lane = packet::channel_of(init).ok_or_else(|| corrupt(1, "not the first packet of a multifd channel"))?;
        let keep = u32::from_le_bytes(*keep) as usize;
        let mut state = self.state.lock();
        if keep > self.keep_max {
            return Err(corrupt(1 + INIT_LEN, "the source's --keep is more than this side's"));
        }
        if state.lanes.is_empty() {
            state.lanes = Lanes::new(keep);
        } else if state.lanes.keep_max() != keep {
            return Err(corrupt(1 + INIT_LEN, "lanes that keep different numbers of pages"));
        }
        if !state.lanes.join(lane) {
            return Err(corrupt(25, "a multifd channel that is there already"));
        }
        drop(state);
        self.moved.notify_all();
        Ok(Decoder { receiver: self.clone(), lane, round: 0, before: [0; HEADER_LEN], pages: Vec::new() })
    }
}

/// One lane's packets.
#[derive(Debug)]
pub struct Decoder {
    receiver: Arc<Receiver>,
    lane: u8,
    round: u32,
    before: [u8; HEADER_LEN],
    /// Pages put together, where some were made.
    pages: Vec<u8>,
}

/// A packet as QEMU reads it.
#[derive(Debug)]
pub struct Unpacked<'a> {
    /// Its header.
    pub header: &'a [u8; HEADER_LEN],
    /// Its pages.
    pub pages: &'a [u8],
}

impl Unpacked<'_> {
    /// Both, to be written.
    #[must_use]
    pub fn slices(&mut self) -> [IoSlice<'_>; 2] {
        [IoSlice::new(self.header), IoSlice::new(self.pages)]
    }
}

/// A chunk's parts, before what they mean was looked at.
struct Parts<'a> {
    front: &'a [u8],
    made: usize,
    lanes: Option<u8>,
    keeps: u128,
    header: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Parts<'a> {
    fn of(chunk: &'a [u8]) -> Result<Self, DecodeError> {
        let cut = || corrupt(chunk.len(), "a packet's chunk is cut short");
        let &[_, made, flags, zero, ref front @ ..] = chunk.first_chunk::<PAGES_AT>().ok_or_else(cut)?;
        let front = u32::from_le_bytes(*front) as usize;
        if flags & !(SYNCED | KEEP) != 0 || flags & SYNCED == 0 && (flags & KEEP != 0 || made != 0) || zero != 0 {
            return Err(corrupt(2, "flags that cannot be"));
        }
        let (front, mut rest) = chunk[PAGES_AT..].split_at_checked(front).ok_or_else(cut)?;
        let mut lanes = None;
        if flags & SYNCED != 0 {
            let (&count, after) = rest.split_first().ok_or_else(cut)?;
            (lanes, rest) = (Some(count), after);
        }
        let mut keeps = 0;
        if flags & KEEP != 0 {
            let (bitmap, after) = rest.split_first_chunk::<{ PAGES_MAX / 8 }>().ok_or_else(cut)?;
            (keeps, rest) = (u128::from_le_bytes(*bitmap), after);
        }
        let len = sparse::read_len(&mut rest).ok_or_else(cut)?;
        let (header, rest) = rest.split_at_checked(len).ok_or_else(cut)?;
        Ok(Self { front, made: made.into(), lanes, keeps, header, rest })
    }

    /// Pages of this round that it copies from; as far as it is whole.
    fn fresh(&self) -> Vec<u64> {
        let (mut rest, mut last, mut pages) = (self.rest, Last::default(), Vec::new());
        for _ in 0..self.made {
            let read = made(&mut rest).and_then(|made| match made {
                (_, Some(_)) => Some(()),
                (_, None) => copies::read(&mut rest, &mut last, |_, copy| {
                    pages.extend(copy.filter(|copy| copy.source.fresh).map(|copy| copy.source.page));
                    Some(())
                }),
            });
            if read.is_none() {
                break;
            }
        }
        pages
    }
}

/// Takes the next page that is made off the front of `rest`: its place, and its difference; else its steps come next.
fn made<'a>(rest: &mut &'a [u8]) -> Option<(usize, Option<&'a [u8]>)> {
    let (&place, after) = rest.split_first()?;
    *rest = after;
    if place & COPIES != 0 {
        return Some((usize::from(place & !COPIES), None));
    }
    let len = sparse::read_len(rest)?;
    let (packed, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some((place.into(), Some(packed)))
}

impl Decoder {
    /// Whether the lanes that a chunk relies on have come as far as it needs, and the pages it copies from are here; waits up to
    /// `wait` for them. A chunk that is none is ready: [`Decoder::unpack`] says what is wrong with it.
    #[must_use]
    pub fn is_ready(&self, chunk: &[u8], wait: Duration) -> bool {
        let Ok(parts) = Parts::of(chunk) else { return true };
        let Some(lanes) = parts.lanes else { return true };
        let Some(header) = packet::read_header(parts.header, &self.before) else { return true };
        let mut fresh = parts.fresh();
        let mut state = self.receiver.state.lock();
        let Some(block) = state.blocks.number(packet::block(&header)) else { return true };
        let mut lag = |state: &mut State| {
            if state.lanes.len() < usize::from(lanes) || !state.lanes.all_at(self.round) {
                return true;
            }
            state.lanes.merge_to(self.round);
            fresh.retain(|page| state.lanes.fresh(key(block, *page)).is_none());
            !fresh.is_empty()
        };
        if lag(&mut state) {
            self.receiver.moved.wait_while_for(&mut state, &mut lag, wait);
        }
        !lag(&mut state)
    }

    /// Takes a chunk apart, kind included.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] where it is no packet, or not one that can come here.
    pub fn unpack<'a>(&'a mut self, chunk: &'a [u8]) -> Result<Unpacked<'a>, DecodeError> {
        let parts = Parts::of(chunk)?;
        let at = chunk.len() - parts.rest.len();
        let header =
            packet::read_header(parts.header, &self.before).ok_or_else(|| corrupt(at, "a header that is none"))?;
        let packet = Packet::parse(&header).map_err(|surprise| corrupt(at, surprise.0))?;
        if parts.made == 0 && parts.front.len() != packet.normal * PAGE_LEN {
            return Err(corrupt(at, "not as many pages as the header says"));
        }
        if packet.normal < PAGES_MAX && parts.keeps >> packet.normal != 0 {
            return Err(corrupt(at, "more pages to keep than there are"));
        }
        match parts.lanes {
            Some(lanes) => self.rely(&parts, &header, &packet, lanes, at)?,
            None if parts.rest.is_empty() => {}
            None => return Err(corrupt(at, "more than a packet")),
        }
        self.before = header;
        if packet.sync {
            self.round = self.receiver.state.lock().lanes.passed(self.lane);
            self.receiver.moved.notify_all();
        }
        let pages = if parts.made > 0 { &self.pages } else { parts.front };
        Ok(Unpacked { header: &self.before, pages })
    }

    /// A packet that relies on what all lanes sent before: merges that, makes pages, keeps what is to be kept.
    fn rely(
        &mut self,
        parts: &Parts<'_>,
        header: &[u8; HEADER_LEN],
        packet: &Packet,
        lanes: u8,
        at: usize,
    ) -> Result<(), DecodeError> {
        let mut state = self.receiver.state.lock();
        if state.lanes.len() != usize::from(lanes) || !state.lanes.all_at(self.round) {
            return Err(corrupt(at, "relies on other lanes than there are"));
        }
        state.lanes.merge_to(self.round);
        let block = state.blocks.number(packet::block(header)).ok_or_else(|| corrupt(at, "too many memory blocks"))?;
        let offsets: Vec<u64> = packet.offsets(header).take(packet.normal).collect();
        let (mut rest, mut front, mut last) = (parts.rest, parts.front, Last::default());
        let mut pages = parts.front;
        if parts.made > 0 {
            let fault = || corrupt(at, "a page that cannot be made");
            self.pages.clear();
            for _ in 0..parts.made {
                let (place, packed) = made(&mut rest).ok_or_else(fault)?;
                let in_full = (place * PAGE_LEN).checked_sub(self.pages.len()).ok_or_else(fault)?;
                if place >= packet.normal {
                    return Err(fault());
                }
                let (full, after) = front.split_at_checked(in_full).ok_or_else(fault)?;
                front = after;
                self.pages.extend_from_slice(full);
                if let Some(packed) = packed {
                    let kept = state.lanes.kept((block, offsets[place]));
                    let kept = kept.ok_or_else(|| corrupt(at, "a difference against a page that is not kept"))?;
                    let from = self.pages.len();
                    self.pages.resize(from + PAGE_LEN, 0);
                    sparse::read(packed, &mut self.pages[from..]).ok_or_else(fault)?;
                    self.pages[from..].iter_mut().zip(kept.iter()).for_each(|(byte, kept)| *byte ^= kept);
                } else {
                    let kept = |Source { page, fresh }| match fresh {
                        true => state.lanes.fresh(key(block, page)),
                        false => state.lanes.kept(key(block, page)),
                    };
                    copies::unpack(&mut rest, &mut front, &mut last, kept, &mut self.pages).ok_or_else(fault)?;
                }
            }
            self.pages.extend_from_slice(front);
            if self.pages.len() != packet.normal * PAGE_LEN {
                return Err(corrupt(at, "not as many pages as the header says"));
            }
            pages = &self.pages;
        }
        if !rest.is_empty() {
            return Err(corrupt(at, "more than a packet"));
        }
        for (place, page) in pages.chunks_exact(PAGE_LEN).enumerate() {
            if parts.keeps >> place & 1 == 1 {
                let page: &Page = page.try_into().expect("a page");
                if state.lanes.want(self.lane, (block, offsets[place]), page).is_none() {
                    return Err(corrupt(at, "a page to keep that may not be"));
                }
            }
        }
        if parts.keeps != 0 {
            // Other lanes may wait for one of them.
            self.receiver.moved.notify_all();
        }
        Ok(())
    }
}

/// Which page of a block.
fn key(block: u16, page: u64) -> Key {
    (block, page.wrapping_mul(PAGE_LEN as u64))
}
