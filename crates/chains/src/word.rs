//! Unsigned words of 1, 2, 4 and 8 bytes, little-endian, for steps that come in all widths.

use std::fmt::Debug;

use crate::step::{BETWEEN_MAX, PageError};

/// One of `u8`, `u16`, `u32`, `u64`. Arithmetic is modulo 2^BITS.
pub(crate) trait Word: Copy + Default + Eq + Debug + Send + Sync + 'static {
    /// Bytes.
    const LEN: usize;
    /// Bits.
    const BITS: u32;

    /// As many words as there may be between two steps.
    type Buffer: AsMut<[Self]>;

    /// Words of zero.
    fn buffer() -> Self::Buffer;
    /// The low `BITS` bits of `wide`.
    fn truncate(wide: u64) -> Self;
    /// The same number in 64 bits.
    fn wide(self) -> u64;
    /// `self + other`.
    fn plus(self, other: Self) -> Self;
    /// `self - other`.
    fn minus(self, other: Self) -> Self;
    /// Small negative numbers become small odd ones: `2n`, or `-2n - 1`.
    fn zigzag(self) -> Self;
    /// Undoes [`Word::zigzag`].
    fn unzigzag(self) -> Self;
    /// Half of it as a signed number, rounded down.
    fn halved(self) -> Self;
    /// Whether its highest bit is set.
    fn is_negative(self) -> bool;
    /// The bits of a float as an integer in the order of floats, and back.
    fn ordered(self) -> Self;
    /// `self | other`.
    fn or(self, other: Self) -> Self;
    /// The word in another byte order.
    fn swap(self) -> Self;
    /// The bits moved up by `by`, the highest coming in below.
    fn rotate_left(self, by: u32) -> Self;
    /// Undoes [`Word::rotate_left`].
    fn rotate_right(self, by: u32) -> Self;
    /// Whether only the low `bits` bits, fewer than `BITS`, are set.
    fn is_below(self, bits: u32) -> bool;
    /// Bits up to the highest that is set.
    fn bit_len(self) -> u32;
    /// The word whose bytes `bytes` holds, which are `LEN`.
    fn load(bytes: &[u8]) -> Self;
    /// Writes its bytes to `bytes`, which holds `LEN`.
    fn store(self, bytes: &mut [u8]);
}

macro_rules! word {
    ($int:ty, $signed:ty) => {
        impl Word for $int {
            const LEN: usize = size_of::<$int>();
            const BITS: u32 = <$int>::BITS;

            type Buffer = [$int; BETWEEN_MAX / size_of::<$int>()];

            #[inline(always)]
            fn buffer() -> Self::Buffer {
                [0; BETWEEN_MAX / size_of::<$int>()]
            }
            #[inline(always)]
            fn truncate(wide: u64) -> Self {
                wide as $int
            }
            #[inline(always)]
            fn wide(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn zigzag(self) -> Self {
                let n = self as $signed;
                ((n << 1) ^ (n >> (<$int>::BITS - 1))) as $int
            }
            #[inline(always)]
            fn unzigzag(self) -> Self {
                (self >> 1) ^ (0 as $int).wrapping_sub(self & 1)
            }
            #[inline(always)]
            fn halved(self) -> Self {
                (self as $signed >> 1) as $int
            }
            #[inline(always)]
            fn is_negative(self) -> bool {
                (self as $signed) < 0
            }
            #[inline(always)]
            fn ordered(self) -> Self {
                let signs = (self as $signed >> (<$int>::BITS - 1)) as $int;
                self ^ (signs >> 1)
            }
            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }
            #[inline(always)]
            fn swap(self) -> Self {
                self.swap_bytes()
            }
            #[inline(always)]
            fn rotate_left(self, by: u32) -> Self {
                <$int>::rotate_left(self, by)
            }
            #[inline(always)]
            fn rotate_right(self, by: u32) -> Self {
                <$int>::rotate_right(self, by)
            }
            #[inline(always)]
            fn is_below(self, bits: u32) -> bool {
                self >> bits == 0
            }
            #[inline(always)]
            fn bit_len(self) -> u32 {
                <$int>::BITS - self.leading_zeros()
            }
            #[inline(always)]
            fn load(bytes: &[u8]) -> Self {
                <$int>::from_le_bytes(bytes.try_into().expect("LEN bytes"))
            }
            #[inline(always)]
            fn store(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
        }
    };
}

word!(u8, i8);
word!(u16, i16);
word!(u32, i32);
word!(u64, i64);

/// Reads the whole words of `raw` into the front of `words` and returns how many there are.
#[inline(always)]
pub(crate) fn read<W: Word>(raw: &[u8], words: &mut [W]) -> usize {
    let count = raw.len() / W::LEN;
    for (word, bytes) in words[..count].iter_mut().zip(raw.chunks_exact(W::LEN)) {
        *word = W::load(bytes);
    }
    count
}

/// Writes `words` to the front of `raw`.
#[inline(always)]
pub(crate) fn write<W: Word>(words: &[W], raw: &mut [u8]) {
    for (word, bytes) in words.iter().zip(raw.chunks_exact_mut(W::LEN)) {
        word.store(bytes);
    }
}

/// Has `pack` pack the whole words of `raw` into the front of `out`, and puts the bytes behind the last of them after
/// what it made. Returns the length of both.
#[inline(always)]
pub(crate) fn pack_whole<W: Word>(
    raw: &[u8],
    out: &mut [u8],
    pack: impl FnOnce(&mut [W], &mut [u8]) -> Option<usize>,
) -> Option<usize> {
    let mut words = W::buffer();
    let words = words.as_mut();
    let count = read(raw, words);
    let len = pack(&mut words[..count], out)?;
    let tail = &raw[count * W::LEN..];
    out.get_mut(len..len + tail.len())?.copy_from_slice(tail);
    Some(len + tail.len())
}

/// Undoes [`pack_whole`]: `unpack` gets exactly what was made of the words, and as many words of zero to fill.
#[inline(always)]
pub(crate) fn unpack_whole<W: Word>(
    packed: &[u8],
    out: &mut [u8],
    unpack: impl FnOnce(&[u8], &mut [W]) -> Result<(), PageError>,
) -> Result<(), PageError> {
    let (whole, to) = out.split_at_mut(out.len() / W::LEN * W::LEN);
    let len = packed
        .len()
        .checked_sub(to.len())
        .ok_or(PageError::Corrupt("bytes are missing"))?;
    let (packed, tail) = packed.split_at(len);
    let mut words = W::buffer();
    let words = &mut words.as_mut()[..whole.len() / W::LEN];
    unpack(packed, words)?;
    write(words, whole);
    to.copy_from_slice(tail);
    Ok(())
}
