//! Garbage collection: what is live in a segment is appended to the log again, so that the segment
//! is dead.
//!
//! Blocks are moved in windows of 32 KiB. All data blocks of a window are packed as one unit,
//! wherever they were: so the ratio comes back that small overwrites cost. A unit that is whole
//! already is copied as it is. Every moved unit names the entries it was made from; blocks that
//! were overwritten meanwhile are left out when it is appended.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use crate::{
    error::DiskError,
    format::{
        BLOCK, GRANULE, UNIT_BLOCKS,
        batch::{self, BatchHeader, Kind, RECORD, Record},
        entry::{Entry, Place},
        unit::{HEADER, Tag, Unit},
    },
    log::{Expect, Item, LogState, Right, read_at},
    pack::Effort,
    recovery::Found,
    segments::Segment,
    store::{Scratch, Store},
};

/// How data is moved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) effort: Effort,
    /// Blocks of the same window that lie elsewhere come along.
    pub(crate) merge: bool,
    /// Whole units are packed anew, too, unless they were packed at leisure before.
    pub(crate) repack: bool,
}

/// A unit of the victim with live blocks.
#[derive(Debug, Clone, Copy)]
struct Live {
    first: u64,
    blocks: usize,
    place: Place,
    kind: Kind,
    mask: u8,
}

impl Live {
    fn is_whole(&self) -> bool {
        self.mask.count_ones() as usize == self.blocks
    }

    fn entries(&self) -> Vec<Entry> {
        (0..self.blocks)
            .map(|i| Entry::data(self.place, i, self.blocks))
            .collect()
    }
}

/// A unit ready to be appended.
#[derive(Debug)]
struct Move {
    kind: Kind,
    first: u64,
    /// In the victim's bytes if `verbatim`, else in the packed units.
    range: (usize, usize),
    verbatim: bool,
    expect: Vec<Entry>,
}

impl Store {
    /// The segment whose collection gains most for what it costs, old ones first (cost-benefit); in
    /// a hurry the emptiest.
    pub(crate) fn victim(&self, log: &LogState, hurry: bool) -> Option<u32> {
        let len = f64::from(log.segments.len());
        let now = log.at.seq;
        candidates(log)
            .max_by(|(_, a), (_, b)| {
                let score = |live: u64, last: u64| {
                    let used = live as f64 / len;
                    let age = if hurry { 1 } else { now - last + 1 };
                    (1.0 - used) * age as f64 / (1.0 + used)
                };
                score(a.live, a.last_seq).total_cmp(&score(b.live, b.last_seq))
            })
            .map(|(number, _)| number)
    }

    /// Bytes that become free if the emptiest segments are collected, as many as `spare` bytes take
    /// the live parts of.
    pub(crate) fn winnable(&self, log: &LogState, mut spare: u64) -> u64 {
        let mut lives: Vec<u64> = candidates(log).map(|(_, segment)| segment.live).collect();
        lives.sort_unstable();
        let mut won = 0;
        for live in lives {
            if live > spare {
                break;
            }
            spare -= live;
            won += u64::from(log.segments.len()) - live;
        }
        won
    }

    /// A segment that was not packed at leisure; the oldest.
    pub(crate) fn weakest(&self, log: &LogState) -> Option<u32> {
        log.segments
            .closed(log.at.segment)
            .filter(|(_, segment)| {
                segment.live > 0
                    && !segment.stuck
                    && !segment.strong
                    && segment.last_seq <= log.durable
            })
            .min_by_key(|(_, segment)| segment.last_seq)
            .map(|(number, _)| number)
    }

    /// The emptiest segment, if so much of it is dead that moving the rest is worth it while nobody
    /// waits.
    pub(crate) fn loosest(&self, log: &LogState) -> Option<u32> {
        let most = u64::from(log.segments.len()) * IDLE_USED_MOST / 100;
        candidates(log)
            .filter(|(_, segment)| segment.live <= most)
            .min_by_key(|(_, segment)| segment.live)
            .map(|(number, _)| number)
    }

