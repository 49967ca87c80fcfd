//! The bytes of a tree of files on a channel.
//!
//! Entries follow one another, parents before children; numbers are little-endian. One byte of kind, then:
//!
//! ```text
//! all but end   mode u32, mtime seconds i64, mtime nanoseconds u32, path (u16 length, bytes, relative, `/` between names)
//! 1 directory   nothing more
//! 2 file        extents: 1 data (u32 length, bytes) · 2 hole (u64 length) · 0 end of the file
//! 3 link        target (u16 length, bytes)
//! 0 end         entries u64
//! ```
//!
//! Small files stand close together, so one chunk holds many and they share a codec's window.

use std::io::{self, Read};

/// Longest path or link target, in bytes.
pub const PATH_LEN_MAX: usize = 4096;
/// Longest data extent: what a reader may have to buffer is a chunk, never this.
pub const EXTENT_LEN_MAX: u32 = 1 << 30;

/// What every entry but the last begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// Permission bits, `0o7777` at most.
    pub mode: u32,
    /// Time of last change, in seconds since 1970.
    pub mtime_s: i64,
    /// The rest of it, in nanoseconds.
    pub mtime_ns: u32,
    /// Relative path, as the sending system spells it.
    pub path: Vec<u8>,
}

/// One entry's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A directory.
    Dir(Meta),
    /// A file; its extents follow.
    File(Meta),
    /// A symbolic link and its target.
    Link(Meta, Vec<u8>),
    /// The tree is complete, with this many entries.
    End(u64),
}

/// A piece of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Bytes that follow.
    Data(u32),
    /// Bytes that are zero and take no space.
    Hole(u64),
    /// No more.
    End,
}

impl Entry {
    /// Appends the entry's bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (kind, meta) = match self {
            Self::Dir(meta) => (1, meta),
            Self::File(meta) => (2, meta),
            Self::Link(meta, _) => (3, meta),
            Self::End(entries) => {
                out.push(0);
                out.extend_from_slice(&entries.to_le_bytes());
                return;
            }
        };
        out.push(kind);
        out.extend_from_slice(&meta.mode.to_le_bytes());
        out.extend_from_slice(&meta.mtime_s.to_le_bytes());
        out.extend_from_slice(&meta.mtime_ns.to_le_bytes());
        write_name(out, &meta.path);
        if let Self::Link(_, target) = self {
            write_name(out, target);
        }
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// The reader's own, or `InvalidData` where the bytes are no entry.
    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        let kind = u8::from_le_bytes(take(from)?);
        if kind == 0 {
            return Ok(Self::End(u64::from_le_bytes(take(from)?)));
        }
        let mode = u32::from_le_bytes(take(from)?);
        let mtime_s = i64::from_le_bytes(take(from)?);
        let mtime_ns = u32::from_le_bytes(take(from)?);
        if mode > 0o7777 || mtime_ns >= 1_000_000_000 {
            return Err(invalid("mode or time out of range"));
        }
        let meta = Meta {
            mode,
            mtime_s,
            mtime_ns,
            path: read_name(from)?,
        };
        match kind {
            1 => Ok(Self::Dir(meta)),
            2 => Ok(Self::File(meta)),
            3 => Ok(Self::Link(meta, read_name(from)?)),
            _ => Err(invalid("entry of an unknown kind")),
        }
    }
}

impl Extent {
    /// Longest form on the wire, in bytes.
    pub const LEN_MAX: usize = 9;

    /// Appends the extent's head.
    pub fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Data(len) => {
                out.push(1);
                out.extend_from_slice(&len.to_le_bytes());
            }
            Self::Hole(len) => {
                out.push(2);
                out.extend_from_slice(&len.to_le_bytes());
            }
            Self::End => out.push(0),
        }
    }

    /// Reads an extent's head.
    ///
    /// # Errors
    /// The reader's own, or `InvalidData` where the bytes are no extent.
    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        match u8::from_le_bytes(take(from)?) {
            0 => Ok(Self::End),
            1 => match u32::from_le_bytes(take(from)?) {
                len if len <= EXTENT_LEN_MAX => Ok(Self::Data(len)),
                _ => Err(invalid("extent of over 1 GiB")),
            },
            2 => Ok(Self::Hole(u64::from_le_bytes(take(from)?))),
            _ => Err(invalid("extent of an unknown kind")),
        }
    }
}

fn take<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_name(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let len = usize::from(u16::from_le_bytes(take(from)?));
    if len == 0 || len > PATH_LEN_MAX {
        return Err(invalid("empty path, or one of over 4,096 bytes"));
    }
    let mut name = vec![0; len];
    from.read_exact(&mut name)?;
    if name.contains(&0) {
        return Err(invalid("path with a zero byte"));
    }
    Ok(name)
}

fn write_name(out: &mut Vec<u8>, name: &[u8]) {
    out.extend_from_slice(&(name.len() as u16).to_le_bytes());
    out.extend_from_slice(name);
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_and_extents_survive_the_wire_and_cuts_are_noticed() {
        let meta = Meta {
            mode: 0o644,
            mtime_s: -5,
            mtime_ns: 7,
            path: b"a/b".to_vec(),
        };
        let entries = [
            Entry::Dir(meta.clone()),
            Entry::File(meta.clone()),
            Entry::Link(meta, b"../x".to_vec()),
            Entry::End(3),
        ];
        for entry in entries {
            let mut bytes = Vec::new();
            entry.write(&mut bytes);
            assert_eq!(Entry::read(&mut &bytes[..]).unwrap(), entry);
            for cut in 0..bytes.len() {
                assert!(
                    Entry::read(&mut &bytes[..cut]).is_err(),
                    "{entry:?} cut at {cut}"
                );
            }
        }
        for extent in [Extent::Data(9), Extent::Hole(1 << 40), Extent::End] {
            let mut bytes = Vec::new();
            extent.write(&mut bytes);
            assert_eq!(Extent::read(&mut &bytes[..]).unwrap(), extent);
        }
    }

    #[test]
    fn hostile_heads_are_refused() {
        for bytes in [&[9; 40][..], &[1; 3], &[2, 255, 255, 255, 255]] {
            assert!(Entry::read(&mut &bytes[..]).is_err());
        }
        assert!(Extent::read(&mut &[1, 255, 255, 255, 255][..]).is_err());
    }
}
