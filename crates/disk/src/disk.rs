//! The device: makes, opens and closes a store, and serves requests.

use std::sync::{Arc, atomic::Ordering};

use narrows_core::{
    BlockDevice, BlockError,
    block::{Execution, Extent, Shape, Zeroing},
};
use narrows_io::background::Background;
use parking_lot::Mutex;

use crate::{
    backing::Backing,
    error::DiskError,
    format::{
        BLOCK, SEGMENT_MAX, SEGMENT_MIN, SEGMENTS_MAX,
        batch::Kind,
        entry::Entry,
        superblock::{COPIES, LogPosition, Superblock, logical_max},
    },
    maintenance,
    recovery::{self, backing_failed},
    settings::{Creation, Provision, Settings},
    store::Store,
};

/// A crash-safe, thin, self-compressing block device.
///
/// ```
/// use std::sync::Arc;
/// use narrows_core::BlockDevice;
/// use narrows_disk::{Creation, Disk, Settings, backing::FileBacking};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("disk");
/// let backing = FileBacking::create(&path, 64 << 20)?;
/// Disk::create(&backing, &Creation::new(256 << 20))?;
/// let disk = Disk::open(Arc::new(backing), Settings::default())?;
/// disk.write(4096, b"four kilobytes in", false)?;
/// disk.flush()?;
/// let mut out = [0; 17];
/// disk.read(4096, &mut out)?;
/// assert_eq!(&out, b"four kilobytes in");
/// println!("{:.2} times denser than raw", disk.stat().ratio);
/// disk.close()?;
/// # Ok(())
/// # }
/// ```
///
/// Writes are volatile until [`BlockDevice::flush`] returns or unless `fua` is set, as of a disk
/// with a write cache. Dropping it closes it; [`Disk::close`] says whether that went well.
#[derive(Debug)]
pub struct Disk {
    pub(crate) store: Arc<Store>,
    background: Mutex<Option<Background>>,
}

impl Disk {
    /// Makes an empty store on `backing`.
    ///
    /// # Errors
    /// [`DiskError::Occupied`] if something is there and [`Creation::force`] is not set;
    /// [`DiskError::Settings`] if sizes make no sense; [`DiskError::Backing`] if the backing fails.
    pub fn create(backing: &dyn Backing, creation: &Creation) -> Result<(), DiskError> {
        let superblock = plan(backing, creation)?;
        let failed = |source| backing_failed(backing, source);
        if !creation.force {
            check_empty(backing)?;
        }
        // Both copies are blank before one is written, so that a crash leaves no copy of an older
        // store beside a new one.
        for copy in COPIES {
            backing.write(copy, &[&[0; BLOCK]]).map_err(failed)?;
        }
        if backing.geometry().prepares {
            // The log begins in these; see `Store::prepare`.
            for segment in 1..=3 {
                maintenance::write_zeroes(backing, segment, superblock.segment_len)
                    .map_err(failed)?;
            }
        }
        backing.flush().map_err(failed)?;
        for copy in COPIES {
            backing
                .write(copy, &[&superblock.write()])
                .map_err(failed)?;
        }
        backing.flush().map_err(failed)
    }

    /// Opens the store on `backing`, after a crash too.
    ///
    /// # Errors
    /// [`DiskError::NotADisk`], [`DiskError::Newer`], [`DiskError::Truncated`] or
    /// [`DiskError::Damaged`] if there is none that can be used; nothing was written then.
    /// [`DiskError::Backing`] if the backing fails.
    pub fn open(backing: Arc<dyn Backing>, settings: Settings) -> Result<Self, DiskError> {
        let store = Arc::new(recovery::open(backing, settings)?);
        let wanted = store.settings.background && !store.settings.read_only;
        let background = wanted
            .then(|| {
                let (bell, store) = (store.bell.clone(), Arc::clone(&store));
                Background::start("narrows-disk", &bell, move |shift| {
                    maintenance::run(&store, shift);
                })
            })
            .transpose()
            .map_err(|error| DiskError::Settings(error.to_string()))?;
        Ok(Self {
            store,
            background: Mutex::new(background),
        })
    }

    /// A store without a thread of its own.
    pub(crate) fn of(store: Store) -> Self {
        Self {
            store: Arc::new(store),
            background: Mutex::new(None),
        }
    }

    /// Makes everything durable, writes a last checkpoint and takes no more requests. Does nothing
    /// the second time.
    ///
    /// # Errors
    /// [`DiskError`] if the last writes fail: what was flushed before is safe all the same.
    pub fn close(&self) -> Result<(), DiskError> {
        self.stop();
        let mut superblock = self.store.maintenance.lock();
        {
            let log = self.store.log.lock();
            match log.fatal() {
                Some(DiskError::Closed) => return Ok(()),
                Some(error) => return Err(error),
                None if self.store.settings.read_only => return Ok(()),
                None => {}
            }
        }
        let result = self.store.checkpoint(&mut superblock, true);
        self.store.log.lock().closed = true;
        result
    }

