//! What a job took.

use crate::{Options, client::Tally};

/// A job's numbers. Seconds and bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// `pack`, `unpack` or `copy`.
    pub op: &'static str,
    /// With what.
    pub method: crate::Method,
    /// Level that was asked for.
    pub level: i16,
    /// Bytes of a block.
    pub block_len: usize,
    /// Bytes of the file that is not packed.
    pub raw_bytes: u64,
    /// Bytes of the one that is; of a copy, what came back.
    pub packed_bytes: u64,
    /// From the job's begin until the file was written: the turn-around.
    pub total_s: f64,
    /// What the server's workers took for its blocks, if all of them work at once. Of a copy, that is nothing much.
    pub device_s: f64,
    /// How long a block waited for a worker there: the mean, and the longest.
    pub queue_mean_s: f64,
    /// The longest such wait.
    pub queue_max_s: f64,
    /// Processor time of this process for the job.
    pub client_cpu_s: f64,
    /// Processor time of the server's workers for the job, and of the whole server meanwhile; absent where it was not
    /// told.
    pub server_cpu_s: Option<(f64, f64)>,
    /// Who worked at the server, at which level, how many at once; absent where nobody did.
    pub server: Option<(String, i16, u32)>,
    /// Who worked here on what was spilled.
    pub own_backend: String,
    /// Blocks.
    pub blocks: u64,
    /// Blocks of the server's that are in the file.
    pub remote_blocks: u64,
    /// Blocks done here, by reason.
    pub spilled: Spilled,
    /// Answers that came when the block had been done here.
    pub late_answers: u64,
    /// Blocks that packing did not shrink; the file has them as they were.
    pub stored_blocks: u64,
    /// Why the server was given up.
    pub server_lost: Option<String>,
    /// What came back was compared with what was sent, or with the file's checksums.
    pub verified: bool,
    /// Bytes on the link, there and back.
    pub wire_bytes: (u64, u64),
    /// Links lost and replaced.
    pub resumed: u64,
}

/// Blocks done on this side, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spilled {
    /// The server said that they waited too long.
    pub busy: u64,
    /// It sent wrong data back.
    pub bad: u64,
    /// It owed them for too long.
    pub slow: u64,
    /// It was gone, or refused, or there was none.
    pub lost: u64,
}

impl Spilled {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.busy + self.bad + self.slow + self.lost
    }
}

impl Report {
    pub(crate) fn new(
        op: &'static str,
        options: &Options,
        tally: &Tally,
        raw_bytes: u64,
        packed_bytes: u64,
    ) -> Self {
        let (counts, told) = (tally.counts, tally.told);
        let answered = counts.remote + counts.busy + counts.bad + counts.late;
        let stats = tally.stats.unwrap_or_default();
        Self {
            op,
            method: options.method,
            level: options.level,
            block_len: options.block_len,
            raw_bytes,
            packed_bytes,
            total_s: tally.elapsed.as_secs_f64(),
            device_s: told.device.as_secs_f64() / f64::from(tally.workers.max(1)),
            queue_mean_s: told.queue.as_secs_f64() / answered.max(1) as f64,
            queue_max_s: told.queue_max.as_secs_f64(),
            client_cpu_s: tally.cpu.as_secs_f64(),
            server_cpu_s: told.summary.map(|took| {
                (
                    took.work_cpu_ns as f64 / 1e9,
                    took.process_cpu_ns as f64 / 1e9,
                )
            }),
            server: tally
                .backend
                .clone()
                .map(|backend| (backend, tally.level, tally.workers)),
            own_backend: String::new(),
            blocks: tally.blocks,
            remote_blocks: counts.remote,
            spilled: Spilled {
                busy: counts.busy,
                bad: counts.bad,
                slow: counts.slow,
                lost: counts.lost,
            },
            late_answers: counts.late,
            stored_blocks: 0,
            server_lost: tally.lost.clone(),
            verified: false,
            wire_bytes: (stats.sent_wire, stats.received_wire),
            resumed: stats.resumed,
        }
    }

    /// Raw over packed.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.raw_bytes as f64 / self.packed_bytes.max(1) as f64
    }

    /// Raw megabytes (10⁶) a second of the turn-around.
    #[must_use]
    pub fn mb_s(&self) -> f64 {
        self.raw_bytes as f64 / 1e6 / self.total_s.max(1e-9)
    }
}
