//! Rows of the tables that one machine alone cannot measure in minutes: they need QEMU, Ceph, root. They were measured by
//! `bench/` and stand in `docs/results/*.jsonl`; here they become rows of `narrows.result/1` that say which file they are from.

use std::{fs, path::Path};

use serde_json::Value;

use crate::result::{Case, Row};

/// What `dir` holds of the QATzip, BlueField and Ceph tables. A file that is not there gives no row, and the page says so.
#[must_use]
pub fn rows(dir: &Path) -> Vec<Row> {
    let mut rows = migrations(&lines(dir, "migrate.jsonl"));
    rows.extend(offload(&lines(dir, "offload.jsonl")));
    rows.extend(ceph(&lines(dir, "disk.jsonl")));
    for row in &mut rows {
        row.marks.insert("committed".into());
    }
    rows
}

fn lines(dir: &Path, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(dir.join(name)).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

fn text(value: &Value, name: &str) -> Option<String> {
    value[name].as_str().map(str::to_owned)
}

fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or(f64::NAN)
}

/// Guests filled with Silesia over 8 channels, the last run of each method; and memory by channels.
fn migrations(lines: &[Value]) -> Vec<Row> {
    let done = |line: &&Value| line["status"] == "completed";
    let last = |guest: &str, method: &str, channels: u64| {
        let wanted = |line: &&Value| {
            line["guest"] == guest
                && line["method"] == method
                && line["channels"] == channels
                && line["link_mbit"] == 1000
        };
        lines.iter().filter(done).rfind(wanted)
    };
    let mut rows = Vec::new();
    for method in ["none", "zstd-1", "aware"] {
        let Some(line) = last("silesia", method, 8) else {
            continue;
        };
        let seconds = number(line, "total_ms") / 1e3;
        let percent = |end: &str| {
            100.0
                * (number(line, &format!("{end}_cpu_s"))
                    + number(line, &format!("{end}_tunnel_cpu_s")))
                / seconds
        };
        let case = Case {
            part: Some("qatzip".into()),
            data: Some("silesia".into()),
            device: Some(method.into()),
            link_mbit_s: Some(1000.0),
            threads: Some(8),
            ..Case::default()
        };
        let values = [
            ("total_ms", number(line, "total_ms")),
            ("down_ms", number(line, "down_ms")),
            ("mbit_s", number(line, "mbps")),
            ("pages_per_s", number(line, "pages_per_s")),
            ("send_cpu_percent", percent("send")),
            ("recv_cpu_percent", percent("recv")),
            ("wire_mib", number(line, "wire_mib")),
        ];
        rows.push(Row::new(case, values));
    }
    for channels in [1, 2, 4, 8] {
        let Some(line) = last("fill", "aware", channels) else {
            continue;
        };
        let rss = |end: usize| line["tunnel_rss"][end].as_f64().unwrap_or(f64::NAN) / 1e6;
        let case = Case {
            part: Some("qatzip memory".into()),
            device: Some("aware".into()),
            threads: Some(channels),
            ..Case::default()
        };
        rows.push(Row::new(
            case,
            [("send_rss_mb", rss(0)), ("recv_rss_mb", rss(1))],
        ));
    }
    rows
}

/// Packing elsewhere at 10 Gbit/s between hosts of several processors, the last run of each.
fn offload(lines: &[Value]) -> Vec<Row> {
    let mut rows = Vec::new();
    for data in ["float", "text"] {
        for setting in ["deflate:6", "deflate:1", "zstd:3", "zstd:1", "lz4:0"] {
            let wanted = |line: &&Value| {
                line["link_mbit"] == 10_000
                    && line["layout"] == "hosts"
                    && line["data"] == data
                    && line["setting"] == setting
            };
            // Where a vector library packed it, that is what stands for the card.
            let vector = |line: &&Value| wanted(line) && line["by"] == "isa-l";
            let found = lines
                .iter()
                .rfind(vector)
                .or_else(|| lines.iter().rfind(wanted));
            let Some(line) = found else {
                continue;
            };
            let case = Case {
                part: Some("bluefield".into()),
                data: Some(data.into()),
                device: text(line, "by"),
                codec: Some(setting.into()),
                link_mbit_s: Some(10_000.0),
                data_bytes: line["bytes"].as_u64(),
                ..Case::default()
            };
            let values = [
                ("turn_around_s", number(line, "turn_around_s")),
                ("copy_s", number(line, "copy_s")),
                ("pack_s", number(line, "pack_s")),
                ("over", number(line, "over")),
                (
                    "packed_percent",
                    100.0 * number(line, "packed_bytes") / number(line, "bytes"),
                ),
            ];
            rows.push(Row::new(case, values));
        }
    }
    rows
}

/// The deck's comparison on one node.
fn ceph(lines: &[Value]) -> Vec<Row> {
    let found = lines
        .iter()
        .filter_map(|line| serde_json::from_value::<Row>(line.get("row")?.clone()).ok());
    let wanted = |row: &Row| {
        row.case.part.as_deref() == Some("deck")
            && row
                .case
                .operation
                .as_deref()
                .is_some_and(|of| of.starts_with("seq") || of == "fill")
    };
    found
        .filter(wanted)
        .map(|row| {
            let case = Case {
                part: Some("ceph".into()),
                ..row.case
            };
            Row {
                case,
                marks: Default::default(),
                ..row
            }
        })
        .collect()
}
