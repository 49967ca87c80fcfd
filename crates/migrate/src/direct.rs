//! Whether the two QEMUs had better talk without a tunnel between them.
//!
//! A tunnel copies every byte four times more. On a link that carries more than processors pack it has nothing to give for that: through two
//! plain relays a guest takes 1.9 times as long there. So `run` measures the link before the guest moves, and where
//! packing cannot keep up with it, and `serve --direct` allows it, has the source's QEMU connect to the destination's, under TLS where the session
//! is. Session and control channel stay: who
//! runs the guest is settled as ever.

use std::time::{Duration, Instant};

use narrows::{End, Endpoint, Incoming};

/// Service name of a channel whose bytes mean nothing, which shows what the link carries.
pub const SERVICE_PROBE: &str = "migrate-probe";

/// What a processor packs in a second of programs and documents, carrying them through the tunnel besides: two move 0.78 GB/s, whatever the
/// link. In bytes.
pub const PACKED_PER_S: f64 = 4e8;

/// The same under TLS, the tunnel's or QEMU's own. Two processors, for both hosts, moved 0.50 GB/s (0.41 to 0.55) through the tunnel where without TLS
/// it was 0.74, and 0.84 (0.83 to 0.90) around it, with half the processor time at the source, so QEMU's cipher is not what limits. On 4 Gbit/s direct took
/// 14 % less time than the tunnel, on 3 Gbit/s 7 % more and 34 % more bytes (QEMU 7.2, four channels, medians): equal at 0.4 GB/s. What is measured of the
/// link is what one connection's cipher lets through, 0.7 to 1.0 GB/s there.
pub const PACKED_UNDER_TLS_PER_S: f64 = 2e8;

/// The link is looked at for no longer than this, and with no more bytes: 10 Mbit/s are busy for half a second with what is on its way by then.
const PROBE_FOR: Duration = Duration::from_millis(100);
/// See [`PROBE_FOR`].
const PROBE_LEN: usize = 32 << 20;
const CHUNK_LEN: usize = 256 << 10;

/// What the link carries, in bytes a second, from sending noise for a tenth of a second. Short of what a long fat network carries, whose
/// congestion window is not open by then: those are slow enough to be packed for.
///
/// # Errors
/// [`End`] when the session ends.
pub fn link_rate(endpoint: &Endpoint) -> Result<f64, End> {
    let (mut writer, _reader) = endpoint.open(SERVICE_PROBE)?;
    let (mut state, mut sent, began) = (0x9e37_79b9_7f4a_7c15, 0, Instant::now());
    while sent < PROBE_LEN && began.elapsed() < PROBE_FOR {
        let mut chunk = writer.buffer_for(CHUNK_LEN);
        fill_with_noise(&mut state, &mut chunk);
        sent += chunk.len();
        writer.push(chunk)?;
    }
    writer.finish()?;
    writer.wait_consumed()?;
    Ok(sent as f64 / began.elapsed().as_secs_f64())
}

/// Takes what [`link_rate`] sends.
pub fn drain(incoming: Incoming) {
    let Incoming { mut reader, mut writer, .. } = incoming;
    while let Ok(Some(_)) = reader.next_chunk() {}
    let _ = writer.finish();
}

/// Whether a link of that rate carries more than so many processors pack, all in bytes a second.
#[must_use]
pub fn outruns(link: f64, processors: usize, packed_per_s: f64) -> bool {
    link > packed_per_s * processors as f64
}

/// What no codec makes shorter and no history has seen (xorshift64; Marsaglia 2003).
fn fill_with_noise(state: &mut u64, out: &mut [u8]) {
    for word in out.chunks_mut(8) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processors_keep_up_with_a_gigabit_and_not_with_ten() {
        let (gigabit, ten) = (117e6, 1.17e9);
        for packed in [PACKED_PER_S, PACKED_UNDER_TLS_PER_S] {
            assert!(!outruns(gigabit, 1, packed) && !outruns(gigabit, 2, packed));
            assert!(outruns(ten, 1, packed) && outruns(ten, 2, packed) && !outruns(ten, 16, packed));
        }
    }

    #[test]
    fn noise_does_not_repeat() {
        let (mut state, mut bytes) = (1, vec![0; 1 << 20]);
        fill_with_noise(&mut state, &mut bytes);
        let mut words: Vec<_> = bytes.chunks(8).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), bytes.len() / 8);
    }
}
