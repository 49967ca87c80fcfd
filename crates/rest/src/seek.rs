//! [`SeekReader`]: any part of a file's content, by the index at its end.

use std::io::{self, BufRead, Read, Seek, SeekFrom};

use narrows_core::{Seq, Workspace};
use narrows_format::{HEADER_LEN_MAX, HEADER_LEN_MIN, Header, packed_len_max};

use crate::{
    FileError,
    layout::{ENTRIES_MAX, ENTRY_LEN, Entry, FOOT_LEN, FRAME_LEN_MIN, Foot, HEAD_LEN, Head},
    read::unpack_chunk,
    summary::{FrameInfo, Summary, name_of},
    walk::{entries, told},
};

/// Reads any part of a file's content. One chunk is unpacked at a time, on the calling thread, and the last is kept.
///
/// ```
/// use std::io::{Cursor, Read, Seek, SeekFrom};
///
/// let content: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
/// let file = narrows_rest::pack(&content, &narrows_rest::FileOptions::default())?;
/// let mut reader = narrows_rest::SeekReader::new(Cursor::new(file))?;
/// let mut number = [0; 4];
/// reader.seek(SeekFrom::Start(4 * 77_777))?;
/// reader.read_exact(&mut number)?;
/// assert_eq!(u32::from_le_bytes(number), 77_777);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SeekReader<R> {
    inner: R,
    /// Files that were appended to one another, in order.
    parts: Vec<Part>,
    len: u64,
    at: u64,
    /// The chunk that was unpacked last: its part and number.
    held: Option<(usize, u64)>,
    chunk: Vec<u8>,
    payload: Vec<u8>,
    ws: Workspace,
}

#[derive(Debug)]
struct Part {
    /// Content bytes before this one.
    offset: u64,
    /// Where it begins in the file.
    at: u64,
    head: Head,
    foot: Foot,
    frames: Vec<Entry>,
    /// Where each frame begins in the file.
    places: Vec<u64>,
}

impl<R: Read + Seek> SeekReader<R> {
    /// Reads the index. Memory for it is taken only as far as the file is long enough to have so many frames.
    ///
    /// # Errors
    /// [`FileError`], also where the file has no end, since its writer was never finished or a copy was cut: a
    /// [`Reader`](crate::Reader) reads such a file from its front.
    pub fn new(mut inner: R) -> Result<Self, FileError> {
        let mut end = inner.seek(SeekFrom::End(0))?;
        let mut parts = Vec::new();
        loop {
            let part = Part::ending_at(&mut inner, end)?;
            end = part.at;
            parts.push(part);
            if end == 0 {
                break;
            }
        }
        parts.reverse();
        let mut len = 0u64;
        for part in &mut parts {
            part.offset = len;
            len = len
                .checked_add(part.foot.content_len)
                .ok_or(FileError::damaged(part.at, "more content than can be"))?;
        }
        Ok(Self {
            inner,
            parts,
            len,
            at: 0,
            held: None,
            chunk: Vec::new(),
            payload: Vec::new(),
            ws: Workspace::default(),
        })
    }

    /// Length of the content in bytes.
    #[must_use]
    pub fn content_len(&self) -> u64 {
        self.len
    }

