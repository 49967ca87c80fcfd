//! Objects side by side in slabs.
//!
//! A slab is up to 16 frames, touched one after the other as they are needed; what was never touched costs nothing. Its
//! objects lie anywhere in it, to the byte. A place names a slab and an entry of its table, which says where the object
//! is, so objects slide together inside their slab without anybody being told.
//!
//! An object goes where the room is least that suffices: slabs are listed by their room in steps of 32 bytes. Only
//! where none has any is a frame more touched. So what is lost is less than the shortest common object at the end of a
//! slab, and the table, which is counted. Classes of lengths, as zsmalloc has them, were here before: each of a hundred
//! kept a slab partly empty, and lengths were rounded up; that lost 9 % of a store of 30 MB and more after overwrites,
//! this loses 2.
//!
//! A slab that empties gives its frames back.
//!
//! Invariants: a slab is listed by its room while an object may be put in it; its frames are taken from the budget
//! before the first byte in them is written. Not thread-safe: a shard's lock guards it.

use std::{ops::Range, sync::Arc};

use narrows_io::region::{FRAME, Region};

use crate::budget::Budget;

/// Longest packed page that is stored: what is saved of a longer one is not worth unpacking it.
pub(crate) const OBJECT_LEN_MAX: usize = 3632;

const SLAB_FRAMES: usize = 16;
const SLAB_LEN: usize = SLAB_FRAMES * FRAME;
/// Bits of a place that number the object within its slab.
const OBJECT_BITS: u32 = 10;
/// Objects of a slab at most.
const OBJECTS_MAX: usize = 1 << OBJECT_BITS;
const NONE: u32 = u32::MAX;
/// End of a slab's list of free entries.
const LAST: u16 = u16::MAX;
/// Room of slabs on one list, in bytes; from a frame on, in frames.
const STEP: usize = 32;
const LISTS: usize = FRAME / STEP + SLAB_FRAMES;

/// No frame can be had: the limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// Where an object is in its slab. Where `len` is 0 the entry is free, and `at` the next free one.
#[derive(Debug, Clone, Copy)]
struct Extent {
    at: u16,
    len: u16,
}

#[derive(Debug)]
struct Slab {
    extents: Vec<Extent>,
    /// First free entry.
    free: u16,
    used: u16,
    /// Frames that were touched.
    frames: u8,
    /// Its objects are to be moved, and none put in it.
    leaving: bool,
    /// Bytes of its objects.
    live: u32,
    /// Where nothing is from.
    top: u32,
    list: Option<u8>,
    next: u32,
    previous: u32,
    /// It is among [`Slabs::growing`].
    grows: bool,
}

impl Slab {
    const EMPTY: Self = Self {
        extents: Vec::new(),
        free: LAST,
        used: 0,
        frames: 0,
        leaving: false,
        live: 0,
        top: 0,
        list: None,
        next: NONE,
        previous: NONE,
        grows: false,
    };

    fn has_entries(&self) -> bool {
        self.free != LAST || self.extents.len() < OBJECTS_MAX
    }

    /// Bytes that can be had without a frame more.
    fn room(&self) -> usize {
        usize::from(self.frames) * FRAME - self.live as usize
    }

    /// Whether a frame more makes room for any object.
    fn can_grow(&self) -> bool {
        !self.leaving && self.has_entries() && usize::from(self.frames) < SLAB_FRAMES
    }

    /// The list where it belongs: `None` if nothing may be put in it.
    fn list_of(&self) -> Option<u8> {
        match self.room() {
            _ if self.leaving || !self.has_entries() => None,
            room if room < FRAME => (room >= STEP).then_some((room / STEP) as u8),
            room => Some((FRAME / STEP + room / FRAME - 1) as u8),
        }
    }
}

/// A shard's objects.
#[derive(Debug)]
pub(crate) struct Slabs {
    region: Region,
    slabs: Vec<Slab>,
    /// First slab by room.
    heads: [u32; LISTS],
    /// A bit for each list that is not empty.
    listed: [u64; LISTS.div_ceil(64)],
    /// Slabs of less than 16 frames, and some that were.
    growing: Vec<u32>,
    budget: Arc<Budget>,
    /// Frames of slabs.
    touched: u64,
    /// Bytes of slabs' tables, and of all objects.
    tables: usize,
    live: u64,
    /// Entries of a slab as its objects lie.
    order: Vec<u32>,
}

