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
    /// Bytes since the last chunk that was packed.
    raw_len: usize,
}

impl History {
    /// Keeps the last `keep` bytes.
    #[must_use]
    pub fn new(keep: usize) -> Self {
        Self {
            keep,
            ..Self::default()
        }
    }

    /// Appends a chunk and lets go of what is too old.
    pub fn push(&mut self, chunk: &Bytes) {
        self.raw_len = 0;
        self.append(chunk);
    }

    /// Appends a chunk that a sender sends raw. Once all that is kept were such chunks, nothing is: where raw is best
    /// nobody refers to them, and buffers that are held are not those still in the cache when the next is needed (2 to
    /// 3 % of a stream at memory speed). Not for a receiver, to which a chunk that did not shrink looks the same.
    pub fn push_raw(&mut self, chunk: &Bytes) {
        self.raw_len = self.raw_len.saturating_add(chunk.len());
        if self.raw_len < self.keep {
            self.append(chunk);
        } else {
            self.chunks.clear();
            self.len = 0;
        }
    }

    fn append(&mut self, chunk: &Bytes) {
        if self.keep == 0 {
            return;
        }
        self.len += chunk.len();
        self.chunks.push_back(chunk.clone());
        self.merge();
        while self
            .chunks
            .front()
            .is_some_and(|oldest| self.len - oldest.len() >= self.keep)
        {
            self.len -= self.chunks.pop_front().expect("there is an oldest").len();
        }
    }

    /// Joins small chunks at the end, as one adds binary numbers: each byte is copied some ten times at most, and 8 MiB
    /// of messages of one byte do not hold eight million buffers.
    fn merge(&mut self) {
        while self.chunks.len() >= 2 {
            let (before, last) = (
                &self.chunks[self.chunks.len() - 2],
                &self.chunks[self.chunks.len() - 1],
            );
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
        let mut last = Self {
            keep: len,
            ..Self::default()
        };
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
    fn only_raw_chunks_are_not_kept_and_what_follows_is() {
        let (mut history, mut scratch) = (History::new(8), Vec::new());
        let chunk = |text: &[u8]| Arc::new(Buf::from_vec(text.to_vec()));
        history.push(&chunk(b"abc"));
        history.push_raw(&chunk(b"defg"));
        assert_eq!(history.assemble(&mut scratch), b"abcdefg");
        history.push_raw(&chunk(b"hijk"));
        history.push_raw(&chunk(b"l"));
        assert!(history.is_empty() && history.chunks.is_empty());
        history.push(&chunk(b"mno"));
        history.push_raw(&chunk(b"pq"));
        assert_eq!(history.last(4).assemble(&mut scratch), b"nopq");
    }

    #[test]
    fn many_tiny_chunks_take_few_buffers() {
        let (mut history, mut all, mut scratch) = (History::new(100_000), Vec::new(), Vec::new());
        for index in 0..250_000_u32 {
            let chunk = vec![index as u8; 1 + (index % 3) as usize];
            all.extend_from_slice(&chunk);
            history.push(&Arc::new(Buf::from_vec(chunk)));
        }
        assert!(
            history.chunks.len() < 40,
            "{} buffers",
            history.chunks.len()
        );
        assert_eq!(history.len(), 100_000);
        assert!(history.assemble(&mut scratch) == &all[all.len() - 100_000..]);
    }
}
