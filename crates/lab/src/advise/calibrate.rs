//! What settings cost on the user's data: seconds of real transfers.
//!
//! A setting is measured by sending: two processes and an emulated link without a limit, as [`race`](crate::race) has
//! them. Packing in a loop, as [`bench`](mod@crate::bench) does it, was tried first and made codecs too cheap by a
//! third to a half: there, data and tables stay in the cache, and nobody reads, sums, sends, receives and unpacks on
//! the same processors meanwhile.
//!
//! Each look is two transfers, one a quarter as long as the other: two equations, two unknowns, what beginning takes
//! (threads, contexts, buffers touched for the first time: the first 16 MiB cost a fifth more) and what a byte takes.

use std::{thread, time::Duration};

use narrows_core::units::{Rate, Size};
use narrows_io::meter::CpuTime;

use super::model::Cost;
use crate::{
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
    #[error(transparent)]
    Codec(#[from] narrows::UnknownCodec),
}

/// What is sent for one look.
#[derive(Debug)]
pub struct Sample {
    short: Excerpt,
    long: Excerpt,
}

impl Sample {
    /// Of `len` bytes at most, spread over all of `data`.
    ///
    /// # Errors
    /// [`DataError`].
    pub fn of(data: &Data, len: u64) -> Result<Self, DataError> {
        let long = data.excerpt(len)?;
        let short = data.excerpt((long.len / 4).max(1))?;
        Ok(Self { short, long })
    }

    /// Bytes of the longer transfer.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.long.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Two transfers of a setting.
#[derive(Debug, Clone)]
pub struct Look {
    short: (u64, Run),
    long: (u64, Run),
}

impl Look {
    /// Sends `sample` as `setting` has it, over `link`; [`UNLIMITED`] if what the setting itself takes is wanted.
    ///
    /// # Errors
    /// [`CalibrationError`].
    pub fn at(
        racer: &Racer,
        link: &LinkSpec,
        sample: &Sample,
        setting: &Contestant,
    ) -> Result<Self, CalibrationError> {
        let send = |excerpt: &Excerpt| {
            racer
                .run(link, setting, excerpt, None)
                .map(|run| (excerpt.len, run))
        };
        Ok(Self {
            short: send(&sample.short)?,
            long: send(&sample.long)?,
        })
    }

    /// Seconds of both transfers.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.short.1.seconds + self.long.1.seconds
    }

    /// Seconds of the longer transfer.
    #[must_use]
    pub fn long_seconds(&self) -> f64 {
        self.long.1.seconds
    }

    /// The longer transfer as a row of results.
    #[must_use]
    pub fn row(&self, case: Case) -> Row {
        let (len, run) = &self.long;
        run.row(
            Case {
                data_bytes: Some(*len),
                ..case
            },
            *len,
        )
    }
}

/// What `setting` costs, by the medians of some looks at the same sample.
#[must_use]
pub fn cost(looks: &[Look], setting: &Contestant) -> Cost {
    let of = |side: fn(&Look) -> &(u64, Run), value: fn(&Run) -> f64| {
        median(looks.iter().map(|look| value(&side(look).1)).collect())
    };
    let len = |side: fn(&Look) -> &(u64, Run)| looks.first().map_or(1, |look| side(look).0) as f64;
    let (short_len, long_len) = (len(|look| &look.short), len(|look| &look.long));
    let slope = |value: fn(&Run) -> f64| {
        let (short, long) = (of(|look| &look.short, value), of(|look| &look.long, value));
        // Data of some bytes: all of it is beginning, or noise.
        ((long - short) / (long_len - short_len).max(1.0)).clamp(0.0, long / long_len)
    };
    let alone_s = slope(|run| run.seconds);
    let long_s = of(|look| &look.long, |run| run.seconds);
    Cost {
        size: of(|look| &look.long, |run| run.wire_bytes as f64) / long_len,
        send_s: slope(|run| run.send_cpu_s),
        recv_s: slope(|run| run.recv_cpu_s),
        alone_s,
        begin_s: (long_s - alone_s * long_len).max(0.0),
        serial_unpack: serial_unpack(setting),
    }
}

/// Whether a chunk may refer to the one before, so that the receiver takes them one after the other.
fn serial_unpack(setting: &Contestant) -> bool {
    let codec = setting.codec.as_deref().unwrap_or_default();
    let (registry, chunk_len) = (narrows::default_registry(), narrows::Settings::CHUNK_LEN);
    narrows::candidate(&registry, codec, chunk_len).is_ok_and(|candidate| {
        candidate.history_len > 0 && chunk_len < narrows::history_below(&registry, candidate)
    })
}

/// Seconds that a link's delay adds to a transfer: greetings, and the way there and back.
///
/// # Errors
/// [`CalibrationError`].
pub fn delay(racer: &Racer, link: &LinkSpec) -> Result<f64, CalibrationError> {
    let excerpt = Data::synthetic(Kind::Random, 1, 1).excerpt(1)?;
    let least = |link: &LinkSpec| -> Result<f64, CalibrationError> {
        let mut least = f64::INFINITY;
        for _ in 0..DELAY_RUNS {
            least = least.min(
                racer
                    .run(link, &Contestant::plain("none"), &excerpt, None)?
                    .seconds,
            );
        }
        Ok(least)
    };
    Ok((least(link)? - least(&UNLIMITED)?).max(0.0))
}

/// Share of this machine's processors that transfers get, up to 1: others may want them too.
///
/// Found by a transfer that packing holds up.
///
/// # Errors
/// [`CalibrationError`].
pub fn processors(racer: &Racer) -> Result<f64, CalibrationError> {
    let racer = Racer {
        threads: 0,
        ..racer.clone()
    };
    let excerpt = Data::synthetic(Kind::Sparse, PROCESSORS_LEN.0, 1).excerpt(PROCESSORS_LEN.0)?;
    let who: Contestant = "zstd:6".parse().expect("it is well formed");
    let here = thread::available_parallelism().map_or(1, usize::from) as f64;
    let mut most: f64 = 0.0;
    for _ in 0..PROCESSORS_RUNS {
        let before = CpuTime::of_process();
        let run = racer.run(&UNLIMITED, &who, &excerpt, None)?;
        let relay_s = CpuTime::of_process().since(before).total_ns() as f64 / 1e9;
        most = most.max((run.send_cpu_s + run.recv_cpu_s + relay_s) / run.seconds);
    }
    Ok((most / here).min(1.0))
}

/// An emulated link by which nothing is held up: its relay takes its share of the processors, as any emulated link's
/// does.
pub const UNLIMITED: LinkSpec = LinkSpec {
    rate: Some(Rate(100e9)),
    delay: Duration::ZERO,
};
const PROCESSORS_LEN: Size = Size(96 << 20);
const DELAY_RUNS: usize = 3;
const PROCESSORS_RUNS: usize = 2;
