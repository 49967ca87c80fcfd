//! What is known of each block, and which one is to go next.
//!
//! The kernel tells no accesses, only faults, so the order is by when blocks came. New blocks pass a short queue and
//! go at its end, as data that are streamed through do; those that were there before stay, and one of them, whichever,
//! gives way every eighth eviction. So a program that goes over twice the memory again and again finds a good third of it
//! there; first in, first out would find nothing. A block that comes back soon after it went joins those that stay.

use std::collections::VecDeque;

/// Bytes of a block.
pub(crate) const BLOCK: usize = 64 << 10;
/// Pages of a block.
pub(crate) const PAGES: usize = BLOCK / crate::sys::PAGE;

/// Where a block's bytes are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// Not the program's.
    #[default]
    Unused,
    /// Zeroes, and nowhere.
    Empty,
    /// Mapped. Pages that are absent all the same are zero.
    Resident,
    /// In its copy only.
    Away,
    /// A thread is bringing it or taking it away.
    Busy,
}

/// What is kept of a block besides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Copy {
    #[default]
    None,
    /// Packed in memory.
    Stored,
    /// In the backing file, at its place in the arena.
    Filed,
}

/// One block.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Block {
    pub(crate) state: State,
    pub(crate) copy: Copy,
    /// Some of its pages may be absent, and are zero.
    pub(crate) holes: bool,
    /// A thread waits for it while it is busy.
    pub(crate) wanted: bool,
    /// Its pages that the program has, a bit each.
    pub(crate) live: u16,
    /// Changes whenever it comes or is given back: entries of queues that say otherwise are stale.
    pub(crate) generation: u32,
    /// Number of the eviction that took it.
    pub(crate) evicted: u32,
    /// Of its bytes, while there is a copy.
    pub(crate) check: u64,
}

/// A block as it was queued.
#[derive(Debug, Clone, Copy)]
struct Entry {
    block: u32,
    generation: u32,
}

/// Blocks in the order in which they may go.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// Those that came last.
    recent: VecDeque<Entry>,
    /// Those that stay.
    settled: VecDeque<Entry>,
    /// Blocks evicted so far.
    pub(crate) evictions: u32,
    random: u64,
}

impl Queues {
    /// A block has come. `room` says whether memory is left; `max` is how many blocks there may be.
    pub(crate) fn push(&mut self, at: u32, block: &mut Block, room: bool, max: usize) {
        block.generation = block.generation.wrapping_add(1);
        let entry = Entry {
            block: at,
            generation: block.generation,
        };
        let away = self.evictions.wrapping_sub(block.evicted);
        if block.evicted != 0 && (away as usize) < self.settled.len() / SOON {
            self.settled.push_back(entry);
            return;
        }
        self.recent.push_back(entry);
        while room && self.recent.len() > max / RECENT {
            let oldest = self.recent.pop_front();
            self.settled.extend(oldest);
        }
    }

    /// The block that is to go.
    pub(crate) fn victim(&mut self, blocks: &mut [Block], max: usize) -> Option<u32> {
        self.evictions = self.evictions.wrapping_add(1).max(1);
        let full = self.recent.len() >= (max / RECENT).max(1);
        let mut entry = None;
        if !full || self.evictions.is_multiple_of(TURN) {
            entry = self.settled(blocks);
            if full && entry.is_some() {
                let oldest = self.recent.pop_front();
                self.settled.extend(oldest);
            }
        }
        let entry = entry
            .or_else(|| next(&mut self.recent, blocks))
            .or_else(|| self.settled(blocks))?;
        blocks[entry.block as usize].evicted = self.evictions;
        Some(entry.block)
    }

    /// Takes any of those that stay: the oldest is the one that the next scan asks for first.
    fn settled(&mut self, blocks: &[Block]) -> Option<Entry> {
        loop {
            self.random = self.random.wrapping_mul(RANDOM).wrapping_add(1);
            let at = (self.random >> 32) as usize % self.settled.len().max(1);
            let entry = self.settled.swap_remove_back(at)?;
            if entry.holds(blocks) {
                return Some(entry);
            }
        }
    }
}

impl Entry {
    fn holds(self, blocks: &[Block]) -> bool {
        let block = &blocks[self.block as usize];
        block.generation == self.generation && block.state == State::Resident
    }
}

/// Takes the first entry that still holds.
fn next(queue: &mut VecDeque<Entry>, blocks: &[Block]) -> Option<Entry> {
    loop {
        let entry = queue.pop_front()?;
        if entry.holds(blocks) {
            return Some(entry);
        }
    }
}

/// Knuth's multiplier, The Art of Computer Programming 2, 3.3.4.
const RANDOM: u64 = 6_364_136_223_846_793_005;
/// Of all blocks, this part is recent.
const RECENT: usize = 8;
/// Every so many evictions one of those that stay goes.
const TURN: u32 = 8;
/// What comes back within this part of as many evictions as blocks stay is wanted often.
const SOON: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: going over twice the memory again and again finds part of it there. Method: scans of 1000 blocks, of which
    // 500 may be there.
    #[test]
    fn what_stays_is_found_by_the_next_scan() {
        let (max, mut there) = (500, 0);
        let mut blocks = vec![Block::default(); 1000];
        let mut queues = Queues::default();
        let mut found = 0;
        for scan in 0..8 {
            for at in 0..1000_u32 {
                if blocks[at as usize].state == State::Resident {
                    found += u32::from(scan > 1);
                    continue;
                }
                if there == max {
                    let victim = queues.victim(&mut blocks, max).unwrap();
                    blocks[victim as usize].state = State::Away;
                    there -= 1;
                }
                there += 1;
                blocks[at as usize].state = State::Resident;
                queues.push(at, &mut blocks[at as usize], there < max, max);
            }
        }
        assert!(found > 6 * 300, "{found} of 6000");
    }
}