    /// Moves what is live out of `victim`. The caller holds `maintenance`.
    pub(crate) fn collect(&self, victim: u32, manner: Manner) -> Result<(), DiskError> {
        let len = self.log.shape.segment_len;
        let mut bytes = Vec::new();
        let at = u64::from(victim) * u64::from(len);
        let read = read_at(&*self.log.backing, at, &mut bytes, len as usize);
        if let Err(error) = read {
            // A medium error keeps the segment as it is; what can still be read of it is read from
            // it.
            tracing::warn!(victim, %error, "a segment cannot be read; it is kept");
            self.log.lock().segments.get_mut(victim).stuck = true;
            return Ok(());
        }
        let windows = self.survey(victim, &bytes);
        if manner.repack && !worthwhile(&windows, manner.effort) {
            self.log.lock().segments.get_mut(victim).strong = true;
            return Ok(());
        }
        self.with_scratch(|scratch| {
            let mut moves = Vec::new();
            scratch.units.clear();
            for (window, lives) in &windows {
                self.move_window(*window, lives, (&bytes, manner), (scratch, &mut moves));
                if scratch.units.len() >= GROUP || moves.len() >= GROUP_MOVES {
                    self.append_moves(&mut moves, &bytes, scratch)?;
                }
            }
            self.append_moves(&mut moves, &bytes, scratch)
        })?;
        self.counters
            .segments_collected
            .fetch_add(1, Ordering::Relaxed);
        let mut log = self.log.lock();
        let left = log.segments.get(victim).live;
        if left > 0 {
            log.segments.get_mut(victim).stuck = true;
        }
        Ok(())
    }

    /// Finds the live units of a segment by its batches' tables, by window. Live map pages are
    /// marked to be written anew.
    fn survey(&self, victim: u32, bytes: &[u8]) -> BTreeMap<u64, Vec<Live>> {
        let mut windows: BTreeMap<u64, Vec<Live>> = BTreeMap::new();
        for found in batches(victim, bytes, &self.log.shape.uuid) {
            let mut granule = (found.header.offset as usize + batch::HEADER) / GRANULE;
            for record in found.records {
                let place = Place {
                    segment: victim,
                    granule: granule as u32,
                    granules: record.granules,
                };
                granule += usize::from(record.granules);
                match record.kind {
                    Kind::Data | Kind::Moved => {
                        if let Some(live) = self.live(&record, place) {
                            let window = live.first / UNIT_BLOCKS as u64;
                            windows.entry(window).or_default().push(live);
                        }
                    }
                    Kind::Page => self.soil(record.first, place),
                    Kind::Zero | Kind::Trim => {}
                }
            }
        }
        windows
    }

    /// Which blocks of a unit the map still refers to.
    fn live(&self, record: &Record, place: Place) -> Option<Live> {
        let blocks = record.count as usize;
        if record.first + blocks as u64 > self.log.map.blocks() {
            return None;
        }
        let mut entries = Vec::with_capacity(blocks);
        self.log.map.get(record.first, blocks, &mut entries);
        let mask = entries
            .iter()
            .enumerate()
            .map(|(i, entry)| u8::from(*entry == Entry::data(place, i, blocks)) << i)
            .sum();
        (mask != 0).then_some(Live {
            first: record.first,
            blocks,
            place,
            kind: record.kind,
            mask,
        })
    }

    /// Marks a page of the map that is at `place` as one to be written anew.
    fn soil(&self, tag: u64, place: Place) {
        let (Some(level), index) = (((tag >> 48) as u8).checked_sub(1), tag as u32) else {
            return;
        };
        let mut log = self.log.lock();
        let held = log
            .tree
            .get(usize::from(level))
            .and_then(|pages| pages.get(index as usize));
        if held.and_then(|entry| entry.place()) != Some(place) {
            return;
        }
        if level > 0 {
            log.dirty_above.insert((level, index));
        } else if self.log.map.soil(index) {
            log.dirty.push(index);
        }
    }

