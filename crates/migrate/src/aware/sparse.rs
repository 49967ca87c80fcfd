//! Bytes that are mostly zero: runs of zeros counted, the rest as it is.
//!
//! What QEMU's XBZRLE does for a page's difference, in a form of our own: pairs of LEB128 lengths, zeros then others,
//! each pair followed by the others' bytes; trailing zeros are not written. Why not leave it to the codec: the codec
//! may be raw or LZ4, and 4 KiB of zeros with some bytes in them cost it as much time as any 4 KiB.

/// Shorter runs of zeros stay among the others: what they would save, the lengths cost.
const GAP_MIN: usize = 8;

/// Longest that [`write()`] makes of `len` bytes: a run of zeros saves at least what its lengths cost, but for the
/// first pair's.
#[must_use]
pub fn len_max(len: usize) -> usize {
    len + 12
}

/// Appends `bytes`.
pub fn write(bytes: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(from) = next_other(bytes, at) {
        let mut end = from + 1;
        // Others go on until enough zeros follow.
        loop {
            match next_other(bytes, end) {
                Some(next) if next - end < GAP_MIN => end = next + 1,
                _ => break,
            }
        }
        write_len(from - at, out);
        write_len(end - from, out);
        out.extend_from_slice(&bytes[from..end]);
        at = end;
    }
}

/// Fills `out` from what [`write()`] made of as many bytes; `None` where it is no such thing. `out` must be zero
/// before.
#[must_use]
pub fn read(mut bytes: &[u8], out: &mut [u8]) -> Option<()> {
    let mut at = 0_usize;
    while !bytes.is_empty() {
        let zeros = read_len(&mut bytes)?;
        let others = read_len(&mut bytes)?;
        let from = at.checked_add(zeros)?;
        let end = from.checked_add(others)?;
        out.get_mut(from..end)?
            .copy_from_slice(bytes.get(..others)?);
        bytes = &bytes[others..];
        at = end;
    }
    Some(())
}

/// Appends a length, LEB128.
pub fn write_len(len: usize, out: &mut Vec<u8>) {
    let mut rest = len;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Takes a length off the front; `None` where there is none, or one beyond 32 bits.
pub fn read_len(bytes: &mut &[u8]) -> Option<usize> {
    let mut len = 0_usize;
    for shift in (0..35).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        len |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return u32::try_from(len).is_ok().then_some(len);
        }
    }
    None
}

/// First byte at or after `from` that is not zero. Eight at a time: most of a difference is zeros.
fn next_other(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(word) = bytes.get(at..at + 8) {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        if word != 0 {
            return Some(at + word.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    (at..bytes.len()).find(|&at| bytes[at] != 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(parts in prop::collection::vec((0_usize..300, prop::collection::vec(any::<u8>(), 0..40)), 0..30)) {
            let bytes: Vec<u8> = parts.iter().flat_map(|(zeros, others)| vec![0; *zeros].into_iter().chain(others.clone())).collect();
            let mut packed = Vec::new();
            write(&bytes, &mut packed);
            prop_assert!(packed.len() <= len_max(bytes.len()));
            let mut back = vec![0; bytes.len()];
            prop_assert_eq!(read(&packed, &mut back), Some(()));
            prop_assert_eq!(back, bytes);
        }

        #[test]
        fn anything_is_read_or_refused(packed in prop::collection::vec(any::<u8>(), 0..200), len in 0_usize..100) {
            let mut out = vec![0; len];
            let _ = read(&packed, &mut out);
        }
    }
}
