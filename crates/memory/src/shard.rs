//! A share of the pages: their slots and objects, behind one lock.
//!
//! Invariants: a slot's object is freed only after what replaces it is stored, so a full store loses nothing; the four
//! slots of a group are all of kind `Cluster` or none is. Upstream: [`crate::store`],
//! [`crate::recompressor`].

use std::{io, ops::Range, sync::Arc};

use narrows_chains::{PAGE, chain, lzt::dictionary::Dictionary};
use narrows_io::region::FRAME;

use crate::{
    backing::Backing,
    budget::Budget,
    cluster,
    dictionary_cache::{DictionaryCache, Number},
    page::{Fetched, Image, LoadError, Page},
    slab::{Full, Slabs},
    slot::{Kind, Slot},
    stat::Tally,
    tools::Tools,
};

/// Frames that must come free to make moving objects worth the scan of all slots while a writer waits.
const COMPACT_FRAMES_MIN: u64 = 64;
/// Slots in a frame of the table.
const SLOTS_PER_FRAME: usize = FRAME / size_of::<u64>();

/// Why a page cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// Neither memory nor backing file has room.
    #[error("full")]
    Full,
    /// What stood there must be read first, and cannot.
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl From<Full> for StoreError {
    fn from(Full: Full) -> Self {
        Self::Full
    }
}

/// The share.
#[derive(Debug)]
pub(crate) struct Shard {
    /// [`Slot`]s, as plain numbers so that the allocator may hand out a table of zeroes that costs nothing yet.
    slots: Vec<u64>,
    /// A bit for each frame of the table that was written.
    touched: Vec<u64>,
    slabs: Slabs,
    budget: Arc<Budget>,
    backing: Option<Arc<Backing>>,
    lexicon: Arc<DictionaryCache>,
    pub(crate) tally: Tally,
}

/// A smaller form of a packed page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Smaller<'a> {
    /// `Packed` or `Primed`.
    pub(crate) kind: Kind,
    pub(crate) bytes: &'a [u8],
}

