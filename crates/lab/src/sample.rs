//! The bundled sample: seven kinds of real data in 1.9 MiB (`sample/README.md` names sources and licences).

use narrows_core::Workspace;

/// One kind of data in the sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// As a file would be called.
    pub name: &'static str,
    /// Bytes.
    pub len: usize,
    /// In a few words, for people.
    pub what: &'static str,
}

/// What the sample holds, in order.
pub const PARTS: [Part; 7] = [
    Part {
        name: "flights.csv",
        len: 2_097_152,
        what: "a table as CSV",
    },
    Part {
        name: "source.rs",
        len: 720_896,
        what: "program text",
    },
    Part {
        name: "program.bin",
        len: 786_432,
        what: "machine code",
    },
    Part {
        name: "flights.heap",
        len: 2_097_152,
        what: "database pages",
    },
    Part {
        name: "ocean.f32",
        len: 1_048_576,
        what: "sea temperatures, f32",
    },
    Part {
        name: "planets.f64",
        len: 262_144,
        what: "coefficients, f64",
    },
    Part {
        name: "relief.f32",
        len: 524_288,
        what: "heights, f32",
    },
];

/// Unpacks the sample: the bytes of [`PARTS`], one after the other.
///
/// # Panics
/// The program was built from a damaged sample.
#[must_use]
pub fn unpack() -> Vec<u8> {
    let registry = narrows::default_registry();
    let zstd = registry.by_name("zstd").expect("zstd is always registered");
    let mut bytes = vec![0; PARTS.iter().map(|part| part.len).sum()];
    zstd.unpack(PACKED, &[], &mut bytes, &mut Workspace::default())
        .expect("the bundled sample is whole");
    bytes
}

static PACKED: &[u8] = include_bytes!("../sample/sample.zst");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_what_its_table_says() {
        assert!(PACKED.len() <= 2 << 20);
        let bytes = unpack();
        assert_eq!(xxhash_rust::xxh3::xxh3_64(&bytes), 0x972c67bb76e7fda7);
        let readme = include_str!("../sample/README.md");
        for part in PARTS {
            assert!(
                readme.contains(&format!("`{}`", part.name)),
                "{} is not in the README",
                part.name
            );
        }
    }
}
