//! What the server keeps of copies that were sent, so that they are not sent again.
//!
//! Long copies to plain ranges of the device go in pieces. A piece that the server keeps is named by its hash instead
//! of being sent. The list here is that of the server ([`narrows_gpu_wire::Contents`]): both change it by the same
//! messages, so nothing is asked. A piece leaves the list only when all work that names it is known to be done, and is
//! used by a stream other than the one that it came with only when it is known to have come; so the server never waits.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use narrows_gpu_wire::{CONTENT_LEN_MAX, CONTENT_LEN_MIN, ContentHash, ContentPiece};
use parking_lot::{Mutex, MutexGuard};

use crate::ffi::Answer;

/// Sent at a time where hashing does not pay, in bytes.
const PLAIN_LEN: u64 = 8 * CONTENT_LEN_MAX as u64;
/// Shorter copies are not looked at, in bytes.
pub(crate) const COPY_LEN_MIN: u64 = 256 << 10;
/// What hashing may cost while nothing is found: this part of the time for which a link to another host is full, when
/// processors have time, and this part of the time that sending takes otherwise.
const SHARE_OF_LINK: f64 = 1.0 / 8.0;
const SHARE: f64 = 1.0 / 32.0;
/// A piece costs so many times what hashing it costs here: the server hashes it, too, and copies it.
const COST: i64 = 3;
/// What it may cost before anything is known, in nanoseconds: some hundreds of megabytes.
const ADVANCE_NS: i64 = 100_000_000;
/// As much as may be put by for later.
const BALANCE_NS_MAX: i64 = 2_000_000_000;

/// How the bytes of a piece get to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// They are sent.
    Sent,
    /// They are sent and kept there.
    Kept,
    /// They are there.
    Held,
}

/// A piece that a stream copies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) hash: ContentHash,
    pub(crate) len: u64,
    pub(crate) stream: u64,
}

/// The list, and whether looking at it pays.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// What the server keeps for this session; 0 where nothing is kept.
    bytes_max: AtomicU64,
    off: AtomicBool,
    state: Mutex<State>,
    account: Mutex<Account>,
    /// Bytes that were not sent.
    pub(crate) saved: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    known: Option<narrows_gpu_wire::Contents<Uses>>,
    /// Counts messages that name pieces.
    count: u64,
    /// Up to which of them the device has done: all streams, and by stream.
    done_all: u64,
    done: HashMap<u64, u64>,
}

/// Streams that were given a piece, and the last message that did.
#[derive(Debug)]
struct Uses {
    came: (u64, u64),
    last: Vec<(u64, u64)>,
}

impl Uses {
    /// Of a piece that came in an earlier session: before the first message of this one.
    fn before() -> Self {
        Self {
            came: (0, 0),
            last: Vec::new(),
        }
    }
}

impl State {
    fn is_done(&self, (stream, count): (u64, u64)) -> bool {
        count <= self.done_all || self.done.get(&stream).is_some_and(|done| count <= *done)
    }

    fn way(&self, piece: &Piece) -> Way {
        let Some(known) = &self.known else {
            return Way::Sent;
        };
        match known.get(&piece.hash, piece.len) {
            Some(uses) if uses.came.0 == piece.stream || self.is_done(uses.came) => Way::Held,
            None if known.takes(piece.len) && !known.has(&piece.hash) => {
                let mut leaving = known.leaving(piece.len);
                let free = leaving.all(|uses| uses.last.iter().all(|last| self.is_done(*last)));
                if free { Way::Kept } else { Way::Sent }
            }
            _ => Way::Sent,
        }
    }

    fn note(&mut self, piece: &Piece, way: Way) {
        self.count += 1;
        let now = (piece.stream, self.count);
        let Some(known) = &mut self.known else { return };
        match way {
            Way::Sent => {}
            Way::Kept => {
                let uses = Uses {
                    came: now,
                    last: vec![now],
                };
                known.add(piece.hash, piece.len, uses);
            }
            Way::Held => {
                if let Some(uses) = known.use_now(&piece.hash, piece.len) {
                    uses.last.retain(|(stream, _)| *stream != piece.stream);
                    uses.last.push(now);
                }
            }
        }
    }
}

impl Contents {
    /// The server keeps so many bytes, and has these pieces already. False where it cannot have them.
    pub(crate) fn open(&self, bytes_max: u64, pieces: &[ContentPiece]) -> bool {
        let mut known = narrows_gpu_wire::Contents::new(bytes_max);
        for ContentPiece { hash, len } in pieces {
            let len = u64::from(*len);
            if !known.takes(len) || known.has(hash) || known.leaving(len).next().is_some() {
                return false;
            }
            known.add(*hash, len, Uses::before());
        }
        self.state.lock().known = Some(known);
        self.bytes_max.store(bytes_max, Relaxed);
        true
    }

