//! Reads a packed page. Format: `docs/specs/lzt.md`.

use std::mem::MaybeUninit;

use super::{
    Corrupt, PAGE_MAX,
    bits::BitReader,
    code::SECOND_BITS,
    emit::{KIND_MASK, LITERALS_PLAIN, NUMBERS_SHORT},
    kinds::{CONTEXTS, LITERAL_BITS, LITERAL_LINK, Ready, TOKEN_BITS, entry, set},
    token::OFFSET_FIRST,
};

/// Bytes copied at once, and so the room a fast copy needs after its target.
const COPY: usize = 32;

/// Fills `out` exactly with the page that `packed` holds. `out` is at most [`PAGE_MAX`] bytes.
///
/// `packed` may be any bytes: they give a page of the right length or [`Corrupt`], and nothing else. Where a page was
/// damaged and still parses, the bytes are wrong; a checksum is the caller's.
pub fn unpack(packed: &[u8], out: &mut [u8]) -> Result<(), Corrupt> {
    #[cfg(target_arch = "x86_64")]
    if super::wide::is_available() {
        // SAFETY: the processor has the features.
        return unsafe { unpack_wide(packed, out) };
    }
    unpack_any(packed, out)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
fn unpack_wide(packed: &[u8], out: &mut [u8]) -> Result<(), Corrupt> {
    unpack_any(packed, out)
}

#[inline(always)]
pub(super) fn unpack_any(packed: &[u8], out: &mut [u8]) -> Result<(), Corrupt> {
    if out.len() > PAGE_MAX {
        return Err(Corrupt("page too long"));
    }
    let (&flags, rest) = packed.split_first().ok_or(Corrupt("empty"))?;
    if flags & !(KIND_MASK | LITERALS_PLAIN | NUMBERS_SHORT) != 0 {
        return Err(Corrupt("unknown flags"));
    }
    let ready = &set(out.len()).kinds[usize::from(flags & KIND_MASK)];
    let (count, rest) = number(rest, flags)?;
    if count > out.len() {
        return Err(Corrupt("more literals than bytes"));
    }
    // Literals of a page of 4 KiB fit a small buffer, which stays in the first cache.
    let mut literals = [MaybeUninit::<u8>::uninit(); PAGE_MAX + COPY];
    let (literals, tokens) = if flags & LITERALS_PLAIN != 0 {
        let (plain, tokens) = rest.split_at_checked(count).ok_or(Corrupt("literals missing"))?;
        // SAFETY: `count <= PAGE_MAX`, and `plain` has `count` bytes.
        let literals = unsafe {
            let to = literals.as_mut_ptr().cast::<u8>();
            to.copy_from_nonoverlapping(plain.as_ptr(), count);
            to.add(count).write_bytes(0, COPY);
            std::slice::from_raw_parts(to, count + COPY)
        };
        (literals, tokens)
    } else {
        let (first, rest) = number(rest, flags)?;
        let (second, rest) = number(rest, flags)?;
        let (first, rest) = rest.split_at_checked(first).ok_or(Corrupt("literals missing"))?;
        let (second, tokens) = rest.split_at_checked(second).ok_or(Corrupt("literals missing"))?;
        let to = literals.as_mut_ptr().cast::<u8>();
        // SAFETY: `count <= PAGE_MAX`; the buffer has room for `count` bytes, all of which are written.
        let literals = unsafe {
            decode_literals(ready, first, second, to, count)?;
            to.add(count).write_bytes(0, COPY);
            std::slice::from_raw_parts(to, count + COPY)
        };
        (literals, tokens)
    };
    run_tokens(ready, tokens, literals, count, out)
}

/// The next number of the header.
#[inline(always)]
fn number(rest: &[u8], flags: u8) -> Result<(usize, &[u8]), Corrupt> {
    let missing = Corrupt("header cut");
    if flags & NUMBERS_SHORT != 0 {
        let (&number, rest) = rest.split_first().ok_or(missing)?;
        Ok((number.into(), rest))
    } else {
        let (number, rest) = rest.split_first_chunk().ok_or(missing)?;
        Ok((u16::from_le_bytes(*number).into(), rest))
    }
}

/// Decodes `count` literals to `to`: four quarters, the first two from the ends of `first`, the others of `second`.
///
/// # Safety
/// `to` has room for `count` bytes. All are written if the result is `Ok`.
#[inline(always)]
unsafe fn decode_literals(
    ready: &Ready,
    first: &[u8],
    second: &[u8],
    to: *mut u8,
    count: usize,
) -> Result<(), Corrupt> {
    let quarter = count.div_ceil(4);
    let mut a = Lane::<false>::new(first);
    let mut b = Lane::<true>::new(first);
    let mut c = Lane::<false>::new(second);
    let mut d = Lane::<true>::new(second);
    let last = count.saturating_sub(3 * quarter);
    let starts = [0, quarter, 2 * quarter, 3 * quarter];
    let mut i = 0;
    // SAFETY: `i < last` and lanes 0 to 2 are at least as long as the last, so each write is within `count`.
    unsafe {
        while i + 4 <= last {
            a.refill();
            b.refill();
            c.refill();
            d.refill();
            for _ in 0..4 {
                *to.add(starts[0] + i) = a.next(ready);
                *to.add(starts[1] + i) = b.next(ready);
                *to.add(starts[2] + i) = c.next(ready);
                *to.add(starts[3] + i) = d.next(ready);
                i += 1;
            }
        }
    }
    let lane_end = |lane: usize| count.min((lane + 1) * quarter);
    // SAFETY: each goes to the end of its quarter, at most `count`.
    unsafe {
        a.rest(ready, to, starts[0] + i, lane_end(0));
        b.rest(ready, to, starts[1] + i, lane_end(1));
        c.rest(ready, to, starts[2] + i, lane_end(2));
        d.rest(ready, to, starts[3] + i, lane_end(3));
    }
    let used = a.reader.bytes_used() + b.reader.bytes_used() == first.len()
        && c.reader.bytes_used() + d.reader.bytes_used() == second.len();
    if used { Ok(()) } else { Err(Corrupt("literals do not fill their streams")) }
}

/// One of four streams of literals.
struct Lane<'a, const BACK: bool> {
    reader: BitReader<'a, BACK>,
    context: usize,
}

