//! Why a file could not be written or read.

use std::io;

use narrows_core::CodecId;

/// Why a file could not be written or read. Each variant is one thing the caller should do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The system's word: reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It does not begin as a `.narrows` file does.
    #[error("not a narrows file: it begins otherwise")]
    NotNarrows,
    /// A newer version, or a feature of one. Read it with a newer narrows.
    #[error("version {0} of the file format is not known here; a newer narrows reads it")]
    Version(u8),
    /// A chunk was packed by a codec that this program does not have. Read it with a newer narrows.
    #[error("codec {codec} at byte {at} is not known here; a newer narrows reads it")]
    Codec {
        /// Which one.
        codec: CodecId,
        /// Where its frame begins in the file, in bytes.
        at: u64,
    },
    /// A sound file of another format, in a part that is not read here.
    #[error("it is not read here: {0}")]
    Foreign(&'static str),
    /// Contradicts the format or a checksum. What lies before it was right; the rest can be read leaving out what is
    /// damaged.
    #[error("damaged at byte {at}: {what}")]
    Damaged {
        /// Where in the file, in bytes.
        at: u64,
        /// What was wrong there.
        what: &'static str,
    },
    /// It ends before its end: a copy that was cut, or a writer that was never finished.
    #[error(
        "it ends at byte {at}, before its end: a copy was cut, or its writer was never finished"
    )]
    Truncated {
        /// Its length in bytes.
        at: u64,
    },
    /// Larger than the caller allows. Nothing was allocated for it.
    #[error("{what} of {asked} exceed the limit of {limit}")]
    Limit {
        /// What is too large.
        what: &'static str,
        /// Bytes that the file asked for.
        asked: u64,
        /// Bytes that are allowed.
        limit: u64,
    },
    /// A setting that is out of its range.
    #[error("{0}")]
    Setting(String),
}

impl FileError {
    /// Whether the file, rather than the caller or the machine, is at fault: its bytes are not those that were written.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Truncated { .. })
    }

    /// Whether a source has nothing just now, and may be asked again.
    pub(crate) fn is_wait(&self) -> bool {
        matches!(self, Self::Io(fault) if fault.kind() == io::ErrorKind::WouldBlock)
    }

    /// Shorthand for the commonest.
    pub(crate) fn damaged(at: u64, what: &'static str) -> Self {
        Self::Damaged { at, what }
    }
}

impl From<FileError> for io::Error {
    /// For `std::io::Read` and `Seek`; the error itself is inside.
    fn from(fault: FileError) -> Self {
        match fault {
            FileError::Io(fault) => fault,
            FileError::Truncated { .. } => Self::new(io::ErrorKind::UnexpectedEof, fault),
            FileError::Setting(_) => Self::new(io::ErrorKind::InvalidInput, fault),
            _ => Self::new(io::ErrorKind::InvalidData, fault),
        }
    }
}

impl FileError {
    /// The error inside an [`io::Error`] that came of one, as `Read` and `Seek` of this crate give it.
    #[must_use]
    pub fn from_io(fault: io::Error) -> Self {
        let is_ours = fault.get_ref().is_some_and(|inner| inner.is::<Self>());
        if !is_ours {
            return Self::Io(fault);
        }
        let inner = fault.into_inner().expect("it was just seen");
        *inner.downcast().expect("it was just seen to be one")
    }
}
