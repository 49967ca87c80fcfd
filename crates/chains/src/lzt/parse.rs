//! Chooses matches by price: since codes are never sent, what a choice costs is known before it is made.
//!
//! The gain of a match is the price of its bytes as literals less the price of its token. Gains of matches that begin
//! at neighbouring positions can be compared as they are, so the search steps on while the next one gains more.

use super::{
    PAGE_MAX,
    hash::{Page, load32, load64},
    kinds::Ready,
    search::common,
    token::{
        LEN_MIN, Match, OFFSET_FIRST, extra_bits, len_class, literal_class, offset_class, token,
    },
};

const TABLE_BITS: u32 = 12;
/// Candidates looked at for a position.
const DEPTH: usize = 6;
/// Bytes hashed.
const HASHED: u32 = 4;
/// A match this long is taken at once.
const LONG: usize = 96;

/// Scratch memory of the search.
#[derive(Debug)]
pub(super) struct Parser {
    /// Latest position + 1 of each hash.
    heads: Box<[u16; 1 << TABLE_BITS]>,
    /// For each position the one before + 1 with the same hash; 0 if none.
    chain: Box<[u16; PAGE_MAX + 1]>,
    /// Bits of the page's first bytes, were they literals.
    literal_bits: Box<[u32; PAGE_MAX + 1]>,
    matches: Vec<Match>,
}

impl Default for Parser {
    fn default() -> Self {
        Self {
            heads: Box::new([0; 1 << TABLE_BITS]),
            chain: Box::new([0; PAGE_MAX + 1]),
            literal_bits: Box::new([0; PAGE_MAX + 1]),
            matches: Vec::with_capacity(PAGE_MAX / LEN_MIN + 1),
        }
    }
}

/// What is searched: the first `len` bytes of a page, for these codes.
#[derive(Debug, Clone, Copy)]
struct Text<'a> {
    page: &'a Page,
    len: usize,
    ready: &'a Ready,
}

/// A match and what it saves.
#[derive(Debug, Clone, Copy, Default)]
struct Choice {
    gain: i32,
    len: usize,
    offset: usize,
}

impl Parser {
    pub(super) fn matches(&self) -> &[Match] {
        &self.matches
    }

    /// Parses the first `len` bytes of `page` for the codes of `ready`.
    pub(super) fn parse(&mut self, page: &Page, len: usize, ready: &Ready) {
        #[cfg(target_arch = "x86_64")]
        if crate::simd::is_available() {
            // SAFETY: the processor has the features.
            return unsafe { self.parse_wide(page, len, ready) };
        }
        self.parse_any(page, len, ready);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
    fn parse_wide(&mut self, page: &Page, len: usize, ready: &Ready) {
        self.parse_any(page, len, ready);
    }

    #[inline(always)]
    pub(super) fn parse_any(&mut self, page: &Page, len: usize, ready: &Ready) {
        let text = Text { page, len, ready };
        self.index(text);
        self.matches.clear();
        let (mut at, mut end_before, mut before) = (0, 0, OFFSET_FIRST);
        while at + LEN_MIN <= len {
            let mut best = self.best(text, at, at - end_before, before);
            if best.gain <= 0 {
                at += 1;
                continue;
            }
            while best.len < LONG && at + 1 + LEN_MIN <= len {
                let next = self.best(text, at + 1, at + 1 - end_before, before);
                if next.gain <= best.gain {
                    break;
                }
                (at, best) = (at + 1, next);
            }
            before = best.offset as u16;
            self.matches.push(Match {
                literals: (at - end_before) as u16,
                len: best.len as u16,
                offset: before,
            });
            at += best.len;
            end_before = at;
        }
    }

    /// Chains all positions, and sums what the bytes cost as literals.
    #[inline(always)]
    fn index(&mut self, Text { page, len, ready }: Text<'_>) {
        self.heads.fill(0);
        let mut context = 0;
        let mut sum = 0;
        for at in 0..len {
            let hash = (load64(page, at) << (64 - 8 * HASHED)).wrapping_mul(0x9E37_79B1_85EB_CA87)
                >> (64 - TABLE_BITS);
            self.chain[at] = std::mem::replace(&mut self.heads[hash as usize], at as u16 + 1);
            let byte = usize::from(page[at]);
            sum += ready.literal_codes[context & 7][byte] & 15;
            self.literal_bits[at + 1] = sum;
            context = usize::from(ready.context_of[byte]);
        }
    }

    /// The match at `at` that gains most, after `literals` literals and a match of offset `before`.
    #[inline(always)]
    fn best(&self, text: Text<'_>, at: usize, literals: usize, before: u16) -> Choice {
        let Text { page, len, ready } = text;
        let literal_class = literal_class(literals);
        let mut best = Choice::default();
        let mut weigh = |offset: usize, match_len: usize| {
            let len_class = len_class(match_len);
            let (offset_class, offset_bits) = offset_class(offset as u16, before);
            let code = ready.token_codes[token(literal_class, len_class, offset_class)] & 15;
            let price = code + extra_bits(literal_class, len_class) + offset_bits;
            let gain =
                (self.literal_bits[at + match_len] - self.literal_bits[at]) as i32 - price as i32;
            if gain > best.gain {
                best = Choice {
                    gain,
                    len: match_len,
                    offset,
                };
            }
        };
        let repeat = usize::from(before);
        if at >= repeat {
            let match_len = common(page, at, at - repeat, len - at);
            if match_len >= LEN_MIN {
                weigh(repeat, match_len);
            }
        }
        let mut longest = LEN_MIN;
        let mut candidate = usize::from(self.chain[at]);
        for _ in 0..DEPTH {
            let Some(from) = candidate.checked_sub(1) else {
                break;
            };
            candidate = usize::from(self.chain[from]);
            // Longer than the longest only if the four bytes that end there agree.
            if load32(page, at + longest - 3) != load32(page, from + longest - 3) {
                continue;
            }
            let match_len = common(page, at, from, len - at);
            if match_len > longest {
                longest = match_len;
                weigh(at - from, match_len);
                if match_len >= LONG {
                    break;
                }
            }
        }
        best
    }
}
