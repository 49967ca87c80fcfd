//! Frames at rest: the `.narrows` file.
//!
//! Content is cut into chunks; each is packed by the codec that suits its data and becomes one frame, as frames travel
//! on a link. An index of the frames stands at the end, so any part is read without the rest, and a pipe is read without
//! the index. Every chunk has a check, and so has the whole. The bytes: `docs/specs/file.md`.
//!
//! Floor: paths, beside `wire`; opens no file and no socket. Bytes of a file are untrusted: any may come, and nothing is
//! allocated for a length that is only claimed.
//!
//! | module | holds |
//! |---|---|
//! | `options` | [`Options`], [`Goal`], [`Element`] |
//! | `write` | [`Writer`]: content in, file out, on several threads |
//! | `read`, `seek` | [`Reader`] from front to end, [`SeekReader`] by the index |
//! | `walk` | from frame to frame, past damage too |
//! | `list` | [`list()`], [`verify()`] |
//! | `choose`, `pages` | the codec for a chunk; the codec of pages |
//! | `layout` | the bytes around frames |
//! | [`ordered`] | jobs side by side, results in order |
//! | [`foreign`] | content of gzip, zstd and LZ4 files |
//!
//! There are no locks; threads are `ordered`'s alone.
#![forbid(unsafe_code)]

mod choose;
mod error;
pub mod foreign;
mod layout;
mod list;
mod options;
pub mod ordered;
mod pages;
mod read;
mod seek;
mod walk;
mod write;

pub use self::{
    error::FileError,
    list::{FrameInfo, Listing, Loss, Share, Summary, Verified, list, verify},
    options::{Element, Goal, LEVELS, Options},
    read::Reader,
    seek::SeekReader,
    write::Writer,
};

use std::io::Write;

/// How these files end.
pub const EXTENSION: &str = "narrows";

/// A file of `content`.
///
/// ```
/// let options = narrows_rest::Options::default().element(narrows_rest::Element::F64);
/// let content: Vec<u8> = (0..1000).flat_map(|n| (f64::from(n) / 10.0).to_le_bytes()).collect();
/// let file = narrows_rest::pack(&content, &options)?;
/// assert!(file.len() < content.len() / 10);
/// assert_eq!(narrows_rest::unpack(&file, 1 << 20)?, content);
/// # Ok::<(), narrows_rest::FileError>(())
/// ```
///
/// # Errors
/// [`FileError::Setting`] for options out of range.
pub fn pack(content: &[u8], options: &Options) -> Result<Vec<u8>, FileError> {
    let checked = options.checked()?;
    let chunks = content.len().div_ceil(checked.chunk_len);
    let threads = checked.threads.min(chunks.max(1));
    let mut writer = Writer::new(Vec::new(), &options.threads(threads))?;
    writer.write_all(content).map_err(FileError::from_io)?;
    writer.finish().map(|(file, _)| file)
}

/// The content of `file`, at most `limit` bytes of it, unpacked on the calling thread.
///
/// # Errors
/// [`FileError`]; [`FileError::Limit`] where the content is longer than `limit`, of which nothing is kept.
pub fn unpack(file: &[u8], limit: u64) -> Result<Vec<u8>, FileError> {
    let mut reader = Reader::new(file);
    let mut content = Vec::new();
    loop {
        let bytes = reader.fill()?;
        let len = bytes.len();
        if len == 0 {
            return Ok(content);
        }
        let asked = content.len() as u64 + len as u64;
        if asked > limit {
            return Err(FileError::Limit {
                what: "content bytes",
                asked,
                limit,
            });
        }
        content.extend_from_slice(bytes);
        reader.consume(len);
    }
}
