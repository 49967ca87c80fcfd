//! Whether a DEFLATE stream (RFC 1951) unpacks to bytes that are known.
//!
//! Why: what a server sends back is checked by the client, who offloads to save processor time; unpacking was half of
//! what it still spent. Who knows what must come out need not find out what comes next: the codes of the next four
//! bytes, one behind the other, are compared with the stream at once. Only where they differ is a symbol decoded; a
//! match is a comparison of what is known with itself; nothing is written.
//!
//! Twice as fast as unpacking where nearly all symbols are literals, as in floats and other data that pack little; a
//! third slower in text, whose literals come in twos and threes. Unpacking by libdeflate would not do there either: it
//! takes streams that gzip refuses (287 lengths, symbols that mean nothing, codes that are not complete), and a server
//! that sends one would have us write a file that nobody else reads.
//!
//! As strict as zlib: codes must be complete (or one symbol alone, or none, but not for the lengths of codes),
//! distances within what has come out, the last block must end with the last byte. Bytes behind it are refused too.

/// Whether `packed` is one DEFLATE stream that unpacks to `raw`, and nothing more.
pub(crate) fn unpacks_to(packed: &[u8], raw: &[u8], codes: &mut Codes) -> bool {
    follow(packed, raw, codes).is_some()
}

fn follow(packed: &[u8], raw: &[u8], codes: &mut Codes) -> Option<()> {
    let mut stream = Stream {
        packed,
        at: 0,
        raw,
        done: 0,
    };
    loop {
        let (kind, last) = stream.head(codes)?;
        match kind {
            Kind::Stored => stream.stored()?,
            Kind::Coded => stream.block(codes)?,
        }
        if last {
            return stream.is_at_end().then_some(());
        }
    }
}

/// Tables of the block at hand; kept, so that they are made once.
#[derive(Debug)]
pub(crate) struct Codes {
    /// Of each literal: its code, reversed as it stands in the stream, and its length; longer than any where it has
    /// none.
    literals: [(u16, u8); 256],
    symbols: Decoder<SYMBOL_BITS>,
    distances: Decoder<DISTANCE_BITS>,
    lengths: Decoder<LENGTH_BITS>,
}

impl Default for Codes {
    fn default() -> Self {
        let literals = [(0, NONE); 256];
        let (symbols, distances, lengths) = (Decoder::new(), Decoder::new(), Decoder::new());
        Self {
            literals,
            symbols,
            distances,
            lengths,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Stored,
    Coded,
}

/// How far a stream was followed.
struct Stream<'a> {
    packed: &'a [u8],
    /// Bits of `packed` that are done.
    at: usize,
    raw: &'a [u8],
    /// Bytes of `raw` that came out.
    done: usize,
}

impl Stream<'_> {
    /// The head of a block, its codes among it; and whether it is the last.
    fn head(&mut self, codes: &mut Codes) -> Option<(Kind, bool)> {
        let last = self.bits(1)? == 1;
        let kind = match self.bits(2)? {
            0 => Kind::Stored,
            1 => codes.fixed().map(|()| Kind::Coded)?,
            2 => self.codes(codes).map(|()| Kind::Coded)?,
            _ => return None,
        };
        Some((kind, last))
    }

    fn is_at_end(&self) -> bool {
        self.done == self.raw.len() && self.at.div_ceil(8) == self.packed.len()
    }

    /// Takes up to 16 bits.
    fn bits(&mut self, count: usize) -> Option<usize> {
        let bits = peek(self.packed, self.at) & ((1 << count) - 1);
        self.at += count;
        (self.at <= self.packed.len() * 8).then_some(bits as usize)
    }

    fn stored(&mut self) -> Option<()> {
        self.at = self.at.next_multiple_of(8);
        let (len, inverse) = (self.bits(16)?, self.bits(16)?);
        let from = self.at / 8;
        let same =
            self.packed.get(from..from + len)? == self.raw.get(self.done..self.done + len)?;
        (self.at, self.done) = (self.at + len * 8, self.done + len);
        (same && len ^ inverse == 0xffff).then_some(())
    }

    /// The code lengths of a dynamic block.
    fn codes(&mut self, codes: &mut Codes) -> Option<()> {
        let (symbols, distances, count) =
            (self.bits(5)? + 257, self.bits(5)? + 1, self.bits(4)? + 4);
        let mut lengths = [0; 19];
        for &place in &LENGTHS_ORDER[..count] {
            lengths[place] = self.bits(3)? as u8;
        }
        codes.lengths.build(&lengths, false)?;
        let mut all = [0; 288 + 32];
        let mut filled = 0;
        while filled < symbols + distances {
            let (symbol, len) = codes.lengths.decode(peek(self.packed, self.at))?;
            self.at += len;
            let (value, times) = match symbol {
                16 => (*all.get(filled.checked_sub(1)?)?, 3 + self.bits(2)?),
                17 => (0, 3 + self.bits(3)?),
                18 => (0, 11 + self.bits(7)?),
                len => (len as u8, 1),
            };
            all.get_mut(filled..filled + times)?.fill(value);
            filled += times;
        }
        if filled > symbols + distances || symbols > 286 || distances > 30 {
            return None;
        }
        codes.build(&all[..symbols], &all[symbols..filled])
    }

