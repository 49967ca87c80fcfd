//! Bytes that look like each kind of data, for the probe to look at. What they *cost* is the trace's business.

use crate::prior::PriorKind;

/// Every kind with the stride its bytes show here.
pub const SHAPES: [(PriorKind, u8); 11] = [
    (PriorKind::Text, 1),
    (PriorKind::Binary, 1),
    (PriorKind::Log, 1),
    (PriorKind::Field, 4),
    (PriorKind::Field, 8),
    (PriorKind::PriceWeights, 2),
    (PriorKind::Relu, 4),
    (PriorKind::Random, 1),
    (PriorKind::Sparse, 1),
    (PriorKind::Decimal, 4),
    (PriorKind::Decimal, 8),
];

/// Xorshift: the same seed always gives the same numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Any seed will do.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x2545_F491_4F6C_DD1D);
        random.bits();
        random
    }

    /// Sixty-four bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = if self.0 == 0 { 1 } else { self.0 };
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Uniform in `0..end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() >> 33) as usize % end.max(1)
    }

    /// Uniform in 0 to 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Normal with mean 0 and variance 1, near enough.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

/// `len` bytes of the kind. A pure function of its arguments.
#[must_use]
pub fn bytes(kind: PriorKind, stride: u8, len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut out = Vec::with_capacity(len + 128);
    let words: Vec<Vec<u8>> = (0..4000)
        .map(|_| {
            (0..2 + random.below(9))
                .map(|_| b"etaoinshrdlucmfwypvbgkjqxz"[random.below(6) * random.below(6) % 26])
                .collect()
        })
        .collect();
    let mut walk = 1.0;
    while out.len() < len {
        match kind {
            PriorKind::Text => {
                out.extend(&words[(random.unit().powi(2) * 4000.0) as usize]);
                out.push(if random.below(12) == 0 { b'\n' } else { b' ' });
            }
            PriorKind::Log => out.extend(
                format!(
                    "10.0.{}.{} - - [21/Nov/2026:08:{:02}:{:02} +0000] \"GET /index/{} HTTP/1.1\" 200 {}\n",
                    random.below(4),
                    random.below(256),
                    random.below(60),
                    random.below(60),
                    random.below(99),
                    random.below(9999)
                )
                .as_bytes(),
            ),
            PriorKind::Binary => {
                let op =
                    [0x48, 0x89, 0x8b, 0xe8, 0x0f, 0x83, 0xc0, 0x24, 0x45, 0x4c, 0xff, 0x74, 0x10, 0x08, 0x31, 0xc3];
                (0..1 + random.below(4)).for_each(|_| out.push(op[random.below(4) * random.below(6) % 16]));
                (0..random.below(5)).for_each(|_| out.push(random.below(256) as u8));
                (0..random.below(4)).for_each(|_| out.push(0));
            }
            PriorKind::Field => {
                walk += 0.002 * random.normal() - 0.001 * (walk - 1.0);
                if stride == 8 {
                    out.extend(f64::to_le_bytes(walk));
                } else {
                    out.extend(f32::to_le_bytes(walk as f32));
                }
            }
            PriorKind::Decimal => {
                walk += 0.002 * random.normal() - 0.001 * (walk - 1.0);
                let price = (walk * 5000.0).round() / 100.0;
                if stride == 8 {
                    out.extend(f64::to_le_bytes(price));
                } else {
                    out.extend(f32::to_le_bytes(price as f32));
                }
            }
            PriorKind::PriceWeights => out.extend(&f32::to_le_bytes(0.02 * random.normal() as f32)[2..]),
            PriorKind::Relu => out.extend(f32::to_le_bytes((random.normal() as f32 - 0.3).max(0.0))),
            PriorKind::Random => out.extend(random.bits().to_le_bytes()),
            PriorKind::Sparse => {
                out.extend([0; 24]);
                if random.below(12) == 0 {
                    out.extend(random.bits().to_le_bytes());
                }
            }
        }
    }
    out.truncate(len);
    out
}
