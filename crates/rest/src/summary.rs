//! What is told of a file: sums, frames, losses.

use std::collections::BTreeMap;

use narrows_core::CodecId;

use crate::{Element, choose::CODECS};

/// What a file holds, in sum. Lengths in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Files that were appended to one another; 1 for a file that was written at once.
    pub files: u64,
    /// Content.
    pub content_len: u64,
    /// The file itself.
    pub packed_len: u64,
    /// Chunks, by the name of the codec that packed them.
    pub codecs: BTreeMap<&'static str, Share>,
    /// What the writer was told that the content is.
    pub element: Option<Element>,
    /// XXH3-64 of the content; of the last file where there are several.
    pub content_check: u64,
}

/// A codec's part of a file. Lengths in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Share {
    /// How many.
    pub chunks: u64,
    /// Before packing.
    pub raw_len: u64,
    /// Packed.
    pub packed_len: u64,
}

impl Summary {
    /// Chunks in all.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        self.codecs.values().map(|share| share.chunks).sum()
    }

    /// Content over file; 1 of nothing.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.content_len.max(1) as f64 / self.packed_len.max(1) as f64
    }

    pub(crate) fn count(&mut self, codec: CodecId, raw_len: u32, packed_len: u32) {
        let share = self.codecs.entry(name_of(codec)).or_default();
        share.chunks += 1;
        share.raw_len += u64::from(raw_len);
        share.packed_len += u64::from(packed_len);
    }
}

/// A codec's name; of one that is not known here, that.
pub(crate) fn name_of(codec: CodecId) -> &'static str {
    CODECS
        .by_id(codec)
        .map_or("unknown", |codec| codec.info().name)
}

/// A frame of a file. Lengths and places in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrameInfo {
    /// Where its chunk begins in the content.
    pub offset: u64,
    /// Content bytes.
    pub raw_len: u64,
    /// Where it begins in the file.
    pub at: u64,
    /// Its payload.
    pub packed_len: u64,
    /// What packed it.
    pub codec: &'static str,
}

/// Content that is lost. Lengths and places in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// Where it would begin in the content.
    pub offset: u64,
    /// Bytes of it: 0 where only the index or the file's end is damaged, `None` where nothing tells how many.
    pub len: Option<u64>,
    /// Where in the file the damage was noticed.
    pub at: u64,
    /// What was wrong there.
    pub what: &'static str,
}
