//! Two peers and what they agreed: handshake, channels, credit, feedback, resume after a cut.
//!
//! A state machine without I/O: bytes of messages come in as slices, what to send goes out by [`Session::poll_send`],
//! what happened by [`Session::poll_event`]; it reads no clock and starts no thread. Payloads never pass through it:
//! it orders [`Frame`](narrows_format::Frame)s whose payload type it does not look at.
//!
//! Upstream: the facade's link threads; downstream: `format`. `docs/specs/session.md` gives the bytes.
#![forbid(unsafe_code)]

mod channel;
mod error;
mod link;
mod message;
mod numbers;
mod session;

pub use error::{Code, SessionError};
pub use link::LinkId;
pub use message::{Hello, Message, PROTOCOL_VERSION};
pub use session::{Accept, Config, Event, Out, Role, Session};
