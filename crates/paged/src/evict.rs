//! Takes blocks away: those with a kept copy are dropped, others packed, and what does not pack is written to the
//! backing file.

use std::{sync::atomic::Ordering, time::Instant};

use narrows_memory::run::Counter;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    blocks::{BLOCK, Copy, State},
    pager::{Kit, Pager},
    serve::check,
    stage::Slot,
    sys::{self, PAGE, Protect},
};

impl Pager {
    /// Takes one block away. Says whether one could go.
    pub(crate) fn evict(&self, kit: &mut Kit) -> bool {
        let begun = Instant::now();
        let mut table = self.table.lock();
        let table_ = &mut *table;
        let max = self.gauge.max() as usize;
        let Some(block) = table_.queues.victim(&mut table_.blocks, max) else {
            return false;
        };
        let entry = &mut table_.blocks[block as usize];
        entry.state = State::Busy;
        let (copy, holes) = (entry.copy, std::mem::take(&mut entry.holes));
        drop(table);
        let is_gone = match copy {
            Copy::None => self.pack(block, holes, kit),
            // Nobody wrote to it since: writes are told under the lock, and it is busy.
            _ => self.discard_clean(block),
        };
        self.note_resident();
        self.counters
            .add(Counter::EvictNs, begun.elapsed().as_nanos() as u64);
        is_gone
    }

    fn discard_clean(&self, block: u32) -> bool {
        if sys::advise(self.address(block), BLOCK, libc::MADV_DONTNEED).is_err() {
            sys::fatal("the kernel does not drop memory; is it locked?");
        }
        self.gauge.add(-1);
        self.counters.add(Counter::Dropped, 1);
        let mut table = self.table.lock();
        let entry = &mut table.blocks[block as usize];
        entry.state = State::Away;
        if std::mem::take(&mut entry.wanted) {
            check(self.uffd.wake(self.address(block), BLOCK), "wake");
        }
        true
    }

    fn pack(&self, block: u32, holes: bool, kit: &mut Kit) -> bool {
        let from = self.address(block);
        let Some(mut slot) = self.stage.empty() else {
            self.settle(block, Copy::None);
            return false;
        };
        if self.uffd.move_out(slot.address(), from, BLOCK).is_err() {
            // Pages that a device reads or writes just now stay where they are.
            self.move_back(&slot, block);
            self.stage.give_empty(slot);
            self.settle(block, Copy::None);
            return false;
        }
        self.gauge.add(-1);
        if holes {
            check(self.uffd.zero(slot.address(), BLOCK), "zero");
        }
        let sum = xxh3_64(slot.bytes());
        let copy = self.keep(block, &mut slot, kit);
        let mut table = self.table.lock();
        let entry = &mut table.blocks[block as usize];
        entry.check = sum;
        if !entry.wanted {
            (entry.state, entry.copy) = (State::Away, copy);
            drop(table);
            self.stage.give_full(slot);
            return true;
        }
        drop(table);
        self.gauge.add(1);
        check(self.uffd.copy(from, slot.bytes(), Protect::Yes), "copy");
        self.settle(block, copy);
        self.stage.give_full(slot);
        false
    }

    /// Packs what lies in a slot, or writes it to the backing file.
    fn keep(&self, block: u32, slot: &mut Slot, kit: &mut Kit) -> Copy {
        let at = u64::from(block) * BLOCK as u64;
        if !self.gauge.is_short() {
            match self
                .store
                .write_packed(at, slot.bytes(), WORTH, &mut kit.run)
            {
                Ok(true) => {
                    self.counters.add(Counter::Packed, 1);
                    return Copy::Stored;
                }
                Ok(false) => {}
                Err(fault) => sys::fatal(&format!("a block cannot be kept: {fault}")),
            }
        }
        self.counters.add(Counter::Written, 1);
        if let Err(fault) = self.file.write(slot.bytes(), at) {
            sys::fatal(&format!(
                "memory is full of numbers that do not pack, and the backing file takes no more: {fault}"
            ));
        }
        Copy::Filed
    }

    /// Puts pages back that were moved before one could not be.
    fn move_back(&self, slot: &Slot, block: u32) {
        let to = self.address(block);
        for at in (0..BLOCK).step_by(PAGE) {
            match self.uffd.move_in(to + at, slot.address() + at, PAGE) {
                Err(fault) if fault.raw_os_error() == Some(libc::EEXIST) => {}
                other => check(other, "move back"),
            }
        }
    }

    /// Counts what is packed, where it is the most so far.
    fn note_store(&self) {
        let stat = self.store.stat().mm_stat;
        if self.counters.raise(Counter::StoredRaw, stat.orig_data_size) {
            self.counters.set(Counter::Stored, stat.mem_used_total);
        }
    }

    /// What a worker does for as long as the program runs.
    pub(crate) fn work(&self) {
        let mut kit = Kit::default();
        let mut evictions = 0_u32;
        loop {
            let is_low = self.gauge.left() < self.gauge.watermark();
            if is_low || self.evicting.load(Ordering::Relaxed) {
                evictions = evictions.wrapping_add(1);
                if evictions.is_multiple_of(COUNT_EVERY) {
                    self.note_store();
                }
                if !self.evict(&mut kit) || self.gauge.left() >= 2 * self.gauge.watermark() {
                    self.evicting.store(false, Ordering::Relaxed);
                }
            }
            let mut table = self.table.lock();
            let ahead = table.ahead.pop();
            if ahead.is_none() && !self.evicting.load(Ordering::Relaxed) {
                let _ = self.work.wait_for(&mut table, REST);
                continue;
            }
            drop(table);
            if let Some(ahead) = ahead {
                self.read_ahead(ahead, &mut kit);
            }
        }
    }
}

/// Evictions of a worker between two looks at the store's counters.
const COUNT_EVERY: u32 = 64;
/// Longest packed block that is kept in memory.
const WORTH: usize = BLOCK / 8 * 7;
/// A worker looks at the limit at least so often: the program's small memory grows without a word.
const REST: std::time::Duration = std::time::Duration::from_millis(20);
