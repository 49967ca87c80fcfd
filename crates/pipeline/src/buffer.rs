//! Buffers that are used again.
//!
//! Why: a stream of 256 KiB chunks at 3 GB/s asks for 12,000 buffers a second; from the allocator each would be fresh
//! pages to fault in and zero. Shelves hold buffers by size, four sizes to each power of two so that at most a fifth of
//! a buffer is idle, last in, first out so that the next one is still in the processor's cache. All bytes of a buffer
//! are initialised once, when it is made, and a reader never sees beyond the length that was filled.
//!
//! Long ones begin with a cache line. Where they would begin by themselves, 16 bytes into a page, AMD's Zen 3 copies
//! what begins with a page (a file's, a pipe's) three times slower: `rep movsb`, which the kernel uses, does so where
//! the destination is 1 to 31 bytes behind the source, modulo the page (measured: 2.0 and 6.7 GB/s from a file in
//! memory).

use std::{
    ops::{Deref, DerefMut},
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;

/// Filled bytes that several hold: the frame that travels, and the history of its channel.
pub type Bytes = Arc<Buf>;

const LEN_MIN: usize = 256;
const LEN_MAX: usize = 32 << 20;
const SHELVES: usize = shelf(LEN_MAX).0 + 1;
/// Where buffers of at least [`ALIGNED_LEN_MIN`] begin: at a multiple of so many bytes.
const ALIGN: usize = 64;
const ALIGNED_LEN_MIN: usize = 4096;

/// Bytes that a buffer of a shelf has besides, to be aligned.
const fn slack(rounded: usize) -> usize {
    if rounded < ALIGNED_LEN_MIN { 0 } else { ALIGN }
}

/// Which shelf serves `len` bytes, and the length of its buffers.
const fn shelf(len: usize) -> (usize, usize) {
    let len = if len < LEN_MIN { LEN_MIN } else { len };
    let octave = len.ilog2();
    let step = 1 << (octave - 2);
    let rounded = len.next_multiple_of(step);
    (
        (octave - LEN_MIN.ilog2()) as usize * 4 + (rounded >> (octave - 2)) - 4,
        rounded,
    )
}

/// A stock of buffers.
#[derive(Debug)]
pub struct BufferPool {
    shelves: [Mutex<Vec<Vec<u8>>>; SHELVES],
    kept_bytes: AtomicUsize,
    kept_bytes_max: usize,
}

/// One buffer. Derefs to its filled part; goes back to its pool when dropped.
#[derive(Debug)]
pub struct Buf {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
    pool: Weak<BufferPool>,
}

impl BufferPool {
    /// A pool that keeps at most `kept_bytes_max` bytes of unused buffers.
    #[must_use]
    pub fn new(kept_bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            shelves: std::array::from_fn(|_| Mutex::default()),
            kept_bytes: AtomicUsize::new(0),
            kept_bytes_max,
        })
    }

    /// A buffer of `len` filled bytes; what they are is left over from earlier use.
    ///
    /// # Panics
    /// When `len` is more than 32 MiB; callers check against their limits first.
    #[must_use]
    pub fn take(self: &Arc<Self>, len: usize) -> Buf {
        assert!(len <= LEN_MAX, "a buffer of {len} bytes");
        let (shelf, rounded) = shelf(len);
        let reused = self.shelves[shelf].lock().pop();
        let bytes = reused
            .inspect(|bytes| {
                self.kept_bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
            })
            .unwrap_or_else(|| vec![0; rounded + slack(rounded)]);
        let start = bytes.as_ptr().align_offset(ALIGN).min(slack(rounded));
        Buf {
            bytes,
            start,
            len,
            pool: Arc::downgrade(self),
        }
    }
}

impl Buf {
    /// A buffer of its own, outside any pool.
    #[must_use]
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        Self {
            start: 0,
            len: bytes.len(),
            bytes,
            pool: Weak::new(),
        }
    }

    /// Shortens the filled part.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }
}

impl AsRef<[u8]> for Buf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else {
            return;
        };
        let bytes = std::mem::take(&mut self.bytes);
        if pool.kept_bytes.load(Ordering::Relaxed) + bytes.len() <= pool.kept_bytes_max {
            pool.kept_bytes.fetch_add(bytes.len(), Ordering::Relaxed);
            let rounded = bytes.len() - slack(bytes.len());
            pool.shelves[shelf(rounded).0].lock().push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_has_a_shelf_and_little_is_idle() {
        for len in (1..=70_000).chain([1 << 20, (1 << 24) + 1, 19 << 20, LEN_MAX]) {
            let (at, rounded) = shelf(len);
            assert!(
                at < SHELVES && rounded >= len && (len < LEN_MIN || (rounded - len) * 5 <= rounded),
                "{len}"
            );
            assert_eq!(shelf(rounded), (at, rounded), "{len}");
        }
    }

    #[test]
    fn long_buffers_begin_with_a_cache_line_and_go_back_to_their_shelf() {
        let pool = BufferPool::new(64 << 20);
        for len in [
            ALIGNED_LEN_MIN - 511,
            ALIGNED_LEN_MIN,
            5000,
            64 << 10,
            (256 << 10) + 1,
            20 << 20,
        ] {
            let buf = pool.take(len);
            let at = buf.as_ptr();
            assert!(at.addr().is_multiple_of(ALIGN), "{len}");
            assert_eq!(buf.len(), len);
            drop(buf);
            assert_eq!(pool.take(len).as_ptr(), at, "{len}");
        }
    }

    #[test]
    fn a_buffer_comes_back_and_no_more_than_the_limit_is_kept() {
        let pool = BufferPool::new(8192);
        let first = pool.take(5000);
        let at = first.as_ptr();
        drop(first);
        assert_eq!(pool.take(5100).as_ptr(), at);
        drop((pool.take(4096), pool.take(4096), pool.take(4096)));
        assert!(pool.kept_bytes.load(Ordering::Relaxed) <= 8192);
    }
}
