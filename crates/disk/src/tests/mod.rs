//! Tests of the whole store.

use crate::format::{
    FormatError,
    unit::{HEADER, Unit},
};

use std::sync::Arc;

use crate::{
    Settings, Tuning,
    backing::{Geometry, SimulatedDevice},
};

mod basic;
mod crash;
mod flips;
mod golden;
mod threads;
mod upkeep;

/// A device of so many segments of 64 KiB.
fn device(segments: usize) -> Arc<SimulatedDevice> {
    Arc::new(SimulatedDevice::new(segments << 16, Geometry::default()))
}

/// Settings without a thread of its own, so that a test is the same each time.
fn quiet() -> Settings {
    let tuning = Tuning {
        checkpoint_every: 512 << 10,
        warm_bytes: 128 << 10,
        ..Tuning::default()
    };
    Settings::default().background(false).tuning(tuning)
}

/// `len` bytes that shrink, different for each value.
fn bytes_of(value: u64, len: usize) -> Vec<u8> {
    let mut out = noise(value, len);
    for (i, byte) in out.iter_mut().enumerate() {
        if i % 512 > 200 {
            *byte = value as u8;
        }
    }
    out
}

/// `len` bytes that do not shrink, different for each value.
fn noise(value: u64, len: usize) -> Vec<u8> {
    let mut state = value.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out
}

/// Bugs that the proof must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// The backing is never flushed.
    SkipSync,
    /// Dead segments are free before the checkpoint is durable.
    FreeEarly,
    /// Batches behind a missing one are replayed.
    ReplayPastGap,
    /// Writes with FUA are acknowledged before they are durable.
    AcknowledgeEarly,
    /// Payloads are not checked.
    SkipChecksum,
    /// The same copy of the superblock is always written first, whichever is whole.
    SuperblockOrder,
}

/// What a store that skips checksums makes of a unit.
pub(crate) fn unchecked<'a>(
    sabotage: Option<Sabotage>,
    parsed: Result<Unit<'a>, FormatError>,
    bytes: &'a [u8],
) -> Result<Unit<'a>, FormatError> {
    if sabotage != Some(Sabotage::SkipChecksum) || parsed.is_ok() {
        return parsed;
    }
    let len = usize::from(u16::from_le_bytes([bytes[4], bytes[5]]));
    let packed = bytes.get(HEADER..HEADER + len);
    Ok(Unit {
        codec: bytes[6],
        blocks: usize::from(bytes[7]),
        packed: packed.unwrap_or(&[]),
    })
}
