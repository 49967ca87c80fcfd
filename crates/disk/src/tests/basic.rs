//! What a block device does, without crashes.

use std::sync::Arc;

use narrows_core::{
    BlockDevice, BlockError,
    block::{Extent, Zeroing},
};

use super::{bytes_of, device, quiet};
use crate::{
    Creation, Disk, DiskError, Provision, Settings,
    backing::{FileBacking, Geometry, SimulatedDevice},
    format::BLOCK,
};

const B: u64 = BLOCK as u64;

fn fresh(segments: usize, logical: u64) -> (Arc<SimulatedDevice>, Disk) {
    let backing = device(segments);
    let creation = Creation::new(logical).segment_len(64 << 10);
    Disk::create(&*backing, &creation).unwrap();
    let disk = Disk::open(backing.clone(), quiet()).unwrap();
    (backing, disk)
}

// Goal: what was written is read, across reopening. Method: random writes of any length and place
// beside a plain array.
#[test]
fn reads_what_was_written_at_any_offset() {
    let (backing, mut disk) = fresh(64, 1 << 20);
    let mut model = vec![0; 1 << 20];
    let mut seed = 7_u64;
    for round in 0..600_u64 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let offset = (seed >> 20) as usize % (model.len() - 1);
        let len = 1 + (seed >> 44) as usize % (if round % 9 == 0 { 150_000 } else { 9000 });
        let len = len.min(model.len() - offset);
        match round % 11 {
            7 => {
                disk.write_zeroes(offset as u64, len as u64, Zeroing::default(), false)
                    .unwrap();
                model[offset..offset + len].fill(0);
            }
            8 => {
                disk.trim(offset as u64, len as u64, false).unwrap();
                let (from, to) = (offset.div_ceil(BLOCK), (offset + len) / BLOCK);
                if from < to {
                    model[from * BLOCK..to * BLOCK].fill(0);
                }
            }
            _ => {
                let data = bytes_of(round, len);
                disk.write(offset as u64, &data, round % 5 == 0).unwrap();
                model[offset..offset + len].copy_from_slice(&data);
            }
        }
        let (at, n) = ((seed >> 7) as usize % model.len(), 20_000);
        let n = n.min(model.len() - at);
        let mut out = vec![1; n];
        disk.read(at as u64, &mut out).unwrap();
        assert!(out == model[at..at + n], "round {round}: {n} bytes at {at}");
        if round % 97 == 96 {
            disk.close().unwrap();
            disk = Disk::open(backing.clone(), quiet()).unwrap();
            let mut all = vec![1; model.len()];
            disk.read(0, &mut all).unwrap();
            assert!(all == model, "round {round}, after reopening");
        }
    }
}

// Goal: never written, zero and data are three states. Method: one of each, and extents over all.
#[test]
fn tells_holes_from_zeroes_from_data() {
    let (_, disk) = fresh(32, 64 * B);
    disk.write(B, &bytes_of(1, 2 * BLOCK), false).unwrap();
    disk.write(4 * B, &[0; BLOCK], false).unwrap();
    disk.trim(2 * B, B, false).unwrap();
    let mut found = Vec::new();
    disk.extents(0, 6 * B, 9, &mut found).unwrap();
    let extent = |blocks: u64, hole, zero| Extent {
        len: blocks * B,
        hole,
        zero,
    };
    let expected = [
        extent(1, true, true),
        extent(1, false, false),
        extent(2, true, true),
        extent(1, false, true),
        extent(1, true, true),
    ];
    assert_eq!(found, expected);
    found.clear();
    disk.extents(B + 100, 3 * B, 1, &mut found).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].len, B - 100);
}

// Goal: what is not there, foreign, older or short is refused in words and left as it is. Method:
// one of each.
#[test]
fn refuses_what_is_no_store_and_overwrites_nothing() {
    let blank = device(32);
    let error = Disk::open(blank.clone(), quiet()).unwrap_err();
    assert!(matches!(error, DiskError::NotADisk { .. }), "{error}");
    let mut foreign = vec![0; 2 << 20];
    foreign[1080] = 0x53;
    let foreign = SimulatedDevice::from_image(foreign, Geometry::default());
    let error = Disk::create(&foreign, &Creation::new(1 << 20)).unwrap_err();
    assert!(matches!(error, DiskError::Occupied { .. }), "{error}");
    Disk::create(&foreign, &Creation::new(1 << 20).force(true)).unwrap();
    let error = Disk::create(&foreign, &Creation::new(1 << 20)).unwrap_err();
    assert!(error.to_string().contains("a narrows disk"), "{error}");
    let mut short = foreign.image();
    short.truncate(1 << 20);
    let short = Arc::new(SimulatedDevice::from_image(short, Geometry::default()));
    let error = Disk::open(short, quiet()).unwrap_err();
    assert!(matches!(error, DiskError::Truncated { .. }), "{error}");
    let guaranteed = Creation::new(1900 << 10).provision(Provision::Guaranteed);
    let error = Disk::create(&foreign, &guaranteed.force(true)).unwrap_err();
    assert!(matches!(error, DiskError::Settings(_)), "{error}");
}

