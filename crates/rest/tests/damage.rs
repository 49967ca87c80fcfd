//! Damage is noticed, named, and costs no more than its chunk.

use std::io::{Cursor, Read};

use narrows_rest::{FileError, FileOptions, Reader, SeekReader, pack, unpack, verify};
use narrows_testkit::data::{Kind, Random, make};

const CHUNK_LEN: usize = 4096;

/// Three chunks of different codecs, one of them stored and one short.
fn content() -> Vec<u8> {
    let text = make(Kind::Text, CHUNK_LEN, 1);
    let random = make(Kind::Random, CHUNK_LEN, 2);
    [text, random, make(Kind::Doubles, 1500, 3)].concat()
}

fn small() -> FileOptions {
    FileOptions::default().chunk_len(CHUNK_LEN).threads(1)
}

/// Reads as far as it goes, and checks that no byte is wrong.
fn read_prefix(file: &[u8], content: &[u8]) -> Result<usize, FileError> {
    let mut reader = Reader::new(file);
    let mut got = Vec::new();
    let mut bytes = [0; 1000];
    loop {
        match reader.read(&mut bytes) {
            Ok(0) => {
                assert!(got == content, "an end before the end");
                return Ok(got.len());
            }
            Ok(len) => got.extend_from_slice(&bytes[..len]),
            Err(fault) => return Err(FileError::from_io(fault)),
        }
        assert!(content.starts_with(&got), "a wrong byte");
    }
}

// Goal: a flipped bit is noticed, or changes nothing, as some bits of a zstd frame do; none gives a wrong byte. Method:
// every bit of a file, read in all three ways.
#[test]
fn every_bit_flip_is_noticed() {
    let content = content();
    let file = pack(&content, &small()).unwrap();
    let mut harmless = 0;
    for bit in 0..file.len() * 8 {
        let mut flipped = file.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let is_harmless = read_prefix(&flipped, &content).is_ok_and(|len| len == content.len());
        harmless += usize::from(is_harmless);
        // Nearly all of it is still read, and what is lost has a name.
        let mut reader = Reader::new(&flipped[..]).skip_damaged();
        let mut rest = Vec::new();
        match reader.read_to_end(&mut rest) {
            Ok(_) => {}
            // The head and with it all that tells what follows.
            Err(_) => assert!(bit / 8 < 20 + 24, "bit {bit} costs all"),
        }
        if !rest.is_empty() {
            assert_eq!(
                reader.losses().is_empty(),
                is_harmless,
                "bit {bit} has no name"
            );
            assert_right_but_for(&rest, &content, reader.losses());
        }
        by_index(&flipped, &content, bit);
    }
    assert!(
        harmless * 100 < file.len() * 8,
        "{harmless} bits change nothing"
    );
}

/// What the index leads to is right, or an error.
fn by_index(file: &[u8], content: &[u8], bit: usize) {
    let Ok(mut reader) = SeekReader::new(Cursor::new(file)) else {
        return;
    };
    let mut got = Vec::new();
    if reader.read_to_end(&mut got).is_ok() {
        assert_eq!(got, content, "bit {bit}: wrong bytes by the index");
    }
}

/// All bytes outside the losses are those of the content, and those within are zeros.
#[track_caller]
fn assert_right_but_for(got: &[u8], content: &[u8], losses: &[narrows_rest::Loss]) {
    let mut expected = content.to_vec();
    for loss in losses {
        let (from, len) = (loss.offset as usize, loss.len);
        match len {
            Some(len) => expected[from..from + len as usize].fill(0),
            None => expected.truncate(from),
        }
    }
    let lost: u64 = losses.iter().filter_map(|loss| loss.len).sum();
    assert!(lost <= 2 * CHUNK_LEN as u64, "{losses:?}");
    assert!(
        got == expected,
        "{losses:?}: {} {}",
        got.len(),
        expected.len()
    );
}

// Goal: a cut is noticed wherever it is, and what came before it is read. Method: every cut of a file.
#[test]
fn every_cut_is_noticed() {
    let content = content();
    let file = pack(&content, &small()).unwrap();
    for cut in 0..file.len() {
        let cut_file = &file[..cut];
        let fault = read_prefix(cut_file, &content).unwrap_err();
        let expected = matches!(fault, FileError::Truncated { .. });
        assert!(expected || cut == 0, "cut at {cut}: {fault}");
        assert!(
            SeekReader::new(Cursor::new(cut_file)).is_err(),
            "cut at {cut}"
        );
        if cut >= 20 {
            let verified = verify(cut_file, 1).unwrap();
            assert!(!verified.losses.is_empty(), "cut at {cut}");
        }
    }
}

