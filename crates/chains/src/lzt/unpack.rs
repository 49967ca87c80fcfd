//! Reads a packed page. Format: `docs/specs/lzt.md`.

mod literals;
mod tokens;

use std::mem::MaybeUninit;

use self::tokens::{Step, Tokens, steps_max};
use super::{
    Corrupt, PAGE_MAX,
    emit::{KIND_MASK, LITERALS_PLAIN, NUMBERS_SHORT},
    kinds::{SMALL_MAX, set},
    token::OFFSET_FIRST,
};

/// Bytes copied at once, and so the room a fast copy needs after its target.
const COPY: usize = 32;

/// Fills `out` exactly with the page that `packed` holds. `out` is at most [`PAGE_MAX`] bytes.
///
/// `packed` may be any bytes: they give a page of the right length or [`Corrupt`], and nothing else. Where a page was
/// damaged and still parses, the bytes are wrong; a checksum is the caller's.
pub fn unpack(packed: &[u8], out: &mut [u8]) -> Result<(), Corrupt> {
    if out.len() <= SMALL_MAX {
        unpack_best::<{ SMALL_MAX + COPY }, { steps_max(SMALL_MAX) }>(packed, out)
    } else {
        unpack_best::<{ PAGE_MAX + COPY }, { steps_max(PAGE_MAX) }>(packed, out)
    }
}

fn unpack_best<const LITERALS: usize, const STEPS: usize>(
    packed: &[u8],
    out: &mut [u8],
) -> Result<(), Corrupt> {
    #[cfg(target_arch = "x86_64")]
    if crate::simd::is_available() {
        // SAFETY: the processor has the features.
        return unsafe { unpack_wide::<LITERALS, STEPS>(packed, out) };
    }
    unpack_any::<LITERALS, STEPS>(packed, out)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
fn unpack_wide<const LITERALS: usize, const STEPS: usize>(
    packed: &[u8],
    out: &mut [u8],
) -> Result<(), Corrupt> {
    unpack_any::<LITERALS, STEPS>(packed, out)
}

/// With room for `LITERALS` less [`COPY`] bytes. A page of 4 KiB has less: what it needs of the stack stays in the
/// first cache.
#[inline(always)]
fn unpack_any<const LITERALS: usize, const STEPS: usize>(
    packed: &[u8],
    out: &mut [u8],
) -> Result<(), Corrupt> {
    if out.len() > LITERALS - COPY {
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
    let mut buffer = [MaybeUninit::<u8>::uninit(); LITERALS];
    let to = buffer.as_mut_ptr().cast::<u8>();
    let rest = if flags & LITERALS_PLAIN != 0 {
        let (plain, rest) = rest
            .split_at_checked(count)
            .ok_or(Corrupt("literals missing"))?;
        // SAFETY: `count <= LITERALS - COPY`, and `plain` has `count` bytes.
        unsafe { to.copy_from_nonoverlapping(plain.as_ptr(), count) };
        rest
    } else {
        let (first, rest) = number(rest, flags)?;
        let (second, rest) = number(rest, flags)?;
        let (first, rest) = rest
            .split_at_checked(first)
            .ok_or(Corrupt("literals missing"))?;
        let (second, rest) = rest
            .split_at_checked(second)
            .ok_or(Corrupt("literals missing"))?;
        // SAFETY: the buffer has room for `count` bytes.
        unsafe { literals::decode(ready, packed, [first, second], to, count)? };
        rest
    };
    // SAFETY: `count` bytes are written, and there is room for `COPY` more.
    let literals = unsafe {
        to.add(count).write_bytes(0, COPY);
        std::slice::from_raw_parts(to, count + COPY)
    };
    let mut tokens = Tokens::<STEPS>::new();
    let steps = tokens.read(ready, packed, packed.len() - rest.len(), out.len() - count)?;
    copy_steps(steps, literals, count, out)
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

/// Copies what the tokens say to `out`. `literals` has `count` bytes and [`COPY`] more.
#[inline(always)]
fn copy_steps(
    steps: impl Iterator<Item = Step>,
    literals: &[u8],
    count: usize,
    out: &mut [u8],
) -> Result<(), Corrupt> {
    let (mut at, mut used) = (0usize, 0usize);
    let mut before = usize::from(OFFSET_FIRST);
    let fast_end = out.len().saturating_sub(COPY);
    for step in steps {
        let (run, len) = (step.literals(), step.len());
        let offset = if step.offset() == 0 {
            before
        } else {
            step.offset()
        };
        before = offset;
        let from = at + run;
        let end = from + len;
        if offset > from || run > count - used {
            return Err(Corrupt("match before the page"));
        }
        if end < fast_end {
            // SAFETY: `end + COPY < out.len()`; `used + run <= count`, and `literals` goes on for `COPY` bytes;
            // `1 <= offset <= from`.
            unsafe { copy_fast(literals, used, out, at, Run { run, offset, len }) };
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

/// As [`copy_fast`], near the end of the page. A match may be most of the page: zeros often are.
#[cold]
#[inline(never)]
fn copy_last(literals: &[u8], out: &mut [u8], at: usize, offset: usize, end: usize) {
    let mut done = at + literals.len();
    out[at..done].copy_from_slice(literals);
    let from = done - offset;
    while done < end {
        // What is there already, over and over.
        let len = (done - from).min(end - done);
        out.copy_within(from..from + len, done);
        done += len;
    }
}

/// So many literals, then a match of this length from so far before.
#[derive(Clone, Copy)]
struct Run {
    run: usize,
    offset: usize,
    len: usize,
}

/// Copies literals, then a match, in whole words that may be longer.
///
/// # Safety
/// `at + run + len + COPY <= out.len()`, `used + run + COPY <= literals.len()`, `1 <= offset <= at + run`.
#[inline(always)]
unsafe fn copy_fast(literals: &[u8], used: usize, out: &mut [u8], at: usize, copies: Run) {
    let Run { run, offset, len } = copies;
    // SAFETY: each copy begins before the end of its run, and runs have `COPY` bytes of room after them in the source and
    // the target. A match's source ends before its target, if the copies are no longer than the offset.
    unsafe {
        let from = literals.as_ptr().add(used);
        let to = out.as_mut_ptr().add(at);
        copy::<32>(from, to);
        if run > 32 {
            copy_long::<32>(from, to, run);
        }
        let to = to.add(run);
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

/// Copies `len` bytes, at most `COPY` more, from `offset` bytes before, 2 to 7: so near that each byte waits for one
/// that was just written. After some of them the same pattern is also found eight bytes or more before.
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
    unsafe {
        to.cast::<[u8; N]>()
            .write_unaligned(from.cast::<[u8; N]>().read_unaligned())
    };
}
