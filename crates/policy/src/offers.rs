//! Candidates of the automatic choice, each with its priors.
//!
//! Why these: raw; LZ4; zstd at negative levels, which the codec packs *with literals forced through Huffman* and which
//! then beat LZ4 on text and find the entropy of float weights; igzip's DEFLATE where built; zstd 1 to 19, from 3 on
//! with as much history as pays at the level (the example `history` of `narrows-codecs`): at 9 and 12 any of it makes a
//! chunk of 256 KiB smaller *and* faster, since the library has slower parameters for less input; planes of 2, 4 and 8
//! bytes before LZ4 or a fast zstd. What else exists is either dominated or there for other programs' sake. Upstream:
//! the caller's registry; downstream: [`crate::adaptive`].

use narrows_core::{Candidate, CodecId, Level};

use crate::{
    prior::{Fit, PriorCost, PriorKind, indexing, prior, row_of},
    simple::CHUNK_LEN_DEFAULT,
};

/// One candidate, and the name its priors go by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// What the pipeline would be told.
    pub candidate: Candidate,
    /// The codec's name, as in `narrows_core::Info::name`.
    pub name: String,
    typed: bool,
}

impl Offer {
    /// Any candidate of any codec; an unknown name gets zstd's priors until it was measured.
    #[must_use]
    pub fn new(candidate: Candidate, name: &str) -> Self {
        Self {
            candidate,
            name: name.into(),
            typed: row_of(name, 1).0 != Fit::Plain,
        }
    }

    /// What it likely costs on data of this kind with numbers of `stride` bytes.
    #[must_use]
    pub fn prior(&self, kind: PriorKind, stride: u8) -> PriorCost {
        prior(
            &self.name,
            self.candidate.level.0,
            self.candidate.history_len,
            kind,
            stride,
        )
    }

    /// Whether it takes its bytes for numbers of a width.
    #[must_use]
    pub fn is_typed(&self) -> bool {
        self.typed
    }

    /// What indexing history takes more before a chunk of `chunk_len` bytes than before one of the usual length, which
    /// the priors have, in CPU nanoseconds per byte of the chunk.
    #[must_use]
    pub fn indexing_beyond(&self, chunk_len: usize) -> f32 {
        let Candidate {
            level, history_len, ..
        } = self.candidate;
        indexing(level.0, history_len, chunk_len)
            - indexing(level.0, history_len, CHUNK_LEN_DEFAULT)
    }
}

/// The candidates of the automatic choice for which `lookup` knows a codec. Raw comes first, always.
///
/// `history_len_max` is the most history the peers agreed on, in bytes.
#[must_use]
pub fn default_offers(
    lookup: impl Fn(&str) -> Option<CodecId>,
    history_len_max: u32,
) -> Vec<Offer> {
    let mut offers = vec![Offer::new(Candidate::RAW, "raw")];
    for &(name, level, history_len) in DEFAULT {
        let Some(codec) = lookup(name) else { continue };
        let candidate = Candidate {
            codec,
            level: Level(level),
            history_len: history_len.min(history_len_max),
        };
        if offers.iter().all(|offer| offer.candidate != candidate) {
            offers.push(Offer::new(candidate, name));
        }
    }
    offers
}

/// Name, level, history in bytes. Fast before slow within one codec: neighbours here are neighbours in price.
const DEFAULT: &[(&str, i16, u32)] = &[
    ("lz4", 0, 0),
    ("zstd", -200, 0),
    ("zstd", -20, 0),
    ("zstd", -5, 0),
    ("zstd", 1, 0),
    ("zstd", 3, 0),
    ("zstd", 3, 64 << 10),
    ("zstd", 6, 256 << 10),
    ("zstd", 9, 256 << 10),
    ("zstd", 12, 256 << 10),
    ("zstd", 12, 512 << 10),
    ("zstd", 12, 1 << 20),
    ("zstd", 14, 0),
    ("zstd", 19, 0),
    ("zstd", 19, 256 << 10),
    ("deflate", 0, 0),
    ("deflate", 1, 0),
    ("shuffle2-zstd", 1, 0),
    ("delta2-zstd", 1, 0),
    ("shuffle4-lz4", 0, 0),
    ("shuffle4-zstd", 1, 0),
    ("delta4-zstd", -3, 0),
    ("delta4-zstd", 1, 0),
    ("delta4-zstd", 9, 0),
    ("decimal4-zstd", 1, 0),
    ("shuffle8-lz4", 0, 0),
    ("shuffle8-zstd", 1, 0),
    ("delta8-zstd", -3, 0),
    ("delta8-zstd", 1, 0),
    ("delta8-zstd", 9, 0),
    ("decimal8-zstd", 1, 0),
    ("decimal8-zstd", 9, 0),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_comes_first_and_missing_codecs_are_left_out() {
        let offers = default_offers(|name| (name == "zstd").then_some(CodecId(5)), 0);
        assert_eq!(offers[0].candidate, Candidate::RAW);
        assert!(
            offers[1..]
                .iter()
                .all(|offer| offer.name == "zstd" && offer.candidate.history_len == 0)
        );
        assert_eq!(default_offers(|_| None, 0).len(), 1);
    }
}
