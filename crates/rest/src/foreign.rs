//! Content of files in other formats: gzip, zstd, LZ4. By the libraries that are made for them; what is here tells them
//! apart.

use std::io::{self, BufReader, Cursor, Read};

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
        let skippable = |start: &[u8]| {
            start.len() >= 4 && start[0] & 0xf0 == 0x50 && start[1..4] == [0x2a, 0x4d, 0x18]
        };
        match start {
            _ if start.starts_with(&HEAD_MAGIC) => Some(Self::Narrows),
            [0x1f, 0x8b, 8, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            [0x04, 0x22, 0x4d, 0x18, ..] => Some(Self::Lz4),
            // Both have such frames; zstd's tools write them first in a file, LZ4's do not.
            _ if skippable(start) => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// The format of a packed file and a reader of its content, with `threads` for those that can be read by several.
///
/// # Errors
/// [`FileError::NotNarrows`] where it is none of [`Format`].
pub fn decode<'a>(
    mut file: impl Read + Send + 'a,
    threads: usize,
) -> Result<(Format, Box<dyn Read + 'a>), FileError> {
    let mut start = Vec::new();
    (&mut file).take(START_LEN).read_to_end(&mut start)?;
    let format = Format::of_start(&start).ok_or(FileError::NotNarrows)?;
    let file = BufReader::with_capacity(BUFFER_LEN, Cursor::new(start).chain(file));
    let reader: Box<dyn Read + 'a> = match format {
        Format::Narrows => Box::new(Reader::new(file).threads(threads)),
        Format::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
        Format::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(file)?;
            // What `zstd --ultra --long=27` writes is read; a larger window would be memory that a file only claims.
            decoder.window_log_max(27)?;
            Box::new(decoder)
        }
        Format::Lz4 => Box::new(Lz4Frames::new(file)?),
    };
    Ok((format, reader))
}

/// Bytes that tell a format.
const START_LEN: u64 = 8;
/// Bytes read at once.
const BUFFER_LEN: usize = 256 << 10;

/// LZ4 frames one after another. The library's decoder ends with the first.
struct Lz4Frames<R: Read> {
    decoder: Option<lz4::Decoder<BufReader<R>>>,
}

impl<R: Read> Lz4Frames<R> {
    fn new(file: BufReader<R>) -> io::Result<Self> {
        let decoder = Some(lz4::Decoder::new(file)?);
        Ok(Self { decoder })
    }
}

impl<R: Read> Read for Lz4Frames<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        use io::BufRead;
        while let Some(decoder) = &mut self.decoder {
            let len = decoder.read(out)?;
            if len > 0 || out.is_empty() {
                return Ok(len);
            }
            let (mut file, ended) = self.decoder.take().expect("it was just there").finish();
            ended.map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
            if file.fill_buf()?.is_empty() {
                break;
            }
            self.decoder = Some(lz4::Decoder::new(file)?);
        }
        Ok(0)
    }
}
