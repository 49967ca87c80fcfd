//! Superblocks, batches, units and whole images from anybody: an error, or a store that reads, and never a panic. Checksums
//! are made right, so that what is behind them is reached.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use narrows_core::BlockDevice;
use narrows_disk::{
    Creation, Disk, Settings,
    backing::{Backing, Geometry, SimulatedDevice},
    format::{
        BLOCK,
        batch::{self, BatchHeader},
        entry::Entry,
        superblock::Superblock,
        unit::{Tag, Unit},
    },
    fsck,
};

const SEGMENT: usize = 64 << 10;

/// A small store with some of everything.
static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let backing = Arc::new(SimulatedDevice::new(16 * SEGMENT, Geometry::default()));
    let creation = Creation::new(64 * BLOCK as u64).segment_len(SEGMENT as u32);
    Disk::create(&*backing, &creation).unwrap();
    let disk = Disk::open(backing.clone(), Settings::default().background(false)).unwrap();
    for i in 0..20_u8 {
        let data = vec![i + 1; BLOCK];
        disk.write(u64::from(i) * BLOCK as u64, &data, i % 3 == 0)
            .unwrap();
    }
    disk.checkpoint().unwrap();
    disk.trim(0, 5 * BLOCK as u64, true).unwrap();
    disk.write(30 * BLOCK as u64, &[7; 3 * BLOCK], true)
        .unwrap();
    disk.write(31 * BLOCK as u64, &[8; 700], true).unwrap();
    backing.image()
});

fn crc(pieces: &[&[u8]]) -> [u8; 4] {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    pieces.iter().for_each(|piece| digest.update(piece));
    (digest.finalize() as u32).to_le_bytes()
}

fn right_superblock(bytes: &mut [u8]) {
    let sum = crc(&[&bytes[..BLOCK - 4]]);
    bytes[BLOCK - 4..BLOCK].copy_from_slice(&sum);
}

fn right_batch(bytes: &mut [u8]) {
    let Ok(header) = BatchHeader::parse(bytes, bytes.len() as u32) else {
        return;
    };
    let table = header.table as usize;
    let table = &bytes[table..table + header.records as usize * batch::RECORD];
    let sum = crc(&[&bytes[..48], &[0; 4], &bytes[52..batch::HEADER], table]);
    bytes[48..52].copy_from_slice(&sum);
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, bytes)) = data.split_first() else {
        return;
    };
    match how % 4 {
        0 => {
            let mut block = [0; BLOCK];
            let n = bytes.len().min(BLOCK);
            block[..n].copy_from_slice(&bytes[..n]);
            right_superblock(&mut block);
            if let Ok(superblock) = Superblock::parse(&block) {
                assert_eq!(Superblock::parse(&superblock.write()), Ok(superblock));
            }
        }
        1 => {
            let mut bytes = bytes.to_vec();
            right_batch(&mut bytes);
            if let Ok(header) = BatchHeader::parse(&bytes, bytes.len() as u32) {
                let table = header.table as usize;
                let table = &bytes[table..table + header.records as usize * batch::RECORD];
                let _ = header.check(&bytes[..batch::HEADER], table);
                let _ = batch::parse_table(&header, table);
            }
        }
        2 => {
            let mut bytes = bytes.to_vec();
            let tag = Tag::Block(u64::from(how));
            if bytes.len() >= 8 {
                let len = usize::from(u16::from_le_bytes([bytes[4], bytes[5]]));
                if let Some(rest) = bytes.get(4..8 + len) {
                    let sum = crc(&[&tag.number().to_le_bytes(), rest]);
                    bytes[..4].copy_from_slice(&sum);
                }
                let entry = Entry(u64::from_le_bytes(bytes[..8].try_into().unwrap()));
                let _ = (entry.is_sound(16, SEGMENT as u32), entry.share());
            }
            let _ = Unit::parse(&bytes, tag);
        }
        _ => {
            let mut image = IMAGE.clone();
            // Each four bytes: a place among the first 64 KiB of four segments, and a byte for it.
            for patch in bytes.as_chunks::<4>().0 {
                let at = usize::from(u16::from_le_bytes([patch[0], patch[1]]));
                image[usize::from(patch[2] % 4) * SEGMENT + at] = patch[3];
            }
            right_superblock(&mut image[..BLOCK]);
            right_superblock(&mut image[SEGMENT / 2..][..BLOCK]);
            for page in SEGMENT / BLOCK..image.len() / BLOCK {
                let end = (page * BLOCK / SEGMENT + 1) * SEGMENT;
                right_batch(&mut image[page * BLOCK..end]);
            }
            open(image);
        }
    }
});

fn open(image: Vec<u8>) {
    let backing: Arc<dyn Backing> =
        Arc::new(SimulatedDevice::unrecorded(image, Geometry::default()));
    let _ = fsck(&backing);
    let Ok(disk) = Disk::open(backing, Settings::default().background(false)) else {
        return;
    };
    let size = disk.shape().size.min(1 << 20);
    let mut out = vec![0; size as usize];
    let _ = disk.read(0, &mut out);
    let _ = disk.write(0, &[1; BLOCK], true);
    let _ = disk.maintain(true);
}
