//! Where a store keeps its bytes: a file, a block device, an image in an object store, or a
//! simulation.
//!
//! The trait is small on purpose. All ordering logic (what must be durable before what) lives above
//! it, so a backing only moves bytes. One contract matters: **what a returned [`Backing::write`]
//! wrote may be lost, kept in part, or kept in another order than it was written, until a
//! [`Backing::flush`] that began after it returned has returned.**

mod ahead;
mod direct;
mod file;
mod named;
mod rbd;
mod simulated;

use std::{fmt::Debug, io};

pub use self::{
    direct::DirectBacking,
    file::FileBacking,
    named::{create, is_image, open},
    rbd::RbdBacking,
    simulated::{Call, CrashChoice, CrashCursor, FaultPlan, Op, SimulatedDevice},
};

/// What a backing likes. Fixed while it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Writes and discards begin and end at multiples of this many bytes. A power of two from 512
    /// to 4096.
    pub alignment: u32,
    /// Reads begin and end at multiples of this many bytes: 1 where any range may be read, as of a
    /// buffered file; [`Geometry::alignment`] where not, as with `O_DIRECT`.
    pub read_alignment: u32,
    /// Writes of about this many bytes are fastest: 512 KiB to 1 MiB. A batch is sealed at this
    /// length.
    pub write_preferred: u32,
    /// Segments begin and end at multiples of this many bytes; the object size of an object store,
    /// else 4096.
    pub segment_alignment: u32,
    /// A small write to a place that was never written is dear to flush, since the file system must
    /// note it: writing zeroes there beforehand pays.
    pub prepares: bool,
    /// A discard gives space back. Where it does not, the store still calls it and ignores
    /// `Unsupported`.
    pub discards: bool,
}

impl Default for Geometry {
    fn default() -> Self {
        Self {
            alignment: 4096,
            read_alignment: 1,
            write_preferred: 1 << 20,
            segment_alignment: 4096,
            prepares: false,
            discards: true,
        }
    }
}

/// Bytes at offsets, from several threads at once.
///
/// Opening, locking out a second writer and closing are the implementation's own matter: whoever
/// holds a `Backing` holds the lock.
pub trait Backing: Debug + Send + Sync {
    /// Length in bytes. Changes only by [`Backing::grow`].
    fn size(&self) -> u64;

    /// What it likes.
    fn geometry(&self) -> Geometry;

    /// How messages name it: a path, `rbd:pool/image`.
    fn name(&self) -> String;

    /// Fills `out` from `offset`. `offset` and `out.len()` are multiples of
    /// [`Geometry::read_alignment`]; memory need not be aligned (the backing copies where its calls
    /// need that). Reads see every write that returned.
    ///
    /// # Errors
    /// See [`BackingError`]; a read beyond the end is [`BackingError::Bounds`]. The content of
    /// `out` is unspecified then.
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BackingError>;

    /// Writes `parts` one after the other from `offset`. `offset` and the sum of lengths are
    /// multiples of [`Geometry::alignment`]; single parts need not be. Short writes are continued,
    /// not reported.
    ///
    /// # Errors
    /// See [`BackingError`]. Any part of the range may have been written then.
    fn write(&self, offset: u64, parts: &[&[u8]]) -> Result<(), BackingError>;

    /// Returns when every write and discard that returned before this call is durable.
    ///
    /// # Errors
    /// See [`BackingError`]. What is durable is unknown then, and a second call must not be taken
    /// for an answer.
    fn flush(&self) -> Result<(), BackingError>;

    /// The content of the range is no longer wanted. What it reads as afterwards is unspecified.
    ///
    /// # Errors
    /// See [`BackingError`]; [`BackingError::Unsupported`] is harmless.
    fn discard(&self, offset: u64, len: u64) -> Result<(), BackingError>;

    /// Makes it at least `size` bytes long. Never shrinks.
    ///
    /// # Errors
    /// See [`BackingError`]; [`BackingError::Unsupported`] where its length is not ours to change.
    fn grow(&self, size: u64) -> Result<(), BackingError>;
}

/// Why a call on a backing failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BackingError {
    /// The system or the service said no.
    #[error("{call} of {len} bytes at {offset} failed: {reason}")]
    Io {
        /// `read`, `write`, `flush`, `discard`, `grow`, `open`.
        call: &'static str,
        /// First byte of the range, 0 where there is none.
        offset: u64,
        /// Length of the range in bytes, 0 where there is none.
        len: u64,
        /// The error number, 0 if there is none.
        code: i32,
        /// The error in words.
        reason: String,
    },
    /// No space beneath: the file system or the pool is full. Trying again later may succeed.
    #[error("no space for {len} bytes at {offset}: {reason}")]
    NoSpace {
        /// First byte of the range.
        offset: u64,
        /// Length of the range in bytes.
        len: u64,
        /// The error in words.
        reason: String,
    },
    /// The range does not lie within the backing.
    #[error("{len} bytes at {offset} are beyond the end at {size}")]
    Bounds {
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Length of the backing.
        size: u64,
    },
    /// Another process (or this one) has it open for writing.
    #[error("{name} is in use by another writer")]
    Busy {
        /// What is in use.
        name: String,
    },
    /// It cannot do that.
    #[error("not supported: {what}")]
    Unsupported {
        /// What was asked.
        what: &'static str,
    },
}

impl BackingError {
    /// What an I/O error of `call` on a range becomes.
    #[must_use]
    pub fn from_io(call: &'static str, offset: u64, len: u64, error: &io::Error) -> Self {
        let reason = error.to_string();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace {
                offset,
                len,
                reason,
            },
            io::ErrorKind::Unsupported => Self::Unsupported { what: call },
            _ => Self::Io {
                call,
                offset,
                len,
                code: error.raw_os_error().unwrap_or(0),
                reason,
            },
        }
    }

    /// Whether there is nothing of that name.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io { code, .. } if *code == rustix::io::Errno::NOENT.raw_os_error())
    }

    /// Whether trying again may succeed once there is space.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::NoSpace { .. })
    }
}

/// Checks that a range lies within `size`.
pub(crate) fn check_range(offset: u64, len: u64, size: u64) -> Result<(), BackingError> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(BackingError::Bounds { offset, len, size }),
    }
}
