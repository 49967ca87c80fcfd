//! Which table of code lengths a page is packed with.

use super::{CLASSES, CODE_MAX, ESCAPE, OWN, SYMBOLS, WINDOW, tables::TABLES};
use crate::step::{Side, SideReader, UnpackError};

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
        if symbol == 0 { 0 } else { (self.first + symbol as i32 - 1).max(-1) }
    }

    /// Canonical codes of all symbols.
    pub(crate) fn codes(&self) -> [u64; SYMBOLS] {
        let mut codes = [0; SYMBOLS];
        let mut at = 0u64;
        for len in 1..=CODE_MAX as u8 {
            for (code, _) in codes.iter_mut().zip(&self.lens).filter(|(_, l)| **l == len) {
                *code = at >> (CODE_MAX - u32::from(len));
                at += 1 << (CODE_MAX - u32::from(len));
            }
        }
        codes
    }

    pub(crate) fn put(&self, side: &mut Side) -> Option<()> {
        side.put(&[self.table])?;
        if self.table == OWN {
            let nibbles: [u8; SYMBOLS / 2] = std::array::from_fn(|n| self.lens[2 * n] | self.lens[2 * n + 1] << 4);
            side.put(&nibbles)?;
        }
        side.put(&[(self.first + 64) as u8])
    }

    pub(crate) fn take(side: &mut SideReader<'_>) -> Result<Self, UnpackError> {
        let table = side.byte()?;
        let lens = if table == OWN {
            let nibbles: [u8; SYMBOLS / 2] = side.array()?;
            std::array::from_fn(|n| nibbles[n / 2] >> (4 * (n % 2)) & 0xf)
        } else {
            *TABLES.get(usize::from(table)).ok_or(UnpackError::Corrupt("no such table of code lengths"))?
        };
        if lens.iter().any(|&len| u32::from(len) > CODE_MAX) {
            return Err(UnpackError::Corrupt("a code longer than codes are"));
        }
        let first = i32::from(side.byte()?) - 64;
        Ok(Self { lens, table, first, bits: 0 })
    }
}

/// The best table for words of `word_bits` bits, of which `histogram` counts those of each class.
pub(crate) fn choose(histogram: &[u32; CLASSES], raw_bits: impl Fn(usize) -> u32, word_bits: u32) -> Choice {
    let middle = middle(histogram);
    // Room for a window that begins below class 1 or ends above class 64.
    const PAD: i32 = 96;
    let mut padded = [0u16; 65 + 2 * PAD as usize];
    for class in 1..65 {
        padded[class + PAD as usize] = histogram[class].min(0xffff) as u16;
    }
    let total: u32 = histogram.iter().sum();
    let raw: u32 = (1..65).map(|class| histogram[class] * if histogram[class] > 0 { raw_bits(class) } else { 0 }).sum();
    // What an escape takes more than the raw bits counted for its class.
    let escape_more = |first: i32| {
        let window = first.max(1)..(first + WINDOW as i32).min(65);
        let outside = (1..65).filter(|class| !window.contains(class)).map(|class| class as usize);
        outside.filter(|&c| histogram[c] > 0).map(|c| histogram[c] * (word_bits - raw_bits(c).min(word_bits))).sum::<u32>()
            + histogram[65] * word_bits
    };
    let mut best = (u32::MAX, 0, 0);
    for shift in -1..=1 {
        let first = middle - MIDDLE + shift;
        let window = &padded[(first + PAD) as usize..][..WINDOW];
        let inside: u32 = window.iter().map(|&n| u32::from(n)).sum();
        let escapes = total - inside - histogram[0];
        let more = escape_more(first);
        for (n, lens) in TABLES.iter().enumerate() {
            let coded: u32 = window.iter().zip(&lens[1..]).map(|(&n, &len)| u32::from(n) * u32::from(len)).sum();
            let bits = coded + histogram[0] * u32::from(lens[0]) + escapes * u32::from(lens[ESCAPE]) + raw + more;
            if bits < best.0 {
                best = (bits, n, first);
            }
        }
    }
    let (bits, table, first) = best;
    let mut choice = Choice { lens: TABLES[table], table: table as u8, first, bits };
    let mut counts = [0; SYMBOLS];
    for (class, &count) in histogram.iter().enumerate() {
        counts[choice.symbol(class)] += count;
    }
    let own = lens(&counts);
    let coded = |lens: &[u8; SYMBOLS]| -> u32 { counts.iter().zip(lens).map(|(&n, &len)| n * u32::from(len)).sum() };
    let own_bits = bits - coded(&choice.lens) + coded(&own) + 8 * (SYMBOLS as u32 / 2);
    if own_bits < bits {
        choice = Choice { lens: own, table: OWN, first, bits: own_bits };
    }
    choice
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
    let mut nodes: Vec<(u32, usize, usize)> = order.iter().map(|&symbol| (counts[symbol], 0, 0)).collect();
    let leaves = nodes.len();
    let (mut leaf, mut node) = (0, leaves);
    while nodes.len() < 2 * leaves - 1 {
        let mut lightest = || {
            let take_leaf = leaf < leaves && (node >= nodes.len() || nodes[leaf].0 <= nodes[node].0);
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
    let mut depths: Vec<u32> = depths[..leaves].iter().map(|&depth| u32::from(depth).min(CODE_MAX)).collect();
    let mut used: u32 = depths.iter().map(|depth| room >> depth).sum();
    while used > room {
        let longer = depths.iter().position(|&depth| depth < CODE_MAX).expect("32 codes of 10 bits fit");
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
            counts[if class == 0 { 0 } else if inside { relative as usize + 1 } else { ESCAPE }] += count;
        }
        (counts, bits.div_ceil(8))
    }

    /// Code lengths for these counts, where every symbol has a code.
    #[must_use]
    pub fn code_lens(counts: &[u32; SYMBOLS]) -> [u8; SYMBOLS] {
        lens(counts)
    }
}
