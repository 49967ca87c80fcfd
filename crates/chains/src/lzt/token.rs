//! What a token says: classes of literal runs, match lengths and offsets.
//!
//! A class is a base and a number of bits that are added to it. A token is one class of each, and there is one code for
//! every token, so that what goes together (a long match and the offset of the match before) is cheap together. Offsets
//! that are a multiple of 8 have classes of their own: in heaps most are.

/// Literals, then a copy of `len` bytes from `offset` back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Match {
    /// Bytes of literals before the copy.
    pub(super) literals: u16,
    /// Bytes copied, at least [`LEN_MIN`].
    pub(super) len: u16,
    /// Distance in bytes, at least 1.
    pub(super) offset: u16,
}

/// Shortest match.
pub(super) const LEN_MIN: usize = 3;
/// What the offset "as before" means in the first token.
pub(super) const OFFSET_FIRST: u16 = 1;

/// Tokens there are.
pub(super) const TOKENS: usize = LITERALS.len() * LENS.len() * OFFSETS;

/// Base, and bits added to it.
type Class = (u16, u8);

const LITERALS: [Class; 10] = [
    (0, 0),
    (1, 0),
    (2, 0),
    (3, 0),
    (4, 0),
    (5, 1),
    (7, 2),
    (11, 3),
    (19, 5),
    (51, 14),
];
const LENS: [Class; 12] = [
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 1),
    (11, 2),
    (15, 3),
    (23, 4),
    (39, 5),
    (71, 14),
];

/// Class 0: as before. 1 + k: from 2^k. 15 + k, k from 0: from 2^(k + 3), multiples of 8.
const OFFSETS: usize = 26;
const OFFSET_EIGHTS: usize = 15;

/// A token and the bits after it, as the packer needs them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Coded {
    pub(super) token: u16,
    /// What is added to the bases, literals lowest, offset highest.
    pub(super) extra: u64,
    pub(super) extra_bits: u32,
}

/// A token as the unpacker needs it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meaning {
    pub(super) literals: Class,
    pub(super) len: Class,
    /// As before, if `None`; else bits, which have a 1 put before them, and how far that is shifted.
    pub(super) offset: Option<(u8, u8)>,
}

pub(super) fn meaning(token: usize) -> Meaning {
    let (rest, offset) = (token / OFFSETS, token % OFFSETS);
    let offset = match offset {
        0 => None,
        1..OFFSET_EIGHTS => Some((offset as u8 - 1, 0)),
        _ => Some(((offset - OFFSET_EIGHTS) as u8, 3)),
    };
    Meaning {
        literals: LITERALS[rest / LENS.len()],
        len: LENS[rest % LENS.len()],
        offset,
    }
}

/// Class of a run of `literals`.
#[inline(always)]
pub(super) fn literal_class(literals: usize) -> usize {
    if literals < CLASS_OF.len() {
        CLASS_OF[literals].0 as usize
    } else {
        LITERALS.len() - 1
    }
}

/// Class of a match of `len` bytes.
#[inline(always)]
pub(super) fn len_class(len: usize) -> usize {
    if len < CLASS_OF.len() {
        CLASS_OF[len].1 as usize
    } else {
        LENS.len() - 1
    }
}

/// Class of `offset`, and its bits.
#[inline(always)]
pub(super) fn offset_class(offset: u16, before: u16) -> (usize, u32) {
    let k = offset.ilog2();
    let eights = offset & 7 == 0;
    let class = if eights {
        OFFSET_EIGHTS + k as usize - 3
    } else {
        1 + k as usize
    };
    let bits = if eights { k - 3 } else { k };
    if offset == before {
        (0, 0)
    } else {
        (class, bits)
    }
}

/// Token of three classes.
#[inline(always)]
pub(super) fn token(literals: usize, len: usize, offset: usize) -> usize {
    (literals * LENS.len() + len) * OFFSETS + offset
}

/// Bits added to the classes of a run of literals and of a match.
#[inline(always)]
pub(super) fn extra_bits(literal_class: usize, len_class: usize) -> u32 {
    u32::from(LITERALS[literal_class].1) + u32::from(LENS[len_class].1)
}

impl Match {
    /// The token for this match after one with the offset `before`.
    #[inline(always)]
    pub(super) fn coded(self, before: u16) -> Coded {
        let (literals, len) = (
            literal_class(self.literals.into()),
            len_class(self.len.into()),
        );
        let (offset, offset_bits) = offset_class(self.offset, before);
        let (literal_base, literal_bits) = LITERALS[literals];
        let (len_base, len_bits) = LENS[len];
        let shift = if offset >= OFFSET_EIGHTS { 3 } else { 0 };
        let offset_extra = u64::from(self.offset >> shift) & ((1 << offset_bits) - 1);
        let extra = u64::from(self.literals - literal_base)
            | u64::from(self.len - len_base) << literal_bits;
        Coded {
            token: token(literals, len, offset) as u16,
            extra: extra | offset_extra << (literal_bits + len_bits),
            extra_bits: u32::from(literal_bits) + u32::from(len_bits) + offset_bits,
        }
    }
}

/// Classes of short runs of literals and of short matches.
static CLASS_OF: [(u8, u8); 71] = {
    let mut classes = [(0, 0); 71];
    let mut value = 0;
    while value < classes.len() {
        classes[value] = (class_in(&LITERALS, value), class_in(&LENS, value));
        value += 1;
    }
    classes
};

const fn class_in(classes: &[Class], value: usize) -> u8 {
    let mut class = 0;
    while class + 1 < classes.len() && classes[class + 1].0 as usize <= value {
        class += 1;
    }
    class as u8
}

/// What tokens would be counted if their three classes were independent: a prior for tokens not seen.
pub(super) fn shares(counts: &[f32]) -> Vec<f32> {
    let mut of = [
        vec![0.0; LITERALS.len()],
        vec![0.0; LENS.len()],
        vec![0.0; OFFSETS],
    ];
    let classes = |token: usize| {
        [
            token / OFFSETS / LENS.len(),
            token / OFFSETS % LENS.len(),
            token % OFFSETS,
        ]
    };
    for (token, count) in counts.iter().enumerate() {
        for (of, class) in of.iter_mut().zip(classes(token)) {
            of[class] += count + 1e-3;
        }
    }
    let sum: f32 = of[0].iter().sum();
    (0..counts.len())
        .map(|token| {
            of.iter()
                .zip(classes(token))
                .map(|(of, class)| of[class] / sum)
                .product::<f32>()
                * sum
        })
        .collect()
}
