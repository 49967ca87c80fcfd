//! The receiving side: one [`Receiver`] a migration, one [`Decoder`] a lane.

use std::{collections::BTreeSet, io::IoSlice, sync::Arc, time::Duration};

use narrows_core::DecodeError;
use parking_lot::{Condvar, Mutex};

use super::{
    COPIES, HEADER_LEN, INIT_LEN, KEEP, PAGE_LEN, PAGES_AT, PAGES_MAX, Packet, Page, TURN,
    copies::{self, Last},
    corrupt, packet,
    ring::{Ring, Turns, within_reach},
    sparse,
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
    lanes: BTreeSet<u8>,
    ring: Ring,
    turns: Turns,
}

impl Receiver {
    /// One that keeps up to `keep_max` pages, if the sender wants as many.
    #[must_use]
    pub fn new(keep_max: usize) -> Self {
        let state = State {
            lanes: BTreeSet::new(),
            ring: Ring::new(0),
            turns: Turns::default(),
        };
        Self {
            keep_max,
            state: Mutex::new(state),
            moved: Condvar::new(),
        }
    }

    /// A decoder for the lane that begins with this chunk, after its kind; see [`Sender::first`](super::Sender::first).
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] where it is none, its lane is there already, or it wants more pages kept than may be or
    /// other lanes want.
    pub fn lane(self: &Arc<Self>, first: &[u8]) -> Result<Decoder, DecodeError> {
        let (init, keep) = first
            .split_last_chunk()
            .ok_or_else(|| corrupt(1, "a first packet cut short"))?;
        let lane = packet::channel_of(init)
            .ok_or_else(|| corrupt(1, "not the first packet of a multifd channel"))?;
        let keep = u32::from_le_bytes(*keep) as usize;
        let mut state = self.state.lock();
        if keep > self.keep_max {
            return Err(corrupt(
                1 + INIT_LEN,
                "the source's --keep is more than this side's",
            ));
        }
        if state.lanes.is_empty() {
            state.ring = Ring::new(keep);
        } else if state.ring.len_max() != Ring::new(keep).len_max() {
            return Err(corrupt(
                1 + INIT_LEN,
                "lanes that keep different numbers of pages",
            ));
        }
        if !state.lanes.insert(lane) {
            return Err(corrupt(25, "a multifd channel that is there already"));
        }
        drop(state);
        Ok(Decoder {
            receiver: self.clone(),
            before: [0; HEADER_LEN],
            pages: Vec::new(),
        })
    }
}

/// One lane's packets.
#[derive(Debug)]
pub struct Decoder {
    receiver: Arc<Receiver>,
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
    /// Of a packet that keeps pages or refers to some: its number among those, and how many pages were kept before.
    turn: Option<(u32, u32)>,
    keeps: u128,
    header: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Parts<'a> {
    fn of(chunk: &'a [u8]) -> Result<Self, DecodeError> {
        let cut = || corrupt(chunk.len(), "a packet's chunk is cut short");
        let &[_, made, flags, zero, ref front @ ..] =
            chunk.first_chunk::<PAGES_AT>().ok_or_else(cut)?;
        let front = u32::from_le_bytes(*front) as usize;
        if flags & !(TURN | KEEP) != 0
            || flags & TURN == 0 && (flags & KEEP != 0 || made != 0)
            || zero != 0
        {
            return Err(corrupt(2, "flags that cannot be"));
        }
        let (front, mut rest) = chunk[PAGES_AT..].split_at_checked(front).ok_or_else(cut)?;
        let mut turn = None;
        if flags & TURN != 0 {
            let (number, head) = sparse::read_len(&mut rest)
                .zip(sparse::read_len(&mut rest))
                .ok_or_else(cut)?;
            // Beyond, the next would not have a number.
            if number >= u32::MAX as usize || head >= u32::MAX as usize - PAGES_MAX {
                return Err(corrupt(
                    PAGES_AT + front.len(),
                    "more pages than can be kept",
                ));
            }
            turn = Some((number as u32, head as u32));
        }
        let mut keeps = 0;
        if flags & KEEP != 0 {
            let (bitmap, after) = rest
                .split_first_chunk::<{ PAGES_MAX / 8 }>()
                .ok_or_else(cut)?;
            (keeps, rest) = (u128::from_le_bytes(*bitmap), after);
        }
        let len = sparse::read_len(&mut rest).ok_or_else(cut)?;
        let (header, rest) = rest.split_at_checked(len).ok_or_else(cut)?;
        Ok(Self {
            front,
            made: made.into(),
            turn,
            keeps,
            header,
            rest,
        })
    }

    /// Positions of the pages that it refers to; as far as it is whole.
    fn sources(&self) -> Vec<u32> {
        let (mut rest, mut last, mut sources) = (
            self.rest,
            Last(self.turn.map_or(0, |(_, head)| head)),
            Vec::new(),
        );
        for _ in 0..self.made {
            let read = made(&mut rest, &mut last).and_then(|made| match made {
                Made::Difference { position, .. } => {
                    sources.push(position);
                    Some(())
                }
                Made::Copies { .. } => copies::read(&mut rest, &mut last, |_, copy| {
                    sources.extend(copy.map(|copy| copy.source));
                    Some(())
                }),
            });
            if read.is_none() {
                break;
            }
        }
        sources
    }
}

/// How a page is made, and its place in the packet.
enum Made<'a> {
    Difference {
        place: usize,
        position: u32,
        packed: &'a [u8],
    },
    /// Its steps come next.
    Copies { place: usize },
}

