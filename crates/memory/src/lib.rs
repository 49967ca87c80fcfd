//! A RAM disk whose 4 KiB pages are kept packed.
//!
//! ```text
//! write ──▶ same-filled? ──▶ PagePacker ──▶ Shard: slot ──▶ Slabs ──▶ Region (frames)
//!            one word         or raw      │ full? ──▶ compact ──▶ Backing ──▶ no space
//!                                         ▼
//!                        Recompressor: idle, pack harder, dictionary, clusters, write back, compact
//! ```
//!
//! Floor: paths. Everything is volatile: the store ends with its process, backing file or not.
//!
//! | module | holds |
//! |---|---|
//! | [`store`] | [`Store`], the [`BlockDevice`](narrows_core::BlockDevice): pages dealt out to shards |
//! | `shard` | slots and slabs behind one lock |
//! | `slot` | where one page is, in eight bytes |
//! | `page` | a page as it is stored and as it is found |
//! | `slab` | packed pages side by side in frames |
//! | [`budget`] | frames in use and the limit on them, shared by stores |
//! | [`backing`] | a file for pages that do not pack, or that nobody asks for |
//! | `cluster` | four cold pages packed as one |
//! | `dictionary_cache` | dictionaries of a store's own pages |
//! | [`recompressor`] | the thread that looks after cold pages |
//! | [`stat`] | counters under zram's names, latencies |
//! | [`control`] | the document that `narrows memory stat` reads |
//! | [`RamDisk`] | all of it, served |
//! | [`MemoryDisk`] | all of it but the server, for callers in the same process |
//! | `whole` | a run of pages stored at once, if they pack |
//! | [`run`] | what `narrows memory run` and its library tell each other |
//! | `metrics` | the same counters for Prometheus |
//!
//! Locks, outermost first: a shard's (one at a time), then the dictionary cache's or the backing file's, one at a time.
//! The pool of kits and what helpers share of a long request are locked alone. Nothing is packed or unpacked for a
//! request under a shard's lock, but where a page is written in part or a cluster is dissolved.
#![forbid(unsafe_code)]

pub mod backing;
pub mod budget;
mod cluster;
pub mod control;
mod dictionary_cache;
mod memory_disk;
mod metrics;
mod page;
mod ram_disk;
pub mod recompressor;
pub mod run;
mod shard;
mod slab;
mod slot;
pub mod stat;
pub mod store;
mod tools;
mod whole;

#[cfg(test)]
mod tests;

pub use backing::Backing;
pub use budget::Budget;
pub use memory_disk::{MemoryDisk, MemoryDiskConfig};
pub use narrows_chains::Chains;
pub use ram_disk::{RamDisk, RamDiskConfig, RamDiskError};
pub use recompressor::{Recompressor, RecompressorConfig};
pub use stat::Stat;
pub use store::{Store, StoreConfig};
pub use tools::Profile;
pub use whole::PackedRun;
