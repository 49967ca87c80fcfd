//! A file for pages that do not pack, or that nobody asks for: one page a frame of 4 KiB.
//!
//! What it holds is worth nothing without the process that wrote it, so a file is taken only if it is new, empty or
//! bears our mark, and its old content is dropped. A file that we make has no name from the start, so that its room
//! comes back however the process ends; any other is left empty. Opened with `O_DIRECT` where the file system can:
//! through the page cache, a page would stay in memory after it was written back to save memory.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use parking_lot::Mutex;

use crate::page::Page;

const FRAME: u64 = 4096;
const MARK: &[u8] = b"narrows memory backing, volatile\n";
/// So far into a device file systems, arrays and volumes have what tells them: btrfs at 64 KiB, ZFS at 16 KiB, RAID at
/// 4 KiB.
const HEAD: u64 = 1 << 20;

/// Why a file is not used. Each variant is one thing its owner should do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackingError {
    /// It holds something that is not ours.
    #[error("{} is neither empty nor a backing file of ours; name another, or empty it", .0.display())]
    NotOurs(PathBuf),
    /// Another process has it.
    #[error("{} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// The system refuses.
    #[error("cannot use {} as a backing file: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's word.
        source: io::Error,
    },
}

/// The file, and which of its frames are free.
#[derive(Debug)]
pub struct Backing {
    file: File,
    is_device: bool,
    frames: Mutex<Frames>,
    limit: u64,
    used: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    /// A write failed; the file takes no more pages. What it has is still read.
    poisoned: AtomicBool,
}

#[derive(Debug, Default)]
struct Frames {
    /// Frames given back.
    free: Vec<u32>,
    /// Frames from here on were never used. Frame 0 is the mark.
    next: u32,
}

/// A page where `O_DIRECT` can reach it.
#[derive(Debug)]
#[repr(C, align(4096))]
struct Aligned(Page);

impl Backing {
    /// Opens or makes the file, for at most `limit` bytes; where that is `None`, what a block device has, or no limit
    /// but the file system's.
    ///
    /// # Errors
    /// See [`BackingError`].
    pub fn open(path: &Path, limit: Option<u64>) -> Result<Self, BackingError> {
        let fault = |source| BackingError::Io {
            path: path.into(),
            source,
        };
        let open = |flags| {
            // Of a device this takes only one that nobody has mounted or claimed. Pages are nobody else's to read.
            let is_device = path
                .metadata()
                .is_ok_and(|it| it.file_type().is_block_device());
            let exclusive = if is_device { libc::O_EXCL } else { 0 };
            let mut how = OpenOptions::new();
            how.read(true)
                .write(true)
                .create(!is_device)
                .truncate(false)
                .mode(0o600);
            how.custom_flags(flags | exclusive).open(path)
        };
        let is_new = fs::symlink_metadata(path).is_err();
        let file = open(libc::O_DIRECT).or_else(|_| open(0)).map_err(fault)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(BackingError::InUse(path.into())),
            Err(std::fs::TryLockError::Error(source)) => return Err(fault(source)),
        }
        let metadata = file.metadata().map_err(fault)?;
        let is_device = metadata.file_type().is_block_device();
        let mut first = Box::new(Aligned([0; FRAME as usize]));
        file.read_at(&mut first.0, 0).map_err(fault)?;
        let blank = if is_device {
            is_zero(&file).map_err(fault)?
        } else {
            metadata.len() == 0
        };
        if !blank && !first.0.starts_with(MARK) {
            return Err(BackingError::NotOurs(path.into()));
        }
        if is_new {
            fs::remove_file(path).map_err(fault)?;
        }
        let size = match is_device {
            true => device_len(&file).map_err(fault)?,
            false => {
                file.set_len(0).map_err(fault)?;
                u64::MAX
            }
        };
        first.0 = [0; FRAME as usize];
        first.0[..MARK.len()].copy_from_slice(MARK);
        file.write_all_at(&first.0, 0).map_err(fault)?;
        let limit = limit.map_or(size, |limit| limit.saturating_add(FRAME).min(size)) / FRAME;
        Ok(Self {
            file,
            is_device,
            frames: Mutex::new(Frames {
                free: Vec::new(),
                next: 1,
            }),
            limit: limit.min(u64::from(u32::MAX)),
            used: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            poisoned: AtomicBool::new(false),
        })
    }

    /// Whether a page may be put.
    pub(crate) fn has_room(&self) -> bool {
        !self.poisoned.load(Ordering::Relaxed) && {
            let frames = self.frames.lock();
            !frames.free.is_empty() || u64::from(frames.next) < self.limit
        }
    }

    /// Stores a page and says in which frame; `None` where there is no room, or the file fails.
    pub(crate) fn put(&self, page: &Page) -> Option<u64> {
        if self.poisoned.load(Ordering::Relaxed) {
            return None;
        }
        let frame = {
            let mut frames = self.frames.lock();
            match frames.free.pop() {
                Some(frame) => frame,
                None if u64::from(frames.next) < self.limit => {
                    frames.next += 1;
                    frames.next - 1
                }
                None => return None,
            }
        };
        let aligned = Box::new(Aligned(*page));
        if let Err(fault) = self.file.write_all_at(&aligned.0, u64::from(frame) * FRAME) {
            tracing::error!(%fault, "the backing file takes no more pages");
            self.poisoned.store(true, Ordering::Relaxed);
            return None;
        }
        self.used.fetch_add(1, Ordering::Relaxed);
        self.writes.fetch_add(1, Ordering::Relaxed);
        Some(frame.into())
    }

    /// Reads the page in `frame`.
    pub(crate) fn get(&self, frame: u64, page: &mut Page) -> io::Result<()> {
        let mut aligned = Box::new(Aligned([0; FRAME as usize]));
        self.file.read_exact_at(&mut aligned.0, frame * FRAME)?;
        *page = aligned.0;
        self.reads.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn free(&self, frame: u64) {
        self.used.fetch_sub(1, Ordering::Relaxed);
        self.frames.lock().free.push(frame as u32);
    }

    /// Frames in use, pages read and pages written: `bd_count`, `bd_reads` and `bd_writes` of zram, in 4 KiB.
    #[must_use]
    pub fn counts(&self) -> [u64; 3] {
        [&self.used, &self.reads, &self.writes].map(|count| count.load(Ordering::Relaxed))
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        let emptied = match self.is_device {
            true => fill(&self.file),
            false => self.file.set_len(0),
        };
        if let Err(fault) = emptied {
            tracing::warn!(%fault, "the backing file keeps what it has");
        }
    }
}

