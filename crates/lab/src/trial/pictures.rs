//! A trial as a [`Report`].

use std::collections::BTreeMap;

use narrows_core::units::Size;
use serde_json::{Value, json};

use super::{Document, LinkResult, PolicyResult, digits, rounds};
use crate::report::{Block, Cell, INK, Mark, Picture, Report, Section, Table};

/// The report of a trial.
///
/// # Panics
/// Never: a document of numbers and text is JSON.
#[must_use]
pub fn report(document: &Document) -> Report {
    let mut sections: Vec<_> = document
        .links
        .iter()
        .map(|link| link_section(document, link))
        .collect();
    if document.links.len() > 1 {
        sections.insert(0, overview(document));
    }
    sections.push(how(document));
    sections.push(machine(document));
    let mut intro = vec![format!(
        "Every policy carried the same bytes of {} from one process to another, over an emulated link. What counts is the \
         time until the receiver has everything: bytes before packing, divided by that time, is the effective rate.",
        document.data.what
    )];
    intro.extend(document.links.iter().map(LinkResult::sentence));
    Report {
        title: format!("narrows try: {}", short(&document.data.what)),
        intro,
        sections,
        document: serde_json::to_value(document).expect("numbers and text are JSON"),
    }
}

/// `a/b.csv, c, d` as `b.csv and 2 more`: a title is one line.
fn short(what: &str) -> String {
    let mut names = what.split(", ").map(|path| {
        path.rsplit('/')
            .find(|part| !part.is_empty())
            .unwrap_or(path)
    });
    let first = names.next().unwrap_or(what);
    match names.count() {
        0 => first.into(),
        more => format!("{first} and {more} more"),
    }
}

fn overview(document: &Document) -> Section {
    let mut columns = vec![("policy".to_string(), false)];
    columns.extend(document.links.iter().map(|link| (link.link.clone(), true)));
    let names = document.links[0].policies.iter().map(|policy| &policy.name);
    let rows = names.enumerate().map(|(number, name)| {
        let cells = document
            .links
            .iter()
            .map(|link| rate(&link.policies[number], link));
        std::iter::once(Cell::marked(name.clone(), Mark::Name))
            .chain(cells)
            .collect()
    });
    let table = Table {
        caption: "Effective rate, Mbit/s (times raw)".into(),
        columns,
        rows: rows.collect(),
    };
    Section {
        heading: "All links".into(),
        blocks: vec![Block::Table(table), legend()],
    }
}

fn legend() -> Block {
    Block::Text(
        "Bold is the fastest on its link. Where adaptive is not, its cell is shaded and says by how much it lost."
            .into(),
    )
}

/// The rate, marked where it won or, for adaptive, lost.
fn rate(policy: &PolicyResult, link: &LinkResult) -> Cell {
    if !policy.arrived() {
        return Cell::marked("failed".into(), Mark::Loss);
    }
    let times = policy
        .times_raw
        .map_or_else(String::new, |times| format!(" ({times:.2} ×)"));
    let text = format!("{}{times}", digits(policy.effective_mbit_s));
    let lost_by = link
        .verdict
        .as_ref()
        .map_or(0.0, |verdict| (1.0 - verdict.against_best_other) * 100.0);
    match policy.best {
        true => Cell::marked(text, Mark::Best),
        false if policy.name == "adaptive" => {
            Cell::marked(format!("{text} −{lost_by:.1} %"), Mark::Loss)
        }
        false => text.into(),
    }
}

