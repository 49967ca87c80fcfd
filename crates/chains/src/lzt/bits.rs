//! Streams of bits, highest bit first, that run forwards from the start of a slice or backwards from its end.
//!
//! Two streams that run towards each other need one length between them. A backward stream is the byte-wise mirror of
//! a forward one.

/// Reads a stream. `BACK`: from the end of the slice. Past the stream's end it reads whatever is there, at last zeros;
/// [`BitReader::bytes_used`] tells afterwards.
pub(super) struct BitReader<'a, const BACK: bool> {
    bytes: &'a [u8],
    /// Bytes taken so far.
    taken: usize,
    /// Bits not yet used, from the highest down.
    pub(super) bits: u64,
    /// How many.
    have: u32,
}

impl<'a, const BACK: bool> BitReader<'a, BACK> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, taken: 0, bits: 0, have: 0 }
    }

    /// Makes at least 56 bits available.
    #[inline(always)]
    pub(super) fn refill(&mut self) {
        self.bits |= self.next_word() >> self.have;
        self.taken += ((63 - self.have) >> 3) as usize;
        self.have |= 56;
    }

    #[inline(always)]
    fn next_word(&self) -> u64 {
        let len = self.bytes.len();
        if self.taken + 8 > len {
            return self.last_word();
        }
        let at = if BACK { len - self.taken - 8 } else { self.taken };
        // SAFETY: `taken + 8 <= len`, so both `len - taken - 8` and `taken` leave 8 bytes after them.
        let word = unsafe { self.bytes.as_ptr().add(at).cast::<u64>().read_unaligned() };
        if BACK { u64::from_le(word) } else { u64::from_be(word) }
    }

    /// The word at the end of the stream, filled up with zeros.
    #[cold]
    fn last_word(&self) -> u64 {
        let mut word = 0;
        for i in 0..8 {
            let byte = match self.bytes.len().checked_sub(self.taken + i + 1) {
                None => 0,
                Some(at) if BACK => self.bytes[at],
                Some(_) => self.bytes[self.taken + i],
            };
            word = word << 8 | u64::from(byte);
        }
        word
    }

    /// Steps over `count <= 56` bits of those that are available.
    #[inline(always)]
    pub(super) fn skip(&mut self, count: u32) {
        self.bits <<= count;
        self.have = self.have.wrapping_sub(count);
    }

    /// Bytes of the stream that at least one used bit was in.
    pub(super) fn bytes_used(&self) -> usize {
        self.taken - (self.have >> 3) as usize
    }
}

/// Writes a stream. `BACK`: from the end of the slice. The slice must be 8 bytes longer than the stream.
pub(super) struct BitWriter<'a, const BACK: bool> {
    bytes: &'a mut [u8],
    written: usize,
    bits: u64,
    have: u32,
}

impl<'a, const BACK: bool> BitWriter<'a, BACK> {
    pub(super) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, written: 0, bits: 0, have: 0 }
    }

    /// Adds the low `count` bits of `value`, whose other bits are zero. At most 56 between two [`Self::flush`]es.
    #[inline(always)]
    pub(super) fn put(&mut self, value: u64, count: u32) {
        self.have += count;
        self.bits |= value << (64 - self.have);
    }

    /// Writes out whole bytes; `None` if the slice is full.
    #[inline(always)]
    pub(super) fn flush(&mut self) -> Option<()> {
        let len = self.bytes.len();
        let end = self.written + 8;
        if end > len {
            return None;
        }
        if BACK {
            self.bytes[len - end..len - self.written].copy_from_slice(&self.bits.to_le_bytes());
        } else {
            self.bytes[self.written..end].copy_from_slice(&self.bits.to_be_bytes());
        }
        self.written += (self.have >> 3) as usize;
        self.bits <<= self.have & !7;
        self.have &= 7;
        Some(())
    }

    /// Length of the stream in bytes, after its last [`Self::flush`].
    pub(super) fn finish(self) -> usize {
        self.written + usize::from(self.have > 0)
    }
}
