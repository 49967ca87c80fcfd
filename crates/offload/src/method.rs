//! What a block can be packed with, and by which backend.

use std::{ops::RangeInclusive, sync::Arc};

use narrows::UnknownCodec;
use narrows_core::{Codec, Level, Registry, Workspace, registry::Entry};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh64::xxh64;

/// A block format for which there is a file format that standard tools read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// DEFLATE; files are gzip's (RFC 1952).
    Deflate,
    /// zstd frames (RFC 8878).
    Zstd,
    /// LZ4 blocks; files are LZ4 frames.
    Lz4,
}

impl Method {
    /// What users type.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Deflate => "deflate",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
        }
    }

    /// How its files end.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Deflate => "gz",
            Self::Zstd => "zst",
            Self::Lz4 => "lz4",
        }
    }

    /// What its own command does when it is told nothing.
    #[must_use]
    pub fn level_default(self) -> i16 {
        match self {
            Self::Deflate => 6,
            Self::Zstd => 3,
            Self::Lz4 => 0,
        }
    }

    /// What its file keeps of a block's raw bytes, to check them by: CRC-32 for gzip, the low half of XXH64 for zstd's
    /// seek table. LZ4's files have one check for all.
    #[must_use]
    pub fn check(self, raw: &[u8]) -> u32 {
        match self {
            Self::Deflate => crc_fast::crc32_iso_hdlc(raw),
            Self::Zstd => xxh64(raw, 0) as u32,
            Self::Lz4 => 0,
        }
    }

    /// The codec that packs at `level`, and its own level for that. As in LZ4's program, 1 and 2 are the fast one.
    fn codec(self, level: i16) -> (&'static str, i16) {
        match (self, level) {
            (Self::Lz4, 3..) => ("lz4-hc", level),
            (Self::Lz4, 1..) => ("lz4", 0),
            _ => (self.name(), level),
        }
    }

    /// Who packs at which levels, best first.
    #[must_use]
    pub fn packers(self, registry: &Registry) -> Vec<(&'static str, RangeInclusive<i16>)> {
        let names = if self == Self::Lz4 {
            &["lz4", "lz4-hc"][..]
        } else {
            &[self.name()]
        };
        let entries = names
            .iter()
            .filter_map(|name| entries(registry, name))
            .flatten();
        entries
            .map(|entry| (entry.backend, entry.codec.info().levels.clone()))
            .collect()
    }

    /// Who packs at this level: the best backend that has it.
    ///
    /// # Errors
    /// [`UnknownCodec`] where none has.
    pub fn packer(self, registry: &Registry, level: i16) -> Result<Worker, UnknownCodec> {
        let (codec, level) = self.codec(level);
        let (packer, level) = narrows::packer(registry, &format!("{codec}:{level}"))?;
        Ok(Worker::new(packer, level))
    }

    /// Who unpacks: the best backend.
    #[must_use]
    pub fn unpacker(self, registry: &Registry) -> Option<Worker> {
        Some(Worker::new(
            entries(registry, self.name())?.first()?,
            Level(0),
        ))
    }

    /// Who unpacks what is to be checked: the plainest backend, since the others are what is not trusted.
    #[must_use]
    pub fn checker(self, registry: &Registry) -> Option<Worker> {
        Some(Worker::new(
            entries(registry, self.name())?.last()?,
            Level(0),
        ))
    }
}

fn entries<'a>(registry: &'a Registry, name: &str) -> Option<&'a [Entry]> {
    registry
        .entries()
        .find(|entries| entries[0].codec.info().name == name)
}

/// A codec on a backend at a level.
#[derive(Debug, Clone)]
pub struct Worker {
    /// Who runs it.
    pub backend: &'static str,
    /// How hard.
    pub level: Level,
    codec: Arc<dyn Codec>,
}

impl Worker {
    fn new(entry: &Entry, level: Level) -> Self {
        Self {
            backend: entry.backend,
            level,
            codec: entry.codec.clone(),
        }
    }

    /// Packs `raw` into the front of `out`; `None` where that makes it no smaller.
    ///
    /// # Panics
    /// When `out` is shorter than `raw`.
    pub fn pack(&self, raw: &[u8], out: &mut [u8], ws: &mut Workspace) -> Option<usize> {
        let room = raw.len().checked_sub(1).filter(|room| *room > 0)?;
        self.codec.pack(raw, self.level, &[], &mut out[..room], ws)
    }

    /// Bytes that each thread keeps to pack blocks of `block_len` bytes, where they are many.
    #[must_use]
    pub fn context_len(&self, block_len: usize) -> usize {
        self.codec.context_len(block_len, self.level)
    }

    /// Fills `out` with what `packed` was made of; whether it was.
    pub fn unpack(&self, packed: &[u8], out: &mut [u8], ws: &mut Workspace) -> bool {
        self.codec.unpack(packed, &[], out, ws).is_ok()
    }
}

/// Most bytes that `raw_len` bytes take packed, in the form of a file's block.
#[must_use]
pub fn packed_len_max(raw_len: usize) -> usize {
    raw_len + raw_len / 64 + 64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_lz4_are_those_of_its_program_and_others_are_refused() {
        let registry = narrows::default_registry();
        let packer = |level| {
            Method::Lz4
                .packer(&registry, level)
                .map(|worker| worker.level.0)
                .ok()
        };
        assert_eq!(
            [-1, 0, 1, 2, 3, 12, 13].map(packer),
            [Some(-1), Some(0), Some(0), Some(0), Some(3), Some(12), None]
        );
    }
}
