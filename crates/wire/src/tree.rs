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
//! Service `tree/2` has more, by which a receiver says what it has already (`dialogue`), and a sender leaves out a file
//! that it could not read to its end:
//!
//! ```text
//! 4 offer       as a file, then length u64, flag u8, and where that is 1 XXH3-128 of the content; no extents
//! 5 content     as a file without its path, start u64, extents: the oldest offer that is wanted
//! 6 withdrawn   nothing: the oldest offer that is wanted does not come
//! 7 left out    files u64 that the sender could not read, before the end
//! extent 3      the file is not whole, and ends here
//! ```
//!
//! Service `tree/3` has, beside those, what is kept of entries more than mode and time:
//!
//! ```text
//! 8 extras      flags u8 · where 1: user u32, name (u8 length, bytes) · where 2: group, the same ·
//!               where 4: attributes: count u16, each name (u8 length, bytes), value (u32 length, bytes);
//!               of the directory, file, link or offer that follows
//! 9 hard link   as a link; the target is the path of a file of this tree
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

/// A user or group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// Its number at the sender.
    pub id: u32,
    /// Its name there, of 255 bytes at most; empty where it has none.
    pub name: Vec<u8>,
}

/// An extended attribute.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attribute {
    /// With what it begins with, as in `user.x`; 255 bytes at most.
    pub name: Vec<u8>,
    /// Any bytes.
    pub value: Vec<u8>,
}

/// What is kept of an entry beside content, mode and time (`tree/3`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extras {
    /// Who owns it.
    pub user: Option<Owner>,
    /// Which group owns it.
    pub group: Option<Owner>,
    /// All attributes that are kept, access lists among them.
    pub attributes: Option<Vec<Attribute>>,
}

/// Longest attributes of an entry, all together, in bytes; what Linux lets a file have is less on most file systems.
pub const ATTRIBUTES_LEN_MAX: usize = 256 << 10;

impl Extras {
    /// What it takes, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let owner = |owner: &Option<Owner>| owner.as_ref().map_or(0, |owner| owner.name.len());
        let one = |one: &Attribute| one.name.len() + one.value.len() + 64;
        let attributes = self.attributes.iter().flatten().map(one);
        128 + owner(&self.user) + owner(&self.group) + attributes.sum::<usize>()
    }

    /// Whether it is more than one entry may have.
    pub(crate) fn is_too_long(&self) -> bool {
        self.bytes() > ATTRIBUTES_LEN_MAX
    }

    fn write(&self, out: &mut Vec<u8>) {
        let flag = |there: bool, bit: u8| if there { bit } else { 0 };
        out.push(
            flag(self.user.is_some(), 1)
                | flag(self.group.is_some(), 2)
                | flag(self.attributes.is_some(), 4),
        );
        for owner in self.user.iter().chain(&self.group) {
            out.extend_from_slice(&owner.id.to_le_bytes());
            write_short(out, &owner.name);
        }
        if let Some(attributes) = &self.attributes {
            out.extend_from_slice(&(attributes.len() as u16).to_le_bytes());
            for one in attributes {
                write_short(out, &one.name);
                out.extend_from_slice(&(one.value.len() as u32).to_le_bytes());
                out.extend_from_slice(&one.value);
            }
        }
    }

    fn read(from: &mut impl Read) -> io::Result<Self> {
        let [flags] = take(from)?;
        if flags > 7 {
            return Err(invalid("extras with an unknown flag"));
        }
        let mut extras = Self::default();
        for (bit, owner) in [(1, &mut extras.user), (2, &mut extras.group)] {
            if flags & bit != 0 {
                let id = u32::from_le_bytes(take(from)?);
                let name = read_short(from)?;
                *owner = Some(Owner { id, name });
            }
        }
        if flags & 4 != 0 {
            let (mut attributes, mut len) = (Vec::new(), 0);
            for _ in 0..u16::from_le_bytes(take(from)?) {
                let name = read_short(from)?;
                let value_len = u32::from_le_bytes(take(from)?) as usize;
                len += name.len() + value_len + 64;
                if name.is_empty() || name.contains(&0) || len > ATTRIBUTES_LEN_MAX {
                    return Err(invalid("attribute without a name, or more than 256 KiB"));
                }
                let mut value = vec![0; value_len];
                from.read_exact(&mut value)?;
                attributes.push(Attribute { name, value });
            }
            extras.attributes = Some(attributes);
        }
        Ok(extras)
    }
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
    /// A file that the receiver may have (`tree/2`).
    Offer(Meta, Offer),
    /// An offered file that it wants (`tree/2`), from byte `start` on; extents follow. The path is the offer's, empty
    /// here.
    Content(Meta, u64),
    /// An offered file that it wants and that is gone (`tree/2`).
    Withdrawn,
    /// Files that the sender could not read (`tree/2`).
    LeftOut(u64),
    /// What is kept of the entry that follows (`tree/3`).
    Extras(Extras),
    /// Another name of a file of this tree, and the path of that (`tree/3`).
    HardLink(Meta, Vec<u8>),
}

