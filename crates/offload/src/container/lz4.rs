//! LZ4 files: one frame (format 1.6.2) of blocks that unpack alone.
//!
//! A block says how long it is packed, but not how long it was. All but the last are as long as the frame's largest,
//! and the frame's content size gives the last; so blocks of a frame are found where they have one of the format's four
//! lengths and there is a content size: `lz4 --content-size -BI` writes such frames too.

use std::io::{self, Read};

use narrows::Engine;
use xxhash_rust::xxh32::{Xxh32, xxh32};

use super::{Out, Piece, Pieces, Unreadable, Writer, read_array, read_piece, read_u32};
use crate::message::Question;

/// A frame's first bytes.
pub const FRAME_MAGIC: u32 = 0x184d_2204;
/// The lengths that blocks may have.
pub const BLOCK_LENS: [usize; 4] = [64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// Version 1, independent blocks, content size, content checksum.
const FLAGS: u8 = 0b0110_1100;
const VERSION_MASK: u8 = 0b1100_0000;
const INDEPENDENT: u8 = 0b0010_0000;
const BLOCK_CHECKSUMS: u8 = 0b0001_0000;
const CONTENT_SIZE: u8 = 0b0000_1000;
const CONTENT_CHECKSUM: u8 = 0b0000_0100;
const DICTIONARY: u8 = 0b0000_0001;
const RESERVED: u8 = 0b0000_0010;
/// Set in a block's length where the block is raw.
const STORED: u32 = 1 << 31;
const HEAD_LEN: usize = 15;

/// Writes one frame.
pub struct Blocks {
    code: u8,
    begun: bool,
    content_len: u64,
    hash: Xxh32,
}

impl Blocks {
    /// A frame of blocks of `block_len` bytes, one of [`BLOCK_LENS`]; of another length, readers do not find the
    /// blocks.
    #[must_use]
    pub fn new(block_len: usize) -> Self {
        let code = BLOCK_LENS
            .iter()
            .position(|len| block_len <= *len)
            .unwrap_or(3) as u8
            + 4;
        Self {
            code,
            begun: false,
            content_len: 0,
            hash: Xxh32::new(0),
        }
    }

    fn head(&self) -> [u8; HEAD_LEN] {
        let mut head = [0; HEAD_LEN];
        head[..4].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
        head[4..6].copy_from_slice(&[FLAGS, self.code << 4]);
        head[6..14].copy_from_slice(&self.content_len.to_le_bytes());
        head[14] = head_check(&head[4..14]);
        head
    }

    fn begin(&mut self, out: &mut dyn Out) -> io::Result<()> {
        // The content's size is known at the end; until then the head says that it is empty.
        if std::mem::replace(&mut self.begun, true) {
            Ok(())
        } else {
            out.append(&self.head())
        }
    }
}

impl Writer for Blocks {
    fn block(
        &mut self,
        raw: &[u8],
        packed: Option<&[u8]>,
        _: u32,
        out: &mut dyn Out,
    ) -> io::Result<()> {
        self.begin(out)?;
        self.content_len += raw.len() as u64;
        self.hash.update(raw);
        let (len, bytes) = match packed {
            Some(packed) => (packed.len() as u32, packed),
            None => (raw.len() as u32 | STORED, raw),
        };
        out.append(&len.to_le_bytes())?;
        out.append(bytes)
    }

    fn end(&mut self, out: &mut dyn Out) -> io::Result<()> {
        self.begin(out)?;
        out.append(&[0; 4])?;
        out.append(&self.hash.digest().to_le_bytes())?;
        out.rewrite_start(&self.head())
    }
}

/// Reads the blocks of one frame.
pub struct BlockReader<R> {
    file: R,
    block_len: u64,
    left: u64,
    block_checksums: bool,
    has_content_check: bool,
    content_check: Option<u32>,
}

impl<R: Read> BlockReader<R> {
    /// Reads the frame's head.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn new(mut file: R) -> Result<Self, Unreadable> {
        let head: [u8; HEAD_LEN] = read_array(&mut file)?;
        let (flags, block) = (head[4], head[5]);
        if flags & VERSION_MASK != FLAGS & VERSION_MASK || flags & RESERVED != 0 {
            return Err(Unreadable::NoBlocks("another version of the format"));
        }
        if flags & CONTENT_SIZE == 0 {
            return Err(Unreadable::NoBlocks(
                "it does not say how long its content is",
            ));
        }
        if flags & INDEPENDENT == 0 || flags & DICTIONARY != 0 {
            return Err(Unreadable::NoBlocks("its blocks do not unpack alone"));
        }
        if head_check(&head[4..14]) != head[14] {
            return Err(Unreadable::Damaged("its head"));
        }
        let code = usize::from(block >> 4 & 7);
        let block_len = code.checked_sub(4).map(|code| BLOCK_LENS[code] as u64);
        Ok(Self {
            file,
            block_len: block_len.ok_or(Unreadable::Damaged("blocks of no known length"))?,
            left: u64::from_le_bytes(head[6..14].try_into().expect("eight bytes")),
            block_checksums: flags & BLOCK_CHECKSUMS != 0,
            has_content_check: flags & CONTENT_CHECKSUM != 0,
            content_check: None,
        })
    }
}

impl<R: Read + Send> Pieces for BlockReader<R> {
    fn next(&mut self, engine: &Engine) -> Result<Option<Piece>, Unreadable> {
        let len = read_u32(&mut self.file)?;
        if len == 0 {
            if self.left > 0 {
                return Err(Unreadable::Damaged("fewer blocks than its content is long"));
            }
            if self.has_content_check {
                self.content_check = Some(read_u32(&mut self.file)?);
            }
            return match self.file.read(&mut [0])? {
                0 => Ok(None),
                _ => Err(Unreadable::NoBlocks("more than one frame")),
            };
        }
        let raw_len = self.left.min(self.block_len);
        let (packed_len, stored) = (len & !STORED, len & STORED != 0);
        if raw_len == 0 || stored && u64::from(packed_len) != raw_len {
            return Err(Unreadable::NoBlocks(
                "they are of other lengths than it says",
            ));
        }
        let mut piece = read_piece(&mut self.file, packed_len.into(), raw_len, None, engine)?;
        if self.block_checksums
            && xxh32(&piece.bytes[Question::HEAD_LEN..], 0) != read_u32(&mut self.file)?
        {
            return Err(Unreadable::Damaged("a block's checksum"));
        }
        self.left -= raw_len;
        piece.stored = stored;
        Ok(Some(piece))
    }

    fn content_check(&self) -> Option<u32> {
        self.content_check
    }

    fn is_checked(&self) -> bool {
        self.has_content_check
    }
}

/// Second byte of the descriptor's XXH32.
fn head_check(descriptor: &[u8]) -> u8 {
    (xxh32(descriptor, 0) >> 8) as u8
}
