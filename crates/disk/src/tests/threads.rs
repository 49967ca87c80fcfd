//! Several threads at once, and then a crash: what each of them was told must hold.
//!
//! Every thread writes blocks of its own, so the versions of a block are in order. A clock numbers
//! calls and returns. If a flush that any thread called after a write had returned, itself returned
//! before the crash, the block must hold that version or a later one; and never a version whose
//! write began after the crash.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use narrows_core::BlockDevice;
use parking_lot::Mutex;

use super::{bytes_of, crash::Dice, noise};
use crate::{
    Creation, Disk, Settings, Tuning,
    backing::{CrashChoice, CrashCursor, Geometry, SimulatedDevice},
    format::BLOCK,
};

const THREADS: usize = 4;
const OWN: usize = 24;

/// One version of a block.
#[derive(Debug, Clone)]
struct Version {
    /// Content: 0 is zeroes.
    stamp: u64,
    /// Of the device's record, when the write was called.
    began_at: usize,
    /// On the clock, when the write returned.
    returned: usize,
    /// Of the device's record, when a FUA write returned.
    durable_at: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Flush {
    called: usize,
    returned_at: usize,
}

fn content(stamp: u64) -> Vec<u8> {
    match stamp {
        0 => vec![0; BLOCK],
        stamp if stamp % 3 == 0 => noise(stamp, BLOCK),
        stamp => bytes_of(stamp, BLOCK),
    }
}

/// Runs the threads; versions of each block, and all flushes.
fn race(seed: u64, disk: &Disk, backing: &SimulatedDevice) -> (Vec<Vec<Version>>, Vec<Flush>) {
    let clock = AtomicUsize::new(1);
    let tick = || clock.fetch_add(1, Ordering::SeqCst);
    let flushes = Mutex::new(Vec::new());
    let versions: Vec<Vec<Version>> = std::thread::scope(|scope| {
        let (tick, flushes) = (&tick, &flushes);
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let first = Version {
                        stamp: 0,
                        began_at: 0,
                        returned: 0,
                        durable_at: Some(0),
                    };
                    let mut versions = vec![vec![first]; OWN];
                    let mut dice = Dice(seed << 8 | thread as u64);
                    for round in 0..120_u64 {
                        if dice.below(8) == 0 {
                            let called = tick();
                            disk.flush().unwrap();
                            let returned_at = backing.position();
                            flushes.lock().push(Flush {
                                called,
                                returned_at,
                            });
                            continue;
                        }
                        let count = 1 + dice.below(6);
                        let block = dice.below(OWN - count);
                        let trim = dice.below(10) == 0;
                        let fua = dice.below(12) == 0;
                        let stamp = |i: usize| {
                            let unique = seed << 32 | (thread as u64) << 24 | round << 8 | i as u64;
                            if trim { 0 } else { unique + 1 }
                        };
                        let offset = ((thread * OWN + block) * BLOCK) as u64;
                        let began_at = backing.position();
                        if trim {
                            disk.trim(offset, (count * BLOCK) as u64, fua).unwrap();
                        } else {
                            let data: Vec<u8> =
                                (0..count).flat_map(|i| content(stamp(i))).collect();
                            disk.write(offset, &data, fua).unwrap();
                        }
                        let durable_at = fua.then(|| backing.position());
                        let returned = tick();
                        for i in 0..count {
                            versions[block + i].push(Version {
                                stamp: stamp(i),
                                began_at,
                                returned,
                                durable_at,
                            });
                        }
                    }
                    versions
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.flatten().collect()
    });
    (versions, flushes.into_inner())
}

// Goal: what flushes promise holds whoever calls them, with the background thread at work. Method:
// see the head of this file.
#[test]
fn what_several_threads_were_told_survives_a_crash() {
    let mut tried = 0;
    for seed in 0..6 {
        let backing = Arc::new(SimulatedDevice::new(26 << 16, Geometry::default()));
        let creation = Creation::new((THREADS * OWN * BLOCK) as u64).segment_len(64 << 10);
        Disk::create(&*backing, &creation).unwrap();
        let tuning = Tuning {
            checkpoint_every: 300 << 10,
            warm_bytes: 0,
            ..Tuning::default()
        };
        let settings = Settings::default().tuning(tuning);
        let disk = Disk::open(backing.clone(), settings.clone()).unwrap();
        let opened = backing.position();
        let (versions, flushes) = race(seed, &disk, &backing);
        disk.stop();
        disk.abandon();
        let mut dice = Dice(seed);
        let (mut cursor, mut image) = (CrashCursor::default(), Vec::new());
        let mut points: Vec<usize> = (0..150)
            .map(|_| opened + dice.below(backing.position() - opened + 1))
            .collect();
        points.sort_unstable();
        for at in points {
            let choice = CrashChoice {
                at,
                keep: [0, 128, 256][dice.below(3)],
                tear: [0, 200][dice.below(2)],
                reorder: dice.below(2) == 0,
                subset: None,
                seed: dice.below(usize::MAX) as u64,
            };
            backing.crash(choice, &mut cursor, &mut image);
            let quiet = settings.clone().background(false);
            let left = SimulatedDevice::unrecorded(image.clone(), Geometry::default());
            let disk = Disk::open(Arc::new(left), quiet).unwrap();
            let covered = flushes.iter().filter(|flush| flush.returned_at <= at);
            let covered = covered.map(|flush| flush.called).max().unwrap_or(0);
            let mut out = vec![0; BLOCK];
            for (block, versions) in versions.iter().enumerate() {
                disk.read((block * BLOCK) as u64, &mut out).unwrap();
                let kept = |version: &Version| {
                    version.returned < covered
                        || version.durable_at.is_some_and(|point| point <= at)
                };
                let least = versions.iter().rposition(kept).unwrap_or(0);
                let allowed = versions[least..]
                    .iter()
                    .filter(|version| version.began_at <= at);
                let found = allowed.clone().any(|version| out == content(version.stamp));
                assert!(
                    found,
                    "seed {seed}, {choice:?}, block {block}: not one of {:?}",
                    allowed.collect::<Vec<_>>()
                );
            }
            disk.abandon();
            tried += 1;
        }
    }
    println!("{tried} crash states of racing threads");
}
