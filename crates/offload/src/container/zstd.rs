//! zstd files of many frames (RFC 8878), a frame a block, with the seek table of zstd's seekable format 0.1.0.
//!
//! The table is a skippable frame at the end, so every zstd program reads the file, and those that know the format find
//! any part of it. It holds for each frame both lengths and the low half of XXH64 of its content.

use std::io::{self, Read, Seek, SeekFrom};

use narrows::Engine;

use super::{Out, Piece, Pieces, Unreadable, Writer, read_array, read_piece, read_u32};

/// A frame's first bytes.
pub const FRAME_MAGIC: u32 = 0xfd2f_b528;
/// A skippable frame's; the format takes this one of the sixteen.
const SKIPPABLE_MAGIC: u32 = 0x184d_2a5e;
/// The file's last bytes.
const SEEKABLE_MAGIC: u32 = 0x8f92_eab1;
/// Table entries have a checksum.
const CHECKSUMS: u8 = 0x80;
/// Number of frames, descriptor, magic.
const FOOT_LEN: u64 = 9;
/// Longest block of a frame (RFC 8878 §3.1.1.2.4).
const BLOCK_LEN_MAX: usize = 128 << 10;

/// Where a frame's header descriptor stands (RFC 8878 §3.1.1.1), and its window descriptor, if it has one.
const DESCRIPTOR_AT: usize = 4;
const WINDOW_AT: usize = 5;
/// Bits of the header descriptor.
const SINGLE_SEGMENT: u8 = 0b0010_0000;
const RESERVED: u8 = 0b0000_1000;
const DICTIONARY: u8 = 0b0000_0011;
const CHECKSUM: u8 = 0b0000_0100;
const SIZE_IN_FOUR: u8 = 0b1000_0000;

/// Writes frames.
#[derive(Debug, Default)]
pub struct Frames {
    table: Vec<u8>,
    frames: u32,
}

impl Writer for Frames {
    fn block(
        &mut self,
        raw: &[u8],
        packed: Option<&[u8]>,
        check: u32,
        out: &mut dyn Out,
    ) -> io::Result<()> {
        let made;
        let frame = match packed {
            Some(packed) => packed,
            None => {
                made = store(raw);
                &made
            }
        };
        let (head, rest) = sized(frame, raw.len());
        let len = (head.len() + rest.len()) as u32;
        for word in [len, raw.len() as u32, check] {
            self.table.extend(word.to_le_bytes());
        }
        self.frames += 1;
        out.append(&head)?;
        out.append(rest)
    }

    fn end(&mut self, out: &mut dyn Out) -> io::Result<()> {
        if self.frames == 0 {
            // A file without a frame is no zstd file.
            self.block(&[], None, crate::Method::Zstd.check(&[]), out)?;
        }
        let len = self.table.len() as u64 + FOOT_LEN;
        let len = u32::try_from(len)
            .map_err(|_| io::Error::other("more frames than a seek table holds"))?;
        let mut head = SKIPPABLE_MAGIC.to_le_bytes().to_vec();
        head.extend(len.to_le_bytes());
        self.table.extend(self.frames.to_le_bytes());
        self.table.push(CHECKSUMS);
        self.table.extend(SEEKABLE_MAGIC.to_le_bytes());
        out.append(&head)?;
        out.append(&self.table)
    }
}

/// Whether `frame` has a head whose meaning we know: no dictionary, no reserved bit, and a window or one segment.
#[must_use]
pub fn is_plain(frame: &[u8]) -> bool {
    frame.len() > WINDOW_AT
        && frame[..4] == FRAME_MAGIC.to_le_bytes()
        && frame[DESCRIPTOR_AT] & (RESERVED | DICTIONARY) == 0
}

/// A frame of `len` bytes of content with a head that says so, in two parts.
///
/// Readers size their buffer by the content size (RFC 8878 §3.1.1.1.4). And a single segment's window is its content:
/// the block was checked with all before it at hand, while a reader that unpacks piece by piece keeps a window only,
/// and of one that is too short makes other bytes, whatever the packer said.
fn sized(frame: &[u8], len: usize) -> (Vec<u8>, &[u8]) {
    let descriptor = frame.get(DESCRIPTOR_AT).copied().unwrap_or(SINGLE_SEGMENT);
    let size_len = [0, 2, 4, 8][usize::from(descriptor >> 6)];
    let content_at = WINDOW_AT + 1 + size_len;
    if !is_plain(frame) || descriptor & SINGLE_SEGMENT != 0 || frame.len() < content_at {
        return (Vec::new(), frame);
    }
    let mut head = FRAME_MAGIC.to_le_bytes().to_vec();
    head.push(SIZE_IN_FOUR | SINGLE_SEGMENT | descriptor & CHECKSUM);
    head.extend((len as u32).to_le_bytes());
    (head, &frame[content_at..])
}

