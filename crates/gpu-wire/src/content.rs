//! The pieces of copies that a server keeps so that they need not be sent again: a list of both sides.
//!
//! The client changes its list as it sends messages and the server as it reads them. Both go by the same rule, least
//! recently used out first, so the client knows what the server has without asking.

use std::collections::{BTreeMap, HashMap};

/// Pieces of copies begin at multiples of this from the copy's beginning, and none is longer. Bytes.
pub const CONTENT_LEN_MAX: usize = 1 << 20;
/// Shorter pieces are not kept, in bytes.
pub const CONTENT_LEN_MIN: usize = 64 << 10;
/// Most pieces that a session's server keeps.
pub const CONTENTS_MAX: usize = 1 << 16;
/// Most pieces of an earlier session that a session begins with: their names travel before anything else.
pub const CONTENTS_TOLD_MAX: usize = 1 << 12;

/// What names a piece: BLAKE3 of its bytes.
pub type ContentHash = [u8; 32];

/// Pieces by what names them, and the order in which they were used.
#[derive(Debug)]
pub struct Contents<T> {
    bytes_max: u64,
    bytes: u64,
    pieces: HashMap<ContentHash, Piece<T>>,
    /// By the time of the last use, which no two pieces share.
    order: BTreeMap<u64, ContentHash>,
    clock: u64,
}

#[derive(Debug)]
struct Piece<T> {
    len: u64,
    used: u64,
    value: T,
}

