//! Memory that is reserved whole and paid for by the page, as it is touched.
//!
//! Why not the allocator: it keeps freed memory for itself and takes no word on when to give it back. Here a range is
//! given back at once, and what is resident is exactly what was touched and not released, in pages of 4 KiB.

use std::{
    io,
    ops::{Deref, DerefMut, Range},
    ptr::{self, NonNull},
    slice,
};

/// The page that [`Region`] counts in, whatever larger pages the machine has.
pub const FRAME: usize = 4096;

/// Zeroes until written. Reserving costs address space, not memory.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is private to the value and reached only through `&self` and `&mut self`.
unsafe impl Send for Region {}
// SAFETY: as above; `&self` gives shared slices only.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves `len` bytes, rounded up to whole frames.
    ///
    /// # Errors
    /// The system has no such address space, or forbids reserving more than it has memory
    /// (`vm.overcommit_memory = 2`).
    pub fn reserve(len: usize) -> io::Result<Self> {
        Self::map(len, libc::MAP_NORESERVE)
    }

    /// Reserves `len` bytes that will all be needed soon, and pays for them at once: one call of the system instead of
    /// a fault for each frame, which takes as long again as the frame.
    ///
    /// # Errors
    /// As [`Region::reserve`].
    pub fn paid(len: usize) -> io::Result<Self> {
        Self::map(len, libc::MAP_POPULATE)
    }

    fn map(len: usize, flags: libc::c_int) -> io::Result<Self> {
        let too_long = || io::Error::from(io::ErrorKind::OutOfMemory);
        let len = len
            .max(1)
            .checked_next_multiple_of(FRAME)
            .ok_or_else(too_long)?;
        if isize::try_from(len).is_err() {
            return Err(too_long());
        }
        // SAFETY: a new private anonymous mapping touches nothing that exists.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A huge page would make 2 MiB resident for one byte, and the count wrong. An old kernel's refusal is no fault.
        // SAFETY: the range is the mapping just made.
        unsafe { libc::madvise(start, len, libc::MADV_NOHUGEPAGE) };
        Ok(Self {
            start: NonNull::new(start.cast()).expect("mmap never maps page 0 unasked"),
            len,
        })
    }

    /// Gives the frames of `range` back to the system; they are zero afterwards. `range` is of whole frames.
    ///
    /// # Panics
    /// `range` is not of whole frames, or leaves the region.
    pub fn release(&mut self, range: Range<usize>) {
        let len = self[range.clone()].len();
        assert!(
            range.start.is_multiple_of(FRAME) && len.is_multiple_of(FRAME),
            "whole frames are released"
        );
        if len == 0 {
            return;
        }
        // SAFETY: the range is within the mapping (the slice above checked it), and `&mut self` means that nobody holds
        // a reference to its bytes. The kernel replaces them by zeroes, which are valid bytes.
        let result = unsafe {
            libc::madvise(
                self.start.as_ptr().add(range.start).cast(),
                len,
                libc::MADV_DONTNEED,
            )
        };
        if result != 0 {
            // Locked memory cannot be dropped; the promise of zeroes holds all the same.
            self[range].fill(0);
        }
    }
}

impl Deref for Region {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` maps `len` readable bytes for as long as `self` lives; anonymous memory is initialised.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `&mut self` makes the reference the only one.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours whole, and no reference outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames among the first `len` bytes that are in memory. Not the process's: other tests share that.
    fn resident(region: &Region, len: usize) -> usize {
        let mut frames = vec![0_u8; len / FRAME];
        // SAFETY: `len` bytes of the mapping are asked about, and `frames` has a byte for each of their frames.
        let result = unsafe {
            libc::mincore(
                region.start.as_ptr().cast(),
                len,
                frames.as_mut_ptr().cast(),
            )
        };
        assert_eq!(result, 0);
        frames.iter().filter(|&&frame| frame & 1 == 1).count()
    }

    #[test]
    fn touching_pays_and_releasing_pays_back() {
        const LEN: usize = 64 << 20;
        let mut region = Region::reserve(1 << 36).unwrap();
        assert_eq!(resident(&region, 2 * LEN), 0);
        region[..LEN].fill(7);
        assert_eq!(resident(&region, 2 * LEN), LEN / FRAME);
        region.release(FRAME..LEN);
        assert_eq!(resident(&region, 2 * LEN), 1);
        assert!(region[..FRAME].iter().all(|&byte| byte == 7));
        assert!(region[FRAME..LEN].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn what_is_paid_for_is_there() {
        let region = Region::paid(1 << 20).unwrap();
        assert_eq!(resident(&region, 1 << 20), (1 << 20) / FRAME);
        assert!(region.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn absurd_lengths_are_refused() {
        assert!(Region::reserve(usize::MAX).is_err());
        assert!(Region::reserve(isize::MAX as usize).is_err());
    }
}
