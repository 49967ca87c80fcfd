//! Checks, growing, compacting, statistics, recompression.

use std::sync::Arc;

use narrows_core::BlockDevice;

use super::{bytes_of, device, noise, quiet};
use crate::{
    Creation, Disk, Fullness, Profile,
    backing::{Backing, Geometry, SimulatedDevice},
    dump,
    format::BLOCK,
    fsck, grow,
};

const B: u64 = BLOCK as u64;

// Goal: a store grows in its device and its backing, and keeps what it holds. Method: across one
// and two levels of map.
#[test]
fn grows_in_both_directions_and_keeps_everything() {
    let backing = device(32);
    let shared: Arc<dyn Backing> = backing.clone();
    Disk::create(&*backing, &Creation::new(1 << 20).segment_len(64 << 10)).unwrap();
    let disk = Disk::open(backing.clone(), quiet()).unwrap();
    for i in 0..200 {
        disk.write(i * B, &bytes_of(i, BLOCK), false).unwrap();
    }
    disk.close().unwrap();
    drop(disk);
    for (logical, physical) in [(3 << 20, 3 << 20), (3 << 30, 4 << 20), (8 << 30, 9 << 20)] {
        grow(&shared, Some(logical), Some(physical)).unwrap();
        let disk = Disk::open(backing.clone(), quiet()).unwrap();
        assert_eq!(disk.shape().size, logical);
        assert_eq!(disk.stat().capacity, physical - (64 << 10));
        let mut out = vec![0; BLOCK];
        for i in 0..200 {
            disk.read(i * B, &mut out).unwrap();
            assert!(out == bytes_of(i, BLOCK), "{i}");
        }
        disk.write(logical - B, &noise(logical, BLOCK), false)
            .unwrap();
        disk.read(logical - B, &mut out).unwrap();
        assert!(out == noise(logical, BLOCK));
        disk.close().unwrap();
        drop(disk);
        assert!(fsck(&shared).unwrap().is_clean());
    }
    let mut list = Vec::new();
    dump(&*backing, &mut list).unwrap();
    let list = String::from_utf8(list).unwrap();
    assert!(list.contains("logical: 8589934592"), "{list}");
    assert!(
        list.lines()
            .any(|line| line.contains(": batch ") && line.contains(" Data "))
    );
    let error = grow(&shared, Some(1 << 20), None).unwrap_err();
    assert!(error.to_string().contains("is possible"), "{error}");
}

// Goal: statistics are true. Method: count what the backing holds after compacting, and compare
// within 2 %.
#[test]
fn statistics_are_true_within_two_per_cent() {
    let backing = Arc::new(SimulatedDevice::new(64 << 20, Geometry::default()));
    Disk::create(&*backing, &Creation::new(256 << 20).segment_len(1 << 20)).unwrap();
    let disk = Disk::open(backing.clone(), quiet()).unwrap();
    for i in 0..400 {
        disk.write(i * 64 * 1024, &bytes_of(i, 64 << 10), false)
            .unwrap();
    }
    for i in 0..1000 {
        disk.write(i * 7 * B, &bytes_of(i + 1000, BLOCK), false)
            .unwrap();
    }
    disk.trim(0, 64 * B, false).unwrap();
    disk.write(0, &vec![0; 8 * BLOCK], false).unwrap();
    disk.compact(|_, _| ()).unwrap();
    let stat = disk.stat();
    assert_eq!(stat.zero, 8 * B);
    // Blocks 0 to 6399, and every seventh up to 6993; the first 64 were trimmed, and 8 of them
    // zeroed.
    let data = 6400 + (6400..7000).filter(|block| block % 7 == 0).count() as u64 - 64;
    assert_eq!(stat.data, data * B);
    // What is left is in segments in use; the log's head takes up to three more.
    let used = stat.occupied as f64;
    assert!(
        used - stat.live as f64 <= 0.02 * used + (4 << 20) as f64,
        "{stat:?}"
    );
    assert!(stat.ratio > 2.2, "{stat:?}");
    assert_eq!(stat.fullness, Fullness::Fine);
    assert!(stat.write_amplification < 1.5, "{stat:?}");
    let per_block = stat.memory.saturating_sub(24 << 20) as f64 / (stat.data as f64 / BLOCK as f64);
    assert!(per_block <= 10.0, "{per_block} bytes of memory a block");
}

// Goal: the ratio comes back after random overwrites, and idle time packs harder. Method: fill,
// overwrite 40 % in random blocks, rest; each profile.
#[test]
fn the_ratio_comes_back_after_random_overwrites() {
    for profile in [Profile::Fast, Profile::Balanced, Profile::Dense] {
        let backing = Arc::new(SimulatedDevice::new(10 << 20, Geometry::default()));
        let creation = Creation::new(6 << 20)
            .segment_len(256 << 10)
            .profile(profile);
        Disk::create(&*backing, &creation).unwrap();
        let disk = Disk::open(backing.clone(), quiet()).unwrap();
        for i in 0..6 * 8 {
            disk.write(i << 17, &bytes_of(i, 128 << 10), false).unwrap();
        }
        let full = disk.stat().ratio;
        let mut seed = 5_u64;
        for i in 0..620 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let block = (seed >> 33) % 1536;
            disk.write(block * B, &bytes_of(i, BLOCK), false).unwrap();
        }
        while disk.maintain(true).unwrap() {}
        disk.compact(|_, _| ()).unwrap();
        let stat = disk.stat();
        println!(
            "{profile:?}: {full:.3} filled, {:.3} after overwrites: {stat:?}",
            stat.ratio
        );
        assert!(stat.ratio > 2.25, "{profile:?}: {stat:?}");
        assert!(disk.scrub(|_, _| ()).is_empty());
        disk.close().unwrap();
        drop(disk);
        let shared: Arc<dyn Backing> = backing;
        let findings = fsck(&shared).unwrap();
        assert!(findings.is_clean(), "{findings:?}");
        assert_eq!(findings.blocks, 1536);
    }
}

// Goal: what small overwrites leave behind comes back while nobody waits. Method: overwrite two
// fifths in blocks, at random, and let the device be idle; garbage and the room taken are counted.
#[test]
fn idle_time_gives_back_what_overwrites_left() {
    let backing = Arc::new(SimulatedDevice::new(48 << 20, Geometry::default()));
    Disk::create(&*backing, &Creation::new(64 << 20).segment_len(256 << 10)).unwrap();
    let disk = Disk::open(backing.clone(), quiet().recompress(true)).unwrap();
    let blocks = (16 << 20) / B;
    for i in 0..blocks / 8 {
        disk.write(i * 8 * B, &bytes_of(i, 8 * BLOCK), false)
            .unwrap();
    }
    let filled = disk.stat();
    let mut at = 1u64;
    for i in 0..blocks * 2 / 5 {
        at = at
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        disk.write((at >> 33) % blocks * B, &bytes_of(i + 7000, BLOCK), false)
            .unwrap();
    }
    let after = disk.stat();
    while disk.maintain(true).unwrap() {}
    let idle = disk.stat();
    let taken = |stat: &crate::Stat| stat.occupied as f64 / filled.occupied as f64;
    assert!(taken(&after) > 1.3, "{after:?}");
    assert!(taken(&idle) < 1.12, "{filled:?} {idle:?}");
    disk.close().unwrap();
}
