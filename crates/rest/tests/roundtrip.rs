//! What was packed comes back, whatever the content and the options.

use std::io::{Read, Write};

use narrows_rest::{Element, FileError, FileOptions, Goal, Reader, Writer, pack, unpack};
use narrows_testkit::data::{KINDS, Kind, Random, make};
use proptest::prelude::*;

fn options(level: u8, element: Option<Element>, threads: usize, chunk_len: usize) -> FileOptions {
    FileOptions::default()
        .goal(Goal::Level(level))
        .element(element)
        .threads(threads)
        .chunk_len(chunk_len)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // Goal: any content, cut by any chunks, under any hint. Method: kinds one after another, so that chunks are mixed.
    #[test]
    fn content_comes_back(
        parts in prop::collection::vec((0..KINDS.len(), 0..40_000usize), 0..4),
        seed in any::<u64>(),
        level in 1..=6u8,
        element in prop::option::of(0..Element::ALL.len()),
        threads in 1..=3usize,
        chunk in 1..=4usize,
    ) {
        let content: Vec<u8> = parts
            .iter()
            .flat_map(|&(kind, len)| make(KINDS[kind], len, seed))
            .collect();
        let element = element.map(|n| Element::ALL[n]);
        let options = options(level, element, threads, chunk * 4096);
        let file = pack(&content, &options).unwrap();
        prop_assert_eq!(unpack(&file, content.len() as u64).unwrap(), &content[..]);
        let mut parallel = Vec::new();
        Reader::new(&file[..]).threads(3).read_to_end(&mut parallel).unwrap();
        prop_assert_eq!(&parallel, &content);
        // The bytes are the same whatever the threads and however the content came.
        let mut writer = Writer::new(Vec::new(), &options.threads(1)).unwrap();
        for piece in content.chunks(777) {
            writer.write_all(piece).unwrap();
        }
        let (again, summary) = writer.finish().unwrap();
        prop_assert_eq!(again, file);
        prop_assert_eq!(summary.content_len, content.len() as u64);
    }
}

// Goal: chunks end where content does. Method: lengths on both sides of one and of two chunks, and none at all.
#[test]
fn lengths_at_the_edges_of_chunks() {
    for len in [0, 1, 4095, 4096, 4097, 8191, 8192, 8193] {
        let content = make(Kind::Text, len, 3);
        let file = pack(&content, &options(1, None, 1, 4096)).unwrap();
        assert_eq!(unpack(&file, 1 << 20).unwrap(), content, "{len}");
        let listing = narrows_rest::list(std::io::Cursor::new(&file)).unwrap();
        assert_eq!(listing.frames.len(), len.div_ceil(4096));
        assert_eq!(listing.summary.packed_len, file.len() as u64);
    }
}

#[test]
fn files_appended_to_one_another_are_one() {
    let parts = [
        make(Kind::Text, 9000, 1),
        Vec::new(),
        make(Kind::Doubles, 5001, 2),
    ];
    let file: Vec<u8> = parts
        .iter()
        .flat_map(|part| pack(part, &options(3, None, 1, 4096)).unwrap())
        .collect();
    assert_eq!(unpack(&file, 1 << 20).unwrap(), parts.concat());
    let verified = narrows_rest::verify(&file[..], 2).unwrap();
    assert!(verified.losses.is_empty(), "{verified:?}");
    assert_eq!(verified.summary.files, 3);
    let by_index = narrows_rest::list(std::io::Cursor::new(&file))
        .unwrap()
        .summary;
    assert_eq!(by_index, verified.summary);
}

#[test]
fn more_content_than_is_allowed_is_refused() {
    let file = pack(&make(Kind::Zeros, 100_000, 0), &FileOptions::default()).unwrap();
    assert_eq!(unpack(&file, 100_000).unwrap().len(), 100_000);
    let fault = unpack(&file, 99_999).unwrap_err();
    assert!(
        matches!(fault, FileError::Limit { limit: 99_999, .. }),
        "{fault}"
    );
}

#[test]
fn settings_out_of_range_are_refused() {
    for wrong in [
        options(0, None, 1, 0),
        options(20, None, 1, 0),
        options(1, None, 1, 4095),
        options(1, None, 1, 4097),
        options(1, None, 1, (16 << 20) + 4096),
    ] {
        let fault = pack(b"content", &wrong).unwrap_err();
        assert!(matches!(fault, FileError::Setting(_)), "{fault}");
    }
    assert!("f32".parse::<Element>().is_ok() && "f31".parse::<Element>().is_err());
    assert!("7".parse::<Goal>().is_ok() && "20".parse::<Goal>().is_err());
}

// Goal: numbers are found without a hint, and text is left to zstd. Method: the codecs of the file are looked at.
#[test]
fn numbers_are_found_and_text_is_zstd() {
    let mut rng = Random(1);
    let decimals: Vec<u8> = (0..100_000)
        .flat_map(|_| (rng.below(100_000) as f64 / 100.0).to_le_bytes())
        .collect();
    let field: Vec<u8> = (0..200_000)
        .flat_map(|n| ((f64::from(n) / 500.0).sin() as f32).to_le_bytes())
        .collect();
    let text = make(Kind::Text, 800_000, 1);
    let zstd_only = |content: &[u8]| {
        let file = pack(content, &FileOptions::default()).unwrap();
        let summary = narrows_rest::verify(&file[..], 1).unwrap().summary;
        let codecs: Vec<_> = summary.codecs.keys().copied().collect();
        (codecs == ["zstd"], file.len(), codecs)
    };
    for numbers in [&decimals, &field] {
        let (is_zstd, len, codecs) = zstd_only(numbers);
        assert!(!is_zstd && len < numbers.len() / 2, "{len} {codecs:?}");
    }
    let (is_zstd, _, codecs) = zstd_only(&text);
    assert!(is_zstd, "{codecs:?}");
}
