//! Opening a store: the newest superblock, the map it names, and the log replayed from there.
//!
//! Replay stops at the first place where the next batch is missing. That is right after a crash:
//! batches are written side by side, so any of those that no flush covered may be missing, and none
//! that a flush covered is behind a missing one. It would be wrong after damage. A batch says up to
//! where everything was durable when it was sealed; so if one that was found *behind* the gap says
//! that the missing one had been durable, the store is damaged, and is not opened.
//!
//! Of batches not known to have been durable every payload is checked, since a torn write may have
//! kept the header alone.
//!
//! Nothing is written until the log is replayed. Then the backing is flushed, so that what was read
//! is durable too; a checkpoint follows, and the superblock starts a new epoch, by which batches of
//! the old one that a crash left behind the end are never taken for the log's. A crash before that
//! leaves the old superblock, and the next recovery does the same again.

use std::{cell::RefCell, sync::Arc};

use crate::{
    backing::{Backing, BackingError},
    error::DiskError,
    format::{
        BLOCK, FANOUT, FormatError, GRANULE,
        batch::{self, BatchHeader, Kind, RECORD, Record},
        entry::{Entry, Place},
        superblock::{COPIES, LogPosition, Superblock},
        u64_at,
        unit::{Tag, Unit},
    },
    log::{Log, LogShape, LogState, read_at},
    map::Map,
    pack::Tools,
    segments::Segments,
    settings::Settings,
    store::Store,
    tools::extend_tree,
};

/// Opens the store on `backing`.
pub(crate) fn open(backing: Arc<dyn Backing>, settings: Settings) -> Result<Store, DiskError> {
    open_as(backing, settings, |_| ())
}

/// Opens the store on `backing` as a larger one: `change` sets the new sizes.
pub(crate) fn open_as(
    backing: Arc<dyn Backing>,
    settings: Settings,
    change: impl FnOnce(&mut Superblock),
) -> Result<Store, DiskError> {
    let superblock = read_superblock(&*backing)?;
    let mut target = superblock;
    change(&mut target);
    let map = Arc::new(Map::new(target.logical / BLOCK as u64));
    let loader = Loader {
        backing: &*backing,
        superblock: &superblock,
        window: RefCell::default(),
        #[cfg(test)]
        sabotage: settings.tuning.sabotage,
    };
    let mut tree = loader.load_tree(&map)?;
    let above = extend_tree(&mut tree, map.pages());
    let mut segments = Segments::new(target.segments, target.segment_len);
    for entry in tree.iter().flatten() {
        segments.retain(*entry, entry.share());
    }
    map.for_each_data(|_, entry| segments.retain(entry, entry.share()));
    let batches = loader.find_log()?;
    let mut log = LogState::new(superblock.replay, segments, tree);
    log.dirty_above.extend(above);
    (log.data_blocks, log.zero_blocks) = map.count();
    log.replayed = batches.len() as u64;
    for found in &batches {
        loader.replay(found, &map, &mut log)?;
    }
    occupy(&mut log, &superblock, &batches);
    if let Some(segment) = log.segments.overfull() {
        return Err(damaged("more live bytes than there are", segment, 0));
    }
    let shape = LogShape {
        uuid: superblock.uuid,
        epoch: fresh_number()?,
        segment_len: superblock.segment_len,
        batch_len: batch_len(&*backing, superblock.segment_len),
    };
    #[cfg_attr(not(test), expect(unused_mut, reason = "tests plant bugs"))]
    let mut log = Log::new(shape, backing, map, log);
    #[cfg(test)]
    {
        log.sabotage = settings.tuning.sabotage;
    }
    let store = Store::new(log, target, settings);
    if !store.settings.read_only {
        store.log.flush_backing()?;
        store.checkpoint(&mut store.maintenance.lock(), false)?;
    }
    Ok(store)
}

/// A batch is as long as the backing likes its writes, and a fourth of a segment at most.
fn batch_len(backing: &dyn Backing, segment_len: u32) -> u32 {
    let least = crate::format::SEGMENT_MIN;
    let preferred = backing.geometry().write_preferred.max(least);
    preferred.min(segment_len / 4).max(least.min(segment_len)) / BLOCK as u32 * BLOCK as u32
}

/// A number that no other opening of the store drew.
pub(crate) fn fresh_number() -> Result<u64, DiskError> {
    getrandom::u64().map_err(|error| DiskError::Settings(format!("no random numbers: {error}")))
}

pub(crate) fn damaged(what: impl Into<String>, segment: u32, offset: u32) -> DiskError {
    DiskError::Damaged {
        what: what.into(),
        segment,
        offset,
    }
}

