//! Chunks to frames and back, on one pool of workers, in order, within a stated memory bound.
//!
//! ```text
//! chunk -> ChunkPacker -> policy decides -> worker packs -> Sequencer -> Outlet::submit   (sending)
//! frame -> ChunkUnpacker -> worker unpacks -> in order -> ChunkUnpacker::next                  (receiving)
//! ```
//!
//! Memory of one sending channel: `depth` chunks and as many packed frames, and the history its policy uses. Of one
//! receiving channel: the packed bytes its credit allows, `depth` chunks, and the agreed history. Buffers come from a
//! [`BufferPool`] and go back to it, so a steady stream allocates nothing.
//!
//! Locks, outermost first: a sending channel's order of frames, then what the [`Outlet`] locks; a receiving channel's
//! state. The policy's, the pool's and the buffers' are innermost: nothing else is locked, and no gauge read, while one
//! of them is held.
//!
//! Upstream: the facade's channels; downstream: `format`. Does no I/O; time comes through
//! [`Clock`](narrows_core::Clock).
#![forbid(unsafe_code)]

mod buffer;
mod history;
mod packer;
mod padding;
mod pool;
mod sequencer;
mod unpacker;

pub use buffer::{Buf, BufferPool, Bytes};
pub use history::History;
pub use packer::{ChunkPacker, Explain, Outlet, Packing, Stopped};
pub use pool::WorkerPool;
pub use sequencer::Sequencer;
pub use unpacker::{Accepted, Chunk, ChunkUnpacker, Counters, Direct, UnpackError, Unpacking};

/// Chunks up to this length are packed and unpacked by the thread that has them at hand: handing one to a worker and
/// back costs two wake-ups, some 10 µs, more than the work itself.
pub const INLINE_LEN: usize = 16 << 10;
