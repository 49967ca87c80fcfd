//! Memory that is resident is what `stat` says. A process of its own, since tests beside it would hold memory, too.

use std::sync::Arc;

use narrows_chains::Chains;
use narrows_core::BlockDevice;
use narrows_io::helper_pool::HelperPool;
use narrows_memory::{Budget, Profile, Store, StoreConfig};

const STEP: usize = 1 << 20;
const LEN: u64 = 128 << 20;

/// What does not pack.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = (0..STEP / 8).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.collect()
}

/// What packs to about a quarter.
fn letters(seed: u64) -> Vec<u8> {
    noise(seed)
        .iter()
        .map(|byte| b"etaoinsh"[usize::from(byte & 3)])
        .collect()
}

#[test]
fn memory_that_is_resident_is_what_stat_says() {
    let resident = || narrows_io::meter::Memory::of_process().unwrap().resident as i64;
    let store = Store::new(StoreConfig {
        size: 1 << 30,
        profile: Profile::Fast,
        chains: Chains::default(),
        budget: Arc::new(Budget::new(None)),
        backing: None,
        helpers: Arc::new(HelperPool::new("crew", 1).unwrap()),
    })
    .unwrap();
    // The packer's own buffers are no pages.
    store.write(LEN, &letters(1), false).unwrap();
    store.trim(LEN, STEP as u64, false).unwrap();
    let before = resident();
    let mut used = Vec::new();
    for content in [letters, noise] {
        for at in (0..LEN).step_by(STEP) {
            store.write(at, &content(at), false).unwrap();
        }
        let (said, real) = (
            store.stat().mm_stat.mem_used_total as i64,
            resident() - before,
        );
        assert!(
            (said - real).abs() < said / 12 + (8 << 20),
            "stat says {said}, resident are {real}"
        );
        used.push(said);
    }
    assert!(used[1] > 2 * used[0], "{used:?}");
    store.trim(0, 1 << 30, false).unwrap();
    assert!(store.stat().mm_stat.mem_used_total < 16 << 20);
}