    /// What the file holds, by its index.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let mut summary = Summary {
            files: self.parts.len() as u64,
            content_len: self.len,
            ..Summary::default()
        };
        for part in &self.parts {
            for (n, entry) in (0..).zip(&part.frames) {
                summary.count(entry.codec, part.raw_len(n), entry.packed_len);
            }
            summary.packed_len += part.foot.file_len().unwrap_or_default();
            summary.element = part.head.element;
            summary.content_check = part.foot.content_check;
        }
        summary
    }

    /// Every frame, in the order of the content.
    pub(crate) fn frames(&self) -> impl Iterator<Item = FrameInfo> {
        self.parts.iter().flat_map(|part| {
            let frames = part.frames.iter().zip(&part.places);
            (0u64..).zip(frames).map(|(n, (entry, at))| FrameInfo {
                offset: part.offset + n * u64::from(part.head.chunk_len),
                raw_len: part.raw_len(n).into(),
                at: *at,
                packed_len: entry.packed_len.into(),
                codec: name_of(entry.codec),
            })
        })
    }

    /// Gives back what was read from.
    pub fn into_inner(self) -> R {
        self.inner
    }

    /// Makes the chunk at `self.at` the one that is held, and returns what of it lies there and behind.
    fn fill(&mut self) -> Result<&[u8], FileError> {
        if self.at >= self.len {
            return Ok(&[]);
        }
        let number = self.parts.partition_point(|part| part.offset <= self.at) - 1;
        let part = &self.parts[number];
        let within = self.at - part.offset;
        let chunk_len = u64::from(part.head.chunk_len);
        let seq = within / chunk_len;
        if self.held != Some((number, seq)) {
            self.held = None;
            self.chunk = self.load(number, seq)?;
            self.held = Some((number, seq));
        }
        Ok(&self.chunk[(within % chunk_len) as usize..])
    }

    fn load(&mut self, number: usize, seq: u64) -> Result<Vec<u8>, FileError> {
        let part = &self.parts[number];
        let (entry, at) = (part.frames[seq as usize], part.places[seq as usize]);
        let raw_len = part.raw_len(seq);
        self.payload.clear();
        self.inner.seek(SeekFrom::Start(at))?;
        let len = entry.frame_len(raw_len);
        if (&mut self.inner).take(len).read_to_end(&mut self.payload)? as u64 != len {
            return Err(FileError::Truncated { at });
        }
        let channel = part.head.channel;
        let header = part
            .head
            .frame(&self.payload, |named| {
                (named == channel).then_some(Seq(seq))
            })
            .map_err(|fault| told(fault, at))?;
        if (header.seq, header.raw_len, Entry::of(&header)) != (Seq(seq), raw_len, entry) {
            return Err(FileError::damaged(
                at,
                "a frame that is not as the index has it",
            ));
        }
        unpack_chunk(&header, &self.payload[header.len()..], at, &mut self.ws)
    }
}

impl Part {
    /// The file whose foot ends at byte `end`.
    fn ending_at(inner: &mut (impl Read + Seek), end: u64) -> Result<Self, FileError> {
        let no_end = |inner: &mut _| Err(without_end(inner, end));
        let Some(foot_at) = end.checked_sub(FOOT_LEN as u64) else {
            return no_end(inner);
        };
        inner.seek(SeekFrom::Start(foot_at))?;
        let foot_bytes = read_array(inner)?;
        let Ok(claims) = Foot::claims(&foot_bytes, foot_at) else {
            return no_end(inner);
        };
        let wrong = FileError::damaged(foot_at, "the file's end tells of another file");
        let begin = claims.file_len().and_then(|len| end.checked_sub(len));
        let Some(at) = begin else {
            return Err(wrong);
        };
        inner.seek(SeekFrom::Start(at))?;
        let head = Head::parse(&read_array(inner)?, at).map_err(|fault| match fault {
            FileError::NotNarrows if at > 0 => wrong,
            fault => fault,
        })?;
        let foot = Foot::parse(&foot_bytes, &head, foot_at)?;
        let count = foot.chunks(&head);
        let room = foot.index_at.saturating_sub(HEAD_LEN as u64);
        // Before memory is taken for as many: each frame is at least so long.
        if count > room / FRAME_LEN_MIN {
            return Err(FileError::damaged(foot_at, "more chunks than frames fit"));
        }
        let mut part = Self {
            offset: 0,
            at,
            head,
            foot,
            frames: Vec::with_capacity(count as usize),
            places: Vec::with_capacity(count as usize),
        };
        part.read_index(inner, count, foot_at)?;
        Ok(part)
    }

