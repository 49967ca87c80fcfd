//! Frames whose length tells less: what a codec made, with zeros behind it (`docs/specs/codec-ids.md`, `padded`).
//!
//! Lengths are rounded up as Padmé does (Nikitin et al., *Reducing Metadata Leakage from Encrypted Files and
//! Communication with PURBs*, 2019): by 12 % at most, so that of lengths up to n about log log n bits can be told.

use narrows_core::{CodecId, DecodeError};

use crate::Buf;

/// Before what the codec made: its number, and the length.
const HEAD_LEN: usize = 5;

/// A frame's payload and its length, padded.
pub(crate) fn padded_len(packed_len: usize) -> usize {
    padme(HEAD_LEN + packed_len)
}

/// Fills `out`, which has [`padded_len`].
pub(crate) fn pad(codec: CodecId, packed: &[u8], out: &mut Buf) {
    out[0] = codec.0;
    out[1..HEAD_LEN].copy_from_slice(&(packed.len() as u32).to_le_bytes());
    out[HEAD_LEN..][..packed.len()].copy_from_slice(packed);
    out[HEAD_LEN + packed.len()..].fill(0);
}

/// What is in it.
pub(crate) fn unpad(payload: &[u8]) -> Result<(CodecId, &[u8]), DecodeError> {
    let (head, rest) = payload
        .split_at_checked(HEAD_LEN)
        .ok_or(DecodeError::corrupt(0, "padded payload without a head"))?;
    let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
    let packed = rest.get(..len).ok_or(DecodeError::corrupt(
        1,
        "more in a padded payload than it has",
    ))?;
    match CodecId(head[0]) {
        CodecId::PADDED => Err(DecodeError::corrupt(0, "padded twice")),
        codec => Ok((codec, packed)),
    }
}

fn padme(len: usize) -> usize {
    let exponent = len.max(2).ilog2();
    let bits = exponent - exponent.max(1).ilog2() - 1;
    let mask = (1 << bits.min(exponent)) - 1;
    (len + mask) & !mask
}

#[cfg(test)]
mod tests {
    use narrows_format::packed_len_max;

    use super::*;
    use crate::BufferPool;

    // Goal: lengths are rounded up by an eighth at most, few different ones are left, and any padded chunk is one that a
    // frame may hold.
    #[test]
    fn lengths_are_rounded_up_by_little() {
        let mut different = std::collections::BTreeSet::new();
        for raw_len in 1..=100_000 {
            let len = padded_len(raw_len);
            assert!(
                len >= raw_len + HEAD_LEN && len * 8 <= (raw_len + HEAD_LEN) * 9,
                "{raw_len}"
            );
            assert!(len <= packed_len_max(raw_len as u32) as usize, "{raw_len}");
            different.insert(len);
        }
        assert!(different.len() < 200, "{}", different.len());
        assert!(padded_len(16 << 20) <= packed_len_max(16 << 20) as usize);
    }

    #[test]
    fn what_is_padded_comes_back_and_hostile_heads_are_refused() {
        let mut out = BufferPool::new(0).take(padded_len(100));
        pad(CodecId(9), &[7; 100], &mut out);
        assert_eq!(unpad(&out).unwrap(), (CodecId(9), &[7; 100][..]));
        for payload in [
            &b""[..],
            &[9, 0, 0, 0],
            &[9, 1, 0, 0, 0],
            &[9, 255, 255, 255, 255, 0],
            &[31, 0, 0, 0, 0],
        ] {
            assert!(unpad(payload).is_err(), "{payload:?}");
        }
    }
}
