//! The engine of narrows, joined into sending and receiving endpoints. The one crate outsiders depend on.
//!
//! ```text
//!            ChannelWriter -> Packer -> (policy, workers) -> Session -> link writer -> Transport
//! Transport -> link reader -> Session -> ChunkUnpacker -> (workers) -> ChannelReader
//! ```
//!
//! [`Engine`] is what a process has once: codecs, worker threads, buffers. [`Endpoint`] is one side of a session:
//! [`Endpoint::connect`] makes it on the side that dials, [`Acceptor::take`] on the side that is dialled. Its channels
//! are a [`ChannelWriter`] and a [`ChannelReader`] each.
//!
//! Threads of an endpoint: two per link (reader, writer) and a session monitor that sends feedback, notices silence, and
//! dials again when a link is lost.
//!
//! Locks, outermost first:
//!
//! | lock | is held while |
//! |---|---|
//! | a link's writer | that link is written to: the one lock that is held while a thread waits for a socket |
//! | a sending channel's order of frames (`pipeline`) | frames that are next leave for the session |
//! | the endpoint's state | moments: session, links and channels change |
//! | what the kernel told of the links (`tallies`) | gauges are read |
//! | a receiving channel's state (`pipeline`) | its chunks come, are taken, or end |
//! | the policy, the pool's and the buffers' (`pipeline`) | nothing else is locked |
//!
//! The acceptor's list of sessions is locked alone. A sent chunk takes the state's lock twice before it is packed, for
//! the length it should have and to be admitted; a received frame once before its payload is read and once after.
#![forbid(unsafe_code)]

mod channel;
mod connect;
mod endpoint;
mod engine;
mod error;
mod explain;
mod greeting;
mod inner;
mod link;
mod monitor;
mod open;
mod settings;
mod state;
mod tallies;
mod thread;

pub use channel::{ChannelReader, ChannelWriter};
pub use connect::{Acceptor, Dial};
pub use endpoint::{Endpoint, Incoming, Stats};
pub use engine::{Engine, default_registry};
pub use error::Error;
pub use explain::explain_to;
pub use open::{
    Access, Connector, PORT, SessionListener, connect, dial_once, listen, parse, unproven,
};
pub use settings::{
    Plan, Settings, SettingsBuilder, UnknownCodec, candidate, history_below, packer,
};

// What callers of this crate name, of the crates below.
pub use narrows_core::{
    Backend, Candidate, ChannelId, Codec, CodecId, Decision, DecodeError, Gauges, Info, Level,
    Limits, Outcome, Registry, Seq, Unavailable, Workspace,
    units::{Rate, Size},
};
pub use narrows_io::{
    Address, Transport,
    secure::{Auth, Pairing, Psk, SecureError},
    transport::Identity,
};
pub use narrows_pipeline::{Buf, Bytes, Chunk, Explain};
pub use narrows_session::Code;
