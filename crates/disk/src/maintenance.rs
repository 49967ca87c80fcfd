//! When to collect garbage, make checkpoints and recompress: by the background thread, or by a
//! writer that cannot wait.

use std::{sync::atomic::Ordering, time::Duration};

use narrows_io::background::Shift;
use parking_lot::MutexGuard;

use crate::{
    backing::{Backing, BackingError},
    error::DiskError,
    format::{superblock::Superblock, unit::UNIT_MAX},
    gc::Manner,
    log::{LogState, Right},
    pack::Effort,
    settings::Profile,
    store::Store,
};

/// What maintenance is due.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Due {
    /// Free segments are few.
    pub(crate) low: bool,
    /// The log since the last checkpoint is long, or many pages changed.
    pub(crate) checkpoint: bool,
    /// So many pages changed that the next checkpoint takes a large part of the reserve.
    pub(crate) urgent: bool,
}

/// What collecting could do; see [`Store::outlook`].
#[derive(Debug, Clone, Copy)]
struct Outlook {
    /// Free segments.
    free: usize,
    /// Segments that the next checkpoint makes free.
    dead: usize,
    victim: Option<u32>,
    /// The next checkpoint moves the map pages that keep some segment from being dead.
    stuck: bool,
    /// The last batch accepted, if it is not durable.
    volatile: Option<u64>,
    /// The victim can be moved and a checkpoint made after it.
    fits: bool,
    /// Collecting, as far as there is room for it, wins more than the checkpoint takes.
    pays: bool,
}

impl Store {
    /// What is due, as the log is.
    pub(crate) fn due(&self, log: &LogState) -> Due {
        let segments = &log.segments;
        let dirty = log.dirty.len() as u64 * PAGE_BYTES;
        let floor = segments.floor() as u64 * u64::from(segments.len());
        Due {
            low: segments.free() < segments.low(),
            checkpoint: log.since_checkpoint >= self.settings.tuning.checkpoint_every
                || dirty >= floor / 8,
            urgent: dirty >= floor / 4,
        }
    }

    /// Does what is due, or wakes the thread that does.
    pub(crate) fn do_what_is(&self, due: Due) -> Result<(), DiskError> {
        let inline = due.urgent || (due.checkpoint && !self.settings.background);
        if inline {
            let mut superblock = self.maintenance.lock();
            // Someone else may have done it while this thread waited.
            let still = self.due(&self.log.lock());
            if still.urgent || still.checkpoint {
                match self.checkpoint(&mut superblock, false) {
                    // The request itself is done. Whether there is room is for the next one to find
                    // out.
                    Err(DiskError::NoSpace(_)) => {}
                    result => result?,
                }
            }
        } else if due.low || due.checkpoint {
            self.bell.ring();
        }
        Ok(())
    }

    /// Collects garbage until `right` reaches to a free segment, or says that there is no space.
    pub(crate) fn make_room(&self, right: Right) -> Result<(), DiskError> {
        let mut superblock = self.maintenance.lock();
        let wanted = self.log.lock().segments.keep(right) + 1;
        self.log.retry_stalled()?;
        let enough = self.free_segments(&mut superblock, wanted, self.manner(true))?;
        if enough {
            return Ok(());
        }
        let refused = self.counters.no_space.fetch_add(1, Ordering::Relaxed) + 1;
        // The first, and then seldom: a program may go on writing for hours.
        if refused.is_power_of_two() {
            tracing::warn!(
                "full: {refused} requests refused until some is trimmed or the backing grows"
            );
        }
        Err(DiskError::NoSpace(
            "nothing is left to be collected; trim some or grow the backing".to_owned(),
        ))
    }

    /// Collects until so many segments are free; whether they are.
    fn free_segments(
        &self,
        superblock: &mut MutexGuard<'_, Superblock>,
        wanted: usize,
        manner: Manner,
    ) -> Result<bool, DiskError> {
        let rounds = 2 * self.log.lock().segments.count();
        let mut most = 0;
        let mut fruitless = 0;
        for _ in 0..rounds {
            let outlook = self.outlook(!manner.merge);
            if outlook.free >= wanted {
                return Ok(true);
            }
            most = most.max(outlook.free);
            let pending = outlook.dead > 0 || (outlook.victim.is_none() && outlook.stuck);
            if let Some(accepted) = outlook.volatile
                && (!outlook.pays || (outlook.victim.is_none() && !pending))
            {
                // Only what is durable is collected, and nobody has flushed of late.
                self.log.commit(accepted)?;
                continue;
            }
            if !outlook.pays {
                return Ok(false);
            }
            let enough = outlook.free + outlook.dead >= wanted + DEAD_WANTED || !outlook.fits;
            if pending && (enough || outlook.victim.is_none()) {
                self.checkpoint(superblock, false)?;
                let now = self.log.lock().segments.free();
                // What collections and the checkpoint take is not always less than what they give:
                // then there is no space.
                fruitless = if now > most { 0 } else { fruitless + 1 };
                if fruitless >= FRUITLESS_MOST {
                    return Ok(false);
                }
                continue;
            }
            let Some(victim) = outlook.victim.filter(|_| outlook.fits) else {
                return Ok(false);
            };
            match self.collect(victim, manner) {
                Err(DiskError::NoSpace(_)) if outlook.dead > 0 => {
                    self.checkpoint(superblock, false)?;
                }
                Err(DiskError::NoSpace(_)) => return Ok(false),
                result => result?,
            }
        }
        Ok(false)
    }

