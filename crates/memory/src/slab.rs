//! Objects side by side in frames.
//!
//! An object goes to the class of its length if a slab of it has room, else to one of longer objects that has, as long as
//! the bytes this leaves unused are less than another open slab would: a small store thus has few classes in use, a
//! large one all of them ([`Slabs::suits`]).
//!
//! A slab has a stride of address space of 8 frames, of which it touches as many as its class has, one after the other
//! as objects are carved from it; what was never touched costs nothing. Freed objects form a list threaded through
//! their own bytes. A slab that empties gives its frames back, unless it is the only one of its class with room and a small
//! part of all.
//!
//! Invariants: a slab is on the list of its class and fill exactly while an object may be taken from it; `frames` of the
//! budget are taken before the first byte in them is written. Not thread-safe: a shard's lock guards it.

use std::sync::Arc;

use narrows_io::region::{FRAME, Region};

use crate::{
    budget::Budget,
    class::{CLASSES, Class, FRAMES_MAX},
};

const SLAB_LEN: usize = FRAMES_MAX * FRAME;
const NONE: u32 = u32::MAX;
/// End of a slab's list of free objects.
const LAST: u16 = u16::MAX;
/// An empty slab of at most one frame in so many is kept for the next object of its class.
const SPARE_SHARE: u64 = 64;
/// The limit of a slab of which nothing is to be moved.
const ALL_STAY: u16 = u16::MAX;
/// Bits of a place that number the object within its slab.
const OBJECT_BITS: u32 = 11;

/// No frame can be had: the limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// How full a slab is; also which list of its class it is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fill {
    /// At least half: objects go here first, so that the others may empty.
    Dense,
    Sparse,
    /// No object may be taken: all are, or the slab is being emptied.
    Closed,
}

#[derive(Debug, Clone, Copy)]
struct Slab {
    class: u8,
    fill: Fill,
    /// Objects from this number on are to be moved: 0 for a slab that is being emptied, [`ALL_STAY`] for most.
    limit: u16,
    /// Objects taken from `limit` on.
    above: u16,
    used: u16,
    /// Objects that were ever taken: `0..carved`.
    carved: u16,
    free: u16,
    next: u32,
    previous: u32,
}

impl Slab {
    /// Frames that were touched.
    fn frames(&self) -> u64 {
        self.frames_of(self.carved)
    }

    /// Frames that its first objects touch.
    fn frames_of(&self, objects: u16) -> u64 {
        (usize::from(objects) * CLASSES.class(self.class).stride).div_ceil(FRAME) as u64
    }
}

/// A shard's objects.
#[derive(Debug)]
pub(crate) struct Slabs {
    region: Region,
    slabs: Vec<Slab>,
    /// Slabs without frames.
    spare: Vec<u32>,
    /// First slab by class and fill.
    heads: Vec<[u32; 2]>,
    budget: Arc<Budget>,
    frames: u64,
}

impl Slabs {
    /// For at most `objects` objects at a time.
    pub(crate) fn new(objects: usize, budget: Arc<Budget>) -> std::io::Result<Self> {
        // In the worst case every slab holds one object; and a class may keep an empty one.
        let len = (objects + CLASSES.len() + 1).saturating_mul(SLAB_LEN);
        Ok(Self {
            region: Region::reserve(len)?,
            slabs: Vec::new(),
            spare: Vec::new(),
            heads: vec![[NONE; 2]; CLASSES.len()],
            budget,
            frames: 0,
        })
    }

    /// Frames in use.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// Stores `bytes`, at most a frame, and says where.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<u64, Full> {
        let (slab, object) = self.take(CLASSES.of_len(bytes.len()))?;
        let at = address(slab, object, self.class_of(slab));
        self.region[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(join(slab, object))
    }

    /// Puts `bytes` in place of an object, where they fit and, unless `loosely`, would not rather be in a smaller one.
    pub(crate) fn replace(&mut self, place: u64, bytes: &[u8], loosely: bool) -> bool {
        let (slab, object) = split(place);
        let held = self.slabs[slab as usize].class;
        let (own, class) = (CLASSES.of_len(bytes.len()), CLASSES.class(held));
        let fits = bytes.len() <= class.stride && (loosely || self.suits(own, held));
        if fits {
            let at = address(slab, object, class);
            self.region[at..at + bytes.len()].copy_from_slice(bytes);
        }
        fits
    }

    /// The object's first `len` bytes.
    pub(crate) fn get(&self, place: u64, len: usize) -> &[u8] {
        let (slab, object) = split(place);
        let at = address(slab, object, CLASSES.class(self.slabs[slab as usize].class));
        &self.region[at..at + len]
    }

