//! Round trips of every algorithm and chain, hostile bytes, and the search.

use narrows_testkit::data::{KINDS, Kind, Random, make};
use proptest::prelude::*;

use super::*;

fn settings_of(chain: &str) -> Settings {
    let mut settings = Settings {
        max_output_size: 4088,
        bwt_max_alphabet: 256,
        ..Settings::default()
    };
    settings.set(chain).expect("known names");
    settings
}

#[test]
fn every_algorithm_gives_its_bytes_back() {
    let settings = settings_of("rle");
    for (algorithm, name) in ALGORITHMS {
        for kind in KINDS {
            for len in [1, 7, 8, 9, 63, 1000, 4095, 4096] {
                let raw = make(kind, len, 5);
                let mut packed = vec![];
                if pack_step(algorithm, &raw, &mut packed, &settings).is_none() {
                    continue;
                }
                let mut back = vec![];
                unpack_step(algorithm, &packed, &mut back)
                    .unwrap_or_else(|fault| panic!("{name}, {kind:?}: {fault}"));
                assert!(back == raw, "{name}, {kind:?}, {len}");
            }
        }
    }
}

#[test]
fn every_chain_gives_pages_back() {
    for chain in DEFAULT.iter().chain(&EARLY).chain(&CURATED) {
        let mut packer = Zbewalgo::new(settings_of(chain));
        for kind in KINDS {
            let page = make(kind, PAGE, 9);
            let (mut packed, mut back) = ([0; PAGE], [1; PAGE]);
            let Some(len) = packer.pack(&page, &mut packed) else {
                continue;
            };
            packer
                .unpack(&packed[..len], &mut back)
                .unwrap_or_else(|fault| panic!("{chain}, {kind:?}: {fault}"));
            assert!(back == *page, "{chain}, {kind:?}");
        }
    }
}

#[test]
fn known_bytes() {
    let mut out = vec![];
    bwt::pack(b"abab", &mut out, 90).expect("two different bytes");
    assert_eq!(out, b"bbbaa");
    out.clear();
    rle::pack(b"aaaab", &mut out);
    assert_eq!(out, [0x83, b'a', 0, b'b']);
    out.clear();
    jbe::pack(&[0, 1, 0, 0, 0, 0, 0, 2, 9], &mut out, |word| word).expect("short");
    assert_eq!(out, [9, 0, 0b0100_0001, 1, 2, 9]);
    assert_eq!(
        jbe::swap_nibbles(0x0000_0004_0000_0030),
        0x0000_0003_0000_0040
    );
}

#[test]
fn a_page_like_the_last_takes_one_chain() {
    let mut packer = Zbewalgo::default();
    let page = make(Kind::Sparse, PAGE, 2);
    let mut packed = [0; PAGE];
    packer.pack(&page, &mut packed);
    let first = packer.pack(&page, &mut packed);
    assert_eq!(first, packer.pack(&page, &mut packed));
    let len = first.expect("half of it is zeros") - HEADER;
    assert_eq!(packer.accepted_size, (len + len / 8).clamp(400, 3248));
}

#[test]
fn stars_and_faults_of_settings() {
    let mut settings = Settings::default();
    assert_eq!(settings.chains(), DEFAULT);
    settings.set("*").expect("the curated list");
    // One chain is in both versions.
    assert_eq!(
        settings.chains().len(),
        DEFAULT.len() + EARLY.len() + CURATED.len() - 1
    );
    assert_eq!(
        settings.set("rle-lz4"),
        Err(SettingsError::Unknown("lz4".to_owned()))
    );
    assert_eq!(
        settings.set("rle-rle-rle-rle-rle-rle-rle-rle"),
        Err(SettingsError::Length(8))
    );
    settings.reset();
    assert_eq!(settings.chains(), DEFAULT);
}

proptest! {
    #[test]
    fn hostile_bytes_are_refused_or_make_some_page(
        body in proptest::collection::vec(any::<u8>(), 0..400), steps in 0u8..8, ids in any::<[u8; 7]>()
    ) {
        let mut packed = vec![steps];
        packed.extend(ids.map(|id| id % 10));
        packed.extend(body);
        let _ = Zbewalgo::default().unpack(&packed, &mut [0; PAGE]);
    }

    #[test]
    fn flipped_bits_are_refused_or_make_some_page(seed in any::<u64>()) {
        let mut random = Random(seed);
        let page = make(KINDS[random.below(KINDS.len())], PAGE, seed);
        let mut packer = Zbewalgo::default();
        let mut packed = [0; PAGE];
        if let Some(len) = packer.pack(&page, &mut packed) {
            let bit = random.below(8 * len);
            packed[bit / 8] ^= 1 << (bit % 8);
            let _ = packer.unpack(&packed[..len], &mut [0; PAGE]);
        }
    }
}