/// Whether a device's first MiB, or all of a shorter one, is zero.
fn is_zero(device: &File) -> io::Result<bool> {
    let mut frame = Box::new(Aligned([0; FRAME as usize]));
    for at in (0..HEAD).step_by(FRAME as usize) {
        let len = device.read_at(&mut frame.0, at)?;
        if frame.0[..len].iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes that so, lest our mark vouch for what somebody puts behind it later.
fn fill(device: &File) -> io::Result<()> {
    let zeroes = Box::new(Aligned([0; FRAME as usize]));
    let end = device_len(device)?.min(HEAD) / FRAME * FRAME;
    (0..end)
        .step_by(FRAME as usize)
        .try_for_each(|at| device.write_all_at(&zeroes.0, at))
}

/// The length of a block device, which its metadata does not say.
fn device_len(mut file: &File) -> io::Result<u64> {
    io::Seek::seek(&mut file, io::SeekFrom::End(0))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_device_is_blank_only_if_its_first_mib_is() {
        let file = tempfile::tempfile().unwrap();
        assert!(is_zero(&file).unwrap());
        file.set_len(2 * HEAD).unwrap();
        assert!(is_zero(&file).unwrap());
        // Where RAID, ZFS and btrfs begin.
        for at in [0, 4096, 16 << 10, 64 << 10, HEAD - 1] {
            file.write_all_at(&[1], at).unwrap();
            assert!(!is_zero(&file).unwrap(), "{at}");
            fill(&file).unwrap();
            assert!(is_zero(&file).unwrap(), "{at}");
        }
        file.write_all_at(&[1], HEAD).unwrap();
        assert!(is_zero(&file).unwrap());
    }

    #[test]
    fn nothing_is_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        let backing = Backing::open(&path, None).unwrap();
        assert!(!path.exists(), "not even if nobody drops it");
        let frame = backing.put(&[1; 4096]).unwrap();
        let mut page = [0; 4096];
        backing.get(frame, &mut page).unwrap();
        assert_eq!(page, [1; 4096]);

        // A file that was there has been made for us as it is, and stays.
        fs::write(&path, "").unwrap();
        let backing = Backing::open(&path, None).unwrap();
        backing.put(&[1; 4096]).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 2 * FRAME);
        drop(backing);
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    }

    #[test]
    fn files_of_others_are_left_alone_and_frames_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("theirs");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(
            Backing::open(&path, None),
            Err(BackingError::NotOurs(_))
        ));
        assert_eq!(fs::read(&path).unwrap(), b"precious");

        let path = dir.path().join("ours");
        fs::write(&path, "").unwrap();
        let backing = Backing::open(&path, Some(2 * FRAME)).unwrap();
        assert!(matches!(
            Backing::open(&path, None),
            Err(BackingError::InUse(_))
        ));
        let first = backing.put(&[1; 4096]).unwrap();
        assert!(backing.has_room());
        let second = backing.put(&[2; 4096]).unwrap();
        assert!(!backing.has_room());
        assert_eq!(backing.put(&[3; 4096]), None);
        let mut page = [0; 4096];
        for (frame, byte) in [(first, 1), (second, 2)] {
            backing.get(frame, &mut page).unwrap();
            assert_eq!(page, [byte; 4096]);
        }
        backing.free(first);
        assert!(backing.has_room());
        assert_eq!(backing.put(&[4; 4096]), Some(first));
        assert_eq!(backing.counts(), [2, 2, 3]);
        drop(backing);
        assert_eq!(Backing::open(&path, None).unwrap().counts(), [0; 3]);
    }
}
