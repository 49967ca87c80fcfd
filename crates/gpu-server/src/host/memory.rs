//! Device memory in host memory: a range of addresses that is reserved, and committed by the page.
//!
//! Between two allocations lies a page that cannot be touched, but nothing relies on it: every access is compared with
//! the allocations first, so that a wrong address is an error with a name rather than a signal. Freed pages go back to
//! the system at once, and come back as zeros: nobody sees what another left.

use std::{
    collections::BTreeMap,
    io, ptr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use narrows_gpu_abi::Status;
use parking_lot::RwLock;

use crate::Failure;

const PAGE: u64 = 4096;
/// Addresses of one session: far more than memory, so that holes never matter.
const ARENA_LEN: u64 = 1 << 38;
/// Where arenas lie: away from where systems put programs, libraries and stacks.
const ARENAS: std::ops::Range<u64> = 0x6000_0000_0000..0x7000_0000_0000;
/// Allocations at once: each takes two of the 65,530 mappings that a process may have.
const BLOCKS_MAX: usize = 24_000;

/// Bytes that sessions may have together.
#[derive(Debug)]
pub(super) struct Quota {
    max: u64,
    used: AtomicU64,
}

impl Quota {
    /// A quota of `max` bytes.
    #[must_use]
    pub(super) fn new(max: u64) -> Arc<Self> {
        Arc::new(Self {
            max,
            used: AtomicU64::new(0),
        })
    }

    /// Free and total bytes.
    #[must_use]
    pub(super) fn state(&self) -> (u64, u64) {
        (self.max.saturating_sub(self.used.load(Relaxed)), self.max)
    }

    fn take(&self, bytes: u64) -> bool {
        let taken = self.used.fetch_update(Relaxed, Relaxed, |used| {
            used.checked_add(bytes).filter(|sum| *sum <= self.max)
        });
        taken.is_ok()
    }

    fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Relaxed);
    }
}

/// An allocation. Its pages stay until the last who may use them has let go.
#[derive(Debug)]
pub(super) struct Block {
    /// Address of the first byte.
    pub(super) base: u64,
    /// Bytes that the program asked for.
    pub(super) len: u64,
    pages_len: u64,
    arena: Arc<Reserve>,
}

impl Block {
    /// Whether all of these bytes are in it.
    #[must_use]
    pub(super) fn holds(&self, address: u64, len: u64) -> bool {
        address >= self.base
            && address
                .checked_add(len)
                .is_some_and(|end| end <= self.base + self.len)
    }

    /// Fills `out` from `address`.
    ///
    /// # Panics
    /// When the bytes are not in this block: its callers have asked [`Block::holds`].
    pub(super) fn read(&self, address: u64, out: &mut [u8]) {
        assert!(self.holds(address, out.len() as u64));
        // SAFETY: the bytes lie within the block (checked above), whose pages stay mapped while it lives. No Rust
        // reference to them exists anywhere; blocks of a kernel may write them meanwhile, as on a device, and bytes
        // have no invalid values.
        unsafe { ptr::copy_nonoverlapping(address as *const u8, out.as_mut_ptr(), out.len()) };
    }

    /// Writes `bytes` at `address`.
    ///
    /// # Panics
    /// When the bytes are not in this block: its callers have asked [`Block::holds`].
    pub(super) fn write(&self, address: u64, bytes: &[u8]) {
        assert!(self.holds(address, bytes.len() as u64));
        // SAFETY: as for `read`.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.arena.release(self.base, self.pages_len);
    }
}

/// The reserved range itself: who holds a block holds it.
#[derive(Debug)]
struct Reserve {
    base: u64,
    quota: Arc<Quota>,
    /// Holes by address, guard pages included.
    holes: parking_lot::Mutex<BTreeMap<u64, u64>>,
}

impl Reserve {
    fn new(quota: Arc<Quota>) -> io::Result<Self> {
        let mut at = ARENAS.start;
        while at < ARENAS.end {
            // SAFETY: with MAP_FIXED_NOREPLACE nothing that exists is touched; the range is ours if it succeeds.
            let found = unsafe {
                libc::mmap(
                    at as *mut libc::c_void,
                    ARENA_LEN as usize,
                    libc::PROT_NONE,
                    libc::MAP_PRIVATE
                        | libc::MAP_ANONYMOUS
                        | libc::MAP_NORESERVE
                        | libc::MAP_FIXED_NOREPLACE,
                    -1,
                    0,
                )
            };
            if found as u64 == at {
                let holes = BTreeMap::from([(at + PAGE, ARENA_LEN - PAGE)]);
                return Ok(Self {
                    base: at,
                    quota,
                    holes: parking_lot::Mutex::new(holes),
                });
            }
            if found != libc::MAP_FAILED {
                // An old kernel took the address for a hint only.
                // SAFETY: this mapping has just been made by us and nobody else knows it.
                unsafe { libc::munmap(found, ARENA_LEN as usize) };
            }
            at += ARENA_LEN;
        }
        Err(io::Error::other(
            "no range of addresses is free for another session",
        ))
    }