    /// The symbols of a block, its end among them.
    fn block(&mut self, codes: &Codes) -> Option<()> {
        let (packed, raw) = (self.packed, self.raw);
        let end = packed.len() * 8;
        let (mut at, mut done) = (self.at, self.done);
        loop {
            let mut word = peek(packed, at);
            if let Some(next) = raw.get(done..done + 4) {
                let code = |place: usize| codes.literals[usize::from(next[place])];
                let ((a, a_len), (b, b_len)) = (code(0), code(1));
                let ((c, c_len), (d, d_len)) = (code(2), code(3));
                let two = u64::from(a) | u64::from(b) << a_len;
                let two_len = u32::from(a_len) + u32::from(b_len);
                let other = u64::from(c) | u64::from(d) << c_len;
                let other_len = u32::from(c_len) + u32::from(d_len);
                let len = two_len + other_len;
                if len <= 56 {
                    let four = two | other << two_len;
                    let agree = (word ^ four).trailing_zeros();
                    if agree >= len {
                        (at, done) = (at + len as usize, done + 4);
                        continue;
                    }
                    // As many as do agree; what follows them is no literal, or a wrong one.
                    let three_len = two_len + u32::from(c_len);
                    let one_len = u32::from(a_len);
                    let ends =
                        [one_len, two_len, three_len].map(|end| if agree >= end { end } else { 0 });
                    done += ends.iter().filter(|end| **end > 0).count();
                    at += ends[0].max(ends[1]).max(ends[2]) as usize;
                    word = peek(packed, at);
                }
            }
            let (symbol, len) = codes.symbols.decode(word)?;
            at += len;
            let word = word >> len;
            if symbol < 256 {
                if *raw.get(done)? != symbol as u8 {
                    return None;
                }
                done += 1;
                continue;
            }
            if symbol == END {
                (self.at, self.done) = (at, done);
                return (at <= end).then_some(());
            }
            let (base, extra) = *LENGTHS.get(symbol - END - 1)?;
            let length = usize::from(base) + (word & ((1 << extra) - 1)) as usize;
            let word = word >> extra;
            let (symbol, len) = codes.distances.decode(word)?;
            let (base, more) = *DISTANCES.get(symbol)?;
            let distance = usize::from(base) + (word >> len & ((1 << more) - 1)) as usize;
            at += usize::from(extra) + len + usize::from(more);
            let from = done.checked_sub(distance)?;
            if distance == 0 || !repeats(raw, from, done, length)? {
                return None;
            }
            done += length;
        }
    }
}

/// The bits from `at`, at least 57 of them; zeros behind the end.
#[inline(always)]
fn peek(packed: &[u8], at: usize) -> u64 {
    let word = eight(packed, at / 8).unwrap_or_else(|| {
        let rest = packed.get(at / 8..).unwrap_or_default();
        let mut bytes = [0; 8];
        bytes[..rest.len()].copy_from_slice(rest);
        u64::from_le_bytes(bytes)
    });
    word >> (at % 8)
}

#[inline(always)]
fn eight(bytes: &[u8], from: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(from..)?.first_chunk()?))
}

/// Whether the `length` bytes at `to` are those at `from`, which is before; `None` behind the end. Most are few.
#[inline(always)]
fn repeats(raw: &[u8], from: usize, to: usize, length: usize) -> Option<bool> {
    let differ = |ahead| Some(eight(raw, from + ahead)? ^ eight(raw, to + ahead)?);
    if length <= 16 && to + 16 <= raw.len() {
        let first = differ(0)?;
        return Some(match length {
            ..=8 => first << (64 - 8 * length) == 0,
            _ => first | differ(length - 8)? == 0,
        });
    }
    Some(raw.get(from..from + length)? == raw.get(to..to + length)?)
}

impl Codes {
    fn fixed(&mut self) -> Option<()> {
        let mut lengths = [8; 288];
        lengths[144..256].fill(9);
        lengths[256..280].fill(7);
        self.build(&lengths, &[5; 32])
    }

    fn build(&mut self, symbols: &[u8], distances: &[u8]) -> Option<()> {
        self.symbols.build(symbols, true)?;
        self.distances.build(distances, true)?;
        self.literals = std::array::from_fn(|symbol| match symbols[symbol] {
            0 => (0, NONE),
            len => (self.symbols.codes[symbol], len),
        });
        // A block that cannot end is no block.
        (symbols[END] > 0).then_some(())
    }
}

