//! Images written by earlier versions. They are never edited: a store that was made once can always
//! be opened.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use narrows_codecs::zstd::Zstd;
use narrows_core::{BlockDevice, Codec, Level, Workspace, block::Zeroing};

use super::{bytes_of, noise, quiet};
use crate::{
    Creation, Disk, Profile,
    backing::{Backing, Geometry, SimulatedDevice},
    format::{BLOCK, GRANULE, batch, superblock::Superblock},
    fsck,
    gc::batches,
};

const SIZE: usize = 1 << 20;
const BLOCKS: usize = 256;
const B: u64 = BLOCK as u64;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../compat/disk/v1")
        .join(name)
}

/// Numbers that page chains pack well: doubles of a polynomial.
fn numbers(blocks: usize) -> Vec<u8> {
    let count = blocks * BLOCK / 8;
    (0..count as u64)
        .flat_map(|i| (i * i * 3 + 1000).to_le_bytes())
        .collect()
}

/// What every golden image holds.
fn content() -> Vec<u8> {
    let mut all = vec![0; BLOCKS * BLOCK];
    let mut put = |block: usize, bytes: &[u8]| {
        all[block * BLOCK..block * BLOCK + bytes.len()].copy_from_slice(bytes);
    };
    put(0, &bytes_of(1, 16 * BLOCK));
    put(16, &noise(2, 4 * BLOCK));
    put(40, &numbers(8));
    put(100, &bytes_of(3, 3 * BLOCK));
    put(101, &bytes_of(4, BLOCK));
    put(200, &bytes_of(5, 700));
    all
}

/// Fills a store with that, in a way that leaves every kind of record, and several codecs.
fn fill(disk: &Disk) {
    let all = content();
    let write = |first: usize, count: usize| {
        let range = first * BLOCK..(first + count) * BLOCK;
        disk.write(range.start as u64, &all[range], false).unwrap();
    };
    disk.write(60 * B, &noise(9, 4 * BLOCK), false).unwrap();
    write(0, 16);
    write(16, 4);
    write(40, 8);
    disk.flush().unwrap();
    write(100, 3);
    disk.trim(60 * B, 4 * B, false).unwrap();
    let how = Zeroing {
        keep_allocated: true,
        ..Zeroing::default()
    };
    disk.write_zeroes(80 * B, 4 * B, how, false).unwrap();
    disk.write(200 * B, &all[200 * BLOCK..200 * BLOCK + 700], false)
        .unwrap();
    disk.flush().unwrap();
}

/// Codecs of all units in an image.
fn codecs(image: &[u8]) -> BTreeSet<u8> {
    let superblock = Superblock::parse(image).unwrap();
    let mut found = BTreeSet::new();
    for (number, segment) in image.chunks(superblock.segment_len as usize).enumerate() {
        for batch in batches(number as u32, segment, &superblock.uuid) {
            let mut at = batch.header.offset as usize + batch::HEADER;
            for record in batch.records.iter().filter(|record| record.granules > 0) {
                found.insert(segment[at + 6]);
                at += usize::from(record.granules) * GRANULE;
            }
        }
    }
    found
}

// Goal: what a released version wrote is read for ever. Method: images in `compat/disk/v1`, one
// closed, one killed after a flush, one compacted with the densest codecs.
#[test]
fn golden_images_are_read() {
    for name in ["closed.img.zst", "killed.img.zst", "dense.img.zst"] {
        let packed = std::fs::read(path(name)).unwrap();
        let mut image = vec![0; SIZE];
        Zstd.unpack(&packed, &[], &mut image, &mut Workspace::default())
            .unwrap();
        let codecs = codecs(&image);
        let expected: &[u8] = match name {
            "closed.img.zst" => &[0, 1],
            "killed.img.zst" => &[0, 9],
            _ => &[0, 9, 255],
        };
        assert!(
            expected.iter().all(|codec| codecs.contains(codec)),
            "{name}: {codecs:?}"
        );
        let backing: Arc<dyn Backing> =
            Arc::new(SimulatedDevice::unrecorded(image, Geometry::default()));
        let findings = fsck(&backing).unwrap();
        assert!(findings.is_clean(), "{name}: {findings:?}");
        assert_eq!(
            findings.batches > 1,
            name.starts_with("killed"),
            "{name}: {findings:?}"
        );
        let disk = Disk::open(backing, quiet()).unwrap();
        let mut out = vec![0; BLOCKS * BLOCK];
        disk.read(0, &mut out).unwrap();
        assert!(out == content(), "{name}");
        let stat = disk.stat();
        assert_eq!((stat.data, stat.zero), (32 * B, 4 * B), "{name}: {stat:?}");
    }
}

// Writes the images that are not there yet. Run by hand, once for each version of the format.
#[test]
#[ignore = "writes golden images"]
fn write_golden_images() {
    for (name, profile) in [
        ("closed", Profile::Fast),
        ("killed", Profile::Balanced),
        ("dense", Profile::Dense),
    ] {
        let path = path(&format!("{name}.img.zst"));
        if path.exists() {
            continue;
        }
        let backing = Arc::new(SimulatedDevice::new(SIZE, Geometry::default()));
        let creation = Creation::new((BLOCKS * BLOCK) as u64)
            .segment_len(64 << 10)
            .profile(profile);
        Disk::create(&*backing, &creation).unwrap();
        let disk = Disk::open(backing.clone(), quiet()).unwrap();
        fill(&disk);
        if name == "dense" {
            disk.compact(|_, _| ()).unwrap();
        }
        if name != "killed" {
            disk.close().unwrap();
        }
        disk.abandon();
        let image = Arc::into_inner(backing).unwrap().into_image();
        let mut packed = vec![0; SIZE];
        let len = Zstd
            .pack(
                &image,
                Level(19),
                &[],
                &mut packed,
                &mut Workspace::default(),
            )
            .unwrap();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, &packed[..len]).unwrap();
    }
}
