//! Packs and unpacks units.
//!
//! A unit that would not shrink by an eighth is stored raw. Codecs are named by their numbers of
//! `docs/specs/codec-ids.md`, so a store can be read whatever it was written with.

use narrows_chains::{PAGE, PagePacker, Profile as ChainProfile};
use narrows_codecs::{lz4::Lz4, zstd::Zstd};
use narrows_core::{Codec, CodecId, DecodeError, Level, Registry, Workspace};

use crate::format::{
    BLOCK,
    unit::{self, CODEC_CHAINS, HEADER, Tag, Unit},
};

/// How hard a unit is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effort {
    /// LZ4.
    Quick,
    /// zstd 1.
    Normal,
    /// zstd 5, or quick page chains where they win.
    Strong,
    /// zstd 9, or any page chains where they win.
    Utmost,
}

/// All codecs of this process, for unpacking.
pub(crate) fn registry() -> Registry {
    let mut registry = Registry::default();
    registry
        .add(&narrows_codecs::cpu())
        .expect("one backend names each codec once");
    registry
}

/// Contexts of one thread.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    workspace: Workspace,
    /// For [`Effort::Strong`], and for [`Effort::Utmost`].
    chains: [Option<Box<PagePacker>>; 2],
}

impl Tools {
    /// Appends `raw` as a unit to `out`, without padding.
    pub(crate) fn pack(&mut self, raw: &[u8], tag: Tag, effort: Effort, out: &mut Vec<u8>) {
        let begin = out.len();
        let room = raw.len() - raw.len() / 8;
        out.resize(begin + HEADER + room, 0);
        let (codec, level): (&dyn Codec, i16) = match effort {
            Effort::Quick => (&Lz4, 0),
            Effort::Normal => (&Zstd, 1),
            Effort::Strong => (&Zstd, 5),
            Effort::Utmost => (&Zstd, 9),
        };
        let space = &mut out[begin + HEADER..];
        let mut len = codec.pack(raw, Level(level), &[], space, &mut self.workspace);
        let mut id = codec.id().0;
        if effort >= Effort::Strong
            && let Some(shorter) = self.pack_chains(raw, effort, len.unwrap_or(room))
        {
            out[begin + HEADER..][..shorter.len()].copy_from_slice(&shorter);
            (id, len) = (CODEC_CHAINS, Some(shorter.len()));
        }
        if let Some(len) = len {
            out.truncate(begin + HEADER + len);
        } else {
            id = CodecId::RAW.0;
            out.truncate(begin + HEADER);
            out.extend_from_slice(raw);
        }
        unit::write_header(&mut out[begin..], tag, id, raw.len() / BLOCK);
    }

    /// Packs each block by a chain of page transforms; `None` unless all of it is shorter than
    /// `bound`.
    fn pack_chains(&mut self, raw: &[u8], effort: Effort, bound: usize) -> Option<Vec<u8>> {
        let packer = self.chains(effort);
        let (pages, _) = raw.as_chunks::<PAGE>();
        let mut out = vec![0; pages.len() * 2];
        let mut packed = [0; PAGE];
        for (i, page) in pages.iter().enumerate() {
            let bytes = match packer.pack(page, &mut packed) {
                Some(len) => &packed[..len],
                None => page,
            };
            out.extend_from_slice(bytes);
            out[2 * i..2 * i + 2].copy_from_slice(&(bytes.len() as u16).to_le_bytes());
            // The first block tells: where its chain wins nothing over its share of the other
            // codec's, the rest is left.
            if out.len() >= bound || (i == 0 && bytes.len() * pages.len() >= bound) {
                return None;
            }
        }
        Some(out)
    }

    /// Unpacks a unit into `out`, which has the unit's length.
    pub(crate) fn unpack(
        &mut self,
        unit: &Unit<'_>,
        registry: &Registry,
        out: &mut [u8],
    ) -> Result<(), DecodeError> {
        match unit.codec {
            0 if unit.packed.len() == out.len() => out.copy_from_slice(unit.packed),
            0 => return Err(corrupt("a raw unit of another length")),
            1 => Lz4.unpack(unit.packed, &[], out, &mut self.workspace)?,
            9 => Zstd.unpack(unit.packed, &[], out, &mut self.workspace)?,
            CODEC_CHAINS => self.unpack_chains(unit.packed, out)?,
            id => {
                let codec = registry.by_id(CodecId(id));
                let codec = codec.ok_or(DecodeError::Unsupported(CodecId(id)))?;
                codec.unpack(unit.packed, &[], out, &mut self.workspace)?;
            }
        }
        Ok(())
    }

    fn unpack_chains(&mut self, packed: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        let (pages, _) = out.as_chunks_mut::<PAGE>();
        let (lens, mut rest) = packed
            .split_at_checked(pages.len() * 2)
            .ok_or_else(|| corrupt("no lengths of pages"))?;
        let packer = self.chains(Effort::Strong);
        for (len, page) in lens.as_chunks::<2>().0.iter().zip(pages) {
            let len = usize::from(u16::from_le_bytes(*len));
            let (bytes, behind) = rest
                .split_at_checked(len)
                .ok_or_else(|| corrupt("a page longer than its unit"))?;
            rest = behind;
            if len == PAGE {
                page.copy_from_slice(bytes);
            } else {
                packer
                    .unpack(bytes, page)
                    .map_err(|_| corrupt("not a packed page"))?;
            }
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(corrupt("bytes behind the last page"))
        }
    }

    fn chains(&mut self, effort: Effort) -> &mut PagePacker {
        let (held, profile) = match effort {
            Effort::Utmost => (&mut self.chains[1], ChainProfile::Ratio),
            _ => (&mut self.chains[0], ChainProfile::Balanced),
        };
        held.get_or_insert_with(|| Box::new(PagePacker::new(profile)))
    }
}

fn corrupt(what: &'static str) -> DecodeError {
    DecodeError::Corrupt { offset: 0, what }
}

/// Whether a block is all zeroes.
pub(crate) fn is_zero(block: &[u8]) -> bool {
    let (words, rest) = block.as_chunks::<64>();
    let none = |word: &[u8; 64]| word.iter().fold(0, |sum, byte| sum | byte) == 0;
    words.iter().all(none) && rest.iter().all(|byte| *byte == 0)
}
