//! Brings blocks: for faults, and ahead of them.

use std::{sync::atomic::Ordering, time::Instant};

use narrows_core::BlockDevice;
use narrows_memory::run::Counter;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    blocks::{BLOCK, Copy, State},
    pager::{Kit, Pager},
    streams::Ahead,
    sys::{self, Fault, PAGE, Protect},
};

/// A block that this thread made busy, as it was before.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    block: u32,
    copy: Copy,
    check: u64,
}

impl Pager {
    /// Serves a fault.
    pub(crate) fn serve(&self, fault: Fault, kit: &mut Kit) {
        let begun = Instant::now();
        let page = fault.address & !(PAGE - 1);
        if self.stage.holds(page) {
            // A slot whose block had holes.
            check(self.uffd.zero(page, PAGE), "zero");
        } else if fault.is_protected {
            self.serve_write(self.block(page));
        } else {
            self.serve_absent(page, fault.is_write, kit);
        }
        self.counters
            .add(Counter::FaultNs, begun.elapsed().as_nanos() as u64);
    }

    /// The first write to a block whose copy was kept.
    fn serve_write(&self, block: u32) {
        let mut table = self.table.lock();
        let entry = &mut table.blocks[block as usize];
        match entry.state {
            State::Resident => {
                let copy = std::mem::take(&mut entry.copy);
                if copy == Copy::Stored {
                    self.forget(block, 1);
                }
                check(self.uffd.unprotect(self.address(block), BLOCK), "unprotect");
                table.streams.note_write(block);
                self.counters.add(Counter::Dirtied, 1);
            }
            State::Busy => entry.wanted = true,
            // It went meanwhile: the thread tries again.
            _ => check(self.uffd.wake(self.address(block), BLOCK), "wake"),
        }
    }

    fn serve_absent(&self, page: usize, is_write: bool, kit: &mut Kit) {
        let block = self.block(page);
        let mut table = self.table.lock();
        let Some(entry) = table.blocks.get_mut(block as usize) else {
            sys::fatal("the program touched memory that it never had");
        };
        let wanted = Wanted {
            block,
            copy: entry.copy,
            check: entry.check,
        };
        match entry.state {
            State::Unused => sys::fatal("the program touched memory that it had given back"),
            State::Busy => {
                entry.wanted = true;
                return;
            }
            // Under the lock, so that the block does not go between the look and the zeroes.
            State::Resident => return check(self.uffd.zero(page, PAGE), "zero"),
            State::Empty | State::Away => entry.state = State::Busy,
        }
        let mut ahead = table.streams.note(block);
        ahead.written |= is_write;
        if ahead.count > 0 {
            if table.ahead.len() >= AHEAD_MAX {
                // The oldest: its stream has gone on.
                table.ahead.remove(0);
            }
            table.ahead.push(ahead);
            self.work.notify_all();
        }
        drop(table);
        self.counters.add(Counter::Faults, 1);
        self.make_room(kit);
        self.bring(wanted, is_write, kit);
    }

    /// Counts a block in, and evicts where that is one too many. Where nothing can go, it goes on: a fault that is
    /// never served would stop the program.
    fn make_room(&self, kit: &mut Kit) {
        self.gauge.add(1);
        self.note_resident();
        if self.gauge.left() < self.gauge.watermark() {
            self.start_evicting();
        }
        let mut tries = 0;
        while self.gauge.left() < 0 && tries < TRIES {
            tries += 1;
            if !self.evict(kit) {
                std::thread::yield_now();
            }
        }
    }

    /// Has the workers evict.
    fn start_evicting(&self) {
        if !self.evicting.swap(true, Ordering::Relaxed) {
            self.work.notify_all();
        }
    }

    pub(crate) fn note_resident(&self) {
        if let Some(peak) = self.gauge.tick() {
            self.counters.raise(Counter::Peak, peak);
        }
    }

