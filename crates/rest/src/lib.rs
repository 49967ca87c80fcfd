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
//! | `options` | [`FileOptions`], [`Goal`], [`Element`] |
//! | `write` | [`Writer`]: content in, file out, on several threads |
//! | `read`, `seek` | [`Reader`] from front to end, [`SeekReader`] by the index |
//! | `decoder` | [`Decoder`]: content of bytes that come from elsewhere |
//! | `walk`, `ahead` | from frame to frame, past damage too; the bytes of them |
//! | `list`, `summary` | [`list()`], [`verify()`]; what they tell |
//! | `choose`, `pages`, `bits` | the codec for a chunk; those of pages and of two values |
//! | `layout` | the bytes around frames |
//! | [`ordered`] | jobs side by side, results in order |
//! | `turn` | hardly more callers at work at once than there are processors |
//! | [`foreign`] | content of gzip, zstd and LZ4 files |
//!
//! Threads are `ordered`'s alone, the one lock is `turn`'s.
#![forbid(unsafe_code)]

mod ahead;
mod bits;
mod choose;
mod decoder;
mod error;
pub mod foreign;
mod layout;
mod list;
mod options;
pub mod ordered;
mod pages;
mod read;
mod seek;
mod summary;
mod turn;
mod walk;
mod write;

pub use self::{
    decoder::{Decoder, Progress},
    error::FileError,
    list::{Listing, Verified, list, verify},
    options::{Element, FileOptions, Goal, LEVELS},
    read::Reader,
    seek::SeekReader,
    summary::{FrameInfo, Loss, Share, Summary},
    write::Writer,
};

use std::io::Write;

use narrows_format::HEADER_LEN_MAX;

use crate::layout::{CHUNK_UNIT, ENTRIES_MAX, ENTRY_LEN, FOOT_LEN, HEAD_LEN};

/// How these files end.
pub const EXTENSION: &str = "narrows";

/// A file of `content`.
///
/// ```
/// let options = narrows_rest::FileOptions::default().element(narrows_rest::Element::F64);
/// let content: Vec<u8> = (0..1000).flat_map(|n| (f64::from(n) / 10.0).to_le_bytes()).collect();
/// let file = narrows_rest::pack(&content, &options)?;
/// assert!(file.len() < content.len() / 10);
/// assert_eq!(narrows_rest::unpack(&file, 1 << 20)?, content);
/// # Ok::<(), narrows_rest::FileError>(())
/// ```
///
/// # Errors
/// [`FileError::Setting`] for options out of range.
pub fn pack(content: &[u8], options: &FileOptions) -> Result<Vec<u8>, FileError> {
    let mut file = Vec::new();
    pack_to(&mut file, content, options)?;
    Ok(file)
}

/// Writes a file of `content` to `out`, and says what it holds.
///
/// # Errors
/// [`FileError::Setting`] for options out of range, and those of `out`.
pub fn pack_to(
    out: impl Write,
    content: &[u8],
    options: &FileOptions,
) -> Result<Summary, FileError> {
    let checked = options.checked()?;
    let chunks = content.len().div_ceil(checked.chunk_len);
    let threads = checked.threads.min(chunks.max(1));
    let mut writer = Writer::new(out, &options.threads(threads))?;
    writer.write_whole(content)?;
    writer.finish().map(|(_, summary)| summary)
}

/// The most bytes that so much content becomes, whatever the options: a chunk that does not pack is kept as it is, and
/// no chunk but the last is shorter than 4096 bytes.
#[must_use]
pub fn packed_len_max(content_len: u64) -> u64 {
    let chunks = content_len / CHUNK_UNIT as u64 + 1;
    let indexes = chunks / ENTRIES_MAX as u64 + 1;
    let header = HEADER_LEN_MAX as u64;
    let frames = chunks.saturating_mul(header + ENTRY_LEN as u64);
    let around = (HEAD_LEN + FOOT_LEN) as u64 + indexes.saturating_mul(header);
    content_len.saturating_add(frames).saturating_add(around)
}

/// Unpacks `file`, on the calling thread, to the front of `out`; how long the content is.
///
/// # Errors
/// [`FileError`]; [`FileError::Limit`] where the content is longer than `out`.
pub fn unpack_into(file: &[u8], out: &mut [u8]) -> Result<usize, FileError> {
    let mut reader = Reader::new(file);
    let mut filled = 0;
    loop {
        let bytes = reader.fill()?;
        let len = bytes.len();
        if len == 0 {
            return Ok(filled);
        }
        let limit = out.len() as u64;
        let room = out[filled..].get_mut(..len).ok_or(FileError::Limit {
            what: "content bytes",
            asked: filled as u64 + len as u64,
            limit,
        })?;
        room.copy_from_slice(bytes);
        filled += len;
        reader.consume(len);
    }
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
