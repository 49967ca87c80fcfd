//! A page's positions by the hash of the bytes there, a block of them at a time. Upstream: `search`; the same in
//! vectors: `wide`.

use super::PAGE_MAX;

/// A page and zeros after it, so that it can be read in words.
pub(super) type Page = [u8; PAGE_MAX + SLACK];

/// Zeros after the page, so that it can be read in words.
pub(super) const SLACK: usize = 128;
pub(super) const TABLE_BITS: u32 = 12;
pub(super) const POSITION_BITS: u32 = 14;
pub(super) const POSITION_MASK: u32 = (1 << POSITION_BITS) - 1;
/// Positions hashed at once: as many as a word has bits.
pub(super) const BLOCK: usize = 64;
/// The hash of five bytes: the first four times the first number, and the last four times the second.
pub(super) const FACTORS: [u32; 2] = [0x9E37_79B1, 0x85EB_CA77];

/// A block of positions, hashed.
#[derive(Debug)]
pub(super) struct Block {
    /// Places in the table: the highest bits of the hash.
    pub(super) slots: [u32; BLOCK],
    /// What goes there: the next bits of the hash, and the position.
    pub(super) entries: [u32; BLOCK],
    /// What was there.
    pub(super) candidates: [u32; BLOCK],
}

impl Default for Block {
    fn default() -> Self {
        Self {
            slots: [0; BLOCK],
            entries: [0; BLOCK],
            candidates: [0; BLOCK],
        }
    }
}

/// What of a block vectors do better; all give the same numbers.
pub(super) trait Hasher {
    /// Fills slots and entries of the positions from `start`.
    fn hash(page: &Page, start: usize, block: &mut Block);
}

/// One position after the other.
pub(super) struct Plain;

impl Hasher for Plain {
    #[inline(always)]
    fn hash(page: &Page, start: usize, block: &mut Block) {
        for i in 0..BLOCK {
            let bytes = load64(page, start + i);
            let hash = (bytes as u32)
                .wrapping_mul(FACTORS[0])
                .wrapping_add(((bytes >> 8) as u32).wrapping_mul(FACTORS[1]));
            block.slots[i] = hash >> (32 - TABLE_BITS);
            block.entries[i] = hash << TABLE_BITS & !POSITION_MASK | (start + i) as u32;
        }
    }
}

#[inline(always)]
pub(super) fn load64(page: &Page, at: usize) -> u64 {
    debug_assert!(at + 8 <= page.len());
    // SAFETY: callers keep `at` within the page and its slack of 128 bytes less 8.
    u64::from_le(unsafe { page.as_ptr().add(at).cast::<u64>().read_unaligned() })
}

#[inline(always)]
pub(super) fn load32(page: &Page, at: usize) -> u32 {
    debug_assert!(at + 4 <= page.len());
    // SAFETY: callers keep `at` within the page and its slack of 128 bytes less 4.
    u32::from_le(unsafe { page.as_ptr().add(at).cast::<u32>().read_unaligned() })
}
