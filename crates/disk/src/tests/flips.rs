//! Damage: single bits, and what a reader makes of them.

use std::{env, sync::Arc};

use narrows_core::BlockDevice;

use super::{bytes_of, noise, quiet};
use crate::{
    Creation, Disk, Profile,
    backing::{Backing, Geometry, SimulatedDevice},
    format::BLOCK,
};

const BLOCKS: usize = 40;
const B: u64 = BLOCK as u64;

/// What a damaged image may read as besides what was written: nothing else.
fn content() -> Vec<u8> {
    let mut all = Vec::new();
    for block in 0..BLOCKS as u64 {
        match block {
            0..16 => all.extend(bytes_of(block, BLOCK)),
            16..20 => all.extend(noise(block, BLOCK)),
            30..36 => all.extend(bytes_of(block, BLOCK)),
            _ => all.extend([0; BLOCK]),
        }
    }
    all
}

/// An image of a store that was written with several flushes, and closed or not.
fn image(close: bool) -> Vec<u8> {
    let backing = Arc::new(SimulatedDevice::new(16 << 16, Geometry::default()));
    let creation = Creation::new(BLOCKS as u64 * B)
        .segment_len(64 << 10)
        .profile(Profile::Fast);
    Disk::create(&*backing, &creation).unwrap();
    // Nothing is discarded, so that what was never written is zero.
    let mut settings = quiet();
    settings.tuning.warm_bytes = u64::MAX;
    let disk = Disk::open(backing.clone(), settings).unwrap();
    let all = content();
    let write = |first: usize, count: usize| {
        let range = first * BLOCK..(first + count) * BLOCK;
        disk.write(range.start as u64, &all[range], true).unwrap();
    };
    write(0, 8);
    disk.write(36 * B, &noise(7, BLOCK), true).unwrap();
    write(8, 8);
    disk.trim(36 * B, B, true).unwrap();
    write(16, 4);
    write(30, 6);
    // A last change that may go with a damaged last batch.
    disk.write(39 * B, &[0; BLOCK], true).unwrap();
    if close {
        disk.close().unwrap();
    }
    disk.abandon();
    Arc::into_inner(backing).unwrap().into_image()
}

/// Opens an image and compares; `Some` says what was read wrong, without an error.
fn wrong(image: Vec<u8>, expected: &[u8]) -> (Option<usize>, Vec<u8>, bool) {
    let device = Arc::new(SimulatedDevice::unrecorded(image, Geometry::default()));
    let mut refused = false;
    let mut found = None;
    match Disk::open(device.clone(), quiet()) {
        Err(_) => refused = true,
        Ok(disk) => {
            let mut out = vec![0; BLOCK];
            for block in 0..BLOCKS {
                let range = block * BLOCK..(block + 1) * BLOCK;
                match disk.read(range.start as u64, &mut out) {
                    Err(_) => refused = true,
                    Ok(()) if out != expected[range] => found = found.or(Some(block)),
                    Ok(()) => {}
                }
            }
            disk.abandon();
        }
    }
    let image = Arc::into_inner(device).unwrap().into_image();
    (found, image, refused)
}

// Goal: no flipped bit makes a read wrong: it is harmless, or an error. Method: one bit of every
// fifth byte that was written (`NARROWS_FLIPS=all`: every bit), of a store that was closed and of
// one that was killed after a flush.
#[test]
fn no_flipped_bit_is_read_as_data() {
    let all = env::var("NARROWS_FLIPS").is_ok_and(|value| value == "all");
    for close in [true, false] {
        let image = image(close);
        let expected = content();
        assert_eq!(wrong(image.clone(), &expected).0, None, "undamaged");
        let (mut tried, mut detected) = (0, 0);
        for at in 0..image.len() {
            // What was never written is zero, and is not read.
            if image[at / BLOCK * BLOCK..][..BLOCK]
                .iter()
                .all(|byte| *byte == 0)
            {
                continue;
            }
            for bit in 0..8 {
                if !all && (bit != at / 5 % 8 || at % 5 != 0) {
                    continue;
                }
                let mut damaged = image.clone();
                damaged[at] ^= 1 << bit;
                let (found, _, refused) = wrong(damaged, &expected);
                assert_eq!(found, None, "bit {bit} of byte {at}, closed {close}");
                tried += 1;
                detected += usize::from(refused);
            }
        }
        println!("closed {close}: {tried} bits flipped, {detected} detected, the others harmless");
        assert!(detected > tried / 4);
    }
}

// Goal: a batch in the middle of the log that is damaged is not taken for the log's end. Method:
// damage each durable batch of a killed store but the last; the store must not open with older
// data.
#[test]
fn a_damaged_durable_batch_is_no_end_of_the_log() {
    let image = image(false);
    let expected = content();
    let headers: Vec<usize> = (0..image.len() / BLOCK)
        .map(|page| page * BLOCK)
        .filter(|at| image[*at..].starts_with(b"NRWBATCH"))
        .collect();
    for at in &headers {
        let mut damaged = image.clone();
        damaged[*at..*at + BLOCK].fill(0);
        let (found, ..) = wrong(damaged, &expected);
        assert_eq!(found, None, "batch at {at}");
    }
}

// Goal: bytes that are no store are refused without panic. Method: an image with pieces of itself
// moved about.
#[test]
fn scrambled_images_are_refused_or_read_right() {
    let image = image(true);
    let expected = content();
    let used: Vec<usize> = (0..image.len() / 512)
        .filter(|sector| image[sector * 512..][..512].iter().any(|byte| *byte != 0))
        .collect();
    let mut seed = 11_u64;
    for _ in 0..2000 {
        let mut scrambled = image.clone();
        for _ in 0..3 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let from = used[(seed >> 33) as usize % used.len()] * 512;
            let to = used[(seed >> 13) as usize % used.len()] * 512;
            scrambled.copy_within(from..from + 512, to);
        }
        let (found, ..) = wrong(scrambled, &expected);
        assert_eq!(found, None);
    }
}

// Goal: a block that cannot be read is an error for that block alone, and a scrub names it.
#[test]
fn a_scrub_names_what_cannot_be_read() {
    let mut image = image(true);
    // The noise of block 17 is stored raw, so its bytes are in the image as they are.
    let wanted = &noise(17, BLOCK)[..64];
    let at = image
        .windows(64)
        .position(|window| window == wanted)
        .unwrap();
    image[at] ^= 1;
    let backing: Arc<dyn Backing> =
        Arc::new(SimulatedDevice::unrecorded(image, Geometry::default()));
    let disk = Disk::open(backing, quiet()).unwrap();
    let bad = disk.scrub(|_, _| ());
    assert!(bad.contains(&17), "{bad:?}");
    assert!(bad.iter().all(|block| (16..20).contains(block)), "{bad:?}");
    let mut out = vec![0; BLOCK];
    let error = disk.read(17 * B, &mut out).unwrap_err().to_string();
    assert!(error.contains("checksum"), "{error}");
    disk.read(30 * B, &mut out).unwrap();
    disk.write(17 * B, &bytes_of(3, BLOCK), true).unwrap();
    disk.read(17 * B, &mut out).unwrap();
    assert!(out == bytes_of(3, BLOCK));
}
