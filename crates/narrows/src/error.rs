//! Why a session, a channel or a connection attempt ended.

use std::io;

use narrows_session::Code;

/// Why something of a session ended. Each variant is one thing the caller should do next; the text is for people and
/// says what it is.
///
/// ```
/// use narrows::{Code, Error};
///
/// let error = Error::new(Code::AUTH, "the pre-shared keys differ");
/// assert!(matches!(error, Error::Auth(_)));
/// assert_eq!(error.exit_code(), 4);
/// assert_eq!(error.to_string(), "the pre-shared keys differ");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not a fault: the session was closed, its work done.
    #[error("{0}")]
    Closed(String),
    /// A file, a disk, a network, or a peer that does not answer. Trying again may succeed.
    #[error("{text}")]
    Io {
        /// The kind of the system's error; [`io::ErrorKind::Other`] where the peer reported it.
        kind: io::ErrorKind,
        /// In words.
        text: String,
    },
    /// Bytes contradict their checksum or format. Do not use them.
    #[error("{0}")]
    Corrupt(String),
    /// One side could not prove who it is. Look at keys and certificates.
    #[error("{0}")]
    Auth(String),
    /// The peers do not speak the same protocol, version or service.
    #[error("{0}")]
    Protocol(String),
    /// More than the receiver agreed to hold. Send less at once, or raise its limits.
    #[error("{0}")]
    Limit(String),
    /// A person or the system asked it to stop.
    #[error("{0}")]
    Cancelled(String),
    /// The call itself is at fault: an address that is none, flags that contradict each other, an open address without
    /// authentication. Change the call.
    #[error("{0}")]
    Usage(String),
    /// A code that this version does not know, from a newer peer.
    #[error("{text}")]
    Other {
        /// As it travelled.
        code: Code,
        /// In words.
        text: String,
    },
}

impl Error {
    /// The error that travels as `code`, in words.
    #[must_use]
    pub fn new(code: Code, text: impl Into<String>) -> Self {
        let text = text.into();
        match code {
            Code::DONE => Self::Closed(text),
            Code::FAILED => Self::Io {
                kind: io::ErrorKind::Other,
                text,
            },
            Code::CORRUPT => Self::Corrupt(text),
            Code::AUTH => Self::Auth(text),
            Code::PROTOCOL => Self::Protocol(text),
            Code::LIMIT => Self::Limit(text),
            Code::CANCELLED => Self::Cancelled(text),
            code => Self::Other { code, text },
        }
    }

    /// How it travels to the peer.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Closed(_) => Code::DONE,
            Self::Io { .. } | Self::Usage(_) => Code::FAILED,
            Self::Corrupt(_) => Code::CORRUPT,
            Self::Auth(_) => Code::AUTH,
            Self::Protocol(_) => Code::PROTOCOL,
            Self::Limit(_) => Code::LIMIT,
            Self::Cancelled(_) => Code::CANCELLED,
            Self::Other { code, .. } => *code,
        }
    }

    /// The exit code of a program that ends for this reason; 1 where there is no better one.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            error => u8::try_from(error.code().0).unwrap_or(1),
        }
    }

    /// In words.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Closed(text)
            | Self::Corrupt(text)
            | Self::Auth(text)
            | Self::Protocol(text)
            | Self::Limit(text)
            | Self::Cancelled(text)
            | Self::Usage(text)
            | Self::Io { text, .. }
            | Self::Other { text, .. } => text,
        }
    }
}

impl From<io::Error> for Error {
    /// A session's error that travelled through `std::io` comes out as it was.
    fn from(error: io::Error) -> Self {
        let kind = error.kind();
        error.downcast::<Self>().unwrap_or_else(|error| Self::Io {
            kind,
            text: error.to_string(),
        })
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Io { kind, .. } => Self::new(kind, error),
            error => Self::other(error),
        }
    }
}
