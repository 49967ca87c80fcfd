//! The arena, and what is known of its blocks.
//!
//! ```text
//!  program ── fault ──▶ handler: serve ──▶ unpack, or read ──▶ COPY (read) or MOVE (write) into the arena
//!                          │ a stream? ──▶ workers: the next blocks
//!                          ▼
//!  workers: few free? ──▶ evict: kept copy? ──▶ drop
//!                                 │ none ──▶ MOVE to the stage ──▶ pack: Store, or backing file
//! ```
//!
//! A block that changes hands is `Busy`; whoever made it so holds it, without the lock, until it is settled again.
//! Under the lock nothing is packed or read, and no page of the arena is touched.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

use narrows_core::BlockDevice;
use narrows_io::helper_pool::HelperPool;
use narrows_memory::{Budget, Chains, PackedRun, Profile, Store, StoreConfig, run::Counter};
use parking_lot::{Condvar, Mutex};

use crate::{
    blocks::{BLOCK, Block, Copy, PAGES, Queues, State},
    counters::Counters,
    extents::Extents,
    gauge::Gauge,
    stage::Stage,
    streams::{Ahead, Streams},
    sys::{self, PAGE, Uffd},
};

/// What the environment asks for.
#[derive(Debug)]
pub(crate) struct Config {
    /// Bytes that the process may have resident.
    pub(crate) limit: u64,
    /// Folder of the backing file.
    pub(crate) backing: String,
    pub(crate) counters: Option<String>,
}

/// Everything. There is one, and it is never dropped.
#[derive(Debug)]
pub(crate) struct Pager {
    pub(crate) uffd: Uffd,
    pub(crate) base: usize,
    pub(crate) len: usize,
    pub(crate) stage: Stage,
    pub(crate) store: Store,
    pub(crate) file: Backing,
    pub(crate) gauge: Gauge,
    pub(crate) counters: Counters,
    pub(crate) table: Mutex<Table>,
    /// Workers wait here.
    pub(crate) work: Condvar,
    pub(crate) evicting: AtomicBool,
}

/// What the lock guards.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) extents: Extents,
    /// Grows as more of the arena is used.
    pub(crate) blocks: Vec<Block>,
    pub(crate) queues: Queues,
    pub(crate) streams: Streams,
    /// Blocks to bring before they are asked for, the last first.
    pub(crate) ahead: Vec<Ahead>,
    taken: u64,
}

/// What a thread unpacks into and packs from.
#[derive(Debug)]
pub(crate) struct Kit {
    pub(crate) buffer: Box<Aligned>,
    pub(crate) run: PackedRun,
}

/// A block where `O_DIRECT` can reach it.
#[derive(Debug)]
#[repr(C, align(4096))]
pub(crate) struct Aligned(pub(crate) [u8; BLOCK]);

impl Default for Kit {
    fn default() -> Self {
        Self {
            buffer: Box::new(Aligned([0; BLOCK])),
            run: PackedRun::new(PAGES),
        }
    }
}