// Goal: damage costs its chunk and no more. Method: each chunk in turn, by a flip in its header, by one in its payload,
// by a stretch of zeros over both, and by bytes that are gone.
#[test]
fn a_damaged_chunk_is_all_that_is_lost() {
    let content = make(Kind::Text, 10 * CHUNK_LEN + 1500, 5);
    let file = pack(&content, &small()).unwrap();
    let frames = narrows_rest::list(Cursor::new(&file)).unwrap().frames;
    for (n, frame) in frames.iter().enumerate() {
        let at = frame.at as usize;
        let flip = |at: usize| {
            let mut file = file.clone();
            file[at] ^= 0x10;
            file
        };
        let mut zeroed = file.clone();
        zeroed[at..at + 40].fill(0);
        let mut gone = file.clone();
        gone.drain(at + 30..at + 60);
        for damaged in [flip(at), flip(at + 7), flip(at + 100), zeroed, gone] {
            let mut reader = Reader::new(&damaged[..]).threads(2).skip_damaged();
            let mut got = Vec::new();
            reader.read_to_end(&mut got).unwrap();
            let [loss] = reader.losses() else {
                panic!("frame {n}: {:?}", reader.losses());
            };
            assert_eq!(loss.offset, frame.offset, "{loss:?}");
            assert_eq!(loss.len, Some(frame.raw_len), "{loss:?}");
            assert_right_but_for(&got, &content, reader.losses());
        }
    }
}

// Goal: what looks like a frame inside a stored chunk is not taken for one. Method: a file in a file, chunk by chunk
// where the outer one is damaged.
#[test]
fn a_file_within_a_file_is_not_mistaken_for_it() {
    let inner = pack(&make(Kind::Random, 6 * CHUNK_LEN, 1), &small()).unwrap();
    let outer = pack(&inner, &small()).unwrap();
    let frames = narrows_rest::list(Cursor::new(&outer)).unwrap().frames;
    for frame in &frames {
        let mut damaged = outer.clone();
        damaged[frame.at as usize + 1] ^= 0xff;
        let mut reader = Reader::new(&damaged[..]).skip_damaged();
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        assert_right_but_for(&got, &inner, reader.losses());
    }
}

#[test]
fn other_files_are_refused_as_such() {
    for other in [
        &b""[..],
        b"PK",
        b"\x28\xb5\x2f\xfd and so on, longer than a head",
    ] {
        for fault in [
            unpack(other, 100).unwrap_err(),
            verify(other, 1).unwrap_err(),
            SeekReader::new(Cursor::new(other)).unwrap_err(),
        ] {
            assert!(matches!(fault, FileError::NotNarrows), "{other:?}: {fault}");
        }
    }
    let mut trailed = pack(b"content", &small()).unwrap();
    trailed.extend(b"more");
    assert!(unpack(&trailed, 100).unwrap_err().is_damage());
    assert!(SeekReader::new(Cursor::new(trailed)).is_err());
}

// Goal: any bytes give an error or content, never a panic or memory without bound. Method: files with bytes changed and
// pieces moved at random; the fuzz target does more.
#[test]
fn mangled_files_are_survived() {
    let content = content();
    let file = pack(&content, &small()).unwrap();
    let mut rng = Random(7);
    for _ in 0..2000 {
        let mut mangled = file.clone();
        for _ in 0..1 + rng.below(4) {
            match rng.below(4) {
                0 => {
                    let at = rng.below(mangled.len());
                    mangled[at] = rng.next_u64() as u8;
                }
                1 => {
                    let (from, to) = (rng.below(mangled.len()), rng.below(mangled.len()));
                    let len = rng.below(64).min(mangled.len() - from.max(to));
                    mangled.copy_within(from..from + len, to);
                }
                2 => {
                    let at = rng.below(mangled.len());
                    mangled.drain(at..(at + rng.below(40)).min(mangled.len()));
                }
                _ => {
                    let at = rng.below(mangled.len());
                    mangled.splice(at..at, [rng.next_u64() as u8; 3]);
                }
            }
            if mangled.is_empty() {
                mangled.push(0);
            }
        }
        let _ = read_prefix(&mangled, &content);
        let mut got = Vec::new();
        let _ = Reader::new(&mangled[..])
            .skip_damaged()
            .read_to_end(&mut got);
        by_index(&mangled, &content, 0);
    }
}
