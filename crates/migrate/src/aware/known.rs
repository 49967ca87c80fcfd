//! What was sent last of each page: a keyed hash of 128 bits, and in which round.
//!
//! Why keyed: two pages that collide would corrupt a guest, and what a guest holds is chosen by whoever uses it. The
//! key is random, drawn for each migration, and leaves no trace on the wire. XXH3-128 is not proven against somebody
//! who sees hashes; nobody does. By chance, 2^40 pages collide with a probability of about 2^-49.
//!
//! Memory: 24 bytes for a page of 4 KiB, in tables of 512, up to [`TABLES_MAX`]; pages beyond are not known, and are
//! sent in full.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_128_with_secret;

use super::{Key, PAGE_LEN};

/// 384 MiB of tables: those of a guest of 64 GiB.
pub const TABLES_MAX: usize = 1 << 15;

const PAGES_OF_TABLE: u64 = 512;

/// In place of a hash: what the destination holds is not known.
const UNSURE: [u64; 2] = [0; 2];

/// A page's hash.
pub type Hash = u128;

/// Hashes pages under a secret of its own.
pub struct Hasher([u8; 192]);

impl std::fmt::Debug for Hasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hasher(..)")
    }
}

impl Default for Hasher {
    fn default() -> Self {
        let mut secret = [0; 192];
        getrandom::fill(&mut secret).expect("the system has random numbers");
        Self(secret)
    }
}

impl Hasher {
    /// Hash of a page.
    #[must_use]
    pub fn hash(&self, page: &[u8]) -> Hash {
        xxh3_128_with_secret(page, &self.0)
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    hash: [u64; 2],
    /// Round of the packet, from 1; 0 where nothing was sent.
    round: u32,
    /// 1 and the position of the version that was kept last; 0 where none was.
    kept: u32,
}

/// The last version sent of each page.
#[derive(Debug, Default)]
pub struct Known(HashMap<Key, Box<[Entry; PAGES_OF_TABLE as usize]>>);

/// What is known of a page that is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Nothing.
    Never,
    /// Another version, in an earlier round.
    Other,
    /// Exactly this, in an earlier round.
    Same,
    /// Something in this round or, by another lane, in a later one.
    Later,
}

impl Known {
    /// Notes that a page of this hash is sent in `round` (from 0), and says what is known of it from before.
    pub fn note(&mut self, (block, offset): Key, hash: Hash, round: u32) -> Seen {
        let page = offset / PAGE_LEN as u64;
        let at = (block, page / PAGES_OF_TABLE);
        if !self.0.contains_key(&at) && self.0.len() >= TABLES_MAX {
            return Seen::Never;
        }
        let table = self
            .0
            .entry(at)
            .or_insert_with(|| Box::new([Entry::default(); PAGES_OF_TABLE as usize]));
        let entry = &mut table[(page % PAGES_OF_TABLE) as usize];
        let hash = [hash as u64, (hash >> 64) as u64];
        let (round, before) = (round.saturating_add(1), *entry);
        if before.round > round {
            return Seen::Later;
        }
        // Twice in a round by two ways: whichever comes last, we cannot tell. Nothing is the same as this.
        let sure = before.round < round || before.hash == hash;
        *entry = Entry {
            hash: if sure { hash } else { UNSURE },
            round,
            kept: before.kept,
        };
        match before.round {
            0 => Seen::Never,
            held if held == round => Seen::Later,
            _ if before.hash == hash && hash != UNSURE => Seen::Same,
            _ => Seen::Other,
        }
    }

    /// Position of the version that was kept last.
    #[must_use]
    pub fn kept(&self, (block, offset): Key) -> Option<u32> {
        let page = offset / PAGE_LEN as u64;
        let table = self.0.get(&(block, page / PAGES_OF_TABLE))?;
        table[(page % PAGES_OF_TABLE) as usize].kept.checked_sub(1)
    }

    /// Notes where a version of a page is kept.
    pub fn keep(&mut self, (block, offset): Key, position: u32) {
        let page = offset / PAGE_LEN as u64;
        if let Some(table) = self.0.get_mut(&(block, page / PAGES_OF_TABLE)) {
            table[(page % PAGES_OF_TABLE) as usize].kept = position + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_earlier_round_makes_a_page_known() {
        let mut known = Known::default();
        let page = (3, 0x7000);
        assert_eq!(known.note(page, 1, 0), Seen::Never);
        assert_eq!(known.note(page, 1, 0), Seen::Later, "twice in a round");
        assert_eq!(known.note(page, 1, 1), Seen::Same);
        assert_eq!(known.note(page, 2, 4), Seen::Other);
        // A lane that lags sends an older version: what the destination ends with is the newer one.
        assert_eq!(known.note(page, 1, 3), Seen::Later);
        assert_eq!(known.note(page, 2, 5), Seen::Same);
        assert_eq!(known.note((4, 0x7000), 2, 6), Seen::Never);
        assert_eq!(known.note((4, 0x7000), 3, 6), Seen::Later);
        assert_eq!(
            known.note((4, 0x7000), 3, 7),
            Seen::Other,
            "which of two was last is not known"
        );
    }

    #[test]
    fn two_hashers_disagree_and_one_agrees_with_itself() {
        let (one, two) = (Hasher::default(), Hasher::default());
        let page = [7; PAGE_LEN];
        assert_eq!(one.hash(&page), one.hash(&page));
        assert_ne!(one.hash(&page), two.hash(&page));
    }
}