/// `raw` as a frame of raw blocks: one segment, content size in four bytes, no checksum.
fn store(raw: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(raw.len() + raw.len() / BLOCK_LEN_MAX * 3 + 16);
    frame.extend(FRAME_MAGIC.to_le_bytes());
    frame.push(SIZE_IN_FOUR | SINGLE_SEGMENT);
    frame.extend((raw.len() as u32).to_le_bytes());
    let mut rest = raw;
    loop {
        let (now, later) = rest.split_at(rest.len().min(BLOCK_LEN_MAX));
        let head = (now.len() as u32) << 3 | u32::from(later.is_empty());
        frame.extend(&head.to_le_bytes()[..3]);
        frame.extend_from_slice(now);
        if later.is_empty() {
            return frame;
        }
        rest = later;
    }
}

/// Reads frames by the seek table.
#[derive(Debug)]
pub struct FrameReader<R> {
    file: R,
    /// Packed length, length, checksum if there is one.
    table: std::vec::IntoIter<(u32, u32, Option<u32>)>,
    checksums: bool,
}

impl<R: Read + Seek> FrameReader<R> {
    /// Reads the table, which takes at most as much memory as the file is long.
    ///
    /// # Errors
    /// [`Unreadable::NoBlocks`] where there is none, or one that contradicts the file's length. The file may be sound
    /// all the same: others skip the table, and files may be joined.
    pub fn new(mut file: R) -> Result<Self, Unreadable> {
        const NO_TABLE: Unreadable = Unreadable::NoBlocks("no seek table at its end");
        let file_len = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(
            file_len.checked_sub(FOOT_LEN).ok_or(NO_TABLE)?,
        ))?;
        let foot: [u8; FOOT_LEN as usize] = read_array(&mut file)?;
        if foot[5..] != SEEKABLE_MAGIC.to_le_bytes() {
            return Err(NO_TABLE);
        }
        let frames = u64::from(u32::from_le_bytes([foot[0], foot[1], foot[2], foot[3]]));
        let checksums = foot[4] & CHECKSUMS != 0;
        let table_len = frames * if checksums { 12 } else { 8 } + FOOT_LEN;
        let at = file_len
            .checked_sub(table_len + 8)
            .ok_or(Unreadable::NoBlocks("a seek table longer than the file"))?;
        file.seek(SeekFrom::Start(at))?;
        if read_u32(&mut file)? != SKIPPABLE_MAGIC || u64::from(read_u32(&mut file)?) != table_len {
            return Err(Unreadable::NoBlocks("a seek table of another length"));
        }
        let mut table = Vec::with_capacity(frames as usize);
        for _ in 0..frames {
            let (packed_len, raw_len) = (read_u32(&mut file)?, read_u32(&mut file)?);
            let check = if checksums {
                Some(read_u32(&mut file)?)
            } else {
                None
            };
            table.push((packed_len, raw_len, check));
        }
        if table
            .iter()
            .map(|(packed_len, ..)| u64::from(*packed_len))
            .sum::<u64>()
            != at
        {
            return Err(Unreadable::NoBlocks(
                "a seek table that is not of the whole file",
            ));
        }
        file.seek(SeekFrom::Start(0))?;
        Ok(Self {
            file,
            table: table.into_iter(),
            checksums,
        })
    }
}

impl<R: Read + Send> Pieces for FrameReader<R> {
    fn next(&mut self, engine: &Engine) -> Result<Option<Piece>, Unreadable> {
        let Some((packed_len, raw_len, check)) = self.table.next() else {
            return Ok(None);
        };
        read_piece(
            &mut self.file,
            packed_len.into(),
            raw_len.into(),
            check,
            engine,
        )
        .map(Some)
    }

    fn is_checked(&self) -> bool {
        self.checksums
    }
}
