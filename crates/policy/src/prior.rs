//! What candidates cost before anything was measured here: packed share, packing and unpacking speed per kind of data.
//!
//! Why: a short transfer ends before every candidate could be tried, so the first choices rest on numbers measured
//! once, on one Zen 4 core with 64-256 KiB chunks (8 MB each of Silesia's dickens, an ELF tar, a log, synthetic
//! floats). The table corrects them by what this machine and this data show; only their order has to be about right.
//!
//! Neighbours: [`crate::probe`] names the kind, [`crate::offers`] lists the candidates, [`crate::table`] corrects.
//! Units: a [`Cost`] is per raw byte, times in nanoseconds of one core.

/// What a candidate costs per raw byte.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Packed bytes per raw byte; 1 is raw.
    pub size: f32,
    /// Packing, in CPU nanoseconds per raw byte.
    pub pack: f32,
    /// Unpacking, in CPU nanoseconds per raw byte.
    pub unpack: f32,
}

impl Cost {
    /// Raw: a copy and a checksum on each side.
    pub const RAW: Self = Self { size: 1.0, pack: 0.07, unpack: 0.07 };
}

/// Kinds of data the priors know. The probe maps a chunk to the nearest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Prose, source code, markup.
    Text,
    /// Programs, mixed records.
    Binary,
    /// Logs and tables: long repeats.
    Log,
    /// Smooth numbers: only the planes of their bytes show order.
    Field,
    /// Noisy numbers: order in one plane only.
    Weights,
    /// Numbers of which about half are zero.
    Relu,
    /// Nothing to gain.
    Random,
    /// Mostly zeros.
    Sparse,
    /// Floats that are short decimals.
    Decimal,
}

impl Kind {
    /// All, in the order of the table's columns.
    pub const ALL: [Self; 9] = [
        Self::Text,
        Self::Binary,
        Self::Log,
        Self::Field,
        Self::Weights,
        Self::Relu,
        Self::Random,
        Self::Sparse,
        Self::Decimal,
    ];
}

/// What `codec` at `level` is likely to cost on data of `kind` whose numbers are `stride` bytes wide (1: no numbers).
#[must_use]
pub fn prior(codec: &str, level: i16, history_len: u32, kind: Kind, stride: u8) -> Cost {
    if codec == "raw" {
        return Cost::RAW;
    }
    let (transform, width, inner) = split(codec);
    let matches = width == stride || (width > stride && stride > 1);
    let mut cost = match transform {
        Transform::None => lookup(inner, level, kind),
        Transform::Shuffle if matches => typed(inner, level, kind),
        // Delta before the planes pays on counters and timestamps, which the probe does not know: hardly different.
        Transform::Delta if matches => scaled(typed(inner, level, kind), 1.03, 1.15),
        // As integers they pack twice as well. Where they are no decimals the codec takes delta or shuffle, and the try.
        Transform::Decimal if matches && kind == Kind::Decimal => scaled(typed(inner, level, kind), 0.45, 1.0),
        Transform::Decimal if matches => scaled(typed(inner, level, kind), 1.0, 1.7),
        // Wrong width: the planes are noise to the codec behind them.
        Transform::Shuffle | Transform::Delta | Transform::Decimal => scaled(lookup(inner, level, kind), 1.15, 1.4),
    };
    if width > stride && matches {
        cost = scaled(cost, 1.02, 1.05);
    }
    if history_len > 0 {
        let history = history_len as f32 / (1 << 20) as f32;
        // Measured with chunks of 1 MiB: the gain grows with the history, and so does the cost of indexing it, for the
        // levels with binary trees most of all.
        let gain = match kind {
            Kind::Text | Kind::Binary | Kind::Log if history >= 4.0 => 0.93,
            Kind::Text | Kind::Binary | Kind::Log if history >= 1.0 => 0.96,
            Kind::Text | Kind::Binary | Kind::Log => 0.975,
            _ => 1.0,
        };
        let indexing = match level {
            ..6 => 0.4,
            6..9 => 0.6,
            9..13 => 0.4,
            13..17 => 2.5,
            17.. => 1.1,
        };
        cost = scaled(cost, gain, 1.0 + indexing * history);
    }
    cost.size = cost.size.min(1.0);
    cost
}

enum Transform {
    None,
    Shuffle,
    Delta,
    Decimal,
}

