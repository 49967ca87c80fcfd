//! Symbols with a probability each, coded into a number that grows by what each one tells (Duda 2009), and whole bits
//! beside them.
//!
//! Why: a number of many yes-or-no decisions takes as many steps, each of which waits for the last. Here a number's
//! class is one step, whose search and learning are vectors. What is read first was written last, so the writer keeps
//! all it is to write.

use super::even;
use crate::step::BETWEEN_MAX;

/// Parts that the probabilities of all symbols have together.
const WHOLE: u32 = 1 << WHOLE_BITS;
const WHOLE_BITS: u32 = 14;
/// The coder's number is at least this when a symbol has been read; it takes two bytes more where it is not.
const LEAST: u32 = 1 << 16;

/// How likely each of `N` symbols is, learnt from those that were: fast at first, then slower.
#[derive(Debug, Clone, Copy)]
pub(super) struct Odds<const N: usize> {
    /// Where the part of each symbol begins, less its number: so each has one at least, whatever was learnt.
    starts: [i16; N],
    seen: u16,
}

/// What a symbol moves odds by, of 2^15, after so many.
pub(super) type Rates = [i16; 32];

/// `2 / (2 n + first)` after `n` symbols.
pub(super) const fn rates(first: i32) -> Rates {
    let mut rates = [0; 32];
    let mut n = 0;
    while n < rates.len() {
        rates[n] = ((1 << 16) / (2 * n as i32 + first)) as i16;
        n += 1;
    }
    rates
}

impl<const N: usize> Odds<N> {
    /// What is to be divided among symbols beside their one.
    const FREE: i16 = (WHOLE as usize - N) as i16;

    /// As likely as these weights say.
    pub(super) fn of(weights: [u8; N]) -> Self {
        let total = weights.iter().map(|&weight| i32::from(weight)).sum::<i32>();
        let mut sum = 0;
        let starts = weights.map(|weight| {
            let start = i32::from(Self::FREE) * sum / total;
            sum += i32::from(weight);
            start as i16
        });
        Self { starts, seen: 0 }
    }

    /// Those that were learnt elsewhere, if nothing was learnt here.
    #[inline(always)]
    pub(super) fn or(&mut self, other: &Self) {
        if self.seen == 0 {
            self.starts = other.starts;
        }
    }

    #[inline(always)]
    pub(super) fn learn(&mut self, symbol: usize, rates: &Rates) {
        let rate = i32::from(rates[usize::from(self.seen) % rates.len()]);
        // Asked of every place: what is known of the first one would leave an odd number of them to the vectors.
        let place = self.starts[symbol % N] + symbol as i16;
        for (n, start) in self.starts.iter_mut().enumerate() {
            let to = if *start + n as i16 > place {
                Self::FREE
            } else {
                0
            };
            *start += ((i32::from((to - *start) << 1) * rate) >> 16) as i16;
        }
        self.seen = (self.seen + 1).min(rates.len() as u16 - 1);
    }

    /// The symbol whose part holds `place`.
    #[inline(always)]
    fn find(&self, place: u32) -> usize {
        let begun = |(n, start): (usize, &i16)| i16::from(*start + n as i16 <= place as i16);
        (self.starts.iter().enumerate().map(begun).sum::<i16>() as usize).wrapping_sub(1) % N
    }

    /// Where the part of a symbol begins, and how long it is.
    #[inline(always)]
    fn part(&self, symbol: usize) -> (u32, u32) {
        let start = |n: usize| {
            self.starts
                .get(n)
                .map_or(WHOLE, |start| *start as u32 + n as u32)
        };
        (start(symbol), start(symbol + 1) - start(symbol))
    }
}

/// One end of a code: what is to be coded goes in at the one, and comes out at both.
pub(super) trait Coder {
    fn symbol<const N: usize>(&mut self, symbol: usize, odds: &Odds<N>) -> usize;
    /// The low `count` bits, at most 64, of which none is more likely set than not. No other bit is set.
    fn even(&mut self, bits: u64, count: u32) -> u64;
}

/// What is to be written.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    parts: Vec<(u16, u16)>,
    pub(super) even: even::Writer,
}

impl Encoder {
    pub(super) fn clear(&mut self) {
        self.parts.clear();
        self.even.clear();
    }

    /// Writes all of it to the front of `out`; returns the bytes, `None` if there is no room.
    pub(super) fn finish(&mut self, out: &mut [u8]) -> Option<usize> {
        // From the end, where the last byte comes first.
        let mut coded = [0; BETWEEN_MAX];
        let mut at = coded.len();
        let mut put = |byte: u8| {
            at = at.checked_sub(1)?;
            coded[at] = byte;
            Some(())
        };
        let mut state = LEAST;
        for &(start, len) in self.parts.iter().rev() {
            let (start, len) = (u32::from(start), u32::from(len));
            if u64::from(state) >= u64::from(len) << (32 - WHOLE_BITS) {
                put((state >> 8) as u8)?;
                put(state as u8)?;
                state >>= 16;
            }
            state = (state / len) << WHOLE_BITS | (state % len + start);
        }
        state.to_be_bytes().into_iter().try_for_each(put)?;
        let coded = &coded[at..];
        let even = self.even.finish();
        let end = coded.len() + even.len();
        let (front, back) = out.get_mut(..end)?.split_at_mut(coded.len());
        front.copy_from_slice(coded);
        back.iter_mut()
            .zip(even.iter().rev())
            .for_each(|(to, byte)| *to = *byte);
        Some(end)
    }
}

impl Coder for Encoder {
    fn symbol<const N: usize>(&mut self, symbol: usize, odds: &Odds<N>) -> usize {
        let (start, len) = odds.part(symbol);
        self.parts.push((start as u16, len as u16));
        symbol
    }

    fn even(&mut self, bits: u64, count: u32) -> u64 {
        self.even.put(bits, count);
        bits
    }
}

/// Bytes to symbols and bits. Any bytes may come: behind the last are zeroes.
#[derive(Debug)]
pub(super) struct Decoder<'a> {
    words: &'a [[u8; 2]],
    state: u32,
    even: even::Reader<'a>,
}

impl<'a> Decoder<'a> {
    /// `even` may have been read from already.
    pub(super) fn new(bytes: &'a [u8], even: even::Reader<'a>) -> Self {
        let mut first = [0; 4];
        first
            .iter_mut()
            .zip(bytes)
            .for_each(|(to, byte)| *to = *byte);
        let words = bytes.get(4..).unwrap_or_default().as_chunks().0;
        Self {
            words,
            state: u32::from_le_bytes(first),
            even,
        }
    }
}

impl Coder for Decoder<'_> {
    #[inline(always)]
    fn symbol<const N: usize>(&mut self, _: usize, odds: &Odds<N>) -> usize {
        let place = self.state % WHOLE;
        let symbol = odds.find(place);
        let (start, len) = odds.part(symbol);
        self.state = len * (self.state >> WHOLE_BITS) + (place - start);
        // Without a branch: no guess at it is better than even.
        let (word, rest) = self
            .words
            .split_first()
            .map_or((0, self.words), |(word, rest)| {
                (u16::from_le_bytes(*word), rest)
            });
        let is_short = self.state < LEAST;
        self.state = if is_short {
            self.state << 16 | u32::from(word)
        } else {
            self.state
        };
        self.words = if is_short { rest } else { self.words };
        symbol
    }

    #[inline(always)]
    fn even(&mut self, _: u64, count: u32) -> u64 {
        self.even.take(count)
    }
}
