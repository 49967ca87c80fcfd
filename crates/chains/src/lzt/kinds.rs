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
pub(super) const TOKEN_FIRST_BITS: u8 = 8;
pub(super) const TOKEN_LEN_MAX: u8 = 15;

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
        let nibbles = |values: &[u8], to: &mut Vec<u8>| {
            to.extend(values.chunks(2).map(|pair| pair[0] | pair[1] << 4))
        };
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

/// Where the tokens are whose codes begin with some eight bits: from `start`, by the bits after those that `mask` has.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TokenRun {
    pub(super) start: u16,
    pub(super) mask: u16,
}

/// A kind made ready. Codes are `code << 4 | len`.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) context_of: [u8; 256],
    pub(super) literal_codes: [[u32; 256]; CONTEXTS],
    pub(super) token_codes: Vec<u32>,
    /// First tables of all contexts, then second tables; both complete, so that every index of 10 bits and a context
    /// below 8, and every link and 4 bits, is inside.
    pub(super) literal_table: Vec<u16>,
    /// By the next eight bits of the stream.
    pub(super) token_first: Box<[TokenRun; 1 << TOKEN_FIRST_BITS]>,
    /// The runs, shortest codes first: so the tokens of a page are near each other. An entry is a byte each from the
    /// lowest: bits of the token with all that is added; literal bits and base; length bits and base; offset bits; bits
    /// of the code; how far the offset is shifted and, highest, whether it is as before.
    pub(super) token_table: Vec<u64>,
}

impl Ready {
    /// `None` if the lengths are not those of codes.
    pub(super) fn new(kind: &Kind) -> Option<Self> {
        if kind
            .context_of
            .iter()
            .any(|&context| usize::from(context) >= CONTEXTS)
        {
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
        let codes = codes(&kind.token_lens, TOKEN_LEN_MAX)?;
        let token_codes: Vec<u32> = codes
            .iter()
            .zip(&kind.token_lens)
            .map(|(&code, &len)| lowest_first(code, len) << 4 | u32::from(len))
            .collect();
        let (token_first, token_table) = token_tables(&token_codes);
        Some(Self {
            context_of: kind.context_of,
            literal_codes,
            token_codes,
            literal_table,
            token_first,
            token_table,
        })
    }
}

/// A code of `len` bits turned round.
fn lowest_first(code: u16, len: u8) -> u32 {
    u32::from(code.reverse_bits() >> (16 - len))
}

/// Tables to decode codes, lowest bit first, that are complete.
fn token_tables(codes: &[u32]) -> (Box<[TokenRun; 1 << TOKEN_FIRST_BITS]>, Vec<u64>) {
    const FIRST: usize = 1 << TOKEN_FIRST_BITS;
    let split = |code: u32| {
        (
            (code >> 4) as usize % FIRST,
            (code >> 4) as usize / FIRST,
            (code & 15) as u8,
        )
    };
    let mut longest = [0; FIRST];
    for (first, _, len) in codes.iter().map(|&code| split(code)) {
        longest[first] = longest[first].max(len);
    }
    let mut by_len: Vec<usize> = (0..codes.len()).collect();
    by_len.sort_by_key(|&token| codes[token] & 15);
    let mut runs = Box::new([TokenRun::default(); FIRST]);
    let mut is_there = [false; FIRST];
    let mut table = Vec::new();
    for token in by_len {
        let (first, rest, len) = split(codes[token]);
        let start = table.len() as u16;
        if len <= TOKEN_FIRST_BITS {
            runs.iter_mut()
                .skip(first)
                .step_by(1 << len)
                .for_each(|run| run.start = start);
            table.push(token_entry(token, len));
            continue;
        }
        if !std::mem::replace(&mut is_there[first], true) {
            let size = 1 << (longest[first] - TOKEN_FIRST_BITS);
            runs[first] = TokenRun {
                start,
                mask: size - 1,
            };
            table.resize(table.len() + usize::from(size), 0);
        }
        let run = &mut table[runs[first].start.into()..][..=usize::from(runs[first].mask)];
        let step = 1 << (len - TOKEN_FIRST_BITS);
        run.iter_mut()
            .skip(rest)
            .step_by(step)
            .for_each(|entry| *entry = token_entry(token, len));
    }
    (runs, table)
}

fn token_entry(token: usize, code_bits: u8) -> u64 {
    let meaning = meaning(token);
    let ((literals, literal_bits), (len, len_bits)) = (meaning.literals, meaning.len);
    let (offset_bits, how) = match meaning.offset {
        None => (0, 1 << 7),
        Some((bits, shift)) => (bits, shift),
    };
    let total = code_bits + literal_bits + len_bits + offset_bits;
    u64::from_le_bytes([
        total,
        literal_bits,
        literals as u8,
        len_bits,
        len as u8,
        offset_bits,
        code_bits,
        how,
    ])
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
        let literal_costs = (0..256)
            .map(|literal| std::array::from_fn(|k| u16::from(kinds[k].cost[literal])))
            .collect();
        let token_costs = (0..TOKENS)
            .map(|token| std::array::from_fn(|k| 16 * u16::from(kinds[k].token_lens[token])))
            .collect();
        Some(Self {
            kinds: ready,
            literal_costs,
            token_costs,
        })
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
    let kinds =
        read_file(include_bytes!("kinds.bin")).expect("the shipped kinds.bin, which a test reads");
    Set::new(&kinds[first..first + KINDS]).expect("complete codes, which a test checks")
}

/// All kinds of a `kinds.bin`, after its header: a text that ends with a zero byte.
pub(super) fn read_file(bytes: &[u8]) -> Option<Vec<Kind>> {
    let text = bytes.iter().position(|&byte| byte == 0)?;
    let (kinds, rest) = bytes[text + 1..].as_chunks::<KIND_BYTES>();
    (kinds.len() == 2 * KINDS && rest.is_empty()).then(|| kinds.iter().map(Kind::read).collect())
}
