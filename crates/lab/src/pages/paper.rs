//! The tables of the paper that proposed page chains (Warnke 2018), on the data named there as far as it can be had.
//!
//! Urandom, partdiff's matrices, HPCG's memory and a table of decimals are made here; the rest are files that the user
//! brings: the same data or such of its kind, which is why every table names its file. What was published is kept
//! beside, as far as it is known to us: ratios, and some speeds. Its zstd is the kernel's, level 3.

use serde::Serialize;

use super::{Backing, Document, PagesError, Set};

/// One data set.
#[derive(Debug)]
pub struct Row {
    /// Short name, and what a user's file is given for.
    pub name: &'static str,
    /// What the paper calls it.
    pub title: &'static str,
    /// How it is made here, or `None` where a file is needed.
    pub made: Option<&'static str>,
    /// By contestant.
    pub published: &'static [(&'static str, Published)],
}

/// What was published of one contestant; what is not known to us is 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Published {
    /// Raw by stored bytes.
    pub ratio: f64,
    /// MiB a second to pack, on the paper's machine.
    pub pack_mib_s: f64,
    /// As `pack_mib_s`.
    pub unpack_mib_s: f64,
}

const fn ratio(ratio: f64) -> Published {
    speeds(ratio, 0.0, 0.0)
}

const fn speeds(ratio: f64, pack_mib_s: f64, unpack_mib_s: f64) -> Published {
    Published {
        ratio,
        pack_mib_s,
        unpack_mib_s,
    }
}

/// The data sets.
pub const ROWS: [Row; 13] = [
    Row {
        name: "urandom",
        title: "/dev/urandom",
        made: Some("noise:1024"),
        published: &[
            ("lz4", ratio(1.0)),
            ("lzo", ratio(1.0)),
            ("zstd-3", ratio(1.0)),
            ("deflate-6", ratio(1.0)),
            ("zbewalgo", speeds(1.0, 2.4, 0.0)),
        ],
    },
    Row {
        name: "partdiff",
        title: "partdiff, 512 interlines, Jacobi",
        made: Some("jacobi:sine:4104:300"),
        published: &[
            ("lz4", ratio(1.0)),
            ("zstd-3", ratio(1.0)),
            ("deflate-6", ratio(1.07)),
            ("zbewalgo", speeds(1.29, 28.0, 240.0)),
        ],
    },
    Row {
        name: "hpcg",
        title: "memory of HPCG",
        made: Some("hpcg:40:8"),
        published: &[
            ("zstd-3", ratio(6.02)),
            ("deflate-6", ratio(4.61)),
            ("zbewalgo", speeds(16.33, 0.0, 420.0)),
        ],
    },
    Row {
        name: "csv",
        title: "table of decimals",
        made: Some("table:4000"),
        published: &[
            ("lz4", ratio(1.75)),
            ("zstd-3", ratio(3.41)),
            ("deflate-6", speeds(4.08, 23.0, 259.0)),
            ("zbewalgo", ratio(3.34)),
        ],
    },
    Row {
        name: "linux",
        title: "source of Linux, as a tar file",
        made: None,
        published: &[
            ("lz4", ratio(2.17)),
            ("lzo", ratio(2.27)),
            ("zstd-3", ratio(3.10)),
            ("deflate-6", ratio(3.27)),
            ("842", ratio(1.65)),
            ("zbewalgo", ratio(1.89)),
        ],
    },
    Row {
        name: "isabel-p",
        title: "hurricane Isabel, pressure",
        made: None,
        published: &[
            ("lz4", ratio(1.0)),
            ("lzo", ratio(1.0)),
            ("zstd-3", ratio(1.0)),
            ("deflate-6", ratio(1.0)),
            ("zbewalgo", ratio(1.27)),
        ],
    },
    Row {
        name: "isabel-tc",
        title: "hurricane Isabel, temperature",
        made: None,
        published: &[("zbewalgo", ratio(1.51))],
    },
    Row {
        name: "isabel-cloud",
        title: "hurricane Isabel, cloud",
        made: None,
        published: &[("zbewalgo", ratio(2.60))],
    },
    Row {
        name: "ecoham",
        title: "ECOHAM, a sparse ocean",
        made: None,
        published: &[("zbewalgo", ratio(8.0))],
    },
    Row {
        name: "image",
        title: "image of 16 bits",
        made: None,
        published: &[("deflate-6", ratio(1.49)), ("zbewalgo", ratio(1.31))],
    },
    Row {
        name: "fmri",
        title: "fMRI",
        made: None,
        published: &[("zbewalgo", speeds(0.0, 2.5, 0.0))],
    },
    Row {
        name: "sao",
        title: "SAO's catalogue of stars",
        made: None,
        published: &[("zbewalgo", speeds(0.0, 3.0, 0.0))],
    },
    Row {
        name: "memory",
        title: "memory of applications",
        made: None,
        published: &[],
    },
];

/// A table for which there is no data here.
#[derive(Debug, Clone, Serialize)]
pub struct Absent {
    /// As of [`Row`].
    pub name: &'static str,
    /// As of [`Row`].
    pub title: &'static str,
}

/// The devices that stand behind memory: the paper's disk, and what users have besides. The speeds are ours.
pub const BACKINGS: [Backing; 3] = [
    Backing {
        name: "hdd",
        bytes_per_s: 100e6,
    },
    Backing {
        name: "ssd",
        bytes_per_s: 500e6,
    },
    Backing {
        name: "net",
        bytes_per_s: 125e6,
    },
];

/// The sets that can be had: all that are made here, and those of `files`, each `NAME=FILE` with a name of [`ROWS`];
/// and those that cannot.
///
/// # Errors
/// [`PagesError`] for another name, or a file that cannot be read.
pub fn sets(files: &[String], most: usize) -> Result<(Vec<Set>, Vec<Absent>), PagesError> {
    let given: Vec<(&str, &str)> = files
        .iter()
        .filter_map(|file| file.split_once('='))
        .collect();
    let known = |file: &&String| {
        file.split_once('=')
            .is_some_and(|(name, _)| ROWS.iter().any(|row| row.name == name))
    };
    if let Some(other) = files.iter().find(|file| !known(file)) {
        let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        return Err(PagesError::Unknown(format!(
            "{other}: the paper's data are NAME=FILE, of {}",
            names.join(", ")
        )));
    }
    let (mut sets, mut absent) = (vec![], vec![]);
    for Row {
        name, title, made, ..
    } in &ROWS
    {
        let file = given
            .iter()
            .find(|given| given.0 == *name)
            .map(|(_, file)| *file);
        match file.or(*made) {
            Some(from) => sets.push(Set {
                name: (*name).into(),
                ..Set::load(from, most)?
            }),
            None => absent.push(Absent { name, title }),
        }
    }
    Ok((sets, absent))
}

/// Notes titles, what was published beside each result, and what is `absent`.
pub fn compare(document: &mut Document, absent: Vec<Absent>) {
    for set in &mut document.sets {
        let Some(row) = ROWS.iter().find(|row| row.name == set.name) else {
            continue;
        };
        set.title = Some(row.title);
        for measured in &mut set.results {
            let published = row
                .published
                .iter()
                .find(|(name, _)| *name == measured.name);
            measured.published = published.map(|(_, published)| *published);
        }
    }
    document.absent = absent;
}
