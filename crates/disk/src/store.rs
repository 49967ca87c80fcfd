//! The store while it is open: what requests, garbage collection and checkpoints share.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Instant,
};

use narrows_core::Registry;
use narrows_io::background::Bell;
use parking_lot::Mutex;

use crate::{
    error::DiskError,
    format::{
        BLOCK, GRANULE, UNIT_BLOCKS,
        batch::Kind,
        entry::Entry,
        superblock::Superblock,
        unit::{HEADER, Tag},
    },
    log::{Appended, Expect, Item, Log, Right},
    maintenance::Due,
    pack::{Effort, is_zero},
    read::{ReadScratch, Reader},
    settings::{Profile, Settings},
    stat::Warned,
};

/// Everything of an open store.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) log: Log,
    pub(crate) registry: Registry,
    pub(crate) settings: Settings,
    pub(crate) profile: Profile,
    /// The superblock as last written. Who holds it is the one that collects garbage or makes a
    /// checkpoint.
    pub(crate) maintenance: Mutex<Superblock>,
    pub(crate) counters: Counters,
    #[expect(
        clippy::vec_box,
        reason = "a scratch memory is moved in and out under the lock"
    )]
    pool: Mutex<Vec<Box<Scratch>>>,
    /// Writes in progress.
    depth: AtomicU32,
    /// Wakes the background thread.
    pub(crate) bell: Bell,
    pub(crate) started: Instant,
    pub(crate) warned: Warned,
    /// Bytes logged when collecting in the background came to nothing.
    pub(crate) fruitless_at: AtomicU64,
}

/// What has been done since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) bytes_trimmed: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) segments_collected: AtomicU64,
    pub(crate) bytes_moved: AtomicU64,
    pub(crate) no_space: AtomicU64,
    /// Milliseconds after the start of the last request.
    pub(crate) last_request_ms: AtomicU64,
}

/// Memory of one request.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) read: ReadScratch,
    /// Units packed and not yet appended, one after the other.
    pub(crate) units: Vec<u8>,
    pub(crate) raw: Vec<u8>,
    parts: Vec<Part>,
}

/// A part of a write: a unit in [`Scratch::units`], or zero blocks.
#[derive(Debug, Clone, Copy)]
struct Part {
    first: u64,
    count: u32,
    /// Begin and end of the unit; the same for zeroes.
    unit: (usize, usize),
}

