//! The device: pages dealt out to shards, requests cut into pages.
//!
//! Packing and unpacking happen outside the locks, on the thread of the request; under a shard's lock an object is
//! copied. Groups of four neighbouring pages stay in one shard, because a cluster is packed of them; neighbouring
//! groups lie in different shards, so that connections reading one region do not wait for each other. Threads that are
//! idle help with the pages of a long request.

use std::{
    io, iter,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use narrows_chains::{Chains, PAGE};
use narrows_core::{
    BlockDevice, BlockError,
    block::{Execution, Extent, Shape, Zeroing},
};
use narrows_io::helper_pool::HelperPool;
use parking_lot::Mutex;

use crate::{
    backing::Backing,
    budget::Budget,
    cluster,
    dictionary_cache::DictionaryCache,
    page::{Image, LoadError, Page},
    shard::{Shard, StoreError},
    slot::{Kind, Slot},
    stat::{BdStat, Dictionaries, Stat, Tally, Traffic, count},
    tools::{Kit, Pool, Profile, Tools},
};

/// What a store is made of.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// Bytes of the device; rounded up to whole pages inside, not for clients.
    pub size: u64,
    /// How hard pages are packed as they are written.
    pub profile: Profile,
    /// The chains in use; shared, so that a change of them reaches this store.
    pub chains: Chains,
    /// Frames; may be shared with other stores.
    pub budget: Arc<Budget>,
    /// Where pages go that do not pack or that nobody wants.
    pub backing: Option<Arc<Backing>>,
    /// Threads that help with long requests; may be shared with other stores.
    pub helpers: Arc<HelperPool>,
}

/// A RAM disk.
#[derive(Debug)]
pub struct Store {
    size: u64,
    shards: Box<[Mutex<Shard>]>,
    pub(crate) pool: Pool,
    budget: Arc<Budget>,
    backing: Option<Arc<Backing>>,
    lexicon: Arc<DictionaryCache>,
    helpers: Arc<HelperPool>,
    /// Whether the last long request took so long that help was worth calling, of reads and of writes.
    reads_are_long: AtomicBool,
    writes_are_long: AtomicBool,
    traffic: Traffic,
}

/// Where a page lies: its shard, and its slot there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Home {
    pub(crate) shard: usize,
    pub(crate) slot: usize,
}

/// A part of a request that lies in one page.
#[derive(Debug, Clone, Copy)]
struct Part {
    page: u64,
    /// First byte within the page.
    from: usize,
    len: usize,
}

/// Pages of a request that are done before anybody is asked to help, if the last request was not worth it: they tell
/// how long the rest will take.
const TASTED: usize = 4;
/// Work that is worth waking a thread for, and pages.
const HELP_FROM: Duration = Duration::from_micros(50);
const PAGES_PER_HAND: usize = 4;

impl Store {
    /// An empty store.
    ///
    /// # Errors
    /// The system has no address space for that size, or keeps us from reserving it.
    pub fn new(config: StoreConfig) -> io::Result<Self> {
        let pages = config.size.div_ceil(PAGE as u64);
        // More than one a processor, so that two threads seldom want the same one; few, because each keeps a slab
        // that is filling.
        let shards = (thread::available_parallelism().map_or(1, usize::from) * 2)
            .next_power_of_two()
            .min(64);
        let groups = pages
            .div_ceil(cluster::PAGES as u64)
            .div_ceil(shards as u64);
        let slots = usize::try_from(groups)
            .ok()
            .and_then(|groups| groups.checked_mul(cluster::PAGES));
        let slots = slots.ok_or(io::ErrorKind::OutOfMemory)?;
        let lexicon = Arc::new(DictionaryCache::new(config.budget.clone()));
        let shard = |_| {
            Shard::new(
                slots,
                config.budget.clone(),
                config.backing.clone(),
                lexicon.clone(),
            )
            .map(Mutex::new)
        };
        Ok(Self {
            size: config.size,
            shards: (0..shards).map(shard).collect::<io::Result<_>>()?,
            pool: Pool::new(config.profile, config.chains),
            budget: config.budget,
            backing: config.backing,
            lexicon,
            helpers: config.helpers,
            reads_are_long: AtomicBool::new(false),
            writes_are_long: AtomicBool::new(false),
            traffic: Traffic::default(),
        })
    }

