//! DOCA Compress: NVIDIA BlueField. BlueField-2 packs and unpacks DEFLATE; BlueField-3 only unpacks.
//!
//! **Never run on a device.** Written from DOCA's public documentation of releases 2.5 to 3.2 and tested against a
//! stand-in library that checks the order of calls.
//!
//! The probe lists devices and takes the first whose capability calls say that it packs, else the first that unpacks.
//! Each worker has a context of one task at a time, a progress engine, and one mapped region with a source and a
//! destination half: DOCA reads and writes mapped memory only, and mapping for each chunk would cost more than copying.
//!
//! Limits: chunks from 16 KiB up to 2 MiB or what the device says, whichever is less. On BlueField-3 chunks are packed
//! by the CPU; the rank is above ISA-L's all the same, since ISA-L is what packs them. LZ4, which BlueField-3 unpacks
//! too, stays with the CPU: one core unpacks it at gigabytes a second. DOCA does not tell how much of its input a
//! stream took, so whether bytes behind a stream are noticed is up to the device. Set `NARROWS_DOCA_LIB` to open
//! another file than `libdoca_compress.so.3` or `.so.2`; the loader finds `libdoca_common` beside it.

mod ffi;

use std::{path::PathBuf, sync::Arc};

use narrows_core::{Backend, Codec, Info, Unavailable};

use self::ffi::{Context, Library, Opened};
use crate::{
    device::{Engine, Fault, Known, Place, Reach, Usage},
    format::Format,
};

/// The backend. Opens the library when it is probed.
#[derive(Debug, Clone, Default)]
pub struct Doca(Place);

impl Doca {
    /// The backend of the library at `path`, which is absolute.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(Place::at(path))
    }

    /// What became of packed and of unpacked chunks since the process began; `None` where the device is not in use.
    #[must_use]
    pub fn usage(&self) -> Option<(Usage, Usage)> {
        KNOWN.usage(&self.0)
    }
}

static KNOWN: Known<BlueField> = Known::new();

impl Backend for Doca {
    fn name(&self) -> &'static str {
        "doca"
    }

    fn priority(&self) -> i32 {
        20
    }

    fn probe(&self) -> Result<Vec<Arc<dyn Codec>>, Unavailable> {
        Ok(KNOWN.device(&self.0, BlueField::at)?.codecs(&CODECS))
    }
}

static CODECS: [(Format, Info); 3] = Format::common(1, 1);

const CHUNK_MIN: usize = 16 << 10;
/// Keeps a worker's mapped region to a few megabytes.
const CHUNK_MAX: usize = 2 << 20;

struct BlueField {
    opened: Opened,
    reach: Reach,
}

impl BlueField {
    fn at(place: &Place) -> Result<Self, Unavailable> {
        let library = Library::open(place.path.as_deref())?;
        let opened = Opened::first(library)?;
        let reach = |max: Option<u64>| {
            let max = usize::try_from(max?).unwrap_or(usize::MAX).min(CHUNK_MAX);
            Some(CHUNK_MIN..=max)
        };
        let packed_max = opened.unpack_max.map_or(0, |max| {
            usize::try_from(max).unwrap_or(usize::MAX).min(CHUNK_MAX)
        });
        let reach = Reach {
            pack: reach(opened.pack_max),
            unpack: reach(opened.unpack_max),
            packed: 64..=packed_max,
            far: true,
        };
        Ok(Self { opened, reach })
    }
}

impl Engine for BlueField {
    type Session = Context;

    fn open(&self) -> Result<Context, Fault> {
        Context::open(&self.opened, CHUNK_MAX)
    }

    fn reach(&self) -> &Reach {
        &self.reach
    }

    fn absent(&self, status: i64) -> String {
        format!("the BlueField is there, but its context does not start (status {status})")
    }
}
