//! Streams of bits. Literals: highest bit first, forwards from the start of a slice or backwards from its end; two that
//! run towards each other need one length between them. Tokens: the same, but lowest bit first.
//!
//! Past their end streams read as zeros; `bytes_used` tells afterwards.

/// Reads literals. `BACK`: from the end of the slice, as its byte-wise mirror.
#[derive(Clone, Copy)]
pub(super) struct BitReader<'a, const BACK: bool> {
    bytes: &'a [u8],
    /// Bytes wholly used when `bits` was last filled.
    taken: usize,
    /// Bits not yet used, from the highest down; the lowest one set is a mark that tells how many were.
    bits: u64,
}

impl<'a, const BACK: bool> BitReader<'a, BACK> {
    /// A stream of which `taken` bytes are used wholly, and of the word there what `bits` has not.
    pub(super) fn resume(bytes: &'a [u8], taken: usize, bits: u64) -> Self {
        Self { bytes, taken, bits }
    }

    /// Makes 56 bits available, and returns them, from the highest down.
    #[inline(always)]
    pub(super) fn refill(&mut self) -> u64 {
        let used = self.bits.trailing_zeros();
        self.taken += (used >> 3) as usize;
        let len = self.bytes.len();
        let word = if self.taken + 8 > len {
            last_word::<BACK>(self.bytes, self.taken)
        } else if BACK {
            // SAFETY: `taken + 8 <= len`.
            u64::from_le(unsafe {
                self.bytes
                    .as_ptr()
                    .add(len - self.taken - 8)
                    .cast::<u64>()
                    .read_unaligned()
            })
        } else {
            // SAFETY: `taken + 8 <= len`.
            u64::from_be(unsafe {
                self.bytes
                    .as_ptr()
                    .add(self.taken)
                    .cast::<u64>()
                    .read_unaligned()
            })
        };
        self.bits = (word | 1) << (used & 7);
        self.bits
    }

    /// What is left of the bits that were available.
    #[inline(always)]
    pub(super) fn set_bits(&mut self, bits: u64) {
        self.bits = bits;
    }

    /// Bytes of the stream that at least one used bit was in.
    pub(super) fn bytes_used(&self) -> usize {
        (8 * self.taken + self.bits.trailing_zeros() as usize).div_ceil(8)
    }
}

/// The word at the end of a stream, filled up with zeros.
#[cold]
#[inline(never)]
fn last_word<const BACK: bool>(bytes: &[u8], taken: usize) -> u64 {
    let mut word = 0;
    for i in 0..8 {
        let byte = match bytes.len().checked_sub(taken + i + 1) {
            None => 0,
            Some(at) if BACK => bytes[at],
            Some(_) => bytes[taken + i],
        };
        word = word << 8 | u64::from(byte);
    }
    word
}

/// Reads tokens. `BACK`: from the end of the slice, as its byte-wise mirror.
#[derive(Clone, Copy)]
pub(super) struct TokenReader<'a, const BACK: bool> {
    bytes: &'a [u8],
    /// Bits used.
    used: usize,
}

impl<'a, const BACK: bool> TokenReader<'a, BACK> {
    /// A stream of which `used` bits are used.
    pub(super) fn new(bytes: &'a [u8], used: usize) -> Self {
        Self { bytes, used }
    }

    /// The next 57 bits, from the lowest up.
    #[inline(always)]
    pub(super) fn bits(&self) -> u64 {
        let (at, len) = (self.used >> 3, self.bytes.len());
        let word = if at + 8 > len {
            last_word::<BACK>(self.bytes, at).swap_bytes()
        } else if BACK {
            // SAFETY: `at + 8 <= len`.
            u64::from_be(unsafe {
                self.bytes
                    .as_ptr()
                    .add(len - at - 8)
                    .cast::<u64>()
                    .read_unaligned()
            })
        } else {
            // SAFETY: `at + 8 <= len`.
            u64::from_le(unsafe { self.bytes.as_ptr().add(at).cast::<u64>().read_unaligned() })
        };
        word >> (self.used & 7)
    }

    #[inline(always)]
    pub(super) fn skip(&mut self, count: usize) {
        self.used += count;
    }

    /// Bits used so far.
    #[inline(always)]
    pub(super) fn used(&self) -> usize {
        self.used
    }
}

/// Writes tokens. `BACK`: from the end of the slice. The slice must be 8 bytes longer than the stream.
pub(super) struct TokenWriter<'a, const BACK: bool> {
    bytes: &'a mut [u8],
    written: usize,
    bits: u64,
    have: u32,
}

impl<'a, const BACK: bool> TokenWriter<'a, BACK> {
    pub(super) fn new(bytes: &'a mut [u8]) -> Self {
        Self {
            bytes,
            written: 0,
            bits: 0,
            have: 0,
        }
    }

    /// Adds the low `count <= 56` bits of `value`, whose other bits are zero; `None` if the slice is full.
    #[inline(always)]
    pub(super) fn put(&mut self, value: u64, count: u32) -> Option<()> {
        let (end, len) = (self.written + 8, self.bytes.len());
        self.bits |= value << self.have;
        self.have += count;
        if end > len {
            return None;
        }
        if BACK {
            self.bytes[len - end..len - self.written].copy_from_slice(&self.bits.to_be_bytes());
        } else {
            self.bytes[self.written..end].copy_from_slice(&self.bits.to_le_bytes());
        }
        self.written += (self.have >> 3) as usize;
        self.bits >>= self.have & !7;
        self.have &= 7;
        Some(())
    }

    /// Length of the stream in bytes.
    pub(super) fn finish(self) -> usize {
        self.written + usize::from(self.have > 0)
    }
}

/// Writes literals. `BACK`: from the end of the slice. The slice must be 8 bytes longer than the stream.
pub(super) struct BitWriter<'a, const BACK: bool> {
    bytes: &'a mut [u8],
    written: usize,
    bits: u64,
    have: u32,
}

impl<'a, const BACK: bool> BitWriter<'a, BACK> {
    pub(super) fn new(bytes: &'a mut [u8]) -> Self {
        Self {
            bytes,
            written: 0,
            bits: 0,
            have: 0,
        }
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
