//! A RAM disk within the caller's process: a store and the thread that looks after its cold pages.
//!
//! [`RamDisk`](crate::RamDisk) serves stores to other processes; this one is for programs that call
//! the device themselves, as those in other languages do.

use std::{io, path::PathBuf, sync::Arc, thread, time::Duration};

use narrows_io::helper_pool::HelperPool;

use crate::{
    Backing, Budget, Chains, Profile, RamDiskError, Recompressor, RecompressorConfig, Stat, Store,
    StoreConfig,
};

/// Most threads that help with one long request: one has at most 32 pages at a time.
const HELPERS_MAX: usize = 7;

/// What a RAM disk within a process is to be.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MemoryDiskConfig {
    /// Size of the device in bytes.
    pub size: u64,
    /// Most memory for its pages in bytes; `None` for no limit.
    pub mem_limit: Option<u64>,
    /// How hard pages are packed as they are written.
    pub profile: Profile,
    /// A file or block device for pages that do not pack, and the most bytes of it.
    pub backing: Option<(PathBuf, Option<u64>)>,
    /// An untouched page is cold after this long.
    pub idle_after: Duration,
    /// Pack cold pages harder.
    pub recompress: bool,
}

impl MemoryDiskConfig {
    /// A device of `size` bytes, otherwise as `narrows memory serve` has it by default.
    #[must_use]
    pub fn new(size: u64) -> Self {
        Self {
            size,
            mem_limit: None,
            profile: Profile::Dense,
            backing: None,
            idle_after: Duration::from_secs(10),
            recompress: true,
        }
    }
}

/// A RAM disk that ends when it is dropped.
///
/// ```
/// use narrows_core::BlockDevice;
/// use narrows_memory::{MemoryDisk, MemoryDiskConfig};
///
/// let disk = MemoryDisk::open(MemoryDiskConfig::new(64 << 20))?;
/// disk.device().write(4096, b"packed pages", false).unwrap();
/// let mut out = [0; 12];
/// disk.device().read(4096, &mut out).unwrap();
/// assert_eq!(&out, b"packed pages");
/// # Ok::<(), narrows_memory::RamDiskError>(())
/// ```
#[derive(Debug)]
pub struct MemoryDisk {
    // Ends before the store that it looks after.
    _recompressor: Recompressor,
    store: Arc<Store>,
}

impl MemoryDisk {
    /// Makes an empty device. Starts threads, so a program that forks does so first.
    ///
    /// # Errors
    /// [`RamDiskError`], of which those that speak of serving do not come.
    pub fn open(config: MemoryDiskConfig) -> Result<Self, RamDiskError> {
        if config.size == 0 {
            return Err(RamDiskError::Empty(String::new()));
        }
        let backing = config
            .backing
            .map(|(path, limit)| Backing::open(&path, limit).map(Arc::new))
            .transpose()
            .map_err(|error| RamDiskError::Backing(io::Error::other(error)))?;
        let chains = Chains::default();
        // The caller's thread works too.
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let helpers = HelperPool::new("memory-crew", processors.min(HELPERS_MAX + 1) - 1)?;
        let store = Store::new(StoreConfig {
            size: config.size,
            profile: config.profile,
            chains: chains.clone(),
            budget: Arc::new(Budget::new(config.mem_limit)),
            backing,
            helpers: Arc::new(helpers),
        });
        let store = Arc::new(store.map_err(|reason| RamDiskError::TooLarge {
            size: config.size,
            reason,
        })?);
        let recompressor = RecompressorConfig {
            idle_after: config.idle_after,
            recompress: config.recompress,
            chains,
        };
        Ok(Self {
            _recompressor: Recompressor::start(vec![store.clone()], recompressor)?,
            store,
        })
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Store {
        &self.store
    }

    /// Its counters at this moment.
    #[must_use]
    pub fn stat(&self) -> Stat {
        self.store.stat()
    }
}