/// What a file is, beside its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Its length in bytes.
    pub len: u64,
    /// XXH3-128 of its content, where the receiver shall go by that and not by its time.
    pub hash: Option<u128>,
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
    /// No more, and the file is not whole (`tree/2`).
    Abandoned,
}

impl Entry {
    /// Of the service, from which on there are such entries.
    #[must_use]
    pub(crate) fn version(&self) -> u8 {
        match self {
            Self::Dir(_) | Self::File(_) | Self::Link(..) | Self::End(_) => 1,
            Self::Offer(..) | Self::Content(..) | Self::Withdrawn | Self::LeftOut(_) => 2,
            Self::Extras(_) | Self::HardLink(..) => 3,
        }
    }

    /// Whether [`Entry::Extras`] may stand before it.
    pub(crate) fn has_extras(&self) -> bool {
        matches!(
            self,
            Self::Dir(_) | Self::File(_) | Self::Link(..) | Self::Offer(..)
        )
    }

    /// Appends the entry's bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (kind, meta) = match self {
            Self::Dir(meta) => (1, meta),
            Self::File(meta) => (2, meta),
            Self::Link(meta, _) => (3, meta),
            Self::Offer(meta, _) => (4, meta),
            Self::Content(meta, _) => (5, meta),
            Self::HardLink(meta, _) => (9, meta),
            Self::End(number) | Self::LeftOut(number) => {
                out.push(if matches!(self, Self::End(_)) { 0 } else { 7 });
                out.extend_from_slice(&number.to_le_bytes());
                return;
            }
            Self::Withdrawn => return out.push(6),
            Self::Extras(extras) => {
                out.push(8);
                return extras.write(out);
            }
        };
        out.push(kind);
        out.extend_from_slice(&meta.mode.to_le_bytes());
        out.extend_from_slice(&meta.mtime_s.to_le_bytes());
        out.extend_from_slice(&meta.mtime_ns.to_le_bytes());
        if let Self::Content(_, start) = self {
            return out.extend_from_slice(&start.to_le_bytes());
        }
        write_name(out, &meta.path);
        match self {
            Self::Link(_, target) | Self::HardLink(_, target) => write_name(out, target),
            Self::Offer(_, offer) => {
                out.extend_from_slice(&offer.len.to_le_bytes());
                out.push(offer.hash.is_some().into());
                out.extend(offer.hash.iter().flat_map(|hash| hash.to_le_bytes()));
            }
            _ => {}
        }
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// The reader's own, or `InvalidData` where the bytes are no entry.
    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        let kind = u8::from_le_bytes(take(from)?);
        match kind {
            0 => return Ok(Self::End(u64::from_le_bytes(take(from)?))),
            6 => return Ok(Self::Withdrawn),
            7 => return Ok(Self::LeftOut(u64::from_le_bytes(take(from)?))),
            8 => return Ok(Self::Extras(Extras::read(from)?)),
            _ => {}
        }
        let mode = u32::from_le_bytes(take(from)?);
        let mtime_s = i64::from_le_bytes(take(from)?);
        let mtime_ns = u32::from_le_bytes(take(from)?);
        if mode > 0o7777 || mtime_ns >= 1_000_000_000 {
            return Err(invalid("mode or time out of range"));
        }
        let mut meta = Meta {
            mode,
            mtime_s,
            mtime_ns,
            path: Vec::new(),
        };
        if kind == 5 {
            return Ok(Self::Content(meta, u64::from_le_bytes(take(from)?)));
        }
        meta.path = read_name(from)?;
        match kind {
            4 => {
                let len = u64::from_le_bytes(take(from)?);
                let hash = match take(from)? {
                    [0] => None,
                    [1] => Some(u128::from_le_bytes(take(from)?)),
                    _ => return Err(invalid("flag that is neither 0 nor 1")),
                };
                Ok(Self::Offer(meta, Offer { len, hash }))
            }
            1 => Ok(Self::Dir(meta)),
            2 => Ok(Self::File(meta)),
            3 => Ok(Self::Link(meta, read_name(from)?)),
            9 => Ok(Self::HardLink(meta, read_name(from)?)),
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
            Self::Abandoned => out.push(3),
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
            3 => Ok(Self::Abandoned),
            _ => Err(invalid("extent of an unknown kind")),
        }
    }
}

