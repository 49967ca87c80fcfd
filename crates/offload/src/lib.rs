//! Packing on another host: blocks of a file go to a server that owns accelerators, come back packed, are checked, and
//! become a file that standard tools read.
//!
//! ```text
//!  file ──▶ feeder ──▶ Ledger ──▶ sender ═══ session ══▶ reader ──▶ Queue ──▶ workers: Codec::pack
//!                       ▲  │                                         (fair)      │
//!  .gz .zst .lz4 ◀─ in order └─▶ checkers ◀── receiver ◀═══ session ═══ sender ◀─┘
//!                                 (and the packers of what is spilled)
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`message`] | the words of a job (`docs/specs/offload.md`) |
//! | [`method`] | what a block can be packed with, and by which backend |
//! | [`container`] | gzip, zstd and LZ4 files made of blocks, and the blocks of such files |
//! | [`server`] | jobs of many clients, one queue, fair |
//! | [`client`] | one job: blocks out, blocks back, checked, in order; what the server does not do is done here |
//! | [`file`](mod@file) | jobs on files: what is not whole never gets its name |
//! | `inflated` | whether DEFLATE unpacks to what is known, where that is seen sooner than by unpacking |
//! | [`report`] | what a job took |
//!
//! What comes from a server is not trusted: every block is unpacked here and compared before it is written. What comes
//! from a client is bounded before it is held. Why blocks and not a stream: they can be packed by several workers, come
//! from either side, and be checked while others travel.
//!
//! Locks, outermost first: a client's ledger, then what the server told. A client's first error, and of a server its
//! queue, its free seats and the length of contexts, are locked alone.
#![forbid(unsafe_code)]

pub mod client;
pub mod container;
pub mod file;
mod inflated;
mod ledger;
pub mod message;
pub mod method;
mod queue;
#[cfg(test)]
mod queue_tests;
pub mod report;
mod room;
pub mod server;
mod sync {
    pub(crate) use parking_lot::{Condvar, Mutex};
}

use std::{io, path::Path};

use narrows::{Code, Error};

pub use client::{Options, Spill};
pub use method::Method;
pub use report::Report;
pub use server::{Server, ServerOptions};

/// Service name of a job's channel. The number is the version of [`message`].
pub const SERVICE: &str = "offload/1";
/// Shortest block, in bytes. Shorter ones cost more to carry than to pack.
pub const BLOCK_LEN_MIN: usize = 4 << 10;
/// Longest block, in bytes: a block and what it is packed into are one chunk each.
pub const BLOCK_LEN_MAX: usize = 8 << 20;

/// Why a job failed. The text says what to do next; the code is the command's exit code.
#[derive(Debug, thiserror::Error)]
pub enum OffloadError {
    /// The session ended, by the server or the network.
    #[error(transparent)]
    Session(#[from] Error),
    /// A file here could not be read or written.
    #[error("{what} {path}: {fault}")]
    File {
        /// `"cannot read"`, `"cannot write"`, …
        what: &'static str,
        /// Which.
        path: String,
        /// The system's word.
        fault: io::Error,
    },
    /// The server does not do this job, or not as asked.
    #[error("{0}")]
    Server(String),
    /// Work would have to be done here, and that was forbidden.
    #[error("{0}; without --no-spill this processor would have done it")]
    Spill(String),
    /// The file to unpack is damaged, or not what it should be.
    #[error("{0}")]
    Damaged(String),
    /// The file to unpack says nothing of its blocks.
    #[error("{0}")]
    NoBlocks(String),
    /// Somebody asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl OffloadError {
    pub(crate) fn file(what: &'static str, path: &Path, fault: io::Error) -> Self {
        Self::File {
            what,
            path: path.display().to_string(),
            fault,
        }
    }

    /// The code the command exits with.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Session(end) => end.code(),
            Self::File { .. } | Self::Server(_) | Self::Spill(_) => Code::FAILED,
            Self::Damaged(_) => Code::CORRUPT,
            Self::NoBlocks(_) => Code::PROTOCOL,
            Self::Interrupted => Code::CANCELLED,
        }
    }
}