fn link_section(document: &Document, link: &LinkResult) -> Section {
    let mut blocks = vec![Block::Text(format!(
        "{} sent{}, {}.",
        Size(link.sent_bytes),
        match link.times {
            1 if link.sent_bytes < document.data.bytes => {
                let (pieces, all) = (link.pieces.len(), Size(document.data.bytes));
                format!(
                    " of {all}: {pieces} pieces, evenly spread, since this link carries no more in the time allowed"
                )
            }
            1 => String::new(),
            times => format!(
                ", which are the data {times} times over: once would take too short to tell"
            ),
        },
        rounds(document.repeat)
    ))];
    if link.verdict.as_ref().is_some_and(|verdict| verdict.short) {
        blocks.push(Block::Note(
            "Raw took under half a second here, so the first moments of a session count for much. Give more data to judge by.".into(),
        ));
    }
    for policy in link.policies.iter().filter(|policy| policy.fault.is_some()) {
        let fault = policy.fault.as_deref().unwrap_or_default();
        blocks.push(Block::Note(format!("{} failed: {fault}", policy.name)));
    }
    blocks.push(Block::Picture(Picture {
        caption:
            "Effective rate: medians as bars, the slowest and fastest round as a line, the link's own rate dashed. \
                  Wire bytes and processor time: medians."
                .into(),
        spec: bars(link),
    }));
    if !link.timeline.is_empty() {
        blocks.push(Block::Picture(Picture {
            caption:
                "What adaptive took as it went through the data: share of each codec, left to right in the order sent. \
                      From the transfer that is not counted."
                    .into(),
            spec: timeline(link),
        }));
    }
    blocks.push(Block::Table(numbers(link)));
    if document.links.len() == 1 {
        blocks.push(legend());
    }
    Section {
        heading: link.link.clone(),
        blocks,
    }
}

fn numbers(link: &LinkResult) -> Table {
    let columns = [
        "policy",
        "Mbit/s",
        "least to most",
        "wire, MB",
        "ratio",
        "CPU send, s",
        "CPU receive, s",
    ];
    let rows = link.policies.iter().map(|policy| {
        let mut row = vec![
            Cell::marked(policy.name.clone(), Mark::Name),
            rate(policy, link),
        ];
        let numbers = [
            match policy.runs.len() {
                1 => "one round".into(),
                _ => format!(
                    "{} to {}",
                    digits(policy.effective_mbit_s_min),
                    digits(policy.effective_mbit_s_max)
                ),
            },
            digits(policy.wire_bytes as f64 / 1e6),
            format!("{:.2}", policy.ratio),
            format!("{:.2}", policy.send_cpu_s),
            format!("{:.2}", policy.recv_cpu_s),
        ];
        row.extend(numbers.map(|text| {
            if policy.arrived() {
                text.into()
            } else {
                Cell::default()
            }
        }));
        row
    });
    Table {
        caption: "Medians of the rounds; × is against raw".into(),
        columns: columns
            .iter()
            .enumerate()
            .map(|(at, name)| ((*name).to_string(), at > 0))
            .collect(),
        rows: rows.collect(),
    }
}

