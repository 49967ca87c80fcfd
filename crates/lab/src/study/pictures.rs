//! Rows of a [`study`](super) as sections of a report: searches, figures, the paper's words beside ours.

use std::collections::{BTreeMap, BTreeSet};

use narrows_core::units::{Rate, Size};
use serde_json::{Value, json};

use super::{WAYS, WEIGHTS, best, trade_offs, way};
use crate::{
    race::DataPath,
    report::{Block, Cell, Mark, Picture, Section, Table},
    result::{Case, Row, Run},
    trial::digits,
};

/// What the paper says, as far as it was at hand, and what we found. Nothing of it is made up: where its number is not
/// known the cell says so.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The paper's words.
    pub paper: &'static str,
    /// Ours, from the rows.
    pub ours: String,
    /// Whether it holds here.
    pub holds: Verdict,
}

/// Whether a conclusion holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// In nine of ten cells at least, where it is about many.
    Holds,
    /// In three of four.
    Mostly,
    /// In fewer.
    DoesNot,
}

impl Verdict {
    fn of(holds: bool) -> Self {
        if holds { Self::Holds } else { Self::DoesNot }
    }

    fn share(some: usize, all: usize) -> Self {
        match some as f64 / all as f64 {
            0.9.. => Self::Holds,
            0.75.. => Self::Mostly,
            _ => Self::DoesNot,
        }
    }
}

/// The sections of all studies together, since shards are one study.
#[must_use]
pub fn sections(runs: &[&Run]) -> Vec<Section> {
    let rows: Vec<&Row> = runs
        .iter()
        .flat_map(|run| &run.rows)
        .filter(|row| row.fault.is_none())
        .collect();
    let mut sections = Vec::new();
    for path in [DataPath::Stream, DataPath::Gpu] {
        let rows = of_path(&rows, path);
        if rows.iter().any(|row| is_transfer(row)) {
            sections.extend(sections_of(&rows, path));
        }
    }
    let faults: Vec<_> = runs
        .iter()
        .flat_map(|run| &run.rows)
        .filter_map(|row| row.fault.clone())
        .collect();
    if !faults.is_empty() {
        let blocks = vec![Block::Note(format!(
            "{} transfers failed: {}",
            faults.len(),
            faults.join("; ")
        ))];
        sections.push(Section {
            heading: "Failed".into(),
            blocks,
        });
    }
    sections
}

/// Whether a row is of a transfer that a study made.
fn is_transfer(row: &Row) -> bool {
    let part = row.case.part.as_deref();
    part.is_some_and(|part| ["raw", "search", "figure"].contains(&part))
}

/// Transfers of one data path, and all that are none.
#[must_use]
pub fn of_path<'a>(rows: &[&'a Row], path: DataPath) -> Vec<&'a Row> {
    rows.iter()
        .copied()
        .filter(|row| !is_transfer(row) || DataPath::of(&row.case) == path)
        .collect()
}

fn sections_of(rows: &[&Row], path: DataPath) -> Vec<Section> {
    let mut sections = vec![findings_section(&findings(rows))];
    for link in links(rows) {
        sections.push(best_table(rows, link));
    }
    sections.extend(axes(rows));
    for link in links(rows) {
        sections.extend(figure(rows, link));
    }
    if path == DataPath::Gpu {
        for section in &mut sections {
            section.heading = format!("Copies to a GPU: {}", section.heading);
        }
    }
    sections
}

fn part<'a>(rows: &[&'a Row], part: &str) -> Vec<&'a Row> {
    rows.iter()
        .copied()
        .filter(|row| row.case.part.as_deref() == Some(part))
        .collect()
}

fn links(rows: &[&Row]) -> Vec<f64> {
    let mut links: Vec<f64> = rows.iter().filter_map(|row| row.case.link_mbit_s).collect();
    links.sort_by(f64::total_cmp);
    links.dedup();
    links.reverse();
    links
}

/// Whether a case is on a line.
type Held<'a> = &'a dyn Fn(&Case) -> bool;
/// Where a case is on an axis.
type Place = fn(&Case) -> Option<u64>;

