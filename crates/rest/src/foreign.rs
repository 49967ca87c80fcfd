//! Content of files in other formats: gzip, zstd, LZ4. By the libraries that are made for them; what is here tells them
//! apart.

use std::io::{self, BufRead, BufReader, Read};

use crate::{FileError, Reader, layout::HEAD_MAGIC};

/// A format of packed files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// The one of this crate.
    Narrows,
    /// RFC 1952, of any number of members.
    Gzip,
    /// RFC 8878, of any number of frames.
    Zstd,
    /// LZ4 frames, of any number.
    Lz4,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Narrows, Self::Gzip, Self::Zstd, Self::Lz4];

    /// How its files end: `gz`.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Narrows => crate::EXTENSION,
            Self::Gzip => "gz",
            Self::Zstd => "zst",
            Self::Lz4 => "lz4",
        }
    }

    /// The format whose files end so.
    #[must_use]
    pub fn of_extension(extension: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|format| format.extension() == extension)
    }

    /// The format of a file that begins so, by up to eight bytes.
    #[must_use]
    pub fn of_start(start: &[u8]) -> Option<Self> {
        match start {
            _ if start.starts_with(&HEAD_MAGIC) => Some(Self::Narrows),
            [0x1f, 0x8b, 8, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            [0x04, 0x22, 0x4d, 0x18, ..] => Some(Self::Lz4),
            // Both zstd and LZ4 have such frames; what follows them tells.
            _ if is_skippable(start) => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// The format of a packed file and a reader of its content, with `threads` for those that can be read by several.
///
/// Files of several frames or members are read to their end; frames to be skipped are, also in front, and zeros behind
/// the last one, as tapes and disks leave them.
///
/// # Errors
/// [`FileError::NotNarrows`] where it is none of [`Format`].
pub fn decode<'a>(
    file: impl Read + Send + 'a,
    threads: usize,
) -> Result<(Format, Box<dyn Read + 'a>), FileError> {
    let mut source = Source {
        peeked: Vec::new(),
        file: BufReader::with_capacity(BUFFER_LEN, Box::new(file)),
    };
    let mut skipped = false;
    while is_skippable(source.peek(START_LEN)?) {
        source.skip_frame()?;
        skipped = true;
    }
    let start = source.peek(START_LEN)?;
    let format = match Format::of_start(start) {
        // Frames to be skipped and nothing else: both formats' tools make nothing of it.
        None if skipped && start.is_empty() => Format::Zstd,
        format => format.ok_or(FileError::NotNarrows)?,
    };
    let reader: Box<dyn Read + 'a> = match format {
        Format::Narrows => Box::new(Reader::new(source).threads(threads)),
        _ => Box::new(Frames {
            format,
            at: At::Between(source),
            is_first: true,
        }),
    };
    Ok((format, reader))
}

/// Bytes that tell a format.
const START_LEN: usize = 8;
/// Bytes read at once.
const BUFFER_LEN: usize = 256 << 10;
/// Longest header of a zstd frame.
const ZSTD_HEADER_LEN: usize = 18;
/// What `zstd --ultra --long=27` writes is read; a larger window would be memory that a file only claims.
const WINDOW_LOG_MAX: u32 = 27;

fn is_skippable(start: &[u8]) -> bool {
    start.len() >= 8 && start[0] & 0xf0 == 0x50 && start[1..4] == [0x2a, 0x4d, 0x18]
}

/// A file that can be looked at before it is read.
struct Source<'a> {
    peeked: Vec<u8>,
    file: BufReader<Box<dyn Read + Send + 'a>>,
}

impl Source<'_> {
    /// The next `len` bytes, fewer at the end.
    fn peek(&mut self, len: usize) -> io::Result<&[u8]> {
        let missing = len.saturating_sub(self.peeked.len()) as u64;
        (&mut self.file)
            .take(missing)
            .read_to_end(&mut self.peeked)?;
        Ok(&self.peeked[..len.min(self.peeked.len())])
    }

    /// Skips a frame that is to be skipped: magic, length, content.
    fn skip_frame(&mut self) -> io::Result<()> {
        let mut head = [0; 8];
        self.read_exact(&mut head)?;
        let len = u64::from(u32::from_le_bytes([head[4], head[5], head[6], head[7]]));
        match io::copy(&mut self.take(len), &mut io::sink())? == len {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn skip_zeros(&mut self) -> io::Result<()> {
        loop {
            let bytes = self.fill_buf()?;
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            let are_all = zeros == bytes.len();
            self.consume(zeros);
            if zeros == 0 || !are_all {
                return Ok(());
            }
        }
    }
}

impl Read for Source<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?;
        let len = bytes.len().min(out.len());
        out[..len].copy_from_slice(&bytes[..len]);
        self.consume(len);
        Ok(len)
    }
}

