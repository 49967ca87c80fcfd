//! The user's files as one stream, and excerpts of it that fit a link.
//!
//! A slow link carries little in the seconds that a user will wait, so it gets an excerpt: eight pieces or more,
//! of up to 4 MiB, evenly spread over everything there is, in order. A fast link gets the data over and over where they
//! are longer than any history in use, which would find the repeats.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Serialize;
use xxhash_rust::xxh3::Xxh3;

use crate::{sample, synthetic};

/// Everything that may be sent.
#[derive(Debug)]
pub struct Data {
    /// For people: `"the bundled sample"`, or the paths.
    pub what: String,
    files: Vec<Source>,
}

#[derive(Debug, Clone)]
struct Source {
    name: String,
    /// First byte that counts.
    begin: u64,
    len: u64,
    bytes: Bytes,
}

#[derive(Debug, Clone)]
enum Bytes {
    Here(Arc<[u8]>),
    At(PathBuf),
}

/// What is sent over one link.
#[derive(Debug)]
pub struct Excerpt {
    /// The bytes, in a file without a name: nothing is left of it, however this process ends.
    file: File,
    /// How many.
    pub len: u64,
    /// XXH3-64 of the bytes, as hex: what must arrive.
    pub xxh3: String,
    /// Where they are from, in order.
    pub pieces: Vec<Piece>,
    /// How many times over they are sent.
    pub times: u64,
}

/// A run of bytes of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Piece {
    /// Which file.
    pub name: String,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Why there is nothing to send.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A file or directory of the user.
    #[error("cannot read {path}: {fault}")]
    Read {
        /// Which.
        path: String,
        /// The system's word.
        fault: io::Error,
    },
    /// All files are empty.
    #[error("there are no data: {0} holds no bytes")]
    Empty(String),
    /// The copy that is sent.
    #[error(
        "cannot write a copy of the data to {dir}: {fault}; set TMPDIR to a directory with room"
    )]
    Copy {
        /// Where temporary files go.
        dir: String,
        /// The system's word.
        fault: io::Error,
    },
}

impl Excerpt {
    /// The bytes from the first. One reader at a time: the position is shared with earlier ones.
    ///
    /// # Errors
    /// The system is out of file descriptors.
    pub fn open(&self) -> io::Result<File> {
        (&self.file).seek(SeekFrom::Start(0))?;
        self.file.try_clone()
    }

    /// The same bytes as often as fit in `len`; once where that is no honest measure, because a codec could find the
    /// repeats.
    ///
    /// # Errors
    /// [`DataError::Copy`].
    pub fn lengthened(mut self, len: u64) -> Result<Self, DataError> {
        if !(PERIOD_MIN..=PERIOD_MAX).contains(&self.len) || self.len > len / 2 {
            return Ok(self);
        }
        self.times = len / self.len;
        let (mut once, mut hash) = (Vec::new(), Xxh3::new());
        let mut copy = || {
            self.open()?.read_to_end(&mut once)?;
            hash.update(&once);
            for _ in 1..self.times {
                hash.update(&once);
                (&self.file).write_all(&once)?;
            }
            Ok(())
        };
        copy().map_err(cannot_copy)?;
        self.len *= self.times;
        self.xxh3 = format!("{:016x}", hash.digest());
        Ok(self)
    }
}

impl Data {
    /// The bundled sample.
    #[must_use]
    pub fn sample() -> Self {
        let bytes = sample::unpack();
        let mut rest = bytes.as_slice();
        let files = sample::PARTS.iter().map(|part| {
            let (now, later) = rest.split_at(part.len);
            rest = later;
            Source {
                name: part.name.into(),
                begin: 0,
                len: part.len as u64,
                bytes: Bytes::Here(now.into()),
            }
        });
        Self {
            files: files.collect(),
            what: "the bundled sample".into(),
        }
    }

    /// Bytes at hand, under a name.
    #[must_use]
    pub fn of(name: &str, bytes: Vec<u8>) -> Self {
        let len = bytes.len() as u64;
        let file = Source {
            name: name.into(),
            begin: 0,
            len,
            bytes: Bytes::Here(bytes.into()),
        };
        Self {
            files: vec![file],
            what: name.into(),
        }
    }

    /// Generated data.
    ///
    /// # Panics
    /// Never: writing to memory does not fail.
    #[must_use]
    pub fn synthetic(kind: synthetic::Kind, len: u64, seed: u64) -> Self {
        let mut bytes = Vec::new();
        synthetic::write(kind, len, seed, &mut bytes).expect("memory takes it");
        let what = kind.name().to_string();
        Self {
            files: vec![Source {
                name: what.clone(),
                begin: 0,
                len,
                bytes: Bytes::Here(bytes.into()),
            }],
            what,
        }
    }