pub(crate) fn backing_failed(backing: &dyn Backing, source: BackingError) -> DiskError {
    DiskError::Backing {
        name: backing.name(),
        source,
    }
}

/// Reads both copies of the superblock; the newer one that is whole.
pub(crate) fn read_superblock(backing: &dyn Backing) -> Result<Superblock, DiskError> {
    let name = backing.name();
    let not_a_disk = |what: String| DiskError::NotADisk {
        name: name.clone(),
        what,
    };
    let mut newest: Option<Superblock> = None;
    let mut why = None;
    for copy in COPIES {
        if copy + BLOCK as u64 > backing.size() {
            return Err(not_a_disk(format!("it has {} bytes", backing.size())));
        }
        let mut bytes = Vec::new();
        read_at(backing, copy, &mut bytes, BLOCK)
            .map_err(|source| backing_failed(backing, source))?;
        match Superblock::parse(&bytes) {
            Ok(found) => {
                if newest.is_some_and(|held| held.uuid != found.uuid) {
                    return Err(not_a_disk("two different ones".to_owned()));
                }
                if newest.is_none_or(|held| held.generation < found.generation) {
                    newest = Some(found);
                }
            }
            Err(source @ FormatError::Newer { .. }) => {
                return Err(DiskError::Newer { name, source });
            }
            Err(error) => why = Some(error),
        }
    }
    let found = newest
        .ok_or_else(|| not_a_disk(why.map_or_else(String::new, |error| error.to_string())))?;
    let expected = u64::from(found.segments) * u64::from(found.segment_len);
    if backing.size() < expected {
        return Err(DiskError::Truncated {
            found: backing.size(),
            expected,
            name,
        });
    }
    Ok(found)
}

/// Reads what a superblock names.
#[derive(Debug)]
pub(crate) struct Loader<'a> {
    pub(crate) backing: &'a dyn Backing,
    pub(crate) superblock: &'a Superblock,
    /// The bytes read last and where they begin: small batches follow each other, and headers are
    /// small.
    window: RefCell<(u64, Vec<u8>)>,
    #[cfg(test)]
    pub(crate) sabotage: Option<crate::tests::Sabotage>,
}

/// A batch of the log.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) header: BatchHeader,
    pub(crate) records: Vec<Record>,
}

