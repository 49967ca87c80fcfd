//! The raw bytes that came just before a chunk, for codecs that refer back to them.
//!
//! Why references to whole chunks rather than one contiguous window: a raw stream at memory speed pays nothing for
//! history it never uses. Only a chunk that names history has it put together, into its worker's scratch; that copy
//! is 12 GB/s against the 0.05 GB/s of the codecs that profit.

use std::{collections::VecDeque, sync::Arc};

use crate::{Buf, Bytes};

/// Chunks up to this length together are worth one buffer.
const MERGED_LEN_MAX: usize = 16 << 10;

/// The last chunks of a channel, `keep` bytes of them or a little more.
#[derive(Debug, Clone, Default)]
pub struct History {
    chunks: VecDeque<Bytes>,
    len: usize,
    keep: usize,
}

impl History {
    /// Keeps the last `keep` bytes.
    #[must_use]
    pub fn new(keep: usize) -> Self {
        Self { keep, ..Self::default() }
    }

    /// Appends a chunk and lets go of what is too old.
    pub fn push(&mut self, chunk: &Bytes) {
        if self.keep == 0 {
            return;
        }
        self.len += chunk.len();
        self.chunks.push_back(chunk.clone());
        self.merge();
        while self.chunks.front().is_some_and(|oldest| self.len - oldest.len() >= self.keep) {
            self.len -= self.chunks.pop_front().expect("there is an oldest").len();
        }
    }

    /// Joins small chunks at the end, as one adds binary numbers: each byte is copied some ten times at most, and 8 MiB
    /// of messages of one byte do not hold eight million buffers.
    fn merge(&mut self) {
        while self.chunks.len() >= 2 {
            let (before, last) = (&self.chunks[self.chunks.len() - 2], &self.chunks[self.chunks.len() - 1]);
            if before.len() > 2 * last.len() || before.len() + last.len() > MERGED_LEN_MAX {
                return;
            }
            let merged = Arc::new(Buf::from_vec([&before[..], &last[..]].concat()));
            self.chunks.truncate(self.chunks.len() - 2);
            self.chunks.push_back(merged);
        }
    }

    /// Bytes at hand, at most `keep`.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len.min(self.keep)
    }

    /// Whether nothing is at hand.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Only the chunks that hold the last `len` bytes: cheap to clone and send to a worker.
    #[must_use]
    pub fn last(&self, len: usize) -> Self {
        let len = len.min(self.keep);
        let mut last = Self { keep: len, ..Self::default() };
        for chunk in self.chunks.iter().rev() {
            if last.len >= len {
                break;
            }
            last.len += chunk.len();
            last.chunks.push_front(chunk.clone());
        }
        last
    }

    /// Puts the last [`History::len`] bytes together in `scratch`.
    pub fn assemble<'a>(&self, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        scratch.clear();
        let mut skip = self.len - self.len();
        for chunk in &self.chunks {
            let from = skip.min(chunk.len());
            skip -= from;
            scratch.extend_from_slice(&chunk[from..]);
        }
        scratch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_are_put_together() {
        let mut history = History::new(5);
        let mut scratch = Vec::new();
        for chunk in [&b"abc"[..], b"de", b"fgh"] {
            history.push(&Arc::new(Buf::from_vec(chunk.to_vec())));
        }
        assert_eq!(history.len(), 5);
        assert_eq!(history.assemble(&mut scratch), b"defgh");
        assert_eq!(history.last(4).assemble(&mut scratch), b"efgh");
        assert_eq!(history.last(99).assemble(&mut scratch), b"defgh");
    }

    #[test]
    fn many_tiny_chunks_take_few_buffers() {
        let (mut history, mut all, mut scratch) = (History::new(100_000), Vec::new(), Vec::new());
        for index in 0..250_000_u32 {
            let chunk = vec![index as u8; 1 + (index % 3) as usize];
            all.extend_from_slice(&chunk);
            history.push(&Arc::new(Buf::from_vec(chunk)));
        }
        assert!(history.chunks.len() < 40, "{} buffers", history.chunks.len());
        assert_eq!(history.len(), 100_000);
        assert!(history.assemble(&mut scratch) == &all[all.len() - 100_000..]);
    }
}
