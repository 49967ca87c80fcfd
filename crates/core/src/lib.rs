//! Words every narrows crate shares.
//!
//! Floor: the lowest. Names nothing else of the workspace, does no I/O, reads no clock and holds no `unsafe`.
//!
//! | module | holds |
//! |---|---|
//! | [`ids`] | [`CodecId`], [`Level`], [`ChannelId`], [`Seq`] |
//! | [`units`] | sizes and rates: parsing `64K`, printing `64 KiB` |
//! | [`limits`] | the bounds a receiver imposes before it allocates anything |
//! | [`error`] | [`DecodeError`], why a frame did not become its chunk |
//! | [`codec`] | [`Codec`], one lossless format, and the [`Workspace`] its scratch memory lives in |
//! | [`backend`] | [`Backend`], what runs codecs: a CPU library or a device |
//! | [`clock`] | [`Clock`], real or virtual time |
//! | [`registry`] | [`Registry`], the codecs this process can run |
//! | [`block`] | [`BlockDevice`], bytes at offsets, as a server sees them |
//! | [`policy`] | [`Policy`], which chooses codec and level for a chunk |
#![forbid(unsafe_code)]

pub mod backend;
pub mod block;
pub mod clock;
pub mod codec;
pub mod error;
pub mod ids;
pub mod limits;
pub mod policy;
pub mod registry;
pub mod units;

pub use backend::{Backend, Unavailable};
pub use block::{BlockDevice, BlockError};
pub use clock::Clock;
pub use codec::{Codec, Info, Workspace};
pub use error::DecodeError;
pub use ids::{ChannelId, CodecId, Level, Seq};
pub use limits::Limits;
pub use policy::{Ahead, Candidate, Decision, Feedback, Gauges, Outcome, Policy};
pub use registry::{DuplicateCodec, Registry};
