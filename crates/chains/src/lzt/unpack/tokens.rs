//! Reads the tokens of a page.
//!
//! Apart from the copies, so that what the processor guesses wrong in one does not delay the other. Where the next
//! token begins is known when this one is looked up, what it says is not needed for that: so places come first, one
//! after the other, from two streams at a time since each waits for its last lookup, and what the tokens say after
//! that, many at a time.

use std::{hint::cold_path, mem::MaybeUninit};

use crate::lzt::{
    Corrupt,
    bits::TokenReader,
    kinds::{Ready, TOKEN_FIRST_BITS, TOKEN_LEN_MAX},
    token::LEN_MIN,
};

/// Bits that a word has, wherever in a byte it begins.
const WORD_BITS: u64 = 57;

/// Room for all tokens of a page of `len` bytes: each but the last makes at least [`LEN_MIN`] of them.
pub(super) const fn steps_max(len: usize) -> usize {
    len / LEN_MIN + 4
}

/// Room for tokens.
pub(super) struct Tokens<const STEPS: usize> {
    /// The stream from where the token begins; then its [`Step`].
    words: [MaybeUninit<u64>; STEPS],
    /// Its entry of the table.
    entries: [MaybeUninit<u64>; STEPS],
}

/// What a token says: literals, length and, from bit 32, offset, which is 0 if it is as before.
#[derive(Clone, Copy)]
pub(super) struct Step(u64);

impl Step {
    #[inline(always)]
    pub(super) fn literals(self) -> usize {
        usize::from(self.0 as u16)
    }

    #[inline(always)]
    pub(super) fn len(self) -> usize {
        usize::from((self.0 >> 16) as u16)
    }

    #[inline(always)]
    pub(super) fn offset(self) -> usize {
        (self.0 >> 32) as usize
    }
}

impl<const STEPS: usize> Tokens<STEPS> {
    pub(super) fn new() -> Self {
        Self {
            words: [const { MaybeUninit::uninit() }; STEPS],
            entries: [const { MaybeUninit::uninit() }; STEPS],
        }
    }

    /// Decodes tokens until their matches make `matched` bytes. The streams are the end of `packed`, from `start` on.
    #[inline(always)]
    pub(super) fn read(
        &mut self,
        ready: &Ready,
        packed: &[u8],
        start: usize,
        matched: usize,
    ) -> Result<impl Iterator<Item = Step>, Corrupt> {
        let (mut count, mut used) = self.find(ready, packed, start);
        let mut made = self.say(count);
        // What the last bits of the streams' last bytes were taken for.
        while count > 0 {
            // SAFETY: `find` and `say` wrote the first `count`.
            let (step, entry) = unsafe {
                (
                    Step(self.words[count - 1].assume_init()),
                    self.entries[count - 1].assume_init(),
                )
            };
            if made - step.len() < matched {
                break;
            }
            made -= step.len();
            count -= 1;
            used[count % 2] -= total_bits(entry);
        }
        if made != matched {
            return Err(Corrupt("matches and literals do not make the page"));
        }
        if used[0].div_ceil(8) + used[1].div_ceil(8) != packed.len() - start {
            return Err(Corrupt("tokens do not fill their streams"));
        }
        // SAFETY: as above.
        Ok(self.words[..count]
            .iter()
            .map(|word| Step(unsafe { word.assume_init() })))
    }