    fn read_index(
        &mut self,
        inner: &mut (impl Read + Seek),
        count: u64,
        foot_at: u64,
    ) -> Result<(), FileError> {
        let mut at = self.at + self.foot.index_at;
        inner.seek(SeekFrom::Start(at))?;
        let mut ws = Workspace::default();
        for seq in 0..count.div_ceil(ENTRIES_MAX as u64) {
            let header = self.index_header(inner, Seq(seq), at)?;
            let expected = (count - seq * ENTRIES_MAX as u64).min(ENTRIES_MAX as u64);
            if u64::from(header.raw_len) != expected * ENTRY_LEN as u64 {
                return Err(FileError::damaged(at, "an index of another length"));
            }
            let mut payload = vec![0; header.packed_len as usize];
            inner
                .read_exact(&mut payload)
                .map_err(|fault| cut(fault, at))?;
            let raw = unpack_chunk(&header, &payload, at, &mut ws)?;
            self.frames.extend(entries(&raw, at)?);
            at += header.wire_len() as u64;
        }
        let mut place = self.at + HEAD_LEN as u64;
        for n in 0..count {
            let (entry, raw_len) = (self.frames[n as usize], self.raw_len(n));
            // Before memory is taken for a payload: what no frame may be.
            if !(1..=packed_len_max(raw_len)).contains(&entry.packed_len) {
                return Err(FileError::damaged(foot_at, "an index of frames too long"));
            }
            self.places.push(place);
            place = place.saturating_add(entry.frame_len(raw_len));
        }
        if at != foot_at || place != self.at + self.foot.index_at {
            return Err(FileError::damaged(foot_at, "an index of another file"));
        }
        Ok(())
    }

    fn index_header(&self, inner: &mut impl Read, seq: Seq, at: u64) -> Result<Header, FileError> {
        let mut bytes = [0; HEADER_LEN_MAX];
        let (short, rest) = bytes.split_at_mut(HEADER_LEN_MIN);
        inner.read_exact(short).map_err(|fault| cut(fault, at))?;
        let len = Header::len_from(short[0]).map_err(|fault| told(fault, at))?;
        inner
            .read_exact(&mut rest[..len - HEADER_LEN_MIN])
            .map_err(|fault| cut(fault, at))?;
        let channel = self.head.index_channel();
        let header = self
            .head
            .frame(&bytes[..len], |named| (named == channel).then_some(seq))
            .map_err(|fault| told(fault, at))?;
        if header.seq != seq {
            return Err(FileError::damaged(at, "an index out of order"));
        }
        Ok(header)
    }

    /// Content bytes of a chunk.
    fn raw_len(&self, seq: u64) -> u32 {
        let chunk_len = u64::from(self.head.chunk_len);
        (self.foot.content_len - seq * chunk_len).min(chunk_len) as u32
    }
}

/// Why a file has no foot: it is no file of ours, or one that was cut.
fn without_end(inner: &mut (impl Read + Seek), end: u64) -> FileError {
    let head = inner
        .seek(SeekFrom::Start(0))
        .and_then(|_| read_array(inner));
    match head.map(|bytes| Head::parse(&bytes, 0)) {
        Ok(Err(FileError::Version(version))) => FileError::Version(version),
        Ok(Ok(_) | Err(FileError::Damaged { .. })) => FileError::Truncated { at: end },
        _ => FileError::NotNarrows,
    }
}

fn cut(fault: io::Error, at: u64) -> FileError {
    match fault.kind() {
        io::ErrorKind::UnexpectedEof => FileError::Truncated { at },
        _ => fault.into(),
    }
}

fn read_array<const N: usize>(inner: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    inner.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl<R: Read + Seek> Read for SeekReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        let bytes = self.fill()?;
        let len = bytes.len().min(out.len());
        out[..len].copy_from_slice(&bytes[..len]);
        self.at += len as u64;
        Ok(len)
    }
}

impl<R: Read + Seek> BufRead for SeekReader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Ok(self.fill()?)
    }

    fn consume(&mut self, len: usize) {
        self.at += len as u64;
    }
}

impl<R: Read + Seek> Seek for SeekReader<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (from, by) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::End(by) => (self.len, by),
            SeekFrom::Current(by) => (self.at, by),
        };
        self.at = from.checked_add_signed(by).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "a place before the content")
        })?;
        Ok(self.at)
    }
}
