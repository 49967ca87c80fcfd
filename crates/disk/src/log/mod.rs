//! The log: batches are filled in memory, sealed, written side by side, and made durable in order.
//!
//! ```text
//!            append (log lock)          write (no lock)            commit (one leader)
//!  units ──▶ open batch ── full ──▶ sealed ──▶ backing.write ──▶ written ──▶ backing.flush ──▶ durable
//! ```
//!
//! Appending copies packed bytes into the open batch and changes the map, both under the log's
//! lock: so the order of records is the order of changes, and a replay needs no conditions. Whoever
//! fills a batch writes it, outside the lock; several are written at once. A flush makes its caller
//! the leader of a commit unless one is under way: the leader seals the open batch, with what
//! everyone else put there meanwhile, waits until all batches before are written, and flushes once
//! for all. A batch is durable only when every batch before it is.

mod commit;
mod state;

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

pub(crate) use self::state::LogState;
use crate::{
    backing::{Backing, BackingError},
    buffer::Buffer,
    error::DiskError,
    format::{
        BLOCK, GRANULE,
        batch::{self, BatchHeader, Kind, RECORD, Record},
        entry::{Entry, Place},
        unit::{self, Tag},
    },
    map::Map,
};

/// What is appended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Item<'a> {
    /// A unit of data, header first.
    Unit {
        kind: Kind,
        first: u64,
        bytes: &'a [u8],
        expect: Option<Expect<'a>>,
    },
    /// Blocks that become zero or are no longer wanted.
    Range { kind: Kind, first: u64, count: u32 },
    /// A page of the map.
    Page {
        level: u8,
        index: u32,
        bytes: &'a [u8],
    },
}

/// What a unit's blocks were when it was made of them. Those that changed since are left out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expect<'a> {
    pub(crate) entries: &'a [Entry],
    /// [`Segments::freed`] at that time, unless no segment can have been freed since: an entry can
    /// be the same again after its segment was reused.
    pub(crate) freed: Option<u64>,
}

/// Who appends: it decides which of the last free segments may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    /// Data of the device's user.
    User,
    /// A trim, or zeroes: it must work on a full store, too.
    Trim,
    /// Garbage collection.
    Collect,
    /// Checkpoints.
    Checkpoint,
}

/// What became of an append.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Appended {
    /// Sequence number of the batch that holds the last of it, 0 if nothing was appended.
    pub(crate) seq: u64,
    /// Blocks whose entries were set.
    pub(crate) blocks: u64,
}

/// Bytes of a batch while they are in memory.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) seq: u64,
    pub(crate) segment: u32,
    pub(crate) offset: u32,
    limit: u32,
    bytes: RwLock<Buffer>,
}

impl Batch {
    /// Appends a payload; where it is.
    fn put(&self, bytes: &[u8]) -> Place {
        let mut buffer = self.bytes.write();
        let begin = buffer.len();
        buffer.push(bytes);
        let end = buffer.len().next_multiple_of(GRANULE);
        buffer.pad_to(end);
        Place {
            segment: self.segment,
            granule: ((self.offset as usize + begin) / GRANULE) as u32,
            granules: ((end - begin) / GRANULE) as u16,
        }
    }
}

/// The batch being filled.
#[derive(Debug)]
struct Open {
    batch: Arc<Batch>,
    table: Vec<u8>,
}

/// What never changes while the store is open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogShape {
    pub(crate) uuid: [u8; 16],
    pub(crate) epoch: u64,
    pub(crate) segment_len: u32,
    /// A batch is sealed at this length.
    pub(crate) batch_len: u32,
}

/// The log.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) shape: LogShape,
    pub(crate) backing: Arc<dyn Backing>,
    pub(crate) map: Arc<Map>,
    state: Mutex<LogState>,
    /// Something was written, became durable or failed.
    changed: Condvar,
    /// Batches in memory, for readers.
    recent: RwLock<Vec<Arc<Batch>>>,
    /// Of each segment, how many batches in memory belong to it: readers look no further where it
    /// is 0.
    in_memory: Vec<AtomicU32>,
    pool: Mutex<Vec<Buffer>>,
    #[cfg(test)]
    pub(crate) sabotage: Option<crate::tests::Sabotage>,
}

