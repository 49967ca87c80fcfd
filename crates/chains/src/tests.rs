//! Every chain on every kind of page, and hostile bytes.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
    time::Duration,
};

use narrows_core::Workspace;
use narrows_testkit::data::{KINDS, Kind, Random, make};
use proptest::prelude::*;

use crate::{
    Chain, Chains, Limit, PAGE, PageError, PagePacker, Profile,
    chain::{self, Scratch},
    simd, simulated,
    step::{BETWEEN_MAX, Side, SideReader},
    steps,
};

fn pages() -> Vec<[u8; PAGE]> {
    let kinds = KINDS
        .iter()
        .flat_map(|&kind| make(kind, 3 * PAGE, 7).as_chunks::<PAGE>().0.to_vec());
    kinds.collect()
}

fn round_trip(chain: &Chain, page: &[u8; PAGE], scratch: &mut Scratch) -> Option<usize> {
    let mut packed = [0; 2 * PAGE];
    let len = chain.pack(page, &mut packed, scratch)?;
    let mut back = [0xa5; PAGE];
    chain::unpack(&packed[..len], &mut back, scratch)
        .unwrap_or_else(|fault| panic!("{chain}: {fault}"));
    assert!(back == *page, "{chain}");
    Some(len)
}

#[test]
fn every_chain_gives_every_page_back() {
    let scratch = &mut Scratch::default();
    for page in pages() {
        for chain in Chain::builtins() {
            round_trip(chain, &page, scratch);
        }
    }
}

// Goal: in a hurry zstd leaves out the code of literals now and then where it saves little, and nowhere else. Method:
// lengths of one page packed over and over: of long matches between literals of most values, and of words.
#[test]
fn hasty_zstd_stores_every_third_pages_few_literals() {
    let mut random = Random(3);
    let mut few = [0; PAGE];
    for (at, byte) in few.iter_mut().enumerate() {
        // 96 values: coded, such a literal takes 6.6 bits.
        *byte = if at % 8 == 0 {
            0x80 + random.below(96) as u8
        } else {
            (at % 8) as u8
        };
    }
    let text: [u8; PAGE] = make(Kind::Text, PAGE, 7).try_into().expect("a page");
    for name in ["zstd", "zstdl"] {
        let chain = Chain::parse(name).expect("a chain");
        let (hasty, own) = (&mut Scratch::hasty(), &mut Scratch::default());
        let lens = |page, scratch: &mut Scratch| -> Vec<_> {
            (0..6).map(|_| round_trip(&chain, page, scratch)).collect()
        };
        let found = lens(&few, hasty);
        assert!(
            found[0] == found[1] && found[1] < found[2] && found[..3] == found[3..],
            "{name}: {found:?}"
        );
        for (page, is_hasty) in [(&text, true), (&text, false), (&few, false)] {
            let lens = lens(page, if is_hasty { hasty } else { own });
            assert!(lens.iter().all(|len| *len == lens[0]), "{name}: {lens:?}");
        }
    }
}

// Goal: a chain that came to be the last winner does not stay where another packs ten times as short. Method: pages of
// a solver's memory, of which those taken made `fast` stay at packed differences of 4 bytes; 14 before probes tried
// others.
#[test]
fn doubles_that_hardly_change_are_packed_by_their_differences() {
    let bytes = simulated::named("hpcg:40:8").expect("a generator");
    let pages: Vec<&[u8; PAGE]> = bytes
        .as_chunks()
        .0
        .iter()
        .filter(|page: &&[u8; PAGE]| page[..PAGE - 8] != page[8..])
        .collect();
    let (run, out) = (256, &mut [0; PAGE]);
    let apart = (pages.len() - run) / 15;
    let mut packer = PagePacker::new(Profile::Fast);
    let taken = (0..16).flat_map(|n| &pages[n * apart..][..run]);
    let packed: usize = taken
        .map(|page| packer.pack(page, out).unwrap_or(PAGE))
        .sum();
    assert!(
        16 * run * PAGE > 20 * packed,
        "{}",
        (16 * run * PAGE) as f64 / packed as f64
    );
}

