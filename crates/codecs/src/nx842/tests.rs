//! Chunks written out by hand from the format, and the checksum against its bitwise definition.

use narrows_core::{Codec, Level, Workspace};

use super::{Nx842, crc32_be};

/// Fields as `(value, bits)`, packed highest bit first and padded to eight bytes.
fn chunk(fields: &[(u64, u32)]) -> Vec<u8> {
    let mut bits: Vec<u8> = Vec::new();
    for &(value, count) in fields {
        bits.extend((0..count).rev().map(|bit| (value >> bit & 1) as u8));
    }
    while !bits.len().is_multiple_of(64) {
        bits.push(0);
    }
    bits.chunks(8)
        .map(|eight| eight.iter().fold(0, |byte, bit| byte << 1 | bit))
        .collect()
}

fn check(raw: &[u8], fields: &[(u64, u32)]) {
    let mut fields = fields.to_vec();
    fields.extend([(30, 5), (u64::from(bitwise_crc(raw)), 32)]);
    let golden = chunk(&fields);
    let mut ws = Workspace::default();
    let mut out = vec![0xaa; raw.len()];
    Nx842
        .unpack(&golden, &[], &mut out, &mut ws)
        .expect("golden chunk");
    assert_eq!(out, raw);
    let mut packed = vec![0; 2 * raw.len() + 64];
    let len = Nx842
        .pack(raw, Level(0), &[], &mut packed, &mut ws)
        .expect("room enough");
    assert_eq!(packed[..len], golden);
}

fn bitwise_crc(raw: &[u8]) -> u32 {
    let mut crc = 0u32;
    for &byte in raw {
        crc ^= u32::from(byte) << 24;
        for _ in 0..8 {
            crc = if crc >> 31 == 1 {
                crc << 1 ^ 0x04c1_1db7
            } else {
                crc << 1
            };
        }
    }
    crc
}

#[test]
fn crc_is_the_one_of_its_definition() {
    let bytes: Vec<u8> = (0..300u32).map(|i| ((i * i) >> 3) as u8).collect();
    for len in 0..bytes.len() {
        assert_eq!(
            crc32_be(&bytes[..len]),
            bitwise_crc(&bytes[..len]),
            "length {len}"
        );
    }
}

#[test]
fn data_zeros_repeats_and_a_tail() {
    let mut raw = b"abcdefgh".to_vec();
    raw.extend([0; 32]);
    raw.extend(b"xyz");
    check(
        &raw,
        &[
            (0, 5),
            (0x6162_6364, 32),
            (0x6566_6768, 32), // two halves of data
            (28, 5),           // eight zeros
            (27, 5),
            (2, 6), // three times more
            (29, 5),
            (3, 3),
            (0x78, 8),
            (0x79, 8),
            (0x7a, 8),
        ],
    );
}

#[test]
fn indices_of_two_four_and_eight() {
    check(
        b"abcdefghABCDEFGHabcdefghABCDabcdefIJCDKL",
        &[
            (0, 5),
            (0x6162_6364, 32),
            (0x6566_6768, 32),
            (0, 5),
            (0x4142_4344, 32),
            (0x4546_4748, 32),
            (25, 5),
            (0, 8), // the phrase at 0
            // At 24 the newest ABCD is the one at 8 and the newest abcd the one at 16.
            (24, 5),
            (2, 9),
            (4, 9),
            // ef: the newest is at 20. Then data, an index (CD at 26) and data.
            (12, 5),
            (10, 8),
            (0x494a, 16),
            (13, 8),
            (0x4b4c, 16),
        ],
    );
}

#[test]
fn an_index_means_the_newest_lap_of_its_ring() {
    // 600 bytes in, index 0 of the 512-byte ring is position 512, and index 255 is 510 of the lap before.
    let ring = super::RING_2;
    assert_eq!(ring.position(0, 600), Some(512));
    assert_eq!(ring.position(43, 600), Some(598));
    assert_eq!(ring.position(44, 600), Some(88));
    assert_eq!(ring.position(255, 600), Some(510));
    assert_eq!(ring.position(5, 8), None);
    for position in (88..600).step_by(2) {
        let index = ring.index(position, 600).expect("in the ring");
        assert_eq!(ring.position(index as usize, 600), Some(position));
    }
    assert_eq!(ring.index(86, 600), None);
}
