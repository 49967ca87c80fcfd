//! gzip files of many members (RFC 1952), a member a block.
//!
//! Each member's extra field has a subfield `QZ` with two lengths: that of its content, and that of its DEFLATE stream.
//! QATzip (`QZ_DEFLATE_GZIP_EXT`) writes and looks for just that, so either unpacks the other's files in parallel.
//! Every gzip program skips the field.

use std::io::{self, Read};

use narrows::Engine;

use super::{Out, Piece, Pieces, Unreadable, Writer, read_array, read_piece, read_u32};

/// Magic, DEFLATE, `FLG.FEXTRA`, no time, no hints, unknown system; 12 bytes of extra field: `QZ`, 8 bytes.
const HEAD: [u8; 16] = [
    0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 255, 12, 0, b'Q', b'Z', 8, 0,
];
/// Longest stored DEFLATE block (RFC 1951 §3.2.4).
const STORED_LEN_MAX: usize = 65_535;

/// Writes members.
#[derive(Debug, Default)]
pub struct Members {
    any: bool,
}

impl Writer for Members {
    fn block(
        &mut self,
        raw: &[u8],
        packed: Option<&[u8]>,
        check: u32,
        out: &mut dyn Out,
    ) -> io::Result<()> {
        let stored;
        let stream = match packed {
            Some(packed) => packed,
            None => {
                stored = store(raw);
                &stored
            }
        };
        let mut head = [0; 24];
        head[..16].copy_from_slice(&HEAD);
        head[16..20].copy_from_slice(&(raw.len() as u32).to_le_bytes());
        head[20..].copy_from_slice(&(stream.len() as u32).to_le_bytes());
        let mut tail = [0; 8];
        tail[..4].copy_from_slice(&check.to_le_bytes());
        tail[4..].copy_from_slice(&(raw.len() as u32).to_le_bytes());
        self.any = true;
        [&head[..], stream, &tail]
            .into_iter()
            .try_for_each(|part| out.append(part))
    }

    fn end(&mut self, out: &mut dyn Out) -> io::Result<()> {
        // A file without a member is no gzip file.
        if self.any {
            Ok(())
        } else {
            self.block(&[], None, 0, out)
        }
    }
}

/// `raw` as stored DEFLATE blocks.
fn store(raw: &[u8]) -> Vec<u8> {
    let mut stream = Vec::with_capacity(raw.len() + (raw.len() / STORED_LEN_MAX + 1) * 5);
    let mut rest = raw;
    loop {
        let (now, later) = rest.split_at(rest.len().min(STORED_LEN_MAX));
        let len = now.len() as u16;
        stream.push(u8::from(later.is_empty()));
        stream.extend(len.to_le_bytes());
        stream.extend((!len).to_le_bytes());
        stream.extend_from_slice(now);
        if later.is_empty() {
            return stream;
        }
        rest = later;
    }
}

/// Reads members that say how long they are.
#[derive(Debug)]
pub struct MemberReader<R>(R);

impl<R: Read> MemberReader<R> {
    /// Reads from the file's start.
    pub fn new(file: R) -> Self {
        Self(file)
    }
}

impl<R: Read + Send> Pieces for MemberReader<R> {
    fn next(&mut self, engine: &Engine) -> Result<Option<Piece>, Unreadable> {
        let mut head = [0; 16];
        let filled = fill(&mut self.0, &mut head)?;
        if head[..filled].iter().all(|byte| *byte == 0) {
            // What a tape or a disk's last block is padded with, as gzip has it.
            return only_zeros(&mut self.0).map(|()| None);
        }
        if filled < 2 || head[..2] != HEAD[..2] {
            return Err(Unreadable::NoBlocks("something else follows its members"));
        }
        if filled < head.len() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        // Time, hints and system may be anything; the rest is what places the lengths.
        if head[2..4] != HEAD[2..4] || head[10..] != HEAD[10..] {
            return Err(Unreadable::NoBlocks(
                "a member that does not say how long it is",
            ));
        }
        let (raw_len, packed_len) = (read_u32(&mut self.0)?, read_u32(&mut self.0)?);
        let mut piece = read_piece(&mut self.0, packed_len.into(), raw_len.into(), None, engine)?;
        let tail: [u8; 8] = read_array(&mut self.0)?;
        if tail[4..] != raw_len.to_le_bytes() {
            return Err(Unreadable::Damaged("a member that is two lengths at once"));
        }
        piece.check = Some(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
        Ok(Some(piece))
    }

    fn is_checked(&self) -> bool {
        true
    }
}

/// Fills `out`, or as much as there is.
fn fill(file: &mut impl Read, out: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < out.len() {
        match file.read(&mut out[filled..]) {
            Ok(0) => break,
            Ok(len) => filled += len,
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(filled)
}

fn only_zeros(file: &mut impl Read) -> Result<(), Unreadable> {
    let mut piece = [0; 4096];
    loop {
        match fill(file, &mut piece)? {
            0 => return Ok(()),
            len if piece[..len].iter().all(|byte| *byte == 0) => {}
            _ => return Err(Unreadable::NoBlocks("something else follows its members")),
        }
    }
}