    /// Forgets an object.
    pub(crate) fn free(&mut self, place: u64) {
        let (number, object) = split(place);
        let class = self.class_of(number);
        let slab = &mut self.slabs[number as usize];
        slab.used -= 1;
        if object < slab.limit {
            let at = address(number, object, class);
            self.region[at..at + 2].copy_from_slice(&slab.free.to_le_bytes());
            slab.free = object;
        } else {
            slab.above -= 1;
        }
        if slab.used > 0 {
            if slab.above == 0 && slab.limit != ALL_STAY {
                self.shorten(number);
            }
            return self.refile(number);
        }
        let (leaving, class_number) = (slab.limit != ALL_STAY, usize::from(slab.class));
        let small = slab.frames() * SPARE_SHARE <= self.frames;
        self.refile(number);
        let heads = self.heads[class_number];
        let alone = heads[0] == NONE && heads[1] == number && self.slabs[number as usize].next == NONE;
        if leaving || !(alone && small) {
            self.release(number);
        }
    }

    /// Gives back slabs that are kept empty. Returns how many frames that were.
    pub(crate) fn trim(&mut self) -> u64 {
        let before = self.frames;
        for class in 0..self.heads.len() {
            let mut number = self.heads[class][Fill::Sparse as usize];
            while number != NONE {
                let Slab { used, next, .. } = self.slabs[number as usize];
                if used == 0 {
                    self.release(number);
                }
                number = next;
            }
        }
        before - self.frames
    }

    /// Frames that would come free if the objects of each class moved together.
    pub(crate) fn reclaimable(&self) -> u64 {
        let mut room = vec![0_u64; self.heads.len()];
        for slab in &self.slabs {
            room[usize::from(slab.class)] += u64::from(slab.carved - slab.used);
        }
        let frames = |(number, room): (usize, u64)| {
            let class = CLASSES.class(number as u8);
            room / u64::from(class.objects) * class.frames as u64
        };
        room.into_iter().enumerate().map(frames).sum()
    }

    /// Chooses objects that fit into the room of others, so that their frames come free, if those are `frames_min` or more. The
    /// caller moves each object for which [`Slabs::is_leaving`] holds by [`Slabs::relocate`]; frames go with the last
    /// object in them. Says whether any object is to be moved.
    pub(crate) fn evacuate(&mut self, frames_min: u64) -> bool {
        let (limits, frames) = self.plan();
        if frames < frames_min {
            return false;
        }
        let mut moves = false;
        for (number, limit) in limits {
            if self.slabs[number as usize].used == 0 {
                self.release(number);
                continue;
            }
            self.set_limit(number, limit);
            if self.slabs[number as usize].above == 0 {
                self.shorten(number);
            } else {
                moves = true;
            }
            self.refile(number);
        }
        // Those of a compaction that was interrupted, too.
        moves || self.slabs.iter().any(|slab| slab.above > 0)
    }

    /// Slabs with limits beyond which objects fit into the room of others, and how many frames would come free.
    fn plan(&self) -> (Vec<(u32, u16)>, u64) {
        let room = |slab: &Slab| i64::from(slab.carved - slab.used);
        let mut rooms = vec![0; self.heads.len()];
        let mut partial: Vec<Vec<(u16, u32)>> = vec![Vec::new(); self.heads.len()];
        for (class, heads) in self.heads.iter().enumerate() {
            for &head in heads {
                let mut number = head;
                while number != NONE {
                    let slab = &self.slabs[number as usize];
                    if slab.limit == ALL_STAY {
                        partial[class].push((slab.used, number));
                        rooms[class] += room(slab);
                    }
                    number = slab.next;
                }
            }
        }
        let (mut limits, mut frames) = (Vec::new(), 0);
        // The shortest first, since their objects fit among longer ones and not the other way round.
        for (class, partial) in partial.iter_mut().enumerate().rev() {
            partial.sort_unstable();
            let mut slabs = partial.iter().map(|&(_, number)| (number, &self.slabs[number as usize])).peekable();
            // Slabs whose objects all fit elsewhere: their own room is lost, and that of their objects is taken.
            while let Some((number, slab)) = slabs.next_if(|(_, slab)| {
                let own = rooms[class] - room(slab);
                let elsewhere: i64 = self.hosts(class as u8).skip(1).map(|host| rooms[usize::from(host)].max(0)).sum();
                own >= 0 && own + elsewhere >= i64::from(slab.used)
            }) {
                rooms[class] -= room(slab);
                let mut left = i64::from(slab.used);
                for host in self.hosts(class as u8) {
                    let taken = left.min(rooms[usize::from(host)].max(0));
                    rooms[usize::from(host)] -= taken;
                    left -= taken;
                }
                limits.push((number, 0));
                frames += slab.frames();
            }
            // What room is left is at the end of slabs once the objects there moved to the front.
            for (number, slab) in slabs {
                let left = rooms[class].clamp(0, room(slab));
                rooms[class] -= left;
                let limit = slab.carved - left as u16;
                let fewer = slab.frames() - slab.frames_of(limit);
                if fewer > 0 {
                    limits.push((number, limit));
                    frames += fewer;
                }
            }
        }
        (limits, frames)
    }

