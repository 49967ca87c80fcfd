//! Four neighbouring cold pages packed as one: text gains a tenth to a fifth by a window of 16 KiB instead of 4.
//!
//! A cluster's first byte is the number of the dictionary it was packed with, or 0. A packed cluster is cut into four
//! pieces of about one length, each an object of one of the four slots. So it needs no store of its own, and a piece
//! can move like any object. Reading one page unpacks four; the first write to one dissolves the cluster.

use narrows_chains::{
    PAGE,
    lzt::dictionary::{self, Dictionary},
};
use narrows_codecs::zstd::Zstd;
use narrows_core::{Codec, Level, Workspace};

use crate::{dictionary_cache::Number, page::LoadError};

/// Pages of a cluster: a group of slots.
pub(crate) const PAGES: usize = 4;
/// Bytes of a cluster.
pub(crate) const LEN: usize = PAGES * PAGE;
/// zstd's level. It runs in the background on pages nobody asks for; higher ones gain under 1 % on 16 KiB.
const LEVEL: Level = Level(6);

/// Scratch memory for clusters.
#[derive(Debug)]
pub(crate) struct Bundler {
    pub(crate) workspace: Workspace,
    /// The four pages.
    pub(crate) raw: Box<[u8; LEN]>,
    /// The number of the dictionary and the four pages, packed.
    pub(crate) packed: Vec<u8>,
}

impl Default for Bundler {
    fn default() -> Self {
        Self {
            workspace: Workspace::default(),
            raw: Box::new([0; LEN]),
            packed: Vec::with_capacity(LEN),
        }
    }
}

impl Bundler {
    /// Packs `raw` into `packed`, with a dictionary if there is one, if that takes at most `len_max` bytes. Says
    /// whether it did.
    pub(crate) fn pack(
        &mut self,
        len_max: usize,
        dictionary: Option<(Number, &mut dictionary::PagePacker)>,
    ) -> bool {
        self.packed.resize(len_max.clamp(1, LEN - 1), 0);
        let Self {
            raw,
            packed,
            workspace,
            ..
        } = self;
        let (number, room) = packed.split_first_mut().expect("a byte or more");
        let len = match dictionary {
            Some((of, packer)) => {
                *number = of;
                packer.pack(&raw[..], room)
            }
            None => {
                *number = 0;
                Zstd.pack(&raw[..], LEVEL, &[], room, workspace)
            }
        };
        self.packed.truncate(len.map_or(0, |len| 1 + len));
        len.is_some()
    }

    /// Unpacks a cluster into `raw`, with the `dictionary` that it names, if there is one.
    pub(crate) fn unpack(
        &mut self,
        packed: &[u8],
        dictionary: Option<&Dictionary>,
    ) -> Result<(), LoadError> {
        let Self { raw, workspace, .. } = self;
        let packed = packed.get(1..).unwrap_or(&[]);
        match dictionary {
            Some(dictionary) => dictionary.unpack(packed, &mut raw[..], workspace)?,
            None => Zstd.unpack(packed, &[], &mut raw[..], workspace)?,
        }
        Ok(())
    }

    /// One of the four pages.
    pub(crate) fn page(&self, at: usize) -> &[u8; PAGE] {
        self.raw[at * PAGE..]
            .first_chunk()
            .expect("a cluster is four pages")
    }

    /// The pieces. None is empty: a zstd frame has more bytes than there are pieces.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let cut = |piece| self.packed.len() * piece / PAGES;
        (0..PAGES).map(move |piece| &self.packed[cut(piece)..cut(piece + 1)])
    }
}

/// The number of the dictionary that a packed cluster needs, 0 if none.
pub(crate) fn number(packed: &[u8]) -> Number {
    packed.first().copied().unwrap_or(0)
}
