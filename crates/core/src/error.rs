//! Why bytes from a peer did not become a chunk.

use crate::CodecId;

/// Why a frame did not become its chunk. Each variant is one thing the caller should do next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Contradicts the format or its checksum. Close the connection; the bytes are lost.
    #[error("corrupt frame at byte {offset}: {what}")]
    Corrupt {
        /// Where in the input the contradiction was noticed, in bytes.
        offset: usize,
        /// What was wrong there.
        what: &'static str,
    },
    /// Not a fault: read until `needed` bytes are buffered, then call again.
    #[error("frame needs {needed} bytes, have {have}")]
    Incomplete {
        /// Bytes that must be buffered before the next call can say more.
        needed: usize,
        /// Bytes that were offered.
        have: usize,
    },
    /// Well formed, but made by a newer peer. Offer fewer codecs and reconnect.
    #[error("codec {0} is not registered here")]
    Unsupported(CodecId),
    /// Well formed, but larger than this receiver agreed to. Nothing was allocated for it.
    #[error("{what} of {asked} exceeds this receiver's limit of {limit}")]
    Limit {
        /// Which bound: `"chunk bytes"`, `"history bytes"`.
        what: &'static str,
        /// What the frame asked for.
        asked: u64,
        /// What was agreed.
        limit: u64,
    },
}

impl DecodeError {
    /// Shorthand for the commonest fault.
    #[must_use]
    pub fn corrupt(offset: usize, what: &'static str) -> Self {
        Self::Corrupt { offset, what }
    }
}
