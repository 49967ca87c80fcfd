//! Files made of blocks that unpack alone, and the blocks of such files.
//!
//! Any gzip, zstd or LZ4 program reads them. What lets the blocks be found, so that they can be unpacked side by side,
//! is in each format's own place for such things, as others use it:
//!
//! | module | a block is | found by | checked by |
//! |---|---|---|---|
//! | [`gzip`] | a member | lengths in its extra field `QZ`, as QATzip has it | its CRC-32 |
//! | [`zstd`] | a frame | the seek table of zstd's seekable format | a checksum in that table |
//! | [`lz4`] | a block of one frame | its own length, and the content size | one checksum of everything |

pub mod gzip;
pub mod lz4;
pub mod zstd;

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use narrows::{Buf, Engine};

use crate::{BLOCK_LEN_MAX, Method, OffloadError, message::Question, method::packed_len_max};

/// Somewhere a file is written: on and on, but for a few bytes at the start that are known last.
pub trait Out {
    /// Appends.
    ///
    /// # Errors
    /// The system's.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Overwrites the start.
    ///
    /// # Errors
    /// The system's.
    fn rewrite_start(&mut self, bytes: &[u8]) -> io::Result<()>;
}

/// Makes a file of blocks.
pub trait Writer: Send {
    /// Appends a block: what `packed` holds, or where that is `None`, `raw` as it is. `check` is [`Method::check`]'s.
    ///
    /// # Errors
    /// Those of `out`.
    fn block(
        &mut self,
        raw: &[u8],
        packed: Option<&[u8]>,
        check: u32,
        out: &mut dyn Out,
    ) -> io::Result<()>;

    /// Ends the file.
    ///
    /// # Errors
    /// Those of `out`.
    fn end(&mut self, out: &mut dyn Out) -> io::Result<()>;
}

/// A writer of the method's files, for blocks of up to `block_len` bytes.
#[must_use]
pub fn writer(method: Method, block_len: usize) -> Box<dyn Writer> {
    match method {
        Method::Deflate => Box::new(gzip::Members::default()),
        Method::Zstd => Box::new(zstd::Frames::default()),
        Method::Lz4 => Box::new(lz4::Blocks::new(block_len)),
    }
}

/// A block of a file that is to be unpacked, or to be packed.
#[derive(Debug)]
pub struct Piece {
    /// [`Question::HEAD_LEN`] bytes of room, then the block.
    pub bytes: Buf,
    /// Its length before packing, in bytes.
    pub raw_len: u32,
    /// [`Method::check`] of its raw bytes, where the file has it.
    pub check: Option<u32>,
    /// It is raw already.
    pub stored: bool,
}

/// Reads the blocks of a file, in order.
pub trait Pieces: Send {
    /// The next one.
    ///
    /// # Errors
    /// [`Unreadable`].
    fn next(&mut self, engine: &Engine) -> Result<Option<Piece>, Unreadable>;

    /// The XXH32 of everything before packing, where the file has one. Known at its end.
    fn content_check(&self) -> Option<u32> {
        None
    }

    /// Whether the file has checksums, of each block or of everything.
    fn is_checked(&self) -> bool;
}

/// Why a file's blocks cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The system's word.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is damaged.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// It may be whole, but its blocks cannot be found.
    #[error("its blocks cannot be found: {0}")]
    NoBlocks(&'static str),
}

impl Unreadable {
    /// With the file's name.
    #[must_use]
    pub fn of(self, path: &Path) -> OffloadError {
        match self {
            Self::Io(fault) if fault.kind() == io::ErrorKind::UnexpectedEof => {
                OffloadError::Damaged(format!(
                    "{} is damaged: it ends within a block",
                    path.display()
                ))
            }
            Self::Io(fault) => OffloadError::file("cannot read", path, fault),
            Self::Damaged(what) => {
                OffloadError::Damaged(format!("{} is damaged: {what}", path.display()))
            }
            Self::NoBlocks(what) => OffloadError::NoBlocks(format!(
                "{} is no file of blocks: {what}; unpack it with its own program (gzip -d, zstd -d, lz4 -d)",
                path.display()
            )),
        }
    }
}

/// What a file is by its first bytes, and the reader of its blocks.
///
/// # Errors
/// [`Unreadable`]; nothing is allocated for a length that the file claims before it is found small enough.
pub fn pieces(
    mut file: impl Read + Seek + Send + 'static,
) -> Result<(Method, Box<dyn Pieces>), Unreadable> {
    let mut magic = [0; 4];
    match file.read_exact(&mut magic) {
        Err(fault) if fault.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(Unreadable::NoBlocks("it is shorter than any"));
        }
        read => read?,
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(match u32::from_le_bytes(magic) {
        magic if magic & 0xffff == 0x8b1f => {
            (Method::Deflate, Box::new(gzip::MemberReader::new(file)))
        }
        zstd::FRAME_MAGIC => (Method::Zstd, Box::new(zstd::FrameReader::new(file)?)),
        lz4::FRAME_MAGIC => (Method::Lz4, Box::new(lz4::BlockReader::new(file)?)),
        _ => {
            return Err(Unreadable::NoBlocks(
                "it begins like no gzip, zstd or LZ4 file",
            ));
        }
    })
}

/// Opens a file for [`pieces`].
///
/// # Errors
/// As [`pieces`].
pub fn open(path: &Path) -> Result<(Method, Box<dyn Pieces>), OffloadError> {
    let file = File::open(path).map_err(|fault| OffloadError::file("cannot read", path, fault))?;
    pieces(io::BufReader::with_capacity(256 << 10, file)).map_err(|fault| fault.of(path))
}

/// Reads a block of `packed_len` bytes that claims to be `raw_len` long before packing.
fn read_piece(
    file: &mut impl Read,
    packed_len: u64,
    raw_len: u64,
    check: Option<u32>,
    engine: &Engine,
) -> Result<Piece, Unreadable> {
    if raw_len > BLOCK_LEN_MAX as u64 {
        return Err(Unreadable::NoBlocks("they are longer than 8 MiB"));
    }
    if packed_len > packed_len_max(raw_len as usize) as u64 {
        return Err(Unreadable::Damaged(
            "a block packed to far more than it was",
        ));
    }
    let mut bytes = engine.buffer(Question::HEAD_LEN + packed_len as usize);
    file.read_exact(&mut bytes[Question::HEAD_LEN..])?;
    Ok(Piece {
        bytes,
        raw_len: raw_len as u32,
        check,
        stored: false,
    })
}

fn read_array<const N: usize>(file: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_u32(file: &mut impl Read) -> io::Result<u32> {
    read_array(file).map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests;
