//! A channel's two ends: where bytes go in and where they come out.

use std::{
    io::{self, BufRead, Read, Write},
    sync::Arc,
};

use narrows_core::ChannelId;
use narrows_pipeline::{Buf, Bytes, Chunk, ChunkPacker, ChunkUnpacker, Direct};
use narrows_session::Code;

use crate::{Error, inner::Inner};

/// The sending end of a channel, a [`Write`]. What is written is cut into chunks; [`Write::flush`] sends the last one
/// though it is not full.
///
/// ```
/// # use std::io::{Read, Write};
/// # let listener = narrows::listen("127.0.0.1:0", narrows::Auth::None)?;
/// # let here = narrows::connect(&listener.local().to_string(), narrows::Auth::None)?;
/// # let there = listener.accept()?;
/// let (mut writer, _) = here.open("log")?;
/// writer.write_all(b"first line\n")?;
/// writer.flush()?; // It leaves now; the channel stays open.
/// let mut line = [0; 11];
/// there.accept()?.expect("a channel").reader.read_exact(&mut line)?;
/// assert_eq!(&line, b"first line\n");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Dropped without [`ChannelWriter::finish`], it aborts the channel: the receiver must
/// not take a part for the whole.
#[derive(Debug)]
pub struct ChannelWriter {
    inner: Arc<Inner>,
    channel: ChannelId,
    packer: ChunkPacker,
    filling: Option<(Buf, usize)>,
    finished: bool,
}

/// The receiving end of a channel, a [`Read`] and a [`BufRead`]; [`ChannelReader::next_chunk`] lends chunks without a
/// copy.
///
/// ```
/// # use std::io::{Read, Write};
/// # let listener = narrows::listen("127.0.0.1:0", narrows::Auth::None)?;
/// # let here = narrows::connect(&listener.local().to_string(), narrows::Auth::None)?;
/// # let there = listener.accept()?;
/// let (mut writer, _) = here.open("chunks")?;
/// writer.push(writer.buffer_of(b"one chunk"))?;
/// writer.finish()?;
/// let mut incoming = there.accept()?.expect("a channel");
/// assert_eq!(incoming.reader.next_chunk()?, Some(&b"one chunk"[..]));
/// assert_eq!(incoming.reader.next_chunk()?, None);
/// # let _: &mut dyn Read = &mut incoming.reader;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct ChannelReader {
    inner: Arc<Inner>,
    channel: ChannelId,
    unpacker: ChunkUnpacker,
    current: Option<(Chunk, usize)>,
}

impl ChannelWriter {
    pub(crate) fn new(inner: Arc<Inner>, channel: ChannelId) -> Self {
        let packer = ChunkPacker::new(inner.sending.packing.clone(), channel);
        Self {
            inner,
            channel,
            packer,
            filling: None,
            finished: false,
        }
    }

    /// Which channel.
    #[must_use]
    pub fn id(&self) -> ChannelId {
        self.channel
    }

    /// A buffer of the length that the policy wants for the next chunk, to be filled and given to
    /// [`ChannelWriter::push`]: bytes read into it are not copied again.
    #[must_use]
    pub fn buffer(&self) -> Buf {
        self.inner.engine.buffers.take(self.packer.chunk_len())
    }

    /// A buffer of `len` bytes, for a chunk whose length the data say.
    ///
    /// # Panics
    /// When `len` is more than 32 MiB.
    #[must_use]
    pub fn buffer_for(&self, len: usize) -> Buf {
        self.inner.engine.buffers.take(len)
    }

