//! An NBD server: any [`BlockDevice`](narrows_core::BlockDevice) for any NBD client.
//!
//! ```text
//! socket ──▶ Handshake (options) ──▶ Transmission (requests) ──▶ BlockDevice
//!        ◀── Out ◀──────────────────────┘ replies, gathered
//! ```
//!
//! Floor: engine. The protocol (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>) is two state
//! machines that take bytes and give bytes; [`server`] alone waits, and only through `narrows-io`.
//!
//! | module | holds |
//! |---|---|
//! | [`export`] | what is offered, under which name |
//! | [`handshake`] | fixed newstyle negotiation: options in, an [`Agreed`] export out |
//! | [`transmission`] | requests in, replies out, by the thread that receives them |
//! | `parallel` | requests side by side, for devices that wait |
//! | `request` | one request: its header, what is refused, how it is answered |
//! | [`inbox`] | bytes that came, and the wait for more |
//! | [`out`] | replies that wait to be sent |
//! | `ended` | how connections end |
//! | [`server`] | listeners, TLS, a thread for each connection |
//!
//! Spoken: structured replies, `base:allocation`, trim, write zeroes, cache, flush, FUA, DF, multi-conn, STARTTLS.
//! Not spoken: extended headers, resize, oldstyle.
//!
//! Memory of a connection to a device that runs inline is [`inbox::BUFFER_LEN`] for what came and [`out::CAPACITY`] for
//! what goes, whatever lengths the client names: payloads stream through in pieces of [`PIECE`]. With workers it is
//! 64 MiB of requests in flight and 8 MiB of buffers kept, whatever the client asks for.
//!
//! Locks: the server's list of connections; of a connection with workers its queue, what is in flight, the outbox, the
//! buffers kept, and the error of a write in pieces. Each is locked alone and for moments: a thread that writes to the
//! client has taken the writer out of the outbox first.
#![forbid(unsafe_code)]

mod ended;
pub mod export;
pub mod handshake;
pub mod inbox;
pub mod out;
mod parallel;
mod proto;
mod request;
pub mod server;
pub mod transmission;

#[cfg(test)]
mod tests;

pub use export::{Export, ExportError, Exports};
pub use handshake::{Agreed, Handshake, HandshakeError, Step, Tls};
pub use out::Out;
pub use proto::{PIECE, REQUEST_LEN_MAX};
pub use server::{Config, PORT, ServeError, Server};
pub use transmission::{Next, Transmission};
