//! The published study's kinds of data, byte for byte as `docs/specs/gen.md` has them.

use std::{
    io::{self, Write},
    str::FromStr,
};

/// A kind of generated data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Consecutive 32-bit integers.
    Lineal,
    /// Nothing to pack.
    Random,
    /// Runs of zeros and of random bytes in turns.
    Sparse,
}

/// No kind has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no data of kind `{0}`; there are lineal, random and sparse")]
pub struct UnknownKind(String);

impl Kind {
    /// As it is asked for.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lineal => "lineal",
            Self::Random => "random",
            Self::Sparse => "sparse",
        }
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        match text {
            "lineal" => Ok(Self::Lineal),
            "random" => Ok(Self::Random),
            "sparse" => Ok(Self::Sparse),
            _ => Err(UnknownKind(text.into())),
        }
    }
}

/// Writes the first `len` bytes of `kind` with `seed`.
///
/// # Errors
/// Those of `out`.
pub fn write(kind: Kind, len: u64, seed: u64, out: &mut impl Write) -> io::Result<()> {
    let mut source = Source {
        kind,
        random: SplitMix64(seed),
        next: seed as u32,
        zeros: true,
    };
    let mut left = len;
    let mut block = Vec::with_capacity(BLOCK_LEN + RUN_LEN_MAX + 8);
    while left > 0 {
        block.clear();
        while block.len() < BLOCK_LEN {
            source.append(&mut block);
        }
        let now = usize::try_from(left).map_or(block.len(), |left| left.min(block.len()));
        out.write_all(&block[..now])?;
        left -= now as u64;
    }
    Ok(())
}

struct Source {
    kind: Kind,
    random: SplitMix64,
    /// The next integer of `lineal`.
    next: u32,
    /// The next run of `sparse` is of zeros.
    zeros: bool,
}

impl Source {
    fn append(&mut self, out: &mut Vec<u8>) {
        match self.kind {
            Kind::Lineal => {
                out.extend_from_slice(&self.next.to_le_bytes());
                self.next = self.next.wrapping_add(1);
            }
            Kind::Random => out.extend_from_slice(&self.random.next().to_le_bytes()),
            Kind::Sparse => {
                let end = out.len() + 1 + (self.random.next() % RUN_LEN_MAX as u64) as usize;
                if !self.zeros {
                    while out.len() < end {
                        out.extend_from_slice(&self.random.next().to_le_bytes());
                    }
                }
                // Cuts what is left of the last number, or fills a run of zeros.
                out.resize(end, 0);
                self.zeros = !self.zeros;
            }
        }
    }
}

struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

const BLOCK_LEN: usize = 64 << 10;
const RUN_LEN_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;

    fn made(kind: Kind, len: u64, seed: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(kind, len, seed, &mut bytes).unwrap();
        assert_eq!(bytes.len() as u64, len);
        bytes
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    // Goal: the bytes never change. Method: the numbers of docs/specs/gen.md, read from the page itself.
    #[test]
    fn bytes_are_those_of_the_specification() {
        let page = include_str!("../../../docs/specs/gen.md");
        for (kind, name) in [
            (Kind::Lineal, "lineal"),
            (Kind::Random, "random"),
            (Kind::Sparse, "sparse"),
        ] {
            let bytes = made(kind, 1 << 20, 0);
            let row = format!(
                "| `{name}` | `{}` | `{:016x}` |",
                hex(&bytes[..16]),
                xxh3_64(&bytes)
            );
            assert!(page.contains(&row), "the page lacks {row}");
        }
    }

    #[test]
    fn a_shorter_output_is_the_beginning_of_a_longer_one() {
        for kind in [Kind::Lineal, Kind::Random, Kind::Sparse] {
            let long = made(kind, 300_001, 7);
            for len in [0, 1, 3, 4, 65_535, 65_536, 65_537, 200_000] {
                assert_eq!(made(kind, len as u64, 7), long[..len], "{kind:?} {len}");
            }
        }
    }

    #[test]
    fn sparse_begins_with_zeros_and_is_half_zeros() {
        let bytes = made(Kind::Sparse, 1 << 20, 3);
        let zeros = bytes.iter().filter(|byte| **byte == 0).count();
        assert!(
            bytes[0] == 0 && (450_000..600_000).contains(&zeros),
            "{zeros}"
        );
    }

    #[test]
    fn lineal_counts_from_the_seed_and_wraps() {
        assert_eq!(
            hex(&made(Kind::Lineal, 8, u64::from(u32::MAX))),
            "ffffffff00000000"
        );
    }
}
