//! Data for the published tables: made again where the publication says how, otherwise stand-ins of the same kind.
//!
//! Additions, multiplications and divisions of doubles and integers only, so that every machine makes the same bytes. How
//! alike a stand-in is shows in what lz4 and zstd make of it beside what they made there; the page prints both.

use narrows_chains::simulated;

use crate::sample;

/// How near data are to those of the publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Likeness {
    /// Made by the same rule; differs in the seed at most.
    Same,
    /// Of the same kind, made or bundled here.
    Alike,
}

/// One of Warnke's data sets and what stands for it here.
#[derive(Debug)]
pub struct Standin {
    /// As in the published file.
    pub name: &'static str,
    /// The table's number there.
    pub table: &'static str,
    /// What it was there.
    pub there: &'static str,
    /// What it is here.
    pub here: &'static str,
    /// How near that is.
    pub likeness: Likeness,
}

/// Warnke's fourteen, in the order of his tables.
pub const WARNKE: [Standin; 14] = [
    alike(
        "isabel-cloud",
        "6.1",
        "hurricane Isabel, cloud water, f32",
        "noise over a vortex, cut at a threshold, f32",
    ),
    alike(
        "isabel-pressure",
        "6.2",
        "hurricane Isabel, pressure, f32",
        "a vortex with fine noise, f32",
    ),
    alike(
        "isabel-temperature",
        "6.3",
        "hurricane Isabel, temperature, f32",
        "a vortex with coarser noise, f32",
    ),
    alike(
        "plant-growth",
        "6.4",
        "images of growing plants",
        "few-coloured leaves on a flat ground, 8 bits",
    ),
    alike(
        "ecoham",
        "6.5",
        "model of the North Sea, mostly land",
        "fields on a sparse ocean, f32",
    ),
    same(
        "fpga-csv",
        "6.6",
        "table of decimals as CSV",
        "a table of decimals as CSV (table:4000)",
    ),
    alike(
        "lukas-radiograph",
        "6.7",
        "X-ray image, 16 bits",
        "smooth image with sensor noise, 12 of 16 bits",
    ),
    alike(
        "fmri",
        "6.8",
        "functional MRI, packed already",
        "bytes that do not pack",
    ),
    alike(
        "protein",
        "6.9",
        "protein sequences as text",
        "amino acids as often as in nature",
    ),
    alike(
        "linux-source",
        "6.10",
        "source of Linux",
        "program text of the bundled sample",
    ),
    alike(
        "sao",
        "6.11",
        "catalogue of stars, binary",
        "records of 28 bytes, mostly random digits",
    ),
    alike(
        "hpcg",
        "6.12",
        "memory of HPCG",
        "the same system, laid out as HPCG does (hpcg:40:8)",
    ),
    same(
        "partdiff",
        "6.13",
        "partdiff, 512 interlines, Jacobi",
        "the same relaxation (jacobi:sine)",
    ),
    same("urandom", "6.14", "/dev/urandom", "a generator's noise"),
];

const fn alike(
    name: &'static str,
    table: &'static str,
    there: &'static str,
    here: &'static str,
) -> Standin {
    let likeness = Likeness::Alike;
    Standin {
        name,
        table,
        there,
        here,
        likeness,
    }
}

const fn same(
    name: &'static str,
    table: &'static str,
    there: &'static str,
    here: &'static str,
) -> Standin {
    let likeness = Likeness::Same;
    Standin {
        name,
        table,
        there,
        here,
        likeness,
    }
}

/// The bytes of one of [`WARNKE`]; `quick` makes the simulations smaller.
///
/// # Panics
/// For a name that is not there.
#[must_use]
pub fn warnke(name: &str, quick: bool) -> Vec<u8> {
    let made = |name: &str| simulated::named(name).expect("a name of its table");
    match name {
        "isabel-cloud" => field(&CLOUD),
        "isabel-pressure" => field(&PRESSURE),
        "isabel-temperature" => field(&TEMPERATURE),
        "plant-growth" => plants(),
        "ecoham" => field(&OCEAN),
        "fpga-csv" => made("table:4000"),
        "lukas-radiograph" => radiograph(),
        "fmri" | "urandom" => made("noise:1024"),
        "protein" => protein(),
        "linux-source" => source_text(),
        "sao" => stars(),
        "hpcg" => made("hpcg:40:8"),
        "partdiff" if quick => made("jacobi:sine:1024:200"),
        "partdiff" => made("jacobi:sine:4104:300"),
        other => unreachable!("{other} is none of Warnke's data"),
    }
}

