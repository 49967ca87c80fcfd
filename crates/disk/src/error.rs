//! Why a store cannot be made, opened or run.

use narrows_core::BlockError;

use crate::{backing::BackingError, format::FormatError};

/// Why a store cannot be made, opened or run. Each variant is one thing to do next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The backing failed.
    #[error("{name}: {source}")]
    Backing {
        /// Which backing.
        name: String,
        /// What it said.
        source: BackingError,
    },
    /// What is on the backing is not a store. Nothing was changed.
    #[error("{name} holds no narrows disk: {what}")]
    NotADisk {
        /// Which backing.
        name: String,
        /// What was found.
        what: String,
    },
    /// The store was made by a newer version. Nothing was changed.
    #[error("{name}: {source}")]
    Newer {
        /// Which backing.
        name: String,
        /// What is newer.
        source: FormatError,
    },
    /// Something else is on the backing, and overwriting it was not asked for.
    #[error("{name} is not empty ({what}); say so if it is to be overwritten")]
    Occupied {
        /// Which backing.
        name: String,
        /// What was found.
        what: &'static str,
    },
    /// The store is damaged. Nothing was changed.
    #[error("damaged: {what} (segment {segment}, offset {offset})")]
    Damaged {
        /// What is damaged.
        what: String,
        /// Segment.
        segment: u32,
        /// Offset in it.
        offset: u32,
    },
    /// The backing is shorter than the store that was made on it.
    #[error("{name} is truncated: {found} bytes, the store was made on {expected}")]
    Truncated {
        /// Which backing.
        name: String,
        /// Bytes there are.
        found: u64,
        /// Bytes there should be.
        expected: u64,
    },
    /// The choice of sizes makes no sense.
    #[error("{0}")]
    Settings(String),
    /// A flush failed before, so that what is durable is not known. Nothing is written until the
    /// store is opened again.
    #[error(
        "the device takes no more writes: {0}; what was flushed before is safe. \
         Close it, and open it again"
    )]
    Poisoned(String),
    /// There is no room for data. Reads, trims and flushes go on; trimming makes room.
    #[error("no space: {0}")]
    NoSpace(String),
    /// The store was opened for reading.
    #[error("the store was opened read-only")]
    ReadOnly,
    /// The request makes no sense.
    #[error("invalid request: {0}")]
    Invalid(&'static str),
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
}

impl From<DiskError> for BlockError {
    fn from(error: DiskError) -> Self {
        match error {
            DiskError::NoSpace(what) => Self::NoSpace(what),
            DiskError::ReadOnly => Self::ReadOnly,
            DiskError::Invalid(what) => Self::Invalid(what),
            DiskError::Closed => Self::Shutdown,
            other => Self::Io(other.to_string()),
        }
    }
}
