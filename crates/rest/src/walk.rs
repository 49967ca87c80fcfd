//! Goes through a file's bytes from front to end, frame by frame, and past what is damaged if that is wanted.
//!
//! Past damage: a frame whose header does not hold is looked for by the next header that does, byte by byte. The
//! header's check covers the channel, drawn for each file, and the whole sequence number, so what is found is a frame of
//! this file behind the last one; that its chunk is right is for its own check to say. The number tells where in the
//! content it belongs, so what was lost has a place and a length.
//!
//! Neighbours: [`crate::read`] unpacks what comes out. Nothing is allocated for bytes that are not there.

use std::io::Read;

use narrows_core::{ChannelId, DecodeError, Seq};
use narrows_format::{HEADER_LEN_MAX, HEADER_LEN_MIN, Header};

use crate::{
    FileError,
    ahead::Ahead,
    layout::{
        ENTRIES_MAX, ENTRY_LEN, Entry, FOOT_LEN, FOOT_MAGIC, Foot, HEAD_LEN, HEAD_MAGIC, Head,
    },
};

/// What comes next in a file.
#[derive(Debug)]
pub(crate) enum Step {
    /// A file begins: the first, or one that was appended.
    Begin(Head),
    /// A chunk's frame.
    Chunk(Found),
    /// A frame of the index.
    Index(Found),
    /// Chunks from this one on up to the next step's were lost; only where damage is passed over.
    Lost {
        /// Content bytes of this file before it.
        offset: u64,
        /// Content bytes; `None` where nothing tells how many, and the file ends.
        len: Option<u64>,
        /// Where in the file the damage was noticed.
        at: u64,
        what: &'static str,
    },
    /// A file ends.
    End(Foot),
}

/// A frame.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) header: Header,
    pub(crate) payload: Vec<u8>,
    /// Where it begins in the file.
    pub(crate) at: u64,
}

/// Goes through a file.
#[derive(Debug)]
pub(crate) struct Walk<R> {
    bytes: Ahead<R>,
    skips: bool,
    /// The file we are in.
    head: Option<Head>,
    /// Whether one was there.
    begun: bool,
    next_chunk: u64,
    next_index: u64,
    /// Content bytes before the next chunk.
    offset: u64,
    /// Where the first frame of the index begins.
    index_at: Option<u64>,
    /// Where the file we are in begins.
    began_at: u64,
    /// A step that was found behind damage.
    after: Option<Step>,
    /// Damage before the index, whose cost only the foot tells.
    noticed: Option<(u64, &'static str)>,
    /// What lies behind the first file is left alone.
    is_single: bool,
    over: bool,
}

impl<R: Read> Walk<R> {
    pub(crate) fn new(inner: R, skips: bool) -> Self {
        Self {
            bytes: Ahead::new(inner),
            skips,
            head: None,
            begun: false,
            next_chunk: 0,
            next_index: 0,
            offset: 0,
            index_at: None,
            began_at: 0,
            after: None,
            noticed: None,
            is_single: false,
            over: false,
        }
    }

    /// Bytes of the file gone through so far.
    pub(crate) fn at(&self) -> u64 {
        self.bytes.at
    }

    pub(crate) fn into_inner(self) -> R {
        self.bytes.into_inner()
    }

    pub(crate) fn inner_mut(&mut self) -> &mut R {
        self.bytes.inner_mut()
    }

    /// Leaves alone what lies behind the first file.
    pub(crate) fn one_file(&mut self) {
        self.is_single = true;
    }

    /// What was read and belongs to no step, and what was read from.
    pub(crate) fn into_unread(self) -> (Vec<u8>, R) {
        (self.bytes.peek().to_vec(), self.bytes.into_inner())
    }

    /// The next step; `None` behind the last file.
    pub(crate) fn step(&mut self) -> Result<Option<Step>, FileError> {
        if let Some(step) = self.after.take() {
            return Ok(Some(step));
        }
        if self.over {
            return Ok(None);
        }
        let Some(head) = self.head else {
            return self.begin();
        };
        match self.frame(&head) {
            Ok(step) => Ok(Some(step)),
            Err(FileError::Truncated { at }) if self.skips => {
                self.over = true;
                Ok(Some(self.lost_end(at, "the file ends early")))
            }
            Err(FileError::Damaged { at, what }) if self.skips => self.skip(&head, at, what),
            // Nothing was taken, so the same step can be tried again.
            Err(fault) if fault.is_wait() => Err(fault),
            Err(fault) => {
                self.over = true;
                Err(fault)
            }
        }
    }