fn split(codec: &str) -> (Transform, u8, &str) {
    for (prefix, transform) in
        [("shuffle", Transform::Shuffle), ("delta", Transform::Delta), ("decimal", Transform::Decimal)]
    {
        if let Some((width, inner)) = codec.strip_prefix(prefix).and_then(|rest| rest.split_once('-')) {
            return (transform, width.parse().unwrap_or(4), inner);
        }
    }
    (Transform::None, 1, codec)
}

fn scaled(cost: Cost, size: f32, pack: f32) -> Cost {
    Cost { size: cost.size * size, pack: cost.pack * pack, unpack: cost.unpack }
}

fn lookup(codec: &str, level: i16, kind: Kind) -> Cost {
    nearest(PLAIN, codec, level, kind)
}

fn typed(codec: &str, level: i16, kind: Kind) -> Cost {
    nearest(TYPED, codec, level, kind)
}

/// The row of `codec` whose level is nearest. An unknown codec is taken for zstd: wrong until measured, and usable.
fn nearest(rows: &[Row], codec: &str, level: i16, kind: Kind) -> Cost {
    let of = |name: &str| {
        rows.iter().filter(|row| row.0 == name).min_by_key(|row| (i32::from(row.1) - i32::from(level)).abs())
    };
    let row = of(codec).or_else(|| of("zstd")).expect("zstd has rows in both tables");
    let (ratio, pack, unpack) = row.2[kind as usize];
    Cost { size: 1.0 / ratio, pack: 1000.0 / pack, unpack: 1000.0 / unpack }
}

