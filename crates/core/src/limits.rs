//! The bounds a receiver imposes, checked before anything is allocated.
//!
//! Each side sends its own limits in the handshake and the other side stays within them; a frame that does not
//! is refused by its header alone. What a session holds by these numbers: `docs/specs/memory.md`.

/// Smallest chunk a user may ask for, in bytes (the published pipeline's smallest, Peñaranda et al. 2024).
pub const CHUNK_LEN_MIN: usize = 512;
/// Largest chunk the frame format can carry, in bytes.
pub const CHUNK_LEN_MAX: usize = 16 << 20;
/// Largest payload of a control frame, in bytes; the same for every peer.
pub const CONTROL_LEN_MAX: usize = 4096;
/// Largest history a frame may name, in bytes.
pub const HISTORY_LEN_MAX: usize = 64 << 20;

/// What a receiver is willing to hold. Lengths in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Raw length of the largest chunk.
    pub chunk_len_max: usize,
    /// Most bytes before a chunk that its codec may refer back to. 0 refuses history.
    pub history_len_max: usize,
    /// Packed bytes a peer may have outstanding on one channel, and we towards it: the lesser of both sides' counts.
    pub window_len: usize,
    /// Channels open at once.
    pub channels_max: u16,
    /// Chunks being unpacked or waiting for their turn, per channel.
    pub depth: usize,
}

impl Default for Limits {
    /// 4 MiB chunks, 1 MiB of history, 16 MiB windows: one bulk channel on a 1 Gbit/s link of 100 ms. The adaptive
    /// policy asks for no more history, a fixed setting only with longer chunks than that, and what is kept for nothing
    /// keeps buffers from being used again while they are in the cache.
    fn default() -> Self {
        Self {
            chunk_len_max: 4 << 20,
            history_len_max: 1 << 20,
            window_len: 16 << 20,
            channels_max: 1,
            depth: 8,
        }
    }
}
