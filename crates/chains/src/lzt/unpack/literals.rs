//! Reads the literals of a page: four streams at a time, since each waits for its last lookup.

use std::hint::cold_path;

use crate::lzt::{
    Corrupt,
    bits::BitReader,
    code::SECOND_BITS,
    kinds::{CONTEXTS, LITERAL_BITS, LITERAL_CONTEXT_SHIFT, LITERAL_LEN_SHIFT, Ready},
};

/// Bytes that four literals take of a stream at most, with the bits left from before.
const FOUR_MAX: usize = 7;

/// Decodes `count` literals to `to`: four quarters, the first two from the ends of `first`, the others of `second`,
/// both of which are parts of `packed`.
///
/// # Safety
/// `to` has room for `count` bytes. All are written if the result is `Ok`.
#[inline(always)]
pub(super) unsafe fn decode(
    ready: &Ready,
    packed: &[u8],
    [first, second]: [&[u8]; 2],
    to: *mut u8,
    count: usize,
) -> Result<(), Corrupt> {
    let table = ready.literal_table.as_ptr();
    let quarter = count.div_ceil(4);
    let mut a = Lane::<false>::new(first, table);
    let mut b = Lane::<true>::new(first, table);
    let mut c = Lane::<false>::new(second, table);
    let mut d = Lane::<true>::new(second, table);
    let last = count.saturating_sub(3 * quarter);
    let mut i = 0;
    loop {
        // How far to go without asking whether there is a word to read. A stream may look into what is beside it, so
        // that it gets to its end this way; whether it took what is not its own is seen afterwards.
        let words = a
            .words(packed)
            .min(b.words(packed))
            .min(c.words(packed))
            .min(d.words(packed));
        let fours = (words / FOUR_MAX).min((last - i) / 4);
        if fours == 0 {
            break;
        }
        // SAFETY: each refill takes at most `FOUR_MAX` of the bytes that `words` found. `i + 4 fours <= last`, and lanes 0 to
        // 2 are at least as long as the last, so each write is within `count`.
        unsafe {
            let mut at = to.add(i);
            let end = at.add(4 * fours);
            while at != end {
                a.refill();
                b.refill();
                c.refill();
                d.refill();
                macro_rules! next_of_each {
                    ($($step:literal)*) => {$(
                        *at.add($step) = a.next(table);
                        *at.add(quarter + $step) = b.next(table);
                        *at.add(2 * quarter + $step) = c.next(table);
                        *at.add(3 * quarter + $step) = d.next(table);
                    )*};
                }
                next_of_each!(0 1 2 3);
                at = at.add(4);
            }
        }
        i += 4 * fours;
    }
    let ends = [1, 2, 3, 4].map(|lane| count.min(lane * quarter));
    // SAFETY: each goes to the end of its quarter, at most `count`.
    let used = unsafe {
        [
            a.rest(first, table, to, i..ends[0]) + b.rest(first, table, to, quarter + i..ends[1]),
            c.rest(second, table, to, 2 * quarter + i..ends[2])
                + d.rest(second, table, to, 3 * quarter + i..ends[3]),
        ]
    };
    if used == [first.len(), second.len()] {
        Ok(())
    } else {
        Err(Corrupt("literals do not fill their streams"))
    }
}

/// One of four streams of literals. `BACK`: read from its end.
struct Lane<const BACK: bool> {
    /// The next word to read, if it is a part of the page.
    at: *const u8,
    /// As those of [`BitReader`].
    bits: u64,
    /// The table of the next literal's context.
    table: *const u16,
}

/// Places where the first tables of literals begin.
const TABLE_MASK: u32 = (CONTEXTS as u32 - 1) << LITERAL_BITS;

impl<const BACK: bool> Lane<BACK> {
    #[inline(always)]
    fn new(bytes: &[u8], table: *const u16) -> Self {
        let start = bytes.as_ptr();
        Self {
            at: if BACK {
                start.wrapping_add(bytes.len()).wrapping_sub(8)
            } else {
                start
            },
            bits: 1,
            table,
        }
    }

    /// How many bytes further words can be read of `packed`; 0 if none can.
    #[inline(always)]
    fn words(&self, packed: &[u8]) -> usize {
        let (start, at) = (packed.as_ptr() as usize, self.at as usize);
        if BACK {
            at.saturating_sub(start)
        } else {
            (start + packed.len()).saturating_sub(at + 8)
        }
    }

    /// Makes 56 bits available.
    ///
    /// # Safety
    /// [`Self::words`] is at least [`FOUR_MAX`].
    #[inline(always)]
    unsafe fn refill(&mut self) {
        let used = self.bits.trailing_zeros();
        let taken = (used >> 3) as usize;
        // SAFETY: `taken <= 7`, and so far there are words.
        let word = unsafe {
            if BACK {
                self.at = self.at.sub(taken);
                u64::from_le(self.at.cast::<u64>().read_unaligned())
            } else {
                self.at = self.at.add(taken);
                u64::from_be(self.at.cast::<u64>().read_unaligned())
            }
        };
        self.bits = (word | 1) << (used & 7);
    }

    /// The next literal. At most four between two refills.
    #[inline(always)]
    fn next(&mut self, table: *const u16) -> u8 {
        let bits = self.bits;
        // SAFETY: a context's first table has 2^10 entries.
        let mut entry =
            u32::from(unsafe { *self.table.add((bits >> (64 - LITERAL_BITS)) as usize) });
        if entry < 1 << LITERAL_LEN_SHIFT {
            cold_path();
            let low = (bits << LITERAL_BITS >> (64 - SECOND_BITS)) as usize;
            let at = (CONTEXTS << LITERAL_BITS) + ((entry as usize) << SECOND_BITS) + low;
            // SAFETY: the second table of every link is there whole (`Ready`).
            entry = u32::from(unsafe { *table.add(at) });
        }
        self.bits <<= entry >> LITERAL_LEN_SHIFT;
        let at = (entry << (u32::from(LITERAL_BITS) - LITERAL_CONTEXT_SHIFT)) & TABLE_MASK;
        // SAFETY: contexts are three bits of an entry, and the table begins with 8 * 2^10 entries (`Ready`).
        self.table = unsafe { table.add(at as usize) };
        entry as u8
    }

    /// Decodes what is left, and returns how many of `bytes`, its own and its twin's, the stream used.
    ///
    /// # Safety
    /// `to` has room for `range.end` bytes.
    #[inline(always)]
    unsafe fn rest(
        mut self,
        bytes: &[u8],
        table: *const u16,
        to: *mut u8,
        range: std::ops::Range<usize>,
    ) -> usize {
        let start = Self::new(bytes, table).at as usize;
        let taken = if BACK {
            start.wrapping_sub(self.at as usize)
        } else {
            self.at as usize - start
        };
        let mut reader = BitReader::<BACK>::resume(bytes, taken, self.bits);
        for at in range {
            self.bits = reader.refill();
            // SAFETY: `at < range.end`.
            unsafe { *to.add(at) = self.next(table) };
            reader.set_bits(self.bits);
        }
        reader.bytes_used()
    }
}