/// Codec, level, then ratio, MB/s packed and MB/s unpacked for each of [`Kind::ALL`].
type Row = (&'static str, i16, [(f32, f32, f32); 9]);

/// What it costs a codec to find out that there is nothing to gain, and to copy back.
const COPY: f32 = 15000.0;

#[rustfmt::skip]
const PLAIN: &[Row] = &[
    //               text                   binary               log                  field                weights              relu                 random                sparse               decimal
    ("lz4",     1, [(1.58, 441., 4044.), (2.29, 697., 3867.), (2.99, 745., 4286.), (1.00, 9000., COPY), (1.00, 9000., COPY), (1.85, 534., 2500.), (1.0, 9000., COPY), (15.0, 7279., 7000.), (1.60, 700., 2500.)]),
    ("zstd", -200, [(1.75, 1129., 2269.), (1.75, 950., 1700.), (1.65, 1060., 2200.), (1.11, 1050., 1455.), (1.28, 1140., 1454.), (2.14, 904., 1851.), (1.0, 7500., COPY), (13.1, 4700., 4000.), (1.50, 900., 1500.)]),
    ("zstd",  -20, [(1.91, 490., 1400.), (2.21, 636., 1331.), (2.89, 801., 1800.), (1.11, 1030., 1455.), (1.28, 1130., 1450.), (2.11, 661., 1500.), (1.0, 7500., COPY), (15.3, 4330., 4000.), (1.80, 600., 1300.)]),
    ("zstd",   -5, [(2.20, 330., 1200.), (2.55, 540., 1300.), (4.78, 639., 1483.), (1.11, 1010., 1455.), (1.28, 1129., 1440.), (2.12, 481., 1300.), (1.0, 7500., COPY), (15.8, 4043., 3900.), (2.00, 450., 1200.)]),
    ("zstd",    1, [(2.44, 281., 1253.), (3.13, 459., 1330.), (4.92, 543., 1451.), (1.11, 992., 1455.), (1.28, 1110., 1433.), (2.23, 359., 873.), (1.0, 7489., COPY), (16.0, 3792., 3700.), (2.40, 300., 1200.)]),
    ("zstd",    3, [(2.60, 193., 1000.), (3.34, 328., 1280.), (5.10, 400., 1450.), (1.11, 900., 1455.), (1.28, 900., 1433.), (2.25, 250., 870.), (1.0, 6000., COPY), (16.1, 3000., 3600.), (2.80, 180., 1100.)]),
    ("zstd",    6, [(2.80, 73., 1050.), (3.52, 95., 1270.), (5.30, 120., 1500.), (1.11, 800., 1450.), (1.28, 500., 1430.), (2.30, 90., 870.), (1.0, 4000., COPY), (16.3, 1200., 3600.), (3.20, 70., 1100.)]),
    ("zstd",    9, [(2.88, 43., 1060.), (3.62, 69., 1260.), (5.44, 68., 1500.), (1.11, 754., 1450.), (1.28, 278., 1430.), (2.34, 49., 860.), (1.0, 2375., COPY), (16.4, 692., 3600.), (3.40, 45., 1100.)]),
    ("zstd",   12, [(2.93, 20., 1080.), (3.66, 27., 1250.), (5.55, 25., 1500.), (1.11, 60., 1450.), (1.285, 40., 1430.), (2.36, 20., 860.), (1.0, 60., COPY), (16.5, 200., 3600.), (3.50, 20., 1100.)]),
    ("zstd",   15, [(2.96, 10., 1080.), (3.70, 15., 1250.), (5.70, 14., 1500.), (1.115, 30., 1450.), (1.29, 25., 1430.), (2.38, 12., 860.), (1.0, 30., COPY), (16.6, 100., 3600.), (3.60, 10., 1050.)]),
    ("zstd",   19, [(3.10, 3.5, 950.), (3.85, 4.2, 1100.), (6.20, 4., 1400.), (1.13, 5., 1400.), (1.30, 4., 1400.), (2.45, 3.5, 800.), (1.0, 5., COPY), (16.8, 20., 3400.), (3.90, 3.5, 950.)]),
    ("deflate", 0, [(2.16, 386., 665.), (2.67, 590., 837.), (3.60, 640., 1150.), (1.00, 560., COPY), (1.10, 500., 540.), (2.10, 430., 600.), (1.0, 570., COPY), (13.0, 1900., 2000.), (1.90, 350., 600.)]),
    ("deflate", 1, [(2.26, 360., 697.), (2.89, 547., 839.), (4.33, 611., 1228.), (1.11, 700., 484.), (1.28, 393., 539.), (2.20, 406., 614.), (1.0, 1400., COPY), (14.9, 1863., 2000.), (2.20, 300., 650.)]),
];

/// The same behind planes of the right width.
#[rustfmt::skip]
const TYPED: &[Row] = &[
    //               text                   binary               log                  field                weights              relu                 random                sparse               decimal
    ("lz4",     1, [(1.40, 500., 2200.), (1.90, 600., 2200.), (2.20, 600., 2400.), (1.18, 1549., 2555.), (1.12, 1500., 2500.), (2.05, 750., 2000.), (1.0, 2897., 6000.), (14., 3500., 3000.), (1.50, 1000., 2300.)]),
    ("zstd",   -3, [(1.80, 350., 1000.), (2.20, 450., 1100.), (3.30, 450., 1200.), (1.24, 1074., 1778.), (1.45, 900., 1500.), (2.50, 650., 1400.), (1.0, 2600., 6000.), (14., 2500., 2500.), (1.80, 600., 1400.)]),
    ("zstd",    1, [(2.00, 250., 1000.), (2.50, 380., 1100.), (3.60, 400., 1200.), (1.255, 850., 1850.), (1.46, 800., 1500.), (2.56, 420., 1300.), (1.0, 2476., 6000.), (14.5, 2400., 2500.), (1.90, 500., 1400.)]),
    ("zstd",    3, [(2.10, 160., 1000.), (2.60, 250., 1100.), (3.80, 300., 1200.), (1.265, 450., 1800.), (1.46, 500., 1500.), (2.60, 260., 1300.), (1.0, 2200., 6000.), (14.6, 2000., 2500.), (2.00, 300., 1400.)]),
    ("zstd",    9, [(2.30, 40., 1000.), (2.80, 60., 1100.), (4.10, 60., 1200.), (1.28, 120., 1800.), (1.465, 200., 1500.), (2.66, 60., 1300.), (1.0, 1500., 6000.), (15., 600., 2500.), (2.10, 60., 1400.)]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_of_the_right_width_win_on_fields_and_lose_on_text() {
        let field = |codec| prior(codec, 1, 0, Kind::Field, 4).size;
        assert!(field("shuffle4-zstd") < field("zstd"));
        assert!(field("shuffle2-zstd") > field("shuffle4-zstd"));
        assert!(prior("shuffle4-zstd", 1, 0, Kind::Text, 1).size > prior("zstd", 1, 0, Kind::Text, 1).size);
    }

    #[test]
    fn history_packs_smaller_and_slower() {
        let (without, with) = (prior("zstd", 9, 0, Kind::Text, 1), prior("zstd", 9, 1 << 20, Kind::Text, 1));
        assert!(with.size < without.size && with.pack > without.pack);
    }

    #[test]
    fn an_unknown_codec_is_taken_for_zstd() {
        assert_eq!(prior("mystery", 3, 0, Kind::Log, 1), prior("zstd", 3, 0, Kind::Log, 1));
    }
}