impl Loader<'_> {
    fn at(&self, segment: u32, offset: u32) -> u64 {
        u64::from(segment) * u64::from(self.superblock.segment_len) + u64::from(offset)
    }

    /// Reads within a segment.
    fn read(&self, segment: u32, offset: u32, len: usize) -> Result<Vec<u8>, DiskError> {
        let mut bytes = Vec::new();
        read_at(self.backing, self.at(segment, offset), &mut bytes, len)
            .map_err(|source| backing_failed(self.backing, source))?;
        Ok(bytes)
    }

    /// Reads a little within a segment, and what follows it for the next time.
    fn read_little(&self, segment: u32, offset: u32, len: usize) -> Result<Vec<u8>, DiskError> {
        let at = self.at(segment, offset);
        let mut window = self.window.borrow_mut();
        let (begin, bytes) = &mut *window;
        let held = at.checked_sub(*begin).map(|skip| skip as usize);
        if let Some(found) = held.and_then(|skip| bytes.get(skip..skip + len)) {
            return Ok(found.to_vec());
        }
        let left = (self.superblock.segment_len - offset) as usize;
        let ahead = left.min(len.max(WINDOW));
        *bytes = self.read(segment, offset, ahead)?;
        *begin = at;
        Ok(bytes[..len].to_vec())
    }

    /// Reads the tree from its root down, and puts the blocks' pages into `map`.
    fn load_tree(&self, map: &Map) -> Result<Vec<Vec<Entry>>, DiskError> {
        let pages = self.superblock.logical.div_ceil((BLOCK * FANOUT) as u64);
        let mut counts = vec![pages as usize];
        while *counts.last().expect("at least one level") > 1 {
            counts.push(counts[counts.len() - 1].div_ceil(FANOUT));
        }
        let mut tree: Vec<Vec<Entry>> = counts.iter().map(|n| vec![Entry::NONE; *n]).collect();
        let top = tree.len() - 1;
        tree[top][0] = self.superblock.root;
        for level in (0..=top).rev() {
            let mut order: Vec<(Place, usize)> = tree[level]
                .iter()
                .enumerate()
                .filter_map(|(index, entry)| Some((entry.place()?, index)))
                .collect();
            order.sort_unstable();
            self.load_level(level, &order, |index, entries| {
                if level == 0 {
                    // Blocks behind the device's end have no entries.
                    map.load(index as u32, entries);
                } else {
                    let below = &mut tree[level - 1];
                    let first = index * FANOUT;
                    let n = FANOUT.min(below.len() - first);
                    below[first..first + n].copy_from_slice(&entries[..n]);
                }
            })?;
        }
        Ok(tree)
    }

    /// Reads the pages at `order`, those that lie near each other in one go.
    fn load_level(
        &self,
        level: usize,
        order: &[(Place, usize)],
        mut put: impl FnMut(usize, Box<[Entry; FANOUT]>),
    ) -> Result<(), DiskError> {
        let mut tools = Tools::default();
        let registry = crate::pack::registry();
        let mut rest = order;
        while let Some(((head, _), _)) = rest.split_first() {
            let near = |(place, _): &&(Place, usize)| {
                place.segment == head.segment
                    && place.offset() as usize + place.bytes() - head.offset() as usize <= READ_MAX
            };
            let run = rest.iter().take_while(near).count().max(1);
            let last = rest[run - 1].0;
            let len = (last.offset() - head.offset()) as usize + last.bytes();
            let bytes = self.read(head.segment, head.offset(), len)?;
            for (place, index) in &rest[..run] {
                let fail = |what: &str| damaged(what, place.segment, place.offset());
                let begin = (place.offset() - head.offset()) as usize;
                let tag = Tag::Page {
                    level: level as u8,
                    index: *index as u64,
                };
                let unit = Unit::parse(&bytes[begin..begin + place.bytes()], tag)
                    .map_err(|error| fail(&format!("a page of the map: {error}")))?;
                let mut page = [0; BLOCK];
                if unit.blocks != 1 {
                    return Err(fail("a page of the map of another length"));
                }
                tools
                    .unpack(&unit, &registry, &mut page)
                    .map_err(|error| fail(&format!("a page of the map: {error}")))?;
                let entries = self
                    .entries(level, &page)
                    .ok_or_else(|| fail("a page of the map with impossible entries"))?;
                put(*index, entries);
            }
            rest = &rest[run..];
        }
        Ok(())
    }

    fn entries(&self, level: usize, page: &[u8; BLOCK]) -> Option<Box<[Entry; FANOUT]>> {
        let mut entries = Box::new([Entry::NONE; FANOUT]);
        let Superblock {
            segments,
            segment_len,
            ..
        } = *self.superblock;
        for (i, entry) in entries.iter_mut().enumerate() {
            *entry = Entry(u64_at(page, i * 8));
            let single = level == 0 || entry.blocks() == 1 && *entry != Entry::ZERO;
            if !entry.is_sound(segments, segment_len) || !single {
                return None;
            }
        }
        Some(entries)
    }

    /// The batches to replay, in order.
    pub(crate) fn find_log(&self) -> Result<Vec<Found>, DiskError> {
        let mut at = self.superblock.replay;
        let mut found: Vec<Found> = Vec::new();
        while let Some(batch) = self.next_batch(&at)? {
            at = batch.header.after();
            found.push(batch);
        }
        let mut durable = found.iter().map(|batch| batch.header.durable).max();
        let behind = self.behind(&at)?;
        if let Some(claim) = behind.iter().map(|batch| batch.header.durable).max() {
            if claim >= at.seq {
                let what = format!("batch {} of the log, which was durable, is missing", at.seq);
                return Err(damaged(what, at.segment, at.offset));
            }
            durable = durable.max(Some(claim));
        }
        #[cfg(test)]
        if self.sabotage == Some(crate::tests::Sabotage::ReplayPastGap) {
            found.extend(behind);
        }
        let durable = durable.unwrap_or(0);
        let mut whole = found.len();
        for (i, batch) in found.iter().enumerate() {
            if batch.header.seq > durable && !self.is_whole(batch)? {
                whole = i;
                break;
            }
        }
        found.truncate(whole);
        Ok(found)
    }

    /// The batch that belongs at `at`, where it is expected or at the begin of the next segment.
    fn next_batch(&self, at: &LogPosition) -> Result<Option<Found>, DiskError> {
        for (segment, offset) in [(at.segment, at.offset), (at.next[0], 0)] {
            if offset + BLOCK as u32 > self.superblock.segment_len {
                continue;
            }
            if let Some(found) = self.batch(segment, offset)?
                && found.header.seq == at.seq
                && found.header.previous == at.previous
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// A batch of the log's epoch, if one begins there. Its payloads are not looked at.
    fn batch(&self, segment: u32, offset: u32) -> Result<Option<Found>, DiskError> {
        let Superblock {
            segments,
            segment_len,
            uuid,
            epoch,
            ..
        } = *self.superblock;
        let head = self.read_little(segment, offset, BLOCK)?;
        let Ok(header) = BatchHeader::parse(&head, segment_len) else {
            return Ok(None);
        };
        let ours = header.uuid == uuid && header.epoch == epoch;
        let here = header.segment == segment && header.offset == offset;
        let inside = |segment: &u32| (1..segments).contains(segment);
        if !ours || !here || !header.next.iter().all(inside) {
            return Ok(None);
        }
        let len = header.records as usize * RECORD;
        let table = match head.get(header.table as usize..header.table as usize + len) {
            Some(table) => table.to_vec(),
            None => self.read_little(segment, offset + header.table, len)?,
        };
        if header.check(&head[..batch::HEADER], &table).is_err() {
            return Ok(None);
        }
        Ok(batch::parse_table(&header, &table)
            .ok()
            .map(|records| Found { header, records }))
    }

    /// Whether every payload of a batch is whole.
    fn is_whole(&self, found: &Found) -> Result<bool, DiskError> {
        #[cfg(test)]
        if self.sabotage == Some(crate::tests::Sabotage::SkipChecksum) {
            return Ok(true);
        }
        let BatchHeader {
            segment,
            offset,
            table,
            ..
        } = found.header;
        let bytes = self.read(segment, offset, table as usize)?;
        let mut begin = batch::HEADER;
        for record in &found.records {
            let end = begin + usize::from(record.granules) * GRANULE;
            let tag = match record.kind {
                Kind::Data | Kind::Moved => Tag::Block(record.first),
                Kind::Page => Tag::Page {
                    level: ((record.first >> 48) as u8).wrapping_sub(1),
                    index: record.first & ((1 << 48) - 1),
                },
                Kind::Zero | Kind::Trim => continue,
            };
            if Unit::parse(&bytes[begin..end], tag).is_err() {
                return Ok(false);
            }
            begin = end;
        }
        Ok(true)
    }

    /// Batches behind the first missing one, in the segments where the log may have gone.
    fn behind(&self, at: &LogPosition) -> Result<Vec<Found>, DiskError> {
        let mut found = Vec::new();
        let len = self.superblock.segment_len;
        for (segment, from) in [(at.segment, at.offset), (at.next[0], 0), (at.next[1], 0)] {
            let mut offset = from;
            while offset + BLOCK as u32 <= len {
                match self.batch(segment, offset)? {
                    Some(batch) if batch.header.seq > at.seq => {
                        offset += batch.header.len;
                        found.push(batch);
                    }
                    _ => offset += BLOCK as u32,
                }
            }
        }
        found.sort_unstable_by_key(|batch| batch.header.seq);
        Ok(found)
    }

    /// Applies a batch's records.
    fn replay(&self, found: &Found, map: &Map, log: &mut LogState) -> Result<(), DiskError> {
        let header = &found.header;
        let mut begin = batch::HEADER;
        for record in &found.records {
            let place = Place {
                segment: header.segment,
                granule: ((header.offset as usize + begin) / GRANULE) as u32,
                granules: record.granules,
            };
            begin += usize::from(record.granules) * GRANULE;
            if record.kind == Kind::Page {
                continue;
            }
            let end = record.first.checked_add(record.count.into());
            if end.is_none_or(|end| end > map.blocks()) {
                let what = "a record beyond the device's end";
                return Err(damaged(what, header.segment, header.offset));
            }
            log.apply(map, record, place);
        }
        log.at = header.after();
        log.since_checkpoint += u64::from(header.len);
        Ok(())
    }
}

impl BatchHeader {
    /// Where the batch after this one belongs.
    pub(crate) fn after(&self) -> LogPosition {
        LogPosition {
            seq: self.seq + 1,
            segment: self.segment,
            offset: self.offset + self.len,
            next: self.next,
            previous: self.crc,
        }
    }
}

/// Marks the segments that hold data, log or superblocks, so that what is left is free.
fn occupy(log: &mut LogState, superblock: &Superblock, batches: &[Found]) {
    let before = superblock.replay.seq - 1;
    let live: Vec<u32> = (1..superblock.segments)
        .filter(|segment| log.segments.get(*segment).live > 0)
        .collect();
    for segment in live {
        log.segments.occupy(segment, before);
    }
    log.segments.occupy(superblock.replay.segment, before);
    for found in batches {
        log.segments.occupy(found.header.segment, found.header.seq);
    }
    for segment in [log.at.segment, log.at.next[0], log.at.next[1]] {
        log.segments.reserve(segment);
    }
    log.resume();
}

/// Bytes read ahead of a batch's header.
const WINDOW: usize = 128 << 10;
/// Bytes of map pages read in one go.
const READ_MAX: usize = 1 << 20;