    /// Brings blocks of a stream, if there is room.
    pub(crate) fn read_ahead(&self, ahead: Ahead, kit: &mut Kit) {
        for block in ahead.blocks() {
            if self.gauge.left() < self.gauge.watermark() {
                self.start_evicting();
            }
            if self.gauge.left() <= 0 {
                return;
            }
            let mut table = self.table.lock();
            let Some(entry) = table.blocks.get_mut(block as usize) else {
                return;
            };
            let wanted = Wanted {
                block,
                copy: entry.copy,
                check: entry.check,
            };
            match entry.state {
                State::Away => {}
                State::Empty if ahead.written => {}
                State::Unused => return,
                _ => continue,
            }
            entry.state = State::Busy;
            drop(table);
            self.gauge.add(1);
            self.note_resident();
            self.counters.add(Counter::ReadAhead, 1);
            self.bring(wanted, ahead.written, kit);
        }
    }

    /// Maps a block that this thread made busy and counted in.
    fn bring(&self, wanted: Wanted, is_write: bool, kit: &mut Kit) {
        let Wanted { block, copy, .. } = wanted;
        let to = self.address(block);
        if copy == Copy::None && !is_write {
            check(self.uffd.zero(to, BLOCK), "zero");
            return self.settle(block, Copy::None);
        }
        if !is_write {
            self.load(wanted, &mut kit.buffer.0);
            check(self.uffd.copy(to, &kit.buffer.0, Protect::Yes), "copy");
            return self.settle(block, copy);
        }
        match self.stage.full() {
            Some(mut slot) => {
                self.load(wanted, slot.bytes());
                match self.uffd.move_in(to, slot.address(), BLOCK) {
                    Ok(()) => self.stage.give_empty(slot),
                    // The program made it read-only.
                    Err(_) => {
                        check(self.uffd.copy(to, slot.bytes(), Protect::No), "copy");
                        self.stage.give_full(slot);
                    }
                }
            }
            None => {
                self.load(wanted, &mut kit.buffer.0);
                check(self.uffd.copy(to, &kit.buffer.0, Protect::No), "copy");
            }
        }
        if copy == Copy::Stored {
            self.forget(block, 1);
        }
        self.settle(block, Copy::None);
    }

    /// Fills `out` with what a block holds, and verifies it.
    fn load(&self, wanted: Wanted, out: &mut [u8; BLOCK]) {
        let at = u64::from(wanted.block) * BLOCK as u64;
        match wanted.copy {
            Copy::None => return out.fill(0),
            Copy::Stored => {
                self.counters.add(Counter::Unpacked, 1);
                if let Err(fault) = self.store.read(at, out) {
                    sys::fatal(&format!("a packed block cannot be read: {fault}"));
                }
            }
            Copy::Filed => {
                self.counters.add(Counter::Read, 1);
                if let Err(fault) = self.file.read(out, at) {
                    sys::fatal(&format!("the backing file cannot be read: {fault}"));
                }
            }
        }
        if xxh3_64(out) != wanted.check {
            sys::fatal("a block came back with other bytes than it had");
        }
    }

    /// A block is mapped.
    pub(crate) fn settle(&self, block: u32, copy: Copy) {
        let mut table = self.table.lock();
        let (room, max) = (
            self.gauge.left() > 2 * self.gauge.watermark(),
            self.gauge.max(),
        );
        let table = &mut *table;
        let entry = &mut table.blocks[block as usize];
        entry.state = State::Resident;
        entry.copy = copy;
        table.queues.push(block, entry, room, max as usize);
        if std::mem::take(&mut entry.wanted) {
            check(self.uffd.wake(self.address(block), BLOCK), "wake");
        }
    }
}

/// The kernel does what is asked, or the program's memory is not what it was.
pub(crate) fn check(result: std::io::Result<()>, what: &str) {
    if let Err(fault) = result {
        sys::fatal(&format!("userfaultfd, {what}: {fault}"));
    }
}

/// So many runs of blocks wait to be brought at most.
const AHEAD_MAX: usize = 32;
/// So often a fault evicts before it goes on over the limit.
const TRIES: u32 = 64;
