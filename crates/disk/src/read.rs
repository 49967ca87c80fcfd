//! Reads blocks: entries to places, places to packed bytes, packed bytes to blocks.
//!
//! Readers take no part in the log's lock. Between looking up an entry and reading its bytes the
//! block may be overwritten and the segment freed, discarded and filled anew; then the checksum,
//! which is bound to the block's number, does not fit, and the entry is looked up again. A unit
//! that does fit is one the block had while the call ran. So an error is reported only if the entry
//! stayed the same.

use narrows_core::Registry;

use crate::{
    backing::BackingError,
    error::DiskError,
    format::{
        BLOCK,
        entry::{Entry, Place},
        unit::{Tag, UNIT_MAX, Unit},
    },
    log::Log,
    pack::Tools,
    recovery::{backing_failed, damaged},
};

/// Memory of one thread for reading.
#[derive(Debug, Default)]
pub(crate) struct ReadScratch {
    pub(crate) tools: Tools,
    pub(crate) entries: Vec<Entry>,
    packed: Vec<u8>,
    raw: Vec<u8>,
    pieces: Vec<Piece>,
}

/// Consecutive blocks of the request that are consecutive blocks of one unit.
#[derive(Debug, Clone, Copy)]
struct Piece {
    place: Place,
    /// First block's index in the request.
    at: usize,
    /// First block's index in the unit.
    index: usize,
    count: usize,
    /// Blocks of the unit.
    blocks: usize,
}

/// Where reading failed, and why.
#[derive(Debug)]
pub(crate) struct ReadFailure {
    place: Place,
    reason: Reason,
}

#[derive(Debug)]
enum Reason {
    Backing(BackingError),
    Damage(String),
}

/// What reads go through.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub(crate) log: &'a Log,
    pub(crate) registry: &'a Registry,
}

impl Reader<'_> {
    /// Fills `out` with the blocks from `first`.
    pub(crate) fn blocks(
        &self,
        first: u64,
        out: &mut [u8],
        scratch: &mut ReadScratch,
    ) -> Result<(), DiskError> {
        let count = out.len() / BLOCK;
        let mut entries = std::mem::take(&mut scratch.entries);
        let mut before = Vec::new();
        let result = loop {
            entries.clear();
            self.log.map.get(first, count, &mut entries);
            let Err(failure) = self.entries(first, &entries, out, scratch) else {
                break Ok(());
            };
            if entries == before {
                break Err(self.error(failure));
            }
            before.clone_from(&entries);
        };
        scratch.entries = entries;
        result
    }

    fn error(&self, failure: ReadFailure) -> DiskError {
        match failure.reason {
            Reason::Backing(source) => backing_failed(&*self.log.backing, source),
            Reason::Damage(what) => damaged(what, failure.place.segment, failure.place.offset()),
        }
    }

    /// Fills `out` with the blocks from `first`, which are where `entries` say.
    pub(crate) fn entries(
        &self,
        first: u64,
        entries: &[Entry],
        out: &mut [u8],
        scratch: &mut ReadScratch,
    ) -> Result<(), ReadFailure> {
        let mut pieces = std::mem::take(&mut scratch.pieces);
        split(entries, out, &mut pieces);
        pieces.sort_unstable_by_key(|piece| (piece.place, piece.index));
        let mut result = Ok(());
        let mut rest = pieces.as_slice();
        while !rest.is_empty() && result.is_ok() {
            let run = run_len(rest);
            result = self.run(first, &rest[..run], out, scratch);
            rest = &rest[run..];
        }
        scratch.pieces = pieces;
        result
    }

    /// Reads units that lie one behind the other in one go.
    fn run(
        &self,
        first: u64,
        run: &[Piece],
        out: &mut [u8],
        scratch: &mut ReadScratch,
    ) -> Result<(), ReadFailure> {
        let (head, last) = (run[0].place, run[run.len() - 1].place);
        let len = (last.offset() - head.offset()) as usize + last.bytes();
        let ReadScratch {
            packed, raw, tools, ..
        } = scratch;
        let failure = |place, what| ReadFailure {
            place,
            reason: Reason::Damage(what),
        };
        self.log
            .fetch(head.segment, head.offset(), packed, len)
            .map_err(|error| ReadFailure {
                place: head,
                reason: Reason::Backing(error),
            })?;
        let mut unpacked: Option<Place> = None;
        for piece in run {
            let whole = piece.count == piece.blocks;
            let target = &mut out[piece.at * BLOCK..(piece.at + piece.count) * BLOCK];
            if unpacked != Some(piece.place) {
                let begin = (piece.place.offset() - head.offset()) as usize;
                let tag = Tag::Block(first + piece.at as u64 - piece.index as u64);
                let unit = Unit::parse(&packed[begin..begin + piece.place.bytes()], tag);
                #[cfg(test)]
                let unit = crate::tests::unchecked(self.log.sabotage, unit, &packed[begin..]);
                let unit = unit.map_err(|error| failure(piece.place, error.to_string()))?;
                if unit.blocks != piece.blocks {
                    let reason = "a unit of another length".to_owned();
                    return Err(failure(piece.place, reason));
                }
                raw.resize(UNIT_MAX, 0);
                let to = if whole {
                    &mut *target
                } else {
                    &mut raw[..unit.blocks * BLOCK]
                };
                tools
                    .unpack(&unit, self.registry, to)
                    .map_err(|error| failure(piece.place, error.to_string()))?;
                if whole {
                    continue;
                }
                unpacked = Some(piece.place);
            }
            target.copy_from_slice(&raw[piece.index * BLOCK..(piece.index + piece.count) * BLOCK]);
        }
        Ok(())
    }
}

/// Cuts a request into pieces, and fills with zeroes what has no data.
fn split(entries: &[Entry], out: &mut [u8], pieces: &mut Vec<Piece>) {
    pieces.clear();
    let mut at = 0;
    while at < entries.len() {
        let Some(place) = entries[at].place() else {
            out[at * BLOCK..(at + 1) * BLOCK].fill(0);
            at += 1;
            continue;
        };
        let (index, blocks) = (entries[at].index(), entries[at].blocks());
        let follows = |n: &usize| {
            index + n < blocks
                && entries.get(at + n) == Some(&Entry::data(place, index + n, blocks))
        };
        let count = 1 + (1..blocks).take_while(|n| follows(n)).count();
        pieces.push(Piece {
            place,
            at,
            index,
            count,
            blocks,
        });
        at += count;
    }
}

/// How many pieces from the first are of units that lie one behind the other, up to a bound.
fn run_len(pieces: &[Piece]) -> usize {
    let begin = pieces[0].place.offset() as usize;
    let follows = |pair: &&[Piece]| {
        let (a, b) = (pair[0].place, pair[1].place);
        let next = a.segment == b.segment && a.granule + u32::from(a.granules) == b.granule;
        (a == b || next) && b.offset() as usize + b.bytes() - begin <= RUN_MAX
    };
    1 + pieces.windows(2).take_while(follows).count()
}

/// Bytes read in one go, at most.
const RUN_MAX: usize = 1 << 20;
