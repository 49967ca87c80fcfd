//! Replies that wait to be sent, in one buffer, so that many small ones leave in one system call.

use crate::proto::{PIECE, chunk};

/// Bytes that make it worth sending before more requests are looked at: enough for few system calls, and little enough
/// that a client gets on with its work while the next requests are done.
pub const FULL: usize = 64 << 10;
/// Most it holds of replies to requests: up to [`FULL`], and one more with a piece of data.
pub const CAPACITY: usize = FULL + PIECE + 4096;

/// The buffer. It grows to what the longest replies needed.
#[derive(Debug, Default)]
pub struct Out {
    bytes: Vec<u8>,
    /// What is to be sent is `bytes[..len]`; the rest is left from before, so that no reply is zeroed first.
    len: usize,
}

impl Out {
    /// What is to be sent.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// It was sent.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Whether to send before doing more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len >= FULL
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
    }

    /// The next `len` bytes, for the caller to fill whole.
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        let from = self.len;
        self.len += len;
        if self.bytes.len() < self.len {
            self.bytes.resize(self.len, 0);
        }
        &mut self.bytes[from..self.len]
    }

    /// Where it ends now; [`Out::rewind`] takes back what came after.
    pub(crate) fn mark(&self) -> usize {
        self.len
    }

    pub(crate) fn rewind(&mut self, mark: usize) {
        self.len = mark;
    }

    /// The header of a structured reply chunk.
    pub(crate) fn chunk(&mut self, cookie: u64, kind: u16, done: bool, len: usize) {
        let flags = if done { chunk::FLAG_DONE } else { 0 };
        self.put(&crate::proto::STRUCTURED_REPLY_MAGIC.to_be_bytes());
        self.put(&flags.to_be_bytes());
        self.put(&kind.to_be_bytes());
        self.put(&cookie.to_be_bytes());
        self.put(
            &u32::try_from(len)
                .expect("a chunk is shorter than a request")
                .to_be_bytes(),
        );
    }

    /// A whole simple reply, or the head of one that carries data.
    pub(crate) fn simple(&mut self, cookie: u64, errno: u32) {
        self.put(&crate::proto::SIMPLE_REPLY_MAGIC.to_be_bytes());
        self.put(&errno.to_be_bytes());
        self.put(&cookie.to_be_bytes());
    }
}