    /// Takes pages and a guard behind them out of the first hole that has room.
    fn take(&self, pages_len: u64) -> Option<u64> {
        let mut holes = self.holes.lock();
        let (&base, &len) = holes.iter().find(|(_, len)| **len >= pages_len + PAGE)?;
        holes.remove(&base);
        let taken = pages_len + PAGE;
        if len > taken {
            holes.insert(base + taken, len - taken);
        }
        Some(base)
    }

    fn commit(&self, base: u64, pages_len: u64) -> io::Result<()> {
        // SAFETY: the pages are within the range that this object reserved, and in no block, since `take` gave them.
        let done = unsafe {
            libc::mprotect(
                base as *mut libc::c_void,
                pages_len as usize,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
        if done == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Gives pages back to the system, and their addresses to the next who asks.
    fn release(&self, base: u64, pages_len: u64) {
        // SAFETY: the pages are within the reserved range, and the only block that had them is being dropped. Mapping
        // them anew, without access, gives their contents up.
        let done = unsafe {
            libc::mmap(
                base as *mut libc::c_void,
                pages_len as usize,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        self.quota.give(pages_len);
        if done == libc::MAP_FAILED {
            tracing::warn!("pages at {base:#x} stay: {}", io::Error::last_os_error());
            return;
        }
        let (mut base, mut len) = (base, pages_len + PAGE);
        let mut holes = self.holes.lock();
        if let Some(next) = holes.remove(&(base + len)) {
            len += next;
        }
        if let Some((&before, &before_len)) = holes.range(..base).next_back()
            && before + before_len == base
        {
            base = before;
            len += before_len;
        }
        holes.insert(base, len);
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        // SAFETY: every block holds this object, so none is left that points into the range.
        unsafe { libc::munmap(self.base as *mut libc::c_void, ARENA_LEN as usize) };
    }
}

/// One session's device memory.
#[derive(Debug)]
pub(super) struct Arena {
    reserve: Arc<Reserve>,
    blocks: RwLock<Blocks>,
}

#[derive(Debug, Default)]
struct Blocks {
    by_base: BTreeMap<u64, Arc<Block>>,
    /// Made when a kernel wants it, and kept until an allocation changes.
    list: Option<Arc<[Arc<Block>]>>,
}

impl Arena {
    /// An empty one.
    ///
    /// # Errors
    /// No addresses are left.
    pub(super) fn new(quota: Arc<Quota>) -> io::Result<Self> {
        Ok(Self {
            reserve: Arc::new(Reserve::new(quota)?),
            blocks: RwLock::default(),
        })
    }

    /// Address and length of the range.
    #[must_use]
    pub(super) fn range(&self) -> (u64, u64) {
        (self.reserve.base, ARENA_LEN)
    }

    /// Memory of `len` zeros.
    ///
    /// # Errors
    /// [`Status::OUT_OF_MEMORY`].
    pub(super) fn alloc(&self, len: u64) -> Result<u64, Failure> {
        let short = |text: String| Failure::new(Status::OUT_OF_MEMORY, text);
        let pages_len = len
            .checked_next_multiple_of(PAGE)
            .filter(|len| *len < ARENA_LEN)
            .ok_or_else(|| short(format!("an allocation of {len} bytes")))?;
        if self.blocks.read().by_base.len() >= BLOCKS_MAX {
            return Err(short(format!(
                "{BLOCKS_MAX} allocations are as many as there are"
            )));
        }
        let quota = &self.reserve.quota;
        if !quota.take(pages_len) {
            let (free, total) = quota.state();
            return Err(short(format!(
                "{len} bytes asked for, {free} of {total} are free"
            )));
        }
        let Some(base) = self.reserve.take(pages_len) else {
            quota.give(pages_len);
            return Err(short(format!("no {len} addresses in a row are free")));
        };
        if let Err(fault) = self.reserve.commit(base, pages_len) {
            self.reserve.release(base, pages_len);
            return Err(short(format!("the system gives no memory: {fault}")));
        }
        let block = Block {
            base,
            len,
            pages_len,
            arena: self.reserve.clone(),
        };
        let mut blocks = self.blocks.write();
        blocks.by_base.insert(base, Arc::new(block));
        blocks.list = None;
        Ok(base)
    }

    /// Forgets an allocation; its pages go when nothing uses them any more.
    ///
    /// # Errors
    /// [`Status::INVALID_VALUE`] where none begins there.
    pub(super) fn free(&self, base: u64) -> Result<(), Failure> {
        let mut blocks = self.blocks.write();
        blocks.list = None;
        match blocks.by_base.remove(&base) {
            Some(_) => Ok(()),
            None => Err(Failure::new(
                Status::INVALID_VALUE,
                format!("no allocation begins at {base:#x}"),
            )),
        }
    }

    /// Whether an allocation begins there.
    #[must_use]
    pub(super) fn has(&self, base: u64) -> bool {
        self.blocks.read().by_base.contains_key(&base)
    }

    /// The allocation that all of these bytes are in.
    ///
    /// # Errors
    /// [`Status::INVALID_VALUE`] where there is none.
    pub(super) fn find(&self, address: u64, len: u64) -> Result<Arc<Block>, Failure> {
        let blocks = self.blocks.read();
        let found = blocks.by_base.range(..=address).next_back();
        found
            .map(|(_, block)| block)
            .filter(|block| block.holds(address, len))
            .cloned()
            .ok_or_else(|| {
                Failure::new(
                    Status::INVALID_VALUE,
                    format!("{len} bytes at {address:#x} are in no allocation"),
                )
            })
    }

    /// All allocations of this moment, by address.
    #[must_use]
    pub(super) fn all(&self) -> Arc<[Arc<Block>]> {
        if let Some(list) = &self.blocks.read().list {
            return list.clone();
        }
        let mut blocks = self.blocks.write();
        let list: Arc<[_]> = blocks.by_base.values().cloned().collect();
        blocks.list = Some(list.clone());
        list
    }

    /// Frees everything; says how many allocations and bytes there were.
    pub(super) fn clear(&self) -> (usize, u64) {
        let mut blocks = self.blocks.write();
        blocks.list = None;
        let found = std::mem::take(&mut blocks.by_base);
        (found.len(), found.values().map(|block| block.len).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: memory is exact, zeroed, bounded and given back. Method: write, free, allocate again; then too much.
    #[test]
    fn memory_is_exact_zeroed_and_bounded() {
        let quota = Quota::new(1 << 20);
        let arena = Arena::new(quota.clone()).unwrap();
        let base = arena.alloc(1000).unwrap();
        let block = arena.find(base + 999, 1).unwrap();
        block.write(base, &[7; 1000]);
        assert!(arena.find(base + 999, 2).is_err());
        assert!(arena.find(base - 1, 1).is_err());
        assert!(arena.free(base + 1).is_err());
        drop(block);
        arena.free(base).unwrap();
        assert!(arena.find(base, 1).is_err());
        let again = arena.alloc(1000).unwrap();
        assert_eq!(again, base);
        let mut bytes = [1; 1000];
        arena.find(again, 1000).unwrap().read(again, &mut bytes);
        assert_eq!(bytes, [0; 1000]);
        assert_eq!(
            arena.alloc(1 << 20).unwrap_err().status,
            Status::OUT_OF_MEMORY
        );
        assert_eq!(arena.clear(), (1, 1000));
        assert_eq!(quota.state(), (1 << 20, 1 << 20));
    }

    #[test]
    fn holes_join_again() {
        let arena = Arena::new(Quota::new(1 << 30)).unwrap();
        let bases: Vec<_> = (1..50).map(|n| arena.alloc(n * 777).unwrap()).collect();
        let (even, odd): (Vec<_>, Vec<_>) = bases
            .iter()
            .partition(|base| (*base / PAGE).is_multiple_of(2));
        even.into_iter()
            .chain(odd)
            .for_each(|base| arena.free(base).unwrap());
        assert_eq!(arena.reserve.holes.lock().len(), 1);
    }

    #[test]
    fn sessions_have_ranges_of_their_own() {
        let quota = Quota::new(1 << 20);
        let (one, two) = (
            Arena::new(quota.clone()).unwrap(),
            Arena::new(quota).unwrap(),
        );
        let base = one.alloc(10).unwrap();
        assert!(two.find(base, 1).is_err());
        assert_ne!(one.range().0, two.range().0);
    }
}
