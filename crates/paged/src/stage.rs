//! Pages on their way: where blocks lie while they are packed, and pages that wait to be filled.

use std::io;

use parking_lot::Mutex;

use crate::{
    blocks::BLOCK,
    sys::{self, Uffd},
};

/// Slots of a block each.
#[derive(Debug)]
pub(crate) struct Stage {
    base: usize,
    slots: Mutex<Slots>,
}

#[derive(Debug)]
struct Slots {
    /// Without pages.
    empty: Vec<Slot>,
    /// With pages of whatever content.
    full: Vec<Slot>,
}

/// A slot that is nobody else's.
#[derive(Debug)]
pub(crate) struct Slot(usize);

impl Slot {
    pub(crate) fn address(&self) -> usize {
        self.0
    }

    /// Its bytes. Pages must be there, or this thread waits for a zeroed one.
    pub(crate) fn bytes(&mut self) -> &mut [u8; BLOCK] {
        // SAFETY: the slot is of that length, mapped for ever, and this value is the only one that names it.
        unsafe { &mut *(self.0 as *mut [u8; BLOCK]) }
    }
}

impl Stage {
    pub(crate) fn new(uffd: &Uffd) -> io::Result<Self> {
        let base = sys::reserve(SLOTS * BLOCK)?;
        uffd.register(base, SLOTS * BLOCK, false)?;
        let slots = Slots {
            empty: (0..SLOTS).map(|slot| Slot(base + slot * BLOCK)).collect(),
            full: Vec::with_capacity(SLOTS),
        };
        Ok(Self {
            base,
            slots: Mutex::new(slots),
        })
    }

    pub(crate) fn holds(&self, address: usize) -> bool {
        address.wrapping_sub(self.base) < SLOTS * BLOCK
    }

    /// A slot without pages.
    pub(crate) fn empty(&self) -> Option<Slot> {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.empty.pop() {
            return Some(slot);
        }
        let slot = slots.full.pop()?;
        drop(slots);
        drop_pages(&slot);
        Some(slot)
    }

    /// A slot with pages.
    pub(crate) fn full(&self) -> Option<Slot> {
        self.slots.lock().full.pop()
    }

    /// Gives back a slot whose pages were moved away.
    pub(crate) fn give_empty(&self, slot: Slot) {
        self.slots.lock().empty.push(slot);
    }

    /// Gives back a slot with pages, which are kept while they are few.
    pub(crate) fn give_full(&self, slot: Slot) {
        let mut slots = self.slots.lock();
        if slots.full.len() < KEPT {
            slots.full.push(slot);
            return;
        }
        drop(slots);
        drop_pages(&slot);
        self.give_empty(slot);
    }
}

fn drop_pages(slot: &Slot) {
    if sys::advise(slot.0, BLOCK, libc::MADV_DONTNEED).is_err() {
        sys::fatal("the kernel does not drop memory; is it locked?");
    }
}

const SLOTS: usize = 256;
/// Slots with pages that are kept: new pages cost the kernel four times as long as moving these.
const KEPT: usize = 32;
