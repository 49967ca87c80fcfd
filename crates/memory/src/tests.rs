//! The store against a plain array, under limits, from many threads.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use narrows_chains::{Chains, PAGE};
use narrows_core::{
    BlockDevice, BlockError,
    block::{Extent, Zeroing},
};
use narrows_io::helper_pool::HelperPool;
use proptest::prelude::*;

use crate::{
    Backing, Budget, Profile, RecompressorConfig, Store, StoreConfig,
    recompressor::{self, Round},
};

fn store(size: u64, limit: Option<u64>, backing: Option<Backing>) -> Store {
    let config = StoreConfig {
        size,
        profile: Profile::Fast,
        chains: Chains::default(),
        budget: Arc::new(Budget::new(limit)),
        backing: backing.map(Arc::new),
        helpers: Arc::new(HelperPool::new("crew", 2).unwrap()),
    };
    Store::new(config).unwrap()
}

#[test]
fn a_device_of_any_size_is_made_or_refused() {
    let budget = Arc::new(Budget::new(None));
    for size in [1 << 46, 1 << 50, 1 << 60, u64::MAX] {
        let helpers = Arc::new(HelperPool::new("crew", 0).unwrap());
        let (profile, chains) = (Profile::Fast, Chains::default());
        let made = Store::new(StoreConfig {
            size,
            profile,
            chains,
            budget: budget.clone(),
            backing: None,
            helpers,
        });
        assert!(made.is_err() || size == 1 << 46, "{size}");
        drop(made);
        assert_eq!(budget.used(), 0, "{size}");
    }
}

fn keeper() -> RecompressorConfig {
    RecompressorConfig {
        idle_after: Duration::from_secs(1),
        recompress: true,
        chains: Chains::default(),
    }
}

/// Bytes of a kind: zeroes, one word, text, numbers, noise.
fn content(kind: u8, seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    match kind {
        0 => vec![0; len],
        1 => next().to_le_bytes().into_iter().cycle().take(len).collect(),
        2 => {
            const WORDS: [&str; 8] = [
                "the ", "page ", "is ", "packed ", "and ", "kept ", "until ", "wanted ",
            ];
            let mut text = Vec::with_capacity(len + 8);
            while text.len() < len {
                text.extend_from_slice(WORDS[next() as usize % 8].as_bytes());
            }
            text.truncate(len);
            text
        }
        3 => (0..len as u64)
            .flat_map(|i| (seed + i * 3 + i * i / 50).to_le_bytes())
            .take(len)
            .collect(),
        _ => (0..len.div_ceil(8))
            .flat_map(|_| next().to_le_bytes())
            .take(len)
            .collect(),
    }
}

#[derive(Debug, Clone)]
enum Op {
    Write {
        at: u64,
        len: usize,
        kind: u8,
        seed: u64,
    },
    Trim {
        at: u64,
        len: u64,
    },
    Zero {
        at: u64,
        len: u64,
        keep: bool,
    },
    Read {
        at: u64,
        len: usize,
    },
    Extents {
        at: u64,
        len: u64,
        max: usize,
    },
    Keep,
}

const SIZE: u64 = 61 * PAGE as u64 + 1234;

fn op() -> impl Strategy<Value = Op> {
    // Half of the requests are of whole pages, as file systems make them.
    let range = (any::<bool>(), 0..SIZE, 1..40_000_u64).prop_map(|(whole, at, len)| {
        let (at, len) = if whole {
            (at & !4095, (len | 4095) + 1)
        } else {
            (at, len)
        };
        (at, len.min(SIZE - at))
    });
    (0..16_u8, range, 0..5_u8, any::<u64>()).prop_map(|(op, (at, len), kind, seed)| match op {
        0..7 => Op::Write {
            at,
            len: len as usize,
            kind,
            seed: seed >> 8,
        },
        7 => Op::Trim { at, len },
        8 => Op::Zero {
            at,
            len,
            keep: seed % 2 == 0,
        },
        9..12 => Op::Read {
            at,
            len: len as usize,
        },
        12 => Op::Extents {
            at,
            len,
            max: 1 + seed as usize % 5,
        },
        _ => Op::Keep,
    })
}

