//! QPL: Intel's In-Memory Analytics Accelerator, which packs and unpacks DEFLATE with a window of 4 KiB.
//!
//! Made with it, `deflate`, `zlib` and `gzip` are read by anybody; but it reads only what was made with that window, so
//! chunks of these go to the CPU to be unpacked, and `deflate-w4k` is the codec that two such hosts agree on.
//!
//! QPL's own software is slower than igzip, so the probe opens a job on the hardware path alone. Jobs are submitted and
//! polled, up to a time limit; since the accelerator writes by itself to whatever memory a job names, jobs name buffers
//! of their own, which also are in place: it does not wait for pages.
//!
//! Limits: chunks from 4 KiB to 1 MiB (work queues take 2 MiB at most, and a chunk may grow). The library packs at one
//! level on hardware. Set `NARROWS_QPL_LIB` to open another file than `libqpl.so.1`.

mod ffi;

use std::{path::PathBuf, sync::Arc};

use narrows_core::{Backend, Codec, Info, Unavailable};

use self::ffi::{Job, Library};
use crate::{
    device::{Engine, Fault, Known, Place, Reach, Usage},
    format::Format,
};

/// The backend. Opens the library when it is probed.
#[derive(Debug, Clone, Default)]
pub struct Iaa(Place);

impl Iaa {
    /// The backend of the library at `path`, which is absolute.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(Place::at(path))
    }

    /// Takes QPL's software path. Slower than the CPU backend: of use to test the binding alone.
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

static KNOWN: Known<Qpl> = Known::new();

impl Backend for Iaa {
    fn name(&self) -> &'static str {
        "iaa"
    }

    fn priority(&self) -> i32 {
        30
    }

    fn probe(&self) -> Result<Vec<Arc<dyn Codec>>, Unavailable> {
        let device = KNOWN.device(&self.0, Qpl::at)?;
        Ok([device.codecs(&NEAR), device.codecs(&CODECS)].concat())
    }
}

// One level on the device; the CPU, where it steps in, tells 0 from 1.
static CODECS: [(Format, Info); 3] = Format::common(1, 1);
static NEAR: [(Format, Info); 1] = [(Format::W4k, Format::W4k.info(1, 1))];

/// See the module's head.
static REACH: Reach = Reach {
    pack: Some(4 << 10..=CHUNK_MAX),
    unpack: Some(4 << 10..=CHUNK_MAX),
    packed: 64..=CHUNK_MAX,
    far: false,
};

const CHUNK_MAX: usize = 1 << 20;

struct Qpl {
    library: &'static Library,
    software: bool,
}

impl Qpl {
    fn at(place: &Place) -> Result<Self, Unavailable> {
        let library = Library::open(place.path.as_deref())?;
        Ok(Self {
            library,
            software: place.software,
        })
    }
}

impl Engine for Qpl {
    type Session = Job;

    fn open(&self) -> Result<Job, Fault> {
        Job::open(self.library, self.software)
    }

    fn reach(&self) -> &Reach {
        &REACH
    }

    fn absent(&self, status: i64) -> String {
        let why = match status {
            500 => "this build of QPL or this system has no hardware path",
            501 => "libaccel-config is missing or too old",
            502 => "libaccel-config failed",
            503 => {
                "no enabled work queue of an accelerator: `accel-config list` shows them, and only root sees any by default"
            }
            _ => "QPL does not start",
        };
        format!("{why} (status {status})")
    }
}
