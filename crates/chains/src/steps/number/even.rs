//! Bits that are as likely set as not, from the end of a stream: the last byte first, each from its lowest bit.

/// Whole bytes in the order they are read in, and bits that make none yet.
#[derive(Debug, Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    held: u64,
    fill: u32,
}

impl Writer {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        (self.held, self.fill) = (0, 0);
    }

    /// Appends the low `count` bits, at most 64, those above the lowest 32 first. No other bit is set.
    pub(super) fn put(&mut self, bits: u64, count: u32) {
        for (part, count) in [
            (bits >> 32, count.saturating_sub(32)),
            (bits & 0xffff_ffff, count.min(32)),
        ] {
            self.held |= part << self.fill;
            self.fill += count;
            while self.fill >= 8 {
                self.bytes.push(self.held as u8);
                self.held >>= 8;
                self.fill -= 8;
            }
        }
    }

    /// All bytes, the first to be read first.
    pub(super) fn finish(&mut self) -> &[u8] {
        if self.fill > 0 {
            self.bytes.push(self.held as u8);
            (self.held, self.fill) = (0, 0);
        }
        &self.bytes
    }
}

/// Bits of bytes from the last to the first, and zeroes behind.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    left: &'a [u8],
    held: u64,
    fill: u32,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            left: bytes,
            held: 0,
            fill: 0,
        }
    }

    /// The next `count` bits, at most 64.
    #[inline(always)]
    pub(super) fn take(&mut self, count: u32) -> u64 {
        let high = if count > 32 { self.half(count - 32) } else { 0 };
        high << 32 | self.half(count.min(32))
    }

    #[inline(always)]
    fn half(&mut self, count: u32) -> u64 {
        if self.fill < count {
            self.fill(count);
        }
        let bits = self.held & ((1 << count) - 1);
        self.held >>= count;
        self.fill -= count;
        bits
    }

    /// Holds `count` bits at least, at most 32.
    fn fill(&mut self, count: u32) {
        if let Some((rest, four)) = self.left.split_last_chunk::<4>() {
            self.held |= u64::from(u32::from_be_bytes(*four)) << self.fill;
            (self.left, self.fill) = (rest, self.fill + 32);
            return;
        }
        while self.fill < count {
            self.held |= u64::from(self.left.split_off_last().copied().unwrap_or(0)) << self.fill;
            self.fill += 8;
        }
    }
}
