//! What the three stages can take, frozen for one solve: turns expected costs into times.

use narrows_core::Candidate;

use crate::{prior::PriorCost, solve::Times, tuning::tuning};

/// Capacities of packing, link and receiver.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Capacity {
    /// Processors that pack.
    pub(crate) pack: f32,
    /// Bytes per nanosecond of the link.
    pub(crate) link: f32,
    /// Processors that unpack, and what one thread of them has.
    pub(crate) unpack: f32,
    pub(crate) unpack_one: f32,
    /// Processor time that the receiver takes for a raw byte beside unpacking it, and as much for a packed one.
    pub(crate) io: f32,
    /// What a processor's time costs where it is others' too.
    pub(crate) cpu_price: f32,
    /// Both ends have the same processors.
    pub(crate) is_shared: bool,
}

impl Capacity {
    /// The three stages' nanoseconds per raw byte. A candidate other than raw is a forecast, to be believed with so
    /// much `caution`, 1 or more.
    pub(crate) fn times(
        &self,
        cost: PriorCost,
        candidate: &Candidate,
        is_raw: bool,
        caution: f32,
    ) -> Times {
        // A frame that names history waits for the one before it: one thread unpacks.
        let unpackers = if candidate.history_len > 0 {
            self.unpack_one
        } else {
            self.unpack
        };
        let unpack_ns = cost.unpack / unpackers + self.io * (1.0 + cost.size) / self.unpack;
        let pack_ns = if self.is_shared {
            cost.pack + cost.unpack
        } else {
            cost.pack
        };
        let cpu_ns = if is_raw { 0.0 } else { cost.pack + cost.unpack };
        let times = [
            pack_ns / self.pack,
            cost.size / self.link + self.cpu_price * cpu_ns,
            unpack_ns,
        ];
        if is_raw {
            times
        } else {
            // Raw is certain, everything else a forecast.
            times.map(|time| time * (caution * (1.0 + tuning().choice_raw_margin)))
        }
    }
}