// Goal: whoever takes more time than `fast` packs no longer. Method: a relaxation half way, whose pages hold words of
// few bits beside words of many: there coded lengths are longer than blocks of bits; 1.47, 1.47 and 1.81 to 1.87 before
// those were tried.
#[test]
fn pages_of_two_minds_are_packed_in_blocks_by_slower_profiles_too() {
    let bytes = simulated::named("jacobi:borders:300:100").expect("a generator");
    let out = &mut [0; PAGE];
    let [fast, rest @ ..] = [
        Profile::Fast,
        Profile::Dense,
        Profile::Balanced,
        Profile::Ratio,
    ]
    .map(|profile| {
        let mut packer = PagePacker::new(profile);
        bytes
            .as_chunks()
            .0
            .iter()
            .map(|page| packer.pack(page, out).unwrap_or(PAGE))
            .sum::<usize>()
    });
    assert!(rest.iter().all(|&len| len < fast), "{fast} {rest:?}");
}

// Goal: a fused stage is only a faster way to the same bytes. Method: one step after the other, as specified.
#[test]
fn fused_stages_write_what_their_steps_write() {
    let scratch = &mut Scratch::default();
    for page in pages() {
        for chain in Chain::builtins() {
            let (mut one, mut other) = ([0; 2 * PAGE], [0; 2 * PAGE]);
            let len = chain.pack(&page, &mut one, scratch);
            assert_eq!(
                len,
                chain.unfused().pack(&page, &mut other, scratch),
                "{chain}"
            );
            assert!(
                one[..len.unwrap_or(0)] == other[..len.unwrap_or(0)],
                "{chain}"
            );
        }
    }
}

#[test]
fn names_and_numbers_are_each_of_one_step() {
    for step in steps::all() {
        assert_eq!(steps::by_id(step.id()).expect("listed").name(), step.name());
        assert_eq!(steps::by_name(step.name()).expect("listed").id(), step.id());
    }
}

// Goal: a second implementation can be written from the specification. Method: every number and name is in it.
#[test]
fn the_specification_has_every_chain_and_step() {
    let text = include_str!("../../../docs/specs/chain.md");
    for (number, chain) in Chain::builtins().iter().enumerate() {
        assert!(
            text.contains(&format!("| {number} `{chain}` |")),
            "{number} {chain}"
        );
    }
    for step in steps::all() {
        assert!(
            text.contains(&format!("`{}`", step.name())),
            "{}",
            step.name()
        );
    }
}

#[test]
fn a_page_unpacks_after_its_chain_was_removed() {
    let chains = Chains::default();
    chains.set("dk8-zz8-deflate").expect("known steps");
    let mut packer = PagePacker::with(Profile::Ratio, Limit::default(), chains.clone());
    let page: &[u8; PAGE] = &make(narrows_testkit::data::Kind::Doubles, PAGE, 1)
        .try_into()
        .expect("a page");
    let mut packed = [0; PAGE];
    let len = packer
        .pack(page, &mut packed)
        .expect("a smooth curve packs");
    chains.add("lz4").expect("known step");
    chains.remove("dk8-zz8-deflate").expect("it is there");
    let mut back = [0; PAGE];
    packer
        .unpack(&packed[..len], &mut back)
        .expect("the page names its steps");
    assert!(back == *page);
    assert_ne!(packer.pack(page, &mut packed), Some(len));
}

// Goal: what is packed with vector instructions is what is packed without, and either unpacks the other's. Method:
// every built-in chain on pages of every kind, twice.
#[test]
fn vectors_write_what_scalars_write() {
    let scratch = &mut Scratch::default();
    for page in pages() {
        for chain in Chain::builtins() {
            let (mut one, mut other) = ([0; 2 * PAGE], [0; 2 * PAGE]);
            let len = chain.pack(&page, &mut one, scratch);
            assert_eq!(
                len,
                simd::portable(|| chain.pack(&page, &mut other, scratch)),
                "{chain}"
            );
            let len = len.unwrap_or(0);
            assert!(one[..len] == other[..len], "{chain}");
            let (mut back, mut back_portable) = ([0; PAGE], [1; PAGE]);
            if len > 0 {
                chain::unpack(&one[..len], &mut back, scratch).expect("it was packed");
                simd::portable(|| chain::unpack(&one[..len], &mut back_portable, scratch))
                    .expect("it was packed");
                assert!(back == page && back_portable == page, "{chain}");
            }
        }
        let look = crate::select::look(&page);
        assert_eq!(look, simd::portable(|| crate::select::look(&page)));
        assert_eq!(
            crate::select::is_noise(&page),
            simd::portable(|| crate::select::is_noise(&page))
        );
    }
}