/// Peñaranda's `lineal`: bytes that count, over and over. The published ratios of LZ4 follow from it to the byte: 32 KiB
/// become 394 bytes (83.17), 128 KiB become 779 (168.26).
#[must_use]
pub fn lineal(len: usize) -> Vec<u8> {
    (0..len).map(|at| at as u8).collect()
}

/// Peñaranda's `random`.
#[must_use]
pub fn random(len: usize) -> Vec<u8> {
    let mut source = Source(2024);
    (0..len.div_ceil(8))
        .flat_map(|_| source.next().to_le_bytes())
        .take(len)
        .collect()
}

/// Peñaranda's `sparse`: zeros, and a random byte about every 6 KiB, which gives about the ratios published.
#[must_use]
pub fn sparse(len: usize) -> Vec<u8> {
    let mut source = Source(4649);
    let mut bytes = vec![0; len];
    let mut at = 0;
    loop {
        at += 1 + (source.next() % (2 * SPARSE_GAP)) as usize;
        match bytes.get_mut(at) {
            Some(byte) => *byte = source.next() as u8 | 1,
            None => return bytes,
        }
    }
}

/// Mean distance of bytes that are not zero.
const SPARSE_GAP: u64 = 6400;

/// A field of noise over a vortex.
struct Field {
    /// What the vortex adds at its eye.
    depth: f64,
    /// Height of the noise.
    height: f64,
    /// An octave is so much lower than the one before, which is twice as coarse.
    fall: f64,
    /// Below it all is zero, and above it is subtracted.
    threshold: Option<f64>,
}

const PRESSURE: Field = Field {
    depth: -3000.0,
    height: 600.0,
    fall: 0.31,
    threshold: None,
};
const TEMPERATURE: Field = Field {
    depth: -300.0,
    height: 100.0,
    fall: 0.36,
    threshold: None,
};
const CLOUD: Field = Field {
    depth: 0.0,
    height: 4e-4,
    fall: 0.57,
    threshold: Some(0.5e-4),
};
const OCEAN: Field = Field {
    depth: 0.0,
    height: 4e-4,
    fall: 0.35,
    threshold: Some(2.3e-4),
};
const SIDE: usize = 512;
const LEVELS: usize = 8;

fn field(of: &Field) -> Vec<u8> {
    let mut source = Source(7);
    let mut bytes = Vec::with_capacity(LEVELS * SIDE * SIDE * 4);
    for level in 0..LEVELS {
        let noise = noise(&mut source, of.fall);
        for (at, noise) in noise.into_iter().enumerate() {
            let (x, y) = ((at % SIDE) as f64, (at / SIDE) as f64);
            let (x, y) = (
                x - 250.0 - 3.0 * level as f64,
                y - 240.0 + 2.0 * level as f64,
            );
            let far = (x * x + y * y) / 8100.0;
            let eye = 1.0 / (1.0 + far) / (1.0 + far);
            let value = match of.threshold {
                None => 800.0 + of.depth * eye * (1.0 - level as f64 / 30.0) + of.height * noise,
                Some(threshold) => {
                    let reach = 1.0 / (1.0 + far / 5.0);
                    (of.height * noise * reach - threshold).max(0.0)
                }
            };
            bytes.extend_from_slice(&(value as f32).to_le_bytes());
        }
    }
    bytes
}

/// Octaves of smooth noise, each half as wide as the one before and `fall` times as high.
fn noise(source: &mut Source, fall: f64) -> Vec<f64> {
    let mut sum = vec![0.0; SIDE * SIDE];
    let (mut cell, mut height) = (256, 1.0);
    while cell >= 1 {
        let across = SIDE / cell + 2;
        let knots: Vec<f64> = (0..across * across).map(|_| source.signed()).collect();
        for (at, sum) in sum.iter_mut().enumerate() {
            let (x, y) = (at % SIDE, at / SIDE);
            let smooth = |part: usize| {
                let part = part as f64 / cell as f64;
                part * part * (3.0 - 2.0 * part)
            };
            let (u, v) = (smooth(x % cell), smooth(y % cell));
            let corner = y / cell * across + x / cell;
            let above = knots[corner] * (1.0 - u) + knots[corner + 1] * u;
            let below = knots[corner + across] * (1.0 - u) + knots[corner + across + 1] * u;
            *sum += height * (above * (1.0 - v) + below * v);
        }
        cell /= 2;
        height *= fall;
    }
    sum
}

