//! A RAM disk's counters for Prometheus.

use narrows_io::metrics::{
    Kind::{self, Counter, Gauge},
    Metric,
};

use crate::control::{Named, Report};

/// Name behind `narrows_memory_`, kind, help, and where it is in a store's counters.
type Row = (&'static str, Kind, &'static str, fn(&Named) -> f64);

const ROWS: &[Row] = &[
    ("size_bytes", Gauge, "Size of the device", |s| {
        s.stat.size as f64
    }),
    (
        "orig_data_bytes",
        Gauge,
        "Bytes of pages written and not trimmed",
        |s| s.stat.mm_stat.orig_data_size as f64,
    ),
    (
        "compr_data_bytes",
        Gauge,
        "Bytes of their packed form in memory",
        |s| s.stat.mm_stat.compr_data_size as f64,
    ),
    (
        "used_bytes",
        Gauge,
        "Memory that pages and slots cost",
        |s| s.stat.mm_stat.mem_used_total as f64,
    ),
    ("limit_bytes", Gauge, "The limit on that; 0 for none", |s| {
        s.stat.mm_stat.mem_limit as f64
    }),
    ("used_max_bytes", Gauge, "The most that was used", |s| {
        s.stat.mm_stat.mem_used_max as f64
    }),
    ("same_pages", Gauge, "Pages of one word", |s| {
        s.stat.mm_stat.same_pages as f64
    }),
    ("huge_pages", Gauge, "Pages stored as they are", |s| {
        s.stat.mm_stat.huge_pages as f64
    }),
    (
        "cluster_pages",
        Gauge,
        "Pages packed with their neighbours",
        |s| s.stat.tiers.cluster.pages as f64,
    ),
    (
        "primed_pages",
        Gauge,
        "Pages packed with a dictionary",
        |s| s.stat.tiers.primed.pages as f64,
    ),
    ("dictionary_bytes", Gauge, "Memory of dictionaries", |s| {
        s.stat.dictionaries.bytes as f64
    }),
    ("backed_pages", Gauge, "Pages in the backing file", |s| {
        s.stat.tiers.backed.pages as f64
    }),
    ("read_bytes", Counter, "Bytes read", |s| {
        s.stat.read_bytes as f64
    }),
    ("write_bytes", Counter, "Bytes written", |s| {
        s.stat.write_bytes as f64
    }),
    ("failed_reads", Counter, "Reads that failed", |s| {
        s.stat.io_stat.failed_reads as f64
    }),
    ("failed_writes", Counter, "Writes that failed", |s| {
        s.stat.io_stat.failed_writes as f64
    }),
    (
        "freed_pages",
        Counter,
        "Pages freed by trim and zeroing",
        |s| s.stat.io_stat.notify_free as f64,
    ),
    (
        "read_p99_seconds",
        Gauge,
        "99 of 100 reads were faster",
        |s| s.stat.read_latency.p99_us / 1e6,
    ),
    (
        "write_p99_seconds",
        Gauge,
        "99 of 100 writes were faster",
        |s| s.stat.write_latency.p99_us / 1e6,
    ),
];

/// The metrics of a server's stores, labelled by export.
#[must_use]
pub(crate) fn of(report: &Report) -> Vec<Metric> {
    let labelled = |value: fn(&Named) -> f64| {
        let one = move |store: &Named| (vec![("export", store.name.clone())], value(store));
        report.stores.iter().map(one).collect()
    };
    ROWS.iter()
        .map(|&(name, kind, help, value)| Metric {
            name: format!("narrows_memory_{name}"),
            kind,
            help,
            values: labelled(value),
        })
        .collect()
}
