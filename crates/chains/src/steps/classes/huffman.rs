//! Which table of code lengths a page is packed with.

use super::{CLASSES, CODE_MAX, ESCAPE, OWN, SYMBOLS, WINDOW, tables::TABLES};
use crate::{
    simd::twin,
    step::{PageError, Side, SideReader},
};

/// A table, and the class that its symbol 1 stands for.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    pub lens: [u8; SYMBOLS],
    table: u8,
    first: i32,
    /// Bits of all words together, raw bits included.
    pub bits: u32,
}

impl Choice {
    /// The symbol of a class.
    #[inline(always)]
    pub(crate) fn symbol(&self, class: usize) -> usize {
        let relative = class as i32 - self.first;
        match class {
            0 => 0,
            1..65 if (0..WINDOW as i32).contains(&relative) => relative as usize + 1,
            _ => ESCAPE,
        }
    }

    /// The class of a symbol; one outside 0 to 64 is of no word. Not for the escape.
    pub(crate) fn class(&self, symbol: usize) -> i32 {
        if symbol == 0 {
            0
        } else {
            (self.first + symbol as i32 - 1).max(-1)
        }
    }

    /// Canonical codes of all symbols.
    pub(crate) fn codes(&self) -> [u64; SYMBOLS] {
        let mut next = [0u64; CODE_MAX as usize + 2];
        for &len in &self.lens {
            next[usize::from(len) + 1] += if len == 0 {
                0
            } else {
                1 << (CODE_MAX - u32::from(len))
            };
        }
        for len in 1..next.len() {
            next[len] += next[len - 1];
        }
        self.lens.map(|len| {
            let room = CODE_MAX - u32::from(len);
            let at = &mut next[usize::from(len)];
            *at += if len == 0 { 0 } else { 1 << room };
            if len == 0 { 0 } else { (*at >> room) - 1 }
        })
    }

    pub(crate) fn put(&self, side: &mut Side) -> Option<()> {
        side.put(&[self.table])?;
        if self.table == OWN {
            let nibbles: [u8; SYMBOLS / 2] =
                std::array::from_fn(|n| self.lens[2 * n] | self.lens[2 * n + 1] << 4);
            side.put(&nibbles)?;
        }
        side.put(&[(self.first + 64) as u8])
    }

    pub(crate) fn take(side: &mut SideReader<'_>) -> Result<Self, PageError> {
        let table = side.byte()?;
        let lens = if table == OWN {
            let nibbles: [u8; SYMBOLS / 2] = side.array()?;
            std::array::from_fn(|n| nibbles[n / 2] >> (4 * (n % 2)) & 0xf)
        } else {
            *TABLES
                .get(usize::from(table))
                .ok_or(PageError::Corrupt("no such table of code lengths"))?
        };
        if lens.iter().any(|&len| u32::from(len) > CODE_MAX) {
            return Err(PageError::Corrupt("a code longer than codes are"));
        }
        let first = i32::from(side.byte()?) - 64;
        Ok(Self {
            lens,
            table,
            first,
            bits: 0,
        })
    }
}

twin! {
    /// The best table for words of `word_bits` bits, of which `histogram` counts those of each class and `raw_bits`
    /// says what a class leaves open.
    pub(super) fn choose(histogram: &[u32; CLASSES], raw_bits: &[u32; CLASSES], word_bits: u32) -> Choice = choose_portable;
}

