//! ISA-L (igzip): the fastest DEFLATE on x86 and Arm, and one that keeps to a small window.
//!
//! Packs `deflate` at levels 0 and 1, and `deflate-w4k`, whose matches reach back at most 4 KiB, for receivers with no
//! larger window. Unpacks with libdeflate, which is faster still and made for untrusted bytes.

mod ffi;

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use narrows_core::{Backend, Codec, CodecId, DecodeError, Info, Level, Unavailable, Workspace};

use self::ffi::{Library, Stream};
use crate::{
    format::Format,
    libdeflate::{self, Inflater},
};

/// The backend. Opens `libisal.so.2` when it is probed.
#[derive(Debug, Clone, Copy, Default)]
pub struct IsaL;

impl Backend for IsaL {
    fn name(&self) -> &'static str {
        "isa-l"
    }

    fn priority(&self) -> i32 {
        10
    }

    fn probe(&self) -> Result<Vec<Arc<dyn Codec>>, Unavailable> {
        let library = library()?;
        Ok(vec![
            Arc::new(Igzip {
                info: &DEFLATE,
                window_bits: 15,
                library,
            }),
            Arc::new(Igzip {
                info: &W4K,
                window_bits: 12,
                library,
            }),
        ])
    }
}

/// The library, opened once a process.
fn library() -> Result<&'static Library, Unavailable> {
    static LIBRARY: OnceLock<Result<&'static Library, Unavailable>> = OnceLock::new();
    LIBRARY.get_or_init(Library::open).clone()
}

static DEFLATE: Info = Info {
    id: CodecId(6),
    name: "deflate",
    levels: 0..=1,
    level_default: 1,
    history: false,
    format: "RFC 1951",
};

static W4K: Info = Info {
    id: CodecId(11),
    name: "deflate-w4k",
    levels: 0..=1,
    level_default: 1,
    history: false,
    format: "RFC 1951, distances up to 4096",
};

struct Igzip {
    info: &'static Info,
    /// Binary logarithm of the furthest distance.
    window_bits: u16,
    library: &'static Library,
}

impl fmt::Debug for Igzip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Igzip")
            .field("codec", &self.info.name)
            .finish_non_exhaustive()
    }
}

impl Codec for Igzip {
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
        let level = u32::from(level.0.clamp(0, 1).unsigned_abs());
        ws.get::<Stream>()
            .deflate(self.library, raw, level, self.window_bits, out)
    }

    fn unpack(
        &self,
        packed: &[u8],
        _: &[u8],
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Result<(), DecodeError> {
        libdeflate::unpack(Format::Deflate, packed, out, ws.get::<Inflater>())
    }
}
