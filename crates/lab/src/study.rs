//! `narrows study`: Peñaranda, Reaño and Silla, "A Parallel Compression Pipeline for Improving GPU Virtualization Data
//! Transfers", Sensors 2024, 24(14), 4649, measured again with this program.
//!
//! A *cell* is one codec on one kind of data over one link. In a cell two searches look for threads, chunks in flight
//! and length of chunks with the best trade-off `α·BW/BWmin − β·Size/Sizemin − δ·Th/Thmin`: the staged one (length,
//! then number, then threads, in the order of the paper's figures 6 to 8) and the full one over the whole grid. The
//! *figures* are bandwidth over the length of the message for none, naive, pipeline, keep-if-smaller and adaptive.
//!
//! Every case is one transfer between two processes over an emulated link ([`race`](crate::race)), and one row of
//! results, written at once. A case that a file of results holds already is not measured again: so a cut study resumes,
//! and shards (`i/n`, by cell) merge by putting files one after the other.
//!
//! What carries a message is [`DataPath`](crate::race::DataPath): a stream, or a copy to a GPU elsewhere, which is what
//! the paper measured. Cases of both may be in one file of results; a report draws them apart.
//!
//! The paper's starting values of the staged search are not known to us: it begins here with the most chunks in flight
//! and the most threads of the grid.

pub mod pictures;

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use narrows_core::units::Rate;

use crate::{
    bench::{Bencher, worker::Job},
    data::{Data, DataError, Excerpt},
    energy,
    race::{Contestant, LinkSpec, RaceError, Racer},
    result::{Case, Journal, ResultError, Row, Run},
};

/// Weights of the trade-off, the paper's.
pub const WEIGHTS: Weights = Weights {
    bandwidth: 0.60,
    size: 0.15,
    threads: 0.25,
};

/// α, β, δ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weights {
    /// α, of bandwidth.
    pub bandwidth: f64,
    /// β, of the length of chunks.
    pub size: f64,
    /// δ, of threads.
    pub threads: f64,
}

/// What is swept.
#[derive(Debug, Clone)]
pub struct Grid {
    /// Threads at each end.
    pub threads: Vec<u64>,
    /// Chunks in flight.
    pub depths: Vec<u64>,
    /// Lengths of chunks, bytes.
    pub chunks: Vec<u64>,
    /// Codecs.
    pub codecs: Vec<String>,
    /// Mbit/s.
    pub links: Vec<f64>,
    /// Lengths of messages of the figures, bytes.
    pub messages: Vec<u64>,
    /// How long a message of a search takes raw, seconds.
    pub search_s: f64,
    /// How long the longest message of a figure may take raw, seconds.
    pub figure_s: f64,
    /// Codecs and kinds of data of cells that the full search looks at, besides the staged one; empty: all.
    pub full: Vec<(String, String)>,
}

impl Grid {
    /// The paper's.
    #[must_use]
    pub fn full() -> Self {
        Self {
            threads: vec![1, 2, 4, 8],
            depths: vec![2, 4, 8, 16, 32, 64],
            chunks: (9..=17).map(|power| 1 << power).collect(),
            codecs: ["snappy", "gipfeli", "lz4", "lzo1x"]
                .map(String::from)
                .into(),
            links: vec![10.0, 100.0, 1000.0],
            messages: (12..=26).step_by(2).map(|power| 1 << power).collect(),
            search_s: 0.1,
            figure_s: 4.0,
            full: Vec::new(),
        }
    }

    /// Three minutes' worth: ends and middles of the axes, the full search for two kinds of data.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            threads: vec![1, 2],
            depths: vec![4, 16, 64],
            chunks: vec![512, 2048, 8192, 32_768, 131_072],
            messages: vec![4096, 65_536, 1 << 18, 1 << 20, 4 << 20, 16 << 20],
            search_s: 0.06,
            figure_s: 0.35,
            full: ["sparse", "traced"]
                .map(|data| ("gipfeli".to_string(), data.to_string()))
                .into(),
            ..Self::full()
        }
    }
}

/// The ways a message travels in the figures, with what the results call them.
pub const WAYS: [&str; 5] = ["none", "naive", "pipeline", "keep if smaller", "adaptive"];

/// Why a study came to an end.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// The data.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The file of results.
    #[error(transparent)]
    Results(#[from] ResultError),
    /// Bytes were damaged: no number counts then.
    #[error("{0}")]
    Damaged(RaceError),
}