#[inline(always)]
fn choose_portable(
    histogram: &[u32; CLASSES],
    raw_bits: &[u32; CLASSES],
    word_bits: u32,
) -> Choice {
    // Room for a window that begins below class 1 or ends above class 64.
    const PAD: usize = 32;
    let mut padded = [0i16; 65 + 2 * PAD];
    // Up to each class: words, and bits that these take more as escapes than in their class.
    let (mut words, mut more) = ([0u32; 66], [0u32; 66]);
    let mut raw = 0;
    for class in 1..65 {
        let count = histogram[class];
        padded[class + PAD] = count as i16;
        raw += count * raw_bits[class];
        words[class + 1] = words[class] + count;
        more[class + 1] = more[class] + count * (word_bits - raw_bits[class]);
    }
    let middle = middle(histogram);
    let mut best = (u32::MAX, 0, 0);
    for first in middle - MIDDLE - 1..=middle - MIDDLE + 1 {
        let window: &[i16; WINDOW] = padded[(first + PAD as i32) as usize..]
            .first_chunk()
            .expect("within the padding");
        let (from, to) = (
            first.max(1) as usize,
            (first + WINDOW as i32).min(65) as usize,
        );
        let escapes = words[65] - (words[to] - words[from]) + histogram[65];
        let beside = raw + more[65] - (more[to] - more[from]) + histogram[65] * word_bits;
        for (n, lens) in WIDE.iter().enumerate() {
            let coded: i32 = (0..WINDOW)
                .map(|n| i32::from(window[n]) * i32::from(lens[n + 1]))
                .sum();
            let outside = histogram[0] * lens[0] as u32 + escapes * lens[ESCAPE] as u32;
            let bits = coded as u32 + outside + beside;
            if bits < best.0 {
                best = (bits, n, first);
            }
        }
    }
    let (bits, table, first) = best;
    let mut choice = Choice {
        lens: TABLES[table],
        table: table as u8,
        first,
        bits,
    };
    let mut counts = [0; SYMBOLS];
    for (class, &count) in histogram.iter().enumerate() {
        counts[choice.symbol(class)] += count;
    }
    let coded = |lens: &[u8; SYMBOLS]| -> u32 {
        counts
            .iter()
            .zip(lens)
            .map(|(&n, &len)| n * u32::from(len))
            .sum()
    };
    let beside = bits - coded(&choice.lens);
    // No code is shorter than the entropy, so where that does not pay none need be made.
    if beside + entropy(&counts) + OWN_BITS < bits {
        let own = lens(&counts);
        let own_bits = beside + coded(&own) + OWN_BITS;
        if own_bits < bits {
            choice = Choice {
                lens: own,
                table: OWN,
                first,
                bits: own_bits,
            };
        }
    }
    choice
}

/// What a page's own table takes.
const OWN_BITS: u32 = 8 * (SYMBOLS as u32 / 2);

/// [`TABLES`] as numbers that multiply in one instruction.
static WIDE: [[i16; SYMBOLS]; TABLES.len()] = {
    let mut wide = [[0; SYMBOLS]; TABLES.len()];
    let mut table = 0;
    while table < TABLES.len() {
        let mut symbol = 0;
        while symbol < SYMBOLS {
            wide[table][symbol] = TABLES[table][symbol] as i16;
            symbol += 1;
        }
        table += 1;
    }
    wide
};

/// Bits of all symbols at their entropy, rounded down.
#[inline(always)]
fn entropy(counts: &[u32; SYMBOLS]) -> u32 {
    let log = |count: f32| -> f32 {
        // The exponent, and a polynomial in the fraction that is right to 1/5000.
        let bits = count.to_bits();
        let exponent = (bits >> 23) as f32 - 127.0;
        let m = f32::from_bits(bits & 0x7f_ffff | 0x3f80_0000);
        exponent - 2.153_620_7 + m * (3.047_884_2 + m * (-1.051_875 + m * 0.158_248_7))
    };
    let total: u32 = counts.iter().sum();
    let sum: f32 = counts
        .iter()
        .map(|&count| {
            if count == 0 {
                0.0
            } else {
                count as f32 * log(count as f32)
            }
        })
        .sum();
    (total as f32 * log(total.max(1) as f32) - sum).max(0.0) as u32
}

/// The class in the middle of all words but those of class 0.
fn middle(histogram: &[u32; CLASSES]) -> i32 {
    let half = histogram[1..65].iter().sum::<u32>() / 2;
    let mut below = 0;
    let at = histogram[1..65].iter().position(|&count| {
        below += count;
        below > half
    });
    at.map_or(1, |at| at as i32 + 1)
}

/// The middle class is symbol `MIDDLE + 1` where no shift is better.
const MIDDLE: i32 = 17;

