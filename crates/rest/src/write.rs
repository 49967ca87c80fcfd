//! [`Writer`]: content in, file out.
//!
//! Content is cut into chunks, each packed on a thread of its own by the codec that suits it (`choose`) and written in
//! order. Nothing is read back and nothing overwritten, so the file may be a pipe.

use std::{
    borrow::Cow,
    fmt,
    io::{self, Write},
};

use narrows_core::{ChannelId, CodecId, Seq, Workspace};
use narrows_format::{Header, chunk_check};
use xxhash_rust::xxh3::Xxh3;

use crate::{
    FileError, FileOptions,
    choose::{Choice, choose},
    layout::{ENTRIES_MAX, ENTRY_LEN, Entry, FOOT_LEN, Foot, Head},
    ordered::Ordered,
    summary::Summary,
};

/// Writes a file. [`Writer::finish`] ends it: without, it has no end, and readers say so.
///
/// ```
/// use std::io::Write;
/// use narrows_rest::{FileOptions, Writer};
///
/// let mut writer = Writer::new(Vec::new(), &FileOptions::default())?;
/// writer.write_all(b"content, content, content")?;
/// let (file, summary) = writer.finish()?;
/// assert_eq!(summary.content_len, 25);
/// assert_eq!(narrows_rest::unpack(&file, 1 << 20)?, b"content, content, content");
/// # Ok::<(), narrows_rest::FileError>(())
/// ```
pub struct Writer<W: Write> {
    inner: W,
    options: FileOptions,
    head: Option<Head>,
    chunk: Vec<u8>,
    jobs: Ordered<Packed>,
    next_seq: u64,
    content_check: Xxh3,
    index: Vec<Entry>,
    summary: Summary,
}

/// A chunk, packed.
#[derive(Debug)]
struct Packed {
    header: Header,
    payload: Vec<u8>,
}

/// Up to this level a chunk is packed within a tenth of a second or so, in tables of a few MiB.
const QUICK_MAX: u8 = 9;

impl<W: Write> Writer<W> {
    /// A writer of one file to `inner`, which gets whole frames and needs no buffer.
    ///
    /// # Errors
    /// [`FileError::Setting`] for options out of range.
    pub fn new(inner: W, options: &FileOptions) -> Result<Self, FileError> {
        let options = options.checked()?;
        let jobs = match options.goal.level() {
            ..=QUICK_MAX => Ordered::in_turn(options.threads),
            _ => Ordered::new(options.threads),
        };
        Ok(Self {
            inner,
            options,
            head: None,
            chunk: Vec::new(),
            jobs,
            next_seq: 0,
            content_check: Xxh3::new(),
            index: Vec::new(),
            summary: Summary::default(),
        })
    }

    /// Content bytes of a chunk.
    #[must_use]
    pub fn chunk_len(&self) -> usize {
        self.options.chunk_len
    }

    /// Packs what is left, writes index and end, and returns where it was written to.
    ///
    /// # Errors
    /// Those of `inner`.
    pub fn finish(mut self) -> Result<(W, Summary), FileError> {
        if !self.chunk.is_empty() || self.head.is_none() {
            let chunk = std::mem::take(&mut self.chunk);
            self.cut(chunk.into())?;
        }
        while let Some(packed) = self.jobs.wait_next() {
            self.put(packed)?;
        }
        let head = self.head.expect("the first cut makes it");
        let index_at = self.summary.packed_len;
        self.write_index(&head)?;
        let foot = Foot {
            content_len: self.summary.content_len,
            content_check: self.content_check.digest(),
            index_at,
            index_len: u32::try_from(self.summary.packed_len - index_at)
                .map_err(|_| io::Error::other("more chunks than an index holds"))?,
        };
        self.inner.write_all(&foot.to_bytes(&head))?;
        self.inner.flush()?;
        self.summary.packed_len += FOOT_LEN as u64;
        self.summary.content_check = foot.content_check;
        self.summary.files = 1;
        self.summary.element = head.element;
        Ok((self.inner, self.summary))
    }

    /// Writes all of `content`, before anything else was written, and packs it where it lies if it can.
    pub(crate) fn write_whole(&mut self, content: &[u8]) -> Result<(), FileError> {
        let chunks = content.chunks(self.options.chunk_len);
        chunks.map(Cow::from).try_for_each(|chunk| self.cut(chunk))
    }

