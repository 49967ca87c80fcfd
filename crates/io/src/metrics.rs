//! Counters for Prometheus, in its OpenMetrics text format.
//!
//! What a process counts is read when it is asked for, so nothing is registered: a caller describes its [`Metric`]s at
//! each scrape, and [`encode`] writes them. Source: <https://prometheus.io/docs/specs/om/open_metrics_spec/>.

use std::{fmt, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

use crate::{
    address::Address,
    answer::{Answers, Speech},
    listener::ListenError,
    meter::{CpuTime, Memory},
};

/// What a scraper is told that the text is.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Whether a number only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows; its name ends in `_total` in the text.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// One number of a process, or one for each value of its labels.
#[derive(Debug, Clone)]
pub struct Metric {
    /// With `narrows_` before it, without `_total` behind.
    pub name: String,
    /// Counter or gauge.
    pub kind: Kind,
    /// For people.
    pub help: &'static str,
    /// Labels, and the number under them.
    pub values: Vec<(Vec<(&'static str, String)>, f64)>,
}

impl Metric {
    /// One number without labels.
    #[must_use]
    pub fn one(name: impl Into<String>, kind: Kind, help: &'static str, value: f64) -> Self {
        Self {
            name: name.into(),
            kind,
            help,
            values: vec![(Vec::new(), value)],
        }
    }
}

/// What every process counts: processor time, memory, and which version it is.
#[must_use]
pub fn of_process() -> Vec<Metric> {
    let cpu_s = CpuTime::of_process().total_ns() as f64 / 1e9;
    let mut metrics = vec![
        Metric::one(
            "narrows_cpu_seconds",
            Kind::Counter,
            "Processor time of the process",
            cpu_s,
        ),
        Metric {
            name: "narrows_build_info".into(),
            kind: Kind::Gauge,
            help: "Version",
            values: vec![(vec![("version", env!("CARGO_PKG_VERSION").into())], 1.0)],
        },
    ];
    if let Ok(memory) = Memory::of_process() {
        let (name, help) = ("narrows_resident_bytes", "Memory resident now");
        metrics.push(Metric::one(name, Kind::Gauge, help, memory.resident as f64));
    }
    metrics
}

/// The text of a scrape.
#[must_use]
pub fn encode(metrics: Vec<Metric>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot(metrics)));
    let mut out = String::new();
    text::encode(&mut out, &registry).expect("a string takes whatever is written to it");
    out
}

/// Serves `metrics` and those of the process at `address`, until what is returned is dropped.
///
/// # Errors
/// The address cannot be listened on.
pub fn serve(
    address: &Address,
    metrics: impl Fn() -> Vec<Metric> + Send + Sync + 'static,
) -> Result<Answers, ListenError> {
    let source = move || {
        let all = metrics().into_iter().chain(of_process()).collect();
        encode(all).into_bytes()
    };
    Answers::start(address, Speech::Http(CONTENT_TYPE), Arc::new(source))
}

struct Snapshot(Vec<Metric>);

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot({})", self.0.len())
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in &self.0 {
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
            };
            let mut described = encoder.encode_descriptor(&metric.name, metric.help, None, kind)?;
            match &metric.values[..] {
                // An empty family would be written with empty braces.
                [(labels, value)] if labels.is_empty() => number(metric.kind, *value, described)?,
                values => {
                    for (labels, value) in values {
                        number(metric.kind, *value, described.encode_family(labels)?)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn number(kind: Kind, value: f64, encoder: MetricEncoder<'_>) -> fmt::Result {
    match kind {
        Kind::Counter => ConstCounter::new(value).encode(encoder),
        Kind::Gauge => ConstGauge::new(value).encode(encoder),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_kinds_and_labels_are_written_as_the_format_says() {
        let by_export = Metric {
            name: "narrows_memory_used_bytes".into(),
            kind: Kind::Gauge,
            help: "Memory",
            values: vec![(vec![("export", "a\"b".into())], 4096.0)],
        };
        let counted = Metric::one("narrows_sent_bytes", Kind::Counter, "Bytes", 1.5);
        let text = encode(vec![by_export, counted]);
        assert_eq!(
            text,
            "# HELP narrows_memory_used_bytes Memory\n\
             # TYPE narrows_memory_used_bytes gauge\n\
             narrows_memory_used_bytes{export=\"a\\\"b\"} 4096.0\n\
             # HELP narrows_sent_bytes Bytes\n\
             # TYPE narrows_sent_bytes counter\n\
             narrows_sent_bytes_total 1.5\n\
             # EOF\n"
        );
        assert!(encode(of_process()).contains("narrows_build_info{version="));
    }
}
