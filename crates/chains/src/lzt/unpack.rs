//! Reads a packed page. Format: `docs/specs/lzt.md`.

use std::mem::MaybeUninit;

use super::{
    Corrupt, PAGE_MAX,
    bits::{BitReader, TokenReader},
    code::SECOND_BITS,
    emit::{KIND_MASK, LITERALS_PLAIN, NUMBERS_SHORT},
    kinds::{
        CONTEXTS, LITERAL_BITS, LITERAL_CONTEXT_SHIFT, LITERAL_LEN_SHIFT, Ready, TOKEN_BITS, TOKEN_LINK_SHIFT, set,
    },
    token::{LEN_MIN, OFFSET_FIRST},
};

/// Bytes copied at once, and so the room a fast copy needs after its target.
const COPY: usize = 32;

/// Fills `out` exactly with the page that `packed` holds. `out` is at most [`PAGE_MAX`] bytes.
///
/// `packed` may be any bytes: they give a page of the right length or [`Corrupt`], and nothing else. Where a page was
/// damaged and still parses, the bytes are wrong; a checksum is the caller's.
pub fn unpack(packed: &[u8], out: &mut [u8]) -> Result<(), Corrupt> {
    #[cfg(target_arch = "x86_64")]
    if crate::simd::is_available() {
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
    let table = &ready.literal_table[..];
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
            macro_rules! next_of_each {
                ($($step:literal)*) => {$(
                    *to.add(starts[0] + i + $step) = a.next(table);
                    *to.add(starts[1] + i + $step) = b.next(table);
                    *to.add(starts[2] + i + $step) = c.next(table);
                    *to.add(starts[3] + i + $step) = d.next(table);
                )*};
            }
            next_of_each!(0 1 2 3);
            i += 4;
        }
    }
    let lane_end = |lane: usize| count.min((lane + 1) * quarter);
    // SAFETY: each goes to the end of its quarter, at most `count`.
    unsafe {
        a.rest(table, to, starts[0] + i, lane_end(0));
        b.rest(table, to, starts[1] + i, lane_end(1));
        c.rest(table, to, starts[2] + i, lane_end(2));
        d.rest(table, to, starts[3] + i, lane_end(3));
    }
    let used = a.reader.bytes_used() + b.reader.bytes_used() == first.len()
        && c.reader.bytes_used() + d.reader.bytes_used() == second.len();
    if used { Ok(()) } else { Err(Corrupt("literals do not fill their streams")) }
}

/// One of four streams of literals.
struct Lane<'a, const BACK: bool> {
    reader: BitReader<'a, BACK>,
    /// Where the table of the next literal's context begins.
    table: usize,
}

/// Places where the first tables of literals begin.
const TABLE_MASK: u32 = (CONTEXTS as u32 - 1) << LITERAL_BITS;

impl<'a, const BACK: bool> Lane<'a, BACK> {
    #[inline(always)]
    fn new(bytes: &'a [u8]) -> Self {
        Self { reader: BitReader::new(bytes), table: 0 }
    }

    #[inline(always)]
    fn refill(&mut self) {
        self.reader.refill();
    }

    /// The next literal. At most four between two refills.
    #[inline(always)]
    fn next(&mut self, table: &[u16]) -> u8 {
        let bits = self.reader.bits();
        let at = self.table + (bits >> (64 - LITERAL_BITS)) as usize;
        // SAFETY: contexts are three bits of an entry, and the table begins with 8 * 2^10 entries (`Ready`).
        let mut entry = u32::from(unsafe { *table.get_unchecked(at) });
        if entry < 1 << LITERAL_LEN_SHIFT {
            let low = (bits << LITERAL_BITS >> (64 - SECOND_BITS)) as usize;
            let at = (CONTEXTS << LITERAL_BITS) + ((entry as usize) << SECOND_BITS) + low;
            // SAFETY: the second table of every link is there whole (`Ready`).
            entry = u32::from(unsafe { *table.get_unchecked(at) });
        }
        self.reader.skip(entry >> LITERAL_LEN_SHIFT);
        self.table = ((entry << (u32::from(LITERAL_BITS) - LITERAL_CONTEXT_SHIFT)) & TABLE_MASK) as usize;
        entry as u8
    }

