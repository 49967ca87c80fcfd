//! Four neighbouring cold pages packed as one: text gains a tenth to a fifth by a window of 16 KiB instead of 4.
//!
//! A packed cluster is cut into four pieces of about one length, each an object of one of the
//! four slots. So it needs no size classes of its own, and a piece can move like any object. Reading one page unpacks
//! four; the first write to one dissolves the cluster.

use narrows_chains::PAGE;
use narrows_codecs::zstd::Zstd;
use narrows_core::{Codec, DecodeError, Level, Workspace};

/// Pages of a cluster: a group of slots.
pub(crate) const PAGES: usize = 4;
/// Bytes of a cluster.
pub(crate) const LEN: usize = PAGES * PAGE;
/// zstd's level. It runs in the background on pages nobody asks for; higher ones gain under 1 % on 16 KiB.
const LEVEL: Level = Level(6);

/// Scratch memory for clusters.
#[derive(Debug)]
pub(crate) struct Bundler {
    workspace: Workspace,
    /// The four pages.
    pub(crate) raw: Box<[u8; LEN]>,
    /// The four pieces.
    pub(crate) packed: Vec<u8>,
}

impl Default for Bundler {
    fn default() -> Self {
        Self { workspace: Workspace::default(), raw: Box::new([0; LEN]), packed: Vec::with_capacity(LEN) }
    }
}

impl Bundler {
    /// Packs `raw` into `packed` if that takes at most `len_max` bytes. Says whether it did.
    pub(crate) fn pack(&mut self, len_max: usize) -> bool {
        self.packed.resize(len_max.min(LEN - 1), 0);
        let packed = Zstd.pack(&self.raw[..], LEVEL, &[], &mut self.packed, &mut self.workspace);
        self.packed.truncate(packed.unwrap_or(0));
        packed.is_some()
    }

    /// Unpacks `packed` into `raw`.
    pub(crate) fn unpack(&mut self) -> Result<(), DecodeError> {
        Zstd.unpack(&self.packed, &[], &mut self.raw[..], &mut self.workspace)
    }

    /// One of the four pages.
    pub(crate) fn page(&self, at: usize) -> &[u8; PAGE] {
        self.raw[at * PAGE..].first_chunk().expect("a cluster is four pages")
    }

    /// The pieces. None is empty: a zstd frame has more bytes than there are pieces.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let cut = |piece| self.packed.len() * piece / PAGES;
        (0..PAGES).map(move |piece| &self.packed[cut(piece)..cut(piece + 1)])
    }
}
