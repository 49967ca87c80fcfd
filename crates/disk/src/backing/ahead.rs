//! Reads a log ahead, for backings whose cost is by the request rather than by the byte, as those beyond a network.
//!
//! ```text
//! reads in order:   ▯▯▯▯▯▯▯▯▯▯ window 7     most of it was read piece by piece ...
//!                   █ window 8              ... so the next is read in one request; who wants some of it meanwhile waits
//! ```
//!
//! A store's reads are as short as packing made them, some 50 KiB for 128 KiB of a client's. Those of a client that reads in
//! order lie one behind the other in the log, though they may come from several threads and in any order. So what counts
//! is how much of a window was read of late, not which read followed which. Reads here and there leave windows nearly
//! untouched and go straight through.
//!
//! **Coherent.** All writes come through here, as the backing below has one writer. A write takes the windows that it
//! touches away before it begins and after it ended, so a read that begins when it returned meets none from before it.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::{Backing, BackingError, Geometry, check_range};

/// A backing that is read ahead.
#[derive(Debug)]
pub(crate) struct ReadAhead<B> {
    below: B,
    windows: Mutex<Windows>,
}

#[derive(Debug, Default)]
struct Windows {
    /// Windows held, the one that was wanted longest ago first.
    held: Vec<(u64, Arc<Window>)>,
    /// How many bytes of which windows were read of late, the latest last.
    seen: Vec<(u64, usize)>,
}

/// The bytes of a window once one reader has fetched them; `None` if that failed.
type Window = OnceLock<Option<Vec<u8>>>;

impl<B: Backing> ReadAhead<B> {
    pub(crate) fn new(below: B) -> Self {
        Self {
            below,
            windows: Mutex::default(),
        }
    }

    /// Fills `out` from the window `number`, which is fetched if that is worth it. Whether it did.
    fn read_window(&self, number: u64, offset: u64, out: &mut [u8]) -> bool {
        let Some(window) = self.windows.lock().want(number, out.len()) else {
            return false;
        };
        let begin = number * WINDOW as u64;
        let fetched = window.get_or_init(|| {
            let len = (self.below.size() - begin).min(WINDOW as u64);
            let mut bytes = vec![0; len as usize];
            self.below.read(begin, &mut bytes).is_ok().then_some(bytes)
        });
        let at = (offset - begin) as usize;
        let Some(bytes) = fetched.as_ref().and_then(|all| all.get(at..at + out.len())) else {
            return false;
        };
        out.copy_from_slice(bytes);
        true
    }

    fn forget(&self, offset: u64, len: u64) {
        // A range that ends nowhere is refused below.
        let last = offset.saturating_add(len.max(1) - 1);
        let touched = offset / WINDOW as u64..=last / WINDOW as u64;
        self.windows
            .lock()
            .held
            .retain(|(number, _)| !touched.contains(number));
    }
}

impl Windows {
    /// The window `number`, of which `len` bytes are wanted, if it is held or worth fetching.
    fn want(&mut self, number: u64, len: usize) -> Option<Arc<Window>> {
        let before = self
            .seen
            .iter()
            .any(|&(other, read)| other + 1 == number && read >= WINDOW / 2);
        let read = match self.seen.iter().position(|&(other, _)| other == number) {
            Some(at) => self.seen.remove(at).1,
            None => 0,
        };
        self.seen.push((number, (read + len).min(WINDOW)));
        if self.seen.len() > SEEN {
            self.seen.remove(0);
        }
        let at = self.held.iter().position(|&(other, _)| other == number);
        let window = match at {
            Some(at) => self.held.remove(at).1,
            None if before => Arc::default(),
            None => return None,
        };
        self.held.push((number, Arc::clone(&window)));
        if self.held.len() > HELD {
            self.held.remove(0);
        }
        Some(window)
    }
}

impl<B: Backing> Backing for ReadAhead<B> {
    fn size(&self) -> u64 {
        self.below.size()
    }

    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn name(&self) -> String {
        self.below.name()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BackingError> {
        check_range(offset, out.len() as u64, self.size())?;
        // Long reads are what this is for already.
        if out.len() >= WINDOW / 2 || out.is_empty() {
            return self.below.read(offset, out);
        }
        let first = offset / WINDOW as u64;
        let split = (((first + 1) * WINDOW as u64 - offset) as usize).min(out.len());
        let (head, tail) = out.split_at_mut(split);
        let head_is_there = self.read_window(first, offset, head);
        let tail_is_there =
            tail.is_empty() || self.read_window(first + 1, offset + split as u64, tail);
        match (head_is_there, tail_is_there) {
            (true, true) => Ok(()),
            (true, false) => self.below.read(offset + split as u64, tail),
            (false, true) => self.below.read(offset, head),
            (false, false) => self.below.read(offset, out),
        }
    }

    fn write(&self, offset: u64, parts: &[&[u8]]) -> Result<(), BackingError> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        self.forget(offset, len);
        let result = self.below.write(offset, parts);
        self.forget(offset, len);
        result
    }

    fn flush(&self) -> Result<(), BackingError> {
        self.below.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), BackingError> {
        self.forget(offset, len);
        let result = self.below.discard(offset, len);
        self.forget(offset, len);
        result
    }

    fn grow(&self, size: u64) -> Result<(), BackingError> {
        // The last window may have been cut off at the old end.
        let end = self.below.size();
        let result = self.below.grow(size);
        self.forget(end.saturating_sub(1), 1);
        result
    }
}