// Goal: a limit holds from the moment it is set, whoever packs. Method: one thread moves it, two pack, and between two
// looks at it that agree no page may be longer.
#[test]
fn the_limit_may_change_while_others_pack() {
    let limit = Limit::default();
    let pages = pages();
    // Odd while the limit is being moved.
    let moves = AtomicU64::new(0);
    thread::scope(|scope| {
        let packing = [Profile::Fast, Profile::Balanced].map(|profile| {
            let (limit, pages, moves) = (limit.clone(), &pages, &moves);
            scope.spawn(move || {
                let mut packer = PagePacker::with(profile, limit.clone(), Chains::default());
                let mut packed = [0; PAGE];
                for page in pages.iter().cycle().take(3000) {
                    let (moved, before) = (moves.load(SeqCst), limit.bytes());
                    let Some(len) = packer.pack(page, &mut packed) else {
                        continue;
                    };
                    let same = moved.is_multiple_of(2) && moves.load(SeqCst) == moved;
                    assert!(len <= if same { before } else { 3264 }, "{len} bytes");
                    let mut back = [0; PAGE];
                    packer
                        .unpack(&packed[..len], &mut back)
                        .expect("it was packed");
                    assert!(back == *page);
                }
            })
        });
        let mut random = Random(5);
        while packing.iter().any(|thread| !thread.is_finished()) {
            moves.fetch_add(1, SeqCst);
            limit.set(if random.below(2) == 0 { 3264 } else { 600 });
            moves.fetch_add(1, SeqCst);
            thread::sleep(Duration::from_micros(100));
        }
    });
    limit.set(600);
    let mut packer = PagePacker::with(Profile::Ratio, limit, Chains::default());
    let mut packed = [0; PAGE];
    assert!(
        pages
            .iter()
            .all(|page| packer.pack(page, &mut packed).is_none_or(|len| len <= 600))
    );
}

// Goal: `Dense` is `Fast` but for its coder of numbers. Method: the chains that both take on every kind of page.
#[test]
fn the_dense_profile_codes_the_numbers_that_the_fast_one_packs() {
    let taken = |profile| -> Vec<String> {
        let first = |page: &[u8; PAGE]| {
            let number = crate::select::promising(profile, &crate::select::look(page))
                .next()
                .expect("a chain");
            Chain::builtins()[usize::from(number)].to_string()
        };
        pages().iter().map(first).collect()
    };
    let (fast, dense) = (taken(Profile::Fast), taken(Profile::Dense));
    assert!(fast != dense);
    assert!(
        fast.iter()
            .zip(&dense)
            .all(|(fast, dense)| fast.replace("-pk", "-ce") == *dense),
        "{fast:?} {dense:?}"
    );
}

#[test]
fn noise_is_refused_and_nothing_else_is() {
    for page in make(Kind::Random, 64 * PAGE, 11).as_chunks::<PAGE>().0 {
        assert!(crate::select::is_noise(page));
    }
    let scratch = &mut Scratch::default();
    let lz4 = Chain::parse("lz4").expect("known step");
    for page in pages().iter().filter(|page| crate::select::is_noise(page)) {
        assert!(lz4.pack(page, &mut [0; 3264], scratch).is_none());
    }
}

/// Pages without a sign that noise is looked through for, and each of which LZ packs to half.
#[test]
fn far_repeats_of_noise_are_found_by_ratio() {
    let noise = make(Kind::Random, 16 * PAGE, 12);
    let mut packer = PagePacker::new(Profile::Ratio);
    for half in noise.chunks_exact(2045) {
        let mut page = [0; PAGE];
        page.iter_mut()
            .zip(half.iter().cycle())
            .for_each(|(to, byte)| *to = *byte);
        assert!(crate::select::is_noise(&page));
        assert!(
            packer
                .pack(&page, &mut [0; PAGE])
                .is_some_and(|len| len < 2200)
        );
    }
    for page in noise.as_chunks::<PAGE>().0 {
        assert!(crate::select::has_no_repeats(page));
    }
}

