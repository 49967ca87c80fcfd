//! LZO1X, the format of `lzop`, of btrfs and of zram's classic default, in code of our own.
//!
//! The known compressors are GPL or slow, so this one is written from the format: a greedy search through one hash
//! table, as LZ4's, that widens its step where nothing matches.
//!
//! The format is a chain of instructions. The first byte tells them apart; its meaning below 16 depends on how many
//! literals went just before (`state`: 0 to 3 carried by the instruction before, 4 for a run of its own).
//!
//! | first byte | in state | meaning |
//! |---|---|---|
//! | `0000LLLL` | 0 | run of `3 + L` literals, `L` = 0: longer |
//! | `0000DDSS`, `H` | 1..3 | match of 2 at `(H << 2) + D + 1` |
//! | `0000DDSS`, `H` | 4 | match of 3 at `(H << 2) + D + 2049` |
//! | `0001HLLL`, LE16 `D‖SS` | any | match of `2 + L` (`L` = 0: longer) at `16384 + (H << 14) + D`; there `D` = `H` = 0 ends the chunk |
//! | `001LLLLL`, LE16 `D‖SS` | any | match of `2 + L` (`L` = 0: longer) at `D + 1` |
//! | `01LDDDSS`, `H` | any | match of `3 + L` at `(H << 3) + D + 1` |
//! | `1LLDDDSS`, `H` | any | match of `5 + L` at `(H << 3) + D + 1` |
//!
//! `S` literals follow a match. "Longer" is the field's largest value plus 255 for each zero byte that follows plus
//! the first byte that is not zero. A chunk may start with a byte above 17, for that byte minus 17 literals.

mod pack;
mod unpack;

use narrows_core::{Codec, CodecId, DecodeError, Info, Level, Workspace};

/// LZO1X with a fast compressor.
#[derive(Debug, Clone, Copy)]
pub struct Lzo1x;

static INFO: Info = Info {
    id: CodecId(5),
    name: "lzo1x",
    levels: 0..=0,
    level_default: 0,
    history: false,
    format: "https://docs.kernel.org/staging/lzo.html",
};

impl Codec for Lzo1x {
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
        pack::pack(raw, out, ws.get())
    }

    fn unpack(
        &self,
        packed: &[u8],
        _: &[u8],
        out: &mut [u8],
        _: &mut Workspace,
    ) -> Result<(), DecodeError> {
        unpack::unpack(packed, out)
    }
}

/// Furthest distance of the two-byte short match.
const M2_DISTANCE_MAX: usize = 0x800;
/// Furthest distance of the medium match; at exactly this one the far match means the end.
const M3_DISTANCE_MAX: usize = 0x4000;
/// Furthest distance of the far match.
const M4_DISTANCE_MAX: usize = 0xbfff;
/// What ends a chunk: a far match of 3 at distance 16384.
const END: [u8; 3] = [17, 0, 0];
