//! A block device, as whoever serves one sees it.
//!
//! Why here: the server (`nbd`) and what it serves (`memory`, `disk`) must not know each other.

use std::fmt::Debug;

/// What a device is. Fixed for as long as the device lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes in all.
    pub size: u64,
    /// Every request of this many bytes, aligned to as many, works; a power of two from 1 to 64 KiB.
    pub block_min: u32,
    /// Requests of this many bytes, aligned to as many, need no read before a write; a power of two from 512.
    pub block_preferred: u32,
    /// Writing calls fail with [`BlockError::ReadOnly`].
    pub read_only: bool,
    /// Seeking costs: clients order their requests.
    pub rotational: bool,
    /// A flush on one connection covers writes answered on others, so clients may spread requests over several.
    pub shared: bool,
    /// Zeroing is always faster than writing zeroes.
    pub fast_zero: bool,
    /// Which threads a server calls the device from.
    pub execution: Execution,
}

/// Which threads run a device's requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Execution {
    /// The thread that received the request. For memory: a hand-off costs more than the work.
    #[default]
    Inline,
    /// Up to this many threads of a connection, so that requests wait side by side and are answered as they finish.
    /// For devices that wait: a disk, a network. 0 counts as 1.
    Workers(u16),
}

/// How a range is to be zeroed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Zeroing {
    /// Keep the range provisioned: later writes to it should not run out of space.
    pub keep_allocated: bool,
    /// Fail with [`BlockError::Unsupported`] rather than take as long as writing zeroes would.
    pub fast_only: bool,
}

/// A run of bytes in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes, at least 1.
    pub len: u64,
    /// Nothing is stored for it.
    pub hole: bool,
    /// It reads as zeroes.
    pub zero: bool,
}

/// Why a request failed. Each variant is one error number of the NBD protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// What is stored cannot be read, or a device beneath failed.
    #[error("I/O error: {0}")]
    Io(String),
    /// A limit of space is reached. What was acknowledged before is safe; trimming makes room.
    #[error("no space: {0}")]
    NoSpace(String),
    /// The request makes no sense for this device.
    #[error("invalid request: {0}")]
    Invalid(&'static str),
    /// The device takes no writes.
    #[error("the device is read-only")]
    ReadOnly,
    /// The device cannot do this in the way asked for.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
    /// The device is going away.
    #[error("the device is shutting down")]
    Shutdown,
}

/// Bytes at offsets, from any thread. A request that fails may have been done in part, within its own range only.
///
/// A range given is within [`Shape::size`]; an implementation checks that all the same and answers
/// [`BlockError::Invalid`]. `fua` asks that the call's own effect is durable before it returns, as far as the device
/// is durable at all.
pub trait BlockDevice: Debug + Send + Sync {
    /// What it is.
    fn shape(&self) -> Shape;

    /// Fills `out` with what is at `offset`; zeroes where nothing was written.
    ///
    /// # Errors
    /// See [`BlockError`]; the content of `out` is unspecified then.
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BlockError>;

    /// Puts `data` at `offset`.
    ///
    /// # Errors
    /// See [`BlockError`].
    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), BlockError>;

    /// The content of the range is no longer wanted. What it reads as afterwards is the device's choice, but stable.
    ///
    /// # Errors
    /// See [`BlockError`].
    fn trim(&self, offset: u64, len: u64, fua: bool) -> Result<(), BlockError>;

    /// The range reads as zeroes from now on.
    ///
    /// # Errors
    /// See [`BlockError`].
    fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        how: Zeroing,
        fua: bool,
    ) -> Result<(), BlockError>;

    /// Returns when every write that returned before is durable.
    ///
    /// # Errors
    /// See [`BlockError`].
    fn flush(&self) -> Result<(), BlockError>;

    /// The range will be read soon. A hint: doing nothing is right.
    ///
    /// # Errors
    /// See [`BlockError`].
    fn cache(&self, _offset: u64, _len: u64) -> Result<(), BlockError> {
        Ok(())
    }

    /// Appends what is known of the range to `found`: from 1 to `max` extents that start at `offset`, none reaching
    /// beyond the range, neighbours in different states. They may end before the range does.
    ///
    /// # Errors
    /// See [`BlockError`].
    fn extents(
        &self,
        offset: u64,
        len: u64,
        max: usize,
        found: &mut Vec<Extent>,
    ) -> Result<(), BlockError>;
}
