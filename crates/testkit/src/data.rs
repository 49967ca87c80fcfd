//! Kinds of raw bytes, made from a seed: the same everywhere, for ever.

/// A small generator of random numbers (SplitMix64): tests must not change with a library's version.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next_u64() % bound as u64) as usize
    }
}

/// What the bytes look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All zero.
    Zeros,
    /// One byte, repeated.
    Same,
    /// A short pattern, repeated.
    Period,
    /// English-like words.
    Text,
    /// Nothing to pack.
    Random,
    /// Runs of zeros and of random bytes.
    Sparse,
    /// Bytes of a skewed distribution, without matches.
    Skewed,
    /// A smooth curve, `f32`.
    Floats,
    /// A smooth curve, `f64`.
    Doubles,
    /// Growing integers, `u32`.
    Counters,
    /// Text, random and floats in turns of a few KiB.
    Mixed,
    /// Rows of dates, decimals and names, as text.
    Table,
    /// An image with three bytes a pixel, row by row.
    Pixels,
}

/// All of them.
pub const KINDS: [Kind; 13] = [
    Kind::Zeros,
    Kind::Same,
    Kind::Period,
    Kind::Text,
    Kind::Random,
    Kind::Sparse,
    Kind::Skewed,
    Kind::Floats,
    Kind::Doubles,
    Kind::Counters,
    Kind::Mixed,
    Kind::Table,
    Kind::Pixels,
];

/// `len` bytes of `kind`.
#[must_use]
pub fn make(kind: Kind, len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed ^ (kind as u64) << 32 ^ len as u64);
    let mut bytes = Vec::with_capacity(len + 64);
    while bytes.len() < len {
        append(kind, &mut bytes, &mut random);
    }
    bytes.truncate(len);
    bytes
}

fn append(kind: Kind, bytes: &mut Vec<u8>, random: &mut Random) {
    let step = bytes.len() as u32;
    match kind {
        Kind::Zeros => bytes.extend([0; 64]),
        Kind::Same => bytes.extend([0xa7; 64]),
        Kind::Period => bytes.extend(b"0123456789abc"),
        Kind::Text => {
            bytes.extend(WORDS[(random.below(24) * random.below(24)) % WORDS.len()].bytes())
        }
        Kind::Random => bytes.extend(random.next_u64().to_le_bytes()),
        Kind::Sparse => {
            let len = random.below(200);
            if random.below(2) == 0 {
                bytes.extend(std::iter::repeat_n(0, len));
            } else {
                bytes.extend((0..len).map(|_| random.next_u64() as u8));
            }
        }
        Kind::Skewed => bytes.push((random.below(16) * random.below(16)) as u8),
        Kind::Floats => bytes.extend(curve(step / 4, random).to_le_bytes()),
        Kind::Doubles => bytes.extend(f64::from(curve(step / 8, random)).to_le_bytes()),
        Kind::Counters => {
            bytes.extend((1_000_000 + step * 3 + random.below(9) as u32).to_le_bytes())
        }
        Kind::Mixed => {
            let kind = [Kind::Text, Kind::Random, Kind::Floats]
                [step as usize >> 12 & 1 | step as usize >> 15 & 2 & 1];
            append(kind, bytes, random);
        }
        Kind::Table => {
            let (row, small, large) = (
                step / 40,
                random.below(300),
                random.below(9000) as i32 - 4500,
            );
            let name = WORDS[random.below(8)].trim();
            let (tenths, cents) = (large / 10, large.unsigned_abs() % 10);
            let line = format!(
                "2026-{:02}-{:02},{name},{small},{tenths:6}.{cents},{}.{:03}\n",
                row / 28 % 12 + 1,
                row % 28 + 1,
                1000 + row,
                small * 3
            );
            bytes.extend(line.bytes());
        }
        Kind::Pixels => {
            let (x, y, colour) = (step % 600 / 3, step / 600, step % 3);
            bytes.push((x + 2 * y + 40 * colour + random.below(6) as u32) as u8);
        }
    }
}

/// A triangle wave with noise: no library function, so that every machine makes the same bits.
fn curve(step: u32, random: &mut Random) -> f32 {
    let phase = (step % 2000) as f32;
    let wave = if phase < 1000.0 {
        phase
    } else {
        2000.0 - phase
    };
    wave * 0.25 - 100.0 + random.below(256) as f32 * 0.001
}

const WORDS: [&str; 24] = [
    "the ",
    "of ",
    "and ",
    "to ",
    "in ",
    "that ",
    "strait",
    "narrow ",
    "water ",
    "where ",
    "through ",
    "flows ",
    "faster ",
    "chunk",
    ", ",
    ". ",
    "\n",
    "It ",
    "was ",
    "packed ",
    "before ",
    "sending ",
    "again",
    " everything ",
];