    /// Counters at this moment.
    #[must_use]
    pub fn stat(&self) -> Stat {
        let mut tally = Tally::default();
        let mut frames = 0;
        for shard in &self.shards {
            let shard = shard.lock();
            tally.add(&shard.tally);
            frames += shard.object_frames();
        }
        let (count, dictionary_frames) = self.lexicon.cost();
        let mut stat = Stat::of(&tally, frames + dictionary_frames, &self.traffic);
        stat.size = self.size;
        stat.dictionaries = Dictionaries {
            count,
            bytes: dictionary_frames * PAGE as u64,
        };
        stat.mm_stat.mem_limit = self.budget.limit().unwrap_or(0);
        stat.mm_stat.mem_used_max = self.budget.peak();
        if let Some(backing) = &self.backing {
            let [bd_count, bd_reads, bd_writes] = backing.counts();
            stat.bd_stat = BdStat {
                bd_count,
                bd_reads,
                bd_writes,
            };
        }
        stat
    }

    pub(crate) fn shards(&self) -> &[Mutex<Shard>] {
        &self.shards
    }

    pub(crate) fn lexicon(&self) -> &DictionaryCache {
        &self.lexicon
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(crate) fn backing_has_room(&self) -> bool {
        self.backing
            .as_ref()
            .is_some_and(|backing| backing.has_room())
    }

    pub(crate) fn home(&self, page: u64) -> Home {
        let pages = cluster::PAGES as u64;
        let (group, member) = (page / pages, page % pages);
        let shards = self.shards.len() as u64;
        Home {
            shard: (group % shards) as usize,
            slot: (group / shards * pages + member) as usize,
        }
    }

    pub(crate) fn check(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        if offset.checked_add(len).is_none_or(|end| end > self.size) {
            count(&self.traffic.invalid_io, 1);
            return Err(BlockError::Invalid("beyond the end of the device"));
        }
        Ok(())
    }

    fn read_part(&self, part: Part, out: &mut [u8], tools: &mut Tools) -> Result<(), BlockError> {
        let home = self.home(part.page);
        let mut load = |page: &mut Page| {
            tools.load(page, |copied, page| {
                self.shards[home.shard]
                    .lock()
                    .fetch(home.slot, copied, page)
            })
        };
        let loaded: Result<(), LoadError> = match <&mut Page>::try_from(&mut *out) {
            Ok(page) => load(page),
            Err(_) => {
                let mut page = [0; PAGE];
                let loaded = load(&mut page);
                out.copy_from_slice(&page[part.from..part.from + part.len]);
                loaded
            }
        };
        loaded.map_err(|fault| BlockError::Io(fault.to_string()))
    }

    fn write_part(&self, part: Part, data: &[u8], kit: &mut Kit) -> Result<(), BlockError> {
        let Kit { tools, image } = kit;
        let home = self.home(part.page);
        let shard = &self.shards[home.shard];
        let stored = match <&Page>::try_from(data) {
            Ok(page) => {
                let image = Image::of(page, &mut tools.packer, image);
                put(&mut shard.lock(), home.slot, page, image, tools)
            }
            Err(_) => change(&mut shard.lock(), home.slot, tools, |page| {
                page[part.from..part.from + part.len].copy_from_slice(data);
            }),
        };
        stored.map_err(|fault| self.explain(&fault))
    }

    /// Does each of `count` parts of a request, with the helpers if that takes a while: as long as it did the last time,
    /// which `is_long` says, or as the first ones take alone.
    fn each<T: Send>(
        &self,
        count: usize,
        is_long: &AtomicBool,
        mut parts: impl Iterator<Item = (Part, T)> + Send,
        work: impl Fn(Part, T, &mut Kit) -> Result<(), BlockError> + Sync,
    ) -> Result<(), BlockError> {
        let mut kit = self.pool.lend();
        let hands = count.saturating_sub(TASTED) / PAGES_PER_HAND;
        if hands > 0 {
            let begun = Instant::now();
            let was_long = is_long.load(Ordering::Relaxed);
            if !was_long {
                parts
                    .by_ref()
                    .take(TASTED)
                    .try_for_each(|(part, bytes)| work(part, bytes, &mut kit))?;
            }
            if was_long || begun.elapsed() * (count - TASTED) as u32 / TASTED as u32 >= HELP_FROM {
                drop(kit);
                let left = Mutex::new((parts, Ok(())));
                self.helpers.call(hands, &|| {
                    let mut kit = self.pool.lend();
                    let next = || {
                        let (parts, result) = &mut *left.lock();
                        result.is_ok().then(|| parts.next()).flatten()
                    };
                    while let Some((part, bytes)) = next() {
                        if let Err(fault) = work(part, bytes, &mut kit) {
                            left.lock().1 = Err(fault);
                        }
                    }
                });
                // Two had a part in it, if there was help.
                is_long.store(begun.elapsed() * 2 >= HELP_FROM, Ordering::Relaxed);
                return left.into_inner().1;
            }
        }
        parts.try_for_each(|(part, bytes)| work(part, bytes, &mut kit))
    }

    /// Sets whole pages of the range to `to`. With `edges`, what lies in part of a page is written as zeroes, and it is
    /// a fault where no memory is left to take a cluster apart; without, such pages stay as they are.
    fn clear_parts(
        &self,
        offset: u64,
        len: u64,
        to: Slot,
        edges: bool,
        tools: &mut Tools,
    ) -> Result<(), BlockError> {
        let pages = cluster::PAGES as u64;
        let (page, end) = (offset.div_ceil(PAGE as u64), (offset + len) / PAGE as u64);
        // The last page of a device that ends within it.
        let end = if offset + len == self.size {
            self.size.div_ceil(PAGE as u64)
        } else {
            end
        };
        let mut next = page;
        while next < end {
            let stop = end.min((next / pages + 1) * pages);
            let home = self.home(next);
            let mut shard = self.shards[home.shard].lock();
            match shard.clear(home.slot, (stop - next) as usize, to, tools) {
                Err(StoreError::Full) if !edges => {}
                other => other.map_err(|fault| self.explain(&fault))?,
            }
            count(&self.traffic.notify_free, stop - next);
            next = stop;
        }
        if edges {
            let whole = page * PAGE as u64..end * PAGE as u64;
            for part in
                parts(offset, len).filter(|part| !whole.contains(&(part.page * PAGE as u64)))
            {
                let home = self.home(part.page);
                let mut shard = self.shards[home.shard].lock();
                let zero = |page: &mut Page| page[part.from..part.from + part.len].fill(0);
                change(&mut shard, home.slot, tools, zero).map_err(|fault| self.explain(&fault))?;
            }
        }
        Ok(())
    }

    pub(crate) fn explain(&self, fault: &StoreError) -> BlockError {
        match fault {
            StoreError::Full => {
                let limit = self.budget.limit().unwrap_or(0);
                let backing = if self.backing.is_some() {
                    " and the backing file is full"
                } else {
                    ""
                };
                BlockError::NoSpace(format!(
                    "the memory limit of {} is reached{backing}; trim, or serve with a higher --mem-limit",
                    narrows_core::units::Size(limit)
                ))
            }
            StoreError::Load(fault) => BlockError::Io(fault.to_string()),
        }
    }

    fn counted<T>(
        &self,
        writes: bool,
        work: impl FnOnce() -> Result<T, BlockError>,
    ) -> Result<T, BlockError> {
        let begun = Instant::now();
        let result = work();
        let (histogram, failed) = match writes {
            true => (&self.traffic.writes, &self.traffic.failed_writes),
            false => (&self.traffic.reads, &self.traffic.failed_reads),
        };
        histogram.record(begun.elapsed());
        if result.is_err() {
            count(failed, 1);
        }
        result
    }
}

/// Puts a page, whatever was there.
pub(crate) fn put(
    shard: &mut Shard,
    at: usize,
    page: &Page,
    image: Image<'_>,
    tools: &mut Tools,
) -> Result<(), StoreError> {
    shard.dissolve(at, tools)?;
    shard.store(at, page, image)
}

/// Reads, changes and writes a page under its shard's lock.
fn change(
    shard: &mut Shard,
    at: usize,
    tools: &mut Tools,
    work: impl FnOnce(&mut Page),
) -> Result<(), StoreError> {
    let mut page = [0; PAGE];
    shard.load(at, tools, &mut page)?;
    work(&mut page);
    shard.dissolve(at, tools)?;
    shard.store(
        at,
        &page,
        Image::of(&page, &mut tools.packer, &mut tools.packed),
    )
}

impl BlockDevice for Store {
    fn shape(&self) -> Shape {
        Shape {
            size: self.size,
            block_min: 1,
            block_preferred: PAGE as u32,
            read_only: false,
            rotational: false,
            shared: true,
            fast_zero: true,
            execution: Execution::Inline,
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BlockError> {
        self.check(offset, out.len() as u64)?;
        count(&self.traffic.read_bytes, out.len() as u64);
        let parts_of = parts(offset, out.len() as u64);
        let (head, rest) = out.split_at_mut(head_len(offset, out.len()));
        let pages = rest.len().div_ceil(PAGE) + usize::from(!head.is_empty());
        let pieces = iter::once(head)
            .filter(|head| !head.is_empty())
            .chain(rest.chunks_mut(PAGE));
        self.counted(false, || {
            self.each(
                pages,
                &self.reads_are_long,
                parts_of.zip(pieces),
                |part, out, kit| self.read_part(part, out, &mut kit.tools),
            )
        })
    }

    fn write(&self, offset: u64, data: &[u8], _fua: bool) -> Result<(), BlockError> {
        self.check(offset, data.len() as u64)?;
        count(&self.traffic.write_bytes, data.len() as u64);
        let (head, rest) = data.split_at(head_len(offset, data.len()));
        let pages = rest.len().div_ceil(PAGE) + usize::from(!head.is_empty());
        let pieces = iter::once(head)
            .filter(|head| !head.is_empty())
            .chain(rest.chunks(PAGE));
        self.counted(true, || {
            let parts = parts(offset, data.len() as u64).zip(pieces);
            self.each(pages, &self.writes_are_long, parts, |part, data, kit| {
                self.write_part(part, data, kit)
            })
        })
    }

    /// Whole pages are forgotten; parts of pages stay as they are. Where no memory is left to take a cluster apart, so
    /// does the rest of it: a trim is never refused.
    fn trim(&self, offset: u64, len: u64, _fua: bool) -> Result<(), BlockError> {
        self.check(offset, len)?;
        self.clear_parts(offset, len, Slot::HOLE, false, &mut self.pool.lend().tools)
    }

    /// Zeroes take no object, so this is fast however many there are; `keep_allocated` only keeps them from being
    /// reported as holes.
    fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        how: Zeroing,
        _fua: bool,
    ) -> Result<(), BlockError> {
        self.check(offset, len)?;
        let to = if how.keep_allocated {
            Slot::ZERO
        } else {
            Slot::HOLE
        };
        self.counted(true, || {
            self.clear_parts(offset, len, to, true, &mut self.pool.lend().tools)
        })
    }

    /// Nothing here outlives the process, so there is nothing to wait for.
    fn flush(&self) -> Result<(), BlockError> {
        Ok(())
    }

    fn extents(
        &self,
        offset: u64,
        len: u64,
        max: usize,
        found: &mut Vec<Extent>,
    ) -> Result<(), BlockError> {
        self.check(offset, len)?;
        let before = found.len();
        let mut state = (
            Home {
                shard: usize::MAX,
                slot: 0,
            },
            None,
        );
        for part in parts(offset, len) {
            let home = self.home(part.page);
            if state.0.shard != home.shard {
                // One lock at a time: two threads with two each could wait for each other.
                drop(state.1.take());
                state = (home, Some(self.shards[home.shard].lock()));
            }
            let shard = state.1.as_ref().expect("locked just now, or before");
            let (hole, zero) = match shard.slot(home.slot).kind() {
                Kind::Hole => (true, true),
                Kind::Zero => (false, true),
                _ => (false, false),
            };
            let full = found.len() - before == max;
            match found[before..].last_mut() {
                Some(last) if (last.hole, last.zero) == (hole, zero) => last.len += part.len as u64,
                _ if full => break,
                _ => found.push(Extent {
                    len: part.len as u64,
                    hole,
                    zero,
                }),
            }
        }
        Ok(())
    }
}

/// Bytes of a range that lie before the first page's boundary in it.
fn head_len(offset: u64, len: usize) -> usize {
    len.min(((PAGE as u64 - offset % PAGE as u64) % PAGE as u64) as usize)
}

/// Cuts a range into pages.
fn parts(offset: u64, len: u64) -> impl Iterator<Item = Part> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (page, from) = (at / PAGE as u64, (at % PAGE as u64) as usize);
        let len = (PAGE - from).min(usize::try_from(end - at).unwrap_or(PAGE));
        at += len as u64;
        Some(Part { page, from, len })
    })
}
