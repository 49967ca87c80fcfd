//! narrows for programs in C, in the manners of zstd.h. `docs/c.md` has examples.
//!
//! | module | holds |
//! |---|---|
//! | [`error`] | codes, their names, the reason in words |
//! | [`version`] | which version this is |
//! | `boundary` | pointers checked, panics caught |
//! | [`options`] | structs that begin with their size |
//! | [`context`] | parameters, whole buffers |
//! | [`stream`] | input and output as they come |
//! | `packing` | a stream being packed, between calls |
//! | [`device`] | block devices: disk and RAM disk |
//!
//! `include/narrows.h` is made from these sources by cbindgen, committed, and compared by a test; so
//! is the list of exported symbols. Doc comments of what is exported are the header's comments, so
//! they speak of C.
//!
//! # Safety
//! Every exported function is `unsafe` for the same reasons, which are the caller's to keep: a
//! pointer is null or points at a live object of its type or at as many bytes as its length says, an
//! object is not used after its `close` or `free`, and a buffer that is written is used by nobody else
//! meanwhile. Lengths, null pointers, codes and structs' sizes are checked here.
#![allow(
    clippy::missing_safety_doc,
    reason = "the crate's head says it once for all of them, and the header would repeat it"
)]

mod boundary;
pub mod context;
pub mod device;
pub mod error;
pub mod options;
mod packing;
pub mod stream;
pub mod version;