fn run(store: &Store, ops: Vec<Op>) -> Result<(), TestCaseError> {
    let mut model = vec![0_u8; SIZE as usize];
    let mut out = vec![0_u8; SIZE as usize];
    for op in ops {
        match op {
            Op::Write {
                at,
                len,
                kind,
                seed,
            } => {
                let data = content(kind, seed, len);
                store.write(at, &data, false).unwrap();
                model[at as usize..][..len].copy_from_slice(&data);
            }
            Op::Trim { at, len } => {
                store.trim(at, len, false).unwrap();
                let last = if at + len == SIZE {
                    SIZE
                } else {
                    (at + len) / 4096 * 4096
                };
                let range = at.div_ceil(4096) * 4096..last;
                if range.start < range.end {
                    model[range.start as usize..range.end as usize].fill(0);
                }
            }
            Op::Zero { at, len, keep } => {
                store
                    .write_zeroes(
                        at,
                        len,
                        Zeroing {
                            keep_allocated: keep,
                            fast_only: false,
                        },
                        false,
                    )
                    .unwrap();
                model[at as usize..][..len as usize].fill(0);
            }
            Op::Read { at, len } => {
                store.read(at, &mut out[..len]).unwrap();
                prop_assert!(
                    out[..len] == model[at as usize..][..len],
                    "read of {len} at {at}"
                );
            }
            Op::Extents { at, len, max } => {
                let mut found: Vec<Extent> = Vec::new();
                store.extents(at, len, max, &mut found).unwrap();
                prop_assert!((1..=max).contains(&found.len()));
                let mut at = at as usize;
                for extent in &found {
                    let bytes = &model[at..][..extent.len as usize];
                    prop_assert!(!extent.zero || bytes.iter().all(|&byte| byte == 0));
                    prop_assert!(extent.zero || !extent.hole);
                    at += extent.len as usize;
                }
                prop_assert!(
                    found
                        .windows(2)
                        .all(|two| (two[0].hole, two[0].zero) != (two[1].hole, two[1].zero))
                );
            }
            Op::Keep => {
                recompressor::round(store, &keeper());
            }
        }
    }
    store.read(0, &mut out).unwrap();
    prop_assert!(out == model, "all of it");
    store.trim(0, SIZE, false).unwrap();
    let stat = store.stat();
    prop_assert_eq!(stat.mm_stat.orig_data_size, 0);
    prop_assert_eq!(stat.mm_stat.compr_data_size, 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn store_reads_back_what_an_array_would(ops in prop::collection::vec(op(), 1..60)) {
        run(&store(SIZE, None, None), ops)?;
    }

    /// With so little memory that most pages go to the file.
    #[test]
    fn store_with_a_backing_file_does_too(ops in prop::collection::vec(op(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let backing = Backing::open(&dir.path().join("backing"), None).unwrap();
        // A slot table takes a frame in each shard.
        let store = store(SIZE, Some(96 << 10), Some(backing));
        run(&store, ops)?;
    }
}

#[test]
fn cold_text_becomes_clusters_and_comes_back_by_reads_and_writes() {
    let store = store(1 << 20, None, None);
    // Passages of 6 KiB over and over: what a page repeats lies in its neighbours.
    let passages = (0..64).flat_map(|seed| {
        content(2, seed, 6 << 10)
            .into_iter()
            .cycle()
            .take(16 << 10)
            .collect::<Vec<_>>()
    });
    let text: Vec<u8> = passages.collect();
    store.write(0, &text, false).unwrap();
    let fresh = store.stat();
    assert_eq!(
        recompressor::round(&store, &keeper()).repacked,
        0,
        "what was just written is not cold"
    );
    let round = recompressor::round(&store, &keeper());
    assert!(round.clusters > 0, "{round:?}");
    let cold = store.stat();
    assert!(
        cold.mm_stat.compr_data_size < fresh.mm_stat.compr_data_size * 7 / 8,
        "{cold:?}"
    );
    assert_eq!(cold.tiers.cluster.pages, round.clusters * 4);
    let mut out = vec![0; text.len()];
    store.read(0, &mut out).unwrap();
    assert!(out == text);
    // One byte takes one cluster apart.
    store.write(5, b"!", false).unwrap();
    assert_eq!(store.stat().tiers.cluster.pages, round.clusters * 4 - 4);
    store.read(0, &mut out).unwrap();
    assert!(out[..5] == text[..5] && out[5] == b'!' && out[6..] == text[6..]);
}

// Goal: a group is tried as a cluster as soon as all of it is cold, whichever page was the last. Method: a page that is
// packed as hard as can be is read before the others are.
#[test]
fn a_group_whose_last_page_only_rested_becomes_a_cluster() {
    let store = store(1 << 20, None, None);
    let text: Vec<u8> = content(2, 1, 6 << 10)
        .into_iter()
        .cycle()
        .take(4 * PAGE)
        .collect();
    store.write(0, &text, false).unwrap();
    let mut out = vec![0; PAGE];
    recompressor::round(&store, &keeper());
    let mut clusters = Vec::new();
    for read in [Some(0), Some(1), None, None] {
        if let Some(page) = read {
            store.read(page * PAGE as u64, &mut out).unwrap();
        }
        clusters.push(recompressor::round(&store, &keeper()).clusters);
    }
    assert_eq!(clusters, [0, 0, 1, 0]);
}

#[test]
fn pages_that_make_no_cluster_are_not_tried_again_until_one_is_written() {
    let store = store(1 << 20, None, None);
    // Half noise, half text: nothing of one is in another.
    let page = |seed| [content(4, seed, PAGE / 2), content(2, seed, PAGE / 2)].concat();
    store
        .write(0, &(1..5).flat_map(page).collect::<Vec<u8>>(), false)
        .unwrap();
    let apart = || {
        let slots = store
            .shards()
            .iter()
            .map(|shard| shard.lock().slot(0).is_apart());
        slots.filter(|apart| *apart).count()
    };
    recompressor::round(&store, &keeper());
    assert_eq!(apart(), 0);
    recompressor::round(&store, &keeper());
    assert_eq!((apart(), store.stat().tiers.packed.pages), (1, 4));
    store.read(0, &mut [0; PAGE]).unwrap();
    assert_eq!(apart(), 1);
    store.write(0, &page(5), false).unwrap();
    assert_eq!(apart(), 0);
}

// Goal: where no slab has room, packing cold pages again saves what it saves elsewhere. Method: no four neighbours, so
// that there are no clusters; pages of ever shorter noise fill what room there is.
#[test]
fn pages_packed_again_without_room_elsewhere_become_smaller_where_they_are() {
    let saved = |full: bool| {
        let store = store(32 << 20, Some(64 << 20), None);
        let at = |page: u64| page * PAGE as u64;
        let pages: Vec<(u64, Vec<u8>)> = (0..2048)
            .step_by(2)
            .map(|page| (at(page), content(2, page, PAGE)))
            .collect();
        for (at, page) in &pages {
            store.write(*at, page, false).unwrap();
        }
        while full && store.budget().take(1) {}
        let mut fillers = (2048..8192).step_by(2).take(if full { 3000 } else { 0 });
        for len in [4096, 2048, 1024, 512, 256, 128, 64, 32] {
            let filler = |page| [content(4, page, len), vec![0; PAGE - len]].concat();
            while let Some(page) = fillers.next()
                && store.write(at(page), &filler(page), false).is_ok()
            {}
        }
        let before = store.stat().mm_stat.compr_data_size;
        recompressor::round(&store, &keeper());
        let round = recompressor::round(&store, &keeper());
        assert!(round.repacked > 900, "{round:?}");
        let mut out = vec![0; PAGE];
        for (at, page) in &pages {
            store.read(*at, &mut out).unwrap();
            assert!(out == *page, "page at {at}");
        }
        before - store.stat().mm_stat.compr_data_size
    };
    let (full, free) = (saved(true), saved(false));
    assert!(full >= free && free > 0, "{full} {free}");
}

/// Pages of records that every page has some of, in another order.
fn records(pages: usize) -> Vec<u8> {
    let records: Vec<Vec<u8>> = (0..200).map(|seed| content(4, seed, 48)).collect();
    let mut state = 1_u64;
    let mut next = || {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 40) as usize
    };
    let mut text = Vec::with_capacity(pages * PAGE + 64);
    while text.len() < pages * PAGE {
        text.extend_from_slice(&records[next() % records.len()]);
        text.extend_from_slice(format!("\nrecord {}\n", next() % 1000).as_bytes());
    }
    text.truncate(pages * PAGE);
    text
}

#[test]
fn a_store_learns_what_its_pages_share_and_forgets_it_with_them() {
    let budget = Arc::new(Budget::new(None));
    let config = StoreConfig {
        size: 16 << 20,
        profile: Profile::Fast,
        chains: Chains::default(),
        budget: budget.clone(),
        backing: None,
        helpers: Arc::new(HelperPool::new("crew", 0).unwrap()),
    };
    let store = Store::new(config).unwrap();
    let empty = budget.used();
    let text = records(2048);
    store.write(0, &text, false).unwrap();
    let fresh = store.stat();
    recompressor::round(&store, &keeper());
    let round = recompressor::round(&store, &keeper());
    assert!(round.primed > 1024, "{round:?}");
    let cold = store.stat();
    assert_eq!(cold.dictionaries.count, 1);
    assert!(cold.dictionaries.bytes > 0);
    assert!(
        cold.tiers.primed.pages + cold.tiers.cluster.pages > 1024,
        "{cold:?}"
    );
    assert!(
        cold.mm_stat.mem_used_total < fresh.mm_stat.mem_used_total / 2,
        "{cold:?}"
    );
    let mut out = vec![0; text.len()];
    store.read(0, &mut out).unwrap();
    assert!(out == text);

    // Pages are overwritten, in place and elsewhere, and a cluster taken apart; the dictionary stays for the others.
    for at in (0..text.len()).step_by(7 * PAGE) {
        store.write(at as u64, &text[at..at + 100], false).unwrap();
        store
            .write(at as u64 + 5 * PAGE as u64, &content(4, 9, 2 * PAGE), false)
            .unwrap();
        store
            .write(
                at as u64 + 5 * PAGE as u64,
                &text[(at + 5 * PAGE).min(text.len() - 2 * PAGE)..][..2 * PAGE],
                false,
            )
            .unwrap();
    }
    recompressor::round(&store, &keeper());
    assert_eq!(store.stat().dictionaries.count, 1);
    store.trim(0, 16 << 20, false).unwrap();
    recompressor::round(&store, &keeper());
    assert_eq!(store.stat().dictionaries.count, 0, "nobody needs it");
    let tables = store.shards().len() * PAGE;
    assert!(
        budget.used() <= empty + tables as u64,
        "each shard keeps its list of empty slabs"
    );
}

#[test]
fn a_store_without_memory_for_a_dictionary_goes_without() {
    let store = store(16 << 20, Some(64 << 20), None);
    let text = records(2048);
    store.write(0, &text, false).unwrap();
    while store.budget().take(1) {}
    recompressor::round(&store, &keeper());
    let round = recompressor::round(&store, &keeper());
    assert_eq!((round.primed, store.stat().dictionaries.count), (0, 0));
    let mut out = vec![0; text.len()];
    store.read(0, &mut out).unwrap();
    assert!(out == text);
}

#[test]
fn incompressible_pages_leave_for_the_backing_file_when_cold() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(
        4 << 20,
        None,
        Some(Backing::open(&dir.path().join("backing"), None).unwrap()),
    );
    let noise = content(4, 3, 4 << 20);
    store.write(0, &noise, false).unwrap();
    assert_eq!(store.stat().mm_stat.huge_pages, 1024);
    recompressor::round(&store, &keeper());
    let round = recompressor::round(&store, &keeper());
    assert_eq!(
        round,
        Round {
            written_back: 1024,
            ..round
        }
    );
    let stat = store.stat();
    assert_eq!((stat.bd_stat.bd_count, stat.mm_stat.huge_pages), (1024, 0));
    assert!(stat.mm_stat.mem_used_total <= 64 << 10, "{stat:?}");
    let mut out = vec![0; noise.len()];
    store.read(0, &mut out).unwrap();
    assert!(out == noise);
    store.write(0, &content(2, 1, 2 << 20), false).unwrap();
    assert_eq!(store.stat().bd_stat.bd_count, 512);
}

// Goal: a request that idle threads help with is what one thread would have made of it. Method: long ones, not at a
// page's boundary, from several threads at once, of what takes long to pack.
#[test]
fn long_requests_of_many_threads_are_whole() {
    const REGION: u64 = 1 << 20;
    let store = store(4 * REGION, None, None);
    thread::scope(|scope| {
        for own in 0..4 {
            let store = &store;
            scope.spawn(move || {
                let mut model = vec![0; REGION as usize];
                for turn in 0..40_u64 {
                    let at = (turn * 37_003 % (REGION - (132 << 10))) as usize;
                    let data = content((turn % 5) as u8, turn * 4 + own, (128 << 10) + 77);
                    store.write(own * REGION + at as u64, &data, false).unwrap();
                    model[at..at + data.len()].copy_from_slice(&data);
                    let mut out = vec![0; REGION as usize];
                    store.read(own * REGION, &mut out).unwrap();
                    assert!(out == model, "turn {turn} of {own}");
                }
            });
        }
    });
}

// Goal: at the limit, and on the way to it from many threads, every write that was acknowledged can be read.
#[test]
fn memory_limit_loses_nothing_that_was_acknowledged() {
    const THREADS: u64 = 4;
    const REGION: u64 = 4 << 20;
    let store = store(THREADS * REGION, Some(3 << 20), None);
    let refused = AtomicU64::new(0);
    thread::scope(|scope| {
        for own in 0..THREADS {
            let (store, refused) = (&store, &refused);
            scope.spawn(move || {
                let mut model = vec![0_u8; REGION as usize];
                let mut out = [0; PAGE];
                for turn in 0..6000_u64 {
                    let page = (turn.wrapping_mul(2_654_435_761) + own) % (REGION / PAGE as u64);
                    let at = page as usize * PAGE;
                    if turn % 97 == 0 {
                        store
                            .trim(own * REGION + at as u64, PAGE as u64, false)
                            .unwrap();
                        model[at..at + PAGE].fill(0);
                        continue;
                    }
                    let data = content((turn % 5) as u8, turn * THREADS + own, PAGE);
                    match store.write(own * REGION + at as u64, &data, false) {
                        Ok(()) => model[at..at + PAGE].copy_from_slice(&data),
                        Err(BlockError::NoSpace(words)) => {
                            assert!(words.contains("--mem-limit"), "{words}");
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(other) => panic!("{other}"),
                    }
                    let other =
                        (turn.wrapping_mul(40_503) % (REGION / PAGE as u64)) as usize * PAGE;
                    store.read(own * REGION + other as u64, &mut out).unwrap();
                    assert!(out == model[other..other + PAGE], "page {other} of {own}");
                }
                let mut all = vec![0; REGION as usize];
                store.read(own * REGION, &mut all).unwrap();
                assert!(all == model);
            });
        }
    });
    let stat = store.stat();
    assert!(
        refused.into_inner() > 100,
        "the limit was reached: {stat:?}"
    );
    assert!(stat.mm_stat.mem_used_max <= 3 << 20);
    assert!(
        stat.mm_stat.mem_used_max > 5 << 19,
        "and nearly all of it was used: {stat:?}"
    );
    // Trimming makes room again, all of it.
    store.trim(0, THREADS * REGION, false).unwrap();
    store.write(0, &content(4, 1, 2 << 20), false).unwrap();
}

// Goal: packing cold pages again never raises the memory used, in small stores least of all. Method: kinds of pages
// whose packed lengths spread wide, and pages trimmed here and there before.
#[test]
fn packing_cold_pages_again_takes_no_more_memory() {
    let text = |page: u64| content(2, page, PAGE);
    let numbers = |page: u64| content(3, page << (page % 40), PAGE);
    // A share of noise that differs from page to page, among text.
    let mixed = |page: u64| {
        let noise = (page * 97 % 3000) as usize;
        [content(4, page, noise), content(2, page, PAGE - noise)].concat()
    };
    let kinds: [&dyn Fn(u64) -> Vec<u8>; 3] = [&text, &numbers, &mixed];
    for (kind, page) in kinds.into_iter().enumerate() {
        for pages in [40, 400, 1600] {
            let store = store(64 << 20, None, None);
            let written: Vec<Vec<u8>> = (0..pages).map(page).collect();
            for (at, page) in written.iter().enumerate() {
                store.write((at * PAGE) as u64, page, false).unwrap();
            }
            // Every seventh goes, so that slabs have room to begin with.
            for at in (0..pages).step_by(7) {
                store.trim(at * PAGE as u64, PAGE as u64, false).unwrap();
            }
            let before = store.stat().mm_stat;
            let packed: u64 = (0..3)
                .map(|_| recompressor::round(&store, &keeper()).repacked)
                .sum();
            let after = store.stat().mm_stat;
            assert!(
                after.mem_used_total <= before.mem_used_total,
                "kind {kind}: {packed} packed, {before:?}, {after:?}"
            );
            // What is over is a sixteenth, and in each shard a slab that is filling and tables.
            let loose = after.compr_data_size * 17 / 16 + 4 * 4 * 4096;
            assert!(after.mem_used_total <= loose, "kind {kind}: {after:?}");
            let mut out = vec![0; PAGE];
            for (at, page) in written.iter().enumerate() {
                store.read((at * PAGE) as u64, &mut out).unwrap();
                assert!(
                    out == *page || at % 7 == 0 && out.iter().all(|&byte| byte == 0),
                    "page {at} of kind {kind}"
                );
            }
        }
    }
}
