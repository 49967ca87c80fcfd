//! [`Reader`]: file in, content out, from front to end.
//!
//! Frames are read ahead and unpacked side by side, two for each thread; every chunk is checked before a byte of it is
//! handed out, and the whole content at its end. So what was handed out is right, whatever comes after.

use std::{
    fmt,
    io::{self, Read},
};

use narrows_core::{CodecId, DecodeError, Workspace};
use narrows_format::{Header, chunk_check};
use xxhash_rust::xxh3::Xxh3;

use crate::{
    FileError,
    choose::CODECS,
    layout::{ENTRIES_MAX, Entry, Foot, Head},
    options,
    ordered::Ordered,
    summary::{Loss, Summary},
    walk::{Found, Step, Walk, entries, told},
};

/// Reads a file's content from front to end; a pipe will do. Files that were appended to one another are read as one.
///
/// ```
/// use std::io::Read;
///
/// let file = narrows_rest::pack(b"content", &narrows_rest::FileOptions::default())?;
/// let mut content = String::new();
/// narrows_rest::Reader::new(&file[..]).read_to_string(&mut content)?;
/// assert_eq!(content, "content");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// An error of `read` has a [`FileError`] inside: [`FileError::from_io`].
pub struct Reader<R> {
    walk: Walk<R>,
    skips: bool,
    jobs: Ordered<Item>,
    /// Nothing more comes from `walk`.
    walked: bool,
    head: Option<Head>,
    /// What is handed out, and how far that is.
    chunk: Vec<u8>,
    used: usize,
    /// Then so many zeros.
    zeros: u64,
    content_check: Xxh3,
    /// Content bytes of this file, and of those before it.
    content_len: u64,
    before: u64,
    /// Something of this file was lost, so its check cannot be made.
    is_partial: bool,
    seen: Vec<Entry>,
    indexed: usize,
    /// What the index says otherwise, which is no damage if something was lost before.
    disputed: Option<FileError>,
    summary: Summary,
    losses: Vec<Loss>,
}

/// What comes out of the jobs, in order.
#[derive(Debug)]
enum Item {
    Step(Step),
    Chunk {
        header: Header,
        at: u64,
        chunk: Result<Vec<u8>, FileError>,
    },
    Fault(FileError),
}

impl<R: Read> Reader<R> {
    /// A reader that unpacks on the calling thread.
    #[must_use]
    pub fn new(inner: R) -> Self {
        Self {
            walk: Walk::new(inner, false),
            skips: false,
            jobs: Ordered::in_turn(1),
            walked: false,
            head: None,
            chunk: Vec::new(),
            used: 0,
            zeros: 0,
            content_check: Xxh3::new(),
            content_len: 0,
            before: 0,
            is_partial: false,
            seen: Vec::new(),
            indexed: 0,
            disputed: None,
            summary: Summary::default(),
            losses: Vec::new(),
        }
    }