    /// Finds where tokens begin, until the streams have no bits. Returns how many, always a multiple of two, and the
    /// bits used of both streams.
    #[inline(always)]
    fn find(&mut self, ready: &Ready, packed: &[u8], start: usize) -> (usize, [usize; 2]) {
        let tokens = &packed[start..];
        let bits = 8 * tokens.len();
        // Beyond these there is no word to read. The stream that goes back may look at what is before it.
        let forward_end = bits.saturating_sub(64);
        let back_end = (8 * packed.len()).saturating_sub(64);
        // SAFETY: callers keep `used` below `forward_end`: the word ends before `tokens` does.
        let load_forward = |used: usize| unsafe {
            u64::from_le(
                tokens
                    .as_ptr()
                    .add(used >> 3)
                    .cast::<u64>()
                    .read_unaligned(),
            ) >> (used & 7)
        };
        // SAFETY: callers keep `used` below `back_end`: the word begins after `packed` does, which so has 8 bytes.
        let load_back = |used: usize| unsafe {
            let end = packed.as_ptr().add(packed.len() - 8);
            u64::from_be(end.sub(used >> 3).cast::<u64>().read_unaligned()) >> (used & 7)
        };
        let (mut count, mut forward, mut back) = (0, 0, 0);
        while forward + back < bits
            && forward < forward_end
            && back < back_end
            && count + 4 <= STEPS
        {
            let (mut word_forward, mut word_back) = (load_forward(forward), load_back(back));
            let (mut entry_forward, mut entry_back) =
                (look_up(ready, word_forward), look_up(ready, word_back));
            self.put(count, word_forward, entry_forward);
            self.put(count + 1, word_back, entry_back);
            let (total_forward, total_back) = (total_bits(entry_forward), total_bits(entry_back));
            forward += total_forward;
            back += total_back;
            // Mostly a word has two tokens.
            word_forward >>= total_forward;
            word_back >>= total_back;
            entry_forward = look_up(ready, word_forward);
            entry_back = look_up(ready, word_back);
            let beyond = |total: usize, entry: u64| {
                (total + total_bits(entry)) as u64 > WORD_BITS
                    || total as u64 > WORD_BITS - u64::from(TOKEN_LEN_MAX)
            };
            if beyond(total_forward, entry_forward) || beyond(total_back, entry_back) {
                cold_path();
                if forward >= forward_end || back >= back_end {
                    count += 2;
                    break;
                }
                (word_forward, word_back) = (load_forward(forward), load_back(back));
                (entry_forward, entry_back) =
                    (look_up(ready, word_forward), look_up(ready, word_back));
            }
            self.put(count + 2, word_forward, entry_forward);
            self.put(count + 3, word_back, entry_back);
            forward += total_bits(entry_forward);
            back += total_bits(entry_back);
            count += 4;
        }
        let mut forward = TokenReader::<false>::new(tokens, forward);
        let mut back = TokenReader::<true>::new(tokens, back);
        while forward.used() + back.used() < bits && count + 2 <= STEPS {
            let (word_forward, word_back) = (forward.bits(), back.bits());
            let (entry_forward, entry_back) =
                (look_up(ready, word_forward), look_up(ready, word_back));
            self.put(count, word_forward, entry_forward);
            self.put(count + 1, word_back, entry_back);
            forward.skip(total_bits(entry_forward));
            back.skip(total_bits(entry_back));
            count += 2;
        }
        (count, [forward.used(), back.used()])
    }

    #[inline(always)]
    fn put(&mut self, at: usize, word: u64, entry: u64) {
        debug_assert!(at < STEPS);
        // SAFETY: `find` keeps `at` below `STEPS`.
        unsafe {
            self.words.get_unchecked_mut(at).write(word);
            self.entries.get_unchecked_mut(at).write(entry);
        }
    }

    /// Makes steps of the first `count` tokens, and returns the sum of their lengths. Without a branch, so that the
    /// compiler makes vectors of it.
    #[inline(always)]
    fn say(&mut self, count: usize) -> usize {
        let mut made = 0;
        for (word, entry) in self.words[..count].iter_mut().zip(&self.entries[..count]) {
            // SAFETY: `find` wrote the first `count`.
            let (bits, entry) = unsafe { (word.assume_init(), entry.assume_init()) };
            let bits = bits >> (entry >> 48 & 63);
            let literals = (entry >> 16 & 0xFF) + low(bits, entry >> 8);
            let bits = bits >> (entry >> 8 & 63);
            let len = (entry >> 32 & 0xFF) + low(bits, entry >> 24);
            let bits = bits >> (entry >> 24 & 63);
            let offset = (1 << (entry >> 40 & 63) | low(bits, entry >> 40)) << (entry >> 56 & 63);
            let offset = if (entry as i64) < 0 { 0 } else { offset };
            made += len;
            word.write(literals | len << 16 | offset << 32);
        }
        made as usize
    }
}

/// The entry of the token that `word` begins with. Two lookups always: a guess whether one is enough would often be
/// wrong.
#[inline(always)]
fn look_up(ready: &Ready, word: u64) -> u64 {
    // SAFETY: the first table has 2^8 entries, and each has a run of the second for all that its mask lets through (`Ready`).
    unsafe {
        let first = *ready
            .token_first
            .get_unchecked(low(word, TOKEN_FIRST_BITS.into()) as usize);
        let at = usize::from(first.start)
            + ((word >> TOKEN_FIRST_BITS) as usize & usize::from(first.mask));
        *ready.token_table.get_unchecked(at)
    }
}

/// Bits of a token and of what is added to it.
#[inline(always)]
fn total_bits(entry: u64) -> usize {
    usize::from(entry as u8)
}

/// The lowest `count & 63` bits.
#[inline(always)]
fn low(bits: u64, count: u64) -> u64 {
    bits & !(!0 << (count & 63))
}