impl BufRead for Source<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self.peeked.is_empty() {
            true => self.file.fill_buf(),
            false => Ok(&self.peeked),
        }
    }

    fn consume(&mut self, len: usize) {
        match self.peeked.is_empty() {
            true => self.file.consume(len),
            false => drop(self.peeked.drain(..len)),
        }
    }
}

/// Frames or members of one format, one after another, each by its library's decoder, which ends with the first.
struct Frames<'a> {
    format: Format,
    at: At<'a>,
    is_first: bool,
}

enum At<'a> {
    Between(Source<'a>),
    Gzip(flate2::bufread::GzDecoder<Source<'a>>),
    Zstd(zstd::stream::read::Decoder<'static, Source<'a>>),
    Lz4(lz4::Decoder<Source<'a>>),
    Ended,
}

impl<'a> Frames<'a> {
    /// The next frame's decoder, or the end.
    fn begin(&mut self, mut source: Source<'a>) -> io::Result<At<'a>> {
        loop {
            if !std::mem::replace(&mut self.is_first, false) {
                source.skip_zeros()?;
            }
            if self.format == Format::Gzip || !is_skippable(source.peek(START_LEN)?) {
                break;
            }
            source.skip_frame()?;
        }
        let start = source.peek(ZSTD_HEADER_LEN)?;
        if start.is_empty() {
            return Ok(At::Ended);
        }
        if Format::of_start(start) != Some(self.format) {
            let what = match start {
                [0x02, 0x21, 0x4c, 0x18, ..] => "a frame of LZ4's old format follows",
                _ => "something else follows",
            };
            return Err(io::Error::other(FileError::Foreign(what)));
        }
        Ok(match self.format {
            Format::Gzip => At::Gzip(flate2::bufread::GzDecoder::new(source)),
            Format::Lz4 => At::Lz4(lz4::Decoder::new(source)?),
            _ => {
                check_zstd(start).map_err(io::Error::other)?;
                let mut decoder = zstd::stream::read::Decoder::with_buffer(source)?.single_frame();
                decoder.window_log_max(WINDOW_LOG_MAX)?;
                At::Zstd(decoder)
            }
        })
    }
}

/// Whether a zstd frame (RFC 8878, 3.1.1.1) can be unpacked here, by its header.
fn check_zstd(header: &[u8]) -> Result<(), FileError> {
    let Some(&descriptor) = header.get(4) else {
        return Ok(());
    };
    if descriptor & 3 != 0 {
        return Err(FileError::Foreign("it was packed with a dictionary"));
    }
    let window = match header.get(5..).unwrap_or_default() {
        // The content is the window, and its length stands there.
        length if descriptor & 0x20 != 0 => {
            let bytes = 1_usize << (descriptor >> 6);
            let length = length.get(..bytes).unwrap_or_default();
            let number = length.iter().rev();
            number.fold(0, |number, byte| number << 8 | u64::from(*byte))
        }
        [window, ..] => {
            let base = 1_u64 << (10 + (window >> 3));
            base + base / 8 * u64::from(window & 7)
        }
        [] => 0,
    };
    let limit = 1 << WINDOW_LOG_MAX;
    if window > limit {
        let what = "bytes to look back at";
        let asked = window;
        return Err(FileError::Limit { what, asked, limit });
    }
    Ok(())
}

impl Read for Frames<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let len = match &mut self.at {
                At::Between(_) => 0,
                At::Gzip(decoder) => decoder.read(out)?,
                At::Zstd(decoder) => decoder.read(out)?,
                At::Lz4(decoder) => decoder.read(out)?,
                At::Ended => return Ok(0),
            };
            if len > 0 || out.is_empty() {
                return Ok(len);
            }
            let source = match std::mem::replace(&mut self.at, At::Ended) {
                At::Between(source) => source,
                At::Gzip(decoder) => decoder.into_inner(),
                At::Zstd(decoder) => decoder.finish(),
                At::Lz4(decoder) => {
                    let (source, ended) = decoder.finish();
                    ended.map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
                    source
                }
                At::Ended => return Ok(0),
            };
            self.at = self.begin(source)?;
        }
    }
}