/// Takes the next page that is made off the front of `rest`.
fn made<'a>(rest: &mut &'a [u8], last: &mut Last) -> Option<Made<'a>> {
    let (&place, after) = rest.split_first()?;
    *rest = after;
    if place & COPIES != 0 {
        return Some(Made::Copies {
            place: usize::from(place & !COPIES),
        });
    }
    let position = last.read(rest)?;
    let len = sparse::read_len(rest)?;
    let (packed, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(Made::Difference {
        place: place.into(),
        position,
        packed,
    })
}

impl Decoder {
    /// Whether a chunk's turn has come, and the pages it refers to are here; waits up to `wait` for them. A chunk that
    /// is none is ready: [`Decoder::unpack`] says what is wrong with it.
    #[must_use]
    pub fn is_ready(&self, chunk: &[u8], wait: Duration) -> bool {
        let Ok(parts) = Parts::of(chunk) else {
            return true;
        };
        let Some((number, head)) = parts.turn else {
            return true;
        };
        let mut sources = parts.sources();
        let mut state = self.receiver.state.lock();
        let reach = within_reach(state.ring.len_max(), head);
        sources.retain(|position| reach.contains(position));
        let mut lags = |state: &mut State| {
            sources.retain(|position| state.ring.lacks(*position));
            !sources.is_empty() || !state.turns.may(number, state.ring.len_max())
        };
        if lags(&mut state) {
            self.receiver
                .moved
                .wait_while_for(&mut state, &mut lags, wait);
        }
        !lags(&mut state)
    }

    /// Takes a chunk apart, kind included.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] where it is no packet, or not one that can come here.
    pub fn unpack<'a>(&'a mut self, chunk: &'a [u8]) -> Result<Unpacked<'a>, DecodeError> {
        let parts = Parts::of(chunk)?;
        let at = chunk.len() - parts.rest.len();
        let header = packet::read_header(parts.header, &self.before)
            .ok_or_else(|| corrupt(at, "a header that is none"))?;
        let packet = Packet::parse(&header).map_err(|surprise| corrupt(at, surprise.0))?;
        if parts.made == 0 && parts.front.len() != packet.normal * PAGE_LEN {
            return Err(corrupt(at, "not as many pages as the header says"));
        }
        if packet.normal < PAGES_MAX && parts.keeps >> packet.normal != 0 {
            return Err(corrupt(at, "more pages to keep than there are"));
        }
        match parts.turn {
            Some(turn) => self.take(&parts, &packet, turn, at)?,
            None if parts.rest.is_empty() => {}
            None => return Err(corrupt(at, "more than a packet")),
        }
        self.before = header;
        let pages = if parts.made > 0 {
            &self.pages
        } else {
            parts.front
        };
        Ok(Unpacked {
            header: &self.before,
            pages,
        })
    }

    /// A packet that keeps pages or refers to some: makes pages, keeps what is to be kept.
    fn take(
        &mut self,
        parts: &Parts<'_>,
        packet: &Packet,
        (number, head): (u32, u32),
        at: usize,
    ) -> Result<(), DecodeError> {
        let mut state = self.receiver.state.lock();
        if !state.turns.may(number, state.ring.len_max()) || !state.turns.take(number) {
            return Err(corrupt(at, "a packet out of its turn"));
        }
        let (mut rest, mut front, mut last) = (parts.rest, parts.front, Last(head));
        let mut pages = parts.front;
        let (reach, ring) = (within_reach(state.ring.len_max(), head), &state.ring);
        let kept = |position| ring.page(position).filter(|_| reach.contains(&position));
        if parts.made > 0 {
            let fault = || corrupt(at, "a page that cannot be made");
            self.pages.clear();
            for _ in 0..parts.made {
                let made = made(&mut rest, &mut last).ok_or_else(fault)?;
                let (Made::Difference { place, .. } | Made::Copies { place }) = made;
                let in_full = (place * PAGE_LEN)
                    .checked_sub(self.pages.len())
                    .ok_or_else(fault)?;
                if place >= packet.normal {
                    return Err(fault());
                }
                let (full, after) = front.split_at_checked(in_full).ok_or_else(fault)?;
                front = after;
                self.pages.extend_from_slice(full);
                if let Made::Difference {
                    position, packed, ..
                } = made
                {
                    let kept =
                        kept(position).ok_or_else(|| corrupt(at, "a page that is not kept"))?;
                    let from = self.pages.len();
                    self.pages.resize(from + PAGE_LEN, 0);
                    sparse::read(packed, &mut self.pages[from..]).ok_or_else(fault)?;
                    self.pages[from..]
                        .iter_mut()
                        .zip(kept.iter())
                        .for_each(|(byte, kept)| *byte ^= kept);
                } else {
                    copies::unpack(&mut rest, &mut front, &mut last, kept, &mut self.pages)
                        .ok_or_else(fault)?;
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
        let kept = pages
            .chunks_exact(PAGE_LEN)
            .enumerate()
            .filter(|(place, _)| parts.keeps >> place & 1 == 1);
        for (position, (_, page)) in (head..).zip(kept) {
            let page: &Page = page.try_into().expect("a page");
            if !state.ring.put(position, page) {
                return Err(corrupt(at, "a page to keep that may not be"));
            }
        }
        drop(state);
        // Other lanes may wait for it.
        self.receiver.moved.notify_all();
        Ok(())
    }
}