/// Three panels that share their rows: rate, wire bytes, processor time.
#[allow(
    clippy::too_many_lines,
    reason = "a picture or a table, from top to bottom"
)]
fn bars(link: &LinkResult) -> Value {
    let arrived = || link.policies.iter().filter(|policy| policy.arrived());
    let names: Vec<_> = link
        .policies
        .iter()
        .map(|policy| policy.name.as_str())
        .collect();
    let values: Vec<_> = arrived()
        .map(|policy| {
            let times = policy.times_raw.map_or_else(String::new, |times| format!(" · {times:.2} × raw"));
            json!({
                "policy": policy.name, "mbit": policy.effective_mbit_s,
                "least": policy.effective_mbit_s_min, "most": policy.effective_mbit_s_max,
                "label": format!("{}{times}", digits(policy.effective_mbit_s)),
                "wire": policy.wire_bytes as f64 / 1e6, "wire_label": digits(policy.wire_bytes as f64 / 1e6),
                "kind": if policy.name == "adaptive" { "adaptive" } else if policy.name == "none" { "raw" } else { "other" },
            })
        })
        .collect();
    let cpu: Vec<_> = arrived()
        .flat_map(|policy| {
            [("send", policy.send_cpu_s), ("receive", policy.recv_cpu_s)]
                .map(|(end, cpu_s)| json!({ "policy": policy.name, "end": end, "cpu": cpu_s }))
        })
        .collect();
    let totals: Vec<_> = arrived()
        .map(|policy| {
            let total = policy.send_cpu_s + policy.recv_cpu_s;
            json!({ "policy": policy.name, "cpu": total, "label": format!("{total:.2}") })
        })
        .collect();
    let rate_max = link
        .rate_mbit_s
        .into_iter()
        .chain(arrived().map(|policy| policy.effective_mbit_s_max))
        .fold(0.0, f64::max);
    let wire_max = arrived()
        .map(|policy| policy.wire_bytes as f64 / 1e6)
        .fold(0.0, f64::max);
    let cpu_max = arrived()
        .map(|policy| policy.send_cpu_s + policy.recv_cpu_s)
        .fold(0.0, f64::max);
    let height = json!({ "step": 26 });
    let rows = |axis: Value| json!({ "field": "policy", "type": "nominal", "sort": names, "title": null, "axis": axis, "scale": { "paddingInner": 0.28 } });
    let first =
        rows(json!({ "ticks": false, "domain": false, "labelFontSize": 13, "labelPadding": 8 }));
    let later = rows(Value::Null);
    // Room to the right of the longest bar for its label.
    let across = |field: &str, title: &str, max: f64, room: f64| {
        json!({
            "field": field, "type": "quantitative", "title": title,
            "scale": { "domain": [0, (max * room).max(1e-3)], "nice": false }, "axis": { "tickCount": 5 },
        })
    };
    let colour = json!({
        "field": "kind", "type": "nominal", "legend": null,
        "scale": { "domain": ["adaptive", "raw", "other"], "range": [OURS, "#5d6d78", "#a9bcc9"] },
    });
    let bar = json!({ "type": "bar", "cornerRadiusEnd": 2 });
    let label = |field: &str| json!({ "field": field, "type": "nominal" });
    let beside = json!({ "type": "text", "align": "left", "dx": 6 });
    let mut rate_layers = vec![json!({ "mark": bar, "encoding": { "color": colour } })];
    if let Some(rate) = link.rate_mbit_s {
        rate_layers.push(json!({ "data": { "values": [{ "rate": rate }] },
            "mark": { "type": "rule", "strokeDash": [4, 3], "color": "#c2571a", "strokeWidth": 1.5 },
            "encoding": { "x": { "field": "rate", "type": "quantitative" }, "y": null } }));
    }
    // A halo, for labels that the dashed line crosses.
    let halo =
        json!({ "type": "text", "align": "left", "dx": 6, "stroke": "#ffffff", "strokeWidth": 4 });
    let text = json!({ "text": label("label"), "x": { "field": "most", "type": "quantitative" } });
    rate_layers.extend([
        json!({ "mark": { "type": "rule", "strokeWidth": 1.5, "color": INK },
            "encoding": { "x": { "field": "least", "type": "quantitative" }, "x2": { "field": "most" } } }),
        json!({ "mark": halo, "encoding": text }),
        json!({ "mark": beside, "encoding": text }),
    ]);
    json!({
        "spacing": 26,
        "hconcat": [
            { "title": "Effective rate", "width": 400, "height": height, "data": { "values": values },
              "encoding": { "y": first, "x": across("mbit", "Mbit/s", rate_max, 1.42) }, "layer": rate_layers },
            { "title": "On the wire", "width": 190, "height": height, "data": { "values": values },
              "encoding": { "y": later, "x": across("wire", "MB", wire_max, 1.25) },
              "layer": [{ "mark": bar, "encoding": { "color": colour } }, { "mark": beside, "encoding": { "text": label("wire_label") } }] },
            { "title": "Processor time", "width": 230, "height": height,
              "encoding": { "y": later, "x": across("cpu", "s, both ends", cpu_max, 1.22) },
              "layer": [
                  { "data": { "values": cpu }, "mark": bar, "encoding": {
                      "color": { "field": "end", "type": "nominal", "title": null, "legend": { "orient": "top-right", "direction": "vertical", "fillColor": "#ffffffd9", "padding": 2 },
                          "scale": { "domain": ["send", "receive"], "range": ["#3f6f9f", "#9cc3e4"] } },
                      "order": { "field": "end", "sort": "descending" } } },
                  { "data": { "values": totals }, "mark": beside, "encoding": { "text": label("label") } },
              ] },
        ],
        "resolve": { "scale": { "color": "independent" } },
    })
}

