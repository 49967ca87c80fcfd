//! What the two ends of a tree tell each other beside it, over service `tree/2`.
//!
//! The sender begins with a [`Request`], the receiver answers with an [`Answer`] before anything else is sent. Where the
//! sender `ask`s, it offers files and the receiver says of each, in order, whether it wants it ([`Verdict`]). Offers go
//! ahead of contents, [`OFFERS_MAX`] at most, so that asking costs no round trips.

use std::io::{self, Read};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    keep::Keep,
    tree::{invalid, take},
};

/// Offers that may be under way: offered, and neither refused by the receiver nor sent. What they take at the receiver
/// is bounded by this and the length of paths.
pub const OFFERS_MAX: usize = 1024;
/// What the extras of those may take all together, in bytes. A sender stays below half of it.
pub const OFFERS_LEN_MAX: usize = 16 << 20;
/// Longest document, in bytes.
const DOCUMENT_LEN_MAX: usize = 4096;

/// What the sender wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Files are offered first, unless the receiver's directory is empty.
    pub ask: bool,
    /// A file that is newer there stays.
    pub update: bool,
    /// A file that is there stays.
    pub ignore_existing: bool,
    /// What is cut short stays there, and is continued by the next transfer.
    pub partial: bool,
    /// What is kept beside content, mode and time (`tree/3`).
    pub keep: Keep,
}

/// What the receiver says of itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// There is nothing in its directory, so it is not worth asking.
    pub empty: bool,
    /// Device and inode of its directory: a sender on the same machine does not descend into it.
    pub directory: (u64, u64),
}

/// What the receiver says of a file that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Send all of it.
    Whole,
    /// It is there as it is.
    Unchanged,
    /// Another is there, and stays.
    Kept,
    /// The first `len` bytes, of this XXH3-128, are there.
    From {
        /// In bytes.
        len: u64,
        /// Of those.
        hash: u128,
    },
}

impl Verdict {
    /// Appends its bytes.
    pub fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Whole => out.push(0),
            Self::Unchanged => out.push(1),
            Self::Kept => out.push(2),
            Self::From { len, hash } => {
                out.push(3);
                out.extend_from_slice(&len.to_le_bytes());
                out.extend_from_slice(&hash.to_le_bytes());
            }
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// The reader's own, or `InvalidData`.
    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        Ok(match take(from)? {
            [0] => Self::Whole,
            [1] => Self::Unchanged,
            [2] => Self::Kept,
            [3] => Self::From {
                len: u64::from_le_bytes(take(from)?),
                hash: u128::from_le_bytes(take(from)?),
            },
            _ => return Err(invalid("verdict of an unknown kind")),
        })
    }
}

/// Appends a document: its length in two bytes, then JSON.
pub(crate) fn write_document(out: &mut Vec<u8>, document: &impl Serialize) {
    let text = serde_json::to_vec(document).expect("plain fields are JSON");
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(&text);
}

/// Reads a document. Fields that are not known are left out, and what is missing is as by default.
pub(crate) fn read_document<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let len = usize::from(u16::from_le_bytes(take(from)?));
    if len > DOCUMENT_LEN_MAX {
        return Err(invalid("document of over 4,096 bytes"));
    }
    let mut text = vec![0; len];
    from.read_exact(&mut text)?;
    serde_json::from_slice(&text).map_err(|_| invalid("unreadable document"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_and_documents_survive_the_wire_and_cuts_are_noticed() {
        let hash = u128::MAX / 3;
        let verdicts = [
            Verdict::Whole,
            Verdict::Unchanged,
            Verdict::Kept,
            Verdict::From { len: 9, hash },
        ];
        for verdict in verdicts {
            let mut bytes = Vec::new();
            verdict.write(&mut bytes);
            assert_eq!(Verdict::read(&mut &bytes[..]).unwrap(), verdict);
            assert!(Verdict::read(&mut &bytes[..bytes.len() - 1]).is_err());
        }
        assert!(Verdict::read(&mut &[9; 30][..]).is_err());
        let request = Request {
            ask: true,
            ..Request::default()
        };
        let mut bytes = Vec::new();
        write_document(&mut bytes, &request);
        let back: Request = read_document(&mut &bytes[..]).unwrap();
        assert_eq!(back, request);
        assert!(read_document::<Request>(&mut &[255, 255, 0][..]).is_err());
        let newer = br#"{"ask":true,"later":1}"#;
        let bytes = [&(newer.len() as u16).to_le_bytes()[..], newer].concat();
        assert!(read_document::<Request>(&mut &bytes[..]).unwrap().ask);
    }
}
