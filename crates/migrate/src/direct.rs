//! Whether the two QEMUs had better talk without a tunnel between them.
//!
//! A tunnel copies every byte four times more. On a link that carries more than processors pack it has nothing to give
//! for that: through two plain relays a guest takes 1.9 times as long there. So `run` measures the link before the
//! guest moves, and where packing in the tunnel cannot keep up with it, and `serve --direct` allows it, has the
//! source's QEMU connect to the destination's, under TLS where the session is: with QEMU's own zstd, which takes less
//! of the processors, up to where that cannot keep up either. Session and control channel stay: who runs the guest is
//! settled as ever.

use std::time::{Duration, Instant};

use narrows::{Endpoint, Error, Incoming};

/// Service name of a channel whose bytes mean nothing, which shows what the link carries.
pub const SERVICE_PROBE: &str = "migrate-probe";

/// How QEMU's bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Through the tunnel, which packs them.
    Tunnel,
    /// From QEMU to QEMU, packed by its zstd of that level or not at all.
    Direct(Option<u8>),
}

// Where the ways part, in bytes a second that the link carries for each processor of an end. Measured with 780 MiB of
// programs and documents (*fill*, four channels, QEMU 10.0.2, docs/results/migrate.md) and two processors for both
// ends, so one each; seconds, medians of two to five:
//
// | Mbit/s | tunnel | zstd 2 | zstd 1 | unpacked |
// |---|---|---|---|---|
// | 500 | 5.3 | 5.0 | 5.4 | 13 |
// | 1000 | 3.8 | 2.9 | 2.9 | 6.6 |
// | 2000 | 2.7 | 2.6 | 2.3 | 3.4 |
// | 3000 | 2.6 | 2.6 | 2.3 | 2.3 |
//
// And 480 MiB, QEMU 7.2, four processors each, medians of two: the tunnel takes all of them, zstd does not.
//
// | Mbit/s | tunnel | zstd 1 | unpacked |
// |---|---|---|---|
// | 2500 | 0.72 | 0.90 | 1.78 |
// | 5000 | 0.59 | 0.97 | 0.85 |
// | 10000 | 0.46 | 0.94 | 0.45 |
// | unshaped | 0.28 | 0.94 | 0.17 |

/// From here on QEMU by itself with [`ZSTD_LEVEL`]. At half a gigabit the tunnel takes as long, and of a guest that
/// writes it sends far less.
const ZSTD_PER_S: f64 = 9e7;
/// From here on unpacked, which takes as long as zstd on any faster link. However many processors there are, what one
/// cannot keep up with is not for zstd.
const UNPACKED_PER_S: f64 = 3.6e8;
/// The same under TLS, the tunnel's or QEMU's own, whose cipher has less to do where bytes are packed. QEMU 7.2 around
/// the tunnel took 14 % less time than through it on 4 Gbit/s, 7 % more and 34 % more bytes on 3. What is measured of
/// the link is what one connection's cipher lets through, 0.7 to 1.0 GB/s there.
const UNPACKED_UNDER_TLS_PER_S: f64 = 4e8;
/// Level of QEMU's zstd. Level 2 takes a fifth more of the processors and, on links that it is used for, no less time.
pub const ZSTD_LEVEL: u8 = 1;

/// The link is looked at for no longer than this, and with no more bytes: 10 Mbit/s are busy for half a second with
/// what is on its way by then.
const PROBE_FOR: Duration = Duration::from_millis(100);
/// See [`PROBE_FOR`].
const PROBE_LEN: usize = 32 << 20;
/// What comes first, and how much of it may be on its way when the rest begins.
const COLD_LEN: usize = 8 << 20;
const LEFT_LEN: u64 = 1 << 20;
const CHUNK_LEN: usize = 256 << 10;

