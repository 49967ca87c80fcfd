//! Packed bytes from anybody, for every codec: a chunk, written whole, or an error. And whatever is packed comes back.
#![no_main]

use std::{cell::RefCell, sync::LazyLock};

use libfuzzer_sys::fuzz_target;
use narrows_core::{CodecId, Level, Registry, Workspace};

static REGISTRY: LazyLock<Registry> = LazyLock::new(narrows::default_registry);
static IDS: LazyLock<Vec<CodecId>> = LazyLock::new(|| REGISTRY.ids().collect());

thread_local! {
    static WS: RefCell<Workspace> = RefCell::default();
}

fuzz_target!(|data: &[u8]| {
    let Some((&[codec, how, len_low, len_high], bytes)) = data.split_first_chunk::<4>() else {
        return;
    };
    let codec = REGISTRY
        .by_id(IDS[usize::from(codec) % IDS.len()])
        .expect("it is listed");
    let history_len = if codec.info().history {
        usize::from(how >> 2) * 16
    } else {
        0
    };
    let (history, bytes) = bytes.split_at(history_len.min(bytes.len()));
    WS.with_borrow_mut(|ws| {
        if how & 1 == 0 {
            let mut unpack = |fill: u8| {
                let mut out = vec![fill; usize::from(u16::from_le_bytes([len_low, len_high])) + 1];
                codec.unpack(bytes, history, &mut out, ws).map(|()| out)
            };
            assert!(
                unpack(0x5a) == unpack(0xa5),
                "a chunk depends on what was there before"
            );
        } else if !bytes.is_empty() {
            let mut packed = vec![0; narrows_format::packed_len_max(bytes.len() as u32) as usize];
            let level = Level(i16::from_le_bytes([len_low, len_high]));
            // The dearest levels take milliseconds for a byte.
            let level = Level(level.0.clamp(-20, 9));
            if let Some(len) = codec.pack(bytes, level, history, &mut packed, ws) {
                let mut back = vec![0xa5; bytes.len()];
                codec
                    .unpack(&packed[..len], history, &mut back, ws)
                    .expect("what was packed unpacks");
                assert!(back == bytes);
            }
        }
    });
});