/// Rows of searches by link, data and codec.
fn cells<'a>(rows: &[&'a Row]) -> BTreeMap<(u64, String, String), Vec<&'a Row>> {
    let mut cells: BTreeMap<_, Vec<&Row>> = BTreeMap::new();
    for row in part(rows, "search") {
        let link = row.case.link_mbit_s.unwrap_or(0.0) as u64;
        let name = |name: &Option<String>| name.clone().unwrap_or_default();
        cells
            .entry((link, name(&row.case.data), name(&row.case.codec)))
            .or_default()
            .push(row);
    }
    cells
}

/// The staged search over rows that hold it: length, then chunks in flight, then threads.
fn staged<'a>(rows: &[&'a Row]) -> Option<(&'a Row, usize)> {
    let most = |of: fn(&Case) -> Option<u64>| rows.iter().filter_map(|row| of(&row.case)).max();
    let (mut depth, mut threads) = (most(|case| case.depth)?, most(|case| case.threads)?);
    let mut looked = BTreeSet::new();
    let mut stage = |held: &dyn Fn(&Case) -> bool| {
        let rows: Vec<&'a Row> = rows.iter().copied().filter(|row| held(&row.case)).collect();
        looked.extend(rows.iter().map(|row| super::key(&row.case)));
        best(&rows, WEIGHTS).map(|(row, _)| row)
    };
    let chunk = stage(&|case| case.depth == Some(depth) && case.threads == Some(threads))?
        .case
        .chunk_bytes;
    depth = stage(&|case| case.chunk_bytes == chunk && case.threads == Some(threads))?
        .case
        .depth?;
    let found = stage(&|case| case.chunk_bytes == chunk && case.depth == Some(depth))?;
    threads = found.case.threads?;
    debug_assert!(threads > 0, "a search has threads");
    Some((found, looked.len()))
}

/// As in the paper's tables: the best setting of each codec on each kind of data, on one link.
#[allow(
    clippy::too_many_lines,
    reason = "a picture or a table, from top to bottom"
)]
fn best_table(rows: &[&Row], link: f64) -> Section {
    let columns = [
        "data",
        "codec",
        "staged: chunk, number, threads",
        "Mbit/s",
        "× raw",
        "looked at",
        "full: chunk, number, threads",
        "Mbit/s",
        "looked at",
        "staged trade-off",
    ];
    let raw: BTreeMap<String, f64> = part(rows, "raw")
        .into_iter()
        .filter(|row| row.case.link_mbit_s == Some(link))
        .filter_map(|row| Some((row.case.data.clone()?, row.value("effective_mbit_s")?)))
        .collect();
    let mut table_rows = Vec::new();
    for ((at, data, codec), rows) in cells(rows) {
        if at != link as u64 {
            continue;
        }
        let Some((found, looked)) = staged(&rows) else {
            continue;
        };
        let setting = |row: &Row| {
            let number =
                |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
            let rate = row.value("effective_mbit_s").unwrap_or(0.0);
            let chunk = Size(row.case.chunk_bytes.unwrap_or(0));
            [
                format!(
                    "{chunk}, {}, {}",
                    number(row.case.depth),
                    number(row.case.threads)
                ),
                digits(rate),
            ]
        };
        let rate = found.value("effective_mbit_s").unwrap_or(0.0);
        let times = raw.get(&data).map(|raw| rate / raw);
        let lost = times.is_some_and(|times| times < 1.0);
        let mut line = vec![Cell::marked(data, Mark::Name), codec.into()];
        line.extend(setting(found).map(Cell::from));
        let text = times.map_or_else(|| "–".into(), |times| format!("{times:.2}"));
        line.push(Cell::marked(
            text,
            if lost { Mark::Loss } else { Mark::Plain },
        ));
        line.push(looked.to_string().into());
        match best(&rows, WEIGHTS).filter(|_| rows.len() > looked) {
            Some((top, score)) => {
                line.extend(setting(top).map(Cell::from));
                let scores = trade_offs(&rows, WEIGHTS);
                let at = rows
                    .iter()
                    .position(|row| row.case == found.case)
                    .unwrap_or(0);
                line.push(rows.len().to_string().into());
                let share = format!("{:.2} of {score:.2}", scores[at]);
                line.push(Cell::marked(
                    share,
                    if top.case == found.case {
                        Mark::Best
                    } else {
                        Mark::Plain
                    },
                ));
            }
            None => line.extend((0..4).map(|_| Cell::default())),
        }
        table_rows.push(line);
    }
    let table = Table {
        caption: "Settings with the best trade-off, by the staged search and, where it was made, by the full one. Shaded: slower than raw.".into(),
        columns: columns.iter().enumerate().map(|(at, name)| ((*name).to_string(), at > 1)).collect(),
        rows: table_rows,
    };
    let note = "The paper's Tables 2 to 4 and A1 to A3 hold such settings; `narrows study --published` puts them beside ours.";
    Section {
        heading: format!("Best settings at {}", Rate::from_mbit(link)),
        blocks: vec![Block::Text(note.into()), Block::Table(table)],
    }
}