impl Store {
    pub(crate) fn new(log: Log, superblock: Superblock, settings: Settings) -> Self {
        Self {
            log,
            registry: crate::pack::registry(),
            profile: settings.profile.unwrap_or(superblock.profile),
            settings,
            maintenance: Mutex::new(superblock),
            counters: Counters::default(),
            pool: Mutex::default(),
            depth: AtomicU32::new(0),
            bell: Bell::default(),
            started: Instant::now(),
            warned: Warned::default(),
            fruitless_at: AtomicU64::new(u64::MAX),
        }
    }

    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader {
            log: &self.log,
            registry: &self.registry,
        }
    }

    /// Runs `work` with scratch memory of a pool.
    pub(crate) fn with_scratch<T>(&self, work: impl FnOnce(&mut Scratch) -> T) -> T {
        let mut scratch = self.pool.lock().pop().unwrap_or_default();
        let result = work(&mut scratch);
        let mut pool = self.pool.lock();
        if pool.len() < SCRATCH_MAX {
            pool.push(scratch);
        }
        result
    }

    /// Notes a request, so that idle time is known.
    pub(crate) fn note_request(&self) {
        let now = self.started.elapsed().as_millis() as u64;
        self.counters.last_request_ms.store(now, Ordering::Relaxed);
    }

    /// Reads any range.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), DiskError> {
        self.with_scratch(|scratch| self.read_range(offset, out, scratch))
    }

    fn read_range(
        &self,
        mut offset: u64,
        mut out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<(), DiskError> {
        let reader = self.reader();
        while !out.is_empty() {
            let skip = offset as usize % BLOCK;
            let block = offset / BLOCK as u64;
            let n = if skip != 0 || out.len() < BLOCK {
                let n = out.len().min(BLOCK - skip);
                let mut edge = [0; BLOCK];
                reader.blocks(block, &mut edge, &mut scratch.read)?;
                out[..n].copy_from_slice(&edge[skip..skip + n]);
                n
            } else {
                let n = (out.len() / BLOCK * BLOCK).min(PIECE);
                reader.blocks(block, &mut out[..n], &mut scratch.read)?;
                n
            };
            out = &mut out[n..];
            offset += n as u64;
        }
        Ok(())
    }

    /// Writes any range; the batch that holds the last of it.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<u64, DiskError> {
        let depth = self.depth.fetch_add(1, Ordering::Relaxed) + 1;
        let effort = self.effort(depth);
        let result = self.with_scratch(|scratch| self.write_range(offset, data, effort, scratch));
        self.depth.fetch_sub(1, Ordering::Relaxed);
        result
    }

    fn effort(&self, depth: u32) -> Effort {
        match self.profile {
            Profile::Fast => Effort::Quick,
            Profile::Balanced if depth >= self.settings.tuning.deep => Effort::Quick,
            Profile::Balanced | Profile::Dense => Effort::Normal,
        }
    }

    fn write_range(
        &self,
        mut offset: u64,
        mut data: &[u8],
        effort: Effort,
        scratch: &mut Scratch,
    ) -> Result<u64, DiskError> {
        let mut seq = 0;
        while !data.is_empty() {
            let skip = offset as usize % BLOCK;
            let n = if skip != 0 || data.len() < BLOCK {
                let n = data.len().min(BLOCK - skip);
                seq = self.write_edge(offset, &data[..n], effort, scratch)?;
                n
            } else {
                // Up to the next multiple of a piece, so that units are cut at the same places
                // whatever the request.
                let n = PIECE - offset as usize % PIECE;
                let n = n.min(data.len() / BLOCK * BLOCK);
                seq = self.write_blocks(offset / BLOCK as u64, &data[..n], effort, scratch)?;
                n
            };
            data = &data[n..];
            offset += n as u64;
        }
        Ok(seq)
    }

    /// Writes whole blocks, [`PIECE`] bytes at most.
    fn write_blocks(
        &self,
        first: u64,
        data: &[u8],
        effort: Effort,
        scratch: &mut Scratch,
    ) -> Result<u64, DiskError> {
        let Scratch {
            read, units, parts, ..
        } = scratch;
        units.clear();
        parts.clear();
        let longest = self.settings.tuning.unit_blocks.clamp(1, UNIT_BLOCKS);
        let blocks = data.len() / BLOCK;
        let zero = |i: usize| is_zero(&data[i * BLOCK..(i + 1) * BLOCK]);
        let mut at = 0;
        let mut is_zero_now = zero(0);
        while at < blocks {
            let block = first + at as u64;
            let room = longest - block as usize % longest;
            let limit = if is_zero_now {
                blocks
            } else {
                blocks.min(at + room)
            };
            let mut end = at + 1;
            let mut is_zero_next = false;
            while end < blocks {
                is_zero_next = zero(end);
                if end >= limit || is_zero_next != is_zero_now {
                    break;
                }
                end += 1;
            }
            let begin = units.len();
            if !is_zero_now {
                let raw = &data[at * BLOCK..end * BLOCK];
                read.tools.pack(raw, Tag::Block(block), effort, units);
            }
            parts.push(Part {
                first: block,
                count: (end - at) as u32,
                unit: (begin, units.len()),
            });
            units.resize(units.len().next_multiple_of(GRANULE), 0);
            (at, is_zero_now) = (end, is_zero_next);
        }
        let items: Vec<Item<'_>> = parts
            .iter()
            .map(|part| item(part, units, Kind::Data))
            .collect();
        let appended = self.append(&items, Right::User)?;
        Ok(appended.seq)
    }

    /// Writes a part of one block: reads the block, and writes it back unless someone else changed
    /// it meanwhile.
    fn write_edge(
        &self,
        offset: u64,
        data: &[u8],
        effort: Effort,
        scratch: &mut Scratch,
    ) -> Result<u64, DiskError> {
        let (block, skip) = (offset / BLOCK as u64, offset as usize % BLOCK);
        loop {
            let freed = self.log.lock().segments.freed;
            let mut entries = Vec::with_capacity(1);
            self.log.map.get(block, 1, &mut entries);
            let mut whole = [0; BLOCK];
            self.reader().blocks(block, &mut whole, &mut scratch.read)?;
            whole[skip..skip + data.len()].copy_from_slice(data);
            scratch.units.clear();
            let tag = Tag::Block(block);
            let units = &mut scratch.units;
            scratch.read.tools.pack(&whole, tag, effort, units);
            let item = Item::Unit {
                kind: Kind::Data,
                first: block,
                bytes: units,
                expect: Some(Expect {
                    entries: &entries,
                    freed: Some(freed),
                }),
            };
            let appended = self.append(&[item], Right::User)?;
            if appended.blocks == 1 {
                return Ok(appended.seq);
            }
        }
    }

    /// Appends, making room and doing what is due.
    pub(crate) fn append(&self, items: &[Item<'_>], right: Right) -> Result<Appended, DiskError> {
        let due = self.admit(items)?;
        let appended = match self.log.append(items, right, || self.make_room(right)) {
            // On a store so full that nothing can be collected, a trim takes what is kept for
            // collecting: its record is short, and it is what makes room.
            Err(DiskError::NoSpace(_)) if right == Right::Trim => {
                let last = Right::Checkpoint;
                self.log.append(items, last, || self.make_room(last))?
            }
            appended => appended?,
        };
        self.do_what_is(due)?;
        Ok(appended)
    }

    /// Refuses data once live bytes reach what there may be. Says what maintenance is due.
    fn admit(&self, items: &[Item<'_>]) -> Result<Due, DiskError> {
        let more: usize = items
            .iter()
            .map(|item| match item {
                Item::Unit { bytes, .. } => bytes.len() + GRANULE,
                _ => 0,
            })
            .sum();
        let log = self.log.lock();
        self.warn_if_filling(&log);
        let (live, most) = (log.segments.live(), log.segments.live_max());
        if more == 0 || live + more as u64 <= most || self.net(items) <= 0 {
            return Ok(self.due(&log));
        }
        drop(log);
        self.counters.no_space.fetch_add(1, Ordering::Relaxed);
        Err(DiskError::NoSpace(format!(
            "{live} of {most} bytes are live; trim some or grow the backing"
        )))
    }

    /// Live bytes that items add, less those of what they overwrite. Negative if they make room.
    fn net(&self, items: &[Item<'_>]) -> i64 {
        let mut net = 0;
        let mut entries = Vec::new();
        for item in items {
            if let Item::Unit { first, bytes, .. } = item {
                entries.clear();
                self.log
                    .map
                    .get(*first, usize::from(bytes[7]), &mut entries);
                let old: i64 = entries.iter().map(|entry| i64::from(entry.share())).sum();
                net += bytes.len().next_multiple_of(GRANULE) as i64 - old;
            }
        }
        net
    }

    /// Makes blocks zero, or gives them up; the batch that holds the last of it.
    pub(crate) fn clear(&self, kind: Kind, offset: u64, len: u64) -> Result<u64, DiskError> {
        let block = BLOCK as u64;
        let first = offset.div_ceil(block);
        let end = (offset + len) / block;
        let mut seq = 0;
        // Parts of blocks at both ends are written as zeroes, so that the range reads as zeroes
        // whatever its bounds.
        let edges: &[(u64, u64)] = if first > end {
            &[(offset, len)]
        } else {
            &[
                (offset, first * block - offset),
                (end * block, offset + len - end * block),
            ]
        };
        for &(at, n) in edges.iter().filter(|(_, n)| *n > 0) {
            seq = self.write(at, &vec![0; n as usize])?;
        }
        let mut at = first;
        while at < end {
            let count = (end - at).min(RANGE_MAX);
            let item = Item::Range {
                kind,
                first: at,
                count: count as u32,
            };
            seq = self.append(&[item], Right::Trim)?.seq;
            at += count;
        }
        Ok(seq)
    }

    /// Makes everything accepted so far durable.
    pub(crate) fn flush(&self) -> Result<(), DiskError> {
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.log.commit(self.log.accepted())
    }

    /// Entries of a range, for block status.
    pub(crate) fn states(&self, first: u64, count: usize) -> Vec<Entry> {
        let mut entries = Vec::with_capacity(count);
        self.log.map.get(first, count, &mut entries);
        entries
    }
}

fn item<'a>(part: &Part, units: &'a [u8], kind: Kind) -> Item<'a> {
    let (begin, end) = part.unit;
    if begin == end {
        return Item::Range {
            kind: Kind::Zero,
            first: part.first,
            count: part.count,
        };
    }
    debug_assert!(end - begin > HEADER);
    Item::Unit {
        kind,
        first: part.first,
        bytes: &units[begin..end],
        expect: None,
    }
}

/// Longer requests are done in pieces of this many bytes.
const PIECE: usize = 256 << 10;
/// Scratch memories kept.
const SCRATCH_MAX: usize = 64;
/// Blocks that one record clears: 256 MiB, some milliseconds under the log's lock.
const RANGE_MAX: u64 = 1 << 16;
