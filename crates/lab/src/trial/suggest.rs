//! Whether a fixed typed codec (shuffle, delta, decimal) is worth racing on this data.
//!
//! A user who knows his data would name one; this tries them on slices, as he would.

use std::io::Read;

use narrows_core::{Level, Workspace};

use crate::{data::Excerpt, race::Contestant};

/// The typed codec that packs best at its lowest level, if it beats zstd at the same level by a tenth.
pub(super) fn typed(excerpt: &Excerpt) -> Option<Contestant> {
    let mut bytes = Vec::new();
    excerpt.open().ok()?.read_to_end(&mut bytes).ok()?;
    let step = (bytes.len() / SLICES).max(SLICE_LEN);
    let slices: Vec<&[u8]> = bytes
        .chunks(step)
        .map(|chunk| &chunk[..chunk.len().min(SLICE_LEN)])
        .collect();
    let registry = narrows::default_registry();
    let mut ws = Workspace::default();
    let mut packed = |name: &str| -> Option<usize> {
        let codec = registry.by_name(name)?;
        let mut out = vec![0; SLICE_LEN];
        let pack = |slice: &&[u8]| {
            codec
                .pack(slice, LEVEL, &[], &mut out[..slice.len() - 1], &mut ws)
                .unwrap_or(slice.len())
        };
        Some(
            slices
                .iter()
                .filter(|slice| slice.len() > 1)
                .map(pack)
                .sum(),
        )
    };
    let plain = packed("zstd")?;
    let (len, name) = TYPED
        .iter()
        .filter_map(|name| Some((packed(name)?, *name)))
        .min()?;
    ((len as f64) < 0.9 * plain as f64).then(|| Contestant {
        policy: "fixed",
        codec: Some(format!("{name}:1")),
    })
}

const TYPED: [&str; 8] = [
    "shuffle2-zstd",
    "shuffle4-zstd",
    "shuffle8-zstd",
    "delta2-zstd",
    "delta4-zstd",
    "delta8-zstd",
    "decimal4-zstd",
    "decimal8-zstd",
];
const LEVEL: Level = Level(1);
const SLICES: usize = 32;
const SLICE_LEN: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Data;

    #[test]
    fn floats_get_a_typed_codec_and_text_none() {
        let dir = tempfile::tempdir().unwrap();
        let ask = |bytes: &[u8]| {
            let path = dir.path().join("data");
            std::fs::write(&path, bytes).unwrap();
            typed(&Data::paths(&[path]).unwrap().excerpt(1 << 20).unwrap())
        };
        let sample = crate::sample::unpack();
        let relief = &sample[sample.len() - 524_288..];
        assert!(ask(relief).is_some());
        assert_eq!(ask(&sample[..500_000]), None);
        assert_eq!(ask(b"x"), None);
    }
}