impl<T> Contents<T> {
    /// Of at most so many bytes.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            pieces: HashMap::new(),
            order: BTreeMap::new(),
            clock: 0,
        }
    }

    /// Bytes of all pieces.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a piece of this length may be added.
    #[must_use]
    pub fn takes(&self, len: u64) -> bool {
        (CONTENT_LEN_MIN as u64..=CONTENT_LEN_MAX as u64).contains(&len) && len <= self.bytes_max
    }

    /// A piece of this name and length, which does not count as a use.
    #[must_use]
    pub fn get(&self, hash: &ContentHash, len: u64) -> Option<&T> {
        let piece = self.pieces.get(hash)?;
        (piece.len == len).then_some(&piece.value)
    }

    /// Whether there is a piece of this name, of any length.
    #[must_use]
    pub fn has(&self, hash: &ContentHash) -> bool {
        self.pieces.contains_key(hash)
    }

    /// The piece of this name and length; now it is the one that was used last.
    pub fn use_now(&mut self, hash: &ContentHash, len: u64) -> Option<&mut T> {
        let piece = self.pieces.get_mut(hash).filter(|piece| piece.len == len)?;
        self.clock += 1;
        self.order.remove(&piece.used);
        self.order.insert(self.clock, *hash);
        piece.used = self.clock;
        Some(&mut piece.value)
    }

    /// What has to go before a piece of this length is added, first the one whose use is longest ago.
    pub fn leaving(&self, len: u64) -> impl Iterator<Item = &T> {
        let (mut bytes, mut count) = (self.bytes, self.pieces.len());
        self.order.values().map_while(move |hash| {
            let full = bytes + len > self.bytes_max || count >= CONTENTS_MAX;
            let piece = full.then(|| &self.pieces[hash])?;
            bytes -= piece.len;
            count -= 1;
            Some(&piece.value)
        })
    }

    /// Adds a piece that [`Contents::takes`] allows and that is not there, and lets go of those that have to.
    pub fn add(&mut self, hash: ContentHash, len: u64, value: T) {
        let many = self.leaving(len).count();
        for _ in 0..many {
            let gone = self.order.pop_first();
            if let Some(piece) = gone.and_then(|(_, hash)| self.pieces.remove(&hash)) {
                self.bytes -= piece.len;
            }
        }
        self.clock += 1;
        let used = self.clock;
        self.bytes += len;
        self.order.insert(used, hash);
        self.pieces.insert(hash, Piece { len, used, value });
    }

    /// All pieces, first the one whose use is longest ago.
    pub fn iter(&self) -> impl Iterator<Item = (&ContentHash, u64, &T)> {
        self.order.values().map(|hash| {
            let piece = &self.pieces[hash];
            (hash, piece.len, &piece.value)
        })
    }

    /// The same with another bound: those that `wanted` takes, of them the `count` that were used last.
    #[must_use]
    pub fn rebound(mut self, bytes_max: u64, count: usize, wanted: impl Fn(&T) -> bool) -> Self {
        let mut wanted: Vec<(ContentHash, u64)> = self
            .iter()
            .filter(|(_, len, value)| *len <= bytes_max && wanted(value))
            .map(|(hash, len, _)| (*hash, len))
            .collect();
        wanted.drain(..wanted.len().saturating_sub(count));
        let mut rebound = Self::new(bytes_max);
        for (hash, len) in wanted {
            if let Some(piece) = self.pieces.remove(&hash) {
                rebound.add(hash, len, piece.value);
            }
        }
        rebound
    }

    /// Lets go of all of them.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.order.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = CONTENT_LEN_MIN as u64;

    // Goal: both sides let go of the same pieces. Method: room for three; one is used again and outlives an older one.
    #[test]
    fn the_piece_whose_use_is_longest_ago_goes_first() {
        let mut contents = Contents::new(3 * LEN);
        for name in 0..3 {
            contents.add([name; 32], LEN, name);
        }
        assert_eq!(contents.use_now(&[0; 32], LEN), Some(&mut 0));
        assert_eq!(contents.leaving(LEN).collect::<Vec<_>>(), [&1]);
        contents.add([3; 32], LEN, 3);
        assert!(!contents.has(&[1; 32]) && contents.has(&[0; 32]));
        assert_eq!(contents.leaving(2 * LEN).collect::<Vec<_>>(), [&2, &0]);
        contents.add([4; 32], 2 * LEN, 4);
        assert_eq!(contents.bytes(), 3 * LEN);
        assert_eq!(contents.get(&[4; 32], LEN), None, "another length");
        contents.clear();
        assert_eq!((contents.bytes(), contents.leaving(LEN).count()), (0, 0));
    }

    // Goal: a later session begins with what was used last. Method: four pieces, one of them unwanted, other bounds.
    #[test]
    fn what_was_used_last_stays_under_another_bound() {
        let four = || {
            let mut contents = Contents::new(4 * LEN);
            (0..4).for_each(|name| contents.add([name; 32], LEN, name));
            contents.use_now(&[0; 32], LEN);
            contents
        };
        let names = |contents: Contents<u8>| contents.iter().map(|(hash, ..)| hash[0]).collect();
        let all: Vec<u8> = names(four().rebound(9 * LEN, 9, |_| true));
        assert_eq!(all, [1, 2, 3, 0]);
        let wanted: Vec<u8> = names(four().rebound(9 * LEN, 2, |name| *name != 3));
        assert_eq!(wanted, [2, 0]);
        let two: Vec<u8> = names(four().rebound(2 * LEN, 9, |_| true));
        assert_eq!(two, [3, 0]);
        assert_eq!(four().rebound(LEN - 1, 9, |_| true).bytes(), 0);
    }

    #[test]
    fn pieces_have_a_length_and_a_number() {
        let mut contents = Contents::new(u64::MAX);
        assert!(!contents.takes(LEN - 1) && contents.takes(LEN));
        assert!(!contents.takes(CONTENT_LEN_MAX as u64 + 1) && !Contents::<()>::new(9).takes(LEN));
        for number in 0..CONTENTS_MAX as u64 + 1 {
            let mut name = [0; 32];
            name[..8].copy_from_slice(&number.to_le_bytes());
            contents.add(name, LEN, ());
        }
        assert_eq!(contents.bytes(), CONTENTS_MAX as u64 * LEN);
    }
}
