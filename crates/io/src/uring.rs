//! Reads and writes of a file by io_uring: one long call becomes pieces that are under way together.
//!
//! ```text
//! write_all(1 MiB) ──▶ 4 pieces ──▶ one system call submits all and waits for all ──▶ short ones go on
//! ```
//!
//! A call blocks until all of its pieces are done, so its buffers are borrowed for no longer than the call. Each call
//! has a ring to itself while it lasts; idle rings wait in a list, so there are as many as calls at once. That costs
//! 8 KiB a ring, and no thread ever reaps what another submitted.
//!
//! Kernels and sandboxes may refuse io_uring (`kernel.io_uring_disabled`, seccomp): [`Rings::new`] then fails, and the
//! caller goes on by plain calls.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, RawFd},
};

use io_uring::{IoUring, opcode, squeue, types};
use parking_lot::Mutex;

/// Most pieces of a call under way at once.
const ENTRIES: u32 = 32;
/// What a longer call is cut into, in bytes. On a virtual disk writes of 1 MiB and reads of 4 MiB were as fast in one
/// piece (`crates/disk/examples/backing.rs`); the pieces are for disks with more queues.
pub const PIECE_LEN: usize = 256 << 10;

/// Rings for any number of threads.
pub struct Rings {
    idle: Mutex<Vec<IoUring>>,
}

impl std::fmt::Debug for Rings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rings").finish_non_exhaustive()
    }
}

/// A piece of a call: where it goes, and which bytes are left of it.
#[derive(Debug, Clone, Copy)]
struct Piece {
    offset: u64,
    start: *mut u8,
    len: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

impl Rings {
    /// Makes the first ring.
    ///
    /// # Errors
    /// The system has no io_uring for this process.
    pub fn new() -> io::Result<Self> {
        let first = IoUring::new(ENTRIES)?;
        Ok(Self {
            idle: Mutex::new(vec![first]),
        })
    }

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// The first that a piece met; any part may be written then.
    pub fn write_all_at(&self, file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
        // The kernel only reads through this pointer: a piece of a write is used for `opcode::Write` alone.
        let start = data.as_ptr().cast_mut();
        self.run(file, Direction::Write, cut(offset, start, data.len()))
    }

    /// Fills all of `out` from `offset`.
    ///
    /// # Errors
    /// The first that a piece met, or the file ends within; `out` holds anything then.
    pub fn read_exact_at(&self, file: &File, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (start, len) = (out.as_mut_ptr(), out.len());
        self.run(file, Direction::Read, cut(offset, start, len))
    }

    /// Runs pieces to their end. The memory they point to stays borrowed by the caller's caller.
    fn run(&self, file: &File, direction: Direction, pieces: Vec<Piece>) -> io::Result<()> {
        let idle = self.idle.lock().pop();
        let mut ring = match idle {
            Some(ring) => ring,
            None => IoUring::new(ENTRIES)?,
        };
        let result = Call {
            ring: &mut ring,
            fd: file.as_raw_fd(),
            direction,
            pieces,
            under_way: 0,
        }
        .run();
        self.idle.lock().push(ring);
        result
    }
}

fn cut(offset: u64, start: *mut u8, len: usize) -> Vec<Piece> {
    (0..len)
        .step_by(PIECE_LEN)
        .map(|at| Piece {
            offset: offset + at as u64,
            start: start.wrapping_add(at),
            len: PIECE_LEN.min(len - at),
        })
        .collect()
}

/// One call on a ring of its own. Invariant: the ring holds `under_way` operations, all of this call.
struct Call<'a> {
    ring: &'a mut IoUring,
    fd: RawFd,
    direction: Direction,
    pieces: Vec<Piece>,
    under_way: usize,
}

