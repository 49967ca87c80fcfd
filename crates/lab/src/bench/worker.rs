//! One case of [`bench`](super), in a process of its own: packs and unpacks standard input until the time is over.
//!
//! Threads take chunks in turn from a counter, each with a workspace of its own that lives as long as the case, as
//! workers do. The clock runs from the first thread's start to the last one's end; processor time is the threads' own.
//! Of several passes the fastest counts: what disturbs a pass only ever makes it slower. Every chunk is compared after
//! unpacking.

use std::{
    io::{self, Read},
    sync::{
        Mutex,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread,
    time::Instant,
};

use narrows_core::{Candidate, Codec, Workspace};
use narrows_io::meter::{Memory, thread_cpu_ns};
use serde::{Deserialize, Serialize};

use crate::{
    energy,
    result::{Case, Row},
};

/// What is to be measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// `zstd:3`.
    pub codec: String,
    /// Length of chunks.
    pub chunk_bytes: u64,
    /// How many threads.
    pub threads: u64,
    /// Bytes before a chunk that it may refer to, where the codec can.
    pub history_bytes: u64,
    /// How long packing is repeated, and unpacking again.
    pub seconds: f64,
}

/// What was measured. Processor times are of all threads together, for all of the data.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Bytes of the data.
    pub raw_bytes: u64,
    /// Packed, a chunk that does not shrink counted raw.
    pub packed_bytes: u64,
    /// The same with every chunk rounded up to 512 bytes.
    pub packed_bytes_512: u64,
    /// The same with every chunk rounded up to 4 KiB.
    pub packed_bytes_4k: u64,
    /// Share of chunks that shrank.
    pub shrank: f64,
    /// The fastest pass, on the clock.
    pub pack_s: f64,
    /// Its processor time.
    pub pack_cpu_s: f64,
    /// Processors that packing really had, of all passes: processor time over time on the clock. Less than the threads
    /// where others wanted the processors, or there are fewer.
    pub processors: f64,
    /// The fastest pass of unpacking.
    pub unpack_s: f64,
    /// Its processor time.
    pub unpack_cpu_s: f64,
    /// Most resident memory over what was resident before packing began: contexts and tables of all threads.
    pub memory_bytes: Option<u64>,
    /// Of all passes of packing, per pass.
    pub pack_joules: Option<f64>,
}

