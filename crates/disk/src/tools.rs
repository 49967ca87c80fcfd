//! What is done to a store besides serving it: checking, listing, growing, compacting.

use std::{fmt::Write as _, io, sync::Arc};

use serde::Serialize;

use crate::{
    backing::Backing,
    disk::{Disk, guaranteed_max},
    error::DiskError,
    format::{
        BLOCK,
        entry::{Entry, Place},
        superblock::{COPIES, Superblock, logical_max},
    },
    gc::{Manner, batches},
    log::read_at,
    pack::Effort,
    recovery::{self, backing_failed},
    settings::{Profile, Provision, Settings},
};

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Findings {
    /// What is wrong, in words. Data is lost or will be.
    pub errors: Vec<String>,
    /// What is not as it should be, but loses nothing.
    pub notes: Vec<String>,
    /// Blocks with data.
    pub blocks: u64,
    /// Units that hold them.
    pub units: u64,
    /// Batches replayed.
    pub batches: u64,
}

impl Findings {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.errors.is_empty()
    }
}

/// Checks superblocks, map and log of a store that nobody has open. Reads no data; writes nothing.
/// Takes 24 bytes of memory for each unit.
///
/// # Errors
/// [`DiskError::Backing`] if the backing fails; damage is a finding.
pub fn fsck(backing: &Arc<dyn Backing>) -> Result<Findings, DiskError> {
    let mut findings = Findings::default();
    let mut copies = Vec::new();
    for copy in COPIES {
        let mut bytes = Vec::new();
        read_at(&**backing, copy, &mut bytes, BLOCK)
            .map_err(|source| backing_failed(&**backing, source))?;
        copies.push(Superblock::parse(&bytes));
    }
    match (&copies[0], &copies[1]) {
        (Ok(a), Ok(b)) if a.generation != b.generation => findings
            .notes
            .push("a crash left one superblock older; opening the store renews it".to_owned()),
        (Err(error), _) | (_, Err(error)) => {
            findings.notes.push(format!("one superblock: {error}"));
        }
        _ => {}
    }
    let settings = Settings::default().read_only(true).background(false);
    let disk = match Disk::open(Arc::clone(backing), settings) {
        Ok(disk) => disk,
        Err(error @ DiskError::Backing { .. }) => return Err(error),
        Err(error) => {
            findings.errors.push(error.to_string());
            return Ok(findings);
        }
    };
    findings.batches = disk.store.log.lock().replayed;
    check_units(&disk, &mut findings);
    Ok(findings)
}

/// Checks that blocks of one unit agree on it, and that no two units overlap.
fn check_units(disk: &Disk, findings: &mut Findings) {
    let mut units: Vec<(Place, u64, usize)> = Vec::new();
    disk.store.log.map.for_each_data(|block, entry| {
        findings.blocks += 1;
        if let Some(place) = entry.place() {
            let first = block.wrapping_sub(entry.index() as u64);
            units.push((place, first, entry.blocks()));
        }
    });
    for (level, pages) in disk.store.log.lock().tree.iter().enumerate() {
        for (index, entry) in pages.iter().enumerate() {
            if let Some(place) = entry.place() {
                units.push((place, ((level as u64) + 1) << 48 | index as u64, 1));
            }
        }
    }
    units.sort_unstable();
    units.dedup();
    findings.units = units.len() as u64;
    for pair in units.windows(2) {
        let ((a, first_a, _), (b, first_b, _)) = (pair[0], pair[1]);
        let overlap = a.segment == b.segment && a.granule + u32::from(a.granules) > b.granule;
        if overlap && findings.errors.len() < ERRORS_MAX {
            findings.errors.push(format!(
                "segment {}: the units of blocks {first_a} and {first_b} overlap at {}",
                a.segment,
                b.offset()
            ));
        }
    }
}

/// Lists superblocks and the batches of all segments, for people, one line each. Writes nothing to
/// the store.
///
/// # Errors
/// [`DiskError`] if there is no store or the backing fails; what `out` fails with is
/// [`DiskError::Settings`].
pub fn dump(backing: &dyn Backing, out: &mut dyn io::Write) -> Result<(), DiskError> {
    let failed = |error: io::Error| DiskError::Settings(format!("writing the list: {error}"));
    let superblock = recovery::read_superblock(backing)?;
    writeln!(out, "{superblock:#?}").map_err(failed)?;
    let len = superblock.segment_len as usize;
    let mut bytes = Vec::new();
    for segment in 1..superblock.segments {
        let at = u64::from(segment) * len as u64;
        read_at(backing, at, &mut bytes, len).map_err(|source| backing_failed(backing, source))?;
        for found in batches(segment, &bytes, &superblock.uuid) {
            let header = found.header;
            let ours = if header.epoch == superblock.epoch {
                ""
            } else {
                " (older epoch)"
            };
            let mut line = format!(
                "segment {segment} at {}: batch {}, {} bytes, durable to {}{ours}:",
                header.offset, header.seq, header.len, header.durable
            );
            for record in &found.records {
                let _ = write!(line, " {:?} {}+{}", record.kind, record.first, record.count);
            }
            writeln!(out, "{line}").map_err(failed)?;
        }
    }
    Ok(())
}

