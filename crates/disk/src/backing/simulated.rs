//! A device in memory that keeps every write, discard and flush in order, so that a test can build
//! any state a crash may have left.
//!
//! A crash at a point of the record may keep, lose, tear (at 512 bytes or 4 KiB) or reorder every
//! write and discard that no flush had covered; what a flush covered is kept. The choice is a pure
//! function of a [`CrashChoice`], so a failure is repeated from its seed. [`FaultPlan`] makes calls
//! fail.

use parking_lot::Mutex;

use super::{Backing, BackingError, Geometry, check_range};

/// One call as the device saw it, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Bytes written.
    Write {
        /// First byte.
        offset: u64,
        /// What was written.
        bytes: Vec<u8>,
    },
    /// Content given up.
    Discard {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Everything before is durable.
    Flush,
}

/// A kind of call, to make one fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// [`Backing::read`]
    Read,
    /// [`Backing::write`]
    Write,
    /// [`Backing::flush`]
    Flush,
    /// [`Backing::discard`]
    Discard,
}

/// Which calls fail, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultPlan {
    /// The kind of call.
    pub call: Call,
    /// Calls of that kind that still succeed.
    pub after: u64,
    /// Calls that fail then; afterwards they succeed again.
    pub count: u64,
    /// Report "no space" rather than an I/O error.
    pub no_space: bool,
    /// A failing write puts this many of its bytes first.
    pub written: usize,
}

/// One way a crash may turn out. Every decision is drawn from `seed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashChoice {
    /// Calls of the record that happened before the crash.
    pub at: usize,
    /// Of what was pending, out of 256: how likely each write or discard is kept whole. 256 keeps
    /// all, 0 none.
    pub keep: u32,
    /// Of what was not kept whole, out of 256: how likely it is kept in part.
    pub tear: u32,
    /// Pending calls take effect in a random order, not in the order of the calls.
    pub reorder: bool,
    /// If given, exactly the pending calls of its bits are kept whole, and no other in part.
    pub subset: Option<u64>,
    /// Draws all of it.
    pub seed: u64,
}

/// Where [`SimulatedDevice::crash`] has got to, so that crashes at later and later points cost no
/// replay of the record.
#[derive(Debug, Clone, Default)]
pub struct CrashCursor {
    /// Calls of the record that are in `durable`.
    applied: usize,
    durable: Vec<u8>,
}

/// The device. Its content and its record are behind one lock.
#[derive(Debug)]
pub struct SimulatedDevice {
    state: Mutex<State>,
    geometry: Geometry,
}

#[derive(Debug)]
struct State {
    /// What it held when the record began.
    base: Vec<u8>,
    /// What a read sees.
    now: Vec<u8>,
    record: Vec<Op>,
    recording: bool,
    fault: Option<FaultPlan>,
    calls: [u64; 4],
}

impl SimulatedDevice {
    /// A device of `size` zero bytes.
    #[must_use]
    pub fn new(size: usize, geometry: Geometry) -> Self {
        Self::from_image(vec![0; size], geometry)
    }

    /// A device that holds `image`, all of it durable.
    #[must_use]
    pub fn from_image(image: Vec<u8>, geometry: Geometry) -> Self {
        Self {
            state: Mutex::new(State {
                now: image.clone(),
                base: image,
                record: Vec::new(),
                recording: true,
                fault: None,
                calls: [0; 4],
            }),
            geometry,
        }
    }

    /// A device that holds `image` and keeps no record.
    #[must_use]
    pub fn unrecorded(image: Vec<u8>, geometry: Geometry) -> Self {
        Self {
            state: Mutex::new(State {
                now: image,
                base: Vec::new(),
                record: Vec::new(),
                recording: false,
                fault: None,
                calls: [0; 4],
            }),
            geometry,
        }
    }

    /// Calls recorded so far: the position a crash now would have.
    #[must_use]
    pub fn position(&self) -> usize {
        self.state.lock().record.len()
    }

    /// Calls of a kind so far, failed ones too.
    #[must_use]
    pub fn calls(&self, call: Call) -> u64 {
        self.state.lock().calls[call as usize]
    }

    /// What a read of everything would see.
    #[must_use]
    pub fn image(&self) -> Vec<u8> {
        self.state.lock().now.clone()
    }

    /// Sets or clears what fails from now on.
    pub fn set_fault(&self, fault: Option<FaultPlan>) {
        self.state.lock().fault = fault;
    }

    /// Calls that a crash at `at` would find pending: after the last flush before.
    #[must_use]
    pub fn pending(&self, at: usize) -> usize {
        let state = self.state.lock();
        at - flushed(&state.record[..at])
    }

    /// What the device may hold after a crash, put into `image`, whose memory is used again.
    pub fn crash(&self, choice: CrashChoice, cursor: &mut CrashCursor, image: &mut Vec<u8>) {
        let state = self.state.lock();
        let record = &state.record[..choice.at.min(state.record.len())];
        let flushed = flushed(record);
        if cursor.durable.is_empty() || cursor.applied > flushed {
            cursor.durable.clone_from(&state.base);
            cursor.applied = 0;
        }
        for op in &record[cursor.applied..flushed] {
            apply(&mut cursor.durable, op);
        }
        cursor.applied = flushed;
        image.clone_from(&cursor.durable);
        let mut dice = Dice(choice.seed);
        let mut pending: Vec<&Op> = record[flushed..].iter().collect();
        if choice.reorder {
            for i in (1..pending.len()).rev() {
                pending.swap(i, dice.below(i as u64 + 1) as usize);
            }
        }
        for (i, op) in pending.into_iter().enumerate() {
            let kept = match choice.subset {
                Some(subset) => subset >> i & 1 == 1,
                None => dice.below(256) < u64::from(choice.keep),
            };
            if kept {
                apply(image, op);
            } else if choice.subset.is_none() && dice.below(256) < u64::from(choice.tear) {
                apply_torn(image, op, &mut dice);
            }
        }
    }

