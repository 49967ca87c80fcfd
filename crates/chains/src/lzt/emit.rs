//! Writes matches and literals in the kind that makes them smallest. Format: `docs/specs/lzt.md`.

use super::{
    PAGE_MAX,
    bits::{BitWriter, TokenWriter},
    kinds::{KINDS, LITERAL_LEN_MAX, Ready, Set, set},
    token::{Match, OFFSET_FIRST},
};

/// Header bits: kind, then these.
pub(super) const KIND_MASK: u8 = 7;
pub(super) const LITERALS_PLAIN: u8 = 1 << 3;
/// Header numbers are one byte each instead of two.
pub(super) const NUMBERS_SHORT: u8 = 1 << 4;

/// Tokens looked at to choose a kind.
const SAMPLED_TOKENS: usize = 64;

/// Room for one of four streams of literals and the word that may be written past its end.
const LANE: usize = PAGE_MAX.div_ceil(4) * LITERAL_LEN_MAX as usize / 8 + 16;
const COPY: usize = 16;

/// Scratch memory of the writer.
#[derive(Debug)]
pub(super) struct Emitter {
    literals: Box<[u8; PAGE_MAX + COPY]>,
    lanes: Box<[[u8; LANE]; 4]>,
}

impl Default for Emitter {
    fn default() -> Self {
        Self {
            literals: Box::new([0; PAGE_MAX + COPY]),
            lanes: Box::new([[0; LANE]; 4]),
        }
    }
}

impl Emitter {
    /// The best kind for `matches`.
    pub(super) fn choose(&mut self, page: &[u8], matches: &[Match]) -> usize {
        let count = self.gather(page, matches);
        cheapest(set(page.len()), &self.literals[..count], matches).0
    }

    /// Packs `page`, parsed as `matches`, into `out`; `None` if it does not fit.
    pub(super) fn emit(&mut self, page: &[u8], matches: &[Match], out: &mut [u8]) -> Option<usize> {
        #[cfg(target_arch = "x86_64")]
        if crate::simd::is_available() {
            // SAFETY: the processor has the features.
            return unsafe { self.emit_wide(page, matches, out) };
        }
        self.emit_any(page, matches, out)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
    fn emit_wide(&mut self, page: &[u8], matches: &[Match], out: &mut [u8]) -> Option<usize> {
        self.emit_any(page, matches, out)
    }

    #[inline(always)]
    pub(super) fn emit_any(
        &mut self,
        page: &[u8],
        matches: &[Match],
        out: &mut [u8],
    ) -> Option<usize> {
        let count = self.gather(page, matches);
        let set = set(page.len());
        let (kind, literal_bits) = cheapest(set, &self.literals[..count], matches);
        let ready = &set.kinds[kind];
        let literals = &self.literals[..count];
        // The streams' lengths and padding cost some bytes.
        let coded = literal_bits / 8 + 6 < count as u32;
        let mut header = [kind as u8, 0, 0, 0, 0, 0, 0];
        let mut numbers = [count, 0, 0];
        let mut at;
        if coded {
            let lens = self.code_literals(ready, count)?;
            numbers[1..].copy_from_slice(&[lens[0] + lens[1], lens[2] + lens[3]]);
            at = header_len(&mut header, &numbers);
            let total = lens.iter().sum::<usize>();
            let (first, second) = out.get_mut(at..at + total)?.split_at_mut(numbers[1]);
            copy_pair(&self.lanes[0], &self.lanes[1], (lens[0], lens[1]), first);
            copy_pair(&self.lanes[2], &self.lanes[3], (lens[2], lens[3]), second);
            at += total;
        } else {
            header[0] |= LITERALS_PLAIN;
            at = header_len(&mut header, &numbers[..1]);
            out.get_mut(at..at + count)?.copy_from_slice(literals);
            at += count;
        }
        let head = header_len(&mut header, if coded { &numbers } else { &numbers[..1] });
        out[..head].copy_from_slice(&header[..head]);
        let lens = code_tokens(ready, matches, &mut self.lanes)?;
        copy_pair(
            &self.lanes[0],
            &self.lanes[1],
            lens,
            out.get_mut(at..at + lens.0 + lens.1)?,
        );
        Some(at + lens.0 + lens.1)
    }

    /// Puts the literals in a row and returns their number.
    #[inline(always)]
    fn gather(&mut self, page: &[u8], matches: &[Match]) -> usize {
        let (mut at, mut count) = (0, 0);
        for m in matches {
            let literals = usize::from(m.literals);
            if literals <= COPY && at + COPY <= page.len() {
                self.literals[count..count + COPY].copy_from_slice(&page[at..at + COPY]);
            } else {
                self.literals[count..count + literals].copy_from_slice(&page[at..at + literals]);
            }
            count += literals;
            at += literals + usize::from(m.len);
        }
        let rest = page.len() - at;
        self.literals[count..count + rest].copy_from_slice(&page[at..]);
        count + rest
    }

    /// Codes the literals in four streams, each a quarter, and returns their lengths.
    #[inline(always)]
    fn code_literals(&mut self, ready: &Ready, count: usize) -> Option<[usize; 4]> {
        let mut lens = [0; 4];
        let mut quarters = self.literals[..count].chunks(count.div_ceil(4).max(1));
        for (i, lane) in self.lanes.iter_mut().enumerate() {
            let quarter = quarters.next().unwrap_or(&[]);
            lens[i] = if i % 2 == 0 {
                code_lane::<false>(ready, quarter, lane)
            } else {
                code_lane::<true>(ready, quarter, lane)
            }?;
        }
        Some(lens)
    }
}

/// Joins a stream from the front of its lane and one from the end.
#[inline(always)]
fn copy_pair(forward: &[u8; LANE], back: &[u8; LANE], lens: (usize, usize), to: &mut [u8]) {
    to[..lens.0].copy_from_slice(&forward[..lens.0]);
    to[lens.0..].copy_from_slice(&back[LANE - lens.1..]);
}

#[inline(always)]
fn code_lane<const BACK: bool>(ready: &Ready, literals: &[u8], lane: &mut [u8]) -> Option<usize> {
    let mut writer = BitWriter::<BACK>::new(lane);
    let mut context = 0;
    let mut put = |writer: &mut BitWriter<'_, BACK>, literal: u8| {
        let code = ready.literal_codes[context & 7][usize::from(literal)];
        writer.put(u64::from(code >> 4), code & 15);
        context = usize::from(ready.context_of[usize::from(literal)]);
    };
    // Four codes of at most 14 bits fill the 56 bits between two flushes.
    let (fours, rest) = literals.as_chunks::<4>();
    for four in fours {
        for &literal in four {
            put(&mut writer, literal);
        }
        writer.flush()?;
    }
    for &literal in rest {
        put(&mut writer, literal);
    }
    writer.flush()?;
    Some(writer.finish())
}