/// Share of each codec in equal parts of the data, with the names of the files above.
#[allow(
    clippy::too_many_lines,
    reason = "a picture or a table, from top to bottom"
)]
fn timeline(link: &LinkResult) -> Value {
    let total = link
        .timeline
        .last()
        .map_or(1, |span| span.at + span.len)
        .max(1);
    let bin_len = total.div_ceil(BINS);
    let mut bins: BTreeMap<(u64, &str), u64> = BTreeMap::new();
    for span in &link.timeline {
        let (mut at, end) = (span.at, span.at + span.len);
        while at < end {
            let next = ((at / bin_len + 1) * bin_len).min(end);
            *bins.entry((at / bin_len, &span.codec)).or_default() += next - at;
            at = next;
        }
    }
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let share = |bin: u64, len: u64| len as f64 / (bin_len.min(total - bin * bin_len)) as f64;
    // Shares are stacked here, in the order of the legend, so that the picture needs no transform of its own.
    let mut carried: BTreeMap<&str, u64> = BTreeMap::new();
    for span in &link.timeline {
        *carried.entry(&span.codec).or_default() += span.len;
    }
    let mut codecs: Vec<_> = carried.into_iter().collect();
    codecs.sort_by_key(|(codec, len)| (*codec != "raw", std::cmp::Reverse(*len)));
    let codecs: Vec<_> = codecs.into_iter().map(|(codec, _)| codec).collect();
    let mut values = Vec::new();
    for bin in 0..total.div_ceil(bin_len) {
        let mut below = 0.0;
        for codec in &codecs {
            if let Some(len) = bins.get(&(bin, codec)) {
                let top = below + share(bin, *len);
                // Each reaches a little under the next, or else the page shows through between them.
                let (from, to) = (
                    mib(bin * bin_len),
                    mib(((bin + 1) * bin_len + bin_len / 12).min(total)),
                );
                values.push(json!({ "codec": codec, "from": from, "to": to, "below": below, "top": top.min(1.0) }));
                below = top;
            }
        }
    }
    let mut at = 0;
    let names: Vec<_> = link
        .pieces
        .iter()
        .map(|piece| {
            let begin = at;
            at += piece.len;
            let name = piece.name.rsplit('/').next().unwrap_or(&piece.name);
            // A name wider than its stretch of the axis would run into the next one.
            let room = (piece.len as f64 / total as f64 * WIDTH / 6.2) as usize;
            let name = if name.chars().count() <= room {
                name
            } else {
                ""
            };
            json!({ "name": name, "begin": mib(begin), "middle": mib(begin + piece.len / 2) })
        })
        .collect();
    let colours: Vec<_> = codecs
        .iter()
        .zip(palette(&codecs))
        .map(|(_, colour)| colour)
        .collect();
    let x = |field: &str| json!({ "field": field, "type": "quantitative", "title": "MiB of the data", "scale": { "domain": [0, mib(total)], "nice": false }, "axis": { "grid": false } });
    let mut layers = vec![json!({
        "data": { "values": values }, "mark": { "type": "rect", "strokeWidth": 0 },
        "encoding": {
            "x": x("from"), "x2": { "field": "to" },
            "y": { "field": "below", "type": "quantitative", "title": null, "scale": { "domain": [0, 1] }, "axis": { "format": "%", "tickCount": 3, "grid": false } },
            "y2": { "field": "top" },
            "color": { "field": "codec", "type": "nominal", "title": null, "sort": codecs, "legend": { "orient": "bottom", "columns": 8, "symbolType": "square" },
                "scale": { "domain": codecs, "range": colours } },
        },
    })];
    if (2..=40).contains(&names.len()) {
        layers.push(
            json!({ "data": { "values": names[1..] }, "mark": { "type": "rule", "color": "#ffffff", "strokeWidth": 2 },
            "encoding": { "x": x("begin") } }),
        );
    }
    if names.len() <= 40 {
        layers.push(
            json!({ "data": { "values": names }, "mark": { "type": "text", "baseline": "bottom", "fontSize": 11 },
            "encoding": { "x": x("middle"), "y": { "value": -4 }, "text": { "field": "name", "type": "nominal" } } }),
        );
    }
    json!({ "width": WIDTH, "height": 110, "layer": layers })
}