/// A page made of stretches of different nature: noise, runs, counters, text, copies of what came before.
fn patchwork(random: &mut Random) -> [u8; PAGE] {
    let mut page = [0; PAGE];
    let mut at = 0;
    while at < PAGE {
        let most = 1 << (1 + random.below(12));
        let end = PAGE.min(at + 1 + random.below(most));
        let kind = random.below(KINDS.len() + 2);
        let stretch = &mut page[at..end];
        if kind < KINDS.len() {
            stretch.copy_from_slice(&make(KINDS[kind], stretch.len(), random.next_u64()));
        } else if kind == KINDS.len() {
            stretch.fill(random.below(256) as u8);
        } else if at > 0 {
            let from = random.below(at);
            (at..end).for_each(|n| page[n] = page[from + (n - at) % (at - from)]);
        }
        at = end;
    }
    page
}

/// A chain of any steps.
fn any_chain(random: &mut Random) -> Chain {
    let names: Vec<&str> = steps::all().map(|step| step.name()).collect();
    let list: Vec<&str> = (0..=random.below(7))
        .map(|_| names[random.below(names.len())])
        .collect();
    Chain::parse(&list.join("-")).expect("known steps, at most 7")
}

fn random_round_trips(count: usize, seed: u64) {
    let scratch = &mut Scratch::default();
    let random = &mut Random(seed);
    let mut page = [0; PAGE];
    for n in 0..count {
        if n % 8 == 0 {
            page = patchwork(random);
        } else {
            page[random.below(PAGE)] = random.below(256) as u8;
        }
        let chain = match random.below(2) {
            0 => Chain::builtins()[random.below(Chain::builtins().len())],
            _ => any_chain(random),
        };
        round_trip(&chain, &page, scratch);
    }
}

// NARROWS_ROUND_TRIPS and NARROWS_SEED set another number of them and other pages: ten million take minutes in a
// release build.
#[test]
fn random_pages_come_back_from_random_chains() {
    let number = |name, default| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
            .unwrap_or(default)
    };
    let (count, seed) = (
        number("NARROWS_ROUND_TRIPS", 2000) as usize,
        number("NARROWS_SEED", 1),
    );
    thread::scope(|scope| {
        for seed in [2 * seed, 2 * seed + 1] {
            scope.spawn(move || random_round_trips(count.div_ceil(2), seed));
        }
    });
    println!("{count} round trips of pages, {} bytes", count * PAGE);
}

// Goal: pages stored by this version stay readable. The files in compat/ are never edited; new ones are added.
#[test]
fn golden_pages_unpack() {
    let scratch = &mut Scratch::default();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../compat/chains");
    for (name, kind) in GOLDEN {
        let page: [u8; PAGE] = make(kind, PAGE, 1).try_into().expect("a page");
        let path = dir.join(format!("{name}.page"));
        if !path.exists() {
            assert!(
                std::env::var_os("NARROWS_MAKE_GOLDEN").is_some(),
                "no golden page {name}; see compat/README.md"
            );
            let mut packed = [0; 2 * PAGE];
            let len = Chain::parse(name)
                .expect("known steps")
                .pack(&page, &mut packed, scratch)
                .expect("it packs");
            fs::write(&path, &packed[..len]).expect("a file");
        }
        let mut back = [0; PAGE];
        chain::unpack(
            &fs::read(path).expect("golden files are readable"),
            &mut back,
            scratch,
        )
        .expect("a golden page");
        assert!(back == page, "{name}");
    }
}

