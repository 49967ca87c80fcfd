//! Bytes read ahead of what is made of them.
//!
//! Why not `BufReader`: a whole frame must lie together, and a header behind it be seen before the frame is taken.

use std::io::{self, Read};

/// Reads ahead as far as is asked, and no further than a step.
#[derive(Debug)]
pub(crate) struct Ahead<R> {
    pub(crate) inner: R,
    bytes: Vec<u8>,
    start: usize,
    /// Where in the file `start` lies.
    pub(crate) at: u64,
    ended: bool,
}

impl<R: Read> Ahead<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            bytes: Vec::new(),
            start: 0,
            at: 0,
            ended: false,
        }
    }

    pub(crate) fn inner_mut(&mut self) -> &mut R {
        &mut self.inner
    }

    pub(crate) fn into_inner(self) -> R {
        self.inner
    }

    /// What was read and not consumed.
    pub(crate) fn peek(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) fn consume(&mut self, len: usize) {
        let len = len.min(self.bytes.len() - self.start);
        self.start += len;
        self.at += len as u64;
    }

    /// Reads until `len` bytes are there or the file ends, and returns how many are. The buffer grows as bytes come, so a
    /// length that a file only claims costs nothing.
    pub(crate) fn fill(&mut self, len: usize) -> io::Result<usize> {
        if self.peek().len() >= len || self.ended {
            return Ok(self.peek().len());
        }
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        while self.bytes.len() < len && !self.ended {
            let have = self.bytes.len();
            let more = (len - have).clamp(READ_LEN, READ_LEN_MAX);
            self.bytes.resize(have + more, 0);
            let got = match self.inner.read(&mut self.bytes[have..]) {
                Ok(got) => got,
                Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {
                    self.bytes.truncate(have);
                    continue;
                }
                Err(fault) => {
                    self.bytes.truncate(have);
                    return Err(fault);
                }
            };
            self.bytes.truncate(have + got);
            self.ended = got == 0;
        }
        Ok(self.bytes.len())
    }
}

/// Bytes asked of a reader at once: least, and most.
const READ_LEN: usize = 64 << 10;
const READ_LEN_MAX: usize = 1 << 20;
