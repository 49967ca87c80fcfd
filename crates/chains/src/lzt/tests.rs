use std::{fs, path::Path};

use proptest::prelude::*;

use super::{dictionary::Dictionary, *};
use super::{
    hash::{self, Hasher as _},
    kinds::{CONTEXTS, KINDS, LITERAL_LEN_MAX, Ready, TOKEN_LEN_MAX, read_file, set},
    search::Finder,
    token::{Match, OFFSET_FIRST, TOKENS, meaning},
};
use crate::simd;

type Pack = fn(&[u8], &mut [u8], &mut Workspace) -> Option<usize>;
const PACKS: [Pack; 2] = [pack, pack_strong];

fn packed(pack: Pack, page: &[u8], ws: &mut Workspace) -> Vec<u8> {
    let mut out = vec![0; 2 * page.len() + 64];
    let len = pack(page, &mut out, ws).expect("room for any page");
    out.truncate(len);
    out
}

/// Text of words from a small list: matches, literals, and repeats near and far.
fn prose(len: usize, seed: u64) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "the ",
        "return ",
        "int ",
        "of ",
        "struct page *",
        "if (",
        ") {\n\t",
        "0x",
        "error",
        ";\n",
        "length",
        " = ",
        "for ",
        "memory ",
        "17",
        "\0\0\0\0\0\0\0\0",
    ];
    let mut state = seed | 1;
    let mut text = Vec::new();
    while text.len() < len {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        text.extend_from_slice(WORDS[(state >> 60) as usize].as_bytes());
        text.push((state >> 50) as u8 & 0x7F);
    }
    text.truncate(len);
    text
}

