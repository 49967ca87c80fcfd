//! Transfers in a file of results as sections of a report: a bar for each policy on each link, medians of its rows.

use std::collections::BTreeMap;

use serde_json::json;

use super::{digits, median};
use crate::{
    report::{Block, Cell, INK, Mark, Picture, Section, Table},
    result::{Row, Run},
};

/// A section for each data and link.
#[must_use]
pub fn sections(run: &Run) -> Vec<Section> {
    // Links in the order of their rate; one without a limit last.
    let mut links: BTreeMap<(String, u64, u64), Vec<&Row>> = BTreeMap::new();
    for row in &run.rows {
        let micro = |value: Option<f64>| value.map_or(u64::MAX, |value| (value * 1e6) as u64);
        let key = (
            row.case.data.clone().unwrap_or_default(),
            micro(row.case.link_mbit_s),
            micro(row.case.delay_ms),
        );
        links.entry(key).or_default().push(row);
    }
    links
        .into_iter()
        .map(|((data, ..), rows)| section(&data, &rows))
        .collect()
}

#[allow(
    clippy::too_many_lines,
    reason = "a picture or a table, from top to bottom"
)]
fn section(data: &str, rows: &[&Row]) -> Section {
    let mut names: Vec<String> = rows.iter().map(|row| name(row)).collect();
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    let of = |who: &str, value: &str| {
        let values: Vec<f64> = rows
            .iter()
            .filter(|row| name(row) == who)
            .filter_map(|row| row.value(value))
            .collect();
        (!values.is_empty()).then(|| median(values))
    };
    let raw = of("none", "effective_mbit_s");
    let best = names
        .iter()
        .filter_map(|name| of(name, "effective_mbit_s"))
        .fold(0.0, f64::max);
    let link = rows.first().and_then(|row| row.case.link_mbit_s);
    let heading = link.map_or_else(
        || "no limit".to_string(),
        |rate| narrows_core::units::Rate::from_mbit(rate).to_string(),
    );
    let cells = names.iter().map(|name| {
        let number = |value: &str, of_number: fn(f64) -> String| {
            of(name, value).map_or_else(|| "–".into(), of_number)
        };
        let rate = of(name, "effective_mbit_s").unwrap_or(0.0);
        let mark = match raw {
            _ if rate >= best => Mark::Best,
            Some(raw) if rate < raw => Mark::Loss,
            _ => Mark::Plain,
        };
        vec![
            Cell::marked(name.clone(), Mark::Name),
            Cell::marked(number("effective_mbit_s", digits), mark),
            raw.map_or_else(|| "–".into(), |raw| format!("{:.2}", rate / raw))
                .into(),
            number("ratio", |ratio| format!("{ratio:.2}")).into(),
            number("send_cpu_s", digits).into(),
            number("recv_cpu_s", digits).into(),
        ]
    });
    let columns = [
        "policy",
        "Mbit/s",
        "× raw",
        "ratio",
        "CPU send, s",
        "CPU receive, s",
    ];
    let table = Table {
        caption: "Medians. Shaded: slower than raw.".into(),
        columns: columns
            .iter()
            .enumerate()
            .map(|(at, name)| ((*name).to_string(), at > 0))
            .collect(),
        rows: cells.collect(),
    };
    let values: Vec<_> = names
        .iter()
        .filter_map(|name| {
            let rate = of(name, "effective_mbit_s")?;
            Some(json!({ "policy": name, "mbit": rate, "label": digits(rate) }))
        })
        .collect();
    let mut layers = vec![
        json!({ "mark": { "type": "bar", "color": "#3f6f9f", "cornerRadiusEnd": 2 } }),
        json!({ "mark": { "type": "text", "align": "left", "dx": 6 }, "encoding": { "text": { "field": "label", "type": "nominal" } } }),
    ];
    if let Some(rate) = link {
        layers.push(json!({ "data": { "values": [{ "mbit": rate }] },
            "mark": { "type": "rule", "strokeDash": [4, 3], "color": INK },
            "encoding": { "y": null, "x": { "field": "mbit", "type": "quantitative" } } }));
    }
    let spec = json!({
        "width": 700, "height": { "step": 24 }, "data": { "values": values },
        "encoding": {
            "y": { "field": "policy", "type": "nominal", "sort": names, "title": null, "axis": { "ticks": false, "domain": false } },
            "x": { "field": "mbit", "type": "quantitative", "title": "Mbit/s", "scale": { "domain": [0, best.max(link.unwrap_or(0.0)) * 1.1], "nice": false } } },
        "layer": layers,
    });
    let mut blocks = vec![
        Block::Picture(Picture {
            caption: "Effective rate: medians; the link's own rate dashed.".into(),
            spec,
        }),
        Block::Table(table),
    ];
    blocks.extend(rows.iter().filter_map(|row| {
        Some(Block::Note(format!(
            "{} failed: {}",
            name(row),
            row.fault.as_ref()?
        )))
    }));
    Section {
        heading: format!("{heading}: {data}"),
        blocks,
    }
}

/// As the contestant was named.
fn name(row: &Row) -> String {
    let policy = row.case.policy.as_deref().unwrap_or("?");
    match (policy, row.case.codec.as_deref()) {
        ("fixed", Some(codec)) => codec.into(),
        (policy, Some(codec)) => format!("{policy}:{codec}"),
        (policy, None) => policy.into(),
    }
}