impl Call<'_> {
    fn run(mut self) -> io::Result<()> {
        let mut waiting: Vec<usize> = (0..self.pieces.len()).rev().collect();
        let mut first_error = None;
        loop {
            while self.under_way < ENTRIES as usize
                && first_error.is_none()
                && let Some(number) = waiting.pop()
            {
                self.push(number);
            }
            if self.under_way == 0 {
                return first_error.map_or(Ok(()), Err);
            }
            self.wait_for_one();
            while let Some((number, result)) = self.completed() {
                match self.after(number, result) {
                    Ok(true) => waiting.push(number),
                    Ok(false) => {}
                    Err(error) => first_error = first_error.or(Some(error)),
                }
            }
        }
    }

    fn push(&mut self, number: usize) {
        let piece = self.pieces[number];
        let len = u32::try_from(piece.len).expect("a piece is at most PIECE_LEN");
        let fd = types::Fd(self.fd);
        let entry: squeue::Entry = match self.direction {
            Direction::Read => opcode::Read::new(fd, piece.start, len)
                .offset(piece.offset)
                .build(),
            Direction::Write => opcode::Write::new(fd, piece.start, len)
                .offset(piece.offset)
                .build(),
        };
        // SAFETY: the descriptor and the memory are borrowed by the function that made this call, which does not return
        // before the operation is complete: `run` waits for all, and `Drop` does if it unwinds.
        unsafe { self.ring.submission().push(&entry.user_data(number as u64)) }
            .expect("no more entries than the ring has are under way");
        self.under_way += 1;
    }

    /// Submits what was pushed and blocks until something is complete.
    fn wait_for_one(&mut self) {
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => return,
                Err(error)
                    if matches!(
                        error.raw_os_error(),
                        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
                    ) => {}
                // Memory is lent to the kernel, and it does not say when that is over: to go on would be unsound.
                Err(error) => {
                    tracing::error!(%error, "io_uring_enter fails with operations under way");
                    std::process::abort();
                }
            }
            if !self.ring.completion().is_empty() {
                return;
            }
        }
    }

    fn completed(&mut self) -> Option<(usize, i32)> {
        let entry = self.ring.completion().next()?;
        self.under_way -= 1;
        Some((entry.user_data() as usize, entry.result()))
    }

    /// Whether the piece must go on.
    fn after(&mut self, number: usize, result: i32) -> io::Result<bool> {
        let piece = &mut self.pieces[number];
        match usize::try_from(result) {
            Ok(0) => Err(match self.direction {
                Direction::Read => io::ErrorKind::UnexpectedEof.into(),
                Direction::Write => io::ErrorKind::WriteZero.into(),
            }),
            Ok(done) => {
                let done = done.min(piece.len);
                piece.offset += done as u64;
                piece.start = piece.start.wrapping_add(done);
                piece.len -= done;
                Ok(piece.len > 0)
            }
            Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) => Ok(true),
            Err(_) => Err(io::Error::from_raw_os_error(-result)),
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        while self.under_way > 0 {
            self.wait_for_one();
            while self.completed().is_some() {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::OpenOptions, io::Write as _};

    use super::*;

    fn rings() -> Option<Rings> {
        match Rings::new() {
            Ok(rings) => Some(rings),
            Err(error) => {
                let _ = writeln!(io::stderr(), "skipped: no io_uring here: {error}");
                None
            }
        }
    }

    fn noise(len: usize) -> Vec<u8> {
        (0..len as u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 23) as u8)
            .collect()
    }

    // Goal: any length at any offset comes back, also more pieces than a ring has entries.
    #[test]
    fn what_is_written_is_read_whatever_its_length() {
        let Some(rings) = rings() else { return };
        let file = tempfile::tempfile().unwrap();
        for len in [0, 1, 4096, PIECE_LEN, PIECE_LEN + 1, 40 * PIECE_LEN + 7] {
            let data = noise(len);
            rings.write_all_at(&file, 123, &data).unwrap();
            let mut back = vec![0; len];
            rings.read_exact_at(&file, 123, &mut back).unwrap();
            assert!(back == data, "{len}");
        }
    }

    #[test]
    fn errors_are_told_and_the_ring_is_of_use_afterwards() {
        let Some(rings) = rings() else { return };
        let file = tempfile::NamedTempFile::new().unwrap();
        rings
            .write_all_at(file.as_file(), 0, &noise(3 * PIECE_LEN))
            .unwrap();
        let mut out = vec![0; 4 * PIECE_LEN];
        let error = rings
            .read_exact_at(file.as_file(), 0, &mut out)
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let read_only = OpenOptions::new().read(true).open(file.path()).unwrap();
        let error = rings.write_all_at(&read_only, 0, &out).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        rings
            .read_exact_at(file.as_file(), 0, &mut out[..3 * PIECE_LEN])
            .unwrap();
        assert!(out[..3 * PIECE_LEN] == noise(3 * PIECE_LEN));
    }

    #[test]
    fn threads_have_rings_of_their_own() {
        let Some(rings) = rings() else { return };
        let file = tempfile::tempfile().unwrap();
        std::thread::scope(|scope| {
            for number in 0..8_u8 {
                let (rings, file) = (&rings, &file);
                scope.spawn(move || {
                    let at = u64::from(number) << 22;
                    for round in 0..20 {
                        let data = vec![number ^ round; 3 * PIECE_LEN / 2];
                        rings.write_all_at(file, at, &data).unwrap();
                        let mut back = vec![0; data.len()];
                        rings.read_exact_at(file, at, &mut back).unwrap();
                        assert!(back == data);
                    }
                });
            }
        });
        assert!(rings.idle.lock().len() <= 8);
    }
}