    /// # Safety
    /// `to` has room for `end` bytes.
    #[inline(always)]
    unsafe fn rest(&mut self, table: &[u16], to: *mut u8, from: usize, end: usize) {
        for at in from..end {
            self.refill();
            // SAFETY: `at < end`.
            unsafe { *to.add(at) = self.next(table) };
        }
    }
}

/// What a token says.
#[derive(Clone, Copy)]
struct Step {
    literals: u16,
    len: u16,
    /// 0: as before.
    offset: u16,
}

/// Most tokens of a page: each but the last makes at least [`LEN_MIN`] of its bytes.
const STEPS_MAX: usize = PAGE_MAX / LEN_MIN + 2;

/// Decodes tokens until their matches make `matched` bytes, and returns how many there are.
///
/// Apart from the copies, so that what the processor guesses wrong in one does not delay the other, and from two streams
/// at a time, since each waits for its last lookup.
#[inline(always)]
fn read_tokens(
    ready: &Ready,
    tokens: &[u8],
    matched: usize,
    steps: &mut [MaybeUninit<Step>; STEPS_MAX],
) -> Result<usize, Corrupt> {
    let mut forward = TokenReader::<false>::new(tokens);
    let mut back = TokenReader::<true>::new(tokens);
    let (mut count, mut made) = (0, 0);
    while made < matched {
        let first = read_token(ready, &mut forward);
        // SAFETY: `made < matched <= PAGE_MAX`, and the steps before made at least `LEN_MIN` bytes each; so after at most
        // `PAGE_MAX / LEN_MIN` steps there is room for two more.
        unsafe { steps.get_unchecked_mut(count) }.write(first);
        count += 1;
        made += usize::from(first.len);
        if made >= matched {
            break;
        }
        let second = read_token(ready, &mut back);
        // SAFETY: as above.
        unsafe { steps.get_unchecked_mut(count) }.write(second);
        count += 1;
        made += usize::from(second.len);
    }
    if made != matched {
        return Err(Corrupt("matches and literals do not make the page"));
    }
    if forward.bytes_used() + back.bytes_used() != tokens.len() {
        return Err(Corrupt("tokens do not fill their streams"));
    }
    Ok(count)
}

#[inline(always)]
fn read_token<const BACK: bool>(ready: &Ready, reader: &mut TokenReader<'_, BACK>) -> Step {
    let bits = reader.bits();
    // SAFETY: the table begins with 2^11 entries (`Ready`).
    let mut token = unsafe { *ready.token_table.get_unchecked(low(bits, TOKEN_BITS.into()) as usize) };
    if token as u8 == 0 {
        let second = (token >> TOKEN_LINK_SHIFT << SECOND_BITS) + low(bits >> TOKEN_BITS, SECOND_BITS.into());
        // SAFETY: the second table of every link is there whole (`Ready`).
        token = unsafe { *ready.token_table.get_unchecked((1 << TOKEN_BITS) + second as usize) };
    }
    reader.skip((token >> 48 & 0xFF) as usize);
    let bits = bits >> (token & 63);
    let literals = (token >> 16 & 0xFF) + low(bits, token >> 8);
    let bits = bits >> (token >> 8 & 63);
    let len = (token >> 32 & 0xFF) + low(bits, token >> 24);
    let bits = bits >> (token >> 24 & 63);
    let offset = (1 << (token >> 40 & 63) | low(bits, token >> 40)) << (token >> 56 & 63);
    let offset = if (token as i64) < 0 { 0 } else { offset };
    Step { literals: literals as u16, len: len as u16, offset: offset as u16 }
}

