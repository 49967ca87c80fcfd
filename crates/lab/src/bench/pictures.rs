//! Rows of [`bench`](super) as sections of a report.

use std::collections::BTreeSet;

use narrows_core::units::Size;
use serde_json::{Value, json};

use crate::{
    report::{Block, Cell, Mark, Picture, Section, Table},
    result::{Row, Run},
    trial::digits,
};

/// One section for each data and number of threads.
#[must_use]
pub fn sections(run: &Run) -> Vec<Section> {
    let key = |row: &Row| {
        (
            row.case.data.clone().unwrap_or_default(),
            row.case.threads.unwrap_or(1),
        )
    };
    let keys: BTreeSet<_> = run.rows.iter().map(key).collect();
    let section = |(data, threads): (String, u64)| {
        let rows: Vec<&Row> = run
            .rows
            .iter()
            .filter(|row| key(row) == (data.clone(), threads))
            .collect();
        let bytes = rows
            .iter()
            .filter_map(|row| row.case.data_bytes)
            .max()
            .unwrap_or(0);
        let picture = |caption: &str, speed: &str, title: &str, mark: &str| {
            Block::Picture(Picture {
                caption: caption.into(),
                spec: scatter(&rows, speed, title, mark),
            })
        };
        let mut blocks = vec![
            picture(
                "Ratio against packing speed. Further right and up is better; the line joins those that nobody beats in both.",
                "pack_mb_s",
                "packing, MB/s",
                "pareto_pack",
            ),
            picture(
                "Ratio against unpacking speed, likewise.",
                "unpack_mb_s",
                "unpacking, MB/s",
                "pareto_unpack",
            ),
            Block::Table(table(&rows)),
        ];
        blocks.extend(rows.iter().filter_map(|row| {
            let fault = row.fault.as_deref()?;
            Some(Block::Note(format!(
                "{} failed: {fault}",
                row.case.codec.as_deref().unwrap_or("a case")
            )))
        }));
        let plural = if threads == 1 { "" } else { "s" };
        Section {
            heading: format!(
                "Codecs on {data}, {}, {threads} thread{plural}",
                Size(bytes)
            ),
            blocks,
        }
    };
    keys.into_iter().map(section).collect()
}

fn scatter(rows: &[&Row], speed: &str, title: &str, mark: &str) -> Value {
    let values: Vec<_> = rows
        .iter()
        .filter_map(|row| {
            let codec = row.case.codec.clone()?;
            let front = row.marks.contains(mark);
            let chunk = Size(row.case.chunk_bytes?).to_string();
            Some(json!({ "codec": codec, "family": family(&codec), "chunk": chunk, "ratio": row.value("ratio")?,
                "speed": row.value(speed)?, "front": front, "label": if front { codec.as_str() } else { "" } }))
        })
        .collect();
    let x = json!({ "field": "speed", "type": "quantitative", "title": title, "scale": { "type": "log", "nice": false, "padding": 30 } });
    let y = json!({ "field": "ratio", "type": "quantitative", "title": "ratio", "scale": { "type": "log", "nice": false, "padding": 18 } });
    json!({
        "width": 700, "height": 330, "data": { "values": values },
        "layer": [
            { "transform": [{ "filter": "datum.front" }], "mark": { "type": "line", "color": "#c4ccd2", "strokeWidth": 2 },
              "encoding": { "x": x, "y": y, "order": { "field": "speed" } } },
            { "mark": { "type": "point", "filled": true, "size": 70, "opacity": 0.9 },
              "encoding": { "x": x, "y": y,
                "color": { "field": "family", "type": "nominal", "title": "codec", "scale": { "range": PALETTE } },
                "shape": { "field": "chunk", "type": "nominal", "title": "chunk" } } },
            { "mark": { "type": "text", "align": "left", "baseline": "bottom", "dx": 6, "dy": -4, "fontSize": 11 },
              "encoding": { "x": x, "y": y, "text": { "field": "label", "type": "nominal" } } },
        ],
    })
}

/// `shuffle4-zstd:1` is a zstd; a picture with a colour a level says nothing.
fn family(codec: &str) -> &str {
    let name = codec.split(':').next().unwrap_or(codec);
    let typed = ["shuffle", "delta", "decimal"]
        .iter()
        .any(|transform| name.starts_with(transform));
    name.split_once('-')
        .filter(|_| typed)
        .map_or(name, |(_, packer)| packer)
}

fn table(rows: &[&Row]) -> Table {
    let columns = [
        "codec",
        "chunk",
        "ratio",
        "rounded to 4 KiB",
        "pack MB/s",
        "unpack MB/s",
        "pack CPU s/GB",
        "unpack CPU s/GB",
        "memory, MiB",
        "front",
    ];
    let rows = rows.iter().map(|row| {
        let number =
            |name: &str, of: fn(f64) -> String| row.value(name).map_or_else(|| "–".into(), of);
        let front = match (
            row.marks.contains("pareto_pack"),
            row.marks.contains("pareto_unpack"),
        ) {
            (true, true) => "both",
            (true, false) => "pack",
            (false, true) => "unpack",
            (false, false) => "",
        };
        // It took time and gained nothing.
        let ratio = number("ratio", |ratio| format!("{ratio:.3}"));
        let lost = row.value("ratio").is_some_and(|ratio| ratio <= 1.0)
            && row.case.codec.as_deref() != Some("raw");
        vec![
            Cell::marked(row.case.codec.clone().unwrap_or_default(), Mark::Name),
            Size(row.case.chunk_bytes.unwrap_or(0)).to_string().into(),
            Cell::marked(ratio, if lost { Mark::Loss } else { Mark::Plain }),
            number("ratio_4k", |ratio| format!("{ratio:.3}")).into(),
            number("pack_mb_s", digits).into(),
            number("unpack_mb_s", digits).into(),
            number("pack_cpu_s_per_gb", digits).into(),
            number("unpack_cpu_s_per_gb", digits).into(),
            number("memory_bytes", |bytes| digits(bytes / f64::from(1 << 20))).into(),
            Cell::marked(
                front.into(),
                if front.is_empty() {
                    Mark::Plain
                } else {
                    Mark::Best
                },
            ),
        ]
    });
    Table {
        caption: "Ratio is raw over packed; a chunk that does not shrink counts as it is. Shaded: nothing gained."
            .into(),
        columns: columns.iter().enumerate().map(|(at, name)| ((*name).to_string(), (1..9).contains(&at))).collect(),
        rows: rows.collect(),
    }
}

const PALETTE: [&str; 10] = [
    "#0b7a75", "#e0a030", "#3f6f9f", "#c2571a", "#8bbf9f", "#7b5ea7", "#9cc3e4", "#7a4b2a",
    "#d98cb3", "#3a3a55",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_what_packs_in_the_end() {
        for (codec, of) in [
            ("zstd:-5", "zstd"),
            ("shuffle4-zstd:1", "zstd"),
            ("lz4", "lz4"),
            ("shuffle4-lz4", "lz4"),
            ("lz4-hc:9", "lz4-hc"),
        ] {
            assert_eq!(family(codec), of);
        }
    }
}
