//! How long the next chunk should be.
//!
//! Short chunks get the link busy early, keep latency low and end a transfer sooner; long ones pack better (text, zstd
//! 9: 2.56 at 64 KiB, 2.98 at 1 MiB, though history makes up for most of it). So: start short, then 256 KiB, less where
//! one chunk would hold the link for long. Longer ones on slow links lost 9 to 13 % of transfers of 24 MB at 100
//! Mbit/s: fewer decisions to learn from, and a slow one holds up all behind it. Where chunks pack to next to nothing,
//! handing them from thread to thread counts (7 to 12 % at 1 GB/s and more), and they are longer again. Where they do
//! not, longer ones gained nothing at 2.5 Gbit/s. History is indexed anew before each chunk that names it: where most
//! do, longer ones pay for it half as often, and each refers further back: transfers at 100 Mbit/s gained 0.4 to 2 % by
//! it once they knew their data (memory, logs, sources; programs lost 0.1 %), with less processor time. Not at 10 Mbit/s,
//! where the slowest levels would take too long for one, and not at 1 Gbit/s, where too much would be under way should the
//! link slow down. Units: bytes, nanoseconds.

use crate::{simple::CHUNK_LEN_DEFAULT, tuning::tuning};

/// Length of the next chunk, in bytes: always a power of two.
///
/// `decided` chunks went before; the link carries `bytes_per_ns`, of which a raw byte takes `size` lately; of the bytes
/// lately `with_history` were packed with history.
#[must_use]
pub fn chunk_len(
    decided: u64,
    bytes_per_ns: f64,
    measured: bool,
    size: f32,
    with_history: f32,
) -> usize {
    if decided < tuning().length_slow_start && tuning().rule_length_slow_start {
        return CHUNK_LEN_MIN;
    }
    let mut len = CHUNK_LEN_DEFAULT;
    while measured
        && tuning().rule_length_hold
        && len > CHUNK_LEN_MIN
        && len as f64 * f64::from(size) / bytes_per_ns > tuning().length_hold_ns
    {
        len /= 2;
    }
    let mistake_ns = if decided >= tuning().length_settled {
        tuning().length_mistake_settled_ns
    } else {
        tuning().length_mistake_ns
    };
    let settled = decided >= tuning().length_settled;
    while (CHUNK_LEN_DEFAULT..tuning().length_long).contains(&len) {
        let raw_ns = (2 * len) as f64 / bytes_per_ns;
        let tiny = tuning().rule_length_tiny
            && (2 * len) as f32 * size < tuning().length_next_to_nothing
            && raw_ns < mistake_ns;
        let refers = tuning().rule_length_refers
            && len == CHUNK_LEN_DEFAULT
            && with_history > tuning().length_most
            && settled
            && (tuning().length_refers_min_ns..tuning().length_refers_max_ns).contains(&raw_ns);
        if !tiny && !refers {
            break;
        }
        len *= 2;
    }
    len
}

/// Shortest chunk the policy asks for, in bytes.
pub const CHUNK_LEN_MIN: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn very_slow_links_get_short_chunks_within_bounds() {
        assert_eq!(chunk_len(0, 1.0, true, 0.5, 0.0), CHUNK_LEN_MIN);
        assert_eq!(chunk_len(99, 1.0, true, 0.5, 0.0), CHUNK_LEN_DEFAULT);
        assert_eq!(chunk_len(99, 0.00125, true, 0.35, 0.0), CHUNK_LEN_DEFAULT);
        assert_eq!(chunk_len(99, 0.0005, true, 0.5, 0.0), 128 << 10);
        assert_eq!(chunk_len(99, 0.00001, true, 1.0, 0.0), CHUNK_LEN_MIN);
    }

    #[test]
    fn chunks_with_history_are_longer_once_the_data_are_known() {
        assert_eq!(
            chunk_len(tuning().length_settled, 0.0125, true, 0.3, 0.9),
            512 << 10
        );
        assert_eq!(
            chunk_len(tuning().length_settled, 0.0125, true, 0.3, 0.4),
            CHUNK_LEN_DEFAULT
        );
        assert_eq!(chunk_len(99, 0.0125, true, 0.3, 0.9), CHUNK_LEN_DEFAULT);
        assert_eq!(
            chunk_len(tuning().length_settled, 0.00125, true, 0.3, 0.9),
            CHUNK_LEN_DEFAULT
        );
        assert_eq!(
            chunk_len(tuning().length_settled, 0.125, true, 0.3, 0.9),
            CHUNK_LEN_DEFAULT
        );
    }

    #[test]
    fn chunks_that_pack_to_next_to_nothing_are_long() {
        assert_eq!(chunk_len(99, 0.125, true, 0.01, 0.0), tuning().length_long);
        assert_eq!(chunk_len(99, 0.125, true, 0.06, 0.0), 512 << 10);
        assert_eq!(chunk_len(99, 0.125, true, 0.1, 0.0), CHUNK_LEN_DEFAULT);
        assert_eq!(chunk_len(99, 0.0125, true, 0.01, 0.0), CHUNK_LEN_DEFAULT);
        assert_eq!(
            chunk_len(tuning().length_settled, 0.0125, true, 0.01, 0.0),
            512 << 10
        );
        assert_eq!(chunk_len(99, 0.00001, true, 0.01, 0.0), 128 << 10);
    }
}
