//! Gipfeli's streams of bits: highest bit first in 64-bit words, the words little-endian.

/// Collects a stream in memory that is kept from block to block.
#[derive(Default)]
pub(super) struct BitWriter {
    words: Vec<u64>,
    word: u64,
    used: u32,
}

impl BitWriter {
    pub(super) fn clear(&mut self) {
        self.words.clear();
        (self.word, self.used) = (0, 0);
    }

    /// Appends the lowest `bits` bits of `value`, which has no others; 1 to 48 of them.
    #[inline]
    pub(super) fn put(&mut self, value: u64, bits: u32) {
        let used = self.used + bits;
        if used < 64 {
            self.word = (self.word << bits) | value;
            self.used = used;
        } else {
            let over = used - 64;
            self.words
                .push((self.word << (bits - over)) | (value >> over));
            // What lies above the `over` lowest bits is shifted out before the word is full.
            (self.word, self.used) = (value, over);
        }
    }

    /// Copies the stream to `out[*at..]` and moves `at` behind it.
    pub(super) fn write_to(&mut self, out: &mut [u8], at: &mut usize) -> Option<()> {
        if self.used > 0 {
            self.words.push(self.word << (64 - self.used));
            (self.word, self.used) = (0, 0);
        }
        let target = out.get_mut(*at..)?.get_mut(..8 * self.words.len())?;
        for (bytes, word) in target.chunks_exact_mut(8).zip(&self.words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        *at += target.len();
        Some(())
    }
}

/// Reads a stream. Behind its end come zeros: whoever reads asks [`BitReader::bytes_read`] at the end.
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    /// The bits at hand, from the highest down.
    window: u64,
    have: u32,
    /// Half words taken.
    halves: usize,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            window: 0,
            have: 0,
            halves: 0,
        }
    }

    /// The next `bits` bits, 1 to 16, left in place.
    #[inline]
    pub(super) fn peek(&mut self, bits: u32) -> u32 {
        if self.have < 32 {
            let at = 4 * (self.halves ^ 1); // the higher half of a little-endian word lies second
            let half = match self.bytes.get(at..at + 4) {
                Some(bytes) => u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
                None => 0,
            };
            self.window |= u64::from(half) << (32 - self.have);
            self.have += 32;
            self.halves += 1;
        }
        (self.window >> (64 - bits)) as u32
    }

    /// Passes over `bits` bits that were peeked.
    #[inline]
    pub(super) fn skip(&mut self, bits: u32) {
        self.window <<= bits;
        self.have -= bits;
    }

    /// The next `bits` bits, 1 to 16.
    #[inline]
    pub(super) fn read(&mut self, bits: u32) -> u32 {
        let value = self.peek(bits);
        self.skip(bits);
        value
    }

    /// Bytes of the whole words read so far; `None` if that is more than there are.
    pub(super) fn bytes_read(&self) -> Option<usize> {
        let bits = 32 * self.halves - self.have as usize;
        let bytes = bits.div_ceil(64) * 8;
        (bytes <= self.bytes.len()).then_some(bytes)
    }
}