/// Why a case came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// No such codec.
    #[error(transparent)]
    Codec(#[from] narrows::UnknownCodec),
    /// The data could not be read.
    #[error("cannot read the data: {0}")]
    Read(#[from] io::Error),
    /// The job is out of bounds.
    #[error("{0}")]
    Job(&'static str),
    /// What was unpacked is not what was packed.
    #[error("{codec}: chunk {chunk} did not come back as it was")]
    Differs {
        /// Which codec.
        codec: String,
        /// Which chunk.
        chunk: usize,
    },
}

/// Packed form of a chunk; empty where it did not shrink.
type Slot = Mutex<Vec<u8>>;

/// Runs `job` on what `input` holds.
///
/// # Errors
/// [`WorkerError`].
pub fn run(job: &Job, mut input: impl Read) -> Result<Measured, WorkerError> {
    let registry = narrows::default_registry();
    let mut raw = Vec::new();
    input.read_to_end(&mut raw)?;
    if raw.is_empty() || job.chunk_bytes == 0 || !(1..=1024).contains(&job.threads) {
        return Err(WorkerError::Job(
            "there must be data, a chunk length and 1 to 1024 threads",
        ));
    }
    let candidate = narrows::candidate(&registry, &job.codec, job.history_bytes as usize)?;
    let (packer, _) = narrows::packer(&registry, &job.codec)?;
    let chunk_len = usize::try_from(job.chunk_bytes).map_or(raw.len(), |len| len.min(raw.len()));
    let slots: Vec<Slot> = raw
        .chunks(chunk_len)
        .map(|chunk| Mutex::new(vec![1; chunk.len()]))
        .collect();
    let case = Bench {
        codec: &*packer.codec,
        candidate,
        raw: &raw,
        chunk_len,
        slots: &slots,
    };
    let mut workspaces: Vec<_> = (0..job.threads).map(|_| Scratch::new(chunk_len)).collect();

    reset_peak();
    let before = Memory::of_process().ok();
    let meter = energy::Meter::open().ok();
    let (packed, passes, all) = case.passes(job.seconds, &mut workspaces, Bench::pack);
    let pack_joules = meter
        .and_then(|meter| meter.joules())
        .map(|joules| joules / f64::from(passes));
    let (unpacked, ..) = case.passes(job.seconds, &mut workspaces, Bench::unpack);
    let after = Memory::of_process().ok();
    case.compare(&mut workspaces[0], &job.codec)?;

    let lens: Vec<u64> = (0..slots.len())
        .map(|number| case.stored_len(number))
        .collect();
    let rounded = |granule: u64| {
        lens.iter()
            .map(|len| len.next_multiple_of(granule))
            .sum::<u64>()
    };
    let shrank = slots
        .iter()
        .filter(|slot| !slot.lock().expect(POISON).is_empty())
        .count();
    Ok(Measured {
        raw_bytes: raw.len() as u64,
        packed_bytes: lens.iter().sum(),
        packed_bytes_512: rounded(512),
        packed_bytes_4k: rounded(4096),
        shrank: shrank as f64 / slots.len() as f64,
        pack_s: packed.wall_s,
        pack_cpu_s: packed.cpu_s,
        processors: all.cpu_s / all.wall_s,
        unpack_s: unpacked.wall_s,
        unpack_cpu_s: unpacked.cpu_s,
        memory_bytes: before
            .zip(after)
            .map(|(before, after)| after.peak.saturating_sub(before.resident)),
        pack_joules,
    })
}

#[derive(Clone, Copy)]
struct Pass {
    wall_s: f64,
    cpu_s: f64,
}

struct Bench<'a> {
    codec: &'a dyn Codec,
    candidate: Candidate,
    raw: &'a [u8],
    chunk_len: usize,
    slots: &'a [Slot],
}

/// What a thread keeps from pass to pass.
struct Scratch {
    ws: Workspace,
    out: Vec<u8>,
}

impl Scratch {
    fn new(chunk_len: usize) -> Self {
        // Touched, so that the pages count as data and not as the codec's.
        Self {
            ws: Workspace::default(),
            out: vec![1; chunk_len],
        }
    }
}

/// Ends the other threads' passes with the first's.
struct Over<'a>(&'a AtomicUsize);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(OVER, Release);
    }
}

