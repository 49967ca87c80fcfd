//! Pieces of copies that are kept for one session, so that its client need not send them again.
//!
//! A piece is kept when its bytes have come and are what its hash says. Work that waits in a stream holds a piece
//! weakly: what the list has let go of is freed at once, so a session never has more than it was granted. No other
//! session can name its pieces.

use std::sync::{Arc, OnceLock, Weak};

use narrows::{Code, Error};
use narrows_gpu_abi::Status;
use narrows_gpu_wire::{ContentHash, Contents};
use parking_lot::Mutex;

use crate::{Failure, ended};

/// Less than this is not worth a list, in bytes.
const GRANT_MIN: u64 = 1 << 20;

/// Memory for the pieces of all sessions.
#[derive(Debug)]
pub struct ContentMemory {
    left: Mutex<u64>,
}

impl ContentMemory {
    /// So many bytes.
    #[must_use]
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            left: Mutex::new(bytes),
        })
    }

    /// What a new session may keep: half of what is left, so that there is some for the next.
    #[must_use]
    pub fn grant(self: &Arc<Self>) -> SessionContents {
        let mut left = self.left.lock();
        let granted = if *left / 2 < GRANT_MIN { 0 } else { *left / 2 };
        *left -= granted;
        SessionContents {
            known: Contents::new(granted),
            granted,
            memory: self.clone(),
        }
    }
}

/// What one session's client has had kept.
#[derive(Debug)]
pub struct SessionContents {
    known: Contents<Arc<Piece>>,
    granted: u64,
    memory: Arc<ContentMemory>,
}

impl Drop for SessionContents {
    fn drop(&mut self) {
        self.known.clear();
        *self.memory.left.lock() += self.granted;
    }
}

/// The bytes of a piece, once they have come and are right.
#[derive(Debug, Default)]
struct Piece(OnceLock<Box<[u8]>>);

/// A piece whose bytes are still to come.
#[derive(Debug)]
pub struct Keeping {
    piece: Weak<Piece>,
    hash: ContentHash,
}

/// A piece whose bytes have come.
#[derive(Debug)]
pub struct Held(Weak<Piece>);

fn refuse(text: &str) -> Failure {
    Failure::new(Status::INVALID_VALUE, text)
}

impl SessionContents {
    /// Bytes of pieces that the session may have; 0 where none are kept.
    #[must_use]
    pub fn granted(&self) -> u64 {
        self.granted
    }

    /// Makes room for a piece whose bytes come.
    ///
    /// # Errors
    /// There is such a piece already, or it has a length that none has.
    pub fn keep(&mut self, hash: ContentHash, len: u64) -> Result<Keeping, Failure> {
        if !self.known.takes(len) || self.known.has(&hash) {
            return Err(refuse("a piece that cannot be kept"));
        }
        let piece = Arc::<Piece>::default();
        let weak = Arc::downgrade(&piece);
        self.known.add(hash, len, piece);
        Ok(Keeping { piece: weak, hash })
    }

    /// The piece of this name.
    ///
    /// # Errors
    /// None of that name and length is kept.
    pub fn held(&mut self, hash: &ContentHash, len: u64) -> Result<Held, Failure> {
        let piece = self.known.use_now(hash, len);
        piece
            .map(|piece| Held(Arc::downgrade(piece)))
            .ok_or_else(|| refuse("a piece that is not kept here"))
    }

    /// Lets go of everything.
    pub fn clear(&mut self) {
        self.known.clear();
    }
}

impl Keeping {
    /// Whether the piece is still wanted: it may have had to make room before its bytes came.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.piece.strong_count() > 0
    }

    /// Keeps these bytes, if they are what the hash says.
    ///
    /// # Errors
    /// They are not.
    pub fn fill(self, bytes: Vec<u8>) -> Result<(), Error> {
        if *blake3::hash(&bytes).as_bytes() != self.hash {
            let text = "a piece of a copy that is not what its hash says";
            return Err(ended(Code::PROTOCOL, text));
        }
        if let Some(piece) = self.piece.upgrade() {
            let _ = piece.0.set(bytes.into());
        }
        Ok(())
    }
}

impl Held {
    /// Gives the bytes to `put`.
    ///
    /// # Errors
    /// They have not come, or had to make room since; what `put` returned otherwise.
    pub fn take<E: From<Error>>(self, put: impl FnOnce(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let piece = self.0.upgrade();
        match piece.as_ref().and_then(|piece| piece.0.get()) {
            Some(bytes) => put(bytes),
            None => Err(ended(
                Code::PROTOCOL,
                "a piece of a copy that is not here any more",
            )
            .into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(bytes: &[u8]) -> ContentHash {
        *blake3::hash(bytes).as_bytes()
    }

    fn read(held: Held) -> Result<Vec<u8>, Error> {
        let mut found = Vec::new();
        held.take(|bytes| {
            found.extend_from_slice(bytes);
            Ok::<_, Error>(())
        })?;
        Ok(found)
    }

    // Goal: a session keeps what it was granted and no more, and the next gets it back. Method: pieces that fill it.
    #[test]
    fn a_session_keeps_what_it_was_granted() {
        let memory = ContentMemory::new(4 << 20);
        let mut first = memory.grant();
        let second = memory.grant();
        assert_eq!((first.granted(), second.granted()), (2 << 20, 1 << 20));
        assert_eq!(memory.grant().granted(), 0);
        let pieces: Vec<Vec<u8>> = (0..3).map(|fill| vec![fill; 1 << 20]).collect();
        let mut early = None;
        for piece in &pieces {
            let keeping = first.keep(hash(piece), 1 << 20).unwrap();
            keeping.fill(piece.clone()).unwrap();
            let held = first.held(&hash(piece), 1 << 20).unwrap();
            early.get_or_insert(held);
        }
        assert!(first.held(&hash(&pieces[0]), 1 << 20).is_err());
        assert!(
            read(early.unwrap()).is_err(),
            "freed although a stream waits with it"
        );
        let last = first.held(&hash(&pieces[2]), 1 << 20).unwrap();
        assert_eq!(read(last).unwrap(), pieces[2]);
        drop(first);
        drop(second);
        assert_eq!(memory.grant().granted(), 2 << 20);
    }

    #[test]
    fn bytes_that_are_not_what_their_hash_says_are_not_kept() {
        let mut contents = ContentMemory::new(8 << 20).grant();
        let (right, wrong) = (vec![1; 64 << 10], vec![2; 64 << 10]);
        let keeping = contents.keep(hash(&right), 64 << 10).unwrap();
        assert!(contents.keep(hash(&right), 64 << 10).is_err(), "twice");
        let before = contents.held(&hash(&right), 64 << 10).unwrap();
        assert!(read(before).is_err(), "before it has come");
        assert!(keeping.fill(wrong).is_err());
        let after = contents.held(&hash(&right), 64 << 10).unwrap();
        assert!(read(after).is_err());
        assert!(contents.keep([0; 32], 1000).is_err(), "too short");
        assert!(
            contents.held(&hash(&right), 65 << 10).is_err(),
            "another length"
        );
    }
}
