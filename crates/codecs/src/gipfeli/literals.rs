//! Gipfeli's code for literals: 32 symbols in 6 bits, 64 in 8, the rest in 10.

use super::bits::{BitReader, BitWriter};

/// Literals a block must hold for a code to be tried.
const FEW: usize = 200;
/// One literal in so many is counted.
const SAMPLE: usize = 4;

/// Appends `literals` with their mask word to `out[*at..]`: coded where that looks shorter, else plain.
pub(super) fn write(
    literals: &[u8],
    bits: &mut BitWriter,
    out: &mut [u8],
    at: &mut usize,
) -> Option<()> {
    if let Some(code) = (literals.len() > FEW).then(|| Code::of(literals)).flatten() {
        bits.clear();
        // Four at once: most of the time goes into asking whether a word is full.
        for some in literals.chunks(4) {
            let (mut value, mut len) = (0, 0);
            for &literal in some {
                let (code, code_len) = code.codes[usize::from(literal)];
                value = value << code_len | u64::from(code);
                len += u32::from(code_len);
            }
            bits.put(value, len);
        }
        append(out, at, &code.header[..code.header_len])?;
        return bits.write_to(out, at);
    }
    append(out, at, &[0; 4])?;
    append(out, at, literals)
}

/// Reads `count` literals with their mask word from `packed[*at..]` into `literals`.
pub(super) fn read(
    packed: &[u8],
    at: &mut usize,
    count: usize,
    literals: &mut Vec<u8>,
) -> Option<()> {
    literals.clear();
    let groups = u32::from_be_bytes(take(packed, at, 4)?.try_into().expect("four bytes"));
    if groups == 0 {
        literals.extend_from_slice(take(packed, at, count)?);
        return Some(());
    }
    let mut symbols = Vec::with_capacity(CODED);
    for group in (0..32u8).filter(|group| groups << group >> 31 == 1) {
        let present = take(packed, at, 1)?[0];
        symbols.extend(
            (0..8)
                .filter(|bit| present << bit >> 7 == 1)
                .map(|bit| 8 * group + bit),
        );
    }
    let classes = take(packed, at, CODED / 8)?;
    if symbols.len() != CODED || classes.iter().map(|byte| byte.count_ones()).sum::<u32>() != 32 {
        return None;
    }
    // Which symbol, and how many bits, for any ten bits.
    let mut table = [(0, 10); 1024];
    let (mut short, mut medium) = (0, 0);
    for (index, &symbol) in symbols.iter().enumerate() {
        if classes[index / 8] << (index % 8) & 0x80 != 0 {
            table[short << 4..][..16].fill((symbol, 6));
            short += 1;
        } else {
            table[(32 << 4) + (medium << 2)..][..4].fill((symbol, 8));
            medium += 1;
        }
    }
    for byte in 0..=255u8 {
        table[(48 << 4) + usize::from(byte)] = (byte, 10);
    }
    // The shortest code has six bits, so fewer bytes than that cannot hold `count`: refuse before making room.
    let mut bits = BitReader::new(&packed[*at..]);
    if count > (packed.len() - *at) / 6 * 8 + 8 {
        return None;
    }
    literals.extend((0..count).map(|_| {
        let (symbol, len) = table[bits.peek(10) as usize];
        bits.skip(len);
        symbol
    }));
    *at += bits.bytes_read()?;
    Some(())
}

/// Symbols in the first two classes.
const CODED: usize = 96;

struct Code {
    /// Code and its length in bits, by symbol.
    codes: [(u16, u8); 256],
    header: [u8; 4 + 32 + CODED / 8],
    header_len: usize,
}

impl Code {
    /// The code that fits a sample of `literals`, if it is shorter than plain bytes.
    fn of(literals: &[u8]) -> Option<Self> {
        let mut counts = [0u32; 256];
        literals
            .iter()
            .step_by(SAMPLE)
            .for_each(|&literal| counts[usize::from(literal)] += 1);
        // Count and symbol in one number, so that the order is total and the code the same on every machine.
        let mut order: [u32; 256] =
            std::array::from_fn(|symbol| counts[symbol] << 8 | symbol as u32);
        order.select_nth_unstable_by(CODED - 1, |a, b| b.cmp(a));
        order[..CODED].select_nth_unstable_by(31, |a, b| b.cmp(a));
        let sum = |range: std::ops::Range<usize>| {
            order[range]
                .iter()
                .map(|c| (c >> 8) as usize)
                .sum::<usize>()
        };
        let sample_bits = 6 * sum(0..32) + 8 * sum(32..CODED) + 10 * sum(CODED..256);
        let sampled = literals.len().div_ceil(SAMPLE);
        if sample_bits * literals.len() / sampled + 8 * 48 >= 8 * literals.len() {
            return None;
        }
        let mut class = [3u8; 256];
        order[..32]
            .iter()
            .for_each(|c| class[(c & 0xff) as usize] = 1);
        order[32..CODED]
            .iter()
            .for_each(|c| class[(c & 0xff) as usize] = 2);
        Some(Self::new(&class))
    }

    fn new(class: &[u8; 256]) -> Self {
        let mut code = Self {
            codes: [(0, 0); 256],
            header: [0; 4 + 32 + CODED / 8],
            header_len: 4,
        };
        let (mut groups, mut index, mut short, mut medium) = (0u32, 0, 0, 32 << 2);
        let mut classes = [0u8; CODED / 8];
        for (group, members) in class.chunks_exact(8).enumerate() {
            let mut present = 0u8;
            for (bit, &member) in members.iter().enumerate() {
                let symbol = 8 * group + bit;
                if member == 3 {
                    code.codes[symbol] = ((48 << 4) + symbol as u16, 10);
                    continue;
                }
                present |= 0x80 >> bit;
                if member == 1 {
                    classes[index / 8] |= 0x80 >> (index % 8);
                    code.codes[symbol] = (short, 6);
                    short += 1;
                } else {
                    code.codes[symbol] = (medium, 8);
                    medium += 1;
                }
                index += 1;
            }
            if present != 0 {
                groups |= 1 << (31 - group);
                code.header[code.header_len] = present;
                code.header_len += 1;
            }
        }
        code.header[..4].copy_from_slice(&groups.to_be_bytes());
        code.header[code.header_len..][..CODED / 8].copy_from_slice(&classes);
        code.header_len += CODED / 8;
        code
    }
}

/// The next `len` bytes of `packed`.
pub(super) fn take<'a>(packed: &'a [u8], at: &mut usize, len: usize) -> Option<&'a [u8]> {
    let bytes = packed.get(*at..)?.get(..len)?;
    *at += len;
    Some(bytes)
}

/// Copies `bytes` to `out[*at..]`.
pub(super) fn append(out: &mut [u8], at: &mut usize, bytes: &[u8]) -> Option<()> {
    out.get_mut(*at..)?
        .get_mut(..bytes.len())?
        .copy_from_slice(bytes);
    *at += bytes.len();
    Some(())
}
