//! What candidates cost before anything was measured here: packed share, packing and unpacking speed per kind of data.
//!
//! Why: a short transfer ends before every candidate could be tried, so the first choices rest on numbers measured
//! once, on one Zen 4 core with 64-256 KiB chunks (8 MB each of Silesia's dickens, an ELF tar, a log, synthetic
//! floats). The table corrects them by what this machine and this data show; only their order has to be about right.
//!
//! Neighbours: [`crate::probe`] names the kind, [`crate::offers`] lists the candidates, [`crate::table`] corrects.
//! Units: a [`PriorCost`] is per raw byte, times in nanoseconds of one core.

use crate::simple::CHUNK_LEN_DEFAULT;

mod measured;

/// What a candidate costs per raw byte.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PriorCost {
    /// Packed bytes per raw byte; 1 is raw.
    pub size: f32,
    /// Packing, in CPU nanoseconds per raw byte.
    pub pack: f32,
    /// Unpacking, in CPU nanoseconds per raw byte.
    pub unpack: f32,
}

impl PriorCost {
    /// Raw: a copy and a checksum on each side.
    pub const RAW: Self = Self {
        size: 1.0,
        pack: 0.07,
        unpack: 0.07,
    };
}

/// Kinds of data the priors know. The probe maps a chunk to the nearest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PriorKind {
    /// Prose, source code, markup.
    Text,
    /// Programs, mixed records.
    Binary,
    /// Logs and tables: long repeats.
    Log,
    /// Smooth numbers: only the planes of their bytes show order.
    Field,
    /// Noisy numbers: order in one plane only.
    PriceWeights,
    /// Numbers of which about half are zero.
    Relu,
    /// Nothing to gain.
    Random,
    /// Mostly zeros.
    Sparse,
    /// Floats that are short decimals.
    Decimal,
}

impl PriorKind {
    /// All, in the order of the table's columns.
    pub const ALL: [Self; 9] = [
        Self::Text,
        Self::Binary,
        Self::Log,
        Self::Field,
        Self::PriceWeights,
        Self::Relu,
        Self::Random,
        Self::Sparse,
        Self::Decimal,
    ];
}

/// How the width that a codec takes its numbers to have fits the data's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// The codec knows no numbers.
    Plain,
    /// The same width.
    Same,
    /// Numbers are narrower than the codec thinks.
    Wider,
    /// Numbers are wider, or there are none.
    Other,
}

impl Fit {
    /// Name of its table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::Same => "SAME",
            Self::Wider => "WIDER",
            Self::Other => "OTHER",
        }
    }

    fn rows(self) -> &'static [Row] {
        match self {
            Self::Plain => measured::PLAIN,
            Self::Same => measured::SAME,
            Self::Wider => measured::WIDER,
            Self::Other => measured::OTHER,
        }
    }
}

/// What `codec` at `level` is likely to cost on data of `kind` whose numbers are `stride` bytes wide (1: no numbers).
#[must_use]
pub fn prior(codec: &str, level: i16, history_len: u32, kind: PriorKind, stride: u8) -> PriorCost {
    if codec == "raw" {
        return PriorCost::RAW;
    }
    let (fit, row) = row_of(codec, stride);
    let mut cost = prior_of(fit, &row, level, kind);
    if history_len > 0 {
        if matches!(kind, PriorKind::Text | PriorKind::Binary | PriorKind::Log) {
            cost.size *= match history_len {
                0x10_0000.. => 0.945,
                0x8_0000.. => 0.955,
                0x4_0000.. => 0.965,
                _ => 0.98,
            };
        }
        // With more than 256 KiB to look at the library takes other parameters: from level 12 on lists for trees.
        let strategy = match level {
            ..9 => 1.0,
            9..12 => 0.9,
            12..15 => 0.5,
            15.. => 1.0,
        };
        cost.pack = strategy * cost.pack + indexing(level, history_len, CHUNK_LEN_DEFAULT);
    }
    cost
}

/// The table and the row of a codec on numbers of `stride` bytes: its name without the width.
#[must_use]
pub fn row_of(codec: &str, stride: u8) -> (Fit, String) {
    for transform in ["shuffle", "delta", "decimal"] {
        if let Some((width, inner)) = codec
            .strip_prefix(transform)
            .and_then(|rest| rest.split_once('-'))
        {
            let width: u8 = width.parse().unwrap_or(4);
            let fit = match () {
                () if width == stride => Fit::Same,
                () if stride > 1 && width > stride => Fit::Wider,
                () => Fit::Other,
            };
            return (fit, format!("{transform}-{inner}"));
        }
    }
    (Fit::Plain, codec.into())
}

/// The row whose level is nearest. An unknown codec is taken for zstd: wrong until measured, and usable.
#[must_use]
pub fn prior_of(fit: Fit, row: &str, level: i16, kind: PriorKind) -> PriorCost {
    let of = |fit: Fit, name: &str| {
        let named = fit.rows().iter().filter(|row| row.0 == name);
        named.min_by_key(|row| (i32::from(row.1) - i32::from(level)).abs())
    };
    let row = of(fit, row)
        .or_else(|| of(Fit::Plain, "zstd"))
        .expect("zstd has rows");
    let (ratio, pack, unpack) = row.2[kind as usize];
    PriorCost {
        size: (1.0 / ratio).min(1.0),
        pack: 1000.0 / pack,
        unpack: 1000.0 / unpack,
    }
}

/// What indexing the history before a chunk adds to packing it with zstd, in CPU nanoseconds per raw byte of the chunk:
/// with every chunk all of it anew, however easy the chunk itself. Measured with 64 KiB to 1 MiB before 256 KiB of
/// eight kinds of data.
#[must_use]
pub fn indexing(level: i16, history_len: u32, chunk_len: usize) -> f32 {
    let per_byte = match level {
        ..6 => 1.0,
        6..9 => 3.0,
        9..12 => 4.0,
        12.. => 9.0,
    };
    per_byte * history_len as f32 / chunk_len.max(1) as f32
}

/// Row, level, then ratio, MB/s packed and MB/s unpacked for each of [`Kind::ALL`].
type Row = (&'static str, i16, [(f32, f32, f32); 9]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_of_the_right_width_win_on_fields_and_lose_on_text() {
        let field = |codec| prior(codec, 1, 0, PriorKind::Field, 4).size;
        assert!(field("shuffle4-zstd") < field("zstd"));
        assert!(field("shuffle2-zstd") > field("shuffle4-zstd"));
        assert!(
            prior("shuffle4-zstd", 1, 0, PriorKind::Text, 1).size
                > prior("zstd", 1, 0, PriorKind::Text, 1).size
        );
    }

    #[test]
    fn history_packs_smaller_and_more_of_it_slower() {
        let of = |history_len| prior("zstd", 12, history_len, PriorKind::Text, 1);
        assert!(of(256 << 10).size < of(0).size && of(1 << 20).size < of(256 << 10).size);
        assert!(of(256 << 10).pack < of(0).pack && of(1 << 20).pack > of(256 << 10).pack);
    }

    #[test]
    fn an_unknown_codec_is_taken_for_zstd() {
        assert_eq!(
            prior("mystery", 3, 0, PriorKind::Log, 1),
            prior("zstd", 3, 0, PriorKind::Log, 1)
        );
    }
}
