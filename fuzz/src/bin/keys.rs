//! Key files, codes that people type, and verdicts of a receiver, from anybody: read or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_io::secure::{Pairing, Psk};
use narrows_wire::dialogue::Verdict;

fuzz_target!(|data: &[u8]| {
    let mut from = data;
    while let Ok(verdict) = Verdict::read(&mut from) {
        let mut again = Vec::new();
        verdict.write(&mut again);
        assert_eq!(Verdict::read(&mut &again[..]).unwrap(), verdict);
    }
    if let Ok(text) = std::str::from_utf8(data) {
        for user in [None, Some("ann")] {
            let _ = Psk::parse(text, user);
        }
        if let Some(pairing) = Pairing::typed(text) {
            assert_eq!(
                Pairing::typed(&pairing.code()).unwrap().code(),
                pairing.code()
            );
        }
    }
});