/// Raw is grey; the rest take colours that differ in lightness too, for print and for eyes that see few.
fn palette(codecs: &[&str]) -> Vec<&'static str> {
    let mut colours = [
        "#0b7a75", "#e0a030", "#3f6f9f", "#c2571a", "#8bbf9f", "#7b5ea7", "#9cc3e4", "#7a4b2a",
        "#d98cb3", "#3a3a55",
    ]
    .iter()
    .cycle();
    codecs
        .iter()
        .map(|codec| {
            if *codec == "raw" {
                "#cfd8de"
            } else {
                colours.next().expect("it goes round")
            }
        })
        .collect()
}

fn how(document: &Document) -> Section {
    let mut blocks = vec![
        Block::Text(format!(
            "Sender and receiver were processes of their own, on this machine, and shared its {} processors with the relay \
             that emulates the link. On two machines each end has its own: codecs that cost more then do better than here.",
            document.machine.cores
        )),
        Block::Text(
            "Rounds were interleaved, every other one in reverse order; numbers are medians. A policy that took more than twice \
             the time allowed for raw raced in one round only. Each transfer started from nothing: \
             what adaptive learns, it learns within its time. Every transfer's bytes were compared on arrival, by length and \
             XXH3-64; all were the same."
                .into(),
        ),
        Block::Text(
            "none sends raw. naive packs the whole message (in chunks as large as the format allows), then sends, then unpacks. \
             A codec's name alone is one codec and level for every chunk, in the same parallel pipeline."
                .into(),
        ),
        Block::Text(format!("To repeat: {}", document.command)),
    ];
    if document.machine.build == "debug" {
        blocks.push(Block::Note(
            "This was a debug build: processor time is not what it would be.".into(),
        ));
    }
    Section {
        heading: "How it was measured".into(),
        blocks,
    }
}

fn machine(document: &Document) -> Section {
    let sheet = &document.machine;
    let rows = [
        ("begun", document.started.clone()),
        (
            "processor",
            format!("{}, {} usable", sheet.cpu, sheet.cores),
        ),
        (
            "memory",
            sheet
                .memory_bytes
                .map_or_else(|| "unknown".into(), |bytes| Size(bytes).to_string()),
        ),
        (
            "system",
            format!(
                "{}{}, {}",
                sheet
                    .system
                    .as_deref()
                    .map_or_else(String::new, |name| format!("{name}, ")),
                sheet.kernel,
                sheet.arch
            ),
        ),
        (
            "load before",
            sheet
                .load
                .map_or_else(|| "unknown".into(), |load| format!("{load:.2}")),
        ),
        (
            "narrows",
            format!(
                "{}, commit {}, {} build",
                sheet.version, sheet.commit, sheet.build
            ),
        ),
        (
            "threads",
            if document.threads == 0 {
                "one for each processor".into()
            } else {
                document.threads.to_string()
            },
        ),
        (
            "data",
            format!(
                "{}: {} in {} files",
                document.data.what,
                Size(document.data.bytes),
                document.data.files
            ),
        ),
    ];
    let rows = rows
        .map(|(name, value)| vec![Cell::marked(name.into(), Mark::Name), value.into()])
        .into();
    let table = Table {
        caption: String::new(),
        columns: vec![("".into(), false), ("".into(), false)],
        rows,
    };
    Section {
        heading: "Machine".into(),
        blocks: vec![Block::Table(table)],
    }
}

const OURS: &str = "#0b7a75";
const BINS: u64 = 160;
const WIDTH: f64 = 950.0;