impl Bench<'_> {
    /// Passes over all chunks, shared among the threads, until `seconds` are over; see [`fastest`].
    ///
    /// Threads live as long as the passes and do not sleep between them: fresh ones, and those that wake, begin on one
    /// processor more often than not, and a pass of some milliseconds is over before they have moved apart.
    fn passes(
        &self,
        seconds: f64,
        threads: &mut [Scratch],
        work: fn(&Self, usize, &mut Scratch),
    ) -> (Pass, u32, Pass) {
        let (turn, next, done, cpu_ns) = (
            AtomicUsize::new(0),
            AtomicUsize::new(0),
            AtomicUsize::new(0),
            AtomicU64::new(0),
        );
        let share = |scratch: &mut Scratch| {
            let cpu = thread_cpu_ns();
            loop {
                let number = next.fetch_add(1, Relaxed);
                if number >= self.slots.len() {
                    break;
                }
                work(self, number, scratch);
            }
            cpu_ns.fetch_add(thread_cpu_ns() - cpu, Relaxed);
            done.fetch_add(1, Release);
        };
        let (own, others) = threads.split_first_mut().expect("there is a thread");
        thread::scope(|scope| {
            // Also where a codec panics on this thread, or the system has no more threads: the scope waits for the others,
            // and they for it.
            let _over = Over(&turn);
            let others: Vec<_> = others
                .iter_mut()
                .map(|scratch| {
                    scope.spawn(|| {
                        for pass in 1.. {
                            while turn.load(Acquire) < pass {
                                thread::yield_now();
                            }
                            if turn.load(Acquire) == OVER {
                                return;
                            }
                            share(scratch);
                        }
                    })
                })
                .collect();
            fastest(seconds, || {
                for counter in [&next, &done] {
                    counter.store(0, Relaxed);
                }
                cpu_ns.store(0, Relaxed);
                let began = Instant::now();
                turn.fetch_add(1, Release);
                share(own);
                while done.load(Acquire) <= others.len() {
                    if others.iter().any(|other| other.is_finished()) {
                        panic!("{POISON}");
                    }
                    thread::yield_now();
                }
                Pass {
                    wall_s: began.elapsed().as_secs_f64(),
                    cpu_s: cpu_ns.load(Relaxed) as f64 / 1e9,
                }
            })
        })
    }

    fn chunk(&self, number: usize) -> (&[u8], &[u8]) {
        let begin = number * self.chunk_len;
        let end = (begin + self.chunk_len).min(self.raw.len());
        let history = begin.saturating_sub(self.candidate.history_len as usize);
        (&self.raw[history..begin], &self.raw[begin..end])
    }

    fn pack(&self, number: usize, scratch: &mut Scratch) {
        let (history, raw) = self.chunk(number);
        let out = &mut scratch.out[..raw.len() - 1];
        let len = self
            .codec
            .pack(raw, self.candidate.level, history, out, &mut scratch.ws);
        let mut slot = self.slots[number].lock().expect(POISON);
        slot.clear();
        if let Some(len) = len {
            slot.extend_from_slice(&scratch.out[..len]);
        }
    }

    fn unpack(&self, number: usize, scratch: &mut Scratch) {
        let (history, raw) = self.chunk(number);
        let packed = self.slots[number].lock().expect(POISON);
        let out = &mut scratch.out[..raw.len()];
        if packed.is_empty() {
            out.copy_from_slice(raw);
        } else if self
            .codec
            .unpack(&packed, history, out, &mut scratch.ws)
            .is_err()
        {
            // Told by `compare`, outside the clock.
            out.fill(0);
        }
    }

    fn compare(&self, scratch: &mut Scratch, codec: &str) -> Result<(), WorkerError> {
        for number in 0..self.slots.len() {
            let (history, raw) = self.chunk(number);
            let packed = self.slots[number].lock().expect(POISON);
            let out = &mut scratch.out[..raw.len()];
            if !packed.is_empty()
                && (self
                    .codec
                    .unpack(&packed, history, out, &mut scratch.ws)
                    .is_err()
                    || out != raw)
            {
                return Err(WorkerError::Differs {
                    codec: codec.into(),
                    chunk: number,
                });
            }
        }
        Ok(())
    }

    fn stored_len(&self, number: usize) -> u64 {
        let packed = self.slots[number].lock().expect(POISON).len();
        if packed > 0 {
            packed as u64
        } else {
            self.chunk(number).1.len() as u64
        }
    }
}

/// The fastest of as many passes as begin within `seconds`, how many there were, and all of them together.
fn fastest(seconds: f64, mut pass: impl FnMut() -> Pass) -> (Pass, u32, Pass) {
    let began = Instant::now();
    let (mut best, mut passes) = (pass(), 1);
    let mut all = best;
    while began.elapsed().as_secs_f64() < seconds {
        let next = pass();
        passes += 1;
        all = Pass {
            wall_s: all.wall_s + next.wall_s,
            cpu_s: all.cpu_s + next.cpu_s,
        };
        if next.wall_s < best.wall_s {
            best = next;
        }
    }
    (best, passes, all)
}

/// Sets the process's peak of resident memory to what it is now. Where the kernel does not allow it, reading the data
/// may count as the codec's memory.
fn reset_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

impl Measured {
    /// As a row of results.
    #[must_use]
    pub fn row(&self, case: Case) -> Row {
        let (raw, gb) = (self.raw_bytes as f64, self.raw_bytes as f64 / 1e9);
        let mut row = Row::new(
            case,
            [
                ("ratio", raw / self.packed_bytes as f64),
                ("ratio_512", raw / self.packed_bytes_512 as f64),
                ("ratio_4k", raw / self.packed_bytes_4k as f64),
                ("share_packed", self.shrank),
                ("pack_mb_s", raw / 1e6 / self.pack_s),
                ("unpack_mb_s", raw / 1e6 / self.unpack_s),
                ("pack_cpu_s_per_gb", self.pack_cpu_s / gb),
                ("unpack_cpu_s_per_gb", self.unpack_cpu_s / gb),
                ("processors", self.processors),
            ],
        );
        if let Some(bytes) = self.memory_bytes {
            row.extend([("memory_bytes", bytes as f64)]);
        }
        if let Some(joules) = self.pack_joules {
            row.extend([("pack_joules_per_gb", joules / gb)]);
        }
        row
    }
}