    /// The head of a file, or the end of the last.
    fn begin(&mut self) -> Result<Option<Step>, FileError> {
        if self.begun && self.is_single {
            self.over = true;
            return Ok(None);
        }
        let at = self.bytes.at;
        let have = self.bytes.fill(HEAD_LEN)?;
        if have == 0 && self.begun {
            self.over = true;
            return Ok(None);
        }
        let parsed = match self.bytes.peek().first_chunk() {
            Some(bytes) => Head::parse(bytes, at),
            None if HEAD_MAGIC.starts_with(&self.bytes.peek()[..have.min(8)]) && have > 0 => {
                Err(FileError::Truncated {
                    at: at + have as u64,
                })
            }
            None => Err(FileError::NotNarrows),
        };
        let head = match parsed {
            Ok(head) => head,
            Err(FileError::NotNarrows) if self.begun && !self.skips => {
                self.over = true;
                return Err(FileError::damaged(at, "bytes behind the end of the file"));
            }
            Err(fault) if !self.skips || matches!(fault, FileError::Version(_)) => {
                self.over = true;
                return Err(fault);
            }
            Err(fault) => match self.guess_head()? {
                Some(head) => {
                    self.noticed = Some((at, "the head is damaged"));
                    head
                }
                None => {
                    self.over = true;
                    if !self.begun {
                        return Err(fault);
                    }
                    return Ok(Some(self.lost_end(at, "bytes behind the end of the file")));
                }
            },
        };
        self.bytes.consume(HEAD_LEN);
        (self.head, self.begun) = (Some(head), true);
        (self.next_chunk, self.next_index, self.index_at) = (0, 0, None);
        self.offset = 0;
        self.began_at = at;
        Ok(Some(Step::Begin(head)))
    }

    /// The head that the first frame behind a damaged one implies.
    fn guess_head(&mut self) -> Result<Option<Head>, FileError> {
        self.bytes.fill(HEAD_LEN + HEADER_LEN_MAX)?;
        let Some(bytes) = self.bytes.peek().get(HEAD_LEN..) else {
            return Ok(None);
        };
        let largest = Head {
            chunk_len: narrows_core::limits::CHUNK_LEN_MAX as u32,
            channel: ChannelId(2),
            element: None,
        };
        let header = largest.frame(bytes, |_| Some(Seq(0))).ok();
        let found = header.filter(|header| {
            header.seq == Seq(0) && header.channel.0 >= 2 && header.channel.0.is_multiple_of(2)
        });
        Ok(found.map(|header| Head {
            // Of a file of one chunk, what the length is no longer matters.
            chunk_len: header.raw_len.next_multiple_of(4096),
            channel: header.channel,
            element: None,
        }))
    }

    /// The frame or the foot that comes next.
    fn frame(&mut self, head: &Head) -> Result<Step, FileError> {
        let at = self.bytes.at;
        if self.bytes.fill(HEADER_LEN_MAX)? < HEADER_LEN_MIN {
            return Err(self.truncated());
        }
        if self.bytes.peek()[0] == FOOT_MAGIC[0] {
            return self.foot(head);
        }
        let header = self.header(head, at)?;
        let len = header.wire_len();
        if self.bytes.fill(len)? < len {
            return Err(self.truncated());
        }
        if self.skips && !self.is_sound_behind(head, &header)? {
            self.make_sure(&header, at)?;
        }
        Ok(self.take(head, header))
    }

    /// The header that comes next, which must be the next one.
    fn header(&self, head: &Head, at: u64) -> Result<Header, FileError> {
        let (chunk, index) = (self.next_chunk, self.next_index);
        let next = |channel| {
            if channel == head.channel {
                Some(Seq(chunk))
            } else {
                (channel == head.index_channel()).then_some(Seq(index))
            }
        };
        let header = match head.frame(self.bytes.peek(), next) {
            Err(DecodeError::Incomplete { .. }) => return Err(self.truncated()),
            header => header.map_err(|fault| told(fault, at))?,
        };
        let is_chunk = header.channel == head.channel;
        let expected = if is_chunk { chunk } else { index };
        let in_order = header.seq.0 == expected && !(is_chunk && self.index_at.is_some());
        if !in_order {
            return Err(FileError::damaged(at, "a frame out of order"));
        }
        if !fits(head, &header) {
            return Err(FileError::damaged(at, "a frame longer than a chunk"));
        }
        Ok(header)
    }

