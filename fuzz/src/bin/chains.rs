//! Packed pages from anybody, by our chains and by zBeWalgo's: a page, written whole, or an error. And whatever is
//! packed, by any profile, any built-in chain or zBeWalgo, comes back.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use narrows_chains::{
    Chain, PAGE, PagePacker, Profile,
    chain::{self, Scratch},
    zbewalgo::Zbewalgo,
};

struct State {
    scratch: Scratch,
    packers: [PagePacker; 4],
    zbewalgo: Zbewalgo,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::new(State {
        scratch: Scratch::default(),
        packers: [Profile::Fast, Profile::Dense, Profile::Balanced, Profile::Ratio].map(PagePacker::new),
        zbewalgo: Zbewalgo::default(),
    });
}

fuzz_target!(|data: &[u8]| {
    let Some((&[how], bytes)) = data.split_first_chunk::<1>() else {
        return;
    };
    STATE.with_borrow_mut(|state| match how % 8 {
        0..4 => {
            let mut unpack = |fill| {
                let mut page = [fill; PAGE];
                chain::unpack(bytes, &mut page, &mut state.scratch).map(|()| page)
            };
            assert!(
                unpack(0x5a) == unpack(0xa5),
                "a page depends on what was there before"
            );
        }
        4 => {
            let mut page = [0; PAGE];
            let _ = state.zbewalgo.unpack(bytes, &mut page);
        }
        how => {
            // Bytes repeated make a page.
            let mut page = [0; PAGE];
            page.iter_mut()
                .zip(bytes.iter().cycle())
                .for_each(|(to, byte)| *to = *byte);
            let (mut packed, mut back) = ([0; PAGE], [0xa5; PAGE]);
            let is_back = match how {
                5 => {
                    let packer = &mut state.packers[bytes.len() % 4];
                    let len = packer.pack(&page, &mut packed);
                    len.is_none_or(|len| {
                        packer.unpack(&packed[..len], &mut back).is_ok() && back == page
                    })
                }
                6 => {
                    let len = state.zbewalgo.pack(&page, &mut packed);
                    len.is_none_or(|len| {
                        state.zbewalgo.unpack(&packed[..len], &mut back).is_ok() && back == page
                    })
                }
                _ => {
                    let chains = Chain::builtins();
                    let len = chains[bytes.len() % chains.len()].pack(
                        &page,
                        &mut packed,
                        &mut state.scratch,
                    );
                    len.is_none_or(|len| {
                        chain::unpack(&packed[..len], &mut back, &mut state.scratch).is_ok()
                            && back == page
                    })
                }
            };
            assert!(is_back, "what was packed comes back");
        }
    });
});
