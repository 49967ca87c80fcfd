//! What a device's chunks fall back to: ISA-L where it is and the level is low, else libdeflate.
//!
//! The same formats by the same names as the device's, so a chunk that the device declines differs in nothing but who
//! made it. `deflate-w4k` is made by ISA-L; libdeflate has no such window, so without ISA-L it declines chunks longer
//! than the window, and they travel raw.

use std::sync::{Arc, OnceLock};

use narrows_core::{Backend, Codec, Level, Workspace};

use crate::{format::Format, isal::IsaL, libdeflate};

/// Reach of a match in `deflate-w4k`, in bytes.
const W4K_WINDOW: usize = 4 << 10;

/// Packs `raw` at about `level`; `None` where it does not fit in `out`.
pub(crate) fn pack(
    format: Format,
    raw: &[u8],
    level: i16,
    out: &mut [u8],
    ws: &mut Workspace,
) -> Option<usize> {
    if (level <= 1 || format == Format::W4k)
        && let Some(igzip) = igzip(format)
    {
        let body_len = igzip.pack(raw, Level(level), &[], format.body_mut(out)?, ws)?;
        return Some(format.seal(raw, out, body_len));
    }
    if format == Format::W4k && raw.len() > W4K_WINDOW {
        return None;
    }
    libdeflate::pack(format, raw, level, out, ws)
}

/// ISA-L's codec for the stream inside `format`, where ISA-L is.
fn igzip(format: Format) -> Option<&'static Arc<dyn Codec>> {
    static CODECS: OnceLock<Vec<Arc<dyn Codec>>> = OnceLock::new();
    let inside = if format == Format::W4k {
        "deflate-w4k"
    } else {
        "deflate"
    };
    CODECS
        .get_or_init(|| IsaL.probe().unwrap_or_default())
        .iter()
        .find(|codec| codec.info().name == inside)
}
