//! Result documents from anybody: read or refused, and what is read becomes a page.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(runs) = narrows_lab::result::parse(data, "fuzz") {
        let page = narrows_lab::album::report(&runs).html();
        assert!(page.contains("<html"));
    }
});
