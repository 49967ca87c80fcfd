//! The chunk as it is. Every peer has it; the pipeline falls back to it whenever a chunk does not shrink.

use narrows_core::{Codec, CodecId, DecodeError, Info, Level, Workspace};

/// The copy.
#[derive(Debug, Clone, Copy)]
pub struct Raw;

static INFO: Info = Info {
    id: CodecId::RAW,
    name: "raw",
    levels: 0..=0,
    level_default: 0,
    history: false,
    format: "the bytes themselves",
};

impl Codec for Raw {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn pack(
        &self,
        raw: &[u8],
        _: Level,
        _: &[u8],
        out: &mut [u8],
        _: &mut Workspace,
    ) -> Option<usize> {
        out.get_mut(..raw.len())?.copy_from_slice(raw);
        Some(raw.len())
    }

    fn unpack(
        &self,
        packed: &[u8],
        _: &[u8],
        out: &mut [u8],
        _: &mut Workspace,
    ) -> Result<(), DecodeError> {
        if packed.len() != out.len() {
            return Err(DecodeError::corrupt(
                packed.len().min(out.len()),
                "raw chunk of another length",
            ));
        }
        out.copy_from_slice(packed);
        Ok(())
    }
}