    /// From now on the slab's objects from `limit` on are to be moved.
    fn set_limit(&mut self, number: u32, limit: u16) {
        let class = self.class_of(number);
        let slab = self.slabs[number as usize];
        let mut above = slab.carved - limit;
        let (mut free, mut object) = (LAST, slab.free);
        while object != LAST {
            let at = address(number, object, class);
            let next = u16::from_le_bytes([self.region[at], self.region[at + 1]]);
            if object < limit {
                self.region[at..at + 2].copy_from_slice(&free.to_le_bytes());
                free = object;
            } else {
                above -= 1;
            }
            object = next;
        }
        let slab = &mut self.slabs[number as usize];
        (slab.limit, slab.above, slab.free) = (limit, above, free);
    }

    /// Takes away the frames beyond the slab's limit, where no object is left.
    fn shorten(&mut self, number: u32) {
        let slab = &mut self.slabs[number as usize];
        debug_assert_eq!(slab.above, 0, "what is cut off holds nothing");
        let (from, to) = (slab.frames_of(slab.limit), slab.frames());
        (slab.carved, slab.limit) = (slab.limit, ALL_STAY);
        let start = number as usize * SLAB_LEN;
        self.region.release(start + from as usize * FRAME..start + to as usize * FRAME);
        self.budget.give(to - from);
        self.frames -= to - from;
    }

    /// Whether the object is to be moved.
    pub(crate) fn is_leaving(&self, place: u64) -> bool {
        let (slab, object) = split(place);
        object >= self.slabs[slab as usize].limit
    }

    /// Moves an object to where one was freed.
    pub(crate) fn relocate(&mut self, place: u64, len: usize) -> Result<u64, Full> {
        let (number, object) = split(place);
        let own = CLASSES.of_len(len);
        let held = self.slabs[number as usize].class;
        let (slab, new) = self.take_room(own).or_else(|| self.take_room(held)).ok_or(Full)?;
        let from = address(number, object, CLASSES.class(held));
        let to = address(slab, new, self.class_of(slab));
        self.region.copy_within(from..from + len, to);
        self.free(place);
        Ok(join(slab, new))
    }

    fn class_of(&self, number: u32) -> Class {
        CLASSES.class(self.slabs[number as usize].class)
    }

    /// Whether an object of class `own` may lie among those of `host`. What it then leaves unused, as a share of its
    /// length, is at most `2 / sqrt(frames)`: with classes that far from each other, their slabs with room leave about
    /// as much unused as their strides do.
    fn suits(&self, own: u8, host: u8) -> bool {
        if own == host {
            return true;
        }
        let (own, host) = (CLASSES.class(own).stride, CLASSES.class(host).stride);
        let Some(unused) = host.checked_sub(own) else { return false };
        (unused * unused) as u64 * self.frames <= (4 * own * own) as u64
    }

    /// The class itself and those of longer objects that one of its may lie among, the nearest first. Class 0 is of whole
    /// frames, among which nothing shorter belongs.
    fn hosts(&self, own: u8) -> impl Iterator<Item = u8> {
        (own.min(1)..=own).rev().take_while(move |&host| self.suits(own, host))
    }

    /// An object of the class: a freed one, else the next of a slab, else among longer objects, else the first of a new slab.
    fn take(&mut self, own: u8) -> Result<(u32, u16), Full> {
        let head = |host: u8| self.heads[usize::from(host)].into_iter().find(|&head| head != NONE);
        let found = self.hosts(own).find_map(head);
        let number = found.unwrap_or_else(|| self.open(own));
        let class = self.class_of(number);
        let slab = &mut self.slabs[number as usize];
        if slab.free != LAST {
            return Ok((number, self.pop(number, class)));
        }
        let frames = slab.frames();
        slab.carved += 1;
        let more = slab.frames() - frames;
        if more > 0 && !self.budget.take(more) {
            slab.carved -= 1;
            return self.take_room(own).ok_or(Full);
        }
        slab.used += 1;
        let object = slab.carved - 1;
        self.frames += more;
        self.refile(number);
        Ok((number, object))
    }

    /// A freed object of the class or among longer ones: needs no frame.
    fn take_room(&mut self, own: u8) -> Option<(u32, u16)> {
        let longest = self.hosts(own).last().unwrap_or(own);
        (longest..=own).rev().find_map(|host| self.take_freed(host))
    }

