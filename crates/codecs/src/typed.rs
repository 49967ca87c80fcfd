//! Transforms that know the width of a number, before `lz4` or `zstd`.
//!
//! A field of floats or counters has its order in single bytes of each number: signs, exponents, high bytes. Matches
//! cannot see it and one code for all bytes blurs it. So the bytes are sorted into planes first (`shuffle`), after
//! taking differences of neighbours where these are small (`delta`). Floats are subtracted as the integers their bits
//! spell: in smooth fields that packed as well as a map that orders negative floats too. [`decimal`] goes further, for
//! floats that were written as decimals, and chooses by itself what else to do. Before zstd each plane is a block of
//! its own and gets its own Huffman code; a plane without order is then stored at the speed of a copy.
//!
//! Packed bytes: what the inner codec makes of the transformed chunk, which is as long as the raw one.

pub mod decimal;
pub mod delta;
pub mod shuffle;

use std::sync::Arc;

use narrows_core::{Codec, CodecId, DecodeError, Info, Level, Workspace};

use self::shuffle::{shuffle, unshuffle};
use crate::{
    lz4::Lz4,
    zstd::{Packer, Zstd},
};

/// One transform before one inner codec.
#[derive(Debug, Clone, Copy)]
pub struct Typed {
    info: &'static Info,
    delta: bool,
    width: usize,
    inner: Inner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inner {
    Lz4,
    Zstd,
}

/// Every typed codec.
pub fn all() -> impl Iterator<Item = Arc<dyn Codec>> {
    let decimals =
        [decimal::DECIMAL4, decimal::DECIMAL8].map(|codec| Arc::new(codec) as Arc<dyn Codec>);
    ALL.iter()
        .map(|codec| Arc::new(*codec) as Arc<dyn Codec>)
        .chain(decimals)
}

macro_rules! typed {
    ($id:literal, $name:literal, $delta:literal, $width:literal, $inner:expr) => {
        Typed {
            info: &Info {
                id: CodecId($id),
                name: $name,
                levels: if matches!($inner, Inner::Lz4) {
                    -64..=0
                } else {
                    -200..=22
                },
                level_default: if matches!($inner, Inner::Lz4) { 0 } else { 1 },
                history: false,
                format: "docs/specs/codec-ids.md, typed transforms",
            },
            delta: $delta,
            width: $width,
            inner: $inner,
        }
    };
}

/// The typed codecs of one transform each, by id. One line each; a line, once released, keeps its meaning.
static ALL: &[Typed] = &[
    typed!(16, "shuffle2-lz4", false, 2, Inner::Lz4),
    typed!(17, "shuffle4-lz4", false, 4, Inner::Lz4),
    typed!(18, "shuffle8-lz4", false, 8, Inner::Lz4),
    typed!(19, "shuffle2-zstd", false, 2, Inner::Zstd),
    typed!(20, "shuffle4-zstd", false, 4, Inner::Zstd),
    typed!(21, "shuffle8-zstd", false, 8, Inner::Zstd),
    typed!(22, "delta2-lz4", true, 2, Inner::Lz4),
    typed!(23, "delta4-lz4", true, 4, Inner::Lz4),
    typed!(24, "delta8-lz4", true, 8, Inner::Lz4),
    typed!(25, "delta2-zstd", true, 2, Inner::Zstd),
    typed!(26, "delta4-zstd", true, 4, Inner::Zstd),
    typed!(27, "delta8-zstd", true, 8, Inner::Zstd),
];

/// The chunk between the steps.
#[derive(Default)]
struct Scratch {
    differences: Vec<u8>,
    planes: Vec<u8>,
}

impl Codec for Typed {
    fn info(&self) -> &'static Info {
        self.info
    }

    fn pack(
        &self,
        raw: &[u8],
        level: Level,
        _: &[u8],
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Option<usize> {
        let mut scratch = std::mem::take(ws.get::<Scratch>());
        let planes = room(&mut scratch.planes, raw.len());
        if !self.delta {
            shuffle(self.width, raw, planes);
        } else {
            let differences = room(&mut scratch.differences, raw.len());
            delta::difference(self.width, raw, differences);
            shuffle(self.width, differences, planes);
        }
        let packed = match self.inner {
            Inner::Lz4 => Lz4.pack(planes, level, &[], out, ws),
            Inner::Zstd => {
                ws.get::<Packer>()
                    .pack_planes(planes, raw.len() / self.width, level, out)
            }
        };
        *ws.get::<Scratch>() = scratch;
        packed
    }

    fn unpack(
        &self,
        packed: &[u8],
        _: &[u8],
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Result<(), DecodeError> {
        let mut scratch = std::mem::take(ws.get::<Scratch>());
        let planes = room(&mut scratch.planes, out.len());
        let unpacked = match self.inner {
            Inner::Lz4 => Lz4.unpack(packed, &[], planes, ws),
            Inner::Zstd => Zstd.unpack(packed, &[], planes, ws),
        };
        if unpacked.is_ok() {
            unshuffle(self.width, planes, out);
            if self.delta {
                delta::sum(self.width, out);
            }
        }
        *ws.get::<Scratch>() = scratch;
        unpacked
    }
}

/// The first `len` bytes of `buffer`, which grows but never shrinks.
fn room(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    &mut buffer[..len]
}