    /// A buffer with these bytes. For a message much shorter than a chunk: it may wait for its acknowledgement a while,
    /// and should not hold a whole chunk's memory meanwhile.
    #[must_use]
    pub fn buffer_of(&self, bytes: &[u8]) -> Buf {
        let mut buf = self.buffer_for(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Sends a chunk; it leaves without waiting for more. Waits while too much is under way.
    ///
    /// # Errors
    /// [`Error`] when the session or the channel has ended.
    pub fn push(&mut self, chunk: Buf) -> Result<(), Error> {
        self.push_shared(Bytes::new(chunk))
    }

    /// Sends a chunk that the caller goes on reading. Waits as [`ChannelWriter::push`] does.
    ///
    /// # Errors
    /// [`Error`] when the session or the channel has ended.
    pub fn push_shared(&mut self, chunk: Bytes) -> Result<(), Error> {
        self.packer
            .push(chunk)
            .map_err(|_| self.inner.end_of(self.channel))
    }

    /// Ends this direction. The receiver's reader sees the end after the last chunk.
    ///
    /// # Errors
    /// [`Error`] when the session or the channel has ended before.
    pub fn finish(&mut self) -> Result<(), Error> {
        Write::flush(self).map_err(|_| self.inner.end_of(self.channel))?;
        self.finished = true;
        self.inner.finish(self.channel)
    }

    /// Waits until the receiver has consumed everything that was sent.
    ///
    /// # Errors
    /// [`Error`] when the session ends first.
    pub fn wait_consumed(&self) -> Result<(), Error> {
        self.inner.wait_consumed(self.channel)
    }

    /// Waits until no more than `bytes_max` of what was sent is held here because the receiver has not consumed it;
    /// else that may be as much as the lesser of both windows. The receiver tells of its consumption in steps of at
    /// most 512 KiB.
    ///
    /// # Errors
    /// [`Error`] when the session ends first.
    pub fn wait_unconsumed(&self, bytes_max: u64) -> Result<(), Error> {
        self.inner.wait_unconsumed(self.channel, bytes_max)
    }

    /// Waits until no more than `chunks_max` chunks were sent that the receiver has not consumed, eight at least:
    /// bounds what it still has to do, where bytes that packed well would not. It tells of its consumption in steps of
    /// at most 512 KiB, taking a chunk for 64 KiB.
    ///
    /// # Errors
    /// [`Error`] when the session ends first.
    pub fn wait_unconsumed_chunks(&self, chunks_max: usize) -> Result<(), Error> {
        self.inner.wait_unconsumed_chunks(self.channel, chunks_max)
    }

    /// Ends the channel at once and tells the receiver why.
    pub fn abort(mut self, code: Code, text: &str) {
        self.finished = true;
        self.inner.abort(self.channel, code, text);
    }
}

#[cfg(feature = "async")]
impl ChannelWriter {
    /// The same for async code: a `futures_io::AsyncWrite` whose writes run on a pool of threads of the crate
    /// `blocking`. To finish the channel: `flush().await`, then `into_inner().await.finish()`.
    #[must_use]
    pub fn into_async(self) -> blocking::Unblock<Self> {
        blocking::Unblock::new(self)
    }
}

#[cfg(feature = "async")]
impl ChannelReader {
    /// The same for async code: a `futures_io::AsyncRead` whose reads run on a pool of threads of the crate
    /// `blocking`.
    #[must_use]
    pub fn into_async(self) -> blocking::Unblock<Self> {
        blocking::Unblock::new(self)
    }
}

impl Drop for ChannelWriter {
    fn drop(&mut self) {
        if !self.finished {
            self.inner
                .abort(self.channel, Code::CANCELLED, "the sender gave up");
        }
    }
}

/// Gathers small writes into chunks; [`Write::flush`] sends what is there.
impl Write for ChannelWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (mut buf, filled) = self.filling.take().unwrap_or_else(|| (self.buffer(), 0));
        let taken = bytes.len().min(buf.len() - filled);
        buf[filled..filled + taken].copy_from_slice(&bytes[..taken]);
        if filled + taken == buf.len() {
            self.push(buf)?;
        } else {
            self.filling = Some((buf, filled + taken));
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some((mut buf, filled)) = self.filling.take() {
            buf.truncate(filled);
            self.push(buf)?;
        }
        Ok(())
    }
}

impl ChannelReader {
    pub(crate) fn new(inner: Arc<Inner>, channel: ChannelId, unpacker: ChunkUnpacker) -> Self {
        Self {
            inner,
            channel,
            unpacker,
            current: None,
        }
    }

    /// Which channel.
    #[must_use]
    pub fn id(&self) -> ChannelId {
        self.channel
    }

    /// Sets where small chunks may go from the link's own thread while this reader waits, saving a wake-up.
    /// `direct` writes what it can without waiting; the rest comes through [`ChannelReader::next_chunk`].
    pub fn set_direct(&self, direct: Direct) {
        self.unpacker.set_direct(direct);
    }

    /// The bytes of the next chunk; `None` at the end. They count as consumed when the next call comes, which lets
    /// the sender send more. Waits.
    ///
    /// # Errors
    /// [`Error`] when the channel or session ended early, or a chunk was damaged.
    pub fn next_chunk(&mut self) -> Result<Option<&[u8]>, Error> {
        self.release();
        let chunk = match self.unpacker.next() {
            Ok(chunk) => chunk,
            Err(fault) => return Err(self.inner.unpack_failed(self.channel, &fault)),
        };
        self.current = chunk.map(|chunk| (chunk.clone(), chunk.taken));
        Ok(self
            .current
            .as_ref()
            .map(|(chunk, _)| &chunk.bytes[chunk.taken..]))
    }

    /// The next chunk, to be kept without a copy by a reader that has no direct sink; `None` at the end. It counts as
    /// consumed when the next call comes, so what is kept longer is for the caller to bound. Waits.
    ///
    /// # Errors
    /// As [`ChannelReader::next_chunk`].
    pub fn next_shared(&mut self) -> Result<Option<Bytes>, Error> {
        Ok(self.next_chunk()?.is_some().then(|| {
            self.current
                .as_ref()
                .expect("it has just come")
                .0
                .bytes
                .clone()
        }))
    }

    /// Whether all of the current chunk was read: the next call may wait.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.current
            .as_ref()
            .is_none_or(|(chunk, at)| *at == chunk.bytes.len())
    }

    /// Ends the channel at once and tells the sender why.
    pub fn abort(&self, code: Code, text: &str) {
        self.inner.abort(self.channel, code, text);
    }

    fn release(&mut self) {
        if let Some((chunk, _)) = self.current.take() {
            self.inner.consumed(self.channel, chunk.cost, true);
        }
    }
}

impl Drop for ChannelReader {
    fn drop(&mut self) {
        self.release();
        self.inner.forget(self.channel);
    }
}

impl Read for ChannelReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?;
        let len = out.len().min(bytes.len());
        out[..len].copy_from_slice(&bytes[..len]);
        self.consume(len);
        Ok(len)
    }
}

/// The rest of the current chunk, without a copy.
impl BufRead for ChannelReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self
            .current
            .as_ref()
            .is_none_or(|(chunk, at)| *at == chunk.bytes.len())
            && self.next_chunk()?.is_none()
        {
            return Ok(&[]);
        }
        Ok(self
            .current
            .as_ref()
            .map_or(&[], |(chunk, at)| &chunk.bytes[*at..]))
    }

    fn consume(&mut self, len: usize) {
        if let Some((chunk, at)) = &mut self.current {
            *at = (*at + len).min(chunk.bytes.len());
        }
    }
}
