//! The engine of narrows, joined into sending and receiving endpoints. The one crate outsiders depend on.
//!
//! ```text
//!            ChannelWriter -> Packer -> (policy, workers) -> Session -> link writer -> Transport
//! Transport -> link reader -> Session -> Unpacker -> (workers) -> ChannelReader
//! ```
//!
//! [`Engine`] is what a process has once: codecs, worker threads, buffers. [`Endpoint`] is one side of a session:
//! [`Endpoint::connect`] makes it on the side that dials, [`Acceptor::take`] on the side that is dialled. Its channels
//! are a [`ChannelWriter`] and a [`ChannelReader`] each.
//!
//! Threads of an endpoint: two per link (reader, writer) and a keeper that sends feedback, notices silence, and dials
//! again when a link is lost. Locks, outermost first: a packer's order, the endpoint's state. No lock is held while a
//! thread waits for a socket, but for a link's own writer.
#![forbid(unsafe_code)]

mod channel;
mod connect;
mod endpoint;
mod engine;
mod inner;
mod keeper;
mod link;
mod settings;
mod state;
mod tallies;
mod thread;

pub use channel::{ChannelReader, ChannelWriter};
pub use connect::{Acceptor, Dial};
pub use endpoint::{Endpoint, Incoming, Stats};
pub use engine::{Engine, default_registry};
pub use inner::End;
pub use settings::{Plan, Settings, UnknownCodec, candidate, history_below, packer};

pub use narrows_core as core;
pub use narrows_io as io;
pub use narrows_pipeline::{Buf, Bytes, Chunk, Explain};
pub use narrows_session::Code;
