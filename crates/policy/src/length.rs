//! How long the next chunk should be.
//!
//! Short chunks get the link busy early and keep latency low; long ones pack better (text, zstd 9: 2.56 at 64 KiB, 2.98
//! at 1 MiB) and fit fewer in the cache. So: start short, then 256 KiB; on links so slow that processors wait anyway,
//! longer, as long as one chunk holds the link for no more than a bounded time. Units: bytes, nanoseconds.

use crate::simple::CHUNK_LEN_DEFAULT;

/// Length of the next chunk, in bytes: always a power of two.
///
/// `decided` chunks went before; the link carries `bytes_per_ns`, of which a raw byte takes `size` lately.
#[must_use]
pub fn chunk_len(decided: u64, bytes_per_ns: f64, measured: bool, size: f32) -> usize {
    // What travels raw gains nothing by length: short chunks arrive sooner, and stay in the second-level cache between
    // being read, summed and sent, which halves what they cost (0.9 against 0.5 CPU seconds a gigabyte).
    if decided < SLOW_START || size > RAW_SIZE {
        return CHUNK_LEN_MIN;
    }
    if !measured || bytes_per_ns > SLOW_LINK {
        return CHUNK_LEN_DEFAULT;
    }
    let mut len = CHUNK_LEN_MAX;
    while len > CHUNK_LEN_MIN && len as f64 * f64::from(size) / bytes_per_ns > HOLD_NS {
        len /= 2;
    }
    len
}

/// Shortest and longest chunk the policy asks for, in bytes.
pub const CHUNK_LEN_MIN: usize = 64 << 10;
/// See [`CHUNK_LEN_MIN`].
pub const CHUNK_LEN_MAX: usize = 1 << 20;
/// Above this packed share, lately, most chunks travelled raw.
const RAW_SIZE: f32 = 0.97;
/// Chunks before the first long one.
const SLOW_START: u64 = 8;
/// Faster links keep the default length: 400 Mbit/s.
const SLOW_LINK: f64 = 0.05;
/// Longest time one chunk may hold the link.
const HOLD_NS: f64 = 150e6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_links_get_long_chunks_within_bounds() {
        assert_eq!(chunk_len(0, 1.0, true, 1.0), CHUNK_LEN_MIN);
        assert_eq!(chunk_len(99, 1.0, true, 0.5), CHUNK_LEN_DEFAULT);
        assert_eq!(chunk_len(99, 0.0125, true, 0.4), CHUNK_LEN_MAX);
        assert_eq!(chunk_len(99, 0.00125, true, 0.35), 512 << 10);
        assert_eq!(chunk_len(99, 0.0125, true, 1.0), CHUNK_LEN_MIN);
        assert_eq!(chunk_len(99, 0.00001, true, 1.0), CHUNK_LEN_MIN);
    }
}
