//! Canonical Huffman codes: from lengths to codes, and to tables that decode them.

/// A code for each symbol, highest bit first. Shorter codes come first, among equals the lower symbol.
///
/// `None` if the lengths are not those of a complete prefix code with lengths from 1 to `len_max`.
pub(super) fn codes(lens: &[u8], len_max: u8) -> Option<Vec<u16>> {
    let mut counts = [0u32; 17];
    for &len in lens {
        if len == 0 || len > len_max {
            return None;
        }
        counts[usize::from(len)] += 1;
    }
    let mut next = [0u32; 17];
    let mut code = 0;
    for len in 1..=16 {
        code = (code + counts[len - 1]) << 1;
        next[len] = code;
    }
    let used: u32 = lens.iter().map(|&len| 1 << (len_max - len)).sum();
    (used == 1 << len_max).then(|| {
        lens.iter()
            .map(|&len| {
                let code = &mut next[usize::from(len)];
                *code += 1;
                (*code - 1) as u16
            })
            .collect()
    })
}

/// Bits of a second table: the longest code is this much longer than the first table's index.
pub(super) const SECOND_BITS: u8 = 4;

/// A table of `2^first_bits` entries, indexed by the next bits of the stream, and second tables of 16 entries after it
/// for longer codes, indexed by the four bits after those.
///
/// `entry` makes an entry of a symbol and its length; `link` of the number of a second table.
pub(super) fn decode_table<E: Copy + Default>(
    lens: &[u8],
    first_bits: u8,
    table: &mut Vec<E>,
    seconds: &mut Vec<E>,
    entry: impl Fn(usize, u8) -> E,
    link: impl Fn(usize) -> E,
) -> Option<()> {
    let len_max = first_bits + SECOND_BITS;
    let start = table.len();
    table.resize(start + (1 << first_bits), E::default());
    let mut all: Vec<(usize, usize, u8)> = lens
        .iter()
        .zip(codes(lens, len_max)?)
        .enumerate()
        .map(|(symbol, (&len, code))| (usize::from(code) << (len_max - len), symbol, len))
        .collect();
    // In order of their value, so that a second table is filled before the next begins.
    all.sort_unstable();
    let mut linked = None;
    for (code, symbol, len) in all {
        let first = code >> SECOND_BITS;
        if len <= first_bits {
            table[start + first..start + first + (1 << (first_bits - len))]
                .fill(entry(symbol, len));
            continue;
        }
        if linked != Some(first) {
            linked = Some(first);
            table[start + first] = link(seconds.len() >> SECOND_BITS);
            seconds.resize(seconds.len() + (1 << SECOND_BITS), E::default());
        }
        let at = seconds.len() - (1 << SECOND_BITS) + (code & ((1 << SECOND_BITS) - 1));
        seconds[at..at + (1 << (len_max - len))].fill(entry(symbol, len));
    }
    Some(())
}