/// Bytes of a window. Ceph's operations cost by the piece up to 512 KiB and by the byte from there.
const WINDOW: usize = 512 << 10;
/// Windows held at most: 16 MiB. A client with 128 requests of 128 KiB under way reads from half as many.
const HELD: usize = 32;
/// Windows remembered to tell reads in order from others.
const SEEN: usize = 64;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::backing::SimulatedDevice;

    const SIZE: u64 = 8 << 20;
    const PIECE: usize = 48 << 10;

    /// Counts the reads that reach the device.
    #[derive(Debug)]
    struct Counted {
        device: SimulatedDevice,
        reads: AtomicU64,
    }

    impl Backing for Counted {
        fn size(&self) -> u64 {
            self.device.size()
        }
        fn geometry(&self) -> Geometry {
            self.device.geometry()
        }
        fn name(&self) -> String {
            self.device.name()
        }
        fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BackingError> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            self.device.read(offset, out)
        }
        fn write(&self, offset: u64, parts: &[&[u8]]) -> Result<(), BackingError> {
            self.device.write(offset, parts)
        }
        fn flush(&self) -> Result<(), BackingError> {
            self.device.flush()
        }
        fn discard(&self, offset: u64, len: u64) -> Result<(), BackingError> {
            self.device.discard(offset, len)
        }
        fn grow(&self, size: u64) -> Result<(), BackingError> {
            self.device.grow(size)
        }
    }

    fn device() -> ReadAhead<Counted> {
        let device = SimulatedDevice::new(SIZE as usize, Geometry::default());
        let numbers: Vec<u8> = (0..SIZE / 8).flat_map(u64::to_le_bytes).collect();
        device.write(0, &[&numbers]).unwrap();
        ReadAhead::new(Counted {
            device,
            reads: AtomicU64::new(0),
        })
    }

    /// Reads pieces and checks them; how many requests that took.
    fn read(device: &ReadAhead<Counted>, offsets: impl Iterator<Item = u64>) -> u64 {
        let before = device.below.reads.load(Ordering::Relaxed);
        for offset in offsets {
            let mut out = vec![0; PIECE];
            device.read(offset, &mut out).unwrap();
            let numbers = out
                .chunks(8)
                .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
            assert!(
                numbers.eq(offset / 8..(offset + PIECE as u64) / 8),
                "at {offset}"
            );
        }
        device.below.reads.load(Ordering::Relaxed) - before
    }

    #[test]
    fn reads_in_order_become_few_and_long() {
        let count = SIZE / PIECE as u64;
        let offset = |n| n * PIECE as u64;
        let reads = read(&device(), (0..count).map(offset));
        assert!(reads < count / 4, "{reads} requests for {count} pieces");
        // Several at once come out of order.
        let shuffled = (0..count - count % 8).map(|n| offset(n / 8 * 8 + (n * 5 + 3) % 8));
        let reads = read(&device(), shuffled);
        assert!(
            reads < count / 3,
            "{reads} requests for {count} pieces out of order"
        );
    }

    #[test]
    fn reads_here_and_there_go_straight_through() {
        let device = device();
        let places = (0..40_u64).map(|n| (n.wrapping_mul(0x9e37_79b9) % (SIZE / 4096 - 12)) * 4096);
        // A piece that lies in two windows is one request still.
        let reads = read(&device, places);
        assert!((38..=42).contains(&reads), "{reads} requests for 40");
    }

    #[test]
    fn ranges_beyond_the_end_are_refused() {
        let device = device();
        for offset in [SIZE, SIZE - 4096, u64::MAX - 4095] {
            assert!(device.read(offset, &mut [0; 8192]).is_err(), "{offset}");
            assert!(device.write(offset, &[&[0; 8192]]).is_err(), "{offset}");
            assert!(device.discard(offset, 8192).is_err(), "{offset}");
        }
    }

    #[test]
    fn what_was_written_discarded_or_grown_is_read() {
        let device = device();
        read(&device, (0..40).map(|n| n * PIECE as u64));
        let place = 20 * PIECE as u64 / 4096 * 4096;
        device.write(place, &[&[7; 4096]]).unwrap();
        let mut out = [0; 4096];
        device.read(place, &mut out).unwrap();
        assert_eq!(out, [7; 4096]);
        device.discard(place, 4096).unwrap();
        device.write(place, &[&[8; 4096]]).unwrap();
        device.read(place, &mut out).unwrap();
        assert_eq!(out, [8; 4096]);
    }

    /// One thread writes a rising number to a block and tells so; others read in order and must find no older one.
    #[test]
    fn a_read_finds_what_was_written_before_it_began() {
        let (device, told) = (device(), AtomicU64::new(0));
        let place = 3 * WINDOW as u64;
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        for n in 0..80 {
                            let offset = n * PIECE as u64;
                            let least = told.load(Ordering::Acquire);
                            let mut out = vec![0; PIECE];
                            device.read(offset, &mut out).unwrap();
                            if let Some(at) =
                                place.checked_sub(offset).filter(|at| *at < PIECE as u64)
                            {
                                let bytes = out[at as usize..][..8].try_into().unwrap();
                                assert!(u64::from_le_bytes(bytes) >= least);
                            }
                        }
                    }
                });
            }
            scope.spawn(|| {
                for version in (place / 8 + 1..).take(20_000) {
                    let mut block = [0; 4096];
                    block[..8].copy_from_slice(&version.to_le_bytes());
                    device.write(place, &[&block]).unwrap();
                    told.store(version, Ordering::Release);
                }
            });
        });
    }
}
