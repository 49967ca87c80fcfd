//! Disks' counters for Prometheus.

use narrows_io::metrics::{
    Kind::{self, Counter, Gauge},
    Metric,
};

use super::control::{Named, Report};

/// Name behind `narrows_disk_`, kind, help, and where it is in a disk's counters.
type Row = (&'static str, Kind, &'static str, fn(&Named) -> f64);

const ROWS: &[Row] = &[
    ("size_bytes", Gauge, "Size of the device", |d| {
        d.stat.size as f64
    }),
    (
        "logical_bytes",
        Gauge,
        "Bytes that clients stored and did not trim",
        |d| d.stat.data as f64,
    ),
    ("live_bytes", Gauge, "Bytes they take, packed", |d| {
        d.stat.live as f64
    }),
    (
        "capacity_bytes",
        Gauge,
        "Most that live_bytes may be",
        |d| d.stat.live_max as f64,
    ),
    (
        "physical_bytes",
        Gauge,
        "Bytes taken of the backing, garbage included",
        |d| d.stat.occupied as f64,
    ),
    (
        "garbage_bytes",
        Gauge,
        "Bytes taken of the backing and no longer wanted",
        |d| d.stat.garbage as f64,
    ),
    (
        "full_in_seconds",
        Gauge,
        "Until it is full; NaN if it does not fill",
        |d| d.full_in_s.unwrap_or(f64::NAN),
    ),
    ("read_bytes", Counter, "Bytes read by clients", |d| {
        d.stat.read as f64
    }),
    ("written_bytes", Counter, "Bytes written by clients", |d| {
        d.stat.written as f64
    }),
    ("trimmed_bytes", Counter, "Bytes trimmed by clients", |d| {
        d.stat.trimmed as f64
    }),
    (
        "backing_written_bytes",
        Counter,
        "Bytes written to the backing",
        |d| d.stat.logged as f64,
    ),
    (
        "moved_bytes",
        Counter,
        "Bytes moved to collect garbage",
        |d| d.stat.moved as f64,
    ),
    ("flushes", Counter, "Flushes answered", |d| {
        d.stat.flushes as f64
    }),
    ("checkpoints", Counter, "Checkpoints made", |d| {
        d.stat.checkpoints as f64
    }),
    (
        "no_space",
        Counter,
        "Requests refused for want of room",
        |d| d.stat.refused as f64,
    ),
    (
        "poisoned",
        Gauge,
        "1 if it takes no more writes because a flush failed",
        |d| f64::from(u8::from(d.stat.poisoned.is_some())),
    ),
];

/// The metrics of a server's disks, labelled by export.
pub(super) fn of(report: &Report) -> Vec<Metric> {
    let labelled = |value: fn(&Named) -> f64| {
        let one = move |disk: &Named| (vec![("export", disk.name.clone())], value(disk));
        report.disks.iter().map(one).collect()
    };
    ROWS.iter()
        .map(|&(name, kind, help, value)| Metric {
            name: format!("narrows_disk_{name}"),
            kind,
            help,
            values: labelled(value),
        })
        .collect()
}