/// A canonical prefix code, read from its first bit.
#[derive(Debug)]
struct Decoder<const BITS: usize> {
    /// By the next `BITS` bits: symbol and length of the code that they begin with; length 0 where it is longer, or
    /// none.
    table: Box<[(u16, u8)]>,
    /// Symbols in order of their codes.
    sorted: [u16; 288],
    /// How many codes have each length.
    counts: [u16; CODE_LEN_MAX + 1],
    /// Of each symbol, reversed.
    codes: [u16; 288],
}

impl<const BITS: usize> Decoder<BITS> {
    fn new() -> Self {
        Self {
            table: vec![(0, 0); 1 << BITS].into(),
            sorted: [0; 288],
            counts: [0; CODE_LEN_MAX + 1],
            codes: [0; 288],
        }
    }

    /// `None` for lengths that no code has. `lone`: one symbol may have a code of one bit, of which only zero is used.
    fn build(&mut self, lengths: &[u8], lone: bool) -> Option<()> {
        self.counts = [0; CODE_LEN_MAX + 1];
        for &len in lengths {
            self.counts[usize::from(len)] += 1;
        }
        let used = lengths.len() - usize::from(self.counts[0]);
        self.counts[0] = 0;
        let (mut next, mut first) = ([0; CODE_LEN_MAX + 2], [0; CODE_LEN_MAX + 2]);
        let mut left = 1_i32;
        for len in 1..=CODE_LEN_MAX {
            left = (left << 1) - i32::from(self.counts[len]);
            if left < 0 {
                return None;
            }
            next[len + 1] = (next[len] + u32::from(self.counts[len])) << 1;
            first[len + 1] = first[len] + self.counts[len];
        }
        // A block without matches has no distances.
        if left > 0 && !(used == 0 || lone && used == 1 && self.counts[1] == 1) {
            return None;
        }
        self.table.fill((0, 0));
        for (symbol, &len) in lengths.iter().enumerate().filter(|(_, len)| **len > 0) {
            let len = usize::from(len);
            let code = next[len].reverse_bits() >> (32 - len);
            next[len] += 1;
            self.codes[symbol] = code as u16;
            self.sorted[usize::from(first[len])] = symbol as u16;
            first[len] += 1;
            if len <= BITS {
                for slot in self.table[code as usize..].iter_mut().step_by(1 << len) {
                    *slot = (symbol as u16, len as u8);
                }
            }
        }
        Some(())
    }

    /// The symbol that `word` begins with, and the length of its code.
    #[inline(always)]
    fn decode(&self, word: u64) -> Option<(usize, usize)> {
        let (symbol, len) = self.table[word as usize & ((1 << BITS) - 1)];
        if len > 0 {
            Some((symbol.into(), len.into()))
        } else {
            self.decode_long(word)
        }
    }

    /// Bit by bit, as the code is defined.
    #[cold]
    fn decode_long(&self, word: u64) -> Option<(usize, usize)> {
        let (mut code, mut first, mut index) = (0, 0, 0);
        for len in 1..=CODE_LEN_MAX {
            code |= (word >> (len - 1) & 1) as usize;
            let count = usize::from(self.counts[len]);
            if code < first + count {
                return Some((self.sorted[index + code - first].into(), len));
            }
            index += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        None
    }
}

const CODE_LEN_MAX: usize = 15;
const SYMBOL_BITS: usize = 11;
const DISTANCE_BITS: usize = 9;
const LENGTH_BITS: usize = 7;
const END: usize = 256;
/// A length that no four codes fit with.
const NONE: u8 = 60;
const LENGTHS_ORDER: [usize; 19] = [
    16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15,
];
/// Least length and extra bits of symbols from 257 on.
const LENGTHS: [(u16, u8); 29] = [
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 1),
    (13, 1),
    (15, 1),
    (17, 1),
    (19, 2),
    (23, 2),
    (27, 2),
    (31, 2),
    (35, 3),
    (43, 3),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 4),
    (115, 4),
    (131, 5),
    (163, 5),
    (195, 5),
    (227, 5),
    (258, 0),
];
/// Least distance and extra bits.
const DISTANCES: [(u16, u8); 30] = [
    (1, 0),
    (2, 0),
    (3, 0),
    (4, 0),
    (5, 1),
    (7, 1),
    (9, 2),
    (13, 2),
    (17, 3),
    (25, 3),
    (33, 4),
    (49, 4),
    (65, 5),
    (97, 5),
    (129, 6),
    (193, 6),
    (257, 7),
    (385, 7),
    (513, 8),
    (769, 8),
    (1025, 9),
    (1537, 9),
    (2049, 10),
    (3073, 10),
    (4097, 11),
    (6145, 11),
    (8193, 12),
    (12289, 12),
    (16385, 13),
    (24577, 13),
];

#[cfg(test)]
mod tests;