    /// Takes the frame of this header out of the bytes.
    fn take(&mut self, head: &Head, header: Header) -> Step {
        let at = self.bytes.at;
        let payload = self.bytes.peek()[header.len()..header.wire_len()].to_vec();
        self.bytes.consume(header.wire_len());
        let found = Found {
            header,
            payload,
            at,
        };
        if header.channel.0.is_multiple_of(2) {
            self.next_chunk = header.seq.0 + 1;
            let before = header.seq.0.saturating_mul(head.chunk_len.into());
            self.offset = before.saturating_add(header.raw_len.into());
            Step::Chunk(found)
        } else {
            self.index_at.get_or_insert(at - self.began_at);
            self.next_index = header.seq.0 + 1;
            Step::Index(found)
        }
    }

    fn foot(&mut self, head: &Head) -> Result<Step, FileError> {
        let at = self.bytes.at;
        self.bytes.fill(FOOT_LEN)?;
        let bytes = self.bytes.peek().first_chunk();
        let foot = Foot::parse(bytes.ok_or_else(|| self.truncated())?, head, at)?;
        let index_at = self.index_at.unwrap_or(at - self.began_at);
        let is_right = self.skips
            || foot.chunks(head) == self.next_chunk
                && foot.index_at == index_at
                && u64::from(foot.index_len) == at - self.began_at - index_at;
        if !is_right {
            return Err(FileError::damaged(
                at,
                "the file's end tells of another file",
            ));
        }
        let missing = foot.chunks(head).saturating_sub(self.next_chunk);
        if missing > MISSING_MAX {
            return Err(FileError::damaged(
                at,
                "more chunks are missing than can be",
            ));
        }
        self.bytes.consume(FOOT_LEN);
        self.head = None;
        let noticed = self.noticed.take();
        if missing == 0 && noticed.is_none() {
            return Ok(Step::End(foot));
        }
        self.after = Some(Step::End(foot));
        let offset = self.offset;
        let (at, what) = noticed.unwrap_or((at, "frames are missing"));
        Ok(Step::Lost {
            offset,
            len: Some(foot.content_len.saturating_sub(offset)),
            at,
            what,
        })
    }

    /// Whether what begins behind the frame of `header` is a frame or the foot, or the end of all there is.
    fn is_sound_behind(&mut self, head: &Head, header: &Header) -> Result<bool, FileError> {
        let len = header.wire_len();
        let have = self.bytes.fill(len + HEADER_LEN_MAX)?;
        let behind = &self.bytes.peek()[len..have];
        let seq = Seq(header.seq.0 + 1);
        let next = |channel: ChannelId| match channel {
            channel if channel == header.channel => Some(seq),
            channel => (channel == head.index_channel()).then_some(Seq(0)),
        };
        Ok(behind.is_empty()
            || behind.starts_with(&FOOT_MAGIC)
            || head
                .frame(behind, next)
                .is_ok_and(|found| found.seq == next(found.channel).unwrap_or_default()))
    }

    /// Unpacks the frame that comes next to see whether it is as long as it says: what follows is no frame.
    fn make_sure(&self, header: &Header, at: u64) -> Result<(), FileError> {
        let payload = &self.bytes.peek()[header.len()..header.wire_len()];
        crate::read::unpack_chunk(header, payload, at, &mut Default::default()).map(drop)
    }

