//! Snappy's raw format: a length, then literals and copies. Reads and writes it with the `snap` crate.

use narrows_core::{Codec, CodecId, DecodeError, Info, Level, Workspace};

/// Snappy without framing.
#[derive(Debug, Clone, Copy)]
pub struct Snappy;

static INFO: Info = Info {
    id: CodecId(3),
    name: "snappy",
    levels: 0..=0,
    level_default: 0,
    history: false,
    format: "https://github.com/google/snappy/blob/main/format_description.txt",
};

/// The crate's hash tables, and room for its worst case: it refuses to start with less, however well the chunk packs.
struct Scratch {
    encoder: snap::raw::Encoder,
    packed: Vec<u8>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            encoder: snap::raw::Encoder::new(),
            packed: Vec::new(),
        }
    }
}

impl Codec for Snappy {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn pack(
        &self,
        raw: &[u8],
        _: Level,
        _: &[u8],
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Option<usize> {
        let Scratch { encoder, packed } = ws.get::<Scratch>();
        let bound = snap::raw::max_compress_len(raw.len());
        if out.len() >= bound {
            return encoder.compress(raw, out).ok();
        }
        if packed.len() < bound {
            packed.resize(bound, 0);
        }
        let len = encoder.compress(raw, packed).ok()?;
        out.get_mut(..len)?.copy_from_slice(&packed[..len]);
        Some(len)
    }

    fn unpack(
        &self,
        packed: &[u8],
        _: &[u8],
        out: &mut [u8],
        _: &mut Workspace,
    ) -> Result<(), DecodeError> {
        match snap::raw::decompress_len(packed) {
            Ok(len) if len == out.len() => {}
            _ => return Err(DecodeError::corrupt(0, "snappy chunk of another length")),
        }
        match snap::raw::Decoder::new().decompress(packed, out) {
            Ok(len) if len == out.len() => Ok(()),
            _ => Err(DecodeError::corrupt(0, "not a snappy chunk")),
        }
    }
}
