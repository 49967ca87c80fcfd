//! The first data path: files, trees, streams and connections over a narrows session.
//!
//! | module | holds |
//! |---|---|
//! | [`tree`] | the bytes of a tree of files on a channel (`docs/specs/tree.md`) |
//! | [`source`] | what is to be sent, and what is found there |
//! | [`send`] | reads paths or standard input into a channel |
//! | [`recv`] | writes a channel into a directory or to standard output; a file gets its name when it is whole |
//! | [`keep`] | owners, access lists and attributes, where both ends' users want them kept (`tree/3`) |
//! | [`dialogue`] | what the two ends of a tree tell each other beside it (`tree/2`) |
//! | [`tunnel`] | carries connections of other programs, many over one session |
#![forbid(unsafe_code)]

pub mod dialogue;
pub mod keep;
mod place;
pub mod recv;
pub mod send;
pub mod source;
pub mod tree;
pub mod tunnel;

use narrows::{Code, Error};

/// What a transfer's receiver reports back when everything is in place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Received {
    /// Files, directories and links made.
    pub entries: u64,
    /// Content bytes, holes included.
    pub bytes: u64,
    /// Of those bytes, in holes.
    #[serde(default)]
    pub holes: u64,
    /// Files of `entries` that were there already, as they are at the sender.
    #[serde(default)]
    pub unchanged: u64,
    /// Files of `entries` that were there and stay as they were, since the sender wanted that of newer or of any.
    #[serde(default)]
    pub kept: u64,
    /// Files that were replaced though they were newer, or write-protected.
    #[serde(default)]
    pub replaced: u64,
    /// Files that the sender could not read.
    #[serde(default)]
    pub left_out: u64,
    /// Entries of which owner, access list or attributes could not be set.
    #[serde(default)]
    pub unset: u64,
    /// Entries in whose place a directory stands.
    #[serde(default)]
    pub blocked: u64,
}

/// Service name of a channel that carries a tree.
pub const SERVICE_TREE: &str = "tree";
/// Service name of a channel that carries a tree, and answers.
pub const SERVICE_TREE_2: &str = "tree/2";
/// Service name of a channel that carries a tree, answers, and what is kept beside content, mode and time.
pub const SERVICE_TREE_3: &str = "tree/3";
/// Service name of a channel that carries plain bytes.
pub const SERVICE_STREAM: &str = "stream";
/// Service name of a channel that carries a connection.
pub const SERVICE_TUNNEL: &str = "tunnel";

/// Why a transfer failed. The text says what to do next; the code is the command's exit code.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The session ended, by the peer or the network.
    #[error(transparent)]
    Session(#[from] Error),
    /// A file here could not be read or written.
    #[error("{what} {path}: {fault}")]
    File {
        /// `"cannot read"`, `"cannot write"`, …
        what: &'static str,
        /// Which.
        path: String,
        /// The system's word.
        fault: std::io::Error,
    },
    /// The peer's bytes are no tree, or one that may not be written here.
    #[error("refused from the peer: {0}")]
    Refused(String),
    /// A file here is not what was begun to be sent, and the receiver cannot be told to forget it.
    #[error("cannot read {path}: {fault}; the receiver is of a version that cannot leave it out")]
    Torn {
        /// Which.
        path: String,
        /// The system's word.
        fault: std::io::Error,
    },
    /// More than is held here.
    #[error("more than is held here: {0}")]
    Limit(&'static str),
}

impl TransferError {
    pub(crate) fn file(what: &'static str, path: &std::path::Path, fault: std::io::Error) -> Self {
        // A session's end travels through `io::Error` where the standard traits are used.
        match fault.downcast::<Error>() {
            Ok(end) => Self::Session(end),
            Err(fault) => Self::File {
                what,
                path: path.display().to_string(),
                fault,
            },
        }
    }

    /// The code the peer is told and the command exits with.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Session(end) => end.code(),
            Self::File { .. } | Self::Torn { .. } => Code::FAILED,
            Self::Refused(_) => Code::PROTOCOL,
            Self::Limit(_) => Code::LIMIT,
        }
    }
}
