//! `bwt`, which sorts bytes by the byte behind each, and `mtf`, plain move-to-front.

use super::counts;
use crate::step::{BETWEEN_MAX, PageError};

/// The last byte; then for each place, in the order of the bytes there, the byte before it, the last one being before
/// the first. `None` for more than `alphabet_max` different bytes.
pub(super) fn pack(raw: &[u8], out: &mut Vec<u8>, alphabet_max: usize) -> Option<()> {
    let &last = raw.last()?;
    let counts = counts(raw);
    if counts.iter().filter(|&&count| count > 0).count() > alphabet_max {
        return None;
    }
    let mut next = starts(&counts);
    out.push(last);
    out.resize(1 + raw.len(), 0);
    let mut before = last;
    for &byte in raw {
        let slot = &mut next[usize::from(byte)];
        out[1 + *slot] = before;
        *slot += 1;
        before = byte;
    }
    Some(())
}

/// Walks back from the last byte: the latest place of a byte that was not walked yet is the last in its bucket.
pub(super) fn unpack(packed: &[u8], out: &mut Vec<u8>) -> Result<(), PageError> {
    let (&last, before) = packed
        .split_first()
        .ok_or(PageError::Corrupt("bwt of no bytes"))?;
    if before.len() > BETWEEN_MAX {
        return Err(PageError::Corrupt("bwt of too many bytes"));
    }
    let counts = counts(before);
    let mut ends = starts(&counts);
    ends.iter_mut()
        .zip(&counts)
        .for_each(|(end, count)| *end += count);
    out.resize(before.len(), 0);
    let mut byte = last;
    for to in out.iter_mut().rev() {
        *to = byte;
        let end = &mut ends[usize::from(byte)];
        *end = end
            .checked_sub(1)
            .ok_or(PageError::Corrupt("bwt walks in a wrong circle"))?;
        byte = *before
            .get(*end)
            .ok_or(PageError::Corrupt("bwt walks in a wrong circle"))?;
    }
    Ok(())
}

/// How many smaller bytes there are.
fn starts(counts: &[usize; 256]) -> [usize; 256] {
    let mut sum = 0;
    counts.map(|count| {
        sum += count;
        sum - count
    })
}

/// The place of each byte in a list of all bytes, to whose front it then moves.
pub(super) fn to_front(raw: &[u8], out: &mut Vec<u8>) {
    let mut list: [u8; 256] = std::array::from_fn(|n| n as u8);
    out.extend(raw.iter().map(|&byte| {
        let place = list
            .iter()
            .position(|&other| other == byte)
            .expect("all bytes are in the list");
        list[..=place].rotate_right(1);
        place as u8
    }));
}

pub(super) fn from_front(packed: &[u8], out: &mut Vec<u8>) {
    let mut list: [u8; 256] = std::array::from_fn(|n| n as u8);
    out.extend(packed.iter().map(|&place| {
        list[..=usize::from(place)].rotate_right(1);
        list[0]
    }));
}