impl Slabs {
    /// For at most `objects` objects at a time.
    pub(crate) fn new(objects: usize, budget: Arc<Budget>) -> std::io::Result<Self> {
        // A slab is opened where all others that may be used are full but for a frame or have all their entries in use;
        // as many may be leaving.
        let slabs = objects.div_ceil(SLAB_FRAMES - 1) + objects / OBJECTS_MAX + 2;
        Ok(Self {
            region: Region::reserve(slabs.saturating_mul(2 * SLAB_LEN))?,
            slabs: Vec::new(),
            heads: [NONE; LISTS],
            listed: [0; LISTS.div_ceil(64)],
            growing: Vec::new(),
            budget,
            touched: 0,
            tables: 0,
            live: 0,
            order: Vec::new(),
        })
    }

    /// Frames in use, with those of the tables.
    pub(crate) fn frames(&self) -> u64 {
        self.touched + self.tables.div_ceil(FRAME) as u64
    }

    /// How many slabs there are.
    pub(crate) fn len(&self) -> usize {
        self.slabs.len()
    }

    /// Stores `bytes`, at most a frame, and says where.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<u64, Full> {
        let number = match self.find(bytes.len()) {
            Some(number) => number,
            None => self.grow()?,
        };
        let object = self.add(number, bytes.len())?;
        self.write(number, object, bytes);
        Ok(join(number, object))
    }

    /// Puts `bytes` in place of an object, if they are no longer than it or, where `loosely`, its slab has the room.
    /// Says whether it did.
    pub(crate) fn replace(&mut self, place: u64, bytes: &[u8], loosely: bool) -> bool {
        let (number, mut object) = split(place);
        let held = usize::from(self.extent(number, object).len);
        if bytes.len() > held {
            if !loosely || bytes.len() > held + self.slabs[number as usize].room() {
                return false;
            }
            // The entry that this frees is the one that is taken next.
            self.remove(number, object);
            object = self.add(number, bytes.len()).expect("an entry was freed");
        } else {
            self.shorten_object(number, object, bytes.len());
        }
        self.write(number, object, bytes);
        self.refile(number);
        true
    }

    /// The object's first `len` bytes.
    pub(crate) fn get(&self, place: u64, len: usize) -> &[u8] {
        let (number, object) = split(place);
        let at = number as usize * SLAB_LEN + usize::from(self.extent(number, object).at);
        &self.region[at..at + len]
    }

    /// Forgets an object.
    pub(crate) fn free(&mut self, place: u64) {
        let (number, object) = split(place);
        self.remove(number, object);
        if self.slabs[number as usize].used == 0 {
            self.release(number);
        }
        self.refile(number);
    }

    /// Frames that would come free if objects moved together, each slab losing half of one at its end.
    pub(crate) fn reclaimable(&self) -> u64 {
        let used = self.slabs.iter().filter(|slab| slab.frames > 0).count() as u64;
        (self.touched - self.live / FRAME as u64).saturating_sub(used / 2)
    }

    /// Chooses slabs whose objects fit into others, the emptiest first. The caller moves each object for which
    /// [`Slabs::is_leaving`] holds by [`Slabs::relocate`], and calls [`Slabs::settle`] for all slabs at last.
    pub(crate) fn evacuate(&mut self) {
        // Room of less than a frame is what filling slabs leaves anyway.
        let capacity = |slab: &Slab| (SLAB_LEN - slab.live as usize) / FRAME * FRAME;
        let mut sparse: Vec<u32> = (0..self.slabs.len() as u32)
            .filter(|&number| {
                self.slabs[number as usize].used > 0 && capacity(&self.slabs[number as usize]) > 0
            })
            .collect();
        sparse.sort_unstable_by_key(|&number| self.slabs[number as usize].live);
        let mut left: usize = sparse
            .iter()
            .map(|&number| capacity(&self.slabs[number as usize]))
            .sum();
        for number in sparse {
            let slab = &mut self.slabs[number as usize];
            let Some(rest) = left.checked_sub(capacity(slab) + slab.live as usize) else {
                break;
            };
            left = rest;
            slab.leaving = true;
            self.refile(number);
        }
    }

    /// Whether the object is to be moved.
    pub(crate) fn is_leaving(&self, place: u64) -> bool {
        self.slabs[split(place).0 as usize].leaving
    }

    /// Moves an object to another slab.
    pub(crate) fn relocate(&mut self, place: u64, len: usize) -> Result<u64, Full> {
        let (number, object) = split(place);
        let to = match self.find(len) {
            Some(to) => to,
            None => self.grow()?,
        };
        let new = self.add(to, len)?;
        let from = number as usize * SLAB_LEN + usize::from(self.extent(number, object).at);
        let at = to as usize * SLAB_LEN + usize::from(self.extent(to, new).at);
        self.region.copy_within(from..from + len, at);
        self.free(place);
        Ok(join(to, new))
    }

    /// Ends a compaction in a range of slabs: objects slide together where that leaves frames empty, and these are
    /// given back.
    pub(crate) fn settle(&mut self, range: Range<usize>) {
        for number in range {
            let slab = &mut self.slabs[number];
            slab.leaving = false;
            if slab.room() >= FRAME {
                self.slide(number as u32);
                let slab = &mut self.slabs[number];
                let (from, to) = (
                    (slab.top as usize).div_ceil(FRAME),
                    usize::from(slab.frames),
                );
                slab.frames = from as u8;
                self.region
                    .release(number * SLAB_LEN + from * FRAME..number * SLAB_LEN + to * FRAME);
                self.touched -= (to - from) as u64;
                self.budget.give((to - from) as u64);
            }
            self.refile(number as u32);
        }
    }

    fn extent(&self, number: u32, object: u16) -> Extent {
        self.slabs[number as usize].extents[usize::from(object)]
    }

    fn write(&mut self, number: u32, object: u16, bytes: &[u8]) {
        let at = number as usize * SLAB_LEN + usize::from(self.extent(number, object).at);
        self.region[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// The slab of least room that `len` bytes fit in.
    fn find(&self, len: usize) -> Option<u32> {
        let first = len.div_ceil(STEP);
        let mut word = first / 64;
        let mut bits = self.listed[word] >> (first % 64) << (first % 64);
        while bits == 0 {
            word += 1;
            bits = *self.listed.get(word)?;
        }
        Some(self.heads[word * 64 + bits.trailing_zeros() as usize])
    }

    /// Adds a frame to a slab, where any object fits then.
    fn grow(&mut self) -> Result<u32, Full> {
        let number = loop {
            match self.growing.last() {
                Some(&number) if self.slabs[number as usize].can_grow() => break number,
                Some(&number) => {
                    self.slabs[number as usize].grows = false;
                    self.growing.pop();
                }
                None => break self.open()?,
            }
        };
        if !self.budget.take(1) {
            return Err(Full);
        }
        self.touched += 1;
        self.slabs[number as usize].frames += 1;
        self.refile(number);
        Ok(number)
    }

    fn open(&mut self) -> Result<u32, Full> {
        let number = self.slabs.len();
        if (number + 1) * SLAB_LEN > self.region.len() {
            return Err(Full);
        }
        self.take_table(size_of::<Slab>())?;
        self.slabs.push(Slab::EMPTY);
        self.refile(number as u32);
        Ok(number as u32)
    }

    /// Takes the frames for so many bytes of tables more.
    fn take_table(&mut self, bytes: usize) -> Result<(), Full> {
        let more = (self.tables + bytes).div_ceil(FRAME) - self.tables.div_ceil(FRAME);
        if !self.budget.take(more as u64) {
            return Err(Full);
        }
        self.tables += bytes;
        Ok(())
    }

    /// Makes an object of `len` bytes in a slab that has the room.
    fn add(&mut self, number: u32, len: usize) -> Result<u16, Full> {
        let slab = &self.slabs[number as usize];
        debug_assert!(
            slab.room() >= len && slab.has_entries(),
            "the caller chose it for its room"
        );
        let (held, more) = (slab.extents.capacity(), slab.extents.len().max(8));
        if slab.free == LAST && slab.extents.len() == held {
            self.take_table(more * size_of::<Extent>())?;
            let slab = &mut self.slabs[number as usize];
            slab.extents.reserve_exact(more);
            debug_assert_eq!(
                slab.extents.capacity(),
                held + more,
                "the table is what was counted"
            );
        }
        let at = self.find_gap(number, len);
        let extent = Extent {
            at: at as u16,
            len: len as u16,
        };
        let slab = &mut self.slabs[number as usize];
        let object = match slab.free {
            LAST => {
                slab.extents.push(extent);
                slab.extents.len() as u16 - 1
            }
            object => {
                slab.free = std::mem::replace(&mut slab.extents[usize::from(object)], extent).at;
                object
            }
        };
        slab.used += 1;
        slab.live += len as u32;
        slab.top = slab.top.max((at + len) as u32);
        self.live += len as u64;
        self.refile(number);
        Ok(object)
    }

    /// Where `len` bytes in one piece are in a slab that has so many: behind its objects, or between them, if need be
    /// after these slid together.
    fn find_gap(&mut self, number: u32, len: usize) -> usize {
        let slab = &self.slabs[number as usize];
        let (top, end) = (slab.top as usize, usize::from(slab.frames) * FRAME);
        if top + len <= end {
            return top;
        }
        self.sort(number);
        let slab = &self.slabs[number as usize];
        let mut behind = 0;
        for object in &self.order {
            let Extent { at, len: held } = slab.extents[*object as usize & (OBJECTS_MAX - 1)];
            if usize::from(at) - behind >= len {
                return behind;
            }
            behind = usize::from(at) + usize::from(held);
        }
        self.slide_sorted(number);
        self.slabs[number as usize].top as usize
    }

    /// Lists the slab's entries in use in `order`, as their objects lie: offset in the upper half, number in the lower.
    fn sort(&mut self, number: u32) {
        self.order.clear();
        let extents = self.slabs[number as usize].extents.iter().zip(0_u32..);
        self.order.extend(
            extents
                .filter(|(it, _)| it.len > 0)
                .map(|(it, object)| u32::from(it.at) << 16 | object),
        );
        self.order.sort_unstable();
    }

    /// Moves a slab's objects to its front.
    fn slide(&mut self, number: u32) {
        self.sort(number);
        self.slide_sorted(number);
    }

    fn slide_sorted(&mut self, number: u32) {
        let slab = &mut self.slabs[number as usize];
        let bytes = &mut self.region[number as usize * SLAB_LEN..][..SLAB_LEN];
        let mut top = 0;
        for object in &self.order {
            let extent = &mut slab.extents[*object as usize & (OBJECTS_MAX - 1)];
            let at = usize::from(extent.at);
            if at > top {
                bytes.copy_within(at..at + usize::from(extent.len), top);
                extent.at = top as u16;
            }
            top += usize::from(extent.len);
        }
        slab.top = top as u32;
    }

    /// Leaves an object only its first `len` bytes.
    fn shorten_object(&mut self, number: u32, object: u16, len: usize) {
        let slab = &mut self.slabs[number as usize];
        let extent = &mut slab.extents[usize::from(object)];
        let less = u32::from(extent.len) - len as u32;
        if u32::from(extent.at) + u32::from(extent.len) == slab.top {
            slab.top -= less;
        }
        extent.len = len as u16;
        slab.live -= less;
        self.live -= u64::from(less);
    }

    /// Frees an entry. The caller refiles the slab.
    fn remove(&mut self, number: u32, object: u16) {
        self.shorten_object(number, object, 0);
        let slab = &mut self.slabs[number as usize];
        slab.used -= 1;
        slab.extents[usize::from(object)].at = std::mem::replace(&mut slab.free, object);
    }

    /// Takes the frames and the table of a slab that holds no object. The caller refiles it.
    fn release(&mut self, number: u32) {
        let before = self.frames();
        let slab = &mut self.slabs[number as usize];
        debug_assert_eq!(
            (slab.used, slab.live),
            (0, 0),
            "a slab that is released is empty"
        );
        let frames = usize::from(slab.frames);
        self.tables -= slab.extents.capacity() * size_of::<Extent>();
        (slab.extents, slab.free, slab.frames, slab.leaving, slab.top) =
            (Vec::new(), LAST, 0, false, 0);
        let start = number as usize * SLAB_LEN;
        self.region.release(start..start + frames * FRAME);
        self.touched -= frames as u64;
        self.budget.give(before - self.frames());
    }

    /// Puts the slab on the lists where it belongs now.
    fn refile(&mut self, number: u32) {
        let slab = &mut self.slabs[number as usize];
        if slab.can_grow() && !slab.grows {
            slab.grows = true;
            self.growing.push(number);
        }
        let list = slab.list_of();
        if list == slab.list {
            return;
        }
        self.unlink(number);
        let Some(list) = list else { return };
        let next = std::mem::replace(&mut self.heads[usize::from(list)], number);
        self.listed[usize::from(list / 64)] |= 1 << (list % 64);
        let slab = &mut self.slabs[number as usize];
        (slab.list, slab.previous, slab.next) = (Some(list), NONE, next);
        if next != NONE {
            self.slabs[next as usize].previous = number;
        }
    }

    fn unlink(&mut self, number: u32) {
        let Slab {
            list,
            next,
            previous,
            ..
        } = self.slabs[number as usize];
        let Some(list) = list else { return };
        match previous {
            NONE => self.heads[usize::from(list)] = next,
            previous => self.slabs[previous as usize].next = next,
        }
        if next != NONE {
            self.slabs[next as usize].previous = previous;
        }
        if self.heads[usize::from(list)] == NONE {
            self.listed[usize::from(list / 64)] &= !(1 << (list % 64));
        }
        let slab = &mut self.slabs[number as usize];
        (slab.list, slab.next, slab.previous) = (None, NONE, NONE);
    }
}

impl Drop for Slabs {
    fn drop(&mut self) {
        self.budget.give(self.frames());
    }
}

fn split(place: u64) -> (u32, u16) {
    (
        (place >> OBJECT_BITS) as u32,
        (place & ((1 << OBJECT_BITS) - 1)) as u16,
    )
}

fn join(slab: u32, object: u16) -> u64 {
    u64::from(slab) << OBJECT_BITS | u64::from(object)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn content(seed: u16, len: usize) -> Vec<u8> {
        (0..len)
            .map(|i| (usize::from(seed) * 31 + i * 7) as u8)
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Against a map: whatever is put, freed and moved, every object keeps its bytes and every frame is counted.
        #[test]
        fn objects_keep_their_bytes(ops in prop::collection::vec((0..8_u8, 1..4097_usize, any::<u16>()), 1..600)) {
            let budget = Arc::new(Budget::new(Some(64 * FRAME as u64)));
            let mut slabs = Slabs::new(700, budget.clone()).unwrap();
            let mut held: BTreeMap<u64, (u16, usize)> = BTreeMap::new();
            for (op, len, seed) in ops {
                match op {
                    0..5 => if let Ok(place) = slabs.put(&content(seed, len)) {
                        prop_assert!(held.insert(place, (seed, len)).is_none(), "an object is given once");
                    },
                    5 => {
                        let victim = held.keys().nth(usize::from(seed) % held.len().max(1)).copied();
                        if let Some(place) = victim
                            && slabs.replace(place, &content(seed, len), seed % 2 == 0)
                        {
                            held.insert(place, (seed, len));
                        }
                    }
                    6 => {
                        let victim = held.keys().nth(usize::from(seed) % held.len().max(1)).copied();
                        if let Some(place) = victim {
                            slabs.free(place);
                            held.remove(&place);
                        }
                    }
                    _ => {
                        slabs.evacuate();
                        for (place, (seed, len)) in std::mem::take(&mut held) {
                            let moved = slabs.is_leaving(place).then(|| slabs.relocate(place, len));
                            let place = moved.and_then(Result::ok).unwrap_or(place);
                            prop_assert!(held.insert(place, (seed, len)).is_none(), "an object is given once");
                        }
                        slabs.settle(0..slabs.len());
                    }
                }
                prop_assert_eq!(budget.used(), slabs.frames() * FRAME as u64);
                prop_assert!(budget.used() <= budget.limit().unwrap());
            }
            for (&place, &(seed, len)) in &held {
                prop_assert_eq!(slabs.get(place, len), &content(seed, len)[..]);
            }
            for place in held.into_keys() {
                slabs.free(place);
            }
            let table = (slabs.len() * size_of::<Slab>()).div_ceil(FRAME) as u64;
            prop_assert_eq!(slabs.frames(), table, "slabs keep their lines of the table of slabs");
        }
    }
}
