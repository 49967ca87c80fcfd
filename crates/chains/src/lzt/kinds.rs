//! The trained codes: what `kinds.bin` holds, and the tables made of it at first use.
//!
//! Two sets of [`KINDS`] kinds, one for pages of up to 4 KiB, one for clusters. A kind has a code for tokens and for
//! each of [`CONTEXTS`] contexts a code for literals; the literal before tells the context.

use std::sync::LazyLock;

use super::{
    code::{SECOND_BITS, codes, decode_table},
    token::{TOKENS, meaning},
};

/// Kinds of a set.
pub(super) const KINDS: usize = 8;
/// Codes for literals of a kind.
pub(super) const CONTEXTS: usize = 8;
/// Longest page of the first set, in bytes.
pub(super) const SMALL_MAX: usize = 4096;

/// Index bits of the first tables, and longest codes.
pub(super) const LITERAL_BITS: u8 = 10;
pub(super) const LITERAL_LEN_MAX: u8 = LITERAL_BITS + SECOND_BITS;
pub(super) const TOKEN_BITS: u8 = 11;
pub(super) const TOKEN_LEN_MAX: u8 = TOKEN_BITS + SECOND_BITS;

/// Bytes of one kind in the file: contexts (3 bits used of each), costs, lengths of codes in nibbles.
pub(super) const KIND_BYTES: usize = 128 + 256 + CONTEXTS * 128 + TOKENS / 2;

/// A kind as it is trained and kept.
#[derive(Debug, Clone)]
pub(super) struct Kind {
    /// Context of a literal after each byte.
    pub(super) context_of: [u8; 256],
    /// Bits a literal costs, times 16, whatever its context.
    pub(super) cost: [u8; 256],
    /// Lengths of the codes of literals in each context.
    pub(super) literal_lens: [[u8; 256]; CONTEXTS],
    /// Lengths of the codes of tokens.
    pub(super) token_lens: [u8; TOKENS],
}

impl Kind {
    /// The kind as `kinds.bin` has it. Nibbles: the even index in the low one.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        let nibbles = |values: &[u8], to: &mut Vec<u8>| to.extend(values.chunks(2).map(|pair| pair[0] | pair[1] << 4));
        nibbles(&self.context_of, to);
        to.extend(&self.cost);
        for lens in &self.literal_lens {
            nibbles(lens, to);
        }
        nibbles(&self.token_lens, to);
    }

    pub(super) fn read(bytes: &[u8; KIND_BYTES]) -> Self {
        fn nibbles<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
            let (here, rest) = bytes.split_at(N / 2);
            *bytes = rest;
            std::array::from_fn(|i| here[i / 2] >> (4 * (i % 2)) & 15)
        }
        let bytes = &mut &bytes[..];
        let context_of = nibbles(bytes);
        let (cost, rest) = bytes.split_at(256);
        *bytes = rest;
        Self {
            context_of,
            cost: cost.try_into().expect("256 bytes"),
            literal_lens: std::array::from_fn(|_| nibbles(bytes)),
            token_lens: nibbles(bytes),
        }
    }
}

/// Entry of a table of literals: the symbol, the next context `<< 8`, the length of the code `<< 12`. Or, if the length
/// is 0, the number of a second table.
pub(super) const LITERAL_CONTEXT_SHIFT: u32 = 8;
pub(super) const LITERAL_LEN_SHIFT: u32 = 12;

/// Entry of a table of tokens, a byte each from the lowest: bits of the code; literal bits and base; length bits and base;
/// offset bits; bits of all; how far the offset is shifted and, highest, whether it is as before. Or, if the lowest is
/// 0, the number of a second table above bit 8.
pub(super) const TOKEN_LINK_SHIFT: u32 = 8;

/// A kind made ready. Codes are `code << 4 | len`.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) context_of: [u8; 256],
    pub(super) literal_codes: [[u32; 256]; CONTEXTS],
    pub(super) token_codes: Vec<u32>,
    /// First tables of all contexts, then second tables; both complete, so that every index of 10 bits and a context
    /// below 8, and every link and 4 bits, is inside.
    pub(super) literal_table: Vec<u16>,
    pub(super) token_table: Vec<u64>,
}