// Goal: one writer. Method: open the same file twice.
#[test]
fn a_second_writer_of_a_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let first = FileBacking::create(&path, 8 << 20).unwrap();
    let error = FileBacking::open(&path).unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    Disk::create(&first, &Creation::new(64 << 20)).unwrap();
    let disk = Disk::open(Arc::new(first), Settings::default()).unwrap();
    disk.write(12_345, b"kept", true).unwrap();
    disk.close().unwrap();
    drop(disk);
    let again = FileBacking::open(&path).unwrap();
    let disk = Disk::open(Arc::new(again), Settings::default()).unwrap();
    let mut out = [0; 4];
    disk.read(12_345, &mut out).unwrap();
    assert_eq!(&out, b"kept");
}

// Goal: a full store says so, goes on reading, trimming and flushing, and takes data again after
// trims. Method: fill it.
#[test]
fn a_full_store_refuses_data_and_comes_back_after_trims() {
    let (backing, disk) = fresh(40, 256 << 16);
    let mut written = 0;
    let error = loop {
        match disk.write(written * B, &super::noise(written, BLOCK), false) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 1000);
    };
    assert!(matches!(error, BlockError::NoSpace(_)), "{error}");
    assert!(written * B > 29 << 16, "{written}");
    disk.flush().unwrap();
    let mut out = vec![0; BLOCK];
    for i in 0..written {
        disk.read(i * B, &mut out).unwrap();
        assert!(out == super::noise(i, BLOCK), "{i}");
    }
    disk.trim(0, written / 2 * B, true).unwrap();
    // Two segments fewer than before: what lies between segments and batches is another each time.
    let again = written / 2 - 32;
    for i in 0..again {
        disk.write(i * B, &super::noise(i + 5000, BLOCK), false)
            .unwrap();
    }
    disk.close().unwrap();
    drop(disk);
    let disk = Disk::open(backing, quiet()).unwrap();
    for i in 0..written {
        disk.read(i * B, &mut out).unwrap();
        let expected = match i {
            i if i < again => super::noise(i + 5000, BLOCK),
            i if i < written / 2 => vec![0; BLOCK],
            i => super::noise(i, BLOCK),
        };
        assert!(out == expected, "{i}");
    }
}

// Goal: however often a full store refuses, what is trimmed after that can be written again at once. Method: fill,
// insist, give up every other run of blocks, write half as much elsewhere; again and again, for runs and segments of
// several lengths, with and without the background thread.
#[test]
fn what_a_full_store_gives_up_can_be_written_at_once() {
    for (kib, run, background) in [
        (64_u64, 1_u64, false),
        (256, 16, false),
        (256, 5, true),
        (1024, 16, true),
    ] {
        let len = kib << 10;
        let backing = device(48 * kib as usize / 64);
        let creation = Creation::new(10 * 48 * len).segment_len(len as u32);
        Disk::create(&*backing, &creation).unwrap();
        let settings = quiet().background(background);
        let disk = Disk::open(backing, settings).unwrap();
        let (mut kept, mut next) = (Vec::new(), 0_u64);
        for round in 0..6 {
            let at = |serial: u64| serial * run * B;
            let data = |serial: u64| super::noise(serial, run as usize * BLOCK);
            let mut refused = 0;
            while refused < 40 {
                match disk.write(at(next), &data(next), false) {
                    Ok(()) => kept.push(next),
                    Err(error) => {
                        assert!(matches!(error, BlockError::NoSpace(_)), "{error}");
                        refused += 1;
                    }
                }
                next += 1;
            }
            let before = kept.len();
            let mut odd = false;
            kept.retain(|&serial| {
                odd = !odd;
                if odd {
                    disk.trim(at(serial), run * B, false).unwrap();
                }
                !odd
            });
            disk.flush().unwrap();
            for _ in 0..before / 4 {
                disk.write(at(next), &data(next), false)
                    .unwrap_or_else(|error| {
                        panic!("{kib} KiB, {run} blocks, round {round}: {error}")
                    });
                kept.push(next);
                next += 1;
            }
            let mut out = data(0);
            for &serial in &kept {
                disk.read(at(serial), &mut out).unwrap();
                assert!(out == data(serial), "{serial}");
            }
        }
    }
}

