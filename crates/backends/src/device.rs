//! What all device backends share: which chunks go to the device, what is believed of its answers, and when the CPU
//! does the work instead.
//!
//! A device is never trusted, nor waited for in vain. Its answers lie in memory of its own session until they are found
//! right: a packed chunk is unpacked by the CPU and compared, for a quarter to half of what packing it there would have
//! cost; an unpacked one has the length that was asked for and, in `zlib` and `gzip`, the checksum. Whatever else comes
//! back, late, short, long, wrong or not at all, the CPU does that chunk at once, so a caller sees the right bytes or
//! the CPU's own error, and [`Usage`] counts why. After a fault the device rests: for 1, 2, 4 … 1024 chunks while
//! faults follow each other; after [`ABANDONED_MAX`] operations that never ended, for good, since each keeps its
//! memory.
//!
//! One session a worker thread, in its [`Workspace`]: none of the libraries lets two threads share one. A session that
//! saw a fault is closed, because libraries keep half of a failed stream for the next call.
//!
//! [`qat`](crate::qat), [`iaa`](crate::iaa) and [`doca`](crate::doca) implement [`Engine`]; [`cpu`] and
//! [`format`](crate::format) are below.

mod known;
mod lane;
mod wait;

use std::{
    any::Any,
    fmt::{self, Debug},
    mem,
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use narrows_core::{Codec, DecodeError, Info, Level, Unavailable, Workspace};

pub use self::lane::Usage;
use self::lane::{Lane, Spill};
pub(crate) use self::{
    known::{Known, Place},
    wait::Wait,
};
use crate::{
    cpu,
    format::Format,
    libdeflate::{self, Inflater},
};

/// A library and its device, opened.
pub(crate) trait Engine: Send + Sync + 'static {
    /// One thread's hold on it.
    type Session: Session;

    /// Opens a session.
    fn open(&self) -> Result<Self::Session, Fault>;

    /// What it takes.
    fn reach(&self) -> &Reach;

    /// Why a session does not open, for people: what is missing and how to get it.
    fn absent(&self, status: i64) -> String;
}

/// Packs and unpacks bare DEFLATE into memory of its own.
pub(crate) trait Session: Any + Send {
    /// Packs `raw`, whose length is within [`Reach::pack`]; returns the length in [`Self::output`].
    fn pack(&mut self, raw: &[u8], level: i16) -> Result<usize, Fault>;

    /// Unpacks a stream that is said to hold `len` bytes, both within [`Reach::unpack`].
    fn unpack(&mut self, packed: &[u8], len: usize) -> Result<Unpacked, Fault>;

    /// Where the bytes lie.
    fn output(&self) -> &[u8];
}

/// What a session says it unpacked. Not to be believed.
pub(crate) struct Unpacked {
    /// Bytes written to the output.
    pub(crate) written: usize,
    /// Bytes of the input that the stream took; `None` where the library does not tell.
    pub(crate) read: Option<usize>,
}

/// Lengths that are worth a device's latency and within its limits, in bytes.
#[derive(Debug, Clone)]
pub(crate) struct Reach {
    /// Raw lengths it packs; `None` if it does not.
    pub(crate) pack: Option<RangeInclusive<usize>>,
    /// Raw lengths it unpacks; `None` if it does not.
    pub(crate) unpack: Option<RangeInclusive<usize>>,
    /// Packed lengths it unpacks.
    pub(crate) packed: RangeInclusive<usize>,
    /// Whether it reads distances beyond 4 KiB.
    pub(crate) far: bool,
}

/// Why a session did not do it. The chunk is done by the CPU in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Every queue is full: not a fault of the device.
    Busy,
    /// The library's status.
    Failed(i64),
    /// It did not end in time, and the device may still write: the session's memory must stay where it is.
    Hung,
}

/// An engine in use.
pub(crate) struct Device<E: Engine> {
    engine: E,
    reach: Reach,
    packing: Lane,
    unpacking: Lane,
    /// Sessions left behind with an operation that never ended.
    abandoned: AtomicU32,
}

