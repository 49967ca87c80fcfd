//! Copies and match lengths that several LZ codecs of our own share.

/// Copies `len` bytes within `out` from `distance` back to `at`; the two may overlap, then the pattern repeats.
/// `None` if the source starts before `out` or the target ends behind it.
#[inline]
pub(crate) fn copy_match(out: &mut [u8], at: usize, distance: usize, len: usize) -> Option<()> {
    if distance == 0 || distance > at || len > out.len() - at {
        return None;
    }
    let from = at - distance;
    if distance >= 16 && len <= 64 && out.len() - at >= 64 {
        // The commonest case as moves of a fixed size. What they write past `len` is written again by what follows,
        // for a chunk is good only once `out` is full.
        let mut done = 0;
        while done < len {
            let (earlier, later) = out.split_at_mut(at + done);
            later[..16].copy_from_slice(&earlier[from + done..from + done + 16]);
            done += 16;
        }
    } else if distance >= len {
        out.copy_within(from..from + len, at);
    } else if distance == 1 {
        let byte = out[from];
        out[at..at + len].fill(byte);
    } else {
        // Each round copies everything from `from` up to what is there already, doubling it.
        let mut done = 0;
        while done < len {
            let part = (distance + done).min(len - done);
            out.copy_within(from..from + part, at + done);
            done += part;
        }
    }
    Some(())
}

/// Copies `len` literals from `from[start..]` to `out[at..]`, `None` if they are not there or do not fit. May write up
/// to 15 bytes more, which what follows writes again.
#[inline]
pub(crate) fn copy_literals(
    out: &mut [u8],
    at: usize,
    from: &[u8],
    start: usize,
    len: usize,
) -> Option<()> {
    if len <= 16
        && let Some(sixteen) = from.get(start..).and_then(<[u8]>::first_chunk::<16>)
        && let Some(target) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<16>)
    {
        // A move of a fixed size beats a call of memcpy.
        *target = *sixteen;
        return Some(());
    }
    let literals = from.get(start..)?.get(..len)?;
    out.get_mut(at..)?.get_mut(..len)?.copy_from_slice(literals);
    Some(())
}

/// How many bytes from `a` on equal those from `b` on, `b` being the later; ends at the end of `data`.
#[inline]
pub(crate) fn match_len(data: &[u8], a: usize, b: usize) -> usize {
    let mut len = 0;
    while let (Some(x), Some(y)) = (
        data.get(a + len..a + len + 8),
        data.get(b + len..b + len + 8),
    ) {
        let differing = u64_le(x) ^ u64_le(y);
        if differing != 0 {
            return len + differing.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    len + data[a + len..]
        .iter()
        .zip(&data[b + len..])
        .take_while(|(x, y)| x == y)
        .count()
}

/// The first four bytes of `bytes`, little-endian.
#[inline]
pub(crate) fn u32_le(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
}

/// The first eight bytes of `bytes`, little-endian.
#[inline]
pub(crate) fn u64_le(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_match_copies_as_a_loop_of_bytes_would() {
        for distance in 1..40 {
            for len in 0..80 {
                let mut out: Vec<u8> = (0..150).collect();
                let mut naive = out.clone();
                copy_match(&mut out, 50, distance, len).expect("it fits");
                for at in 50..50 + len {
                    naive[at] = naive[at - distance];
                }
                assert_eq!(
                    out[..50 + len],
                    naive[..50 + len],
                    "distance {distance}, length {len}"
                );
            }
        }
    }

    #[test]
    fn a_match_out_of_bounds_is_refused() {
        let mut out = [0; 8];
        assert!(copy_match(&mut out, 4, 0, 1).is_none());
        assert!(copy_match(&mut out, 4, 5, 1).is_none());
        assert!(copy_match(&mut out, 4, 4, 5).is_none());
    }

    #[test]
    fn match_len_stops_at_the_first_difference_and_at_the_end() {
        let data = b"abcdefghijklmnopqrstuvwxyz-abcdefghijklmnopqRstuvwxyz";
        assert_eq!(match_len(data, 0, 27), 17);
        assert_eq!(match_len(b"aaaaaaaaaaaaaaaaaaaaaa", 0, 1), 21);
    }
}