const GOLDEN: [(&str, Kind); 17] = [
    ("po8-zz8-ce8", Kind::Doubles),
    ("numq-deflate", Kind::Table),
    ("numq-lzts", Kind::Table),
    ("num-deflate", Kind::Table),
    ("num-lzts", Kind::Table),
    ("im1-deflate", Kind::Pixels),
    ("im2-zz2-ce2", Kind::Pixels),
    ("im4-zz4-ce4", Kind::Pixels),
    ("dk8-zz8-ce8", Kind::Doubles),
    ("dk4-zz4-pk4", Kind::Counters),
    ("lag4-zz4-ce4", Kind::Counters),
    ("mk4-dk4-zz4-ce4", Kind::Sparse),
    ("ex4", Kind::Floats),
    ("fm4-t4-zstd", Kind::Floats),
    ("sw4-bt-deflate", Kind::Counters),
    ("lzt", Kind::Text),
    ("zstdl", Kind::Text),
];

proptest! {
    #[test]
    fn every_step_gives_any_bytes_back(seed in any::<u64>(), len in 1..=BETWEEN_MAX) {
        let mut random = Random(seed);
        let raw: Vec<u8> = std::iter::repeat_with(|| patchwork(&mut random)).take(2).flatten().take(len).collect();
        let (mut packed, mut back) = (vec![0; BETWEEN_MAX], vec![0xa5; len]);
        let ws = &mut Workspace::default();
        for step in steps::all() {
            let mut side = Side::default();
            let Some(packed_len) = step.pack(&raw, &mut packed, &mut side, ws) else { continue };
            prop_assert!(!step.keeps_length() || packed_len == len, "{}", step.name());
            prop_assert!(step.has_side() || side.bytes().is_empty(), "{}", step.name());
            let mut reader = SideReader(side.bytes());
            step.unpack(&packed[..packed_len], &mut reader, &mut back, ws).unwrap_or_else(|fault| panic!("{}: {fault}", step.name()));
            prop_assert!(reader.0.is_empty() && back == raw, "{}", step.name());
        }
    }

    #[test]
    fn every_step_takes_hostile_bytes(
        packed in proptest::collection::vec(any::<u8>(), 0..1500),
        side in proptest::collection::vec(any::<u8>(), 0..200),
        len in 0..=BETWEEN_MAX
    ) {
        let ws = &mut Workspace::default();
        for step in steps::all() {
            let unpack = |fill: u8, ws: &mut Workspace| -> Result<Vec<u8>, PageError> {
                let mut out = vec![fill; len];
                step.unpack(&packed, &mut SideReader(&side), &mut out, ws)?;
                Ok(out)
            };
            // Written whole, or refused.
            prop_assert!(unpack(0, ws) == unpack(0xff, ws), "{}", step.name());
        }
    }

    #[test]
    fn hostile_bytes_are_refused_or_make_some_page(
        packed in proptest::collection::vec(any::<u8>(), 0..600), head in 0u8..=255
    ) {
        let scratch = &mut Scratch::default();
        let mut page = [0; PAGE];
        let _ = chain::unpack(&packed, &mut page, scratch);
        let mut packed = packed;
        packed.insert(0, head % Chain::builtins().len() as u8);
        let _ = chain::unpack(&packed, &mut page, scratch);
    }
}

// Goal: a flipped bit of a packed page does no harm beyond the page. Method: 40 bits of every kind of page under every
// chain. What becomes of the page is counted, not promised: whoever stores pages has a checksum.
#[test]
fn every_flipped_bit_is_refused_or_makes_some_page() {
    let scratch = &mut Scratch::default();
    let mut random = Random(3);
    let (mut refused, mut another, mut same) = (0, 0, 0);
    for page in pages() {
        for chain in Chain::builtins() {
            let mut packed = [0; 2 * PAGE];
            let Some(len) = chain.pack(&page, &mut packed, scratch) else {
                continue;
            };
            for _ in 0..40 {
                let bit = random.below(8 * len);
                packed[bit / 8] ^= 1 << (bit % 8);
                let mut back = [0; PAGE];
                match chain::unpack(&packed[..len], &mut back, scratch) {
                    Err(_) => refused += 1,
                    Ok(()) if back == page => same += 1,
                    Ok(()) => another += 1,
                }
                packed[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
    println!("flipped bits: {refused} refused, {another} made another page, {same} the same");
    assert!(refused > 0 && another > same);
}
