//! How long the next chunk should be.
//!
//! Short chunks get the link busy early, keep latency low and end a transfer sooner; long ones pack better (text, zstd
//! 9: 2.56 at 64 KiB, 2.98 at 1 MiB, though history makes up for most of it). So: start short, then 256 KiB, less where
//! one chunk would hold the link for long. Longer ones on slow links lost 9 to 13 % of transfers of 24 MB at 100
//! Mbit/s: fewer decisions to learn from, and a slow one holds up all behind it. Where chunks pack to next to nothing,
//! handing them from thread to thread counts (7 to 12 % at 1 GB/s and more), and they are longer again. Where they do
//! not, longer ones gained nothing at 2.5 Gbit/s. Units: bytes, nanoseconds.

use crate::simple::CHUNK_LEN_DEFAULT;

/// Length of the next chunk, in bytes: always a power of two.
///
/// `decided` chunks went before; the link carries `bytes_per_ns`, of which a raw byte takes `size` lately.
#[must_use]
pub fn chunk_len(decided: u64, bytes_per_ns: f64, measured: bool, size: f32) -> usize {
    if decided < SLOW_START {
        return CHUNK_LEN_MIN;
    }
    let mut len = CHUNK_LEN_DEFAULT;
    while measured && len > CHUNK_LEN_MIN && len as f64 * f64::from(size) / bytes_per_ns > HOLD_NS {
        len /= 2;
    }
    let mistake_ns = MISTAKE_NS[usize::from(decided >= SETTLED)];
    while (CHUNK_LEN_DEFAULT..CHUNK_LEN_LONG).contains(&len)
        && (2 * len) as f32 * size < NEXT_TO_NOTHING
        && (2 * len) as f64 / bytes_per_ns < mistake_ns
    {
        len *= 2;
    }
    len
}

/// Shortest chunk the policy asks for, in bytes.
pub const CHUNK_LEN_MIN: usize = 64 << 10;
/// Chunks before the first long one.
const SLOW_START: u64 = 8;
/// Longest chunk, and what one longer than usual may pack to.
const CHUNK_LEN_LONG: usize = 1 << 20;
const NEXT_TO_NOTHING: f32 = (32 << 10) as f32;
/// Longest time for which one of them may hold the link after all, if a codec is tried that does not pack it: at first,
/// and where chunks have shown what they pack to.
const MISTAKE_NS: [f64; 2] = [2e7, 5e7];
/// Chunks after which mistakes are rare.
const SETTLED: u64 = 128;
/// Longest time one chunk may hold the link.
const HOLD_NS: f64 = 150e6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn very_slow_links_get_short_chunks_within_bounds() {
        assert_eq!(chunk_len(0, 1.0, true, 0.5), CHUNK_LEN_MIN);
        assert_eq!(chunk_len(99, 1.0, true, 0.5), CHUNK_LEN_DEFAULT);
        assert_eq!(chunk_len(99, 0.00125, true, 0.35), CHUNK_LEN_DEFAULT);
        assert_eq!(chunk_len(99, 0.0005, true, 0.5), 128 << 10);
        assert_eq!(chunk_len(99, 0.00001, true, 1.0), CHUNK_LEN_MIN);
    }

    #[test]
    fn chunks_that_pack_to_next_to_nothing_are_long() {
        assert_eq!(chunk_len(99, 0.125, true, 0.01), CHUNK_LEN_LONG);
        assert_eq!(chunk_len(99, 0.125, true, 0.06), 512 << 10);
        assert_eq!(chunk_len(99, 0.125, true, 0.1), CHUNK_LEN_DEFAULT);
        assert_eq!(chunk_len(99, 0.0125, true, 0.01), CHUNK_LEN_DEFAULT);
        assert_eq!(chunk_len(SETTLED, 0.0125, true, 0.01), 512 << 10);
        assert_eq!(chunk_len(99, 0.00001, true, 0.01), 128 << 10);
    }
}