/// Leaves: round spots in few colours, with veins, on a flat ground.
fn plants() -> Vec<u8> {
    let mut source = Source(31);
    let (wide, high) = (1024, 2048);
    let mut image = vec![12_u8; wide * high];
    for _ in 0..420 {
        let (x, y) = (
            source.below(wide as u64) as i64,
            source.below(high as u64) as i64,
        );
        let (radius, colour) = (6 + source.below(40) as i64, 60 + source.below(12) as u8);
        for dy in -radius..=radius {
            for dx in -radius..=radius {
                let (at_x, at_y) = (x + dx, y + dy);
                let inside = (0..wide as i64).contains(&at_x) && (0..high as i64).contains(&at_y);
                if inside && dx * dx + dy * dy <= radius * radius {
                    let vein = u8::from(dx.abs() <= 1 || (dx + dy) % 23 == 0);
                    image[at_y as usize * wide + at_x as usize] = colour + 9 * vein;
                }
            }
        }
    }
    image
}

/// A smooth image of 12 bits in 16, with a sensor's noise.
fn radiograph() -> Vec<u8> {
    let mut source = Source(16);
    let image = noise(&mut source, 0.4);
    let pixel = |value: f64| {
        let noise = source.below(24) as f64 + source.below(24) as f64 - 23.0;
        (1800.0 + 900.0 * value + noise).clamp(0.0, 4095.0) as u16
    };
    image
        .into_iter()
        .map(pixel)
        .flat_map(u16::to_le_bytes)
        .collect()
}

/// Letters of amino acids, in lines of 60, by their frequency in proteins (per mille, UniProtKB/Swiss-Prot's statistics).
fn protein() -> Vec<u8> {
    const OFTEN: [(u8, u64); 20] = [
        (b'L', 97),
        (b'A', 83),
        (b'G', 71),
        (b'V', 69),
        (b'E', 67),
        (b'S', 66),
        (b'I', 59),
        (b'K', 58),
        (b'R', 55),
        (b'D', 55),
        (b'T', 54),
        (b'P', 47),
        (b'N', 41),
        (b'Q', 39),
        (b'F', 39),
        (b'Y', 29),
        (b'M', 24),
        (b'H', 23),
        (b'C', 14),
        (b'W', 10),
    ];
    let total: u64 = OFTEN.iter().map(|(_, often)| often).sum();
    let mut source = Source(20);
    let mut text = Vec::new();
    while text.len() < 4 << 20 {
        if text.len() % 61 == 60 {
            text.push(b'\n');
            continue;
        }
        let mut at = source.below(total);
        let letter = OFTEN.iter().find(|(_, often)| {
            let here = at < *often;
            at = at.wrapping_sub(*often);
            here
        });
        text.push(letter.map_or(b'L', |(letter, _)| *letter));
    }
    text
}

/// The bundled sample's program text.
fn source_text() -> Vec<u8> {
    let all = sample::unpack();
    let before: usize = sample::PARTS
        .iter()
        .take_while(|part| part.name != "source.rs")
        .map(|part| part.len)
        .sum();
    let part = sample::PARTS.iter().find(|part| part.name == "source.rs");
    all[before..][..part.map_or(0, |part| part.len)].to_vec()
}

/// Records of 28 bytes as in a binary catalogue: position, motion and magnitude of stars, whose low digits are random.
fn stars() -> Vec<u8> {
    let mut source = Source(28);
    let mut bytes = Vec::new();
    for star in 0_u64..150_000 {
        let record = [source.next(), source.next(), source.next() ^ star];
        bytes.extend(record.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(((star / 40) as u16).to_be_bytes());
        bytes.extend((source.below(900) as u16).to_be_bytes());
    }
    bytes
}

/// SplitMix64.
struct Source(u64);

impl Source {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Evenly from -1 to 1.
    fn signed(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
}

#[cfg(test)]
mod tests {
    use narrows_codecs::lz4::Lz4;
    use narrows_core::{Codec, Level, Workspace};

    use super::*;

    // Goal: the published ratios of LZ4 come out of the counted bytes. Method: its block of 32 and of 128 KiB.
    #[test]
    fn lineal_is_the_published_data() {
        for (len, published) in [(32 << 10, 83.17), (128 << 10, 168.26)] {
            let mut out = vec![0; len];
            let packed = Lz4
                .pack(
                    &lineal(len),
                    Level(0),
                    &[],
                    &mut out,
                    &mut Workspace::default(),
                )
                .unwrap();
            let ratio = len as f64 / packed as f64;
            assert!(
                (ratio / published - 1.0).abs() < 0.02,
                "{len}: {ratio}, published {published}"
            );
        }
    }

    #[test]
    fn every_set_is_made() {
        for set in &WARNKE {
            let bytes = warnke(set.name, true);
            assert!(bytes.len() >= 64 * 4096, "{}: {}", set.name, bytes.len());
        }
        assert_eq!((random(100).len(), sparse(1 << 20).len()), (100, 1 << 20));
    }
}
