//! Golden files: what was written once must be read for ever.
//!
//! `NARROWS_MAKE_GOLDEN=1 cargo test -p narrows-rest --test golden` writes what is missing and leaves the rest alone.

use std::{
    fs,
    io::{Cursor, Read},
    path::{Path, PathBuf},
};

use narrows_rest::{Element, FileOptions, SeekReader, list, pack, unpack, verify};
use narrows_testkit::data::{Kind, make};

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../compat/file/v1")
}

/// Content and options by name.
fn cases() -> Vec<(&'static str, Vec<u8>, FileOptions)> {
    let small = FileOptions::default().chunk_len(4096).threads(1);
    let decimals =
        (0..2000u16).flat_map(|n| (f64::from(u32::from(n) * 37 % 900) / 100.0).to_le_bytes());
    let field = (0..3000u16).flat_map(|n| ((f64::from(n) / 90.0).sin() as f32).to_le_bytes());
    vec![
        ("empty", Vec::new(), small),
        ("text", make(Kind::Text, 9001, 1), small),
        ("stored", make(Kind::Random, 700, 1), small),
        (
            "decimals-f64",
            decimals.collect(),
            small.element(Element::F64),
        ),
        (
            "field-f32",
            field.collect(),
            small.chunk_len(8192).element(Element::F32),
        ),
        (
            "counters-i32",
            make(Kind::Counters, 8192, 1),
            small.element(Element::I32),
        ),
        (
            "mixed",
            [make(Kind::Text, 4096, 2), make(Kind::Doubles, 6000, 2)].concat(),
            small,
        ),
        (
            "mask-u8",
            make(Kind::Random, 9003, 5)
                .iter()
                .map(|byte| u8::from(*byte < 40))
                .collect(),
            small.element(Element::U8),
        ),
        (
            "long",
            [make(Kind::Text, 300, 1), make(Kind::Zeros, 150_000, 1)].concat(),
            small.chunk_len(131_072),
        ),
    ]
}

#[test]
fn golden_files_are_read() {
    let made = std::env::var_os("NARROWS_MAKE_GOLDEN").is_some();
    let mut found = 0;
    let mut codecs = std::collections::BTreeSet::new();
    for (name, content, options) in cases() {
        let (file, raw) = (
            dir().join(format!("{name}.narrows")),
            dir().join(format!("{name}.raw")),
        );
        if made && !file.exists() {
            fs::create_dir_all(dir()).unwrap();
            fs::write(&file, pack(&content, &options).unwrap()).unwrap();
            fs::write(&raw, &content).unwrap();
        }
        let (file, content) = (fs::read(&file).unwrap(), fs::read(&raw).unwrap());
        assert_eq!(unpack(&file, 1 << 20).unwrap(), content, "{name}");
        let mut by_index = Vec::new();
        let mut reader = SeekReader::new(Cursor::new(&file)).unwrap();
        reader.read_to_end(&mut by_index).unwrap();
        assert_eq!(by_index, content, "{name} by its index");
        let verified = verify(&file[..], 1).unwrap();
        assert!(verified.losses.is_empty(), "{name}: {verified:?}");
        let listing = list(Cursor::new(&file)).unwrap();
        assert_eq!(listing.summary, verified.summary, "{name}");
        codecs.extend(listing.frames.iter().map(|frame| frame.codec));
        found += 1;
    }
    // Whoever adds a codec to files adds a file here.
    println!("{found} files, codecs {codecs:?}");
    let own = ["pages", "bits", "raw"];
    assert!(found == cases().len() && own.iter().all(|codec| codecs.contains(*codec)));
}
