//! Pieces of copies that are kept for one client, so that it need not send them again.
//!
//! A session begins with what the last one of the same client left, and leaves what it has. Whose session it is, its
//! [`Identity`] says; a session whose client proved none begins with nothing and leaves nothing. Two sessions of one
//! client at once share nothing: the first has what was left, and of two that end the later one's pieces stay.
//!
//! What was left counts as free: sessions that go on come first, and what was left longest ago goes first.
//!
//! A piece is kept when its bytes have come and are what its hash says. Work that waits in a stream holds a piece
//! weakly: what the list has let go of is freed at once, so a session never has more than it was granted. No other
//! client can name its pieces.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, OnceLock, Weak},
};

use narrows::{Code, Error, Identity};
use narrows_gpu_abi::Status;
use narrows_gpu_wire::{CONTENTS_TOLD_MAX, ContentHash, ContentPiece, Contents};
use parking_lot::Mutex;

use crate::{Failure, ended};

/// Less than this is not worth a list, in bytes.
const GRANT_MIN: u64 = 1 << 20;

/// Memory for the pieces of all clients.
#[derive(Debug)]
pub struct ContentMemory {
    state: Mutex<MemoryState>,
}

#[derive(Debug)]
struct MemoryState {
    /// Bytes that neither a session was granted nor a shelf holds.
    left: u64,
    shelves: HashMap<Identity, Shelf>,
    /// Counts sessions that left something.
    clock: u64,
}

/// What a client's last session left.
#[derive(Debug)]
struct Shelf {
    known: Contents<Arc<Piece>>,
    left_at: u64,
}

impl MemoryState {
    /// Takes away what was left longest ago until so many bytes are free, if there are so many.
    fn make_room(&mut self, bytes: u64) {
        while self.left < bytes {
            let oldest = self.shelves.iter().min_by_key(|(_, shelf)| shelf.left_at);
            let Some(whose) = oldest.map(|(whose, _)| whose.clone()) else {
                return;
            };
            self.take(&whose);
        }
    }

    fn take(&mut self, whose: &Identity) -> Option<Contents<Arc<Piece>>> {
        let shelf = self.shelves.remove(whose)?;
        self.left += shelf.known.bytes();
        Some(shelf.known)
    }

    fn leave(&mut self, whose: &Identity, known: Contents<Arc<Piece>>) {
        self.take(whose);
        if known.bytes() > 0 {
            self.left -= known.bytes();
            self.clock += 1;
            let left_at = self.clock;
            self.shelves.insert(whose.clone(), Shelf { known, left_at });
        }
    }
}

impl ContentMemory {
    /// So many bytes.
    #[must_use]
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(MemoryState {
                left: bytes,
                shelves: HashMap::new(),
                clock: 0,
            }),
        })
    }

    /// What a new session may keep: half of what no session has, so that there is some for the next, and at least what
    /// its client left; that it has already.
    #[must_use]
    pub fn grant(self: &Arc<Self>, whose: Option<&Identity>) -> SessionContents {
        let mut state = self.state.lock();
        let known = whose.and_then(|whose| state.take(whose));
        let known = known.unwrap_or_else(|| Contents::new(0));
        let on_shelves: u64 = state
            .shelves
            .values()
            .map(|shelf| shelf.known.bytes())
            .sum();
        let granted = ((state.left + on_shelves) / 2).max(known.bytes());
        let granted = if granted < GRANT_MIN { 0 } else { granted };
        state.make_room(granted);
        state.left -= granted;
        drop(state);
        SessionContents {
            known: known.rebound(granted, CONTENTS_TOLD_MAX, |piece| piece.0.get().is_some()),
            granted,
            whose: whose.cloned(),
            memory: self.clone(),
        }
    }
}

/// What one session's client has had kept.
#[derive(Debug)]
pub struct SessionContents {
    known: Contents<Arc<Piece>>,
    granted: u64,
    whose: Option<Identity>,
    memory: Arc<ContentMemory>,
}

