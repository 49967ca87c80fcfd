//! Bits with a probability each, as fractions of an interval (Martin 1979), and whole bits beside them.

/// The probability of a set bit, learnt from the bits that were: fast at first, then slower.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bit {
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
    pub(super) const EVEN: Self = Self { one: 1 << 15, seen: 0 };

    /// The same with a probability that was learnt elsewhere, if nothing was learnt here.
    #[inline(always)]
    pub(super) fn or(&mut self, other: Bit) {
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
    pub(super) fn learn(&mut self, bit: bool) {
        let rate = RATES[usize::from(self.seen) % RATES.len()];
        let one = u32::from(self.one);
        self.one = if bit { one + (((65535 - one) * rate) >> 16) } else { one - ((one * rate) >> 16) } as u16;
        self.seen = (self.seen + 1).min(RATES.len() as u16 - 1);
    }
}

/// One end of a code: what is to be coded goes in at the one, and comes out at both.
pub(super) trait Coder {
    /// A bit, and its chance.
    fn bit(&mut self, bit: bool, chance: Bit) -> bool;
    /// The low `count` bits, at most 64, of which none is more likely set than not. No other bit is set.
    fn even(&mut self, bits: u64, count: u32) -> u64;
}

/// Bits to bytes: those with a chance from the front, those that are even from the back.
#[derive(Debug)]
pub(super) struct Encoder<'a> {
    out: &'a mut [u8],
    at: usize,
    low: u32,
    high: u32,
    /// Even bits, first byte first, and the last of them, fewer than 8.
    even: &'a mut Vec<u8>,
    held: u64,
    fill: u32,
}

impl<'a> Encoder<'a> {
    pub(super) fn new(out: &'a mut [u8], even: &'a mut Vec<u8>) -> Self {
        even.clear();
        Self { out, at: 0, low: 0, high: u32::MAX, even, held: 0, fill: 0 }
    }

    #[inline(always)]
    fn shift(&mut self) {
        while (self.low ^ self.high) >> 24 == 0 {
            if let Some(to) = self.out.get_mut(self.at) {
                *to = (self.high >> 24) as u8;
            }
            self.at += 1;
            self.low <<= 8;
            self.high = self.high << 8 | 0xff;
        }
    }

    /// Bytes written; `None` if there was no room.
    pub(super) fn finish(mut self) -> Option<usize> {
        // The shortest beginning of a number that is within the interval whatever comes behind it.
        let rounded = |bytes: u32| {
            let step = 1u64 << (32 - 8 * bytes);
            (u64::from(self.low).next_multiple_of(step), step, bytes)
        };
        let fits = |&(number, step, _): &(u64, u64, u32)| number + step - 1 <= u64::from(self.high);
        let (number, _, bytes) = (0..=4).map(rounded).find(fits).expect("four bytes are the number itself");
        for byte in &(number as u32).to_be_bytes()[..bytes as usize] {
            if let Some(to) = self.out.get_mut(self.at) {
                *to = *byte;
            }
            self.at += 1;
        }
        if self.fill > 0 {
            self.even.push(self.held as u8);
        }
        let end = self.at + self.even.len();
        let even = self.out.get_mut(self.at..end)?;
        even.iter_mut().zip(self.even.iter().rev()).for_each(|(to, byte)| *to = *byte);
        Some(end)
    }
}

impl Coder for Encoder<'_> {
    #[inline(always)]
    fn bit(&mut self, bit: bool, chance: Bit) -> bool {
        let middle = self.low + split(self.high - self.low, chance);
        if bit {
            self.high = middle;
        } else {
            self.low = middle + 1;
        }
        self.shift();
        bit
    }

    #[inline(always)]
    fn even(&mut self, bits: u64, count: u32) -> u64 {
        for (part, count) in [(bits >> 32, count.saturating_sub(32)), (bits & 0xffff_ffff, count.min(32))] {
            self.held |= part << self.fill;
            self.fill += count;
            while self.fill >= 8 {
                self.even.push(self.held as u8);
                self.held >>= 8;
                self.fill -= 8;
            }
        }
        bits
    }
}

/// The part of an interval that belongs to a set bit.
#[inline(always)]
fn split(range: u32, chance: Bit) -> u32 {
    ((u64::from(range) * u64::from(chance.chance())) >> 16) as u32
}

/// Bytes to bits. Any bytes may come: they are some bits, and zeroes where there are no more.
#[derive(Debug)]
pub(super) struct Decoder<'a> {
    bytes: &'a [u8],
    low: u32,
    high: u32,
    value: u32,
    even: &'a [u8],
    held: u64,
    fill: u32,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let mut decoder = Self { bytes, low: 0, high: u32::MAX, value: 0, even: bytes, held: 0, fill: 0 };
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
}

impl Coder for Decoder<'_> {
    #[inline(always)]
    fn bit(&mut self, _: bool, chance: Bit) -> bool {
        let middle = self.low + split(self.high - self.low, chance);
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

    #[inline(always)]
    fn even(&mut self, _: u64, count: u32) -> u64 {
        let mut half = |count: u32| {
            while self.fill < count {
                let byte = self.even.split_off_last().copied().unwrap_or(0);
                self.held |= u64::from(byte) << self.fill;
                self.fill += 8;
            }
            let bits = self.held & ((1 << count) - 1);
            self.held >>= count;
            self.fill -= count;
            bits
        };
        let high = half(count.saturating_sub(32));
        high << 32 | half(count.min(32))
    }
}
