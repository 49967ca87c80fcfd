//! The published tables, as data: `crates/lab/published/*.tsv`, each with its source in its first line.

/// A line of Peñaranda's Tables 3, A1, A2 or A3: the best setting of one library on one kind of data over one link.
#[derive(Debug, Clone, PartialEq)]
pub struct Best {
    /// `3`, `A1`, `A2`, `A3`.
    pub table: &'static str,
    /// `traced`, `lineal`, `random`, `sparse`.
    pub data: &'static str,
    /// Mbit/s.
    pub link: f64,
    /// `snappy`, `gipfeli`, `lz4`, `lzo`.
    pub library: &'static str,
    /// Threads at each end.
    pub threads: u64,
    /// Chunks in flight.
    pub chunks: u64,
    /// KiB a chunk.
    pub chunk_kib: f64,
    /// Raw by packed bytes of a chunk.
    pub ratio: f64,
    /// Packing and unpacking a chunk, microseconds.
    pub micros: f64,
    /// Effective bandwidth, Mbit/s.
    pub mbit_s: f64,
}

/// A line of Warnke's Tables 6.1 to 6.14. Speeds are MiB/s.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// Short name of the data.
    pub data: &'static str,
    /// `hdd` is the disk alone; `zbewalgo*` has only the chains that suit the data.
    pub codec: &'static str,
    /// Raw by stored bytes.
    pub ratio: f64,
    /// To pack.
    pub pack: f64,
    /// To unpack.
    pub unpack: f64,
    /// To pack, with a disk behind memory.
    pub effective_pack: f64,
    /// To unpack, with a disk behind memory.
    pub effective_unpack: f64,
}

/// Fields of a published file, without comments and without its head.
#[must_use]
pub fn lines(text: &'static str) -> Vec<Vec<&'static str>> {
    let told = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    told.skip(1)
        .map(|line| line.split('\t').collect())
        .collect()
}

/// A field as a number; 0 where it is none, as in a column that a row does not have.
#[must_use]
pub fn number(line: &[&str], at: usize) -> f64 {
    line.get(at)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0.0)
}

/// Peñaranda's Tables 3, A1, A2 and A3.
#[must_use]
pub fn best() -> Vec<Best> {
    let read = |line: Vec<&'static str>| Best {
        table: line[0],
        data: line[1],
        link: number(&line, 2),
        library: line[3],
        threads: number(&line, 4) as u64,
        chunks: number(&line, 5) as u64,
        chunk_kib: number(&line, 6),
        ratio: number(&line, 7),
        micros: number(&line, 8),
        mbit_s: number(&line, 9),
    };
    lines(BEST).into_iter().map(read).collect()
}

/// Warnke's fourteen tables.
#[must_use]
pub fn pages() -> Vec<Page> {
    let read = |line: Vec<&'static str>| Page {
        data: line[0],
        codec: line[1],
        ratio: number(&line, 2),
        pack: number(&line, 3),
        unpack: number(&line, 4),
        effective_pack: number(&line, 5),
        effective_unpack: number(&line, 6),
    };
    lines(WARNKE).into_iter().map(read).collect()
}

/// Our name of a library of Peñaranda's.
#[must_use]
pub fn codec_of(library: &str) -> &str {
    if library == "lzo" { "lzo1x" } else { library }
}

/// Our contestant for a codec of Warnke's; none for the disk, and none where the name stands for a choice of chains.
#[must_use]
pub fn contestant_of(codec: &str) -> Option<&'static str> {
    Some(match codec {
        "842" => "842",
        "lzo" => "lzo",
        "lz4" => "lz4",
        "lz4hc" => "lz4-hc",
        "deflate" => "deflate-6",
        "zstd" => "zstd-3",
        "zbewalgo" => "zbewalgo",
        _ => return None,
    })
}

/// Peñaranda, Reaño, Silla, Sensors 2024, 24(14), 4649, Tables 3, A1 to A3.
pub const BEST: &str = include_str!("../../published/penaranda-best.tsv");
/// The same, Tables 2 and 4, Figures 8 to 15.
pub const OTHER: &str = include_str!("../../published/penaranda-other.tsv");
/// Warnke, "ZRAM - RAM-Kompression", 2018, Tables 6.1 to 6.14.
pub const WARNKE: &str = include_str!("../../published/warnke.tsv");
/// QEMU's documentation of QATzip compression.
pub const QATZIP: &str = include_str!("../../published/qatzip.tsv");
/// Compression on a BlueField-2.
pub const BLUEFIELD: &str = include_str!("../../published/bluefield.tsv");
/// Ceph's zstd against drives that compress.
pub const CEPH: &str = include_str!("../../published/ceph.tsv");

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: no published line is lost on the way. Method: the numbers of lines and tables that the papers have.
    #[test]
    fn every_published_line_is_read() {
        let best = best();
        assert_eq!(best.len(), 48);
        assert!(
            best.iter()
                .all(|line| line.mbit_s > 9.0 && line.threads >= 1 && line.ratio > 0.9)
        );
        let pages = pages();
        let mut sets: Vec<_> = pages.iter().map(|line| line.data).collect();
        sets.dedup();
        assert_eq!((sets.len(), pages.len()), (14, 122));
        assert!(
            pages
                .iter()
                .all(|line| line.effective_pack > 0.0 && line.ratio >= 1.0)
        );
        for (text, count) in [(OTHER, 16), (QATZIP, 3), (BLUEFIELD, 7), (CEPH, 4)] {
            assert_eq!(lines(text).len(), count, "{text}");
        }
    }
}