impl Drop for SessionContents {
    fn drop(&mut self) {
        let known = mem::replace(&mut self.known, Contents::new(0));
        let mut state = self.memory.state.lock();
        state.left += self.granted;
        match &self.whose {
            Some(whose) => state.leave(whose, known),
            None => drop(known),
        }
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

    /// Those that are there, first the one whose use is longest ago.
    #[must_use]
    pub fn pieces(&self) -> Vec<ContentPiece> {
        let piece = |(hash, len, _): (&ContentHash, u64, _)| ContentPiece {
            hash: *hash,
            len: len as u32,
        };
        self.known.iter().map(piece).collect()
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
        let mut first = memory.grant(None);
        let second = memory.grant(None);
        assert_eq!((first.granted(), second.granted()), (2 << 20, 1 << 20));
        assert_eq!(memory.grant(None).granted(), 0);
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
        assert_eq!(memory.grant(None).granted(), 2 << 20);
    }

    fn keep(contents: &mut SessionContents, fill: u8) {
        let piece = vec![fill; 1 << 20];
        let keeping = contents.keep(hash(&piece), 1 << 20).unwrap();
        keeping.fill(piece).unwrap();
    }

    fn fills(contents: &SessionContents) -> Vec<u8> {
        let fill =
            |hash: ContentHash| (0..9).find(|fill| self::hash(&vec![*fill; 1 << 20]) == hash);
        contents
            .pieces()
            .iter()
            .map(|piece| fill(piece.hash).unwrap())
            .collect()
    }

    // Goal: content is kept for a client's next session, for no other client, and not for a client without an identity.
    // Method: sessions of two clients and of none, one after the other, of two at once, and one whose last piece never came.
    #[test]
    fn a_client_finds_what_it_left_and_nobody_elses() {
        let (ann, bob) = (Identity::of_key("ann"), Identity::of_key("bob"));
        let memory = ContentMemory::new(16 << 20);
        let mut first = memory.grant(Some(&ann));
        (1..4).for_each(|fill| keep(&mut first, fill));
        let _ = first.keep([0; 32], 1 << 20).unwrap();
        let at_once = memory.grant(Some(&ann));
        assert_eq!(fills(&at_once), [0; 0]);
        drop(at_once);
        drop(first);
        for other in [Some(&bob), None] {
            let mut session = memory.grant(other);
            assert_eq!(fills(&session), [0; 0]);
            assert!(session.held(&hash(&vec![1; 1 << 20]), 1 << 20).is_err());
            keep(&mut session, 7);
        }
        let mut again = memory.grant(Some(&ann));
        assert_eq!(fills(&again), [1, 2, 3]);
        let held = again.held(&hash(&vec![1; 1 << 20]), 1 << 20).unwrap();
        assert_eq!(read(held).unwrap(), vec![1; 1 << 20]);
        drop(again);
        assert_eq!(fills(&memory.grant(Some(&ann))), [2, 3, 1]);
        assert_eq!(fills(&memory.grant(Some(&bob))), [7]);
        let mut cleared = memory.grant(Some(&ann));
        cleared.clear();
        drop(cleared);
        assert_eq!(fills(&memory.grant(Some(&ann))), [0; 0]);
    }

    // Goal: what sessions left takes no room from those that go on. Method: two clients leave all they may, a third comes.
    #[test]
    fn what_was_left_longest_ago_makes_room() {
        let names = ["ann", "bob", "eve"].map(Identity::of_key);
        let memory = ContentMemory::new(8 << 20);
        for (name, fill) in names.iter().zip([1, 3]) {
            let mut session = memory.grant(Some(name));
            assert_eq!(session.granted(), 4 << 20);
            (fill..fill + 4).for_each(|fill| keep(&mut session, fill));
        }
        let third = memory.grant(Some(&names[2]));
        assert_eq!(third.granted(), 4 << 20);
        let second = memory.grant(Some(&names[1]));
        assert_eq!(fills(&second), [3, 4, 5, 6]);
        assert_eq!(fills(&memory.grant(Some(&names[0]))), [0; 0]);
        assert_eq!(memory.grant(None).granted(), 0);
        drop((second, third));
        assert_eq!(memory.state.lock().left, 4 << 20);
    }

    #[test]
    fn bytes_that_are_not_what_their_hash_says_are_not_kept() {
        let mut contents = ContentMemory::new(8 << 20).grant(None);
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
