//! The narrows frame: one packed chunk on the wire. Bytes in and out, no I/O.
//!
//! `docs/specs/frame.md` describes the bytes, exactly enough for a second implementation; `compat/v1/` holds golden
//! frames that every later version must read. Upstream: `pipeline` makes and consumes frames; downstream: `session`
//! orders them.
#![forbid(unsafe_code)]

mod header;

pub use header::{
    FRAME_COST_MIN, HEADER_LEN_MAX, HEADER_LEN_MIN, Header, chunk_check, packed_len_max,
};

/// A chunk packed: its header and its bytes. `B` is whatever holds bytes where the frame lives.
#[derive(Debug, Clone)]
pub struct Frame<B> {
    /// What the payload is.
    pub header: Header,
    /// The packed bytes, `header.packed_len` of them.
    pub payload: B,
}