pub(crate) fn take<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
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

/// Up to 255 bytes, behind their length.
fn write_short(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(bytes.len() as u8);
    out.extend_from_slice(bytes);
}

fn read_short(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let [len] = take(from)?;
    let mut bytes = vec![0; len.into()];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn write_name(out: &mut Vec<u8>, name: &[u8]) {
    out.extend_from_slice(&(name.len() as u16).to_le_bytes());
    out.extend_from_slice(name);
}

pub(crate) fn invalid(what: &'static str) -> io::Error {
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
            Entry::Link(meta.clone(), b"../x".to_vec()),
            Entry::End(3),
            Entry::Offer(
                meta.clone(),
                Offer {
                    len: 1 << 40,
                    hash: None,
                },
            ),
            Entry::Offer(
                meta.clone(),
                Offer {
                    len: 5,
                    hash: Some(u128::MAX - 1),
                },
            ),
            Entry::Content(
                Meta {
                    path: Vec::new(),
                    ..meta.clone()
                },
                7,
            ),
            Entry::Withdrawn,
            Entry::LeftOut(2),
            Entry::HardLink(meta, b"c/d".to_vec()),
            Entry::Extras(Extras::default()),
            Entry::Extras(Extras {
                user: Some(Owner {
                    id: 9,
                    name: b"me".to_vec(),
                }),
                group: Some(Owner::default()),
                attributes: Some(vec![Attribute {
                    name: b"user.x".to_vec(),
                    value: vec![0, 1],
                }]),
            }),
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
        for extent in [
            Extent::Data(9),
            Extent::Hole(1 << 40),
            Extent::End,
            Extent::Abandoned,
        ] {
            let mut bytes = Vec::new();
            extent.write(&mut bytes);
            assert_eq!(Extent::read(&mut &bytes[..]).unwrap(), extent);
        }
    }

    // Goal: the example of `tree/3` in docs/specs/tree.md is what is read and written.
    #[test]
    fn the_example_of_the_specification_has_these_bytes() {
        let example = "08 01 09 00 00 00 00
            02 a4 01 00 00 01 00 00 00 00 00 00 00 00 00 00 00 01 00 66 00
            09 a4 01 00 00 01 00 00 00 00 00 00 00 00 00 00 00 01 00 67 01 00 66";
        let digits = example.split_whitespace();
        let bytes: Vec<u8> = digits
            .map(|digits| u8::from_str_radix(digits, 16).unwrap())
            .collect();
        let meta = |path: &[u8]| Meta {
            mode: 0o644,
            mtime_s: 1,
            mtime_ns: 0,
            path: path.to_vec(),
        };
        let user = Some(Owner {
            id: 9,
            name: Vec::new(),
        });
        let extras = Extras {
            user,
            ..Extras::default()
        };
        let mut written = Vec::new();
        Entry::Extras(extras).write(&mut written);
        Entry::File(meta(b"f")).write(&mut written);
        Extent::End.write(&mut written);
        Entry::HardLink(meta(b"g"), b"f".to_vec()).write(&mut written);
        assert_eq!(written, bytes);
    }

    #[test]
    fn hostile_heads_are_refused() {
        // An entry of no known kind, cut ones, extras with an unknown flag, and with an attribute of 4 GiB.
        let longest = [&[8, 4, 1, 0, 1, b'x'][..], &[255; 4]].concat();
        for bytes in [
            &[10; 40][..],
            &[1; 3],
            &[8, 8],
            &longest,
            &[2, 255, 255, 255, 255],
        ] {
            assert!(Entry::read(&mut &bytes[..]).is_err());
        }
        assert!(Extent::read(&mut &[1, 255, 255, 255, 255][..]).is_err());
    }
}