    /// A freed object of any slab of the class: needs no frame.
    fn take_freed(&mut self, class_number: u8) -> Option<(u32, u16)> {
        for head in self.heads[usize::from(class_number)] {
            let mut number = head;
            while number != NONE {
                let slab = self.slabs[number as usize];
                if slab.free != LAST {
                    return Some((number, self.pop(number, CLASSES.class(class_number))));
                }
                number = slab.next;
            }
        }
        None
    }

    fn pop(&mut self, number: u32, class: Class) -> u16 {
        let slab = &mut self.slabs[number as usize];
        let object = slab.free;
        let at = address(number, object, class);
        slab.free = u16::from_le_bytes([self.region[at], self.region[at + 1]]);
        slab.used += 1;
        self.refile(number);
        object
    }

    fn open(&mut self, class: u8) -> u32 {
        let slab = Slab {
            class,
            fill: Fill::Closed,
            limit: ALL_STAY,
            above: 0,
            used: 0,
            carved: 0,
            free: LAST,
            next: NONE,
            previous: NONE,
        };
        let number = match self.spare.pop() {
            Some(number) => {
                self.slabs[number as usize] = slab;
                number
            }
            None => {
                self.slabs.push(slab);
                self.slabs.len() as u32 - 1
            }
        };
        self.refile(number);
        number
    }

    /// Takes the slab's frames away. It holds no object.
    fn release(&mut self, number: u32) {
        let slab = &mut self.slabs[number as usize];
        debug_assert_eq!(slab.used, 0, "a slab that is released is empty");
        let frames = slab.frames();
        (slab.carved, slab.free, slab.limit, slab.above) = (0, LAST, ALL_STAY, 0);
        self.unlink(number);
        self.spare.push(number);
        let start = number as usize * SLAB_LEN;
        self.region.release(start..start + frames as usize * FRAME);
        self.budget.give(frames);
        self.frames -= frames;
    }

    /// Puts the slab on the list where it belongs now.
    fn refile(&mut self, number: u32) {
        let slab = &self.slabs[number as usize];
        let objects = CLASSES.class(slab.class).objects;
        let fill = match slab.used {
            // What was freed beyond the limit is lost until the slab ends there.
            _ if slab.limit != ALL_STAY && slab.free == LAST => Fill::Closed,
            used if used == objects => Fill::Closed,
            used if used * 2 >= objects => Fill::Dense,
            _ => Fill::Sparse,
        };
        if fill == slab.fill {
            return;
        }
        self.unlink(number);
        if fill == Fill::Closed {
            return;
        }
        let head = &mut self.heads[usize::from(self.slabs[number as usize].class)][fill as usize];
        let next = std::mem::replace(head, number);
        let slab = &mut self.slabs[number as usize];
        (slab.fill, slab.previous, slab.next) = (fill, NONE, next);
        if next != NONE {
            self.slabs[next as usize].previous = number;
        }
    }

    fn unlink(&mut self, number: u32) {
        let Slab { class, fill, next, previous, .. } = self.slabs[number as usize];
        if fill == Fill::Closed {
            return;
        }
        match previous {
            NONE => self.heads[usize::from(class)][fill as usize] = next,
            previous => self.slabs[previous as usize].next = next,
        }
        if next != NONE {
            self.slabs[next as usize].previous = previous;
        }
        let slab = &mut self.slabs[number as usize];
        (slab.fill, slab.next, slab.previous) = (Fill::Closed, NONE, NONE);
    }
}

impl Drop for Slabs {
    fn drop(&mut self) {
        self.budget.give(self.frames);
    }
}

fn split(place: u64) -> (u32, u16) {
    ((place >> OBJECT_BITS) as u32, (place & ((1 << OBJECT_BITS) - 1)) as u16)
}

fn join(slab: u32, object: u16) -> u64 {
    u64::from(slab) << OBJECT_BITS | u64::from(object)
}

fn address(slab: u32, object: u16, class: Class) -> usize {
    slab as usize * SLAB_LEN + usize::from(object) * class.stride
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn content(seed: u16, len: usize) -> Vec<u8> {
        (0..len).map(|i| (usize::from(seed) * 31 + i * 7) as u8).collect()
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
                    5..7 => {
                        let victim = held.keys().nth(usize::from(seed) % held.len().max(1)).copied();
                        if let Some(place) = victim {
                            slabs.free(place);
                            held.remove(&place);
                        }
                    }
                    _ => {
                        slabs.evacuate(0);
                        for (place, (seed, len)) in std::mem::take(&mut held) {
                            let moved = slabs.is_leaving(place).then(|| slabs.relocate(place, len));
                            let place = moved.and_then(Result::ok).unwrap_or(place);
                            prop_assert!(held.insert(place, (seed, len)).is_none(), "an object is given once");
                        }
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
            slabs.trim();
            prop_assert_eq!(slabs.frames(), 0);
        }
    }
}
