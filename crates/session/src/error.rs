//! Why a session or a channel ended early, in words for both sides.

use std::fmt;

use narrows_core::DecodeError;

/// Whose fault it was, as it travels in `Bye` and `Abort`. The command line maps each to its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub u16);

impl Code {
    /// No fault: the work is done.
    pub const DONE: Self = Self(0);
    /// Something failed on the side that says so: a file, a disk, a target that does not answer.
    pub const FAILED: Self = Self(1);
    /// Bytes contradict their checksum or format.
    pub const CORRUPT: Self = Self(3);
    /// One side could not prove who it is.
    pub const AUTH: Self = Self(4);
    /// The peers do not speak the same protocol.
    pub const PROTOCOL: Self = Self(5);
    /// More than the receiver agreed to hold.
    pub const LIMIT: Self = Self(6);
    /// A person or the system asked it to stop.
    pub const CANCELLED: Self = Self(130);
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Why a session cannot go on. Each variant is one thing the caller should do next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The peer broke the protocol. Say so to it, close all links.
    #[error("the peer broke the protocol: {0}")]
    Protocol(&'static str),
    /// No version in common. Upgrade the older side.
    #[error(
        "the peer speaks protocol versions {theirs_min} to {theirs_max}, this program speaks {ours}; upgrade the older one"
    )]
    Version {
        /// Oldest version the peer speaks.
        theirs_min: u16,
        /// Newest version the peer speaks.
        theirs_max: u16,
        /// The only version spoken here.
        ours: u16,
    },
    /// A frame was wrong. Close the link; other links and a new one can go on.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The peer ended the session and said why.
    #[error("the peer ended the session: {text}")]
    Peer {
        /// Its reason.
        code: Code,
        /// Its words.
        text: String,
    },
}

impl SessionError {
    /// The code under which the other side is told.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Decode(DecodeError::Corrupt { .. }) => Code::CORRUPT,
            Self::Decode(DecodeError::Limit { .. }) => Code::LIMIT,
            Self::Peer { code, .. } => *code,
            Self::Protocol(_) | Self::Version { .. } | Self::Decode(_) => Code::PROTOCOL,
        }
    }
}