/// Why `append_some` stopped.
enum Stop {
    Done,
    /// A batch is full; the caller writes it.
    Sealed(Arc<Batch>),
    /// The caller's right does not reach to the free segments that are left.
    NoRoom,
}

impl Log {
    pub(crate) fn new(
        shape: LogShape,
        backing: Arc<dyn Backing>,
        map: Arc<Map>,
        state: LogState,
    ) -> Self {
        let count = state.segments.count() as usize;
        Self {
            shape,
            backing,
            map,
            state: Mutex::new(state),
            changed: Condvar::new(),
            recent: RwLock::default(),
            in_memory: (0..count).map(|_| AtomicU32::new(0)).collect(),
            pool: Mutex::default(),
            #[cfg(test)]
            sabotage: None,
        }
    }

    /// The log's state, locked.
    pub(crate) fn lock(&self) -> MutexGuard<'_, LogState> {
        self.state.lock()
    }

    /// Appends `items` in order. `make_room` is called, with no lock held, when free segments are
    /// too few for `right`; its error ends the append, and what was appended before it stays.
    pub(crate) fn append(
        &self,
        items: &[Item<'_>],
        right: Right,
        mut make_room: impl FnMut() -> Result<(), DiskError>,
    ) -> Result<Appended, DiskError> {
        let mut appended = Appended::default();
        let mut next = 0;
        while next < items.len() {
            self.retry_stalled()?;
            let (consumed, stop) = {
                let mut log = self.state.lock();
                while log.error().is_none() && log.in_flight() >= IN_FLIGHT_MAX {
                    self.changed.wait(&mut log);
                }
                log.error().map_or(Ok(()), Err)?;
                self.append_some(&mut log, &items[next..], right, &mut appended)
            };
            next += consumed;
            match stop {
                Stop::Done => {}
                Stop::Sealed(batch) => self.write(batch)?,
                Stop::NoRoom => make_room()?,
            }
        }
        Ok(appended)
    }

    fn append_some(
        &self,
        log: &mut LogState,
        items: &[Item<'_>],
        right: Right,
        appended: &mut Appended,
    ) -> (usize, Stop) {
        // What is left of the current segment is collecting's as well, while it uses what is kept
        // for it.
        if log.segments.free() < log.segments.keep(right) {
            return (0, Stop::NoRoom);
        }
        for (consumed, item) in items.iter().enumerate() {
            let payload = match item {
                Item::Unit { bytes, .. } | Item::Page { bytes, .. } => {
                    bytes.len().next_multiple_of(GRANULE)
                }
                Item::Range { .. } => 0,
            };
            loop {
                if log.open.is_none() && !self.open_batch(log, right) {
                    return (consumed, Stop::NoRoom);
                }
                let open = log.open.as_ref().expect("just opened");
                let used = open.batch.bytes.read().len() + open.table.len();
                if used + payload + RECORD <= open.batch.limit as usize {
                    break;
                }
                if let Some(batch) = self.seal(log) {
                    return (consumed, Stop::Sealed(batch));
                }
                // Nothing is in it, and even so there is no room: the segment's rest is too short.
                self.drop_open(log);
                if !advance(log, right) {
                    return (consumed, Stop::NoRoom);
                }
            }
            self.put(log, item, appended);
        }
        (items.len(), Stop::Done)
    }

    /// Puts an item that fits into the open batch, and its entries into the map.
    fn put(&self, log: &mut LogState, item: &Item<'_>, appended: &mut Appended) {
        let Some(mut record) = self.record(log.segments.freed, item) else {
            return;
        };
        let open = log.open.as_mut().expect("the caller opened one");
        let batch = Arc::clone(&open.batch);
        let place = match item {
            Item::Unit { bytes, .. } | Item::Page { bytes, .. } => batch.put(bytes),
            Item::Range { .. } => batch.put(&[]),
        };
        record.granules = place.granules;
        record.write(&mut open.table);
        appended.seq = batch.seq;
        if record.kind == Kind::Data {
            log.segments.get_mut(batch.segment).strong = false;
        }
        if let Item::Page { level, index, .. } = *item {
            log.set_page(level, index, Some(place));
            return;
        }
        appended.blocks += match item {
            Item::Unit { .. } => u64::from(record.mask.count_ones()),
            _ => u64::from(record.count),
        };
        log.apply(&self.map, &record, place);
    }

    /// The record of an item, without its length; `None` if it would change nothing.
    fn record(&self, freed: u64, item: &Item<'_>) -> Option<Record> {
        let (kind, first, count, mask) = match *item {
            Item::Unit {
                kind,
                first,
                bytes,
                expect,
            } => {
                let same = expect.map_or(!0, |expect| self.mask(freed, first, expect));
                (
                    kind,
                    first,
                    bytes[7].into(),
                    same & (0xff >> (8 - bytes[7])),
                )
            }
            Item::Range { kind, first, count } => (kind, first, count, !0),
            Item::Page { level, index, .. } => {
                let index = index.into();
                (Kind::Page, Tag::Page { level, index }.number(), 1, !0)
            }
        };
        (mask != 0).then_some(Record {
            kind,
            first,
            count,
            granules: 0,
            mask,
        })
    }

    /// Which of the blocks from `first` still have the entries `expect`.
    fn mask(&self, freed: u64, first: u64, expect: Expect<'_>) -> u8 {
        if expect.freed.is_some_and(|then| then != freed) {
            return 0;
        }
        let mut now = Vec::with_capacity(expect.entries.len());
        self.map.get(first, expect.entries.len(), &mut now);
        let same = |(i, (a, b)): (usize, (&Entry, &Entry))| u8::from(a == b) << i;
        now.iter().zip(expect.entries).enumerate().map(same).sum()
    }

    /// Opens a batch where the log is, in the next segment if this one is full. `false` if `right`
    /// reaches to none.
    fn open_batch(&self, log: &mut LogState, right: Right) -> bool {
        if log.at.offset + BLOCK as u32 > self.shape.segment_len && !advance(log, right) {
            return false;
        }
        let at = log.at;
        let limit = self.shape.batch_len.min(self.shape.segment_len - at.offset);
        let mut buffer = self.pool.lock().pop().unwrap_or_default();
        if buffer.capacity() < self.shape.batch_len as usize {
            buffer = Buffer::new(self.shape.batch_len as usize);
        }
        buffer.clear();
        buffer.pad_to(batch::HEADER);
        let batch = Arc::new(Batch {
            seq: at.seq,
            segment: at.segment,
            offset: at.offset,
            limit,
            bytes: RwLock::new(buffer),
        });
        self.recent.write().push(Arc::clone(&batch));
        self.in_memory[at.segment as usize].fetch_add(1, Ordering::Release);
        log.open = Some(Open {
            batch,
            table: Vec::with_capacity(1024),
        });
        true
    }

    fn drop_open(&self, log: &mut LogState) {
        if let Some(open) = log.open.take() {
            self.forget(open.batch);
        }
    }

    /// Seals the open batch, if anything is in it: fills in table and header. The caller writes it.
    fn seal(&self, log: &mut LogState) -> Option<Arc<Batch>> {
        log.open.as_ref().filter(|open| !open.table.is_empty())?;
        let Open { batch, table } = log.open.take()?;
        let mut buffer = batch.bytes.write();
        let table_at = buffer.len();
        buffer.push(&table);
        let len = buffer.len().next_multiple_of(BLOCK);
        buffer.pad_to(len);
        let header = BatchHeader {
            uuid: self.shape.uuid,
            epoch: self.shape.epoch,
            seq: batch.seq,
            durable: log.durable,
            crc: 0,
            previous: log.at.previous,
            segment: batch.segment,
            offset: batch.offset,
            len: len as u32,
            table: table_at as u32,
            records: (table.len() / RECORD) as u32,
            next: log.at.next,
        };
        log.at.previous = header.write(buffer.bytes_mut());
        drop(buffer);
        log.at.seq += 1;
        log.at.offset += len as u32;
        log.segments
            .written(batch.segment, batch.seq, log.at.offset);
        log.since_checkpoint += len as u64;
        log.bytes_logged += len as u64;
        Some(batch)
    }

    /// Takes a batch out of readers' sight and its memory back.
    fn forget(&self, batch: Arc<Batch>) {
        self.recent.write().retain(|held| held.seq != batch.seq);
        self.in_memory[batch.segment as usize].fetch_sub(1, Ordering::Release);
        if let Some(batch) = Arc::into_inner(batch) {
            let mut pool = self.pool.lock();
            if pool.len() < POOL_MAX {
                pool.push(batch.bytes.into_inner());
            }
        }
    }

    /// Copies the bytes at `place`, as long as `out`, from memory if they are there still, else
    /// from the backing.
    pub(crate) fn fetch(
        &self,
        segment: u32,
        offset: u32,
        out: &mut Vec<u8>,
        len: usize,
    ) -> Result<(), BackingError> {
        out.clear();
        if self.in_memory[segment as usize].load(Ordering::Acquire) > 0 {
            // The last one that begins before it. A batch that was sealed early does not reach as
            // far as it might have.
            let before = |batch: &&Arc<Batch>| batch.segment == segment && batch.offset <= offset;
            let recent = self.recent.read();
            let last = recent
                .iter()
                .filter(before)
                .max_by_key(|batch| batch.offset);
            let batch = last.map(Arc::clone);
            drop(recent);
            if let Some(batch) = batch {
                let buffer = batch.bytes.read();
                let begin = (offset - batch.offset) as usize;
                if let Some(bytes) = buffer.bytes().get(begin..begin + len) {
                    out.extend_from_slice(bytes);
                    return Ok(());
                }
            }
        }
        let at = u64::from(segment) * u64::from(self.shape.segment_len) + u64::from(offset);
        read_at(&*self.backing, at, out, len)
    }

    /// Bytes of the batches that are in memory, for statistics.
    pub(crate) fn memory(&self) -> u64 {
        let recent = self.recent.read().len() + self.pool.lock().len();
        recent as u64 * u64::from(self.shape.batch_len)
    }
}

/// Reads `len` bytes at `at` into `out`, as aligned as the backing wants them.
pub(crate) fn read_at(
    backing: &dyn Backing,
    at: u64,
    out: &mut Vec<u8>,
    len: usize,
) -> Result<(), BackingError> {
    let unit = u64::from(backing.geometry().read_alignment.max(1));
    let begin = at / unit * unit;
    let end = (at + len as u64).next_multiple_of(unit);
    out.resize((end - begin) as usize, 0);
    backing.read(begin, out)?;
    out.drain(..(at - begin) as usize);
    out.truncate(len);
    Ok(())
}

/// Goes to the next segment, and takes a free one for the time after. `false` if `right` reaches to
/// none.
fn advance(log: &mut LogState, right: Right) -> bool {
    let Some(taken) = log.segments.take_free(right) else {
        return false;
    };
    log.at.segment = log.at.next[0];
    log.at.offset = 0;
    log.at.next = [log.at.next[1], taken];
    log.segments.open(log.at.segment);
    true
}

/// Batches sealed and not yet written, at most: it bounds memory when the backing is slow.
const IN_FLIGHT_MAX: u64 = 16;
/// Buffers kept for later batches.
const POOL_MAX: usize = 8;

const _: () =
    assert!(unit::UNIT_MAX + batch::HEADER + RECORD < crate::format::SEGMENT_MIN as usize);
