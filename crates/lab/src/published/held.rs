//! Looks up rows of a run of the published tables.

use std::collections::BTreeMap;

use crate::{
    race::DataPath,
    result::{Case, Row},
    study::{self, WEIGHTS, best, pictures},
};

/// Rows that may stand beside published ones. Of two of one case the later counts.
#[derive(Debug)]
pub struct Held<'a> {
    rows: Vec<&'a Row>,
    path: DataPath,
}

/// The setting that a search found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// Threads at each end.
    pub threads: u64,
    /// Chunks in flight.
    pub depth: u64,
    /// Bytes a chunk.
    pub chunk: u64,
    /// Mbit/s.
    pub mbit_s: f64,
}

impl<'a> Held<'a> {
    /// Of these rows, without those that failed. Where some are copies to a GPU, streams are left out: the paper measured
    /// copies.
    #[must_use]
    pub fn new(rows: impl Iterator<Item = &'a Row>) -> Self {
        let rows: Vec<&Row> = rows.filter(|row| row.fault.is_none()).collect();
        let path = path(&rows);
        let rows = pictures::of_path(&rows, path);
        Self { rows, path }
    }

    /// What carried the transfers.
    #[must_use]
    pub fn path(&self) -> DataPath {
        self.path
    }

    /// All rows of a part.
    pub fn part(&self, part: &str) -> impl Iterator<Item = &'a Row> {
        self.rows
            .iter()
            .copied()
            .filter(move |row| row.case.part.as_deref() == Some(part))
    }

    /// The last row of a part that `wanted` takes.
    #[must_use]
    pub fn last(&self, part: &str, wanted: impl Fn(&Case) -> bool) -> Option<&'a Row> {
        self.part(part).filter(|row| wanted(&row.case)).last()
    }

    /// A page codec on one of Warnke's sets, by the table's number.
    #[must_use]
    pub fn page(&self, table: &str, codec: &str) -> Option<&'a Row> {
        self.last(table, |case| case.codec.as_deref() == Some(codec))
    }

    /// A library on chunks of one length.
    #[must_use]
    pub fn chunk(&self, data: &str, codec: &str, chunk: u64) -> Option<&'a Row> {
        self.last("chunk", |case| {
            case.data.as_deref() == Some(data)
                && case.codec.as_deref() == Some(codec)
                && case.chunk_bytes == Some(chunk)
        })
    }

    /// All settings of a cell that were tried.
    #[must_use]
    pub fn search(&self, link: f64, data: &str, codec: &str) -> Vec<&'a Row> {
        let mut by_case = BTreeMap::new();
        for row in self.part("search") {
            let case = &row.case;
            if case.link_mbit_s == Some(link)
                && case.data.as_deref() == Some(data)
                && case.codec.as_deref() == Some(codec)
            {
                by_case.insert(study::key(case), row);
            }
        }
        by_case.into_values().collect()
    }

    /// The best setting of a cell by the paper's trade-off.
    #[must_use]
    pub fn by_trade_off(&self, link: f64, data: &str, codec: &str) -> Option<Found> {
        best(&self.search(link, data, codec), WEIGHTS).and_then(|(row, _)| found(row))
    }

    /// The best setting of a cell by bandwidth alone.
    #[must_use]
    pub fn by_bandwidth(&self, link: f64, data: &str, codec: &str) -> Option<Found> {
        let all = self.search(link, data, codec).into_iter().filter_map(found);
        all.max_by(|a, b| a.mbit_s.total_cmp(&b.mbit_s))
    }

    /// Raw, of the length of a search's messages.
    #[must_use]
    pub fn raw(&self, link: f64, data: &str) -> Option<f64> {
        let row = self.last("raw", |case| {
            case.link_mbit_s == Some(link) && case.data.as_deref() == Some(data)
        });
        row?.value("effective_mbit_s")
    }

    /// Bandwidth by length of the message, for one way that the figures have.
    #[must_use]
    pub fn figure(&self, link: f64, data: &str, codec: &str, way: &str) -> BTreeMap<u64, &'a Row> {
        let wanted = |case: &Case| {
            case.link_mbit_s == Some(link)
                && case.data.as_deref() == Some(data)
                && study::way(case) == way
                && case.codec.as_deref().is_none_or(|named| named == codec)
        };
        let rows = self.part("figure").filter(|row| wanted(&row.case));
        rows.filter_map(|row| Some((row.case.data_bytes?, row)))
            .collect()
    }

    /// Mbit/s of the longest message of a figure's way.
    #[must_use]
    pub fn longest(&self, link: f64, data: &str, codec: &str, way: &str) -> Option<f64> {
        self.figure(link, data, codec, way)
            .last_key_value()?
            .1
            .value("effective_mbit_s")
    }
}

fn path(rows: &[&Row]) -> DataPath {
    let copied = |row: &&Row| DataPath::of(&row.case) == DataPath::Gpu;
    if rows.iter().any(copied) {
        DataPath::Gpu
    } else {
        DataPath::Stream
    }
}

fn found(row: &Row) -> Option<Found> {
    Some(Found {
        threads: row.case.threads?,
        depth: row.case.depth?,
        chunk: row.case.chunk_bytes?,
        mbit_s: row.value("effective_mbit_s")?,
    })
}