    /// Finds the next sound frame or foot behind what is damaged.
    fn skip(
        &mut self,
        head: &Head,
        at: u64,
        what: &'static str,
    ) -> Result<Option<Step>, FileError> {
        loop {
            self.bytes.consume(1);
            let have = self.bytes.fill(SEARCH_LEN)?;
            if have < HEADER_LEN_MIN {
                self.over = true;
                return Ok(Some(self.lost_end(at, what)));
            }
            let Some(ahead) = self.search(head) else {
                // All but the last bytes, in which one may begin.
                self.bytes.consume(have - HEADER_LEN_MAX.min(have - 1));
                continue;
            };
            self.bytes.consume(ahead);
            if self.bytes.peek()[0] == FOOT_MAGIC[0] {
                self.noticed = Some((at, what));
                match self.foot(head) {
                    Ok(step) => return Ok(Some(step)),
                    Err(FileError::Io(fault)) => return Err(fault.into()),
                    Err(_) => continue,
                }
            }
            let sought = |channel| self.sought(head, channel);
            let header = head
                .frame(self.bytes.peek(), sought)
                .map_err(|fault| told(fault, at))?;
            if self.bytes.fill(header.wire_len())? < header.wire_len() {
                continue;
            }
            let offset = self.offset;
            let missing = header.seq.0.saturating_sub(self.next_chunk);
            let is_chunk = header.channel == head.channel;
            let step = self.take(head, header);
            if !is_chunk || missing == 0 {
                // How many chunks are missing, if any, the foot tells.
                self.noticed = Some((at, what));
                return Ok(Some(step));
            }
            self.after = Some(step);
            return Ok(Some(Step::Lost {
                offset,
                len: Some(missing * u64::from(head.chunk_len)),
                at,
                what,
            }));
        }
    }

    /// How far ahead the next header or foot lies that may be one of this file.
    fn search(&self, head: &Head) -> Option<usize> {
        let bytes = self.bytes.peek();
        (0..bytes.len().saturating_sub(HEADER_LEN_MIN - 1)).find(|&at| {
            let bytes = &bytes[at..];
            match bytes[0] {
                byte if byte == FOOT_MAGIC[0] => bytes.starts_with(&FOOT_MAGIC),
                byte if byte >> 4 == 1 => {
                    let sought = |channel| self.sought(head, channel);
                    head.frame(bytes, sought).is_ok_and(|header| {
                        fits(head, &header)
                            && sought(header.channel).is_some_and(|seq| header.seq >= seq)
                    })
                }
                _ => false,
            }
        })
    }

    /// The least number that a frame of this channel may have now.
    fn sought(&self, head: &Head, channel: ChannelId) -> Option<Seq> {
        if channel == head.channel && self.index_at.is_none() {
            Some(Seq(self.next_chunk))
        } else {
            (channel == head.index_channel()).then_some(Seq(self.next_index))
        }
    }

    fn lost_end(&self, at: u64, what: &'static str) -> Step {
        Step::Lost {
            offset: self.offset,
            len: None,
            at,
            what,
        }
    }

    fn truncated(&self) -> FileError {
        FileError::Truncated {
            at: self.bytes.at + self.bytes.peek().len() as u64,
        }
    }
}

/// Whether a frame is no longer than what it carries may be.
fn fits(head: &Head, header: &Header) -> bool {
    let longest = if header.channel == head.channel {
        head.chunk_len as usize
    } else {
        ENTRIES_MAX * ENTRY_LEN
    };
    header.raw_len as usize <= longest
}

/// Chunks in a row that can be found missing: a header tells its number within so many of the one expected.
const MISSING_MAX: u64 = 32_767;
/// Bytes that are searched at once.
const SEARCH_LEN: usize = 64 << 10;

/// An index' entries, read from its frames one after the other.
pub(crate) fn entries(raw: &[u8], at: u64) -> Result<impl Iterator<Item = Entry>, FileError> {
    let (entries, rest) = raw.as_chunks::<ENTRY_LEN>();
    if !rest.is_empty() {
        return Err(FileError::damaged(at, "an index of half an entry"));
    }
    Ok(entries.iter().map(Entry::parse))
}

/// A fault of a frame at byte `at`, as one of the file.
pub(crate) fn told(fault: DecodeError, at: u64) -> FileError {
    match fault {
        DecodeError::Corrupt { what, .. } => FileError::damaged(at, what),
        DecodeError::Unsupported(codec) => FileError::Codec { codec, at },
        DecodeError::Limit { .. } => FileError::damaged(at, "a frame longer than a chunk"),
        _ => FileError::damaged(at, "a frame that is cut"),
    }
}
