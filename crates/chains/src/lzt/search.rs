//! Finds matches fast: one hashed candidate a position, few branches that a processor cannot foresee.
//!
//! Positions are hashed in blocks of 64, without a branch: each replaces the candidate of its five bytes in the table
//! and notes in a bitmap whether the two agree. The parse then jumps from bit to bit. A table's entry holds the
//! position and 18 bits more of the hash, so hardly a bit is wrong; that a match is one is checked where its length is
//! measured.

use std::ops::Range;

use super::{
    PAGE_MAX,
    hash::{BLOCK, Block, Hasher, POSITION_MASK, Page, Plain, SLACK, TABLE_BITS},
    token::{LEN_MIN, Match, OFFSET_FIRST},
};

/// How far ahead the offset as before is looked for.
const REPEAT_AHEAD: usize = 24;

/// The page, its hash table, and the matches found.
#[derive(Debug)]
pub(super) struct Finder {
    page: Box<Page>,
    table: Box<[u32; 1 << TABLE_BITS]>,
    matches: Vec<Match>,
}

impl Default for Finder {
    fn default() -> Self {
        Self {
            page: Box::new([0; PAGE_MAX + SLACK]),
            table: Box::new([0; 1 << TABLE_BITS]),
            matches: Vec::with_capacity(PAGE_MAX / LEN_MIN + 1),
        }
    }
}

impl Finder {
    /// Takes a page of up to [`PAGE_MAX`] bytes.
    pub(super) fn load(&mut self, page: &[u8]) {
        self.page[..page.len()].copy_from_slice(page);
        self.page[page.len()..page.len() + SLACK].fill(0);
    }

    /// The page, and zeros after it.
    pub(super) fn page(&self) -> &Page {
        &self.page
    }

    /// The matches last found, in order.
    pub(super) fn matches(&self) -> &[Match] {
        &self.matches
    }

    /// Finds matches in the `len` bytes that were loaded.
    pub(super) fn search(&mut self, len: usize) {
        #[cfg(target_arch = "x86_64")]
        if crate::simd::is_available() {
            // SAFETY: the processor has the features.
            return unsafe { self.search_wide(len) };
        }
        self.search_plain(len);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
    fn search_wide(&mut self, len: usize) {
        self.search_with::<super::wide::Avx2>(len);
    }

    pub(super) fn search_plain(&mut self, len: usize) {
        self.search_with::<Plain>(len);
    }

    #[inline(always)]
    fn search_with<H: Hasher>(&mut self, len: usize) {
        // Each by itself: behind `self`, their places would be read again after every write.
        let Self {
            page,
            table,
            matches,
        } = self;
        let (page, table): (&Page, &mut [u32; 1 << TABLE_BITS]) = (page, table);
        matches.clear();
        table.fill(0);
        let mut parse = Parse {
            at: 0,
            end_before: 0,
            before: usize::from(OFFSET_FIRST),
        };
        let mut block = Block::default();
        for start in (0..len).step_by(BLOCK) {
            let end = len.min(start + BLOCK);
            // What lies in a match as a whole stands in the table already, from where it was copied.
            if parse.at >= end {
                continue;
            }
            H::hash(page, start, &mut block);
            let Block {
                slots,
                entries,
                candidates,
            } = &mut block;
            let eights = slots
                .as_chunks::<8>()
                .0
                .iter()
                .zip(entries.as_chunks::<8>().0);
            // Compared as they are replaced: vectors would wait for what was just written word by word.
            let mut hits = 0u64;
            for ((slots, entries), candidates) in eights.zip(candidates.as_chunks_mut::<8>().0) {
                for i in 0..8 {
                    let slot = slots[i] as usize & ((1 << TABLE_BITS) - 1);
                    candidates[i] = std::mem::replace(&mut table[slot], entries[i]);
                    hits = hits + hits + u64::from(entries[i] ^ candidates[i] <= POSITION_MASK);
                }
            }
            // Nothing begins after the page, and position 0 has no candidate but an empty entry.
            let inside = !0 << (BLOCK - (end - start)) & !(u64::from(start == 0) << (BLOCK - 1));
            let hits = hits & inside;
            let hits = Hits {
                bits: hits,
                candidates: &block.candidates,
            };
            parse.block(page, start..end, len, hits, matches);
        }
    }
}

/// Candidates of a block.
#[derive(Clone, Copy)]
struct Hits<'a> {
    /// A bit for each position whose candidate is one, the first position's highest.
    bits: u64,
    candidates: &'a [u32; BLOCK],
}