const POISON: &str = "codecs do not panic";
/// The pass after the last.
const OVER: usize = usize::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn job(codec: &str, chunk_bytes: u64, threads: u64, history_bytes: u64) -> Job {
        Job {
            codec: codec.into(),
            chunk_bytes,
            threads,
            history_bytes,
            seconds: 0.0,
        }
    }

    #[test]
    fn sizes_do_not_depend_on_threads_and_rounding_only_adds() {
        let data = crate::sample::unpack();
        let data = &data[..1_500_001];
        let one = run(&job("zstd:1", 16 << 10, 1, 0), data).unwrap();
        let three = run(&job("zstd:1", 16 << 10, 3, 0), data).unwrap();
        assert_eq!(
            (one.packed_bytes, one.raw_bytes),
            (three.packed_bytes, 1_500_001)
        );
        assert!(
            one.packed_bytes < one.packed_bytes_512 && one.packed_bytes_512 < one.packed_bytes_4k
        );
        assert!(one.packed_bytes_4k.is_multiple_of(4096) && one.shrank == 1.0 && one.pack_s > 0.0);
        let longer = run(&job("zstd:1", 256 << 10, 2, 0), data).unwrap();
        let history = run(&job("zstd:1", 16 << 10, 2, 64 << 10), data).unwrap();
        assert!(longer.packed_bytes < one.packed_bytes && history.packed_bytes < one.packed_bytes);
    }

    #[test]
    fn random_bytes_count_as_they_are() {
        let mut data = Vec::new();
        crate::synthetic::write(crate::synthetic::Kind::Random, 100_000, 1, &mut data).unwrap();
        let measured = run(&job("lz4", 4096, 2, 0), data.as_slice()).unwrap();
        assert_eq!((measured.packed_bytes, measured.shrank), (100_000, 0.0));
        // The last chunk is short of a granule.
        assert_eq!(measured.packed_bytes_4k, 25 * 4096);
    }

    // Goal: a panic on the first thread ends the passes, as one on another does. Method: it panics at its first chunk;
    // others do not, so without an end to theirs they wait for ever.
    #[test]
    fn a_panic_on_the_first_thread_ends_the_others() {
        let passes = std::thread::Builder::new().name("first".into()).spawn(|| {
            let registry = narrows::default_registry();
            let (packer, _) = narrows::packer(&registry, "lz4").unwrap();
            let candidate = narrows::candidate(&registry, "lz4", 0).unwrap();
            let raw = [0; 64];
            let slots: Vec<Slot> = raw.iter().map(|_| Mutex::default()).collect();
            let case = Bench {
                codec: &*packer.codec,
                candidate,
                raw: &raw,
                chunk_len: 1,
                slots: &slots,
            };
            let mut workspaces = [Scratch::new(1), Scratch::new(1)];
            case.passes(f64::INFINITY, &mut workspaces, |_, _, _| {
                assert!(
                    thread::current().name() != Some("first"),
                    "as a codec might"
                );
                thread::yield_now();
            });
        });
        let passes = passes.unwrap();
        let until = Instant::now() + std::time::Duration::from_secs(20);
        while !passes.is_finished() {
            assert!(Instant::now() < until, "the other thread still waits");
            thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(passes.join().is_err());
    }

    #[test]
    fn jobs_out_of_bounds_are_told() {
        for (job, data) in [
            (job("lz4", 4096, 0, 0), b"x".as_slice()),
            (job("lz4", 0, 1, 0), b"x"),
            (job("lz4", 1, 1, 0), b""),
        ] {
            assert!(matches!(run(&job, data), Err(WorkerError::Job(_))));
        }
        assert!(matches!(
            run(&job("zsdt", 1, 1, 0), b"x".as_slice()),
            Err(WorkerError::Codec(_))
        ));
        assert!(run(&job("lz4", 1, 1, 0), b"x".as_slice()).is_ok());
    }
}