impl Ready {
    /// `None` if the lengths are not those of codes.
    pub(super) fn new(kind: &Kind) -> Option<Self> {
        if kind.context_of.iter().any(|&context| usize::from(context) >= CONTEXTS) {
            return None;
        }
        let mut literal_table = Vec::new();
        let mut seconds = Vec::new();
        let mut literal_codes = [[0; 256]; CONTEXTS];
        for (lens, codes_here) in kind.literal_lens.iter().zip(&mut literal_codes) {
            let codes = codes(lens, LITERAL_LEN_MAX)?;
            *codes_here = std::array::from_fn(|i| u32::from(codes[i]) << 4 | u32::from(lens[i]));
            decode_table(
                lens,
                LITERAL_BITS,
                &mut literal_table,
                &mut seconds,
                |symbol, len| {
                    let context = u16::from(kind.context_of[symbol]) << LITERAL_CONTEXT_SHIFT;
                    symbol as u16 | context | u16::from(len) << LITERAL_LEN_SHIFT
                },
                |second| second as u16,
            )?;
        }
        literal_table.append(&mut seconds);
        let (mut token_table, mut seconds) = (Vec::new(), Vec::new());
        let link = |second| (second as u64) << TOKEN_LINK_SHIFT;
        decode_table(&kind.token_lens, TOKEN_BITS, &mut token_table, &mut seconds, token_entry, link)?;
        token_table.append(&mut seconds);
        let codes = codes(&kind.token_lens, TOKEN_LEN_MAX)?;
        let token_codes = codes
            .iter()
            .zip(&kind.token_lens)
            .map(|(&code, &len)| lowest_first(code, len) << 4 | u32::from(len))
            .collect();
        let token_table = reorder(&token_table);
        Some(Self { context_of: kind.context_of, literal_codes, token_codes, literal_table, token_table })
    }
}

/// A code of `len` bits turned round.
fn lowest_first(code: u16, len: u8) -> u32 {
    u32::from(code.reverse_bits() >> (16 - len))
}

/// Both parts of a table for codes that are read highest bit first, turned round.
fn reorder(table: &[u64]) -> Vec<u64> {
    let (first, seconds) = table.split_at(1 << TOKEN_BITS);
    let turned = |part: &[u64], bits: u8| -> Vec<u64> {
        (0..part.len()).map(|i| part[lowest_first(i as u16, bits) as usize]).collect()
    };
    let seconds = seconds.chunks(1 << SECOND_BITS).flat_map(|second| turned(second, SECOND_BITS));
    turned(first, TOKEN_BITS).into_iter().chain(seconds).collect()
}

fn token_entry(token: usize, code_bits: u8) -> u64 {
    let meaning = meaning(token);
    let ((literals, literal_bits), (len, len_bits)) = (meaning.literals, meaning.len);
    let (offset_bits, how) = match meaning.offset {
        None => (0, 1 << 7),
        Some((bits, shift)) => (bits, shift),
    };
    let total = code_bits + literal_bits + len_bits + offset_bits;
    u64::from_le_bytes([code_bits, literal_bits, literals as u8, len_bits, len as u8, offset_bits, total, how])
}

/// A set of kinds, and the costs by which one is chosen.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) kinds: Vec<Ready>,
    /// Bits a literal costs in each kind, times 16.
    pub(super) literal_costs: Vec<[u16; KINDS]>,
    /// Bits of each token's code in each kind, times 16.
    pub(super) token_costs: Vec<[u16; KINDS]>,
}

impl Set {
    /// `None` if the kinds are not [`KINDS`], or one is broken.
    pub(super) fn new(kinds: &[Kind]) -> Option<Self> {
        let kinds: &[Kind; KINDS] = kinds.try_into().ok()?;
        let ready = kinds.iter().map(Ready::new).collect::<Option<_>>()?;
        let literal_costs =
            (0..256).map(|literal| std::array::from_fn(|k| u16::from(kinds[k].cost[literal]))).collect();
        let token_costs =
            (0..TOKENS).map(|token| std::array::from_fn(|k| 16 * u16::from(kinds[k].token_lens[token]))).collect();
        Some(Self { kinds: ready, literal_costs, token_costs })
    }
}

/// The set for pages of `len` bytes.
#[inline]
pub(super) fn set(len: usize) -> &'static Set {
    if len <= SMALL_MAX { &SMALL } else { &LARGE }
}

// Each at its first use, since they take most of a megabyte and many a process never packs a cluster.
static SMALL: LazyLock<Set> = LazyLock::new(|| shipped(0));
static LARGE: LazyLock<Set> = LazyLock::new(|| shipped(KINDS));

/// The set of the shipped kinds from `first` on.
fn shipped(first: usize) -> Set {
    let kinds = read_file(include_bytes!("kinds.bin")).expect("the shipped kinds.bin, which a test reads");
    Set::new(&kinds[first..first + KINDS]).expect("complete codes, which a test checks")
}

/// All kinds of a `kinds.bin`, after its header: a text that ends with a zero byte.
pub(super) fn read_file(bytes: &[u8]) -> Option<Vec<Kind>> {
    let text = bytes.iter().position(|&byte| byte == 0)?;
    let (kinds, rest) = bytes[text + 1..].as_chunks::<KIND_BYTES>();
    (kinds.len() == 2 * KINDS && rest.is_empty()).then(|| kinds.iter().map(Kind::read).collect())
}