/// Figures 6 to 8: trade-off along each axis of the staged search, Gipfeli at the fastest link.
fn axes(rows: &[&Row]) -> Option<Section> {
    let link = links(rows).first().copied()?;
    let mut values: Vec<(usize, Value)> = Vec::new();
    for ((at, data, codec), rows) in cells(rows) {
        if at != link as u64 || codec != "gipfeli" {
            continue;
        }
        let most = |of: fn(&Case) -> Option<u64>| rows.iter().filter_map(|row| of(&row.case)).max();
        let (depth, threads) = (most(|case| case.depth), most(|case| case.threads));
        let Some((found, _)) = staged(&rows) else {
            continue;
        };
        let (chunk, depth_found) = (found.case.chunk_bytes, found.case.depth);
        let lines: [(Held, Place); 3] = [
            (
                &|case| case.depth == depth && case.threads == threads,
                |case| case.chunk_bytes,
            ),
            (
                &|case| case.chunk_bytes == chunk && case.threads == threads,
                |case| case.depth,
            ),
            (
                &|case| case.chunk_bytes == chunk && case.depth == depth_found,
                |case| case.threads,
            ),
        ];
        for (figure, (held, x)) in lines.into_iter().enumerate() {
            let line: Vec<&Row> = rows.iter().copied().filter(|row| held(&row.case)).collect();
            for (row, score) in line.iter().zip(trade_offs(&line, WEIGHTS)) {
                values.push((
                    figure,
                    json!({ "data": data, "x": x(&row.case), "score": score }),
                ));
            }
        }
    }
    let names = [
        ("Figure 6", "length of chunks, bytes"),
        ("Figure 7", "chunks in flight"),
        ("Figure 8", "threads"),
    ];
    let panels: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(number, (name, axis))| {
            let values: Vec<_> = values.iter().filter(|(figure, _)| *figure == number).map(|(_, value)| value).collect();
            let mut ticks: Vec<u64> = values.iter().filter_map(|value| value["x"].as_u64()).collect();
            ticks.sort_unstable();
            ticks.dedup();
            json!({
                "title": name, "width": 240, "height": 200, "data": { "values": values },
                "mark": { "type": "line", "point": true },
                "encoding": {
                    "x": { "field": "x", "type": "quantitative", "title": axis, "scale": { "type": "log", "base": 2, "nice": false, "padding": 8 },
                        "axis": { "values": ticks, "format": "d", "labelOverlap": true } },
                    "y": { "field": "score", "type": "quantitative", "title": if number == 0 { "trade-off" } else { "" } },
                    "color": { "field": "data", "type": "nominal", "title": null, "scale": { "range": PALETTE } } },
            })
        })
        .collect();
    let caption = format!(
        "Trade-off of Gipfeli over {} along each stage of the search: {} × bandwidth − {} × length − {} × threads, each over its least.",
        Rate::from_mbit(link),
        WEIGHTS.bandwidth,
        WEIGHTS.size,
        WEIGHTS.threads
    );
    let spec = json!({ "hconcat": panels, "spacing": 24 });
    Some(Section {
        heading: "Figures 6 to 8: the staged search".into(),
        blocks: vec![Block::Picture(Picture { caption, spec })],
    })
}

