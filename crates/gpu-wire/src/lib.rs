//! Messages between `libcuda.so.1` of a program and the server that owns the GPU (`docs/specs/gpu.md`).
//!
//! ```text
//! client                                     server
//!  control channel  Hello              ──▶
//!                                      ◀──   Welcome {snapshot of the device}, or Refused
//!                   Launch, Write, …   ──▶   in order; most have no answer
//!                                      ◀──   Done {call}, Data, Fault, Callback, Delivered
//!  lane 3           bytes of a copy    ──▶   that a Write announced
//!                                      ◀──   bytes of a copy that a Read asked for
//! ```
//!
//! Every call of the driver API is one of four classes. *Local*: the client knows the answer (contexts, pointer
//! attributes). *Cached*: the snapshot or an earlier answer has it (device attributes, kernel layouts). *Async*: a
//! message without an answer; ids are the client's, so nothing waits for the server to name things, and an error is
//! told by the next synchronising call. *Sync*: a message with a `call` number, which its answer repeats.
//!
//! Floor: format. No I/O and no clock; everything from a peer is bounded before it is stored.
#![forbid(unsafe_code)]

mod codec;
mod content;
mod message;
mod span;

pub use codec::{Frames, WireError};
pub use content::{
    CONTENT_LEN_MAX, CONTENT_LEN_MIN, CONTENTS_MAX, CONTENTS_TOLD_MAX, ContentHash, Contents,
};
pub use message::{
    Attribute, ContentPiece, DeviceInfo, Image, KernelInfo, KernelRef, Launch, Param, Reply,
    Request, Texture, ids,
};
pub use span::{Row, Span};

/// Service name of the control channel. The number is the version of the messages.
pub const SERVICE: &str = "gpu/1";
/// Service names of lanes begin so; the lane's number follows.
pub const LANE_SERVICE: &str = "gpu/1 lane ";
/// Longest message, in bytes.
pub const MESSAGE_LEN_MAX: usize = 16 << 20;
/// Copies up to this length travel within the control channel, in bytes.
pub const INLINE_LEN_MAX: usize = 16 << 10;
/// Images up to this length travel with the message that loads them, in bytes.
pub const INLINE_IMAGE_LEN_MAX: usize = 256 << 10;
/// Longest parameter buffer of a kernel, in bytes: what CUDA 12.1 allows.
pub const PARAMS_LEN_MAX: usize = 32_764;
/// Most lanes of a session.
pub const LANES_MAX: u32 = 64;

/// The lane's number in a channel's service name.
#[must_use]
pub fn lane_of(service: &str) -> Option<u32> {
    let number = service.strip_prefix(LANE_SERVICE)?.parse().ok()?;
    (number < LANES_MAX).then_some(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn launch() -> Request {
        Request::Launch(Launch {
            stream: 7,
            kernel: KernelRef {
                module: 9,
                index: 2,
            },
            grid: [1, 2, 3],
            block: [4, 5, 6],
            shared: 48,
            cooperative: false,
            params: vec![1, 2, 3],
        })
    }

    // Goal: what is sent is what is received, however the stream is cut. Method: two messages, every cut.
    #[test]
    fn messages_survive_any_cut() {
        let (first, second) = (launch(), Request::StreamSync { call: 5, stream: 7 });
        let mut bytes = Vec::new();
        first.put(&mut bytes);
        second.put(&mut bytes);
        for cut in 0..=bytes.len() {
            let mut frames = Frames::default();
            let mut found = Vec::new();
            for part in [&bytes[..cut], &bytes[cut..]] {
                frames.push(part);
                while let Some(frame) = frames.next_frame().unwrap() {
                    found.push(Request::parse(&frame).unwrap());
                }
            }
            assert_eq!(found, [first.clone(), second.clone()], "cut at {cut}");
        }
    }

    // Goal: a peer cannot make us hold what it names. Method: a length beyond the limit, a list longer than its frame.
    #[test]
    fn lengths_are_bounded_before_anything_is_stored() {
        let mut frames = Frames::default();
        frames.push(&u32::MAX.to_le_bytes());
        assert!(matches!(
            frames.next_frame(),
            Err(WireError::TooLong { .. })
        ));
        let mut bytes = Vec::new();
        launch().put(&mut bytes);
        let at = bytes.len() - 7;
        bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Request::parse(&bytes[4..]), Err(WireError::Short));
    }

    proptest! {
        #[test]
        fn anything_parses_or_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Request::parse(&bytes);
            let _ = Reply::parse(&bytes);
        }
    }
}