/// What the link carries, in bytes a second, from sending noise for a tenth of a second; what comes first, while
/// buffers are new and the congestion window small, does not count if there is more. Short of what a long fat network
/// carries, whose window is not open by then: those are slow enough to be packed for.
///
/// # Errors
/// [`Error`] when the session ends.
pub fn link_rate(endpoint: &Endpoint) -> Result<f64, Error> {
    let (mut writer, _reader) = endpoint.open(SERVICE_PROBE)?;
    let (mut noise, mut sent, mut since) = (Noise::new(), 0, Instant::now());
    let (until, mut warm_by) = (since + PROBE_FOR, Some(since + PROBE_FOR / 4));
    while sent < PROBE_LEN && Instant::now() < until {
        if sent >= COLD_LEN
            && let Some(by) = warm_by.take()
            && Instant::now() < by
        {
            writer.wait_unconsumed(LEFT_LEN)?;
            (sent, since) = (0, Instant::now());
        }
        let mut chunk = writer.buffer_for(CHUNK_LEN);
        noise.fill(&mut chunk);
        sent += chunk.len();
        writer.push(chunk)?;
    }
    writer.finish()?;
    writer.wait_consumed()?;
    Ok(sent as f64 / since.elapsed().as_secs_f64())
}

/// Takes what [`link_rate`] sends.
pub fn drain(incoming: Incoming) {
    let Incoming {
        mut reader,
        mut writer,
        ..
    } = incoming;
    while let Ok(Some(_)) = reader.next_chunk() {}
    let _ = writer.finish();
}

/// The way for a link of that rate, in bytes a second, where each end has so many processors to itself. `is_tls`: so is
/// QEMU's own connection. `zstd`: both QEMUs have it.
#[must_use]
pub fn choose(link: f64, processors: f64, is_tls: bool, zstd: bool) -> Route {
    let each = link / processors;
    let unpacked = if is_tls {
        UNPACKED_UNDER_TLS_PER_S
    } else {
        UNPACKED_PER_S
    };
    match zstd {
        _ if each > unpacked => Route::Direct(None),
        true if each > ZSTD_PER_S && link <= unpacked => Route::Direct(Some(ZSTD_LEVEL)),
        _ => Route::Tunnel,
    }
}

/// What no codec makes shorter and no history has seen (xorshift64, Marsaglia 2003, several side by side: one alone is
/// slower than fast links).
struct Noise([u64; 8]);

impl Noise {
    fn new() -> Self {
        Self(std::array::from_fn(|lane| {
            0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(2 * lane as u64 + 1)
        }))
    }

    fn fill(&mut self, out: &mut [u8]) {
        for words in out.chunks_exact_mut(64) {
            for (state, word) in self.0.iter_mut().zip(words.chunks_exact_mut(8)) {
                *state ^= *state << 13;
                *state ^= *state >> 7;
                *state ^= *state << 17;
                word.copy_from_slice(&state.to_le_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_the_link_the_less_is_packed() {
        let way = |mbit: f64, processors, is_tls, zstd| {
            choose(mbit * 1e6 / 8.0, processors, is_tls, zstd)
        };
        for is_tls in [false, true] {
            assert_eq!(way(500.0, 1.0, is_tls, true), Route::Tunnel);
            assert_eq!(
                way(940.0, 1.0, is_tls, true),
                Route::Direct(Some(ZSTD_LEVEL))
            );
            assert_eq!(way(10_000.0, 1.0, is_tls, true), Route::Direct(None));
            assert_eq!(
                way(940.0, 2.0, is_tls, true),
                Route::Tunnel,
                "two processors pack a gigabit in the tunnel"
            );
            assert_eq!(way(10_000.0, 16.0, is_tls, true), Route::Tunnel);
            assert_eq!(
                way(5000.0, 4.0, is_tls, true),
                Route::Tunnel,
                "four processors pack what zstd does not"
            );
            assert_eq!(way(20_000.0, 4.0, is_tls, true), Route::Direct(None));
            assert_eq!(
                way(1900.0, 1.0, is_tls, false),
                Route::Tunnel,
                "nothing is better than the tunnel but zstd"
            );
        }
    }

    #[test]
    fn noise_does_not_repeat() {
        let mut bytes = vec![0; 1 << 20];
        Noise::new().fill(&mut bytes);
        let mut words: Vec<_> = bytes.chunks(8).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), bytes.len() / 8);
    }
}