/// Figures 9 to 15: bandwidth over the length of the message; share of chunks packed.
#[allow(
    clippy::too_many_lines,
    reason = "a picture or a table, from top to bottom"
)]
fn figure(rows: &[&Row], link: f64) -> Option<Section> {
    let here: Vec<&Row> = part(rows, "figure")
        .into_iter()
        .filter(|row| row.case.link_mbit_s == Some(link))
        .collect();
    let name = |value: &Option<String>| value.clone().unwrap_or_default();
    let data: BTreeSet<String> = here.iter().map(|row| name(&row.case.data)).collect();
    let codecs: BTreeSet<String> = here
        .iter()
        .filter_map(|row| row.case.codec.clone())
        .collect();
    let mut blocks = Vec::new();
    for codec in &codecs {
        let values: Vec<_> = here
            .iter()
            .filter(|row| row.case.codec.as_ref().is_none_or(|named| named == codec))
            .map(|row| json!({ "data": row.case.data, "len": row.case.data_bytes, "mbit": row.value("effective_mbit_s"), "way": way(&row.case) }))
            .collect();
        let panels: Vec<_> = data
            .iter()
            .enumerate()
            .map(|(number, data)| {
                let values: Vec<_> = values.iter().filter(|value| value["data"] == **data).collect();
                let x = json!({ "field": "len", "type": "quantitative", "title": "message, bytes", "scale": { "type": "log", "base": 2, "nice": false, "padding": 8 }, "axis": { "format": ".2~s", "tickCount": 4 } });
                json!({
                    "title": data, "width": 185, "height": 190, "data": { "values": values },
                    "mark": { "type": "line", "point": true },
                    "encoding": { "x": x,
                        "y": { "field": "mbit", "type": "quantitative", "title": if number == 0 { "Mbit/s" } else { "" } },
                        "color": { "field": "way", "type": "nominal", "title": null, "sort": WAYS, "legend": { "orient": "bottom" },
                            "scale": { "domain": WAYS, "range": ["#5d6d78", "#e0a030", "#3f6f9f", "#9cc3e4", "#0b7a75"] } } },
                })
            })
            .collect();
        blocks.push(Block::Picture(Picture {
            caption: format!(
                "Effective bandwidth over the length of the message, {codec}; adaptive chooses for itself."
            ),
            spec: json!({ "hconcat": panels, "spacing": 18 }),
        }));
    }
    let shares: BTreeMap<(String, String), f64> = part(rows, "share")
        .into_iter()
        .filter_map(|row| {
            Some((
                (row.case.data.clone()?, row.case.codec.clone()?),
                row.value("share_packed")?,
            ))
        })
        .collect();
    let columns = [
        "data",
        "codec",
        "message",
        "none",
        "naive",
        "pipeline",
        "keep if smaller",
        "adaptive",
        "chunks packed",
    ];
    let mut lines = Vec::new();
    for data in &data {
        for codec in &codecs {
            let lens: BTreeSet<u64> = here
                .iter()
                .filter(|row| row.case.data.as_ref() == Some(data))
                .filter_map(|row| row.case.data_bytes)
                .collect();
            for len in lens {
                let of = |name: &str| {
                    here.iter()
                        .find(|row| {
                            way(&row.case) == name
                                && row.case.data.as_ref() == Some(data)
                                && row.case.data_bytes == Some(len)
                                && row.case.codec.as_ref().is_none_or(|named| named == codec)
                        })
                        .and_then(|row| row.value("effective_mbit_s"))
                };
                let raw = of(WAYS[0]).unwrap_or(0.0);
                let most = WAYS.iter().filter_map(|name| of(name)).fold(0.0, f64::max);
                let mut line = vec![
                    Cell::marked(data.clone(), Mark::Name),
                    codec.clone().into(),
                    Size(len).to_string().into(),
                ];
                line.extend(WAYS.iter().map(|name| {
                    let Some(rate) = of(name) else {
                        return Cell::from("–".to_string());
                    };
                    let mark = if rate >= most {
                        Mark::Best
                    } else if rate < SLOWER * raw {
                        Mark::Loss
                    } else {
                        Mark::Plain
                    };
                    Cell::marked(digits(rate), mark)
                }));
                let share = shares.get(&(data.clone(), codec.clone()));
                line.push(
                    share
                        .map_or_else(|| "–".into(), |share| format!("{:.0} %", share * 100.0))
                        .into(),
                );
                lines.push(line);
            }
        }
    }
    blocks.push(Block::Table(Table {
        caption: "Mbit/s. Bold: the fastest. Shaded: more than 3 % slower than none. Chunks packed: of 4 KiB, keep if smaller.".into(),
        columns: columns.iter().enumerate().map(|(at, name)| ((*name).to_string(), at > 1)).collect(),
        rows: lines,
    }));
    (!here.is_empty()).then(|| Section {
        heading: format!("Figures 9 to 15: messages over {}", Rate::from_mbit(link)),
        blocks,
    })
}

