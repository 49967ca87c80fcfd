//! Pre-shared key files: `user:hex` lines as GnuTLS' `psktool` writes them, or one bare hexadecimal line.

use std::{fmt, fs, path::Path};

use blake2::{Blake2s256, Digest};

/// A key in memory. Debug output names the user only.
#[derive(Clone)]
pub struct Psk {
    user: String,
    key: [u8; 32],
    /// Of others who may connect; for a server.
    others: Vec<Psk>,
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Psk({})", self.user)
    }
}

/// Why a key file gives no key. The file's owner corrects it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PskError {
    /// The file cannot be read.
    #[error("cannot read the key file {path}: {source}")]
    Read {
        /// Which file.
        path: String,
        /// The system's word.
        source: std::io::Error,
    },
    /// A line is neither `user:hex` nor hexadecimal.
    #[error(
        "line {line} of the key file is not `user:hexadecimal`; make one with `narrows keys` or `psktool`"
    )]
    Syntax {
        /// Counted from 1.
        line: usize,
    },
    /// The key could be guessed.
    #[error("the key on line {line} has {len} bytes; at least 16 are needed")]
    Short {
        /// Counted from 1.
        line: usize,
        /// Length in bytes.
        len: usize,
    },
    /// Nobody of that name.
    #[error("the key file has no user `{0}`")]
    NoUser(String),
    /// No line at all.
    #[error("the key file holds no key")]
    Empty,
}

/// Shortest key accepted, in bytes.
pub(super) const KEY_LEN_MIN: usize = 16;

impl Psk {
    /// Reads `path` and takes the key of `user`, or the first without one.
    ///
    /// # Errors
    /// See [`PskError`].
    pub fn load(path: &Path, user: Option<&str>) -> Result<Self, PskError> {
        let fault = |source| PskError::Read {
            path: path.display().to_string(),
            source,
        };
        let text = fs::read_to_string(path).map_err(fault)?;
        super::warn_of_readers(path);
        Self::parse(&text, user)
    }

    /// As [`Psk::load`], from the file's text.
    ///
    /// # Errors
    /// See [`PskError`].
    pub fn parse(text: &str, user: Option<&str>) -> Result<Self, PskError> {
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.trim();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let (name, digits) = content.rsplit_once(':').unwrap_or(("", content));
            let key = from_hex(digits).ok_or(PskError::Syntax { line })?;
            if key.len() < KEY_LEN_MIN {
                return Err(PskError::Short {
                    line,
                    len: key.len(),
                });
            }
            if user.is_none_or(|user| user == name) {
                return Ok(Self::new(name, &key));
            }
        }
        Err(user.map_or(PskError::Empty, |user| PskError::NoUser(user.into())))
    }

    /// A key from at least 16 secret random bytes; both sides must use the same.
    ///
    /// Noise wants 32 bytes; hashing brings any length there, with a label so that the same file used by another
    /// program (NBD with TLS-PSK) yields an unrelated key.
    #[must_use]
    pub fn new(user: &str, secret: &[u8]) -> Self {
        let key = Blake2s256::new()
            .chain_update(b"narrows psk 1\0")
            .chain_update(secret)
            .finalize();
        Self {
            user: user.into(),
            key: key.into(),
            others: Vec::new(),
        }
    }

    /// Takes others' keys as well, where this one is a server's.
    #[must_use]
    pub fn with_others(self, others: Vec<Self>) -> Self {
        Self { others, ..self }
    }

    /// This key, and those of others who may connect.
    pub(super) fn all(&self) -> Vec<Self> {
        let own = Self {
            others: Vec::new(),
            ..self.clone()
        };
        [own]
            .into_iter()
            .chain(self.others.iter().cloned())
            .collect()
    }

    /// Whose key it is; empty for a bare line. Not sent to the peer.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    pub(super) fn key(&self) -> &[u8; 32] {
        &self.key
    }
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| Some((digit(pair[0])? * 16 + digit(*pair.get(1)?)?) as u8))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "000102030405060708090a0b0c0d0e0F";

    #[test]
    fn the_named_user_else_the_first_is_taken() {
        let file = format!("# keys\nann:{HEX}\n\nbob:{HEX}ff\n");
        assert_eq!(Psk::parse(&file, None).unwrap().user(), "ann");
        let bob = Psk::parse(&file, Some("bob")).unwrap();
        assert_eq!(bob.user(), "bob");
        assert_ne!(bob.key(), Psk::parse(HEX, None).unwrap().key());
        assert_eq!(
            Psk::parse(&file, Some("ann")).unwrap().key(),
            Psk::parse(HEX, None).unwrap().key()
        );
        assert!(!format!("{bob:?}").contains("0f"));
    }

    #[test]
    fn faulty_files_are_refused_with_the_line() {
        assert!(matches!(Psk::parse("", None), Err(PskError::Empty)));
        assert!(matches!(
            Psk::parse(HEX, Some("x")),
            Err(PskError::NoUser(_))
        ));
        assert!(matches!(
            Psk::parse("\na:b", None),
            Err(PskError::Syntax { line: 2 })
        ));
        assert!(matches!(
            Psk::parse("a:xy", None),
            Err(PskError::Syntax { line: 1 })
        ));
        assert!(matches!(
            Psk::parse("a:00ff", None),
            Err(PskError::Short { line: 1, len: 2 })
        ));
    }
}
