//! What a server of GPUs or a program's driver library is told by anybody, and images of any make: parsed or refused, in
//! bounded memory.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use narrows::Registry;
use narrows_gpu_server::image;
use narrows_gpu_wire::{Frames, MESSAGE_LEN_MAX, Reply, Request};

static REGISTRY: OnceLock<Registry> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    let registry = REGISTRY.get_or_init(narrows::default_registry);
    let Some((kind, data)) = data.split_first() else {
        return;
    };
    match kind % 4 {
        0 => {
            let mut frames = Frames::default();
            for part in data.chunks(1 + usize::from(*kind)) {
                frames.push(part);
                while let Ok(Some(frame)) = frames.next_frame() {
                    assert!(frame.len() <= MESSAGE_LEN_MAX);
                    let _ = Request::parse(&frame);
                    let _ = Reply::parse(&frame);
                }
            }
        }
        1 => {
            if let Ok(request) = Request::parse(data) {
                let mut bytes = Vec::new();
                request.put(&mut bytes);
                assert_eq!(&bytes[4..], data, "a message has one form");
            }
        }
        2 => {
            if let Ok(reply) = Reply::parse(data) {
                let mut bytes = Vec::new();
                reply.put(&mut bytes);
                assert_eq!(&bytes[4..], data, "a message has one form");
            }
        }
        _ => drop(image::read(data, registry)),
    }
});