    /// What collecting could do now.
    ///
    /// The last free segments are what collecting itself lives on: it takes room before it gives
    /// any, and gives it only once a checkpoint has been written, for which one of them is kept. So
    /// out of those it begins nothing that it could not finish, and nothing at all if all that fits
    /// wins less than the checkpoint takes. Without this every refused write on a full store would
    /// use them up a little more, until a trim could not be turned into room any longer.
    ///
    /// What is moved takes a little more than it took: the ends of two segments may be too short
    /// for a unit, and batches have headers and whole blocks.
    fn outlook(&self, hurry: bool) -> Outlook {
        let log = self.log.lock();
        let segments = &log.segments;
        let (free, len) = (segments.free(), u64::from(segments.len()));
        let dead = segments.dead_before(u64::MAX, log.at.segment).len();
        let scarce = free <= segments.floor();
        let victim = self.victim(&log, hurry || scarce);
        let pages = log.dirty.len() + log.dirty_above.len() + log.tree.len();
        let pages = pages as u64 * PAGE_BYTES;
        let room = free.saturating_sub(1) as u64 * len + (len - u64::from(log.at.offset));
        let spare = room.saturating_sub(2 * UNIT_MAX as u64) * 16 / 17;
        let stuck = segments.has_stuck();
        let won = || dead as u64 * len + self.winnable(&log, spare);
        Outlook {
            free,
            dead,
            victim,
            stuck,
            volatile: Some(log.accepted()).filter(|accepted| *accepted > log.durable),
            fits: !scarce || victim.is_none_or(|victim| segments.get(victim).live <= spare),
            pays: !scarce || (victim.is_none() && stuck) || won() > pages + len / 4,
        }
    }

    /// How data is moved. In a hurry, and while requests come, units are copied as they are or
    /// packed quickly; merging them with their neighbours is for idle time, since those are soon
    /// overwritten again.
    fn manner(&self, hurry: bool) -> Manner {
        let effort = match self.profile {
            Profile::Fast => Effort::Quick,
            Profile::Balanced => Effort::Normal,
            Profile::Dense if hurry => Effort::Normal,
            Profile::Dense => Effort::Strong,
        };
        Manner {
            effort,
            merge: !hurry,
            repack: false,
        }
    }

    /// One round of the background thread's work, or of [`Disk::maintain`](crate::Disk::maintain):
    /// a checkpoint or a collection if one is due, and recompression if the device is idle. Whether
    /// anything was done.
    pub(crate) fn maintain(&self, idle: bool) -> Result<bool, DiskError> {
        let mut superblock = self.maintenance.lock();
        let due = self.due(&self.log.lock());
        // Where collecting came to nothing, it does so again until something was written.
        let logged = || self.log.lock().bytes_logged;
        if due.low && self.fruitless_at.load(Ordering::Relaxed) != logged() {
            let wanted = self.log.lock().segments.low();
            let enough = self.free_segments(&mut superblock, wanted, self.manner(!idle))?;
            if !enough {
                self.fruitless_at.store(logged(), Ordering::Relaxed);
            }
            return Ok(enough);
        }
        if due.checkpoint {
            self.checkpoint(&mut superblock, false)?;
            return Ok(true);
        }
        if idle {
            return self.rest(&mut superblock);
        }
        Ok(false)
    }

    /// What is done while nobody waits: what was accepted is made durable, free segments are given
    /// back, segments that are largely dead are collected, cold data is packed harder.
    fn rest(&self, superblock: &mut MutexGuard<'_, Superblock>) -> Result<bool, DiskError> {
        let (accepted, durable) = {
            let log = self.log.lock();
            (log.accepted(), log.durable)
        };
        if accepted > durable {
            self.log.commit(accepted)?;
            return Ok(true);
        }
        let cool = self.log.lock().segments.cool(0);
        if !cool.is_empty() {
            self.discard(&cool)?;
            return Ok(true);
        }
        if !self.settings.recompress {
            return Ok(false);
        }
        self.tidy(superblock)
    }

