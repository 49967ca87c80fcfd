//! Lossless formats on CPU libraries and on code of our own: one file or folder a codec.
//!
//! Floor: above `core`, beside `chains` and `backends`. Every codec speaks a public block format, never a library's
//! private container, so that whatever has the format can be at the other end. Ids: `docs/specs/codec-ids.md`.
//!
//! | module | codecs | by |
//! |---|---|---|
//! | [`raw`] | `raw` | a copy |
//! | [`lz4`] | `lz4`, `lz4-hc` | the reference C library |
//! | [`snappy`] | `snappy` | the `snap` crate |
//! | [`gipfeli`] | `gipfeli` | own code |
//! | [`lzo1x`] | `lzo1x` | own code: no permissive fast compressor exists |
//! | [`deflate`] | `deflate`, `zlib`, `gzip`, `deflate-w4k` | libdeflate |
//! | [`zstd`] | `zstd` | the reference C library |
//! | [`nx842`] | `842` | own code |
//! | [`typed`] | `shuffle4-lz4`, `delta8-zstd`, … | own transforms before `lz4` or `zstd` |

pub mod deflate;
pub mod gipfeli;
pub mod lz4;
pub mod lzo1x;
pub mod nx842;
pub mod raw;
pub mod snappy;
pub mod typed;
pub mod zstd;

mod lz;

use std::sync::Arc;

use narrows_core::{Backend, Codec, Unavailable};

/// The backend that is always there: every codec of this crate, on the CPU.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cpu;

/// The backend that is always there.
#[must_use]
pub fn cpu() -> Cpu {
    Cpu
}

impl Backend for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn priority(&self) -> i32 {
        0
    }

    fn probe(&self) -> Result<Vec<Arc<dyn Codec>>, Unavailable> {
        let mut codecs: Vec<Arc<dyn Codec>> = vec![
            Arc::new(raw::Raw),
            Arc::new(lz4::Lz4),
            Arc::new(lz4::Lz4Hc),
            Arc::new(snappy::Snappy),
            Arc::new(gipfeli::Gipfeli),
            Arc::new(lzo1x::Lzo1x),
            Arc::new(deflate::DEFLATE),
            Arc::new(deflate::ZLIB),
            Arc::new(deflate::GZIP),
            Arc::new(zstd::Zstd),
            Arc::new(nx842::Nx842),
            Arc::new(deflate::DeflateW4k),
        ];
        codecs.extend(typed::all());
        Ok(codecs)
    }
}