/// Where the paper's conclusions hold.
#[must_use]
#[allow(
    clippy::too_many_lines,
    reason = "a picture or a table, from top to bottom"
)]
pub fn findings(rows: &[&Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let cells = cells(rows);
    // Staged against full.
    let both: Vec<_> = cells
        .values()
        .filter_map(|rows| {
            let (found, looked) = staged(rows)?;
            let (top, score) = best(rows, WEIGHTS).filter(|_| rows.len() > looked)?;
            let at = rows.iter().position(|row| row.case == found.case)?;
            let rate = found.value("effective_mbit_s")? / top.value("effective_mbit_s")?;
            Some((
                trade_offs(rows, WEIGHTS)[at] >= score - 0.1 * score.abs(),
                rate,
            ))
        })
        .collect();
    if !both.is_empty() {
        let near = both.iter().filter(|(near, _)| *near).count();
        findings.push(Finding {
            paper: "A staged search of length, number and threads finds the setting; the whole grid need not be searched.",
            ours: format!("In {near} of {} cells that were searched in full too, the staged search comes within a tenth of the best trade-off.", both.len()),
            holds: Verdict::share(near, both.len()),
        });
    }
    let settings: Vec<_> = cells
        .values()
        .filter_map(|rows| Some(staged(rows)?.0))
        .collect();
    if !settings.is_empty() {
        let small = |row: &&&Row| {
            row.case.threads <= Some(2) && (Some(1024)..=Some(4096)).contains(&row.case.chunk_bytes)
        };
        let count = settings.iter().filter(small).count();
        findings.push(Finding {
            paper: "Best are 1 or 2 threads and chunks of 1 to 4 KiB.",
            ours: format!(
                "The staged search ends there in {count} of {} cells.",
                settings.len()
            ),
            holds: Verdict::of(count * 2 > settings.len()),
        });
    }
    let figures = part(rows, "figure");
    let of = |row: &Row, name: &str| {
        figures
            .iter()
            .find(|other| {
                way(&other.case) == name
                    && other.case.data == row.case.data
                    && other.case.data_bytes == row.case.data_bytes
                    && other.case.link_mbit_s == row.case.link_mbit_s
                    && (other.case.codec.is_none()
                        || row.case.codec.is_none()
                        || other.case.codec == row.case.codec)
            })
            .and_then(|row| row.value("effective_mbit_s"))
    };
    let times: Vec<(f64, &Row)> = figures
        .iter()
        .filter(|row| way(&row.case) == "pipeline")
        .filter_map(|row| Some((row.value("effective_mbit_s")? / of(row, "none")?, *row)))
        .collect();
    let longest = figures
        .iter()
        .filter_map(|row| row.case.data_bytes)
        .max()
        .unwrap_or(0);
    if let Some((most, row)) = times
        .iter()
        .filter(|(_, row)| row.case.data_bytes >= Some(LARGE))
        .max_by(|a, b| a.0.total_cmp(&b.0))
    {
        let place = format!(
            "{} of {}, {} over {}",
            Size(row.case.data_bytes.unwrap_or(0)),
            row.case.data.as_deref().unwrap_or("data"),
            row.case.codec.as_deref().unwrap_or("a codec"),
            Rate::from_mbit(row.case.link_mbit_s.unwrap_or(0.0))
        );
        findings.push(Finding {
            paper: "Bandwidth increases by a factor of up to 2 for large messages.",
            ours: format!("The pipeline carries at most {most:.2} × none: {place}."),
            holds: Verdict::of(*most >= 1.8),
        });
    }
    let small: Vec<f64> = times
        .iter()
        .filter(|(_, row)| row.case.data_bytes <= Some(4096))
        .map(|(times, _)| *times)
        .collect();
    if !small.is_empty() {
        let lost = small.iter().filter(|times| **times < SLOWER).count();
        findings.push(Finding {
            paper: "Small messages lose.",
            ours: format!("Of {} pairs of messages of at most 4 KiB, the pipeline is slower than none by more than 3 % in {lost}.", small.len()),
            holds: Verdict::of(lost * 2 > small.len()),
        });
    }
    let against = |name: &str, other: &str, least: u64| -> Vec<f64> {
        figures
            .iter()
            .filter(|row| way(&row.case) == name && row.case.data_bytes >= Some(least))
            .filter_map(|row| Some(row.value("effective_mbit_s")? / of(row, other)?))
            .collect()
    };
    let naive = against("pipeline", "naive", LARGE);
    if !naive.is_empty() {
        let won = naive.iter().filter(|times| **times > 1.0).count();
        findings.push(Finding {
            paper: "The pipeline beats packing the whole message first.",
            ours: format!(
                "It does in {won} of {} pairs from 256 KiB on; on slow links small chunks pack worse than the whole.",
                naive.len()
            ),
            holds: Verdict::share(won, naive.len()),
        });
    }
    let kept = against("keep if smaller", "pipeline", LARGE);
    if !kept.is_empty() {
        let gained = kept.iter().filter(|times| **times > 0.97).count();
        findings.push(Finding {
            paper: "Sending raw what does not shrink does not lose.",
            ours: format!(
                "Keep-if-smaller is at 0.97 of the plain pipeline or above in {gained} of {} pairs from 256 KiB on.",
                kept.len()
            ),
            holds: Verdict::share(gained, kept.len()),
        });
    }
    let adaptive = against("adaptive", "none", LARGE);
    if !adaptive.is_empty() {
        let (least, lost) = (
            adaptive.iter().copied().fold(f64::INFINITY, f64::min),
            adaptive.iter().filter(|times| **times < SLOWER).count(),
        );
        findings.push(Finding {
            paper: "Ours: adaptive is never more than 3 % slower than none.",
            ours: format!(
                "From 256 KiB on it is in {lost} of {} pairs; least {least:.2}; messages up to {}.",
                adaptive.len(),
                Size(longest)
            ),
            holds: Verdict::of(lost == 0),
        });
    }
    findings
}

fn findings_section(findings: &[Finding]) -> Section {
    let rows = findings.iter().map(|finding| {
        let verdict = match finding.holds {
            Verdict::Holds => Cell::marked("holds".into(), Mark::Best),
            Verdict::Mostly => "mostly".to_string().into(),
            Verdict::DoesNot => Cell::marked("does not hold".into(), Mark::Loss),
        };
        vec![
            finding.paper.to_string().into(),
            finding.ours.clone().into(),
            verdict,
        ]
    });
    let table = Table {
        caption: "Peñaranda, Reaño and Silla, Sensors 2024, 24(14), 4649, and this run".into(),
        columns: ["the paper", "here", ""]
            .map(|name| (name.to_string(), false))
            .into(),
        rows: rows.collect(),
    };
    Section {
        heading: "Findings".into(),
        blocks: vec![Block::Table(table)],
    }
}

/// What counts as large: shorter ones are over before the link is felt.
const LARGE: u64 = 256 << 10;
/// What counts as slower: less than this of none.
const SLOWER: f64 = 0.97;
const PALETTE: [&str; 5] = ["#0b7a75", "#e0a030", "#3f6f9f", "#c2571a", "#7b5ea7"];
