//! An NBD client that says anything, cut anywhere, to both machines of the server, in front of a small RAM disk.
//!
//! The first byte chooses what was agreed before, the second how the bytes are cut; with its third odd, headers get the
//! right magic number, small offsets and payloads, as a client that means harm would send them.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use narrows_io::helper_pool::HelperPool;
use narrows_memory::{Budget, Chains, Profile, Store, StoreConfig};
use narrows_nbd::{Agreed, Export, Exports, Handshake, Next, Out, Step, Tls, Transmission};

const SIZE: u64 = 200_000;

static EXPORTS: LazyLock<Exports> = LazyLock::new(|| {
    let store = Store::new(StoreConfig {
        size: SIZE,
        profile: Profile::Fast,
        chains: Chains::default(),
        budget: Arc::new(Budget::new(Some(256 << 10))),
        backing: None,
        helpers: Arc::new(HelperPool::new("crew", 0).expect("no thread is asked for")),
    });
    let device = Arc::new(store.expect("there is memory for it"));
    let mut exports = Exports::default();
    for (name, read_only) in [("", false), ("ro", true)] {
        let export = Export {
            name: name.into(),
            description: "d".into(),
            device: device.clone(),
            read_only,
        };
        exports.add(export).expect("the names differ");
    }
    exports
});

fuzz_target!(|data: &[u8]| {
    let Some((&[agreed, cut, shaped], bytes)) = data.split_first_chunk::<3>() else {
        return;
    };
    let cut = usize::from(cut) + 1;
    let made;
    let bytes = match shaped % 2 {
        0 => bytes,
        _ => {
            made = shape(bytes);
            &made
        }
    };
    let mut out = Out::default();
    let mut handshake = Handshake::new(
        EXPORTS.clone(),
        [Tls::Absent, Tls::Offered][usize::from(agreed >> 7)],
        &mut out,
    );
    let mut pending: Vec<u8> = vec![0, 0, 0, 3];
    for piece in bytes.chunks(cut) {
        pending.extend_from_slice(piece);
        let Ok((taken, step)) = handshake.advance(&pending, &mut out) else {
            break;
        };
        out.clear();
        pending.drain(..taken);
        match step {
            Step::More => {}
            Step::StartTls => handshake.secured(),
            Step::Transmit(agreed) => return transmit(agreed, &pending, cut),
            Step::Close => break,
        }
    }
    let export = EXPORTS
        .find(["", "ro"][usize::from(agreed >> 2 & 1)])
        .expect("it is there")
        .clone();
    transmit(
        Agreed {
            export,
            structured: agreed & 1 != 0,
            allocation: agreed & 2 != 0,
        },
        bytes,
        cut,
    );
});

fn transmit(agreed: Agreed, bytes: &[u8], cut: usize) {
    let mut machine = Transmission::new(agreed);
    let (mut out, mut pending) = (Out::default(), Vec::new());
    for piece in bytes.chunks(cut) {
        pending.extend_from_slice(piece);
        loop {
            let Ok((taken, next)) = machine.advance(&pending, &mut out) else {
                return;
            };
            assert!(out.bytes().len() <= narrows_nbd::out::CAPACITY);
            out.clear();
            pending.drain(..taken);
            match next {
                Next::Send => {}
                Next::Receive => break,
                Next::Close => return,
            }
        }
        assert!(
            pending.len() < 4096 + 28,
            "what waits is a header or part of a page"
        );
    }
}

/// Requests of 8 bytes each: flags, command, offset, length; a write is followed by its payload.
fn shape(bytes: &[u8]) -> Vec<u8> {
    let mut made = Vec::new();
    for &[flags, command, o1, o2, o3, l1, l2, l3] in bytes.as_chunks::<8>().0 {
        let offset = u64::from_be_bytes([0, 0, 0, 0, 0, o1 & 3, o2, o3]);
        let len = u32::from_be_bytes([0, l1 & 3, l2, l3]);
        made.extend(0x2560_9513_u32.to_be_bytes());
        made.extend([0, flags, 0, command % 9]);
        made.extend(offset.to_be_bytes().repeat(2));
        made.extend(len.to_be_bytes());
        if command % 9 == 1 {
            made.extend((0..len).map(|i| (i * u32::from(l3 | 1)) as u8));
        }
    }
    made
}