/// Writes every other token from the front of a lane and the rest from the end of another. Returns the lengths.
#[inline(always)]
fn code_tokens(
    ready: &Ready,
    matches: &[Match],
    lanes: &mut [[u8; LANE]; 4],
) -> Option<(usize, usize)> {
    let [forward, back, ..] = lanes;
    let (mut forward, mut back) = (
        TokenWriter::<false>::new(forward),
        TokenWriter::<true>::new(back),
    );
    let mut before = OFFSET_FIRST;
    let (pairs, last) = matches.as_chunks::<2>();
    for [first, second] in pairs {
        let (value, count) = code_token(ready, first, before);
        forward.put(value, count)?;
        let (value, count) = code_token(ready, second, first.offset);
        back.put(value, count)?;
        before = second.offset;
    }
    if let [last] = last {
        let (value, count) = code_token(ready, last, before);
        forward.put(value, count)?;
    }
    Some((forward.finish(), back.finish()))
}

/// The bits for a match after one with the offset `before`, and how many.
#[inline(always)]
fn code_token(ready: &Ready, m: &Match, before: u16) -> (u64, u32) {
    let coded = m.coded(before);
    let code = ready.token_codes[usize::from(coded.token)];
    (
        u64::from(code >> 4) | coded.extra << (code & 15),
        (code & 15) + coded.extra_bits,
    )
}

/// The kind with the smallest sum of costs, and about the bits of its literals. Looks at samples: a kind that is second
/// best by a hair costs a hair.
#[inline(always)]
fn cheapest(set: &Set, literals: &[u8], matches: &[Match]) -> (usize, u32) {
    // 256 costs of at most 255 fit 16 bits, and 128 of tokens, at most 240.
    let literal_step = literals.len().div_ceil(256).max(1);
    let match_step = matches.len().div_ceil(SAMPLED_TOKENS).max(1);
    let (mut literal_costs, mut token_costs) = ([0u16; KINDS], [0u16; KINDS]);
    for &literal in literals.iter().step_by(literal_step) {
        let of = &set.literal_costs[usize::from(literal)];
        literal_costs
            .iter_mut()
            .zip(of)
            .for_each(|(sum, cost)| *sum += cost);
    }
    let mut i = 0;
    while i < matches.len() {
        let before = if i == 0 {
            OFFSET_FIRST
        } else {
            matches[i - 1].offset
        };
        let of = &set.token_costs[usize::from(matches[i].coded(before).token)];
        token_costs
            .iter_mut()
            .zip(of)
            .for_each(|(sum, cost)| *sum += cost);
        i += match_step;
    }
    let cost = |kind: usize| {
        u32::from(literal_costs[kind]) * literal_step as u32
            + u32::from(token_costs[kind]) * match_step as u32
    };
    let kind = (0..KINDS)
        .min_by_key(|&kind| cost(kind))
        .expect("there are kinds");
    (
        kind,
        u32::from(literal_costs[kind]) * literal_step as u32 / 16,
    )
}

/// Adds the numbers to a header and returns its length.
#[inline(always)]
fn header_len(header: &mut [u8; 7], numbers: &[usize]) -> usize {
    if numbers.iter().all(|&number| number < 256) {
        header[0] |= NUMBERS_SHORT;
        for (to, &number) in header[1..].iter_mut().zip(numbers) {
            *to = number as u8;
        }
        1 + numbers.len()
    } else {
        for (to, &number) in header[1..].chunks_mut(2).zip(numbers) {
            to.copy_from_slice(&(number as u16).to_le_bytes());
        }
        1 + 2 * numbers.len()
    }
}