    /// Files, and all files below directories, in order of name. Links below directories are not followed.
    ///
    /// # Errors
    /// [`DataError`] where something cannot be read or nothing is there.
    pub fn paths(paths: &[PathBuf]) -> Result<Self, DataError> {
        let what: Vec<_> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let mut data = Self {
            what: what.join(", "),
            files: Vec::new(),
        };
        for path in paths {
            data.add(
                path,
                &fs::metadata(path).map_err(|fault| cannot_read(path, fault))?,
            )?;
        }
        if data.is_empty() {
            Err(DataError::Empty(data.what))
        } else {
            Ok(data)
        }
    }

    fn add(&mut self, path: &Path, meta: &fs::Metadata) -> Result<(), DataError> {
        if meta.is_dir() {
            let list = || fs::read_dir(path)?.collect::<io::Result<Vec<_>>>();
            let mut inside = list().map_err(|fault| cannot_read(path, fault))?;
            inside.sort_by_key(fs::DirEntry::file_name);
            for below in inside {
                let path = below.path();
                let meta = below
                    .metadata()
                    .map_err(|fault| cannot_read(&path, fault))?;
                self.add(&path, &meta)?;
            }
        } else if meta.is_file() && meta.len() > 0 {
            let name = path.display().to_string();
            self.files.push(Source {
                name,
                begin: 0,
                len: meta.len(),
                bytes: Bytes::At(path.into()),
            });
        }
        Ok(())
    }

    /// Each file for itself.
    #[must_use]
    pub fn each(self) -> Vec<Self> {
        self.files
            .into_iter()
            .map(|file| Self {
                what: file.name.clone(),
                files: vec![file],
            })
            .collect()
    }

    /// Bytes of all files.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.files.iter().map(|file| file.len).sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many files.
    #[must_use]
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// What [`Data::excerpt`] copies, as data of its own: whoever is to send that is measured on that.
    #[must_use]
    pub fn part(&self, len_max: u64) -> Self {
        let files = self.pieces(len_max).into_iter().map(|piece| {
            let bytes = self.source(&piece).bytes.clone();
            Source {
                name: piece.name,
                begin: piece.offset,
                len: piece.len,
                bytes,
            }
        });
        Self {
            what: self.what.clone(),
            files: files.collect(),
        }
    }

    /// Of files of one name any will do: they are one file.
    fn source(&self, piece: &Piece) -> &Source {
        self.files
            .iter()
            .find(|file| file.name == piece.name)
            .expect("pieces are of these files")
    }

    /// Copies at most `len_max` bytes, evenly spread, to a temporary file.
    ///
    /// # Errors
    /// [`DataError`] where a file cannot be read (any more) or the copy not be written.
    pub fn excerpt(&self, len_max: u64) -> Result<Excerpt, DataError> {
        let mut file = tempfile::tempfile().map_err(cannot_copy)?;
        let (mut hash, mut pieces, mut len) = (Xxh3::new(), Vec::new(), 0);
        for piece in self.pieces(len_max) {
            let mut left = piece.len;
            let mut pass = |bytes: &[u8]| {
                hash.update(bytes);
                file.write_all(bytes).map_err(cannot_copy)
            };
            match &self.source(&piece).bytes {
                Bytes::Here(bytes) => pass(&bytes[piece.offset as usize..][..piece.len as usize])?,
                Bytes::At(path) => {
                    let read = |fault| cannot_read(path, fault);
                    let mut from = File::open(path).map_err(read)?;
                    from.seek(SeekFrom::Start(piece.offset)).map_err(read)?;
                    let mut block = vec![0; BLOCK_LEN];
                    while left > 0 {
                        let now = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                        from.read_exact(&mut block[..now]).map_err(read)?;
                        pass(&block[..now])?;
                        left -= now as u64;
                    }
                }
            }
            len += piece.len;
            pieces.push(piece);
        }
        Ok(Excerpt {
            file,
            len,
            xxh3: format!("{:016x}", hash.digest()),
            pieces,
            times: 1,
        })
    }

    /// Which bytes an excerpt takes.
    fn pieces(&self, len_max: u64) -> Vec<Piece> {
        let total = self.len();
        let mut pieces = Vec::new();
        if total <= len_max {
            self.take(0, total, &mut pieces);
            return pieces;
        }
        let piece_len = (len_max / 8).clamp(PIECE_LEN_MIN, PIECE_LEN_MAX);
        let count = len_max.div_ceil(piece_len).max(1);
        for number in 0..count {
            // Lengths differ by at most one byte; the gaps between pieces are even too, and both ends are taken.
            let len = (number + 1) * len_max / count - number * len_max / count;
            let before = number * len_max / count;
            let gap = if count == 1 {
                0
            } else {
                mul_div(total - len_max, number, count - 1)
            };
            self.take(before + gap, len, &mut pieces);
        }
        pieces
    }

    /// Appends the pieces of files that make up `len` bytes from `at` of the stream.
    fn take(&self, at: u64, len: u64, pieces: &mut Vec<Piece>) {
        let (mut begin, end) = (0, at + len);
        for file in &self.files {
            let (from, to) = (at.max(begin), end.min(begin + file.len));
            if from < to {
                pieces.push(Piece {
                    name: file.name.clone(),
                    offset: file.begin + from - begin,
                    len: to - from,
                });
            }
            begin += file.len;
        }
    }
}

fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    u64::try_from(u128::from(a) * u128::from(b) / u128::from(c)).expect("b is at most c")
}

fn cannot_read(path: &Path, fault: io::Error) -> DataError {
    DataError::Read {
        path: path.display().to_string(),
        fault,
    }
}

fn cannot_copy(fault: io::Error) -> DataError {
    DataError::Copy {
        dir: std::env::temp_dir().display().to_string(),
        fault,
    }
}

/// Data that repeat after so many bytes repeat beyond the history of every codec that is raced, 1 MiB at most, and
/// beyond zstd's own windows up to level 12.
const PERIOD_MIN: u64 = 4 << 20;
/// Longer ones are enough as they are; so much is held in memory while it is copied.
const PERIOD_MAX: u64 = 256 << 20;
/// Long enough that history and large chunks have their effect within a piece.
const PIECE_LEN_MAX: u64 = 4 << 20;
/// Shorter ones would mostly measure where they were cut.
const PIECE_LEN_MIN: u64 = 256 << 10;
const BLOCK_LEN: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(excerpt: &Excerpt) -> Vec<u8> {
        let mut bytes = Vec::new();
        excerpt.open().unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn small_data_is_taken_whole_and_in_order() {
        let excerpt = Data::sample().excerpt(u64::MAX).unwrap();
        assert_eq!(read(&excerpt), sample::unpack());
        let names: Vec<_> = excerpt
            .pieces
            .iter()
            .map(|piece| piece.name.as_str())
            .collect();
        assert_eq!(names, sample::PARTS.map(|part| part.name));
    }

    // Goal: an excerpt is as long as asked, takes no byte twice, and has both ends. Method: many lengths.
    #[test]
    fn an_excerpt_is_spread_and_takes_nothing_twice() {
        let dir = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
        fs::write(dir.path().join("b"), &bytes[..5_000_000]).unwrap();
        fs::write(dir.path().join("c"), &bytes[5_000_000..]).unwrap();
        fs::write(dir.path().join("a"), b"").unwrap();
        let data = Data::paths(&[dir.path().to_path_buf()]).unwrap();
        assert_eq!((data.len(), data.files()), (12_000_000, 2));
        for len in [
            1,
            1000,
            4 << 20,
            (4 << 20) + 1,
            9_000_000,
            11_999_999,
            12_000_000,
        ] {
            let excerpt = data.excerpt(len).unwrap();
            assert_eq!(read(&excerpt).len() as u64, len);
            let mut last = None;
            for piece in &excerpt.pieces {
                let at = piece.offset
                    + if piece.name.ends_with('c') {
                        5_000_000
                    } else {
                        0
                    };
                assert!(
                    last.is_none_or(|end| at >= end),
                    "{len}: {:?}",
                    excerpt.pieces
                );
                last = Some(at + piece.len);
            }
            assert!(
                len <= 256 << 10 || last == Some(12_000_000),
                "{len}: {:?}",
                excerpt.pieces
            );
        }
    }

    // Goal: what is measured on is what would be sent. Method: parts of parts, and excerpts of both.
    #[test]
    fn a_part_holds_what_an_excerpt_would() {
        let dir = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
        fs::write(dir.path().join("a"), &bytes[..5_000_000]).unwrap();
        fs::write(dir.path().join("b"), &bytes[5_000_000..]).unwrap();
        for data in [
            Data::paths(&[dir.path().to_path_buf()]).unwrap(),
            Data::sample(),
        ] {
            let excerpt = data.excerpt(3_000_000).unwrap();
            let part = data.part(3_000_000);
            let whole = part.excerpt(u64::MAX).unwrap();
            assert!(read(&whole) == read(&excerpt) && whole.pieces == excerpt.pieces);
            let within = part.excerpt(300_000).unwrap();
            let bytes = read(&excerpt);
            assert!(
                bytes.starts_with(&read(&within)[..100_000])
                    && bytes.ends_with(&read(&within)[200_000..])
            );
        }
    }

    #[test]
    fn long_data_are_lengthened_and_short_data_left() {
        let bytes: Vec<u8> = sample::unpack();
        let excerpt = Data::sample()
            .excerpt(u64::MAX)
            .unwrap()
            .lengthened(25_000_000)
            .unwrap();
        assert_eq!((excerpt.times, excerpt.len), (3, 3 * bytes.len() as u64));
        let sent = read(&excerpt);
        assert!(sent == bytes.repeat(3));
        assert_eq!(
            excerpt.xxh3,
            format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&sent))
        );
        let short = Data::sample()
            .excerpt(1 << 20)
            .unwrap()
            .lengthened(20_000_000)
            .unwrap();
        assert_eq!((short.times, short.len), (1, 1 << 20));
    }

    #[test]
    fn nothing_to_send_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let fault = Data::paths(&[dir.path().to_path_buf()]).unwrap_err();
        assert!(matches!(fault, DataError::Empty(_)), "{fault}");
    }
}
