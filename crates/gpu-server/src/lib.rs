//! Serves a GPU to programs on other hosts, or an emulation of one where there is none.
//!
//! ```text
//!  control channel ──▶ session: checks, handles ──▶ dyn Device ┬ cuda: the driver of this host
//!  lanes           ──▶ bytes of copies          ──▶            └ host: arena, streams, PTX interpreter
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`server`] | clients, and what they may have |
//! | [`session`] | one client: its messages in order, its handles, its end |
//! | [`lane`] | channels that carry copies, and the way answers go |
//! | [`content`] | pieces of copies that need not be sent again |
//! | [`device`] | what a back end does |
//! | [`image`] | PTX, fatbins and cubins: what is in them |
//! | [`images`] | images by the hash of their contents, kept on disk |
//! | [`host`] | device memory in host memory, kernels interpreted |
//! | [`cuda`] | the real driver, opened at run time |
//!
//! Every handle belongs to a session and goes with it. Nothing that a client names is used unchecked: lengths, counts
//! and addresses are compared with what the session has before memory is touched or allocated.

pub mod content;
pub mod cuda;
pub mod device;
pub mod host;
pub mod image;
pub mod images;
pub mod lane;
pub mod server;
pub mod session;

pub use device::{Device, Failure, Freed};
pub use server::{Backend, Server, ServerOptions, settings};

/// Why a session ends.
pub(crate) fn ended(code: narrows::Code, text: impl Into<String>) -> narrows::Error {
    narrows::Error::new(code, text)
}