impl<'a, const BACK: bool> Lane<'a, BACK> {
    #[inline(always)]
    fn new(bytes: &'a [u8]) -> Self {
        Self { reader: BitReader::new(bytes), context: 0 }
    }

    #[inline(always)]
    fn refill(&mut self) {
        self.reader.refill();
    }

    /// The next literal. At most four between two refills.
    #[inline(always)]
    fn next(&mut self, ready: &Ready) -> u8 {
        let bits = self.reader.bits;
        let at = self.context << LITERAL_BITS | (bits >> (64 - LITERAL_BITS)) as usize;
        // SAFETY: contexts are three bits of an entry, and the table begins with 8 * 2^10 entries (`Ready`).
        let mut entry = unsafe { *ready.literal_table.get_unchecked(at) };
        if entry & LITERAL_LINK != 0 {
            entry = second_literal(ready, entry, bits);
        }
        self.reader.skip(u32::from(entry >> 8 & 15));
        self.context = usize::from(entry >> 12);
        entry as u8
    }

    /// # Safety
    /// `to` has room for `end` bytes.
    #[inline(always)]
    unsafe fn rest(&mut self, ready: &Ready, to: *mut u8, from: usize, end: usize) {
        for at in from..end {
            self.refill();
            // SAFETY: `at < end`.
            unsafe { *to.add(at) = self.next(ready) };
        }
    }
}

#[inline(always)]
fn second_literal(ready: &Ready, link: u16, bits: u64) -> u16 {
    let low = bits << LITERAL_BITS >> (64 - SECOND_BITS);
    let second = usize::from(link & !LITERAL_LINK);
    // A link's table is there whole, so the index is always inside; checked, since this is rare.
    ready.literal_table[(CONTEXTS << LITERAL_BITS) + (second << SECOND_BITS) + low as usize]
}