    /// Bytes to send at a time where hashing does not pay, before it is asked again: few before it is known what they
    /// take, many afterwards.
    pub(crate) fn plain_len(&self) -> u64 {
        let known = self.account.lock().ns_a_byte > 0.0;
        if known {
            PLAIN_LEN
        } else {
            CONTENT_LEN_MAX as u64
        }
    }

    /// Everything is sent from here on.
    pub(crate) fn turn_off(&self) {
        self.off.store(true, Relaxed);
    }

    /// Whether the server keeps anything, and may.
    pub(crate) fn is_on(&self) -> bool {
        !self.off.load(Relaxed) && self.bytes_max.load(Relaxed) >= CONTENT_LEN_MIN as u64
    }

    /// Whether the next piece of a copy is to be hashed.
    pub(crate) fn is_worth_it(&self) -> bool {
        self.is_on() && self.account.lock().balance_ns > 0
    }

    /// Finds a way for a piece and has `announce` send its message, in the order in which the list changes.
    pub(crate) fn place(&self, piece: &Piece, announce: impl FnOnce(Way) -> Answer) -> Answer<Way> {
        let mut state = self.state.lock();
        if state.known.is_none() {
            let bytes_max = self.bytes_max.load(Relaxed);
            state.known = Some(narrows_gpu_wire::Contents::new(bytes_max));
        }
        let way = state.way(piece);
        announce(way)?;
        state.note(piece, way);
        if way == Way::Held {
            self.saved.fetch_add(piece.len, Relaxed);
        }
        Ok(way)
    }

    /// Where work stands now, for [`Contents::done`].
    pub(crate) fn mark(&self) -> u64 {
        self.state.lock().count
    }

    /// All work of a stream up to a mark is done; of all streams without one.
    pub(crate) fn done(&self, stream: Option<u64>, mark: u64) {
        let mut state = self.state.lock();
        match stream {
            None => state.done_all = state.done_all.max(mark),
            Some(stream) if mark > state.done_all => {
                let done = state.done.entry(stream).or_default();
                *done = mark.max(*done);
            }
            Some(stream) => drop(state.done.remove(&stream)),
        }
    }

    /// A stream is gone.
    pub(crate) fn forget_stream(&self, stream: u64) {
        self.state.lock().done.remove(&stream);
    }

    /// The server is about to forget everything: nothing may be named until it has, which is when the guard goes.
    pub(crate) fn forget(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.known = None;
        state
    }

    /// Notes what hashing took.
    pub(crate) fn hashed(&self, ns: u64) {
        self.account.lock().pay(ns);
    }

    /// Notes that `len` bytes were sent, what that took, and what it takes a link that both ends do not share. In
    /// nanoseconds.
    pub(crate) fn sent(&self, len: u64, ns: f64, link_ns: f64) {
        self.account.lock().sent(len, ns, link_ns);
    }

    /// Notes that so many bytes were not sent.
    pub(crate) fn found(&self, len: u64) {
        self.account.lock().found(len);
    }
}

/// Whether hashing pays: it may cost a small part of the time that sending takes, and what it has saved. On a link that
/// takes bytes nearly as fast as they are hashed, few are; on one that does not, all are.
#[derive(Debug)]
struct Account {
    balance_ns: i64,
    /// What a byte took to send of late, in nanoseconds.
    ns_a_byte: f64,
}

impl Default for Account {
    fn default() -> Self {
        Self {
            balance_ns: ADVANCE_NS,
            ns_a_byte: 0.0,
        }
    }
}

impl Account {
    fn pay(&mut self, ns: u64) {
        let ns = i64::try_from(ns).unwrap_or(i64::MAX).min(BALANCE_NS_MAX);
        self.balance_ns -= COST * ns;
    }

    fn earn(&mut self, ns: f64) {
        self.balance_ns = (self.balance_ns + ns as i64).min(BALANCE_NS_MAX);
    }

    fn sent(&mut self, len: u64, ns: f64, link_ns: f64) {
        // Buffers hide for a while what the link takes.
        let now = ns.max(link_ns) / len.max(1) as f64;
        let known = self.ns_a_byte > 0.0;
        self.ns_a_byte = if known {
            0.75 * self.ns_a_byte + 0.25 * now
        } else {
            now
        };
        self.earn((ns * SHARE).max(link_ns * SHARE_OF_LINK));
    }

    fn found(&mut self, len: u64) {
        self.earn(self.ns_a_byte * len as f64);
    }
}

/// What names a piece, and the processor time that it took, in nanoseconds.
pub(crate) fn hash_of<'a>(parts: impl Iterator<Item = &'a [u8]>) -> (ContentHash, u64) {
    let began = thread_ns();
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    (
        *hasher.finalize().as_bytes(),
        thread_ns().saturating_sub(began),
    )
}