    /// Unpacks on so many threads, 0 for one each processor. To be called before the first byte is read.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.jobs = Ordered::in_turn(options::threads(threads));
        self
    }

    /// Reads past what is damaged: zeros stand for chunks that are lost, so that the rest keeps its place, and
    /// [`Reader::losses`] names them. To be called before the first byte is read.
    #[must_use]
    pub fn skip_damaged(mut self) -> Self {
        self.walk = Walk::new(self.walk.into_inner(), true);
        self.skips = true;
        self
    }

    /// Reads the first file only, and leaves alone what lies behind it.
    pub(crate) fn one_file(mut self) -> Self {
        self.walk.one_file();
        self
    }

    pub(crate) fn inner_mut(&mut self) -> &mut R {
        self.walk.inner_mut()
    }

    /// What was read and belongs to no file, and what was read from.
    pub(crate) fn into_unread(self) -> (Vec<u8>, R) {
        self.walk.into_unread()
    }

    /// The bytes that [`Reader::fill`] gave last.
    pub(crate) fn held(&self) -> &[u8] {
        &self.chunk[self.used..]
    }

    /// What was lost so far. Empty unless [`Reader::skip_damaged`].
    #[must_use]
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// What was read so far: complete when `read` has returned 0.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The next bytes, at least one unless the content has ended; what is taken must be said by [`Reader::consume`].
    pub(crate) fn fill(&mut self) -> Result<&[u8], FileError> {
        while self.used == self.chunk.len() {
            if self.zeros > 0 {
                let len = self.zeros.min(ZEROS_LEN);
                self.zeros -= len;
                (self.chunk, self.used) = (vec![0; len as usize], 0);
            } else if !self.advance()? {
                return Ok(&[]);
            }
        }
        Ok(&self.chunk[self.used..])
    }

    pub(crate) fn consume(&mut self, len: usize) {
        self.used += len;
    }

    /// Leaves out zeros for what was lost, for who wants no content: a file may claim any number.
    pub(crate) fn leave_out_zeros(&mut self) {
        self.zeros = 0;
    }

    /// Takes the next item; whether there was one.
    fn advance(&mut self) -> Result<bool, FileError> {
        while !self.walked && !self.jobs.is_full() {
            match self.walk.step() {
                Ok(Some(Step::Chunk(found))) => {
                    self.jobs.submit(move |ws| Item::unpack(&found, ws))
                }
                Ok(Some(step)) => self.jobs.put(Item::Step(step)),
                Ok(None) => self.walked = true,
                Err(fault) if fault.is_wait() && self.jobs.is_empty() => return Err(fault),
                Err(fault) if fault.is_wait() => break,
                Err(fault) => {
                    self.walked = true;
                    self.jobs.put(Item::Fault(fault));
                }
            }
        }
        let Some(item) = self.jobs.wait_next() else {
            self.summary.content_len = self.before + self.content_len;
            self.summary.packed_len = self.walk.at();
            return Ok(false);
        };
        // A panic of a codec is a bug; to the reader it is a chunk that does not unpack.
        let item = item.unwrap_or(Item::Fault(FileError::damaged(
            self.walk.at(),
            "a chunk on which its codec failed",
        )));
        let taken = self.take(item);
        if taken.is_err() {
            // What lies behind is not to be handed out by a second call.
            self.walked = true;
            self.jobs = Ordered::in_turn(1);
        }
        taken.map(|()| true)
    }

    fn take(&mut self, item: Item) -> Result<(), FileError> {
        match item {
            Item::Fault(fault) => return Err(fault),
            Item::Chunk { header, at, chunk } => self.take_chunk(&header, at, chunk)?,
            Item::Step(Step::Begin(head)) => {
                self.head = Some(head);
                self.content_check.reset();
                (self.content_len, self.is_partial, self.indexed) = (0, false, 0);
                self.seen.clear();
                self.disputed = None;
                self.summary.element = head.element;
            }
            Item::Step(Step::Index(found)) => {
                if let Err(fault) = self.compare_index(&found) {
                    self.pass(fault, 0)?;
                }
                if let Some(fault) = self.disputed.take_if(|_| !self.skips) {
                    return Err(fault);
                }
            }
            Item::Step(Step::Lost {
                offset,
                len,
                at,
                what,
            }) => {
                let offset = self.before + offset;
                self.note(Loss {
                    offset,
                    len,
                    at,
                    what,
                });
            }
            Item::Step(Step::End(foot)) => self.end(&foot)?,
            Item::Step(Step::Chunk(_)) => unreachable!("chunks are unpacked by jobs"),
        }
        Ok(())
    }

    fn take_chunk(
        &mut self,
        header: &Header,
        at: u64,
        chunk: Result<Vec<u8>, FileError>,
    ) -> Result<(), FileError> {
        self.seen.push(Entry::of(header));
        self.summary
            .count(header.codec, header.raw_len, header.packed_len);
        match chunk {
            Ok(chunk) => {
                let ends_early = !self.content_len.is_multiple_of(self.chunk_len());
                if ends_early {
                    self.pass(FileError::damaged(at, "a short chunk before another"), 0)?;
                }
                self.content_check.update(&chunk);
                self.content_len += chunk.len() as u64;
                (self.chunk, self.used) = (chunk, 0);
                Ok(())
            }
            Err(fault) => self.pass(fault, header.raw_len.into()),
        }
    }

    fn chunk_len(&self) -> u64 {
        self.head.map_or(1, |head| head.chunk_len.into())
    }

    /// Notes that `len` bytes of content are lost for `fault`, if damage is passed over.
    fn pass(&mut self, fault: FileError, len: u64) -> Result<(), FileError> {
        let (at, what) = match fault {
            FileError::Damaged { at, what } if self.skips => (at, what),
            FileError::Codec { at, .. } if self.skips => (at, "packed by an unknown codec"),
            fault => return Err(fault),
        };
        self.note(Loss {
            offset: self.before + self.content_len,
            len: Some(len),
            at,
            what,
        });
        Ok(())
    }

    fn note(&mut self, loss: Loss) {
        let len = loss.len.unwrap_or(0);
        self.zeros += len;
        self.content_len += len;
        self.is_partial = true;
        self.losses.push(loss);
    }

    /// What the index says must be what was seen.
    fn compare_index(&mut self, found: &Found) -> Result<(), FileError> {
        let raw = unpack_chunk(
            &found.header,
            &found.payload,
            found.at,
            &mut Workspace::default(),
        )?;
        if self.is_partial {
            return Ok(());
        }
        let left = &self.seen[self.indexed..];
        let left = &left[..left.len().min(ENTRIES_MAX)];
        self.indexed += left.len();
        if !entries(&raw, found.at)?.eq(left.iter().copied()) {
            let fault = FileError::damaged(found.at, "the index tells of other frames");
            self.disputed.get_or_insert(fault);
        }
        Ok(())
    }

    fn end(&mut self, foot: &Foot) -> Result<(), FileError> {
        let at = self.walk.at();
        self.summary.files += 1;
        self.summary.content_check = foot.content_check;
        if !self.is_partial {
            let is_right = foot.content_len == self.content_len
                && foot.content_check == self.content_check.digest();
            if !is_right {
                self.pass(
                    FileError::damaged(at, "the check of the whole content differs"),
                    0,
                )?;
            } else if let Some(fault) = self.disputed.take() {
                self.pass(fault, 0)?;
            } else if self.indexed != self.seen.len() {
                self.pass(
                    FileError::damaged(at, "frames that the index does not have"),
                    0,
                )?;
            }
        }
        self.before += std::mem::take(&mut self.content_len);
        Ok(())
    }
}