    /// Makes ready what replaces the units of one window.
    fn move_window(
        &self,
        window: u64,
        lives: &[Live],
        (bytes, manner): (&[u8], Manner),
        (scratch, moves): (&mut Scratch, &mut Vec<Move>),
    ) {
        let first = window * UNIT_BLOCKS as u64;
        let count = (self.log.map.blocks() - first).min(UNIT_BLOCKS as u64) as usize;
        let entries = self.states(first, count);
        let here = |entry: &Entry| lives.iter().any(|live| Some(live.place) == entry.place());
        let wanted = |entry: &Entry| entry.place().is_some() && (manner.merge || here(entry));
        let all = entries.iter().filter(|entry| wanted(entry)).count();
        if let [live] = lives
            && live.is_whole()
            && live.blocks == all
            && !(manner.repack && live.kind == Kind::Data)
        {
            self.copy(live, bytes, live.kind, moves);
            return;
        }
        let begin = (scratch.units.len(), moves.len());
        let shares = |only: &dyn Fn(&Entry) -> bool| -> usize {
            let shares = entries.iter().filter(|entry| only(entry));
            shares.map(|entry| entry.share() as usize).sum()
        };
        let packed = self.pack_window(first, &entries, &wanted, manner.effort, (scratch, moves));
        // What others hold of the window comes along only if that saves something.
        let pays = |len: usize| !manner.merge || len * 20 <= shares(&wanted) * 19;
        if packed.is_some_and(pays) {
            return;
        }
        scratch.units.truncate(begin.0);
        moves.truncate(begin.1);
        let own = |entry: &Entry| entry.place().is_some() && here(entry);
        let packed = self.pack_window(first, &entries, &own, manner.effort, (scratch, moves));
        let old: usize = lives.iter().map(|live| live.place.bytes()).sum();
        if packed.is_none_or(|len| len > old) {
            // Something of it cannot be read, or the old units with holes are shorter: copy what is
            // readable.
            scratch.units.truncate(begin.0);
            moves.truncate(begin.1);
            // What was to be repacked, and is as short as it gets, counts as packed at leisure.
            let kind = |live: &Live| {
                if manner.repack {
                    Kind::Moved
                } else {
                    live.kind
                }
            };
            for live in lives {
                self.copy(live, bytes, kind(live), moves);
            }
        }
    }

    /// Packs the blocks of a window that are `wanted`, each run of them as a unit; how long that
    /// is. `None` if one cannot be read.
    fn pack_window(
        &self,
        first: u64,
        entries: &[Entry],
        wanted: &dyn Fn(&Entry) -> bool,
        effort: Effort,
        (scratch, moves): (&mut Scratch, &mut Vec<Move>),
    ) -> Option<usize> {
        let mut raw = std::mem::take(&mut scratch.raw);
        raw.resize(UNIT_BLOCKS * BLOCK, 0);
        let (mut at, mut len) = (0, 0);
        let mut readable = true;
        while at < entries.len() && readable {
            let run = entries[at..]
                .iter()
                .take_while(|entry| wanted(entry))
                .count();
            if run > 0 {
                let (first, expect) = (first + at as u64, &entries[at..at + run]);
                let target = &mut raw[..run * BLOCK];
                let read = self
                    .reader()
                    .entries(first, expect, target, &mut scratch.read);
                readable = read.is_ok();
                let (from, units) = (scratch.units.len(), &mut scratch.units);
                scratch
                    .read
                    .tools
                    .pack(target, Tag::Block(first), effort, units);
                moves.push(Move {
                    kind: Kind::Moved,
                    first,
                    range: (from, units.len()),
                    verbatim: false,
                    expect: expect.to_vec(),
                });
                units.resize(units.len().next_multiple_of(GRANULE), 0);
                len += units.len() - from;
            }
            at += run.max(1);
        }
        scratch.raw = raw;
        readable.then_some(len)
    }

    /// Copies a unit as it is, unless it is damaged: then it stays where it is, and so does its
    /// segment.
    fn copy(&self, live: &Live, bytes: &[u8], kind: Kind, moves: &mut Vec<Move>) {
        let begin = live.place.offset() as usize;
        let unit = Unit::parse(
            &bytes[begin..begin + live.place.bytes()],
            Tag::Block(live.first),
        );
        match unit {
            Ok(unit) if unit.blocks == live.blocks => moves.push(Move {
                kind,
                first: live.first,
                range: (begin, begin + HEADER + unit.packed.len()),
                verbatim: true,
                expect: live.entries(),
            }),
            _ => tracing::warn!(block = live.first, "a damaged unit is not moved"),
        }
    }