/// Pages of every shape: lengths from 0, noise, runs of each short period, text.
fn pages() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![
        0..100usize,
        Just(4095),
        Just(4096),
        Just(4097),
        0..=PAGE_MAX,
        Just(PAGE_MAX)
    ];
    (len, 0..5u8, any::<u64>(), 1..70usize).prop_map(|(len, shape, seed, period)| {
        let text = prose(len, seed);
        let noise = || {
            (0..len as u64).map(|i| ((i ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8)
        };
        match shape {
            0 => noise().collect(),
            1 => (0..len).map(|i| text[i % period.min(len)]).collect(),
            2 => noise().map(|byte| byte & 3).collect(),
            3 => noise()
                .zip(&text)
                .enumerate()
                .map(|(i, (a, &b))| if i % (8 * period) == 0 { a } else { b })
                .collect(),
            _ => text,
        }
    })
}

proptest! {
    #[test]
    fn any_page_comes_back(page in pages()) {
        let mut ws = Workspace::default();
        for pack in PACKS {
            let packed = packed(pack, &page, &mut ws);
            let mut back = vec![0xAA; page.len()];
            prop_assert_eq!(unpack(&packed, &mut back), Ok(()));
            prop_assert_eq!(&back, &page);
        }
    }

    #[test]
    fn a_page_packs_the_same_whatever_came_before(page in pages(), before in pages()) {
        for pack in PACKS {
            let mut ws = Workspace::default();
            let fresh = packed(pack, &page, &mut ws);
            packed(pack, &before, &mut ws);
            prop_assert_eq!(packed(pack, &page, &mut ws), fresh);
        }
    }

    #[test]
    fn short_room_is_an_answer(page in pages(), room in 0..6000usize) {
        let mut ws = Workspace::default();
        for pack in PACKS {
            let whole = packed(pack, &page, &mut ws);
            let mut out = vec![0; room];
            let len = pack(&page, &mut out, &mut ws);
            prop_assert_eq!(len, (whole.len() <= room).then_some(whole.len()));
            if let Some(len) = len {
                prop_assert_eq!(&out[..len], &whole[..]);
            }
        }
    }

    #[test]
    fn plain_and_wide_agree(page in pages()) {
        let mut ws = Workspace::default();
        let mut out = [vec![0; 2 * page.len() + 64], vec![0; 2 * page.len() + 64]];
        let len = pack(&page, &mut out[0], &mut ws).expect("room for any page");
        ws.finder.load(&page);
        ws.finder.search_plain(page.len());
        let plain = ws.emitter.emit_any(&page, ws.finder.matches(), &mut out[1]);
        prop_assert_eq!(plain, Some(len));
        prop_assert_eq!(&out[0], &out[1]);
        let kind = ws.emitter.choose(&page, ws.finder.matches());
        let ready = &set(page.len()).kinds[kind];
        ws.parser.parse(ws.finder.page(), page.len(), ready);
        let strong = ws.parser.matches().to_vec();
        ws.parser.parse_any(ws.finder.page(), page.len(), ready);
        prop_assert_eq!(ws.parser.matches(), &strong[..]);
        let mut back = vec![0; page.len()];
        prop_assert_eq!(simd::portable(|| unpack(&out[0][..len], &mut back)), Ok(()));
        prop_assert_eq!(back, page);
    }

    #[test]
    fn any_bytes_give_a_page_or_an_error(packed in prop::collection::vec(any::<u8>(), 0..400), len in 0..=PAGE_MAX) {
        fills_or_fails(&packed, len);
    }

    #[test]
    fn damaged_pages_give_a_page_or_an_error(page in pages(), at in any::<prop::sample::Index>(), flip in 1..=255u8) {
        let mut ws = Workspace::default();
        for pack in PACKS {
            let mut packed = packed(pack, &page, &mut ws);
            let at = at.index(packed.len());
            packed[at] ^= flip;
            fills_or_fails(&packed, page.len());
            packed.truncate(at);
            fills_or_fails(&packed, page.len());
        }
    }
}

/// `Ok` means that every byte of the page was written, by the packed bytes alone, in both forms of the loop.
fn fills_or_fails(packed: &[u8], len: usize) {
    let run = |fill: u8| {
        let mut page = vec![fill; len];
        unpack(packed, &mut page).map(|()| page)
    };
    let first = run(0x00);
    assert_eq!(first, run(0xFF));
    assert_eq!(first, simd::portable(|| run(0x55)));
}

#[test]
fn every_cut_and_every_bit_of_a_page() {
    let page = prose(4096, 7);
    let mut ws = Workspace::default();
    for pack in PACKS {
        let packed = packed(pack, &page, &mut ws);
        for cut in 0..packed.len() {
            let mut back = vec![0; page.len()];
            assert!(unpack(&packed[..cut], &mut back).is_err(), "cut at {cut}");
        }
        for bit in 0..8 * packed.len() {
            let mut damaged = packed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            fills_or_fails(&damaged, page.len());
        }
    }
}

#[test]
fn a_page_too_long_is_refused_and_not_read() {
    let page = vec![1; PAGE_MAX + 1];
    let mut out = vec![0; 2 * page.len()];
    for pack in PACKS {
        assert_eq!(pack(&page, &mut out, &mut Workspace::default()), None);
    }
    assert!(unpack(&[0; 64], &mut out).is_err());
}

#[test]
fn text_shrinks_and_the_strong_search_pays() {
    let mut ws = Workspace::default();
    let (fast, strong) = (0..32).fold((0, 0), |(fast, strong), seed| {
        let page = prose(4096, seed);
        (
            fast + packed(pack, &page, &mut ws).len(),
            strong + packed(pack_strong, &page, &mut ws).len(),
        )
    });
    assert!(fast < 32 * 4096 * 5 / 8, "{fast}");
    assert!(strong < fast, "{strong} {fast}");
}

/// Pages of one owner: each a few of the same 200 records, and a number.
fn owned(count: u64) -> Vec<Vec<u8>> {
    let records: Vec<Vec<u8>> = (0..200).map(|i| prose(90, i * 77 + 5)).collect();
    (0..count)
        .map(|page| {
            let pick = |i: u64| {
                &records[((page * 41 + i).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize % 200]
            };
            (0..60)
                .flat_map(|i| pick(i).iter().copied().chain([page as u8, i as u8]))
                .take(4096)
                .collect()
        })
        .collect()
}

#[test]
fn a_dictionary_that_pays_is_kept_and_reads_its_pages() {
    let pages = owned(256);
    let samples: Vec<&[u8]> = pages.iter().map(Vec::as_slice).collect();
    let mut ws = Workspace::default();
    let trained = Dictionary::train(&samples, |page| packed(pack_strong, page, &mut ws).len())
        .expect("it pays");
    assert!(trained.with < trained.without);
    let dictionary = trained.dictionary;
    assert!(
        dictionary.bytes().len() <= dictionary::DICTIONARY_MAX && dictionary.memory() < 128 << 10
    );
    let again = Dictionary::load(dictionary.bytes().to_vec()).expect("its own bytes");
    let (mut packer, ws) = (
        dictionary.packer().expect("memory"),
        &mut narrows_core::Workspace::default(),
    );
    let mut out = vec![0; 4096];
    for page in &pages {
        let len = packer.pack(page, &mut out).expect("it fits");
        let mut back = vec![0; page.len()];
        assert_eq!(again.unpack(&out[..len], &mut back, ws), Ok(()));
        assert!(back == *page);
        assert!(again.unpack(&out[..len - 1], &mut back, ws).is_err());
        assert!(again.unpack(&out[..len], &mut back[1..], ws).is_err());
        assert_eq!(packer.pack(page, &mut vec![0; len - 1]), None);
    }
}

#[test]
fn a_dictionary_that_does_not_pay_is_not_kept() {
    let mut state = 1u64;
    let mut noise = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    let pages: Vec<Vec<u8>> = (0..64)
        .map(|_| (0..4096).map(|_| noise()).collect())
        .collect();
    let samples: Vec<&[u8]> = pages.iter().map(Vec::as_slice).collect();
    assert!(Dictionary::train(&samples, |page| page.len()).is_none());
    assert!(Dictionary::train(&[], |page| page.len()).is_none());
}

// Goal: the shipped table file is what the format says. Method: every kind of it, alone.
#[test]
fn the_shipped_codes_are_complete() {
    let bytes = include_bytes!("kinds.bin");
    assert!(bytes.len() <= 64 << 10);
    let kinds = read_file(bytes).expect("a kinds.bin");
    assert_eq!(kinds.len(), 2 * KINDS);
    for (i, kind) in kinds.iter().enumerate() {
        assert!(Ready::new(kind).is_some(), "kind {i}");
        assert!(
            kind.literal_lens
                .iter()
                .flatten()
                .all(|&len| (1..=LITERAL_LEN_MAX).contains(&len))
        );
        assert!(
            kind.token_lens
                .iter()
                .all(|&len| (1..=TOKEN_LEN_MAX).contains(&len))
        );
    }
    let mut written =
        bytes[..=bytes.iter().position(|&byte| byte == 0).expect("a header")].to_vec();
    kinds.iter().for_each(|kind| kind.write(&mut written));
    assert_eq!(written, bytes);
}

#[test]
fn broken_table_files_are_refused() {
    let bytes = include_bytes!("kinds.bin");
    assert!(read_file(&bytes[..bytes.len() - 1]).is_none());
    assert!(read_file(&[bytes, &[0][..]].concat()).is_none());
    assert!(read_file(b"no end of header").is_none());
    let kinds = read_file(bytes).expect("a kinds.bin");
    let mut kind = kinds[0].clone();
    kind.token_lens[0] = 0;
    assert!(Ready::new(&kind).is_none());
    let mut kind = kinds[0].clone();
    kind.literal_lens[3][65] ^= 1;
    assert!(Ready::new(&kind).is_none());
    let mut kind = kinds[0].clone();
    kind.context_of[9] = CONTEXTS as u8;
    assert!(Ready::new(&kind).is_none());
}

// Goal: the trainer needs no more than pages. Method: train on text, and see that each kind it makes is complete.
#[test]
fn training_makes_a_table_file() {
    let clusters: Vec<Vec<u8>> = (0..8).map(|seed| prose(PAGE_MAX, seed)).collect();
    let file = train::train("test", &clusters);
    let kinds = read_file(&file).expect("a kinds.bin");
    assert!(kinds.iter().all(|kind| Ready::new(kind).is_some()));
}

#[test]
fn every_token_means_what_it_was_made_of() {
    for token in 0..TOKENS {
        let meaning = meaning(token);
        // Multiples of 8 are never in the classes of all offsets, so those are tried with an odd one.
        let odd = |bits: u8, shift: u8| u16::from(bits > 2 && shift == 0);
        let offset = meaning.offset.map_or(OFFSET_FIRST, |(bits, shift)| {
            (1 << bits | odd(bits, shift)) << shift
        });
        let made = Match {
            literals: meaning.literals.0,
            len: meaning.len.0,
            offset,
        };
        let before = if meaning.offset.is_none() { offset } else { 0 };
        assert_eq!(usize::from(made.coded(before).token), token);
        assert_eq!(
            made.coded(before).extra.count_ones(),
            meaning
                .offset
                .map_or(0, |(bits, shift)| odd(bits, shift).into())
        );
    }
}

#[test]
fn the_finder_takes_what_the_hash_of_the_last_position_reads() {
    // Positions near the end of the longest page read into the slack; the assertions of debug builds watch.
    let mut finder = Finder::default();
    for len in PAGE_MAX - 70..=PAGE_MAX {
        finder.load(&prose(len, 3));
        finder.search_plain(len);
        finder.search(len);
    }
    let mut block = hash::Block::default();
    hash::Plain::hash(finder.page(), PAGE_MAX - 1, &mut block);
}

// Goal: pages stored by this version stay readable. The files in compat/ are never edited; new ones are added.
#[test]
fn golden_pages_unpack() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../compat/lzt");
    for (i, (name, page)) in golden().into_iter().enumerate() {
        let path = dir.join(name);
        if !path.exists() {
            assert!(
                std::env::var_os("NARROWS_MAKE_GOLDEN").is_some(),
                "no golden page {name}; see compat/README.md"
            );
            fs::write(
                &path,
                packed(PACKS[i % 2], &page, &mut Workspace::default()),
            )
            .expect("a file");
        }
        let mut back = vec![0; page.len()];
        let stored = fs::read(path).expect("golden files are readable");
        assert_eq!(unpack(&stored, &mut back), Ok(()), "{name}");
        assert!(back == page, "{name}");
    }
}

fn golden() -> [(&'static str, Vec<u8>); 4] {
    let mut noisy = prose(4096, 11);
    noisy
        .iter_mut()
        .step_by(3)
        .enumerate()
        .for_each(|(i, byte)| *byte = (i * i / 7) as u8);
    [
        ("text.page", prose(4096, 1)),
        ("noisy.page", noisy),
        ("cluster.page", prose(PAGE_MAX, 2)),
        (
            "run.page",
            (0..4096u32).map(|i| (i % 24 * (i % 24)) as u8).collect(),
        ),
    ]
}