    /// Does one piece of the work that the background thread does, if any is due; whether it did.
    /// `idle` says that nobody waits, so that data may be packed harder.
    ///
    /// # Errors
    /// See [`DiskError`].
    pub fn maintain(&self, idle: bool) -> Result<bool, DiskError> {
        self.check_writable()?;
        self.store.maintain(idle)
    }

    /// Makes a checkpoint now, so that a recovery has nothing to replay.
    ///
    /// # Errors
    /// See [`DiskError`].
    pub fn checkpoint(&self) -> Result<(), DiskError> {
        self.check_writable()?;
        let mut superblock = self.store.maintenance.lock();
        self.store.checkpoint(&mut superblock, false)
    }

    pub(crate) fn stop(&self) {
        drop(self.background.lock().take());
    }

    /// Ends it as `kill -9` would: what is in memory is gone.
    #[cfg(test)]
    pub(crate) fn abandon(self) {
        self.store.log.lock().closed = true;
    }

    pub(crate) fn check_writable(&self) -> Result<(), DiskError> {
        if self.store.settings.read_only {
            return Err(DiskError::ReadOnly);
        }
        Ok(())
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.store.note_request();
        let size = self.store.log.map.blocks() * BLOCK as u64;
        match offset.checked_add(len) {
            Some(end) if end <= size => Ok(()),
            _ => Err(BlockError::Invalid("a range beyond the device's end")),
        }
    }

    /// Ends a writing call: commits it if it is to be durable.
    fn finish(&self, seq: u64, fua: bool) -> Result<(), BlockError> {
        #[cfg(test)]
        if self.store.log.sabotage == Some(crate::tests::Sabotage::AcknowledgeEarly) {
            return Ok(());
        }
        if fua && seq > 0 {
            self.store.log.commit(seq)?;
        }
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "closing the store");
        }
    }
}

impl BlockDevice for Disk {
    fn shape(&self) -> Shape {
        Shape {
            size: self.store.log.map.blocks() * BLOCK as u64,
            block_min: 1,
            block_preferred: BLOCK as u32,
            read_only: self.store.settings.read_only,
            rotational: false,
            shared: true,
            fast_zero: true,
            execution: Execution::Workers(self.store.settings.workers),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BlockError> {
        self.check(offset, out.len() as u64)?;
        let counter = &self.store.counters.bytes_read;
        counter.fetch_add(out.len() as u64, Ordering::Relaxed);
        Ok(self.store.read(offset, out)?)
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), BlockError> {
        self.check_writable()?;
        self.check(offset, data.len() as u64)?;
        let counter = &self.store.counters.bytes_written;
        counter.fetch_add(data.len() as u64, Ordering::Relaxed);
        let seq = self.store.write(offset, data)?;
        self.finish(seq, fua)
    }

    fn trim(&self, offset: u64, len: u64, fua: bool) -> Result<(), BlockError> {
        self.check_writable()?;
        self.check(offset, len)?;
        let counter = &self.store.counters.bytes_trimmed;
        counter.fetch_add(len, Ordering::Relaxed);
        // Only whole blocks: what a trimmed part of a block reads as is the device's choice, and
        // this one keeps it.
        let block = BLOCK as u64;
        let (begin, end) = (
            offset.next_multiple_of(block),
            (offset + len) / block * block,
        );
        if begin >= end {
            return Ok(());
        }
        let seq = self.store.clear(Kind::Trim, begin, end - begin)?;
        self.finish(seq, fua)
    }

    fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        how: Zeroing,
        fua: bool,
    ) -> Result<(), BlockError> {
        self.check_writable()?;
        self.check(offset, len)?;
        let kind = if how.keep_allocated {
            Kind::Zero
        } else {
            Kind::Trim
        };
        let seq = self.store.clear(kind, offset, len)?;
        self.finish(seq, fua)
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.store.note_request();
        if self.store.settings.read_only {
            return Ok(());
        }
        Ok(self.store.flush()?)
    }

    fn extents(
        &self,
        offset: u64,
        len: u64,
        max: usize,
        found: &mut Vec<Extent>,
    ) -> Result<(), BlockError> {
        self.check(offset, len)?;
        let end = offset + len;
        let begin = found.len();
        let mut at = offset;
        while at < end {
            let block = at / BLOCK as u64;
            let count = (end.div_ceil(BLOCK as u64) - block).min(STATES as u64) as usize;
            for (i, entry) in self.store.states(block, count).into_iter().enumerate() {
                let until = ((block + i as u64 + 1) * BLOCK as u64).min(end);
                let (hole, zero) = (entry == Entry::NONE, entry.place().is_none());
                let len = until - at;
                let n = found.len();
                match found[begin..].last_mut() {
                    Some(last) if (last.hole, last.zero) == (hole, zero) => last.len += len,
                    _ if n - begin >= max => return Ok(()),
                    _ => found.push(Extent { len, hole, zero }),
                }
                at = until;
            }
        }
        Ok(())
    }
}

/// Works out the superblock of a new store.
fn plan(backing: &dyn Backing, creation: &Creation) -> Result<Superblock, DiskError> {
    let wrong = |what: String| Err(DiskError::Settings(what));
    let unit = u64::from(backing.geometry().segment_alignment.max(BLOCK as u32));
    let size = backing.size();
    let segment_len = match creation.segment_len {
        Some(len) => u64::from(len),
        None => (size / 256)
            .next_power_of_two()
            .clamp(SEGMENT_MIN.into(), 8 << 20)
            .next_multiple_of(unit),
    };
    let range = u64::from(SEGMENT_MIN)..=u64::from(SEGMENT_MAX);
    if !range.contains(&segment_len) || !segment_len.is_multiple_of(unit) {
        return wrong(format!(
            "segments of {segment_len} bytes: 64 KiB to 16 MiB is possible, in multiples of {unit}"
        ));
    }
    let segments = (size / segment_len).min(SEGMENTS_MAX.into()) as u32;
    if segments < SEGMENTS_LEAST {
        return wrong(format!(
            "{} is too small: {size} bytes are {segments} segments of {segment_len} bytes, \
             {SEGMENTS_LEAST} are needed",
            backing.name()
        ));
    }
    let logical = plan_logical(backing, creation, segments, segment_len)?;
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&recovery::fresh_number()?.to_le_bytes());
    uuid[8..].copy_from_slice(&recovery::fresh_number()?.to_le_bytes());
    Ok(Superblock {
        uuid,
        generation: 1,
        epoch: recovery::fresh_number()?,
        logical,
        segments,
        segment_len: segment_len as u32,
        root: Entry::NONE,
        replay: LogPosition {
            seq: 1,
            segment: 1,
            offset: 0,
            next: [2, 3],
            previous: 0,
        },
        profile: creation.profile,
        provision: creation.provision,
        clean: true,
    })
}