/// Measures cases, each once.
pub struct Study<'a> {
    /// Runs transfers; its threads and packing flags are set for each case.
    pub racer: Racer,
    /// Counts chunks that shrink.
    pub bencher: Bencher,
    /// What is swept.
    pub grid: Grid,
    /// Name and bytes of each kind.
    pub data: Vec<(String, Data)>,
    /// Part and parts: only cells whose number is `part` modulo `parts`.
    pub shard: (usize, usize),
    /// When no more cases are begun.
    pub until: Option<Instant>,
    /// Where rows go as they are measured.
    pub journal: Option<Journal>,
    /// Told what is measured: how many cases were, and which one is.
    pub told: &'a mut dyn FnMut(usize, &Case),
    /// What is known already, by [`key`].
    pub known: HashMap<String, Row>,
    /// New rows.
    pub rows: Vec<Row>,
    /// Cases left out when the time was over.
    pub left_out: usize,
}

/// Sets a case's place on an axis.
type Set = fn(&mut Case, u64);

/// What makes two cases the same.
#[must_use]
pub fn key(case: &Case) -> String {
    serde_json::to_string(case).expect("numbers and text are JSON")
}

/// Rows of earlier runs by their case.
#[must_use]
pub fn known(runs: &[Run]) -> HashMap<String, Row> {
    let rows = runs
        .iter()
        .filter(|run| run.origin.tool == "study")
        .flat_map(|run| &run.rows);
    rows.filter(|row| row.fault.is_none())
        .map(|row| (key(&row.case), row.clone()))
        .collect()
}

