//! How much processor time packing really gets.
//!
//! `workers` threads are not `workers` processors: the receiver may share them (loopback), a quota may bind, neighbours
//! may steal. Processor time over time on the clock shows it, per chunk; what it misses shows in who waits for whom: a
//! link that runs dry while workers are busy means we asked too much of them, and more before the link than there is in
//! work that they could do more. That second signal moves slowly and little (a trim); the solved prices do the work, or
//! they would swing. It never asks for all that workers have: to hand chunks over takes time as well.
//!
//! Neighbours: [`crate::rate`] gives the verdict, [`crate::adaptive`] the outcomes. Units: nanoseconds.

use narrows_core::Gauges;

use crate::rate::RateVerdict;

/// Processors that packing can use.
#[derive(Debug, Clone, Copy)]
pub struct CpuCapacity {
    cpu_ns: f32,
    wall_ns: f32,
    trim: f32,
}

impl Default for CpuCapacity {
    fn default() -> Self {
        Self {
            cpu_ns: 0.0,
            wall_ns: 0.0,
            trim: TRIM_MAX,
        }
    }
}

impl CpuCapacity {
    /// A chunk took this much.
    pub fn learn(&mut self, cpu_ns: u64, wall_ns: u64) {
        // Short work fits between two interruptions and would say nothing.
        if cpu_ns < SHORT_NS {
            return;
        }
        self.cpu_ns = self.cpu_ns * FADE + cpu_ns as f32;
        self.wall_ns = self.wall_ns * FADE + wall_ns.max(cpu_ns) as f32;
    }

    /// A window of the link ended with `verdict`; frames are of some `frame_len` bytes.
    pub fn judge(&mut self, verdict: RateVerdict, gauges: &Gauges, frame_len: f32) {
        match verdict {
            RateVerdict::Idle if gauges.packing >= gauges.workers.max(1) => self.trim *= 0.96,
            RateVerdict::Link if gauges.queued_bytes as f32 > gauges.packing as f32 * frame_len => {
                self.trim *= 1.02
            }
            _ => {}
        }
        self.trim = self.trim.clamp(TRIM_MIN, TRIM_MAX);
    }

    /// Share of its wall time packing spends on a processor, 0 to 1.
    #[must_use]
    pub fn efficiency(&self) -> f32 {
        if self.wall_ns > 0.0 {
            (self.cpu_ns / self.wall_ns).clamp(0.05, 1.0)
        } else {
            1.0
        }
    }

    /// What queues say besides: less where the link ran dry.
    #[must_use]
    pub fn trim(&self) -> f32 {
        self.trim
    }
}

const FADE: f32 = 0.96;
const SHORT_NS: u64 = 30_000;
/// Least and most of the workers' time that packing is reckoned with. With 1.1 at most, as where the link was full for
/// long, three times as many scenes of the simulator fell short of the bound as with 0.97 or 0.98.
const TRIM_MIN: f32 = 0.6;
const TRIM_MAX: f32 = 0.97;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_on_the_clock_without_a_processor_counts_against_it() {
        let mut effort = CpuCapacity::default();
        assert_eq!(effort.efficiency(), 1.0);
        (0..100).for_each(|_| effort.learn(1_000_000, 2_000_000));
        assert!((effort.efficiency() - 0.5).abs() < 0.01);
    }

    #[test]
    fn a_link_that_runs_dry_trims_only_while_workers_are_busy() {
        let mut effort = CpuCapacity::default();
        let idle = Gauges {
            workers: 2,
            packing: 0,
            ..Gauges::default()
        };
        effort.judge(RateVerdict::Idle, &idle, 1e3);
        assert_eq!(effort.trim(), TRIM_MAX);
        let busy = Gauges { packing: 2, ..idle };
        (0..99).for_each(|_| effort.judge(RateVerdict::Idle, &busy, 1e3));
        assert_eq!(effort.trim(), TRIM_MIN);
        // Workers are as busy where there is room in the queue as where it is full enough.
        effort.judge(
            RateVerdict::Link,
            &Gauges {
                queued_bytes: 2000,
                ..busy
            },
            1e3,
        );
        assert_eq!(effort.trim(), TRIM_MIN);
        (0..99).for_each(|_| {
            effort.judge(
                RateVerdict::Link,
                &Gauges {
                    queued_bytes: 2001,
                    ..busy
                },
                1e3,
            )
        });
        assert_eq!(effort.trim(), TRIM_MAX);
    }
}