/// Processor time of this thread: what others do meanwhile is not hashing's cost.
fn thread_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one value of its type.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = CONTENT_LEN_MIN as u64;

    fn piece(name: u8, stream: u64) -> Piece {
        Piece {
            hash: [name; 32],
            len: LEN,
            stream,
        }
    }

    fn place(contents: &Contents, name: u8, stream: u64) -> Way {
        contents.place(&piece(name, stream), |_| Ok(())).unwrap()
    }

    // Goal: nothing is named that may not be there when it is used. Method: two streams, room for two pieces.
    #[test]
    fn pieces_are_named_when_they_are_surely_there() {
        let contents = Contents::default();
        contents.open(2 * LEN, &[]);
        assert_eq!(place(&contents, 1, 20), Way::Kept);
        assert_eq!(place(&contents, 1, 20), Way::Held, "in the stream's order");
        assert_eq!(
            place(&contents, 1, 30),
            Way::Sent,
            "it may still be on its way"
        );
        assert_eq!(place(&contents, 2, 30), Way::Kept);
        assert_eq!(
            place(&contents, 3, 30),
            Way::Sent,
            "the first may still be read"
        );
        contents.done(Some(20), contents.mark());
        assert_eq!(place(&contents, 1, 30), Way::Held);
        assert_eq!(
            place(&contents, 3, 20),
            Way::Sent,
            "the second is older now, and not done"
        );
        contents.done(None, contents.mark());
        assert_eq!(place(&contents, 3, 20), Way::Kept);
        assert_eq!(place(&contents, 1, 30), Way::Held);
        assert_eq!(
            place(&contents, 2, 30),
            Way::Sent,
            "the third came just now"
        );
        contents.done(None, contents.mark());
        assert_eq!(place(&contents, 2, 30), Way::Kept);
        drop(contents.forget());
        assert_eq!(place(&contents, 2, 30), Way::Kept);
        assert_eq!(contents.saved.load(Relaxed), 3 * LEN);
    }

    // Goal: what an earlier session left is named from the start, in every stream, and goes like the rest. Method: room
    // for two pieces, of which the server has two.
    #[test]
    fn pieces_of_an_earlier_session_are_there() {
        let contents = Contents::default();
        let told = |name, len| ContentPiece {
            hash: [name; 32],
            len,
        };
        let len = LEN as u32;
        assert!(contents.open(2 * LEN, &[told(1, len), told(2, len)]));
        assert_eq!(place(&contents, 2, 20), Way::Held);
        assert_eq!(place(&contents, 2, 30), Way::Held);
        assert_eq!(
            place(&contents, 3, 30),
            Way::Kept,
            "the first is not in use"
        );
        assert_eq!(place(&contents, 1, 30), Way::Sent, "the others are");
        for lie in [
            &[told(1, len), told(1, len)][..],
            &[told(1, 1)],
            &[told(1, len), told(2, len), told(3, len)],
        ] {
            assert!(!contents.open(2 * LEN, lie), "{lie:?}");
        }
    }

    // Goal: hashing costs little where nothing is found, and goes on where it pays. Method: memory four times as slow as
    // hashing, a link of 1 Gbit/s, and memory with finds.
    #[test]
    fn hashing_stays_within_what_it_may_cost() {
        let share = |ns_a_mib: f64, link_ns: f64, finds: bool| {
            let contents = Contents::default();
            contents.open(1 << 30, &[]);
            contents.sent(1 << 20, ns_a_mib, link_ns);
            let (mut hashed, mut sent) = (0, 0.0);
            for _ in 0..10_000 {
                let worth = contents.is_worth_it();
                if worth {
                    contents.hashed(250_000);
                    hashed += 1;
                }
                if worth && finds {
                    contents.found(1 << 20);
                } else {
                    contents.sent(1 << 20, ns_a_mib, link_ns);
                    sent += ns_a_mib;
                }
            }
            (hashed, sent)
        };
        let (hashed, sent) = share(1e6, 0.0, false);
        let cost = f64::from(hashed) * 3.0 * 250_000.0;
        assert!(
            cost <= sent / 32.0 + 101e6 && cost >= sent / 32.0,
            "{hashed}"
        );
        assert_eq!(share(1e6, 8.4e6, false).0, 10_000);
        assert_eq!(share(1e6, 0.0, true).0, 10_000);
    }

    #[test]
    fn nothing_is_hashed_where_nothing_is_kept() {
        let contents = Contents::default();
        assert!(!contents.is_worth_it());
        contents.open(1 << 20, &[]);
        assert!(contents.is_worth_it());
        contents.turn_off();
        assert!(!contents.is_worth_it());
        let (hash, _) = hash_of([&b"ab"[..], b"c"].into_iter());
        assert_eq!(hash, *blake3::hash(b"abc").as_bytes());
    }
}