    /// Sends a chunk to be packed; the first time also the head to be written.
    fn cut(&mut self, chunk: Cow<'_, [u8]>) -> Result<(), FileError> {
        let head = match self.head {
            Some(head) => head,
            None => {
                let options = &self.options;
                let head = Head::new(options.chunk_len, options.element, &chunk);
                let bytes = head.to_bytes();
                self.inner.write_all(&bytes)?;
                self.summary.packed_len += bytes.len() as u64;
                *self.head.insert(head)
            }
        };
        if chunk.is_empty() {
            return Ok(());
        }
        while self.jobs.is_full() {
            let packed = self.jobs.wait_next().expect("it is full");
            self.put(packed)?;
        }
        self.content_check.update(&chunk);
        self.summary.content_len += chunk.len() as u64;
        let (seq, options) = (Seq(self.next_seq), self.options);
        self.next_seq += 1;
        if self.jobs.is_here() {
            let job = |ws: &mut _| Packed::new(&head, seq, chunk, &options, ws);
            self.jobs.do_here(job);
        } else {
            let chunk = chunk.into_owned().into();
            self.jobs
                .submit(move |ws| Packed::new(&head, seq, chunk, &options, ws));
        }
        // What is packed leaves at once: a reader of a pipe waits for it.
        while let Some(packed) = self.jobs.next_ready() {
            self.put(packed)?;
        }
        Ok(())
    }

    fn put(&mut self, packed: Option<Packed>) -> Result<(), FileError> {
        let packed = packed.ok_or_else(|| io::Error::other("a codec failed while packing"))?;
        self.put_frame(&packed.header, &packed.payload)?;
        self.index.push(Entry::of(&packed.header));
        let (raw, payload) = (packed.header.raw_len, packed.header.packed_len);
        self.summary.count(packed.header.codec, raw, payload);
        Ok(())
    }

    fn put_frame(&mut self, header: &Header, payload: &[u8]) -> Result<(), FileError> {
        self.inner.write_all(&header.to_bytes()[..header.len()])?;
        self.inner.write_all(payload)?;
        self.summary.packed_len += header.wire_len() as u64;
        Ok(())
    }

    fn write_index(&mut self, head: &Head) -> Result<(), FileError> {
        let index = std::mem::take(&mut self.index);
        for (seq, entries) in (0..).zip(index.chunks(ENTRIES_MAX)) {
            let raw: Vec<u8> = entries.iter().flat_map(|entry| entry.to_bytes()).collect();
            debug_assert!(raw.len() <= ENTRIES_MAX * ENTRY_LEN, "a frame's share");
            let channel = head.index_channel();
            let choices = [Choice::zstd(INDEX_LEVEL)];
            let ws = &mut Workspace::default();
            let packed = Packed::with(&choices, channel, Seq(seq), raw.into(), ws);
            self.put_frame(&packed.header, &packed.payload)?;
        }
        Ok(())
    }
}

impl<W: Write> fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("options", &self.options)
            .field("summary", &self.summary)
            .finish_non_exhaustive()
    }
}

/// zstd's default; an index is short.
const INDEX_LEVEL: u8 = 3;

/// Where a chunk is packed before its length is known.
#[derive(Default)]
struct Room(Vec<u8>);

impl Packed {
    fn new(
        head: &Head,
        seq: Seq,
        chunk: Cow<'_, [u8]>,
        options: &FileOptions,
        ws: &mut Workspace,
    ) -> Self {
        let choices = choose(&chunk, options, ws);
        Self::with(&choices, head.channel, seq, chunk, ws)
    }

    /// By whichever of `choices` makes `raw` shortest, or as it is.
    fn with(
        choices: &[Choice],
        channel: ChannelId,
        seq: Seq,
        raw: Cow<'_, [u8]>,
        ws: &mut Workspace,
    ) -> Self {
        let (raw_len, check) = (raw.len() as u32, chunk_check(channel, seq, &raw));
        let mut best: Option<(CodecId, Vec<u8>)> = None;
        let mut out = std::mem::take(&mut ws.get::<Room>().0);
        for choice in choices {
            if best
                .as_ref()
                .is_some_and(|(_, packed)| choice.is_behind(packed.len()))
            {
                continue;
            }
            let room = best.as_ref().map_or(raw.len(), |(_, packed)| packed.len()) - 1;
            if out.len() < room {
                out.resize(room, 0);
            }
            if let Some(len) = choice.pack(&raw, &mut out[..room], ws) {
                best = Some((choice.codec, out[..len].to_vec()));
            }
        }
        ws.get::<Room>().0 = out;
        let (codec, payload) = best.unwrap_or_else(|| (CodecId::RAW, raw.into_owned()));
        let header = Header {
            codec,
            channel,
            seq,
            raw_len,
            packed_len: payload.len() as u32,
            history_len: 0,
            check,
        };
        Self { header, payload }
    }
}

impl<W: Write> Write for Writer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Cut when the next byte comes, not when a chunk is full: content as long as one chunk has one.
        if self.chunk.len() == self.options.chunk_len {
            let chunk = std::mem::take(&mut self.chunk);
            self.cut(chunk.into())?;
        }
        if self.chunk.capacity() == 0 && bytes.len() >= self.options.chunk_len {
            self.chunk.reserve_exact(self.options.chunk_len);
        }
        let len = bytes.len().min(self.options.chunk_len - self.chunk.len());
        self.chunk.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    /// Writes what is packed so far. The bytes of a chunk that is not full stay: chunks have one length, so that any
    /// place in the content is found.
    fn flush(&mut self) -> io::Result<()> {
        while let Some(packed) = self.jobs.wait_next() {
            self.put(packed)?;
        }
        self.inner.flush()
    }
}
