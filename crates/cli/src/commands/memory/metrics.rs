//! A RAM disk's counters for Prometheus.

use narrows_memory::control::{Named, Report};

/// The text of a scrape.
pub fn render(report: &Report) -> String {
    let mut text = crate::metrics::of_process();
    let mut add = |name: &str, kind: &str, help: &str, value: fn(&Named) -> f64| {
        text.push_str(&format!(
            "# HELP narrows_memory_{name} {help}\n# TYPE narrows_memory_{name} {kind}\n"
        ));
        for store in &report.stores {
            let export = store
                .name
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            text.push_str(&format!(
                "narrows_memory_{name}{{export=\"{export}\"}} {}\n",
                value(store)
            ));
        }
    };
    add("size_bytes", "gauge", "Size of the device.", |s| {
        s.stat.size as f64
    });
    add(
        "orig_data_bytes",
        "gauge",
        "Bytes of pages written and not trimmed.",
        |s| s.stat.mm_stat.orig_data_size as f64,
    );
    add(
        "compr_data_bytes",
        "gauge",
        "Bytes of their packed form in memory.",
        |s| s.stat.mm_stat.compr_data_size as f64,
    );
    add(
        "used_bytes",
        "gauge",
        "Memory that pages and slots cost.",
        |s| s.stat.mm_stat.mem_used_total as f64,
    );
    add(
        "limit_bytes",
        "gauge",
        "The limit on that; 0 for none.",
        |s| s.stat.mm_stat.mem_limit as f64,
    );
    add("used_max_bytes", "gauge", "The most that was used.", |s| {
        s.stat.mm_stat.mem_used_max as f64
    });
    add("same_pages", "gauge", "Pages of one word.", |s| {
        s.stat.mm_stat.same_pages as f64
    });
    add("huge_pages", "gauge", "Pages stored as they are.", |s| {
        s.stat.mm_stat.huge_pages as f64
    });
    add(
        "cluster_pages",
        "gauge",
        "Pages packed with their neighbours.",
        |s| s.stat.tiers.cluster.pages as f64,
    );
    add(
        "primed_pages",
        "gauge",
        "Pages packed with a dictionary.",
        |s| s.stat.tiers.primed.pages as f64,
    );
    add(
        "dictionary_bytes",
        "gauge",
        "Memory of dictionaries.",
        |s| s.stat.dictionaries.bytes as f64,
    );
    add("backed_pages", "gauge", "Pages in the backing file.", |s| {
        s.stat.tiers.backed.pages as f64
    });
    add("read_bytes_total", "counter", "Bytes read.", |s| {
        s.stat.read_bytes as f64
    });
    add("write_bytes_total", "counter", "Bytes written.", |s| {
        s.stat.write_bytes as f64
    });
    add("failed_reads_total", "counter", "Reads that failed.", |s| {
        s.stat.io_stat.failed_reads as f64
    });
    add(
        "failed_writes_total",
        "counter",
        "Writes that failed.",
        |s| s.stat.io_stat.failed_writes as f64,
    );
    add(
        "freed_pages_total",
        "counter",
        "Pages freed by trim and zeroing.",
        |s| s.stat.io_stat.notify_free as f64,
    );
    add(
        "read_p99_seconds",
        "gauge",
        "99 of 100 reads were faster.",
        |s| s.stat.read_latency.p99_us / 1e6,
    );
    add(
        "write_p99_seconds",
        "gauge",
        "99 of 100 writes were faster.",
        |s| s.stat.write_latency.p99_us / 1e6,
    );
    text
}