impl Pager {
    pub(crate) fn new(config: &Config) -> Result<Self, String> {
        let fault = |what: &'static str| move |fault: io::Error| format!("{what}: {fault}");
        if sys::page_len() != PAGE {
            return Err("only systems with pages of 4 KiB are supported".into());
        }
        let uffd = Uffd::open().map_err(|fault| match fault.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => DENIED.into(),
            Some(libc::EINVAL) => {
                "this kernel cannot move pages (UFFDIO_MOVE): Linux 6.8 or later is needed".into()
            }
            _ => format!("userfaultfd: {fault}"),
        })?;
        let len = ARENA_MIN
            .max((config.limit as usize).saturating_mul(8))
            .next_multiple_of(BLOCK);
        let reserved = sys::reserve(len + BLOCK).map_err(fault("cannot reserve address space"))?;
        let base = reserved.next_multiple_of(BLOCK);
        uffd.register(base, len, true)
            .map_err(fault("cannot register memory"))?;
        let stage = Stage::new(&uffd).map_err(fault("cannot register memory"))?;
        let file = Backing::make(Path::new(&config.backing))
            .map_err(|fault| format!("cannot make a file in {}: {fault}", config.backing))?;
        let store = Store::new(StoreConfig {
            size: len as u64,
            // A program waits for what is packed just now, and for what is unpacked.
            profile: Profile::Fast,
            chains: Chains::default(),
            budget: Arc::new(Budget::new(None)),
            backing: None,
            helpers: Arc::new(HelperPool::new("", 0).map_err(fault("cannot make threads"))?),
        });
        let counters = Counters::open(config.counters.as_deref());
        counters.set(Counter::Started, 1);
        Ok(Self {
            uffd,
            base,
            len,
            stage,
            store: store.map_err(fault("cannot make a store"))?,
            file,
            gauge: Gauge::new(config.limit).map_err(fault("/proc/self/statm"))?,
            counters,
            table: Mutex::new(Table {
                extents: Extents::new((len / BLOCK) as u32),
                blocks: Vec::new(),
                queues: Queues::default(),
                streams: Streams::default(),
                ahead: Vec::new(),
                taken: 0,
            }),
            work: Condvar::new(),
            evicting: AtomicBool::new(false),
        })
    }

    pub(crate) fn holds(&self, address: usize) -> bool {
        address.wrapping_sub(self.base) < self.len
    }

    /// Where a block lies in memory.
    pub(crate) fn address(&self, block: u32) -> usize {
        self.base + block as usize * BLOCK
    }

    /// The block that an address lies in.
    pub(crate) fn block(&self, address: usize) -> u32 {
        ((address - self.base) / BLOCK) as u32
    }

    /// Takes memory of `len` bytes, zeroed. With `sized`, its length can be asked for.
    pub(crate) fn take(&self, len: usize, sized: bool) -> Option<usize> {
        let count = u32::try_from(len.div_ceil(BLOCK)).ok()?;
        let mut table = self.table.lock();
        let first = table.extents.take(count)?;
        table.open(first, len);
        if sized {
            table.extents.set_len(first, len);
        }
        self.count(&mut table, i64::from(count));
        Some(self.address(first))
    }

    /// Makes an allocation longer or shorter where it is, and says whether it could.
    pub(crate) fn resize(&self, start: usize, old: usize, new: usize, sized: bool) -> bool {
        let first = self.block(start);
        let [before, after] = [old, new].map(|len| len.div_ceil(BLOCK) as u32);
        if after > before {
            let mut table = self.table.lock();
            if !table.extents.take_at(first + before, after - before) {
                return false;
            }
            table.open(first + before, new - before as usize * BLOCK);
            self.count(&mut table, i64::from(after - before));
        } else if after < before {
            self.give(first + after, before - after);
        }
        let mut table = self.table.lock();
        if sized {
            table.extents.set_len(first, new);
        }
        if after > 0 && before > 0 {
            let last = first + before.min(after) - 1;
            let at = (last - first) as usize * BLOCK;
            table.blocks[last as usize].live = live(new.saturating_sub(at));
        }
        true
    }

    fn count(&self, table: &mut Table, blocks: i64) {
        table.taken = table.taken.saturating_add_signed(blocks * BLOCK as i64);
        self.counters.set(Counter::Taken, table.taken);
        self.counters.raise(Counter::TakenPeak, table.taken);
    }

    /// The length of the allocation at `start`.
    pub(crate) fn len_of(&self, start: usize) -> Option<usize> {
        self.table.lock().extents.len(self.block(start))
    }

    /// Frees the allocation at `start`. Says whether there was one.
    pub(crate) fn free(&self, start: usize) -> bool {
        let first = self.block(start);
        let Some(len) = self.table.lock().extents.forget_len(first) else {
            return false;
        };
        self.give(first, len.div_ceil(BLOCK) as u32);
        true
    }

    /// Gives whole blocks back.
    fn give(&self, first: u32, count: u32) {
        self.clear(first, count, State::Unused);
        let mut table = self.table.lock();
        table.extents.give(first, count);
        self.count(&mut table, -i64::from(count));
    }

    /// Forgets what blocks hold.
    fn clear(&self, first: u32, count: u32, to: State) {
        let mut at = first;
        let mut held = 0;
        while at < first + count {
            let mut table = self.table.lock();
            while at < first + count {
                let block = &mut table.blocks[at as usize];
                if block.state == State::Busy {
                    break;
                }
                held += i64::from(block.state == State::Resident);
                // Held by us until its pages are gone: a fault meanwhile would find them half there.
                block.state = State::Busy;
                block.generation = block.generation.wrapping_add(1);
                at += 1;
            }
            drop(table);
            if at < first + count {
                std::thread::yield_now();
            }
        }
        let (start, len) = (self.address(first), count as usize * BLOCK);
        if sys::advise(start, len, libc::MADV_DONTNEED).is_err() {
            sys::fatal("the kernel does not drop memory; is it locked?");
        }
        self.gauge.add(-held);
        self.forget(first, count);
        let mut table = self.table.lock();
        for block in &mut table.blocks[first as usize..(first + count) as usize] {
            let generation = block.generation;
            let live = if to == State::Unused { 0 } else { block.live };
            let state = to;
            *block = Block {
                state,
                generation,
                live,
                ..Block::default()
            };
        }
        drop(table);
        let _ = self.uffd.wake(start, len);
    }

    /// Drops packed copies.
    pub(crate) fn forget(&self, first: u32, count: u32) {
        let (at, len) = (
            u64::from(first) * BLOCK as u64,
            u64::from(count) * BLOCK as u64,
        );
        if let Err(fault) = self.store.trim(at, len, false) {
            sys::fatal(&format!("cannot forget a packed block: {fault}"));
        }
    }

    /// The program unmaps a range of pages.
    pub(crate) fn unmap(&self, start: usize, len: usize) {
        self.by_block(start, len, |pager, block, pages| {
            let mut table = pager.table.lock();
            let entry = &mut table.blocks[block as usize];
            if entry.state == State::Unused {
                return;
            }
            entry.live &= !pages;
            let is_gone = entry.live == 0;
            drop(table);
            match is_gone {
                true => pager.give(block, 1),
                false => pager.discard_in(block, pages),
            }
        });
    }

    /// The program drops the content of a range of pages: they read as zeroes.
    pub(crate) fn discard(&self, start: usize, len: usize) {
        self.by_block(start, len, |pager, block, pages| {
            let table = pager.table.lock();
            let entry = table.blocks[block as usize];
            drop(table);
            match entry.state {
                State::Unused | State::Empty => {}
                _ if entry.live & !pages == 0 => pager.clear(block, 1, State::Empty),
                _ => pager.discard_in(block, pages),
            }
        });
    }

    /// Drops some pages of a block, which is brought for it.
    fn discard_in(&self, block: u32, pages: u16) {
        loop {
            let start = self.address(block);
            // SAFETY: the page is the program's, or was until this call; the read brings it.
            unsafe { (start as *const u8).read_volatile() };
            let mut table = self.table.lock();
            let entry = &mut table.blocks[block as usize];
            match entry.state {
                State::Unused | State::Empty => return,
                State::Resident => {}
                _ => continue,
            }
            entry.holes = true;
            if entry.copy == Copy::Stored {
                self.forget(block, 1);
            }
            entry.copy = Copy::None;
            for page in (0..PAGES).filter(|page| pages & 1 << page != 0) {
                let gone = sys::advise(start + page * PAGE, PAGE, libc::MADV_DONTNEED);
                if gone.is_err() {
                    sys::fatal("the kernel does not drop memory; is it locked?");
                }
            }
            return;
        }
    }

    /// Calls `work` with each block of a range, and a bit for each of its pages in it.
    fn by_block(&self, start: usize, len: usize, work: impl Fn(&Self, u32, u16)) {
        let end = (start + len).min(self.base + self.len);
        let mut at = start;
        while at < end {
            let block = self.block(at);
            let stop = end.min(self.address(block) + BLOCK);
            let first = (at - self.address(block)) / PAGE;
            let pages = live(stop - self.address(block)) & !live(first * PAGE);
            if (block as usize) < self.table.lock().blocks.len() {
                work(self, block, pages);
            }
            at = stop;
        }
    }
}