/// Lengths of Huffman codes for symbols of these counts, at most [`CODE_MAX`]; 0 where a symbol does not occur.
pub(crate) fn lens(counts: &[u32; SYMBOLS]) -> [u8; SYMBOLS] {
    let mut lens = [0u8; SYMBOLS];
    let mut order: Vec<usize> = (0..SYMBOLS).filter(|&symbol| counts[symbol] > 0).collect();
    if order.len() < 2 {
        order.iter().for_each(|&symbol| lens[symbol] = 1);
        return lens;
    }
    order.sort_unstable_by_key(|&symbol| counts[symbol]);
    // Two queues: leaves by weight, and nodes in the order they are made, which is by weight too.
    let mut nodes: Vec<(u32, usize, usize)> =
        order.iter().map(|&symbol| (counts[symbol], 0, 0)).collect();
    let leaves = nodes.len();
    let (mut leaf, mut node) = (0, leaves);
    while nodes.len() < 2 * leaves - 1 {
        let mut lightest = || {
            let take_leaf =
                leaf < leaves && (node >= nodes.len() || nodes[leaf].0 <= nodes[node].0);
            let at = if take_leaf { &mut leaf } else { &mut node };
            *at += 1;
            *at - 1
        };
        let (a, b) = (lightest(), lightest());
        nodes.push((nodes[a].0 + nodes[b].0, a, b));
    }
    let mut depths = vec![0u8; nodes.len()];
    for n in (leaves..nodes.len()).rev() {
        depths[nodes[n].1] = depths[n] + 1;
        depths[nodes[n].2] = depths[n] + 1;
    }
    // Codes beyond the longest are shortened, and others lengthened, the rarest first, until all fit.
    let room = 1u32 << CODE_MAX;
    let mut depths: Vec<u32> = depths[..leaves]
        .iter()
        .map(|&depth| u32::from(depth).min(CODE_MAX))
        .collect();
    let mut used: u32 = depths.iter().map(|depth| room >> depth).sum();
    while used > room {
        let longer = depths
            .iter()
            .position(|&depth| depth < CODE_MAX)
            .expect("32 codes of 10 bits fit");
        used -= room >> (depths[longer] + 1);
        depths[longer] += 1;
    }
    // What that left over goes to the most frequent.
    for depth in depths.iter_mut().rev() {
        while *depth > 1 && used + (room >> *depth) <= room {
            used += room >> *depth;
            *depth -= 1;
        }
    }
    for (&symbol, depth) in order.iter().zip(depths) {
        lens[symbol] = depth as u8;
    }
    lens
}

/// What `examples/train_classes.rs` needs.
pub mod training {
    use super::{CLASSES, ESCAPE, MIDDLE, SYMBOLS, WINDOW, lens, middle};
    use crate::{
        steps::difference::{best_order, differences},
        word::{Word, read},
    };

    /// Counts of the symbols that a page's words become, the middle class at its place, and the bytes they would take.
    #[must_use]
    pub fn counts(page: &[u8], width: usize) -> ([u32; SYMBOLS], usize) {
        match width {
            1 => of::<u8>(page),
            2 => of::<u16>(page),
            4 => of::<u32>(page),
            _ => of::<u64>(page),
        }
    }

    fn of<W: Word>(page: &[u8]) -> ([u32; SYMBOLS], usize) {
        let mut words = W::buffer();
        let words = words.as_mut();
        let count = read(page, words);
        let words = &mut words[..count];
        let order = best_order(words).order;
        differences(words, order);
        let mut histogram = [0u32; CLASSES];
        let mut bits = 0;
        for word in &words[order..] {
            let class = word.zigzag().bit_len();
            histogram[class as usize] += 1;
            bits += class.saturating_sub(1) as usize;
        }
        let first = middle(&histogram) - MIDDLE;
        let mut counts = [0; SYMBOLS];
        for (class, &count) in histogram.iter().enumerate() {
            let relative = class as i32 - first;
            let inside = (0..WINDOW as i32).contains(&relative);
            counts[if class == 0 {
                0
            } else if inside {
                relative as usize + 1
            } else {
                ESCAPE
            }] += count;
        }
        (counts, bits.div_ceil(8))
    }

    /// Code lengths for these counts, where every symbol has a code.
    #[must_use]
    pub fn code_lens(counts: &[u32; SYMBOLS]) -> [u8; SYMBOLS] {
        lens(counts)
    }
}