/// Where the parse stands: next position to look at, end of the match before, its offset.
struct Parse {
    at: usize,
    end_before: usize,
    before: usize,
}

impl Parse {
    /// Goes through a block of a page of `len` bytes.
    #[inline(always)]
    fn block(
        &mut self,
        page: &Page,
        block: Range<usize>,
        len: usize,
        hits: Hits<'_>,
        matches: &mut Vec<Match>,
    ) {
        let Hits {
            bits: hits,
            candidates,
        } = hits;
        let Range { start, end } = block;
        let Self {
            mut at,
            mut end_before,
            mut before,
        } = *self;
        while at < end {
            let ahead = hits & (!0 >> (at - start));
            let mut hit = if ahead == 0 {
                end
            } else {
                start + ahead.leading_zeros() as usize
            };
            let mut offset;
            let mut match_len;
            // The offset as before is cheap: it wins wherever it gives four bytes not later than a hit.
            let repeat = if at >= before {
                repeat(page, at, before)
            } else {
                REPEAT_AHEAD as u32
            };
            if at + repeat as usize <= hit
                && (repeat as usize) < REPEAT_AHEAD
                && at + (repeat as usize) < len
            {
                hit = at + repeat as usize;
                offset = before;
                match_len = common(page, hit, hit - offset, len - hit);
            } else if ahead == 0 {
                at = if at + REPEAT_AHEAD < end {
                    at + REPEAT_AHEAD
                } else {
                    end
                };
                continue;
            } else {
                offset = hit - (candidates[hit - start] & POSITION_MASK) as usize;
                match_len = common(page, hit, hit - offset, len - hit);
                let next = hit + 1 - start;
                if next < BLOCK && hits << next >> (BLOCK - 1) == 1 {
                    let offset_next = hit + 1 - (candidates[next] & POSITION_MASK) as usize;
                    let len_next = common(page, hit + 1, hit + 1 - offset_next, len - hit - 1);
                    if len_next > match_len + 1 {
                        (hit, offset, match_len) = (hit + 1, offset_next, len_next);
                    }
                }
            }
            if match_len < LEN_MIN + 1 {
                at = hit + 1;
                continue;
            }
            let literals = (hit - end_before) as u16;
            matches.push(Match {
                literals,
                len: match_len as u16,
                offset: offset as u16,
            });
            before = offset;
            at = hit + match_len;
            end_before = at;
        }
        *self = Self {
            at,
            end_before,
            before,
        };
    }
}

/// Bytes that `a` and `b < a` have in common, at most `max`.
#[inline(always)]
pub(super) fn common(page: &Page, a: usize, b: usize, max: usize) -> usize {
    let mut len = 0;
    loop {
        let differ = equal_16(page, a + len, b + len) ^ 0xFFFF;
        if differ != 0 {
            return max.min(len + differ.trailing_zeros() as usize);
        }
        len += 16;
        if len >= max {
            return max;
        }
    }
}

/// Distance from `at` to the first four bytes that repeat at `before` bytes back, or [`REPEAT_AHEAD`] or more if they
/// are not near.
#[inline(always)]
fn repeat(page: &Page, at: usize, before: usize) -> u32 {
    let equal = equal_16(page, at, at - before) | equal_16(page, at + 16, at + 16 - before) << 16;
    let fours = equal & equal >> 1;
    let fours = fours & fours >> 2;
    (fours | 1 << 31).trailing_zeros()
}

/// Bit `i`: byte `i` at `a` and at `b` are equal.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn equal_16(page: &Page, a: usize, b: usize) -> u32 {
    use std::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8};
    debug_assert!(b < a && a + 16 <= page.len());
    // SAFETY: callers keep `b < a` and `a` within the page and its slack of 128 bytes less 16. SSE2 is part of x86-64.
    unsafe {
        let load = |at: usize| _mm_loadu_si128(page.as_ptr().add(at).cast::<__m128i>());
        _mm_movemask_epi8(_mm_cmpeq_epi8(load(a), load(b))) as u32
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn equal_16(page: &Page, a: usize, b: usize) -> u32 {
    (0..16)
        .map(|i| u32::from(page[a + i] == page[b + i]) << i)
        .sum()
}