/// Makes a store that nobody has open larger: its device to `logical` bytes, its backing to
/// `physical` bytes. What is not larger than now stays.
///
/// # Errors
/// [`DiskError::Settings`] if the sizes make no sense; else see [`DiskError`].
pub fn grow(
    backing: &Arc<dyn Backing>,
    logical: Option<u64>,
    physical: Option<u64>,
) -> Result<(), DiskError> {
    let now = recovery::read_superblock(&**backing)?;
    let mut target = now;
    if let Some(physical) = physical {
        backing
            .grow(physical)
            .map_err(|source| backing_failed(&**backing, source))?;
    }
    let segments = backing.size() / u64::from(now.segment_len);
    let most = u64::from(crate::format::SEGMENTS_MAX);
    target.segments = (segments.min(most) as u32).max(now.segments);
    if let Some(logical) = logical {
        let rounded = logical.checked_next_multiple_of(BLOCK as u64);
        let most = logical_max(target.segments, now.segment_len);
        let fits = rounded.filter(|bytes| (now.logical..=most).contains(bytes));
        target.logical = fits.ok_or_else(|| {
            DiskError::Settings(format!(
                "{logical} bytes: from the present {} to {most} is possible",
                now.logical
            ))
        })?;
    }
    let guaranteed = guaranteed_max(target.segments, target.segment_len.into());
    if now.provision == Provision::Guaranteed && target.logical > guaranteed {
        return Err(DiskError::Settings(format!(
            "{} bytes cannot be guaranteed: at most {guaranteed}",
            target.logical
        )));
    }
    let settings = Settings::default().background(false);
    let store = recovery::open_as(Arc::clone(backing), settings, |superblock| {
        superblock.logical = target.logical;
        superblock.segments = target.segments;
    })?;
    Disk::of(store).close()
}

impl Disk {
    /// Reads every block that holds data and checks it; the blocks that cannot be read. `progress`
    /// is told blocks done and in all. Requests go on meanwhile.
    #[must_use]
    pub fn scrub(&self, mut progress: impl FnMut(u64, u64)) -> Vec<u64> {
        let blocks = self.store.log.map.blocks();
        let mut bad = Vec::new();
        let mut raw = vec![0; SCRUB * BLOCK];
        let mut first = 0;
        self.store.with_scratch(|scratch| {
            while first < blocks {
                let count = (blocks - first).min(SCRUB as u64);
                let all = &mut raw[..count as usize * BLOCK];
                let reader = self.store.reader();
                if reader.blocks(first, all, &mut scratch.read).is_err() {
                    for (i, block) in all.chunks_mut(BLOCK).enumerate() {
                        let number = first + i as u64;
                        if reader.blocks(number, block, &mut scratch.read).is_err() {
                            bad.push(number);
                        }
                    }
                }
                first += count;
                progress(first, blocks);
            }
        });
        bad
    }

    /// Collects all garbage and packs everything as hard as the profile allows. `progress` is told
    /// segments done and in all.
    ///
    /// # Errors
    /// See [`DiskError`].
    pub fn compact(&self, mut progress: impl FnMut(usize, usize)) -> Result<(), DiskError> {
        self.check_writable()?;
        self.store.flush()?;
        let manner = Manner {
            effort: match self.store.profile {
                Profile::Fast => Effort::Quick,
                Profile::Balanced => Effort::Strong,
                Profile::Dense => Effort::Utmost,
            },
            merge: true,
            repack: true,
        };
        let mut superblock = self.store.maintenance.lock();
        self.store.log.leave_segment()?;
        self.store.checkpoint(&mut superblock, false)?;
        let due: Vec<u32> = {
            let log = self.store.log.lock();
            let len = u64::from(log.segments.len());
            let worn = |live: u64| live < len - len / 16;
            log.segments
                .closed(log.at.segment)
                .filter(|(_, segment)| !segment.strong || worn(segment.live))
                .map(|(number, _)| number)
                .collect()
        };
        for (done, segment) in due.iter().enumerate() {
            let (live, free) = {
                let log = self.store.log.lock();
                (log.segments.get(*segment).live, log.segments.free())
            };
            if free <= COMPACT_FREE {
                self.store.checkpoint(&mut superblock, false)?;
            }
            if live > 0 {
                self.store.collect(*segment, manner)?;
            }
            progress(done + 1, due.len());
        }
        self.store.checkpoint(&mut superblock, false)?;
        let cool = self.store.log.lock().segments.cool(0);
        self.store.discard(&cool)
    }
}

/// Entries that a larger tree has more than a smaller one; which of its pages must be written so
/// that the root leads to all.
pub(crate) fn extend_tree(tree: &mut Vec<Vec<Entry>>, pages: usize) -> Vec<(u8, u32)> {
    let levels = tree.len();
    let mut count = pages;
    let mut level = 0;
    loop {
        if level == tree.len() {
            tree.push(Vec::new());
        }
        tree[level].resize(count, Entry::NONE);
        if count == 1 {
            break;
        }
        count = count.div_ceil(crate::format::FANOUT);
        level += 1;
    }
    (levels..tree.len()).map(|level| (level as u8, 0)).collect()
}

/// Blocks read at once by a scrub.
const SCRUB: usize = 64;
/// Errors listed by a check, at most.
const ERRORS_MAX: usize = 100;
/// With so few free segments a compaction makes a checkpoint first.
const COMPACT_FREE: usize = 4;