impl Table {
    /// Blocks from `first` on are the program's, `len` bytes.
    fn open(&mut self, first: u32, len: usize) {
        let end = first as usize + len.div_ceil(BLOCK);
        if self.blocks.len() < end {
            self.blocks.resize(end, Block::default());
        }
        for (at, block) in self.blocks[first as usize..end].iter_mut().enumerate() {
            block.state = State::Empty;
            block.live = live(len - at * BLOCK);
        }
    }
}

/// A bit for each page of the first `len` bytes of a block.
fn live(len: usize) -> u16 {
    let pages = len.div_ceil(PAGE).min(PAGES);
    ((1_u32 << pages) - 1) as u16
}

/// A file with no name, past the page cache where the file system can: what is in the cache is in memory.
#[derive(Debug)]
pub(crate) struct Backing {
    file: File,
    /// Device and inode.
    identity: (u64, u64),
}

impl Backing {
    fn make(dir: &Path) -> io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        let open = |flags| {
            let mut how = File::options();
            how.read(true).write(true).mode(0o600);
            how.custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC | flags)
                .open(dir)
        };
        let file = open(libc::O_DIRECT).or_else(|_| open(0))?;
        let identity = identity(&file)?;
        Ok(Self { file, identity })
    }

    /// Writes a block.
    pub(crate) fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.ours()?.write_all_at(bytes, at)
    }

    /// Reads a block.
    pub(crate) fn read(&self, out: &mut [u8], at: u64) -> io::Result<()> {
        self.ours()?.read_exact_at(out, at)
    }

    /// The file, if the descriptor is still its own: a program that closes descriptors which it did not open
    /// (`closefrom`) gets that number for a file of its own, and a block must not be written there.
    fn ours(&self) -> io::Result<&File> {
        if identity(&self.file)? == self.identity {
            return Ok(&self.file);
        }
        Err(io::Error::other(
            "the program closed this library's descriptor",
        ))
    }
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

const DENIED: &str = "userfaultfd is not allowed here; as root run `sysctl vm.unprivileged_userfaultfd=1`, or give the \
                      user read and write access to /dev/userfaultfd";
/// The address space for large memory, at least; where it is full, the program's memory is not managed.
const ARENA_MIN: usize = 32 << 30;
