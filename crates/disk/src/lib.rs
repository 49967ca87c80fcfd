//! A crash-safe, thin, self-compressing block device on a file, a disk or an object store's image.
//!
//! One log is journal and store at once. Writes are packed, appended to a batch in memory, and
//! acknowledged; a flush makes the batch durable. A map of 8 bytes a block says where each block
//! is; checkpoints write it into the same log. The bytes: `docs/specs/disk.md`.
//!
//! ```text
//!  write ─▶ store: cut in units ≤ 32 KiB, pack (no lock) ─▶ log: append to open batch, change map ─▶ acknowledged
//!  flush ─▶ log: one leader seals, writes, flushes for all ─▶ acknowledged
//!  read  ─▶ map: entry ─▶ batch in memory, or backing ─▶ check, unpack
//!  maintenance: gc moves live units out of a segment ─▶ checkpoint makes it free ─▶ discard
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`backing`] | where the bytes are: a trait, a file, a simulated device |
//! | [`mod@format`] | superblock, batch, unit, map entry: parsing, no I/O |
//! | `store` | requests cut into units, scratch memory, counters |
//! | `log` | batches from open to durable |
//! | `map`, `segments` | where blocks are, what is free |
//! | `checkpoint`, `recovery` | the two ends of a crash |
//! | `gc`, `maintenance` | what is moved, and when |
//! | `stat`, `tools` | what it says of itself; check, list, grow, compact |
//! | `read`, `pack` | entries to blocks, blocks to units |
//!
//! # Locks, in this order
//! 1. `Store::maintenance`: one collection or checkpoint at a time. Held over I/O; requests take it
//!    only to make room.
//! 2. `Log::state`: appending, the segment table, who commits. Never held over I/O or packing.
//! 3. a map page, `Log::recent`, a batch's bytes, a pool: each alone, for a copy.
//!
//! Readers take only locks of the third kind.
//!
//! # Memory
//! 8 bytes a block in map pages that hold any, 24 bytes for each 2 MiB of the device, 40 bytes a
//! segment; 16 batches in flight and 8 spare ones of at most 1 MiB; for each request in progress
//! about 0.6 MiB; while collecting one segment. A recovery holds the records of the log since the
//! last checkpoint: 16 bytes for each unit.
#![forbid(unsafe_code)]

pub mod backing;
mod buffer;
mod checkpoint;
mod disk;
mod error;
pub mod format;
mod gc;
mod log;
mod maintenance;
mod make;
mod map;
mod pack;
mod read;
mod recovery;
mod segments;
pub mod served;
mod settings;
mod stat;
mod store;
mod tools;

#[cfg(test)]
mod tests;

pub use self::{
    disk::Disk,
    error::DiskError,
    make::{Made, MakeError, make},
    served::{ServedConfig, ServedDisks, ServedError},
    settings::{Creation, Profile, Provision, Settings, Tuning},
    stat::{Fullness, Stat},
    tools::{Findings, dump, fsck, grow},
};
