//! How much processor time packing really gets.
//!
//! `workers` threads are not `workers` processors: the receiver may share them (loopback), a quota may bind, neighbours
//! may steal. Processor time over time on the clock shows it, per chunk; what it misses shows in who waits for whom. If
//! the link runs dry while workers are busy, we asked too much of them; if more bytes wait for the link than are being packed,
//! they can do more. This second signal, the trim, moves slowly and little, or choices would swing: the solved weights do
//! the work. It never asks for all that workers have: to hand chunks over takes time as well.
//!
//! Neighbours: [`crate::rate`] gives the verdict, [`crate::adaptive`] the outcomes. Units: nanoseconds.

use narrows_core::Gauges;

use crate::{rate::RateVerdict, tuning::tuning};

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
            trim: tuning().cpu_trim_max,
        }
    }
}

impl CpuCapacity {
    /// A chunk took this much.
    pub fn learn(&mut self, cpu_ns: u64, wall_ns: u64) {
        // Short work fits between two interruptions and would say nothing.
        if cpu_ns < tuning().cpu_short_ns {
            return;
        }
        self.cpu_ns = self.cpu_ns * tuning().cpu_fade + cpu_ns as f32;
        self.wall_ns = self.wall_ns * tuning().cpu_fade + wall_ns.max(cpu_ns) as f32;
    }

    /// A window of the link ended with `verdict`; frames are of some `frame_len` bytes.
    pub fn judge(&mut self, verdict: RateVerdict, gauges: &Gauges, frame_len: f32) {
        if !tuning().rule_cpu_trim {
            return;
        }
        match verdict {
            RateVerdict::Idle if gauges.packing >= gauges.workers.max(1) => {
                self.trim *= tuning().cpu_trim_down
            }
            RateVerdict::Link if gauges.queued_bytes as f32 > gauges.packing as f32 * frame_len => {
                self.trim *= tuning().cpu_trim_up
            }
            _ => {}
        }
        self.trim = self
            .trim
            .clamp(tuning().cpu_trim_min, tuning().cpu_trim_max);
    }

    /// Share of its wall time packing spends on a processor, 0 to 1.
    #[must_use]
    pub fn efficiency(&self) -> f32 {
        if self.wall_ns > 0.0 && tuning().rule_cpu_efficiency {
            (self.cpu_ns / self.wall_ns).clamp(tuning().cpu_efficiency_min, 1.0)
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
        assert_eq!(effort.trim(), tuning().cpu_trim_max);
        let busy = Gauges { packing: 2, ..idle };
        (0..99).for_each(|_| effort.judge(RateVerdict::Idle, &busy, 1e3));
        assert_eq!(effort.trim(), tuning().cpu_trim_min);
        // Workers are as busy where there is room in the queue as where it is full enough.
        effort.judge(
            RateVerdict::Link,
            &Gauges {
                queued_bytes: 2000,
                ..busy
            },
            1e3,
        );
        assert_eq!(effort.trim(), tuning().cpu_trim_min);
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
        assert_eq!(effort.trim(), tuning().cpu_trim_max);
    }
}