    /// Collects one segment that is largely dead, packs a cold one harder, or makes the checkpoint
    /// that frees those that were emptied.
    fn tidy(&self, superblock: &mut MutexGuard<'_, Superblock>) -> Result<bool, DiskError> {
        let (loose, weak, dead) = {
            let log = self.log.lock();
            let (free, low) = (log.segments.free(), log.segments.low());
            let loose = self.loosest(&log).filter(|_| free >= low);
            let weak = self.weakest(&log).filter(|_| free > low);
            let dead = log.segments.dead_before(u64::MAX, log.at.segment).len();
            (loose, weak, dead)
        };
        let effort = match self.profile {
            Profile::Fast => Effort::Quick,
            Profile::Balanced => Effort::Strong,
            Profile::Dense => Effort::Utmost,
        };
        if let Some(segment) = loose.or(weak) {
            let manner = Manner {
                effort,
                merge: true,
                repack: loose.is_none(),
            };
            self.collect(segment, manner)?;
            return Ok(true);
        }
        if dead > 0 {
            self.checkpoint(superblock, false)?;
        }
        Ok(dead > 0)
    }
}

impl Store {
    /// Writes zeroes to a free segment that the log will come to. Whether there was one to be written.
    ///
    /// A file system notes each first write to a place in its journal. On ext4 a batch of 4 KiB was flushed in 0.48 ms on a
    /// new file and in 0.21 ms where zeroes had been written before.
    fn prepare(&self) -> Result<bool, DiskError> {
        let Some(segment) = self.log.lock().segments.take_unready(READY) else {
            return Ok(false);
        };
        let written = write_zeroes(&*self.log.backing, segment, self.log.shape.segment_len);
        let mut log = self.log.lock();
        match written {
            Ok(()) => log.segments.made_ready(segment),
            // Nothing was lost: it is a free segment as before.
            Err(ref error) => {
                tracing::debug!(segment, %error, "preparing a segment");
                log.segments.cooled(&[segment]);
            }
        }
        Ok(written.is_ok())
    }
}

/// Fills a segment that holds nothing with zeroes.
pub(crate) fn write_zeroes(
    backing: &dyn Backing,
    segment: u32,
    segment_len: u32,
) -> Result<(), BackingError> {
    let zeroes = vec![0; (segment_len as usize).min(1 << 20)];
    let begin = u64::from(segment) * u64::from(segment_len);
    let mut done = 0;
    while done < segment_len as usize {
        let len = zeroes.len().min(segment_len as usize - done);
        backing.write(begin + done as u64, &[&zeroes[..len]])?;
        done += len;
    }
    Ok(())
}

/// How often the log was flushed of late, and how much for each.
#[derive(Debug, Default)]
struct Pulse {
    flushes: u64,
    logged: u64,
    /// Whether flushes are many and small.
    syncing: bool,
}

impl Pulse {
    /// Looks at the counters once more.
    fn feel(&mut self, store: &Store) {
        let flushes = store.counters.flushes.load(Ordering::Relaxed);
        let logged = store.log.lock().bytes_logged;
        let (more, bytes) = (flushes - self.flushes, logged - self.logged);
        // Too few to tell: as it was.
        if more >= FLUSHES_LEAST {
            self.syncing = bytes / more < SMALL_FLUSH;
            (self.flushes, self.logged) = (flushes, logged);
        }
    }
}

/// What the background thread does: whatever is due, and while the device is idle what makes it
/// smaller. It does not rest between two pieces of work, since writers may wait for the room.
pub(crate) fn run(store: &Store, shift: &mut Shift) {
    let idle_after = store.settings.tuning.idle_ms;
    let prepares = store.log.backing.geometry().prepares;
    let mut pulse = Pulse::default();
    let mut pause = Duration::ZERO;
    while shift.wait(pause) {
        let now = store.started.elapsed().as_millis() as u64;
        let last = store.counters.last_request_ms.load(Ordering::Relaxed);
        let idle = now.saturating_sub(last) >= idle_after;
        pulse.feel(store);
        let prepare = prepares && pulse.syncing && !idle;
        let done = store
            .maintain(idle)
            .and_then(|done| Ok(done || (prepare && store.prepare()?)));
        let busy = done.unwrap_or_else(|error| {
            tracing::warn!(%error, "background work");
            false
        });
        if store.log.lock().fatal().is_some() {
            return;
        }
        pause = if busy { Duration::ZERO } else { NAP };
    }
}

/// Bytes of log that a page of the map takes at most, with its record.
const PAGE_BYTES: u64 = 4096 + 32;
/// A checkpoint waits until it frees so many segments more than needed.
const DEAD_WANTED: usize = 2;
/// Checkpoints in a row that gain no segment, before a store is held to be full.
const FRUITLESS_MOST: u32 = 3;
/// Segments that are kept ready while flushes are many and small.
const READY: usize = 2;
/// Flushes between two looks at their number, at least.
const FLUSHES_LEAST: u64 = 20;
/// Bytes of log a flush under which it counts as small.
const SMALL_FLUSH: u64 = 64 << 10;
/// How often the background thread looks whether the device is idle.
const NAP: Duration = Duration::from_millis(250);
