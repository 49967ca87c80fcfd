//! Memory for batches that begins at a page, so that a backing with direct I/O need not copy it.

use crate::format::BLOCK;

/// A buffer of fixed capacity whose content begins at a multiple of 4096 in memory.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    /// An empty buffer for `capacity` bytes.
    pub(crate) fn new(capacity: usize) -> Self {
        let mut bytes: Vec<u8> = Vec::with_capacity(capacity + BLOCK);
        let start = bytes.as_ptr().align_offset(BLOCK).min(BLOCK);
        bytes.resize(start, 0);
        Self { bytes, start }
    }

    /// Whether `bytes` more fit without moving it.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity() - self.start
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(self.start);
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }

    pub(crate) fn push(&mut self, more: &[u8]) {
        self.bytes.extend_from_slice(more);
    }

    /// Appends zeroes up to `len` bytes.
    pub(crate) fn pad_to(&mut self, len: usize) {
        self.bytes.resize(self.start + len, 0);
    }
}