impl Study<'_> {
    /// Measures everything of this shard.
    ///
    /// # Errors
    /// [`StudyError`]. A transfer that fails is a row with a fault.
    pub fn run(&mut self) -> Result<(), StudyError> {
        let names: Vec<String> = self.data.iter().map(|(name, _)| name.clone()).collect();
        let (links, codecs, grid) = (
            self.grid.links.clone(),
            self.grid.codecs.clone(),
            self.grid.clone(),
        );
        let mut number = 0;
        // Figures and staged searches first: should the time run out, it is the full search that lacks cases.
        for full in [false, true] {
            for &link in &links {
                for (at, name) in names.iter().enumerate() {
                    for codec in &codecs {
                        number += 1;
                        if number % self.shard.1 != self.shard.0 {
                            continue;
                        }
                        let excerpt = self.excerpt(at, link, grid.search_s)?;
                        let cell = Case {
                            part: Some("search".into()),
                            data: Some(name.clone()),
                            policy: Some("fixed".into()),
                            codec: Some(codec.clone()),
                            link_mbit_s: Some(link),
                            keep_larger: Some(true),
                            ..Case::default()
                        };
                        if !full {
                            // Short messages begin as slowly raw: what a search gains is against raw of the same
                            // length.
                            let raw = Case {
                                codec: None,
                                keep_larger: None,
                                policy: Some("none".into()),
                                ..cell.clone()
                            };
                            self.measure(
                                Case {
                                    part: Some("raw".into()),
                                    ..raw
                                },
                                &excerpt,
                            )?;
                            self.staged(&cell, &excerpt)?;
                            self.figures(at, name, codec, link)?;
                        } else if grid.full.is_empty()
                            || grid.full.contains(&(codec.clone(), name.clone()))
                        {
                            self.everything(&cell, &excerpt)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// What a link carries raw in `seconds`.
    fn excerpt(&self, data: usize, link: f64, seconds: f64) -> Result<Excerpt, DataError> {
        self.data[data]
            .1
            .excerpt((Rate::from_mbit(link).0 * seconds) as u64)
    }

    fn staged(&mut self, cell: &Case, excerpt: &Excerpt) -> Result<(), StudyError> {
        let grid = self.grid.clone();
        let most = |axis: &[u64]| axis.iter().copied().max().unwrap_or(1);
        let mut at = Case {
            depth: Some(most(&grid.depths)),
            threads: Some(most(&grid.threads)),
            ..cell.clone()
        };
        let stages: [(&[u64], Set); 3] = [
            (&grid.chunks, |case, value| case.chunk_bytes = Some(value)),
            (&grid.depths, |case, value| case.depth = Some(value)),
            (&grid.threads, |case, value| case.threads = Some(value)),
        ];
        for (axis, set) in stages {
            let mut rows = Vec::new();
            for &value in axis {
                let mut case = at.clone();
                set(&mut case, value);
                rows.extend(self.measure(case, excerpt)?);
            }
            if let Some((best, _)) = best(&rows.iter().collect::<Vec<_>>(), WEIGHTS) {
                at = Case {
                    data_bytes: None,
                    ..best.case.clone()
                };
            }
        }
        Ok(())
    }

    fn everything(&mut self, cell: &Case, excerpt: &Excerpt) -> Result<(), StudyError> {
        let grid = self.grid.clone();
        for &chunk in &grid.chunks {
            for &depth in &grid.depths {
                for &threads in &grid.threads {
                    let (chunk_bytes, depth, threads) = (Some(chunk), Some(depth), Some(threads));
                    self.measure(
                        Case {
                            chunk_bytes,
                            depth,
                            threads,
                            ..cell.clone()
                        },
                        excerpt,
                    )?;
                }
            }
        }
        Ok(())
    }

    /// Bandwidth over the length of the message, and the share of chunks that travels packed.
    fn figures(
        &mut self,
        data: usize,
        name: &str,
        codec: &str,
        link: f64,
    ) -> Result<(), StudyError> {
        let whole = self.data[data].1.len();
        for len in self.grid.messages.clone() {
            if len as f64 > (Rate::from_mbit(link).0 * self.grid.figure_s).min(whole as f64) {
                continue;
            }
            let excerpt = self.data[data].1.excerpt(len)?;
            for way in WAYS {
                self.measure(way_case(way, name, codec, link), &excerpt)?;
            }
            let share = Case {
                part: Some("share".into()),
                data: Some(name.into()),
                data_bytes: Some(len),
                codec: Some(codec.into()),
                chunk_bytes: Some(PIPELINE.2),
                ..Case::default()
            };
            if !self.known.contains_key(&key(&share)) && self.time_is_left() {
                let job = Job {
                    codec: codec.into(),
                    chunk_bytes: PIPELINE.2,
                    threads: 1,
                    history_bytes: 0,
                    seconds: 0.0,
                };
                let row = match self.bencher.measure(&job, &excerpt) {
                    Ok(measured) => measured.row(share),
                    Err(fault) => Row {
                        fault: Some(fault),
                        ..Row::new(share, [])
                    },
                };
                self.keep(row)?;
            }
        }
        Ok(())
    }

    /// The row of a case, measured unless it is known; none where the time is over or the transfer failed.
    fn measure(&mut self, case: Case, excerpt: &Excerpt) -> Result<Option<Row>, StudyError> {
        let case = Case {
            data_bytes: Some(excerpt.len),
            operation: self.racer.path.operation(),
            ..case
        };
        if let Some(row) = self.known.get(&key(&case)) {
            return Ok(Some(row.clone()).filter(|row| row.fault.is_none()));
        }
        if !self.time_is_left() {
            self.left_out += 1;
            return Ok(None);
        }
        (self.told)(self.rows.len(), &case);
        let mut packing = Vec::new();
        let mut flag = |name: &str, value: Option<u64>| {
            packing.extend(
                value
                    .into_iter()
                    .flat_map(|value| [name.to_string(), value.to_string()]),
            );
        };
        flag("--chunk", case.chunk_bytes);
        flag("--depth", case.depth);
        if case.keep_larger == Some(true) {
            packing.push("--keep-larger".into());
        }
        if case.policy.as_deref() == Some("fixed") {
            packing.push("--no-history".into());
        }
        let racer = Racer {
            threads: case.threads.unwrap_or(0) as usize,
            packing,
            ..self.racer.clone()
        };
        let link = LinkSpec {
            rate: case.link_mbit_s.map(Rate::from_mbit),
            delay: Duration::ZERO,
        };
        let policy = match case.policy.as_deref() {
            Some("none") => "none",
            Some("naive") => "naive",
            Some("adaptive") => "adaptive",
            _ => "fixed",
        };
        let codec = case
            .codec
            .clone()
            .filter(|_| !["none", "adaptive"].contains(&policy));
        let meter = energy::Meter::open().ok();
        let row = match racer.run(&link, &Contestant { policy, codec }, excerpt, None) {
            Ok(run) => {
                let mut row = run.row(case, excerpt.len);
                let joules = meter.and_then(|meter| meter.joules());
                row.extend([("joules", joules.unwrap_or(f64::NAN))]);
                row
            }
            Err(fault @ RaceError::Differs { .. }) => return Err(StudyError::Damaged(fault)),
            Err(fault) => Row {
                fault: Some(fault.to_string()),
                ..Row::new(case, [])
            },
        };
        self.keep(row.clone())?;
        Ok(Some(row).filter(|row| row.fault.is_none()))
    }

    fn time_is_left(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
    }

    fn keep(&mut self, row: Row) -> Result<(), StudyError> {
        if let Some(journal) = &mut self.journal {
            journal.add(&row)?;
        }
        self.known.insert(key(&row.case), row.clone());
        self.rows.push(row);
        Ok(())
    }
}

/// A message of the figures. Without a codec the case is the same for all codecs, and measured once.
fn way_case(way: &str, data: &str, codec: &str, link: f64) -> Case {
    let (threads, depth, chunk) = PIPELINE;
    let base = Case {
        part: Some("figure".into()),
        data: Some(data.into()),
        link_mbit_s: Some(link),
        ..Case::default()
    };
    let packed = |policy: &str| Case {
        policy: Some(policy.into()),
        codec: Some(codec.into()),
        ..base.clone()
    };
    let piped = |keep_larger| Case {
        threads: Some(threads),
        depth: Some(depth),
        chunk_bytes: Some(chunk),
        keep_larger: Some(keep_larger),
        ..packed("fixed")
    };
    match way {
        "none" => Case {
            policy: Some("none".into()),
            ..base
        },
        "naive" => packed("naive"),
        "pipeline" => piped(true),
        "keep if smaller" => piped(false),
        _ => Case {
            policy: Some("adaptive".into()),
            ..base
        },
    }
}

/// Which way a row of the figures went.
#[must_use]
pub fn way(case: &Case) -> &'static str {
    match (case.policy.as_deref(), case.keep_larger) {
        (Some("none"), _) => WAYS[0],
        (Some("naive"), _) => WAYS[1],
        (Some("adaptive"), _) => WAYS[4],
        (_, Some(true)) => WAYS[2],
        _ => WAYS[3],
    }
}

/// The row with the best trade-off, and that. The minima are those of `rows`, as equations 1 and 2 have it.
#[must_use]
pub fn best<'a>(rows: &[&'a Row], weights: Weights) -> Option<(&'a Row, f64)> {
    let scores = trade_offs(rows, weights);
    rows.iter()
        .copied()
        .zip(scores)
        .max_by(|a, b| a.1.total_cmp(&b.1))
}

/// The trade-off of each row.
#[must_use]
pub fn trade_offs(rows: &[&Row], weights: Weights) -> Vec<f64> {
    let of = |row: &Row| {
        let number = |value: Option<u64>| value.unwrap_or(1) as f64;
        [
            row.value("effective_mbit_s").unwrap_or(0.0),
            number(row.case.chunk_bytes),
            number(row.case.threads),
        ]
    };
    let least = rows.iter().fold([f64::INFINITY; 3], |least, row| {
        let here = of(row);
        std::array::from_fn(|axis| least[axis].min(here[axis]))
    });
    let score = |row: &&Row| {
        let here = of(row);
        let over = |axis: usize| here[axis] / least[axis].max(1e-9);
        weights.bandwidth * over(0) - weights.size * over(1) - weights.threads * over(2)
    };
    rows.iter().map(score).collect()
}

/// Threads, chunks in flight and length of chunks of the figures' pipeline: within what the paper found best (1 or 2
/// threads, chunks of 1 to 4 KiB).
pub const PIPELINE: (u64, u64, u64) = (2, 16, 4096);

#[cfg(test)]
mod tests {
    use super::*;

    fn row(chunk: u64, depth: u64, threads: u64, mbit: f64) -> Row {
        let (chunk_bytes, depth, threads) = (Some(chunk), Some(depth), Some(threads));
        Row::new(
            Case {
                chunk_bytes,
                depth,
                threads,
                ..Case::default()
            },
            [("effective_mbit_s", mbit)],
        )
    }

    // By hand: 0.6·2 − 0.15·2 − 0.25·2 = 0.4; 0.6 − 0.15 − 0.25 = 0.2.
    #[test]
    fn the_trade_off_is_the_papers() {
        let rows = [row(512, 2, 1, 100.0), row(1024, 2, 2, 200.0)];
        let rows: Vec<_> = rows.iter().collect();
        let scores = trade_offs(&rows, WEIGHTS);
        assert!(
            (scores[0] - 0.2).abs() < 1e-12 && (scores[1] - 0.4).abs() < 1e-12,
            "{scores:?}"
        );
        assert_eq!(best(&rows, WEIGHTS).unwrap().0, rows[1]);
        assert!(best(&[], WEIGHTS).is_none());
    }

    #[test]
    fn ways_are_told_from_their_cases() {
        for name in WAYS {
            assert_eq!(way(&way_case(name, "sparse", "lz4", 10.0)), name);
        }
        assert_eq!(
            key(&way_case("none", "sparse", "lz4", 10.0)),
            key(&way_case("none", "sparse", "snappy", 10.0))
        );
    }
}
