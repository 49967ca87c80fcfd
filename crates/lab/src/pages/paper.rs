//! The tables of the paper that proposed page chains (Warnke 2018), on the data named there as far as it can be had.
//!
//! Urandom, zeros, partdiff's matrices, HPCG's memory and a table of decimals are made here; the kernel's source and the fields
//! of hurricane Isabel are files that the user brings. What was published is kept beside as a ratio.

use super::{Document, PagesError, Set};

/// Published ratios of one data set, by contestant.
#[derive(Debug)]
pub struct Row {
    /// Short name, and what a user's file is given for.
    pub name: &'static str,
    /// What the paper calls it.
    pub title: &'static str,
    /// How it is made here, or `None` where a file is needed.
    pub made: Option<&'static str>,
    /// Ratio by contestant.
    pub published: &'static [(&'static str, f64)],
}

/// The data sets.
pub const ROWS: [Row; 8] = [
    Row {
        name: "urandom",
        title: "/dev/urandom",
        made: Some("noise:1024"),
        published: &[("lz4", 1.0), ("lzo", 1.0), ("zstd-1", 1.0), ("deflate-6", 1.0), ("zbewalgo", 1.0)],
    },
    Row {
        name: "partdiff",
        title: "partdiff, 512 interlines, Jacobi",
        made: Some("jacobi:sine:4104:300"),
        published: &[("lz4", 1.0), ("zstd-1", 1.0), ("deflate-6", 1.07), ("zbewalgo", 1.29)],
    },
    Row {
        name: "hpcg",
        title: "memory of HPCG",
        made: Some("hpcg:40:8"),
        published: &[("zstd-1", 6.02), ("deflate-6", 4.61), ("zbewalgo", 16.33)],
    },
    Row {
        name: "csv",
        title: "table of decimals",
        made: Some("table:4000"),
        published: &[("lz4", 1.75), ("zstd-1", 3.41), ("deflate-6", 4.08), ("zbewalgo", 3.34)],
    },
    Row {
        name: "linux",
        title: "source of Linux, as a tar file",
        made: None,
        published: &[
            ("lz4", 2.17),
            ("lzo", 2.27),
            ("zstd-1", 3.10),
            ("deflate-6", 3.27),
            ("842", 1.65),
            ("zbewalgo", 1.89),
        ],
    },
    Row {
        name: "isabel-p",
        title: "hurricane Isabel, pressure",
        made: None,
        published: &[("lz4", 1.0), ("lzo", 1.0), ("zstd-1", 1.0), ("deflate-6", 1.0), ("zbewalgo", 1.27)],
    },
    Row { name: "isabel-tc", title: "hurricane Isabel, temperature", made: None, published: &[("zbewalgo", 1.51)] },
    Row { name: "isabel-cloud", title: "hurricane Isabel, cloud", made: None, published: &[("zbewalgo", 2.60)] },
];

/// The sets that can be had: all that are made here, and those of `files`, each `NAME=FILE` with a name of [`ROWS`].
///
/// # Errors
/// [`PagesError`] for another name, or a file that cannot be read.
pub fn sets(files: &[String], most: usize) -> Result<Vec<Set>, PagesError> {
    let given: Vec<(&str, &str)> = files.iter().filter_map(|file| file.split_once('=')).collect();
    let known = |file: &&String| file.split_once('=').is_some_and(|(name, _)| ROWS.iter().any(|row| row.name == name));
    if let Some(other) = files.iter().find(|file| !known(file)) {
        let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        return Err(PagesError::Unknown(format!("{other}: the paper's data are NAME=FILE, of {}", names.join(", "))));
    }
    let mut sets = vec![];
    for row in &ROWS {
        let file = given.iter().find(|(name, _)| *name == row.name).map(|(_, file)| *file);
        if let Some(from) = file.or(row.made) {
            sets.push(Set { name: row.name.into(), ..Set::load(from, most)? });
        }
    }
    Ok(sets)
}

/// Notes what was published beside each result.
pub fn compare(document: &mut Document) {
    for set in &mut document.sets {
        let Some(row) = ROWS.iter().find(|row| row.name == set.name) else { continue };
        for measured in &mut set.results {
            let published = row.published.iter().find(|(name, _)| *name == measured.name);
            measured.published_ratio = published.map(|(_, ratio)| *ratio);
        }
    }
}
