//! What codecs cost on the user's data and what this machine takes besides: seconds of measuring.
//!
//! Codecs run as [`bench`](mod@crate::bench) runs them, with the chunk length, the history and the threads that a transfer
//! has. Overhead comes from real transfers of generated data over an emulated link without a limit: random bytes as they
//! are, and runs of zeros and random bytes through LZ4, which packs them for next to nothing; two equations, two unknowns.

use std::{thread, time::Duration};

use narrows::{
    core::units::{Rate, Size},
    io::meter::CpuTime,
};

use super::model::{Cost, Overhead, Place, predict};
use crate::{
    bench::{Bencher, worker::Job},
    data::{Data, DataError, Excerpt},
    race::{Contestant, LinkSpec, RaceError, Racer, Run},
    result::{Case, Row},
    synthetic::Kind,
    trial::median,
};

/// Why nothing could be learnt.
#[derive(Debug, thiserror::Error)]
pub enum CalibrationError {
    /// The data.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A transfer.
    #[error("the calibration's transfer failed: {0}")]
    Race(#[from] RaceError),
    /// A codec.
    #[error("calibrating {codec}: {said}")]
    Codec {
        /// Which.
        codec: String,
        /// What its process said.
        said: String,
    },
}

/// Measures a codec (`zstd:3`) on `sample` as a fixed policy would use it; also as a row of results.
///
/// # Errors
/// [`CalibrationError::Codec`].
pub fn codec(bencher: &Bencher, sample: &Excerpt, codec: &str, threads: u64) -> Result<(Cost, Row), CalibrationError> {
    let fault = |said: String| CalibrationError::Codec { codec: codec.into(), said };
    let registry = narrows::default_registry();
    let chunk_bytes = narrows::Settings::CHUNK_LEN;
    let candidate = narrows::candidate(&registry, codec, chunk_bytes).map_err(|unknown| fault(unknown.to_string()))?;
    let history_bytes = u64::from(candidate.history_len);
    let job = Job { codec: codec.into(), chunk_bytes: chunk_bytes as u64, threads, history_bytes, seconds: CODEC_S };
    let measured = bencher.measure(&job, sample).map_err(fault)?;
    let raw = measured.raw_bytes as f64;
    let cost = Cost {
        size: measured.packed_bytes as f64 / raw,
        pack_s: measured.pack_cpu_s / raw,
        unpack_s: measured.unpack_cpu_s / raw,
        serial_unpack: history_bytes > 0,
        chunk_bytes: chunk_bytes as f64,
    };
    let case = Case {
        part: Some("calibration".into()),
        data_bytes: Some(measured.raw_bytes),
        codec: Some(codec.into()),
        chunk_bytes: Some(chunk_bytes as u64),
        history_bytes: Some(history_bytes),
        threads: Some(threads),
        ..Case::default()
    };
    Ok((cost, measured.row(case)))
}

/// Measures what transfers take besides codecs.
///
/// # Errors
/// [`CalibrationError`].
pub fn overhead(racer: &Racer) -> Result<Overhead, CalibrationError> {
    let link = LinkSpec { rate: Some(Rate(UNLIMITED)), delay: Duration::ZERO };
    let least = |kind: Kind, who: &str| -> Result<(Run, f64, f64), CalibrationError> {
        let excerpt = Data::synthetic(kind, OVERHEAD_LEN.0, 1).excerpt(OVERHEAD_LEN.0)?;
        let who: Contestant = who.parse().expect("it is well formed");
        let mut best: Option<(Run, f64)> = None;
        for _ in 0..OVERHEAD_RUNS {
            let before = CpuTime::of_process();
            let run = racer.run(&link, &who, &excerpt, None)?;
            let relay_s = CpuTime::of_process().since(before).total_ns() as f64 / 1e9;
            if best.as_ref().is_none_or(|(held, _)| run.send_cpu_s + run.recv_cpu_s < held.send_cpu_s + held.recv_cpu_s)
            {
                best = Some((run, relay_s));
            }
        }
        let (run, relay_s) = best.expect("it ran at least once");
        Ok((run, relay_s, excerpt.len as f64))
    };
    let (raw, relay_s, len) = least(Kind::Random, "none")?;
    let (packed, _, _) = least(Kind::Sparse, "lz4")?;
    // Sender and receiver each: raw = a·len + b·raw.wire; packed = a·len + b·packed.wire + the codec's own, which is small.
    let (wide, narrow) = (raw.wire_bytes as f64, packed.wire_bytes as f64);
    let split = |raw_s: f64, packed_s: f64| {
        let per_wire = ((raw_s - packed_s) / (wide - narrow).max(1.0)).clamp(0.1 * raw_s / wide, 0.9 * raw_s / wide);
        (((raw_s - per_wire * wide) / len).max(0.0), per_wire)
    };
    let (send_raw_s, send_wire_s) = split(raw.send_cpu_s, packed.send_cpu_s);
    let (recv_raw_s, recv_wire_s) = split(raw.recv_cpu_s, packed.recv_cpu_s);
    Ok(Overhead { send_raw_s, send_wire_s, recv_raw_s, recv_wire_s, relay_s: relay_s / wide })
}

/// Share of this machine's processors that transfers get, up to 1: others may want them too.
///
/// Found by a transfer that packing holds up, since short bursts of packing say little: new threads begin on one processor, and
/// have moved apart only when a burst is over.
///
/// # Errors
/// [`CalibrationError`].
pub fn processors(racer: &Racer) -> Result<f64, CalibrationError> {
    let racer = Racer { threads: 0, ..racer.clone() };
    let link = LinkSpec { rate: Some(Rate(UNLIMITED)), delay: Duration::ZERO };
    let excerpt = Data::synthetic(Kind::Sparse, OVERHEAD_LEN.0, 1).excerpt(OVERHEAD_LEN.0)?;
    let who: Contestant = "zstd:6".parse().expect("it is well formed");
    let here = thread::available_parallelism().map_or(1, usize::from) as f64;
    let mut most: f64 = 0.0;
    for _ in 0..PROCESSORS_RUNS {
        let before = CpuTime::of_process();
        let run = racer.run(&link, &who, &excerpt, None)?;
        let relay_s = CpuTime::of_process().since(before).total_ns() as f64 / 1e9;
        most = most.max((run.send_cpu_s + run.recv_cpu_s + relay_s) / run.seconds);
    }
    Ok((most / here).min(1.0))
}

/// Seconds that a transfer of next to nothing takes over `link`: greetings, and the way there and back.
///
/// # Errors
/// [`CalibrationError`].
pub fn start(racer: &Racer, link: &LinkSpec) -> Result<f64, CalibrationError> {
    let excerpt = Data::synthetic(Kind::Random, 1, 1).excerpt(1)?;
    let mut least = f64::INFINITY;
    for _ in 0..START_RUNS {
        least = least.min(racer.run(link, &Contestant::plain("none"), &excerpt, None)?.seconds);
    }
    Ok(least)
}

/// Seconds that a transfer that packs takes besides what [`predict`] says of it: threads, contexts and buffers that are
/// touched for the first time. At least `start_s`, that of a raw one.
///
/// # Errors
/// [`CalibrationError`].
pub fn packed_start(
    racer: &Racer,
    link: &LinkSpec,
    overhead: &Overhead,
    start_s: f64,
) -> Result<f64, CalibrationError> {
    let excerpt = Data::synthetic(Kind::Sparse, PACKED_START_LEN.0, 1).excerpt(PACKED_START_LEN.0)?;
    let link = LinkSpec { rate: Some(Rate(UNLIMITED)), ..*link };
    let who: Contestant = "zstd:1".parse().expect("it is well formed");
    let mut seconds = Vec::new();
    for _ in 0..START_RUNS {
        seconds.push(racer.run(&link, &who, &excerpt, None)?.seconds);
    }
    let free = Cost { size: 0.5, pack_s: 0.0, unpack_s: 0.0, serial_unpack: false, chunk_bytes: 262_144.0 };
    let place = Place { link_bytes_per_s: UNLIMITED, start_s: 0.0, threads: 1.0, processors: 1.0, shared: true };
    Ok((median(seconds) - predict(excerpt.len as f64, &free, overhead, &place).seconds).max(start_s))
}

/// Seconds of packing, and of unpacking, per codec; a slow one takes the time of one pass.
const CODEC_S: f64 = 0.08;
/// A tenth of a second or so of transfer.
const OVERHEAD_LEN: Size = Size(96 << 20);
/// Enough for every worker to have packed some chunks.
const PACKED_START_LEN: Size = Size(4 << 20);
const OVERHEAD_RUNS: usize = 3;
const START_RUNS: usize = 3;
const PROCESSORS_RUNS: usize = 2;
/// Bytes a second that no emulated link is held up by.
const UNLIMITED: f64 = 100e9;
