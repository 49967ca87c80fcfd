//! QATzip: Intel QuickAssist, which packs DEFLATE at several gigabytes a second for next to no processor time.
//!
//! QATzip falls back to zlib where there is no device, at a third of igzip's speed. So the probe asks for a session
//! without that fallback, and sets one up: `qzInit` alone tells a second caller "already done" where there is no
//! device. The stream is bare DEFLATE, one chunk one stream, from blocks of 128 KiB that are compared by the device
//! itself ("compress and verify"); QATzip's own containers are not used, since only QATzip reads them.
//!
//! Limits: chunks from 8 KiB, because a request costs tens of microseconds; unpacked up to 128 KiB, the
//! device's buffer, and from 1 KiB packed, below which QATzip wants zlib. QATzip is synchronous and has its own watch
//! on the device (a heartbeat), so there is no time limit here. Set `NARROWS_QATZIP_LIB` to open another file than
//! `libqatzip.so.3`.

mod ffi;

use std::{path::PathBuf, sync::Arc};

use narrows_core::{Backend, Codec, Info, Unavailable};

use self::ffi::{Library, Quick};
use crate::{
    device::{Engine, Fault, Known, Place, Reach, Usage},
    format::Format,
};

/// The backend. Opens the library when it is probed.
#[derive(Debug, Clone, Default)]
pub struct Qat(Place);

impl Qat {
    /// The backend of the library at `path`, which is absolute.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(Place::at(path))
    }

    /// Lets QATzip do without a device, with zlib. Slower than the CPU backend: of use to test the binding alone.
    #[must_use]
    pub fn with_software(self) -> Self {
        Self(Place {
            software: true,
            ..self.0
        })
    }

    /// What became of packed and of unpacked chunks since the process began; `None` where the device is not in use.
    #[must_use]
    pub fn usage(&self) -> Option<(Usage, Usage)> {
        KNOWN.usage(&self.0)
    }
}

static KNOWN: Known<QatZip> = Known::new();

impl Backend for Qat {
    fn name(&self) -> &'static str {
        "qat"
    }

    fn priority(&self) -> i32 {
        40
    }

    fn probe(&self) -> Result<Vec<Arc<dyn Codec>>, Unavailable> {
        Ok(KNOWN.device(&self.0, QatZip::at)?.codecs(&CODECS))
    }
}

// QATzip packs level 9 with zlib on devices before the fourth generation.
static CODECS: [(Format, Info); 3] = Format::common(1, 8);

/// See the module's head. The upper bound of packing keeps a session's output to some megabytes.
const REACH: Reach = Reach {
    pack: Some(8 << 10..=16 << 20),
    unpack: Some(8 << 10..=BUFFER),
    packed: 1024..=usize::MAX,
    far: true,
};

/// The device's buffer: a longer chunk is packed as several blocks, and not unpacked.
const BUFFER: usize = 128 << 10;

struct QatZip {
    library: &'static Library,
    software: bool,
    reach: Reach,
}

impl QatZip {
    fn at(place: &Place) -> Result<Self, Unavailable> {
        let library = Library::open(place.path.as_deref())?;
        Ok(Self {
            library,
            software: place.software,
            reach: REACH,
        })
    }
}

impl Engine for QatZip {
    type Session = Quick;

    fn open(&self) -> Result<Quick, Fault> {
        Quick::open(self.library, self.software, BUFFER as u32)
    }

    fn reach(&self) -> &Reach {
        &self.reach
    }

    fn absent(&self, status: i64) -> String {
        let why = match status {
            -101 => {
                "no QuickAssist device answers: is there one, does the `qat` service run, is this user in its group?"
            }
            -102 => "no memory driver for QuickAssist",
            -103 => {
                "the QuickAssist device has no compression instance: its configuration says which services it runs"
            }
            -104 => {
                "not enough pinned memory: raise the limit of locked memory or the number of huge pages"
            }
            _ => "QATzip does not start",
        };
        format!("{why} (status {status})")
    }
}

const _: () = assert!(BUFFER.is_power_of_two(), "as QATzip wants it");