// Goal: overwriting for ever within the space works, and garbage collection keeps every block.
// Method: many times the backing's size in random overwrites, at a high utilisation.
#[test]
fn overwrites_many_times_the_backing() {
    let (_, disk) = fresh(48, 300 * B);
    let mut model = vec![u64::MAX; 300];
    let mut seed = 3_u64;
    for round in 0..6000_u64 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let block = (seed >> 33) as usize % 296;
        let count = 1 + (seed >> 21) as usize % 4;
        let data: Vec<u8> = (0..count)
            .flat_map(|i| super::noise(round * 8 + i as u64, BLOCK))
            .collect();
        disk.write(block as u64 * B, &data, false).unwrap();
        for i in 0..count {
            model[block + i] = round * 8 + i as u64;
        }
    }
    let mut out = vec![0; BLOCK];
    for (block, value) in model.iter().enumerate() {
        disk.read(block as u64 * B, &mut out).unwrap();
        let expected = match value {
            &u64::MAX => vec![0; BLOCK],
            value => super::noise(*value, BLOCK),
        };
        assert!(out == expected, "block {block}");
    }
}

// Goal: who never flushes is not refused for it. Method: every eighth write is to a block that stays,
// so that no segment is ever dead as a whole; with the defaults, under which no checkpoint comes due
// on so small a backing.
#[test]
fn overwrites_without_a_flush_find_room() {
    let backing = device(64);
    Disk::create(&*backing, &Creation::new(2 << 20).segment_len(64 << 10)).unwrap();
    let disk = Disk::open(backing, Settings::default().background(false)).unwrap();
    for round in 0..3000_u64 {
        let block = if round % 8 == 0 {
            8 + round / 8
        } else {
            round % 8
        };
        disk.write(block * B, &super::noise(round, BLOCK), false)
            .unwrap_or_else(|error| panic!("round {round}: {error}, {:?}", disk.stat()));
    }
    assert!(disk.scrub(|_, _| ()).is_empty());
}

// Goal: a guaranteed device never runs out of space. Method: the largest one, filled with noise and
// overwritten in single blocks and longer runs, many times.
#[test]
fn a_guaranteed_device_never_runs_out() {
    let backing = device(64);
    let largest = crate::disk::guaranteed_max(64, 64 << 10);
    let creation = Creation::new(largest)
        .segment_len(64 << 10)
        .provision(Provision::Guaranteed);
    Disk::create(&*backing, &creation).unwrap();
    let disk = Disk::open(backing.clone(), quiet()).unwrap();
    let blocks = largest / B;
    for block in 0..blocks {
        disk.write(block * B, &super::noise(block, BLOCK), false)
            .unwrap();
    }
    let mut seed = 9_u64;
    for round in 0..4000_u64 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let count = if round % 5 == 0 { 8 } else { 1 };
        let block = (seed >> 33) % (blocks - count);
        let data = super::noise(round + 10_000, count as usize * BLOCK);
        disk.write(block * B, &data, round % 40 == 0)
            .unwrap_or_else(|error| panic!("round {round}: {error}, {:?}", disk.stat()));
    }
    assert!(disk.scrub(|_, _| ()).is_empty());
    println!("{:?}", disk.stat());
}

// Goal: several threads at once lose nothing. Method: each writes, reads and flushes its own
// blocks; all share edges of blocks with a neighbour, so that partial writes meet.
#[test]
fn threads_write_side_by_side() {
    let backing = device(96);
    Disk::create(&*backing, &Creation::new(4 << 20).segment_len(64 << 10)).unwrap();
    let settings = Settings::default();
    let disk = Disk::open(backing.clone(), settings).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let disk = &disk;
            scope.spawn(move || {
                for round in 0..300_u64 {
                    // A quarter of a block each: four threads share every block.
                    let block = round * 7 % 64;
                    let offset = block * B + thread * (B / 4);
                    let data = bytes_of(round << 8 | thread, BLOCK / 4);
                    disk.write(offset, &data, round % 50 == 0).unwrap();
                    let mut out = vec![0; BLOCK / 4];
                    disk.read(offset, &mut out).unwrap();
                    assert!(out == data, "thread {thread}, round {round}");
                    let own = (1 << 20) + thread * (1 << 19) + round % 30 * 16384;
                    let data = bytes_of(round << 9 | thread, 16384);
                    disk.write(own, &data, false).unwrap();
                    let mut out = vec![0; 16384];
                    disk.read(own, &mut out).unwrap();
                    assert!(out == data, "thread {thread}, round {round}");
                }
                disk.flush().unwrap();
            });
        }
    });
    disk.close().unwrap();
    drop(disk);
    let disk = Disk::open(backing, quiet()).unwrap();
    for thread in 0..4_u64 {
        let round = 299;
        let mut out = vec![0; BLOCK / 4];
        disk.read(round * 7 % 64 * B + thread * (B / 4), &mut out)
            .unwrap();
        assert!(out == bytes_of(round << 8 | thread, BLOCK / 4));
    }
}