impl<E: Engine> Device<E> {
    /// Tries `engine` on a few bytes, in both directions that it claims. One that cannot unpack what it should is used
    /// for packing alone. Lives as long as the process, as its library does.
    pub(crate) fn open(engine: E) -> Result<&'static Self, Unavailable> {
        let reach = engine.reach().clone();
        let (packing, unpacking) = (Lane::default(), Lane::default());
        let mut device = Self {
            engine,
            reach,
            packing,
            unpacking,
            abandoned: AtomicU32::new(0),
        };
        match device.engine.open() {
            Ok(_) => {}
            Err(Fault::Failed(status)) => return Err(Unavailable(device.engine.absent(status))),
            Err(_) => return Err(Unavailable("the device is busy or does not answer".into())),
        }
        let raw = trial();
        let slot = &mut Slot::<E>::default();
        let packs = device.reach.pack.is_some();
        if packs {
            device
                .pack(slot, &raw, 1)
                .map_err(|why| unfit("pack", why, slot))?;
        }
        let format = if device.reach.far {
            Format::Deflate
        } else {
            Format::W4k
        };
        let mut packed = vec![0; 2 * raw.len()];
        let len = match slot.output() {
            Some(output) if packs => {
                let len = slot.len;
                packed[..len].copy_from_slice(&output[..len]);
                len
            }
            _ => cpu::pack(format, &raw, 1, &mut packed, &mut Workspace::default()).unwrap_or(0),
        };
        let mut back = vec![0; raw.len()];
        if device.reach.unpack.is_some() {
            match device.unpack(slot, &packed[..len], &mut back, |_| true) {
                Ok(()) if back == raw => {}
                _ if packs => device.reach.unpack = None,
                Ok(()) => return Err(unfit("unpack", Spill::Wrong, slot)),
                Err(why) => return Err(unfit("unpack", why, slot)),
            }
        }
        (device.packing, device.unpacking) = (Lane::default(), Lane::default());
        Ok(Box::leak(Box::new(device)))
    }

    /// What became of packed and of unpacked chunks.
    pub(crate) fn usage(&self) -> (Usage, Usage) {
        (self.packing.usage(), self.unpacking.usage())
    }

    /// Its codecs of `formats`.
    pub(crate) fn codecs(&'static self, formats: &'static [(Format, Info)]) -> Vec<Arc<dyn Codec>> {
        formats
            .iter()
            .map(|&(format, ref info)| {
                Arc::new(Offloaded {
                    device: self,
                    format,
                    info,
                }) as _
            })
            .collect()
    }

    /// Packs `raw` into the session's output, found right; the length is in `slot`.
    fn pack(&self, slot: &mut Slot<E>, raw: &[u8], level: i16) -> Result<(), Spill> {
        let fits = self
            .reach
            .pack
            .as_ref()
            .is_some_and(|reach| reach.contains(&raw.len()));
        let done = self.with_session(slot, &self.packing, fits, |session| {
            session.pack(raw, level)
        })?;
        let Slot {
            session: Some((_, session)),
            inflater,
            spare,
            len,
            ..
        } = slot
        else {
            unreachable!("just used")
        };
        let right = session.output().get(..done).is_some_and(|packed| {
            spare.resize(raw.len(), 0);
            libdeflate::unpack(Format::Deflate, packed, spare, inflater).is_ok() && spare == raw
        });
        *len = done;
        if right {
            self.packing.worked();
            return Ok(());
        }
        slot.session = None;
        Err(Spill::Wrong)
    }

    /// Unpacks exactly `packed` to exactly `out`, if `fits` says so of the bytes. On `Err`, `out` is as it was. Whether
    /// that was the device's fault only the CPU can tell: the bytes may come from a hostile peer.
    fn unpack(
        &self,
        slot: &mut Slot<E>,
        packed: &[u8],
        out: &mut [u8],
        fits: impl FnOnce(&[u8]) -> bool,
    ) -> Result<(), Spill> {
        let within = self
            .reach
            .unpack
            .as_ref()
            .is_some_and(|reach| reach.contains(&out.len()))
            && self.reach.packed.contains(&packed.len());
        let done = self.with_session(slot, &self.unpacking, within, |session| {
            session.unpack(packed, out.len())
        })?;
        let whole = done.written == out.len() && done.read.is_none_or(|read| read == packed.len());
        let output = slot.output().expect("just used").get(..out.len());
        match output.filter(|output| whole && fits(output)) {
            Some(output) => {
                out.copy_from_slice(output);
                self.unpacking.worked();
                Ok(())
            }
            None => {
                slot.session = None;
                Err(Spill::Wrong)
            }
        }
    }

    /// Runs `work` in the slot's session, opened where it has none. After a fault the slot has none.
    fn with_session<T>(
        &self,
        slot: &mut Slot<E>,
        lane: &Lane,
        within: bool,
        work: impl FnOnce(&mut E::Session) -> Result<T, Fault>,
    ) -> Result<T, Spill> {
        if !within {
            return Err(Spill::Declined);
        }
        if self.abandoned.load(Relaxed) >= ABANDONED_MAX || !lane.rested() {
            return Err(Spill::Resting);
        }
        let key = &raw const *self as usize;
        let session = match slot.session.take().filter(|(owner, _)| *owner == key) {
            Some(session) => Ok(session),
            None => self.engine.open().map(|session| (key, session)),
        };
        let fault = match session {
            Ok(session) => {
                let (_, session) = slot.session.insert(session);
                match work(session) {
                    Ok(done) => return Ok(done),
                    Err(fault) => fault,
                }
            }
            Err(fault) => fault,
        };
        slot.status = Some(fault);
        match fault {
            Fault::Busy => return Err(Spill::Busy),
            Fault::Failed(_) => slot.session = None,
            Fault::Hung => {
                self.abandoned.fetch_add(1, Relaxed);
                mem::forget(slot.session.take());
            }
        }
        Err(Spill::Failed)
    }
}