/// Checks the device's size against the backing's.
fn plan_logical(
    backing: &dyn Backing,
    creation: &Creation,
    segments: u32,
    segment_len: u64,
) -> Result<u64, DiskError> {
    let most = logical_max(segments, segment_len as u32);
    let size = backing.size();
    let wrong = |what: String| Err(DiskError::Settings(what));
    let logical = creation.logical.checked_next_multiple_of(BLOCK as u64);
    let logical = match logical {
        Some(logical) if (1..=most).contains(&logical) => logical,
        _ => {
            return wrong(format!(
                "a device of {} bytes: 4096 to {most} is possible on {size}",
                creation.logical
            ));
        }
    };
    let guaranteed = guaranteed_max(segments, segment_len);
    if creation.provision == Provision::Guaranteed && logical > guaranteed {
        return wrong(format!(
            "{logical} bytes cannot be guaranteed on {size}: at most {guaranteed}"
        ));
    }
    Ok(logical)
}

/// The largest device for which incompressible data fits: what may be live, less what a unit may
/// leave at a segment's end, and what units, records, headers and map pages take besides their
/// blocks (under 1.5 %).
pub(crate) fn guaranteed_max(segments: u32, segment_len: u64) -> u64 {
    let reserve = crate::segments::reserve(segments);
    let held = u64::from((segments - 1).saturating_sub(reserve));
    let live = held * (segment_len - crate::format::unit::UNIT_MAX as u64);
    (live - live / 64) / BLOCK as u64 * BLOCK as u64
}

fn check_empty(backing: &dyn Backing) -> Result<(), DiskError> {
    let occupied = |what| DiskError::Occupied {
        name: backing.name(),
        what,
    };
    match recovery::read_superblock(backing) {
        Ok(_) | Err(DiskError::Newer { .. } | DiskError::Truncated { .. }) => {
            return Err(occupied("a narrows disk"));
        }
        Err(DiskError::NotADisk { .. }) => {}
        Err(error) => return Err(error),
    }
    let mut head = vec![0; HEAD.min(backing.size()) as usize / BLOCK * BLOCK];
    backing
        .read(0, &mut head)
        .map_err(|source| backing_failed(backing, source))?;
    if crate::pack::is_zero(&head) {
        Ok(())
    } else {
        Err(occupied("its first bytes are not zero"))
    }
}

/// Bytes at the begin that must be zero: file systems, partition tables and volume managers leave
/// their marks there.
const HEAD: u64 = 128 << 10;
/// With fewer segments there would be nothing left besides the reserve.
const SEGMENTS_LEAST: u32 = 16;
/// Entries looked at in one go for block status.
const STATES: usize = 4096;