impl Shard {
    /// The whole table is taken from the budget, though it costs memory as it is written only: a page that fits must
    /// not be refused for its slot.
    pub(crate) fn new(
        pages: usize,
        budget: Arc<Budget>,
        backing: Option<Arc<Backing>>,
        lexicon: Arc<DictionaryCache>,
    ) -> io::Result<Self> {
        // Asked for on trial first: a zeroed table that cannot be had would end the process.
        let mut trial = Vec::<u64>::new();
        trial
            .try_reserve_exact(pages)
            .map_err(|_| io::ErrorKind::OutOfMemory)?;
        drop(std::hint::black_box(trial));
        let slabs = Slabs::new(pages, budget.clone())?;
        if !budget.take(pages.div_ceil(SLOTS_PER_FRAME) as u64) {
            return Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                "the memory limit is below 0.2 % of the size, which slots take",
            ));
        }
        Ok(Self {
            slots: vec![0; pages],
            touched: vec![0; pages.div_ceil(SLOTS_PER_FRAME).div_ceil(64)],
            slabs,
            budget,
            backing,
            lexicon,
            tally: Tally::default(),
        })
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Frames that hold objects.
    pub(crate) fn object_frames(&self) -> u64 {
        self.slabs.frames()
    }

    pub(crate) fn slot(&self, at: usize) -> Slot {
        Slot(self.slots[at])
    }

    /// Copies what is stored of the page at `at` and marks it as in use.
    pub(crate) fn fetch<'a>(
        &mut self,
        at: usize,
        copied: &'a mut Vec<u8>,
        page: &mut Page,
    ) -> Result<Fetched<'a>, LoadError> {
        let slot = self.slot(at);
        if slot.is_idle() {
            self.slots[at] = slot.with_idle(false).0;
        }
        self.look_up(at, copied, page)
    }

    /// Fills `page` and marks it as in use.
    pub(crate) fn load(
        &mut self,
        at: usize,
        tools: &mut Tools,
        page: &mut Page,
    ) -> Result<(), LoadError> {
        tools.load(page, |copied, page| self.fetch(at, copied, page))
    }

    /// Fills `page`.
    pub(crate) fn peek(
        &self,
        at: usize,
        tools: &mut Tools,
        page: &mut Page,
    ) -> Result<(), LoadError> {
        tools.load(page, |copied, page| self.look_up(at, copied, page))
    }

    fn look_up<'a>(
        &self,
        at: usize,
        copied: &'a mut Vec<u8>,
        page: &mut Page,
    ) -> Result<Fetched<'a>, LoadError> {
        let slot = self.slot(at);
        match slot.kind() {
            Kind::Hole | Kind::Zero => page.fill(0),
            Kind::Same => {
                let word: [u8; 8] = *self
                    .slabs
                    .get(slot.place(), 8)
                    .first_chunk()
                    .expect("asked for eight");
                page.as_chunks_mut::<8>().0.fill(word);
            }
            Kind::Packed => {
                copied.clear();
                copied.extend_from_slice(self.slabs.get(slot.place(), slot.len()));
                return Ok(Fetched::Packed(copied));
            }
            Kind::Primed => {
                copied.clear();
                copied.extend_from_slice(self.slabs.get(slot.place(), slot.len()));
                let (&number, bytes) = copied.split_first().expect("no object is empty");
                return Ok(Fetched::Primed {
                    bytes,
                    dictionary: self.lexicon.get(number),
                });
            }
            Kind::Raw => page.copy_from_slice(self.slabs.get(slot.place(), PAGE)),
            Kind::Cluster => {
                let (bytes, dictionary) = self.gather(at, copied);
                return Ok(Fetched::Cluster {
                    bytes,
                    dictionary,
                    member: at % cluster::PAGES,
                });
            }
            Kind::Backed => {
                let backing = self
                    .backing
                    .as_ref()
                    .expect("a page is backed only where there is a file");
                backing.get(slot.place(), page)?;
            }
        }
        Ok(Fetched::Whole)
    }

    /// The pieces of the cluster that `at` belongs to put together, and the dictionary that they need.
    fn gather<'a>(
        &self,
        at: usize,
        copied: &'a mut Vec<u8>,
    ) -> (&'a [u8], Option<Arc<Dictionary>>) {
        let first = at - at % cluster::PAGES;
        copied.clear();
        for slot in &self.slots[first..first + cluster::PAGES] {
            let slot = Slot(*slot);
            copied.extend_from_slice(self.slabs.get(slot.place(), slot.len()));
        }
        let dictionary = self.lexicon.get(cluster::number(copied));
        (copied, dictionary)
    }

    /// Puts `page`, whose `image` this is, in a slot whose page is in no cluster: in memory, if need be after moving
    /// objects together, else in the backing file. On an error the page that was there is still there.
    pub(crate) fn store(
        &mut self,
        at: usize,
        page: &Page,
        image: Image<'_>,
    ) -> Result<(), StoreError> {
        debug_assert_ne!(
            self.slot(at).kind(),
            Kind::Cluster,
            "the caller dissolved it"
        );
        let (kind, bytes): (_, &[u8]) = match &image {
            Image::Zero => {
                self.set(at, Slot::ZERO);
                return Ok(());
            }
            Image::Same(word) => (Kind::Same, word),
            Image::Packed(packed) => (Kind::Packed, packed),
            Image::Raw(page) => (Kind::Raw, *page),
        };
        if kind == Kind::Raw {
            self.tally.huge_pages_since += 1;
        }
        if self.put_object(at, kind, bytes, false).is_ok() {
            return Ok(());
        }
        if self.slabs.reclaimable() >= COMPACT_FRAMES_MIN {
            self.compact();
        }
        if self.put_object(at, kind, bytes, true).is_ok() {
            return Ok(());
        }
        let frame = self
            .backing
            .as_ref()
            .and_then(|backing| backing.put(page))
            .ok_or(StoreError::Full)?;
        self.set(at, Slot::new(Kind::Backed, PAGE, frame));
        Ok(())
    }

    fn put_object(
        &mut self,
        at: usize,
        kind: Kind,
        bytes: &[u8],
        loosely: bool,
    ) -> Result<(), Full> {
        let old = self.slot(at);
        let number = self.number(at, old);
        if old.kind().has_object() && self.slabs.replace(old.place(), bytes, loosely) {
            self.lexicon.release(number);
            let new = Slot::new(kind, bytes.len(), old.place());
            self.tally.change(old, new);
            self.slots[at] = new.0;
            return Ok(());
        }
        let place = self.slabs.put(bytes)?;
        self.set(at, Slot::new(kind, bytes.len(), place));
        Ok(())
    }

    /// Sets a slot and frees what the old one held.
    fn set(&mut self, at: usize, new: Slot) {
        let old = self.slot(at);
        self.touch(at);
        self.tally.change(old, new);
        self.slots[at] = new.0;
        self.lexicon.release(self.number(at, old));
        self.forget(old);
    }

    /// The number of the dictionary that the object of slot `at` needs, 0 if none; of a cluster's the first counts.
    fn number(&self, at: usize, slot: Slot) -> Number {
        match slot.kind() {
            Kind::Primed => self.slabs.get(slot.place(), 1)[0],
            Kind::Cluster if at.is_multiple_of(cluster::PAGES) => {
                self.slabs.get(slot.place(), 1)[0]
            }
            _ => 0,
        }
    }

    /// Frees what a slot held that is in no table any more.
    fn forget(&mut self, slot: Slot) {
        match slot.kind() {
            kind if kind.has_object() => self.slabs.free(slot.place()),
            Kind::Backed => self
                .backing
                .as_ref()
                .expect("a file holds it")
                .free(slot.place()),
            _ => {}
        }
    }

    /// Counts the frame of the table that holds slot `at`.
    fn touch(&mut self, at: usize) {
        let frame = at / SLOTS_PER_FRAME;
        let (word, bit) = (frame / 64, 1_u64 << (frame % 64));
        if self.touched[word] & bit == 0 {
            self.touched[word] |= bit;
            self.tally.table_frames += 1;
        }
    }

    /// Forgets the content of `count` slots from `at` on. A cluster that lies in the range in part is dissolved first.
    pub(crate) fn clear(
        &mut self,
        at: usize,
        count: usize,
        to: Slot,
        tools: &mut Tools,
    ) -> Result<(), StoreError> {
        for slot in at..at + count {
            if self.slot(slot).kind() == Kind::Cluster {
                let first = slot - slot % cluster::PAGES;
                if first < at || first + cluster::PAGES > at + count {
                    self.dissolve(slot, tools)?;
                }
            }
            if self.slot(slot) != to {
                self.set(slot, to);
            }
        }
        Ok(())
    }

    /// Stores the four pages of the cluster that `at` is in, if it is in one, each on its own again. On an error the
    /// cluster is as it was.
    pub(crate) fn dissolve(&mut self, at: usize, tools: &mut Tools) -> Result<(), StoreError> {
        if self.slot(at).kind() != Kind::Cluster {
            return Ok(());
        }
        let (bytes, dictionary) = self.gather(at, &mut tools.copied);
        tools.bundler.unpack(bytes, dictionary.as_deref())?;
        let first = at - at % cluster::PAGES;
        let mut fresh: Vec<Slot> = Vec::with_capacity(cluster::PAGES);
        for page in 0..cluster::PAGES {
            let image = Image::of(
                tools.bundler.page(page),
                &mut tools.packer,
                &mut tools.packed,
            );
            let (kind, bytes): (_, &[u8]) = match &image {
                Image::Zero => {
                    fresh.push(Slot::ZERO);
                    continue;
                }
                Image::Same(word) => (Kind::Same, word),
                Image::Packed(packed) => (Kind::Packed, packed),
                Image::Raw(page) => (Kind::Raw, *page),
            };
            let backed = || {
                let frame = self.backing.as_ref()?.put(tools.bundler.page(page))?;
                Some(Slot::new(Kind::Backed, PAGE, frame))
            };
            match self
                .slabs
                .put(bytes)
                .ok()
                .map(|place| Slot::new(kind, bytes.len(), place))
                .or_else(backed)
            {
                Some(slot) => fresh.push(slot),
                None => {
                    fresh.into_iter().for_each(|slot| self.forget(slot));
                    return Err(StoreError::Full);
                }
            }
        }
        for (page, slot) in fresh.into_iter().enumerate() {
            self.set(first + page, slot);
        }
        Ok(())
    }

    /// Puts four packed pages in one cluster's place, if no slot changed since `seen`. Says whether it did.
    pub(crate) fn bundle(
        &mut self,
        first: usize,
        seen: [Slot; cluster::PAGES],
        tools: &Tools,
    ) -> Result<bool, Full> {
        if (0..cluster::PAGES).any(|page| self.slot(first + page) != seen[page]) {
            return Ok(false);
        }
        if !self.lexicon.hold(cluster::number(&tools.bundler.packed)) {
            return Ok(false);
        }
        let mut fresh: Vec<Slot> = Vec::with_capacity(cluster::PAGES);
        for piece in tools.bundler.pieces() {
            match self.slabs.put(piece) {
                Ok(place) => {
                    fresh.push(
                        Slot::new(Kind::Cluster, piece.len(), place)
                            .with_idle(true)
                            .with_deep(),
                    );
                }
                Err(full) => {
                    for slot in fresh {
                        self.slabs.free(slot.place());
                    }
                    self.lexicon.release(cluster::number(&tools.bundler.packed));
                    return Err(full);
                }
            }
        }
        for (page, slot) in fresh.into_iter().enumerate() {
            self.set(first + page, slot);
        }
        Ok(true)
    }

    /// Marks that no cluster is worth making of a group, so that nobody tries again until a page of it is written.
    pub(crate) fn keep_apart(&mut self, first: usize, seen: [Slot; cluster::PAGES]) {
        for (slot, seen) in self.slots[first..].iter_mut().zip(seen) {
            if *slot == seen.0 {
                *slot = seen.with_apart().0;
            }
        }
    }

    /// Replaces a packed page by a smaller form of it, or marks that there is none, if the slot is still `seen`.
    pub(crate) fn repack(&mut self, at: usize, seen: Slot, smaller: Option<Smaller<'_>>) {
        if self.slot(at) != seen {
            return;
        }
        if let Some(Smaller { kind, bytes }) = smaller
            && (kind != Kind::Primed || self.lexicon.hold(bytes[0]))
        {
            // Elsewhere, since a hole as long as an object can be filled, and many that are short cannot.
            match self.slabs.put(bytes) {
                Ok(place) => self.set(at, Slot::new(kind, bytes.len(), place)),
                Err(Full) => self
                    .put_object(at, kind, bytes, false)
                    .expect("what is smaller fits in its place"),
            }
        }
        self.slots[at] = self.slot(at).with_idle(true).with_deep().0;
    }

    /// Whether the object of a slot is a page of text or the like, packed alone.
    pub(crate) fn is_texty(&self, slot: Slot) -> bool {
        match slot.kind() {
            Kind::Packed => chain::has_matches(self.slabs.get(slot.place(), slot.len())),
            kind => kind == Kind::Primed,
        }
    }

    /// Moves a page to the backing file, if the slot is still `seen`. Says whether it did.
    pub(crate) fn write_back(&mut self, at: usize, seen: Slot, page: &Page) -> bool {
        let Some(backing) = self.backing.clone() else {
            return false;
        };
        if self.slot(at) != seen {
            return false;
        }
        let Some(frame) = backing.put(page) else {
            return false;
        };
        self.set(at, Slot::new(Kind::Backed, PAGE, frame));
        true
    }

    /// Marks a page as not used since. The next access takes the mark away.
    pub(crate) fn mark_idle(&mut self, at: usize) {
        let slot = self.slot(at);
        if slot.kind().has_object() {
            self.slots[at] = slot.with_idle(true).0;
        }
    }

    /// Moves objects together and gives back the frames this frees.
    fn compact(&mut self) {
        if self.begin_compaction(1) {
            self.compact_part(0..self.slots());
            self.end_compaction(0..self.slabs());
        }
    }

    /// How many slabs there are.
    pub(crate) fn slabs(&self) -> usize {
        self.slabs.len()
    }

    /// Chooses objects to be moved, if that frees `frames_min` frames or more. Says whether it does: then
    /// [`Shard::compact_part`] is to be called for all slots and [`Shard::end_compaction`] for all slabs, a part at a
    /// time as the caller likes.
    pub(crate) fn begin_compaction(&mut self, frames_min: u64) -> bool {
        let worth = self.slabs.reclaimable() >= frames_min;
        if worth {
            self.slabs.evacuate();
        }
        worth
    }

    /// Moves those objects that a range of slots holds.
    pub(crate) fn compact_part(&mut self, range: Range<usize>) {
        let before = self.slabs.frames();
        for at in range {
            let slot = self.slot(at);
            if slot.kind().has_object()
                && self.slabs.is_leaving(slot.place())
                && let Ok(place) = self.slabs.relocate(slot.place(), slot.len())
            {
                self.slots[at] = slot.moved(place).0;
            }
        }
        self.tally.pages_compacted += before.saturating_sub(self.slabs.frames());
    }

    /// Gives back what is empty in a range of slabs.
    pub(crate) fn end_compaction(&mut self, slabs: Range<usize>) {
        let before = self.slabs.frames();
        self.slabs.settle(slabs);
        self.tally.pages_compacted += before - self.slabs.frames();
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.budget
            .give(self.slots.len().div_ceil(SLOTS_PER_FRAME) as u64);
    }
}