impl<R: Read> Read for Reader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        let bytes = self.fill()?;
        let len = bytes.len().min(out.len());
        out[..len].copy_from_slice(&bytes[..len]);
        self.consume(len);
        Ok(len)
    }
}

impl<R> fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("summary", &self.summary)
            .field("losses", &self.losses)
            .finish_non_exhaustive()
    }
}

impl<R: Read> io::BufRead for Reader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Ok(self.fill()?)
    }

    fn consume(&mut self, len: usize) {
        self.used += len;
    }
}

impl Item {
    fn unpack(found: &Found, ws: &mut Workspace) -> Self {
        Self::Chunk {
            header: found.header,
            at: found.at,
            chunk: unpack_chunk(&found.header, &found.payload, found.at, ws),
        }
    }
}

/// Zeros that are handed out at once.
const ZEROS_LEN: u64 = 1 << 20;

/// The chunk of a frame at byte `at`, checked.
pub(crate) fn unpack_chunk(
    header: &Header,
    payload: &[u8],
    at: u64,
    ws: &mut Workspace,
) -> Result<Vec<u8>, FileError> {
    let chunk = if header.codec == CodecId::RAW {
        payload.to_vec()
    } else {
        let codec = CODECS
            .by_id(header.codec)
            .ok_or_else(|| told(DecodeError::Unsupported(header.codec), at))?;
        let mut chunk = vec![0; header.raw_len as usize];
        codec
            .unpack(payload, &[], &mut chunk, ws)
            .map_err(|fault| told(fault, at))?;
        chunk
    };
    if chunk_check(header.channel, header.seq, &chunk) != header.check {
        return Err(FileError::damaged(at, "a chunk whose check differs"));
    }
    Ok(chunk)
}