    fn append_moves(
        &self,
        moves: &mut Vec<Move>,
        bytes: &[u8],
        scratch: &mut Scratch,
    ) -> Result<(), DiskError> {
        let units = scratch.units.as_slice();
        let items: Vec<Item<'_>> = moves
            .iter()
            .map(|moved| unit_item(moved, if moved.verbatim { bytes } else { units }))
            .collect();
        let blocks = self.append_own(&items, Right::Collect)?;
        let moved = &self.counters.bytes_moved;
        moved.fetch_add(blocks * BLOCK as u64, Ordering::Relaxed);
        moves.clear();
        scratch.units.clear();
        Ok(())
    }
}

fn unit_item<'a>(moved: &'a Move, from: &'a [u8]) -> Item<'a> {
    Item::Unit {
        kind: moved.kind,
        first: moved.first,
        bytes: &from[moved.range.0..moved.range.1],
        expect: Some(Expect {
            entries: &moved.expect,
            // Only the holder of `maintenance` frees segments, and that is the caller.
            freed: None,
        }),
    }
}

/// Segments that may be collected, with their numbers.
fn candidates(log: &LogState) -> impl Iterator<Item = (u32, Segment)> {
    let most = f64::from(log.segments.len()) * USED_MOST - END_WASTE;
    log.segments
        .closed(log.at.segment)
        .filter(move |(_, segment)| {
            let durable = segment.last_seq <= log.durable;
            segment.live > 0 && !segment.stuck && durable && (segment.live as f64) < most
        })
}

/// Whether packing a segment anew is worth it: a quarter of it was not packed at leisure, and could
/// be denser. With the same codec as before only short units can.
fn worthwhile(windows: &BTreeMap<u64, Vec<Live>>, effort: Effort) -> bool {
    let (mut weak, mut all) = (0, 0);
    for live in windows.values().flatten() {
        let could = effort > Effort::Quick || live.blocks < UNIT_BLOCKS;
        all += live.place.bytes();
        weak += live.place.bytes() * usize::from(live.kind == Kind::Data && could);
    }
    weak > 0 && weak * 4 >= all
}

/// The batches of a segment, with their records, up to the first place where no batch follows the
/// one before.
pub(crate) fn batches(segment: u32, bytes: &[u8], uuid: &[u8; 16]) -> Vec<Found> {
    let mut found = Vec::new();
    let (mut at, mut next) = (0, None);
    while at + batch::HEADER <= bytes.len() {
        let Ok(header) = BatchHeader::parse(&bytes[at..], bytes.len() as u32) else {
            break;
        };
        let here = header.segment == segment && header.offset as usize == at;
        if !here || header.uuid != *uuid || next.is_some_and(|seq| seq != header.seq) {
            break;
        }
        let table = at + header.table as usize;
        let table = &bytes[table..table + header.records as usize * RECORD];
        let checked = header.check(&bytes[at..at + batch::HEADER], table);
        let (Ok(()), Ok(records)) = (checked, batch::parse_table(&header, table)) else {
            break;
        };
        found.push(Found { header, records });
        at += header.len as usize;
        next = Some(header.seq + 1);
    }
    found
}

/// Segments fuller than this are not collected: moving them gains less than a checkpoint costs.
const USED_MOST: f64 = 0.97;
/// Percent of a segment that are live, at most, where it is collected while the device is idle: then
/// at most three bytes are written for each that becomes free.
const IDLE_USED_MOST: u64 = 75;
/// Bytes at the end of a segment that a unit may find too short for itself, about.
const END_WASTE: f64 = 8192.0;
/// Bytes of packed units appended at once.
const GROUP: usize = 256 << 10;
/// Moves appended at once.
const GROUP_MOVES: usize = 512;