/// Copies what the tokens say to `out`. `literals` has `count` bytes and [`COPY`] more.
#[inline(always)]
fn run_tokens(ready: &Ready, tokens: &[u8], literals: &[u8], count: usize, out: &mut [u8]) -> Result<(), Corrupt> {
    let mut reader = BitReader::<false>::new(tokens);
    let (mut at, mut used) = (0usize, 0usize);
    let mut before = usize::from(OFFSET_FIRST);
    // The bytes that matches make.
    let matched = out.len() - count;
    while at - used < matched {
        reader.refill();
        let first = (reader.bits >> (64 - TOKEN_BITS)) as usize;
        // SAFETY: the table begins with 2^11 entries (`Ready`).
        let mut token = unsafe { *ready.token_table.get_unchecked(first) };
        if token & 0xFF == 0 {
            let low = reader.bits << TOKEN_BITS >> (64 - SECOND_BITS);
            token = ready.token_table[(1 << TOKEN_BITS) + ((token >> 16) << SECOND_BITS) as usize + low as usize];
        }
        let field = |i: u32| (token >> (8 * i) & 0xFF) as u32;
        let bits = reader.bits << field(1);
        reader.skip(field(0));
        let literal_count = field(3) as usize + high(bits, field(2));
        let bits = bits << field(2);
        let len = field(5) as usize + high(bits, field(4));
        let bits = bits << field(4);
        let shift = field(7) & 3;
        let mut offset = (1 << (field(6) + shift)) + (high(bits, field(6)) << shift);
        if token & entry::OFFSET_BEFORE != 0 {
            offset = before;
        }
        before = offset;
        let from = at + literal_count;
        let end = from + len;
        if offset > from || literal_count > count - used {
            return Err(Corrupt("match before the page"));
        }
        if end + COPY <= out.len() {
            // SAFETY: `end + COPY` is inside `out`; `used + literal_count <= count`, and `literals` goes on for `COPY` bytes;
            // `offset <= from`, and it is not 0, since classes begin at 1.
            unsafe { copy_fast(literals, used, out, at, literal_count, offset, len) };
        } else {
            if end > out.len() {
                return Err(Corrupt("match past the page"));
            }
            out[at..from].copy_from_slice(&literals[used..used + literal_count]);
            for i in from..end {
                out[i] = out[i - offset];
            }
        }
        used += literal_count;
        at = end;
    }
    if out.len() - at != count - used {
        return Err(Corrupt("literals missing"));
    }
    out[at..].copy_from_slice(&literals[used..count]);
    if reader.bytes_used() == tokens.len() { Ok(()) } else { Err(Corrupt("tokens do not fill their stream")) }
}

/// The highest `count` bits, which may be none.
#[inline(always)]
fn high(bits: u64, count: u32) -> usize {
    (bits >> 1 >> (63 - count)) as usize
}

/// Copies literals, then a match, in whole words that may be longer.
///
/// # Safety
/// `at + literal_count + len + COPY <= out.len()`, `used + literal_count + COPY <= literals.len()`,
/// `1 <= offset <= at + literal_count`.
#[inline(always)]
unsafe fn copy_fast(
    literals: &[u8],
    used: usize,
    out: &mut [u8],
    at: usize,
    literal_count: usize,
    offset: usize,
    len: usize,
) {
    // SAFETY: each copy begins before the end of its run, and runs have `COPY` bytes of room after them in the source and
    // the target. A match's source ends before its target, if the copies are no longer than the offset.
    unsafe {
        let from = literals.as_ptr().add(used);
        let to = out.as_mut_ptr().add(at);
        copy::<16>(from, to);
        if literal_count > 16 {
            let mut done = 16;
            while done < literal_count {
                copy::<16>(from.add(done), to.add(done));
                done += 16;
            }
        }
        let to = to.add(literal_count);
        let from = to.sub(offset);
        if offset >= 16 {
            copy::<16>(from, to);
            let mut done = 16;
            while done < len {
                copy::<16>(from.add(done), to.add(done));
                done += 16;
            }
        } else if offset >= 8 {
            let mut done = 0;
            while done < len {
                copy::<8>(from.add(done), to.add(done));
                done += 8;
            }
        } else {
            for i in 0..len {
                *to.add(i) = *from.add(i);
            }
        }
    }
}

/// # Safety
/// `N` bytes can be read and written, and do not overlap.
#[inline(always)]
unsafe fn copy<const N: usize>(from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { to.cast::<[u8; N]>().write_unaligned(from.cast::<[u8; N]>().read_unaligned()) };
}