/// A worker's hold on a device.
struct Slot<E: Engine> {
    /// With the address of the device that it belongs to.
    session: Option<(usize, E::Session)>,
    inflater: Inflater,
    /// What a packed chunk unpacks to.
    spare: Vec<u8>,
    /// Length of the packed chunk in the session's output.
    len: usize,
    /// The last fault, for people.
    status: Option<Fault>,
}

impl<E: Engine> Slot<E> {
    fn output(&self) -> Option<&[u8]> {
        self.session.as_ref().map(|(_, session)| session.output())
    }
}

impl<E: Engine> Default for Slot<E> {
    fn default() -> Self {
        Self {
            session: None,
            inflater: Inflater::default(),
            spare: Vec::new(),
            len: 0,
            status: None,
        }
    }
}

/// A format as a device makes and reads it.
struct Offloaded<E: Engine> {
    device: &'static Device<E>,
    format: Format,
    info: &'static Info,
}

impl<E: Engine> Codec for Offloaded<E> {
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
        let level = level
            .0
            .clamp(*self.info.levels.start(), *self.info.levels.end());
        let slot = ws.get::<Slot<E>>();
        match self.device.pack(slot, raw, level) {
            Ok(()) => {
                let packed = &slot.output().expect("just used")[..slot.len];
                self.format
                    .body_mut(out)?
                    .get_mut(..packed.len())?
                    .copy_from_slice(packed);
                Some(self.format.seal(raw, out, packed.len()))
            }
            Err(why) => {
                self.device.packing.spill(why);
                if matches!(why, Spill::Failed | Spill::Wrong) {
                    self.device.packing.fault();
                }
                cpu::pack(self.format, raw, level, out, ws)
            }
        }
    }

    fn unpack(
        &self,
        packed: &[u8],
        _: &[u8],
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Result<(), DecodeError> {
        let slot = ws.get::<Slot<E>>();
        let readable = self.device.reach.far || self.format == Format::W4k;
        let offloaded = match self.format.open(packed).filter(|_| readable) {
            Some((body, trailer)) => self
                .device
                .unpack(slot, body, out, |raw| self.format.fits(trailer, raw)),
            None => Err(Spill::Declined),
        };
        let Err(why) = offloaded else { return Ok(()) };
        self.device.unpacking.spill(why);
        libdeflate::unpack(self.format, packed, out, &mut slot.inflater)?;
        if matches!(why, Spill::Failed | Spill::Wrong) {
            self.device.unpacking.fault();
        }
        Ok(())
    }
}

impl<E: Engine> Debug for Offloaded<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, format, .. } = self;
        f.debug_struct("Offloaded")
            .field("format", format)
            .field("usage", &device.usage())
            .finish_non_exhaustive()
    }
}

/// Bytes that pack to about half, long enough for any device's reach.
fn trial() -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 28) as u8
    };
    (0..64 << 10).map(|_| next()).collect()
}

fn unfit<E: Engine>(what: &str, why: Spill, slot: &Slot<E>) -> Unavailable {
    match (why, slot.status) {
        (Spill::Wrong, _) => Unavailable(format!(
            "the device answers, but did not {what} a trial chunk rightly"
        )),
        (_, Some(Fault::Failed(status))) => Unavailable(format!(
            "the device answers, but did not {what} a trial chunk (status {status})"
        )),
        (_, Some(Fault::Hung)) => {
            Unavailable(format!("the device did not {what} a trial chunk in time"))
        }
        _ => Unavailable(format!(
            "the device answers, but is too busy to {what} a trial chunk"
        )),
    }
}

/// Operations that may be left behind before a device is given up: each keeps some megabytes that cannot be freed.
const ABANDONED_MAX: u32 = 8;
