//! Packed pages from anybody, for LZ-T: a page, written whole, or an error. And whatever is packed comes back.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use narrows_chains::lzt;

thread_local! {
    static WS: RefCell<lzt::Workspace> = RefCell::default();
}

fuzz_target!(|data: &[u8]| {
    let Some((&[how, len_low, len_high], bytes)) = data.split_first_chunk::<3>() else {
        return;
    };
    let len = usize::from(u16::from_le_bytes([len_low, len_high])) % (lzt::PAGE_MAX + 1);
    if how & 1 == 0 {
        let unpack = |fill: u8| {
            let mut page = vec![fill; len];
            lzt::unpack(bytes, &mut page).map(|()| page)
        };
        assert!(unpack(0x5a) == unpack(0xa5));
    } else {
        // Bytes repeated make a page of any length.
        let page: Vec<u8> = bytes
            .iter()
            .copied()
            .cycle()
            .take(if bytes.is_empty() { 0 } else { len })
            .collect();
        let mut packed = vec![0; 2 * page.len() + 64];
        let pack = if how & 2 == 0 {
            lzt::pack
        } else {
            lzt::pack_strong
        };
        WS.with_borrow_mut(|ws| {
            if let Some(len) = pack(&page, &mut packed, ws) {
                let mut back = vec![0xa5; page.len()];
                lzt::unpack(&packed[..len], &mut back).expect("what was packed unpacks");
                assert!(back == page);
            }
        });
    }
});
