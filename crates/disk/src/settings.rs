//! What a user may choose: when a store is made, and each time it is opened.

use serde::{Deserialize, Serialize};

/// How hard to compress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// LZ4 always, also when data is moved.
    Fast,
    /// LZ4 while requests queue, zstd 1 while they do not; what is moved or idle is packed by zstd.
    #[default]
    Balanced,
    /// zstd 1 for every write; what is moved or idle by a higher level or by page chains.
    Dense,
}

/// Whether the device may promise more than the backing holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provision {
    /// Yes: watch how full it is.
    #[default]
    Thin,
    /// No: the device is at most 93 % of the backing, so that even incompressible data fits.
    Guaranteed,
}

/// What a new store is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Creation {
    /// Size of the device in bytes; rounded up to a multiple of 4096.
    pub logical: u64,
    /// How hard to compress unless told otherwise when it is opened.
    pub profile: Profile,
    /// Whether it may promise more than there is.
    pub provision: Provision,
    /// Segment length in bytes, from 64 KiB to 16 MiB; chosen by the backing's size if `None`.
    pub segment_len: Option<u32>,
    /// Overwrite what is there.
    pub force: bool,
}

impl Creation {
    /// A device of `logical` bytes, with the defaults.
    #[must_use]
    pub fn new(logical: u64) -> Self {
        Self {
            logical,
            profile: Profile::default(),
            provision: Provision::default(),
            segment_len: None,
            force: false,
        }
    }

    /// Sets how hard to compress.
    #[must_use]
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// Sets whether it may promise more than there is.
    #[must_use]
    pub fn provision(mut self, provision: Provision) -> Self {
        self.provision = provision;
        self
    }

    /// Sets the segment length in bytes.
    #[must_use]
    pub fn segment_len(mut self, bytes: u32) -> Self {
        self.segment_len = Some(bytes);
        self
    }

    /// Overwrites what is there.
    #[must_use]
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }
}

/// How a store is run while it is open.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// How hard to compress; the store's own choice if `None`.
    pub profile: Option<Profile>,
    /// Take no writes and write nothing to the backing.
    pub read_only: bool,
    /// Run a thread that collects garbage, checkpoints and recompresses. Without it the same work
    /// is done by writers when it cannot wait, and by [`Disk::maintain`](crate::Disk::maintain).
    pub background: bool,
    /// Threads per connection a server should use.
    pub workers: u16,
    /// While the device is idle, collect segments that are largely dead and recompress cold data.
    pub recompress: bool,
    /// Numbers that tests and measurements change.
    pub tuning: Tuning,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            profile: None,
            read_only: false,
            background: true,
            workers: 16,
            recompress: true,
            tuning: Tuning::default(),
        }
    }
}

impl Settings {
    /// Sets how hard to compress.
    #[must_use]
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = Some(profile);
        self
    }

    /// Takes no writes and writes nothing.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets whether a background thread is run.
    #[must_use]
    pub fn background(mut self, background: bool) -> Self {
        self.background = background;
        self
    }

    /// Sets the number of threads per connection a server should use.
    #[must_use]
    pub fn workers(mut self, workers: u16) -> Self {
        self.workers = workers;
        self
    }

    /// Sets whether garbage is collected and cold data recompressed while the device is idle.
    #[must_use]
    pub fn recompress(mut self, recompress: bool) -> Self {
        self.recompress = recompress;
        self
    }

    /// Sets the numbers that tests and measurements change.
    #[must_use]
    pub fn tuning(mut self, tuning: Tuning) -> Self {
        self.tuning = tuning;
        self
    }
}

/// Numbers that tests and measurements change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tuning {
    /// Blocks of the longest unit: 1, 2, 4 or 8.
    pub unit_blocks: usize,
    /// Bytes of log after which a checkpoint is due. It bounds what a recovery replays.
    pub checkpoint_every: u64,
    /// Writes in progress from which on the queue counts as deep.
    pub deep: u32,
    /// Bytes of free segments that are not discarded, since writing where nothing was is slower.
    pub warm_bytes: u64,
    /// Milliseconds without a request after which the device is idle.
    pub idle_ms: u64,
    /// A bug to plant, to see that the proof finds it.
    #[cfg(test)]
    pub(crate) sabotage: Option<crate::tests::Sabotage>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            unit_blocks: crate::format::UNIT_BLOCKS,
            checkpoint_every: 256 << 20,
            deep: 3,
            warm_bytes: 128 << 20,
            idle_ms: 2000,
            #[cfg(test)]
            sabotage: None,
        }
    }
}
