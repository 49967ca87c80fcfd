//! Memory of the program: where copies read and write, and ranges that it has pinned.

use std::{collections::BTreeMap, ptr};

use narrows_gpu_abi::Status;
use narrows_gpu_wire::Span;
use parking_lot::Mutex;

use crate::ffi::Answer;

/// A box of bytes of the program: as a [`Span`], in its own memory. The program vouches for it until the copy is done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostSpan(Span);

impl HostSpan {
    pub(crate) fn new(span: Span) -> Answer<Self> {
        let len = span.checked_len().ok_or(Status::INVALID_VALUE)?;
        if span.base == 0 && len > 0 {
            return Err(Status::INVALID_VALUE);
        }
        Ok(Self(span.joined()))
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.row * self.0.rows * self.0.slices
    }

    pub(crate) fn cursor(self) -> HostCursor {
        HostCursor {
            rows: Box::new(self.0.iter_rows()),
            at: 0,
            left: 0,
        }
    }

    /// All of its bytes.
    pub(crate) fn to_vec(self) -> Vec<u8> {
        let mut bytes = vec![0; self.len() as usize];
        self.cursor().read(&mut bytes);
        bytes
    }
}

/// Goes through a box's bytes in order, in pieces of any length.
pub(crate) struct HostCursor {
    rows: Box<dyn Iterator<Item = narrows_gpu_wire::Row> + Send>,
    at: u64,
    left: u64,
}

impl HostCursor {
    fn advance(&mut self, len: usize, mut piece: impl FnMut(usize, std::ops::Range<usize>)) {
        let mut done = 0;
        while done < len {
            if self.left == 0 {
                let Some(row) = self.rows.next() else { return };
                (self.at, self.left) = (row.base, row.len);
            }
            let run = self.left.min((len - done) as u64) as usize;
            piece(self.at as usize, done..done + run);
            self.at += run as u64;
            self.left -= run as u64;
            done += run;
        }
    }

    /// Fills `out` with the next bytes.
    pub(crate) fn read(&mut self, out: &mut [u8]) {
        self.advance(out.len(), |at, range| {
            let len = range.len();
            // SAFETY: the program gave this range to a copy and vouches for it until that is done.
            unsafe { ptr::copy_nonoverlapping(at as *const u8, out[range].as_mut_ptr(), len) };
        });
    }

    /// Writes the next bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.advance(bytes.len(), |at, range| {
            let len = range.len();
            // SAFETY: the program gave this range to a copy and vouches for it until that is done.
            unsafe { ptr::copy_nonoverlapping(bytes[range].as_ptr(), at as *mut u8, len) };
        });
    }
}

/// A range of the program's memory that CUDA knows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pinned {
    pub(crate) len: usize,
    pub(crate) flags: u32,
    /// Allocated here, rather than registered.
    owned: bool,
}

/// What is pinned. Plain memory: the server keeps rings of its own, so nothing is gained by locking pages here.
#[derive(Debug, Default)]
pub(crate) struct PinnedRanges(Mutex<BTreeMap<usize, Pinned>>);

const PAGE: usize = 4096;

impl PinnedRanges {
    pub(crate) fn alloc(&self, len: usize, flags: u32) -> Answer<usize> {
        if len == 0 {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: a new anonymous mapping, which touches nothing that exists.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Status::OUT_OF_MEMORY);
        }
        let owned = true;
        self.0
            .lock()
            .insert(base as usize, Pinned { len, flags, owned });
        Ok(base as usize)
    }

    pub(crate) fn free(&self, base: usize) -> Answer {
        let mut ranges = self.0.lock();
        match ranges.get(&base) {
            Some(range) if range.owned => {
                let len = range.len.next_multiple_of(PAGE);
                ranges.remove(&base);
                // SAFETY: `alloc` mapped exactly this range, and it was not freed before, being in the map.
                unsafe { libc::munmap(base as *mut libc::c_void, len) };
                Ok(())
            }
            _ => Err(Status::INVALID_VALUE),
        }
    }

    pub(crate) fn register(&self, base: usize, len: usize, flags: u32) -> Answer {
        if base == 0 || len == 0 || base.checked_add(len).is_none() {
            return Err(Status::INVALID_VALUE);
        }
        if self.find(base).is_some() || self.find(base + len - 1).is_some() {
            return Err(Status::HOST_MEMORY_ALREADY_REGISTERED);
        }
        let owned = false;
        self.0.lock().insert(base, Pinned { len, flags, owned });
        Ok(())
    }

    pub(crate) fn unregister(&self, base: usize) -> Answer {
        let mut ranges = self.0.lock();
        match ranges.get(&base) {
            Some(range) if !range.owned => {
                ranges.remove(&base);
                Ok(())
            }
            _ => Err(Status::HOST_MEMORY_NOT_REGISTERED),
        }
    }

    /// The range that holds this address.
    pub(crate) fn find(&self, address: usize) -> Option<(usize, Pinned)> {
        let ranges = self.0.lock();
        let (base, range) = ranges.range(..=address).next_back()?;
        (address - base < range.len).then_some((*base, *range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_ranges_are_found_and_freed() {
        let ranges = PinnedRanges::default();
        let base = ranges.alloc(5000, 4).unwrap();
        let (found, range) = ranges.find(base + 4999).unwrap();
        assert_eq!((found, range.flags), (base, 4));
        assert!(ranges.find(base + 5000).is_none() && ranges.unregister(base).is_err());
        ranges.free(base).unwrap();
        assert!(ranges.free(base).is_err());
        let own = [0_u8; 64];
        let base = own.as_ptr() as usize;
        ranges.register(base, 64, 0).unwrap();
        assert!(ranges.register(base + 8, 8, 0).is_err() && ranges.free(base).is_err());
        ranges.unregister(base).unwrap();
    }

    #[test]
    fn boxes_are_read_and_written_row_by_row() {
        let mut bytes: Vec<u8> = (0..64).collect();
        let span = HostSpan::new(Span {
            base: bytes.as_mut_ptr() as u64,
            row: 3,
            rows: 2,
            pitch: 8,
            slices: 2,
            slice_pitch: 32,
        })
        .unwrap();
        assert_eq!(span.to_vec(), [0, 1, 2, 8, 9, 10, 32, 33, 34, 40, 41, 42]);
        let mut cursor = span.cursor();
        cursor.write(&[99; 5]);
        cursor.write(&[98; 7]);
        assert_eq!(
            (bytes[2], bytes[3], bytes[9], bytes[10], bytes[42]),
            (99, 3, 99, 98, 98)
        );
    }
}
