//! A `.narrows` file of any make: read from the front, past damage, and by its index, in bounded memory. What the index
//! leads to is what the front gives.
#![no_main]

use std::io::{Cursor, Read};

use libfuzzer_sys::fuzz_target;
use narrows_rest::{FileOptions, Reader, SeekReader, list, pack, unpack, verify};

/// Content that is read at most: a file may say that it is all zeros, and endless.
const CONTENT_MAX: u64 = 8 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((kind, data)) = data.split_first() else {
        return;
    };
    if kind % 2 == 0 {
        let options = FileOptions::default().threads(1).chunk_len(4096);
        let file = pack(data, &options).expect("the options are in range");
        assert_eq!(unpack(&file, CONTENT_MAX).expect("it was just made"), data);
        assert!(
            verify(&file[..], 1)
                .expect("it can be read")
                .losses
                .is_empty()
        );
        return;
    }
    let front = unpack(data, CONTENT_MAX);
    let mut past = Vec::new();
    let _ = Reader::new(data)
        .skip_damaged()
        .take(CONTENT_MAX)
        .read_to_end(&mut past);
    let _ = list(Cursor::new(data));
    let Ok(reader) = SeekReader::new(Cursor::new(data)) else {
        return;
    };
    let mut indexed = Vec::new();
    let read = reader.take(CONTENT_MAX).read_to_end(&mut indexed);
    if let (Ok(front), Ok(_)) = (front, read) {
        assert_eq!(indexed, front);
    }
});
