//! [`Decoder`]: a file in, its content out, for callers that are given bytes rather than asking for them.
//!
//! Why: programs in C and Python hand over what they have and want what comes of it. The reader is the same as for files:
//! where it wants bytes that have not come, it stops and is asked again.

use std::{
    collections::VecDeque,
    io::{self, Read},
};

use crate::{FileError, read::Reader, summary::Summary};

/// Unpacks one file from bytes as they come, on the calling thread.
///
/// ```
/// use narrows_rest::{Decoder, Progress};
///
/// let mut bytes = narrows_rest::pack(b"content", &narrows_rest::FileOptions::default())?;
/// bytes.extend(b"what follows");
/// let (mut decoder, mut content) = (Decoder::new(), Vec::new());
/// for byte in bytes.chunks(1) {
///     decoder.feed(byte);
///     while let Progress::Content(piece) = decoder.step()? {
///         content.extend_from_slice(piece);
///         let len = piece.len();
///         decoder.consume(len);
///     }
/// }
/// assert!(matches!(decoder.step()?, Progress::End));
/// assert_eq!(content, b"content");
/// assert_eq!(decoder.into_unused(), b"what follows");
/// # Ok::<(), narrows_rest::FileError>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    reader: Reader<Feed>,
    /// What an error said; after it there is nothing to be had.
    failed: bool,
}

/// How far a [`Decoder`] is.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// The next bytes of the content, at least one; what is taken must be said by [`Decoder::consume`].
    Content(&'a [u8]),
    /// More of the file is needed. If there is no more, the file was cut.
    NeedsInput,
    /// The file has ended, and all of its content was taken.
    End,
}

/// Bytes that came and were not read.
#[derive(Debug, Default)]
struct Feed(VecDeque<u8>);

impl Read for Feed {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.0.read(out)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            len => Ok(len),
        }
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A decoder of a file of which nothing has come.
    #[must_use]
    pub fn new() -> Self {
        let reader = Reader::new(Feed::default()).one_file();
        Self {
            reader,
            failed: false,
        }
    }

    /// Takes more of the file. It is held until it is needed, so what is fed at once bounds memory.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.reader.inner_mut().0.extend(bytes);
    }

    /// Unpacks as far as it takes to say how far it is.
    ///
    /// # Errors
    /// [`FileError`], and the same kind of error again for each further call.
    pub fn step(&mut self) -> Result<Progress<'_>, FileError> {
        if self.failed {
            return Err(FileError::Damaged {
                at: 0,
                what: "decoding was ended by an error before",
            });
        }
        match self.reader.fill() {
            Err(FileError::Io(fault)) if fault.kind() == io::ErrorKind::WouldBlock => {
                Ok(Progress::NeedsInput)
            }
            Err(fault) => {
                self.failed = true;
                Err(fault)
            }
            // Borrowed anew: the checker does not follow a borrow that one arm returns.
            Ok([]) => Ok(Progress::End),
            Ok(_) => Ok(Progress::Content(self.reader.held())),
        }
    }

    /// Takes so many bytes of what [`Decoder::step`] gave.
    pub fn consume(&mut self, len: usize) {
        self.reader.consume(len);
    }

    /// What was read so far: complete at the end.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        self.reader.summary()
    }

    /// Bytes that were fed and lie behind the end of the file.
    #[must_use]
    pub fn into_unused(self) -> Vec<u8> {
        let (mut unused, feed) = self.reader.into_unread();
        unused.extend(feed.0);
        unused
    }
}
