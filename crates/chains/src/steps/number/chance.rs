//! What `num` has of each number: bits with a probability each, as fractions of an interval (Martin 1979). It is read
//! only: `numq`, which has a symbol in place of most of these bits, is read in less than half the time.

use super::{column::unfold, even, token::COLUMNS};

/// The probability of a set bit, learnt from the bits that were: fast at first, then slower.
#[derive(Debug, Clone, Copy)]
struct Bit {
    /// Of 2^16.
    one: u16,
    seen: u16,
}

/// What a bit moves the probability by, of 2^16, after so many bits.
const RATES: [u32; 32] = {
    let mut rates = [0; 32];
    let mut n = 0;
    while n < rates.len() {
        rates[n] = (1 << 17) / (2 * n as u32 + 3);
        n += 1;
    }
    rates
};

impl Bit {
    /// As likely set as not.
    const EVEN: Self = Self {
        one: 1 << 15,
        seen: 0,
    };

    /// The same with a probability that was learnt elsewhere, if nothing was learnt here.
    #[inline(always)]
    fn or(&mut self, other: Bit) {
        if self.seen == 0 {
            self.one = other.one;
        }
    }

    /// Chance of a set bit as a part of 2^16, at least one and not all.
    #[inline(always)]
    fn chance(self) -> u32 {
        u32::from(self.one).clamp(64, 65536 - 64)
    }

    #[inline(always)]
    fn learn(&mut self, bit: bool) {
        let rate = RATES[usize::from(self.seen) % RATES.len()];
        let one = u32::from(self.one);
        self.one = if bit {
            one + (((65535 - one) * rate) >> 16)
        } else {
            one - ((one * rate) >> 16)
        } as u16;
        self.seen = (self.seen + 1).min(RATES.len() as u16 - 1);
    }
}

/// Bytes to bits. Any bytes may come: they are some bits, and zeroes where there are no more.
#[derive(Debug)]
struct Decoder<'a> {
    bytes: &'a [u8],
    low: u32,
    high: u32,
    value: u32,
}

impl<'a> Decoder<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let mut decoder = Self {
            bytes,
            low: 0,
            high: u32::MAX,
            value: 0,
        };
        for _ in 0..4 {
            decoder.pull();
        }
        decoder
    }

    #[inline(always)]
    fn pull(&mut self) {
        let byte = self.bytes.split_off_first().copied().unwrap_or(0);
        self.value = self.value << 8 | u32::from(byte);
    }

    #[inline(always)]
    fn bit(&mut self, chance: Bit) -> bool {
        let range = u64::from(self.high - self.low);
        let middle = self.low + ((range * u64::from(chance.chance())) >> 16) as u32;
        let bit = self.value <= middle;
        if bit {
            self.high = middle;
        } else {
            self.low = middle + 1;
        }
        while (self.low ^ self.high) >> 24 == 0 {
            self.low <<= 8;
            self.high = self.high << 8 | 0xff;
            self.pull();
        }
        bit
    }
}

/// What was learnt of the numbers beside their forecasts, by column, and by all where a column is new.
#[derive(Debug)]
pub(super) struct Model {
    of: Box<[Sizes; COLUMNS]>,
    all: Sizes,
}

/// How long such numbers are in bits, and the bits below the highest of the short ones.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    classes: [Bit; 64],
    low: [[Bit; 1 << LOW_BITS]; LOW_CLASSES],
}

/// Numbers of up to so many bits have their first bits learnt, and so many of these.
const LOW_CLASSES: usize = 13;
const LOW_BITS: u32 = 3;

impl Default for Model {
    fn default() -> Self {
        Self {
            of: Box::new([Sizes::NONE; COLUMNS]),
            all: Sizes::NONE,
        }
    }
}

impl Sizes {
    const NONE: Self = Self {
        classes: [Bit::EVEN; 64],
        low: [[Bit::EVEN; 1 << LOW_BITS]; LOW_CLASSES],
    };
}

impl Model {
    /// As if it had seen nothing.
    fn forget(&mut self) {
        self.of.fill(Sizes::NONE);
        self.all = Sizes::NONE;
    }
}

/// The numbers of a page, as they are read.
pub(super) struct Values<'a> {
    model: &'a mut Model,
    coder: Decoder<'a>,
    even: even::Reader<'a>,
}

impl<'a> Values<'a> {
    pub(super) fn new(coded: &'a [u8], even: even::Reader<'a>, model: &'a mut Model) -> Self {
        model.forget();
        Self {
            model,
            coder: Decoder::new(coded),
            even,
        }
    }
}

impl super::Values for Values<'_> {
    fn next(&mut self, column: usize) -> i64 {
        let Self {
            model: Model { of, all },
            coder,
            even,
        } = self;
        let mine = &mut of[column.min(COLUMNS - 1)];
        let mut bit = |mine: &mut Bit, all: &mut Bit| {
            mine.or(*all);
            let bit = coder.bit(*mine);
            mine.learn(bit);
            all.learn(bit);
            bit
        };
        // Node 0: whether there is anything; the others are a tree over the lengths from 1 on.
        if !bit(&mut mine.classes[0], &mut all.classes[0]) {
            return 0;
        }
        let mut node = 1usize;
        for _ in 0..6 {
            node = node << 1
                | usize::from(bit(
                    &mut mine.classes[node % 64],
                    &mut all.classes[node % 64],
                ));
        }
        let class = (node & 63) as u32 + 1;
        let mut number = 1u64;
        let mut open = class - 1;
        if let (Some(mine), Some(all)) = (
            mine.low.get_mut(class as usize),
            all.low.get_mut(class as usize),
        ) {
            while open > 0 && number < 1 << LOW_BITS {
                let at = number as usize;
                open -= 1;
                number = number << 1 | u64::from(bit(&mut mine[at], &mut all[at]));
            }
        }
        if open > 0 {
            number = number << open | even.take(open);
        }
        unfold(number)
    }
}