/// Copies what the tokens say to `out`. `literals` has `count` bytes and [`COPY`] more.
#[inline(always)]
fn run_tokens(ready: &Ready, tokens: &[u8], literals: &[u8], count: usize, out: &mut [u8]) -> Result<(), Corrupt> {
    let mut steps = [MaybeUninit::uninit(); STEPS_MAX];
    let step_count = read_tokens(ready, tokens, out.len() - count, &mut steps)?;
    let (mut at, mut used) = (0usize, 0usize);
    let mut before = OFFSET_FIRST;
    let fast_end = out.len().saturating_sub(COPY);
    for step in &steps[..step_count] {
        // SAFETY: `read_tokens` wrote the first `step_count`.
        let Step { literals: run, len, offset } = unsafe { step.assume_init() };
        let offset = if offset == 0 { before } else { offset };
        before = offset;
        let (run, len, offset) = (usize::from(run), usize::from(len), usize::from(offset));
        let from = at + run;
        let end = from + len;
        if offset > from || run > count - used {
            return Err(Corrupt("match before the page"));
        }
        if end < fast_end {
            // SAFETY: `end + COPY < out.len()`; `used + run <= count`, and `literals` goes on for `COPY` bytes;
            // `1 <= offset <= from`.
            unsafe { copy_fast(literals, used, out, at, run, offset, len) };
        } else {
            if end > out.len() {
                return Err(Corrupt("match past the page"));
            }
            copy_last(&literals[used..used + run], out, at, offset, end);
        }
        used += run;
        at = end;
    }
    if out.len() - at != count - used {
        return Err(Corrupt("literals missing"));
    }
    out[at..].copy_from_slice(&literals[used..count]);
    Ok(())
}

/// The lowest `count & 0xFF < 64` bits.
#[inline(always)]
fn low(bits: u64, count: u64) -> u64 {
    bits & !(!0 << (count & 63))
}

/// As [`copy_fast`], near the end of the page.
#[cold]
#[inline(never)]
fn copy_last(literals: &[u8], out: &mut [u8], at: usize, offset: usize, end: usize) {
    let from = at + literals.len();
    out[at..from].copy_from_slice(literals);
    for i in from..end {
        out[i] = out[i - offset];
    }
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
        copy::<32>(from, to);
        if literal_count > 32 {
            copy_long::<32>(from, to, literal_count);
        }
        let to = to.add(literal_count);
        let from = to.sub(offset);
        if offset >= 16 {
            copy::<16>(from, to);
            copy::<16>(from.add(16), to.add(16));
            if len > 32 {
                copy_long::<16>(from, to, len);
            }
        } else if offset == 1 {
            let run = [*from; COPY];
            to.cast::<[u8; COPY]>().write_unaligned(run);
            if len > COPY {
                to.write_bytes(run[0], len);
            }
        } else if offset >= 8 {
            copy_long::<8>(from, to, len);
        } else {
            copy_near(from, to, offset, len);
        }
    }
}

/// Copies `len` bytes, at most `COPY` more, from `offset` bytes before, 2 to 7: so near that each byte waits for one that was
/// just written. After some of them the same pattern is also found eight bytes or more before.
///
/// # Safety
/// `from` is `offset` bytes before `to`; `to` has room for `len` bytes and `COPY` more.
#[cold]
#[inline(never)]
unsafe fn copy_near(from: *const u8, to: *mut u8, offset: usize, len: usize) {
    // The least multiple of the offset that is 8 or more.
    const FAR: [usize; 8] = [0, 8, 8, 9, 8, 10, 12, 14];
    let ahead = FAR[offset] - offset;
    // SAFETY: `ahead` is at most 7, within the room; then copies of 8 bytes from 8 or more before, as far as `len` goes.
    unsafe {
        for i in 0..ahead {
            *to.add(i) = *from.add(i);
        }
        copy_long::<8>(from, to.add(ahead), len.saturating_sub(ahead));
    }
}

/// Copies `len` bytes `N` at a time, at most `N - 1` more. Kept out of the way: as a part of its caller it takes
/// registers from the common case.
///
/// # Safety
/// As [`copy`], for each of the copies.
#[cold]
#[inline(never)]
unsafe fn copy_long<const N: usize>(from: *const u8, to: *mut u8, len: usize) {
    let mut done = 0;
    while done < len {
        // SAFETY: the caller's promise.
        unsafe { copy::<N>(from.add(done), to.add(done)) };
        done += N;
    }
}

/// # Safety
/// `N` bytes can be read and written, and do not overlap.
#[inline(always)]
unsafe fn copy<const N: usize>(from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { to.cast::<[u8; N]>().write_unaligned(from.cast::<[u8; N]>().read_unaligned()) };
}
