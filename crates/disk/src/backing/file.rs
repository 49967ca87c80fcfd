//! A file or a block device by plain calls: `pread`, `pwritev`, `fdatasync`, `fallocate`.
//!
//! Buffered by the page cache; a write waits for nothing but memory. The lock is `flock`'s, which
//! belongs to the open file and is what `udevd` honours on block devices; a block device is opened
//! with `O_EXCL` besides, which mounting and device mapper respect.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, IoSlice},
    os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{
    fs::{FallocateFlags, OFlags, fallocate},
    io::{Errno, pwritev},
};

use super::{Backing, BackingError, Geometry, check_range};

/// A file or a block device, opened for writing and locked.
#[derive(Debug)]
pub struct FileBacking {
    file: File,
    path: PathBuf,
    size: AtomicU64,
    is_block_device: bool,
    /// On a file system that is not memory.
    prepares: bool,
}

impl FileBacking {
    /// Opens a file or block device that is there, and locks it.
    ///
    /// # Errors
    /// [`BackingError::Busy`] if another writer holds it; else see [`BackingError`].
    pub fn open(path: &Path) -> Result<Self, BackingError> {
        Self::open_with(path, false)
    }

    /// Makes a new sparse file of `size` bytes and locks it. Fails if something is there.
    ///
    /// # Errors
    /// See [`BackingError`].
    pub fn create(path: &Path, size: u64) -> Result<Self, BackingError> {
        let backing = Self::open_with(path, true)?;
        backing.grow(size)?;
        // The file's name, too, must survive a crash.
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))
            .and_then(|directory| directory.sync_all())
            .map_err(|error| BackingError::from_io("create", 0, size, &error))?;
        Ok(backing)
    }

    fn open_with(path: &Path, create: bool) -> Result<Self, BackingError> {
        let failed = |error: &io::Error| BackingError::from_io("open", 0, 0, error);
        let is_block_device = path
            .metadata()
            .is_ok_and(|metadata| metadata.file_type().is_block_device());
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(create);
        if is_block_device {
            options.custom_flags(OFlags::EXCL.bits() as i32);
        }
        let file = options.open(path).map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => busy(path),
            _ => failed(&error),
        })?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(busy(path)),
            Err(TryLockError::Error(error)) => return Err(failed(&error)),
        }
        let size = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))
            .map_err(|error| failed(&error.into()))?;
        let prepares = !is_block_device && !is_in_memory(&file);
        Ok(Self {
            file,
            path: path.to_owned(),
            size: AtomicU64::new(size),
            is_block_device,
            prepares,
        })
    }
}

impl FileBacking {
    /// The open file, for those who write past the page cache.
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

/// Whether a file is on tmpfs.
pub(super) fn is_in_memory(file: &File) -> bool {
    /// `TMPFS_MAGIC`.
    const TMPFS: i64 = 0x0102_1994;
    rustix::fs::fstatfs(file).is_ok_and(|system| system.f_type == TMPFS)
}

fn busy(path: &Path) -> BackingError {
    BackingError::Busy {
        name: path.display().to_string(),
    }
}

impl Backing for FileBacking {
    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            prepares: self.prepares,
            ..Geometry::default()
        }
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BackingError> {
        check_range(offset, out.len() as u64, self.size())?;
        let len = out.len() as u64;
        self.file
            .read_exact_at(out, offset)
            .map_err(|error| BackingError::from_io("read", offset, len, &error))
    }

    fn write(&self, offset: u64, parts: &[&[u8]]) -> Result<(), BackingError> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        check_range(offset, len, self.size())?;
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut left = slices.as_mut_slice();
        let mut at = offset;
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            match pwritev(&self.file, left, at) {
                Ok(0) => {
                    let error = io::Error::from(io::ErrorKind::WriteZero);
                    return Err(BackingError::from_io("write", offset, len, &error));
                }
                Ok(written) => {
                    at += written as u64;
                    IoSlice::advance_slices(&mut left, written);
                }
                Err(Errno::INTR) => {}
                Err(error) => {
                    return Err(BackingError::from_io("write", offset, len, &error.into()));
                }
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), BackingError> {
        self.file
            .sync_data()
            .map_err(|error| BackingError::from_io("flush", 0, 0, &error))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), BackingError> {
        check_range(offset, len, self.size())?;
        if self.is_block_device {
            return narrows_io::blockdev::discard(&self.file, offset, len)
                .map_err(|error| BackingError::from_io("discard", offset, len, &error));
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.file, flags, offset, len)
            .map_err(|error| BackingError::from_io("discard", offset, len, &error.into()))
    }

    fn grow(&self, size: u64) -> Result<(), BackingError> {
        if size <= self.size() {
            return Ok(());
        }
        if self.is_block_device {
            return Err(BackingError::Unsupported {
                what: "growing a block device; grow the device itself, then open it again",
            });
        }
        self.file
            .set_len(size)
            .and_then(|()| self.file.sync_all())
            .map_err(|error| BackingError::from_io("grow", 0, size, &error))?;
        self.size.store(size, Ordering::Release);
        Ok(())
    }
}