    /// The content, as a read sees it.
    #[must_use]
    pub fn into_image(self) -> Vec<u8> {
        self.state.into_inner().now
    }
}

/// Calls that the last flush of a record covers.
fn flushed(record: &[Op]) -> usize {
    let last = record.iter().rposition(|op| *op == Op::Flush);
    last.map_or(0, |last| last + 1)
}

/// What discarded ranges read as; not zero, so that nothing relies on zeroes.
const DISCARDED: u8 = 0xdc;

fn apply(image: &mut [u8], op: &Op) {
    match op {
        Op::Write { offset, bytes } => {
            image[*offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        Op::Discard { offset, len } => image[*offset as usize..][..*len as usize].fill(DISCARDED),
        Op::Flush => {}
    }
}

/// Keeps a part of one call: a prefix, a suffix or a random choice of its sectors, of 512 bytes or
/// 4 KiB.
fn apply_torn(image: &mut [u8], op: &Op, dice: &mut Dice) {
    let (offset, len) = match op {
        Op::Write { offset, bytes } => (*offset as usize, bytes.len()),
        Op::Discard { offset, len } => (*offset as usize, *len as usize),
        Op::Flush => return,
    };
    let sector = if dice.below(2) == 0 { 512 } else { 4096 };
    let sectors = len.div_ceil(sector) as u64;
    let (manner, cut) = (dice.below(3), dice.below(sectors + 1));
    for index in 0..sectors {
        let kept = match manner {
            0 => index < cut,
            1 => index >= cut,
            _ => dice.below(2) == 0,
        };
        if !kept {
            continue;
        }
        let at = index as usize * sector;
        let until = (at + sector).min(len);
        match op {
            Op::Write { bytes, .. } => {
                image[offset + at..offset + until].copy_from_slice(&bytes[at..until]);
            }
            _ => image[offset + at..offset + until].fill(DISCARDED),
        }
    }
}

/// splitmix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

impl State {
    /// Counts a call; the error it fails with, if it is to fail.
    fn count(&mut self, call: Call, offset: u64, len: u64) -> Option<(BackingError, usize)> {
        self.calls[call as usize] += 1;
        let fault = self.fault.as_mut().filter(|fault| fault.call == call)?;
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        fault.count = fault.count.checked_sub(1)?;
        let reason = "injected".to_owned();
        let error = if fault.no_space {
            BackingError::NoSpace {
                offset,
                len,
                reason,
            }
        } else {
            let call = match call {
                Call::Read => "read",
                Call::Write => "write",
                Call::Flush => "flush",
                Call::Discard => "discard",
            };
            BackingError::Io {
                call,
                offset,
                len,
                code: 5,
                reason,
            }
        };
        Some((error, fault.written))
    }

    fn run(&mut self, op: Op) {
        apply(&mut self.now, &op);
        if self.recording {
            self.record.push(op);
        }
    }
}

impl Backing for SimulatedDevice {
    fn size(&self) -> u64 {
        self.state.lock().now.len() as u64
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn name(&self) -> String {
        "simulated device".to_owned()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BackingError> {
        let mut state = self.state.lock();
        check_range(offset, out.len() as u64, state.now.len() as u64)?;
        let unit = u64::from(self.geometry.read_alignment);
        assert!(
            offset.is_multiple_of(unit) && (out.len() as u64).is_multiple_of(unit),
            "unaligned read of {} at {offset}",
            out.len()
        );
        if let Some((error, _)) = state.count(Call::Read, offset, out.len() as u64) {
            return Err(error);
        }
        out.copy_from_slice(&state.now[offset as usize..][..out.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, parts: &[&[u8]]) -> Result<(), BackingError> {
        let mut bytes = parts.concat();
        let len = bytes.len() as u64;
        let mut state = self.state.lock();
        check_range(offset, len, state.now.len() as u64)?;
        let unit = u64::from(self.geometry.alignment);
        assert!(
            offset.is_multiple_of(unit) && len.is_multiple_of(unit),
            "unaligned write of {len} at {offset}"
        );
        let failed = state.count(Call::Write, offset, len);
        if let Some((_, written)) = &failed {
            bytes.truncate(*written);
        }
        if !bytes.is_empty() {
            state.run(Op::Write { offset, bytes });
        }
        failed.map_or(Ok(()), |(error, _)| Err(error))
    }

    fn flush(&self) -> Result<(), BackingError> {
        let mut state = self.state.lock();
        if let Some((error, _)) = state.count(Call::Flush, 0, 0) {
            return Err(error);
        }
        state.run(Op::Flush);
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), BackingError> {
        let mut state = self.state.lock();
        check_range(offset, len, state.now.len() as u64)?;
        if let Some((error, _)) = state.count(Call::Discard, offset, len) {
            return Err(error);
        }
        state.run(Op::Discard { offset, len });
        Ok(())
    }

    fn grow(&self, size: u64) -> Result<(), BackingError> {
        let mut state = self.state.lock();
        let size = size as usize;
        if size > state.now.len() {
            state.now.resize(size, 0);
            if state.recording {
                state.base.resize(size, 0);
            }
        }
        Ok(())
    }
}
