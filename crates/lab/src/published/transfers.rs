//! Peñaranda's tables beside ours, as sections.

use serde_json::json;

use super::{
    cells::{columns, number, text},
    claims,
    held::{Found, Held},
    measure::MESSAGE,
    tables::{self, codec_of},
};
use crate::{
    report::{Block, Cell, Mark, Picture, Section, Table},
    trial::digits,
};

const KINDS: [(&str, &str, &str); 4] = [
    (
        "3",
        "traced",
        "copies of a training between host and GPU there; here the data given as `--traced`, else the bundled sample",
    ),
    (
        "A1",
        "lineal",
        "bytes that count, over and over: the published ratios of LZ4 come out of it to a hundredth, so it is the same data",
    ),
    ("A2", "random", "random bytes"),
    (
        "A3",
        "sparse",
        "zeros with a random byte about every 6 KiB, which gives about the published ratios of LZ4",
    ),
];

/// Tables 3, A1, A2, A3, then 2 and 4, then what Figures 9 to 15 say in numbers.
#[must_use]
pub fn sections(held: &Held<'_>) -> Vec<Section> {
    let mut sections: Vec<Section> = KINDS.iter().map(|kind| best_table(held, kind)).collect();
    sections.push(by_threads(held));
    sections.push(short_and_whole(held));
    sections.push(thresholds(held));
    sections
}

fn setting(threads: u64, chunks: u64, bytes: f64) -> String {
    let kib = bytes / 1024.0;
    let length = if kib < 1.0 {
        format!("{bytes:.0} B")
    } else {
        format!("{kib:.0} KiB")
    };
    // Does not break: three numbers are one setting.
    format!("{threads} · {chunks} · {length}").replace(' ', "\u{a0}")
}

fn found(found: Option<Found>) -> [Cell; 2] {
    match found {
        Some(found) => [
            setting(found.threads, found.depth, found.chunk as f64).into(),
            digits(found.mbit_s).into(),
        ],
        None => [text("–"), text("–")],
    }
}

fn best_table(held: &Held<'_>, (table, data, what): &(&str, &'static str, &str)) -> Section {
    let lines: Vec<_> = tables::best()
        .into_iter()
        .filter(|line| line.table == *table)
        .collect();
    let mut rows = Vec::new();
    let mut bars = Vec::new();
    for line in &lines {
        let codec = codec_of(line.library);
        let chunk = held.chunk(data, codec, (line.chunk_kib * 1024.0) as u64);
        let value = |name: &str| chunk.and_then(|row| row.value(name));
        let by_bandwidth = held.by_bandwidth(line.link, data, codec);
        let adaptive = held.longest(line.link, data, codec, "adaptive");
        let mut row = vec![
            Cell::marked(format!("{:.0}", line.link), Mark::Name),
            line.library.to_string().into(),
            setting(line.threads, line.chunks, line.chunk_kib * 1024.0).into(),
            number(Some(line.ratio)),
            number(value("ratio")),
            number(Some(line.micros)),
            number(value("micros")),
            number(Some(line.mbit_s)),
        ];
        row.extend(found(held.by_trade_off(line.link, data, codec)));
        row.extend(found(by_bandwidth));
        row.push(match (adaptive, by_bandwidth) {
            (Some(ours), Some(best)) if ours < 0.97 * best.mbit_s => {
                Cell::marked(digits(ours), Mark::Loss)
            }
            (Some(ours), _) => Cell::marked(digits(ours), Mark::Best),
            (None, _) => text("–"),
        });
        rows.push(row);
        let link = format!("{:.0} Mbit/s", line.link);
        for (who, mbit) in [
            ("theirs", Some(line.mbit_s)),
            (
                "ours, their library",
                by_bandwidth.map(|found| found.mbit_s),
            ),
            ("ours, adaptive", adaptive),
        ] {
            bars.push(json!({ "link": link, "library": line.library, "who": who, "times": mbit.map(|mbit| mbit / line.link) }));
        }
    }
    let head = [
        ("Mbit/s", false),
        ("library", false),
        ("their setting", false),
        ("ratio theirs", true),
        ("ours", true),
        ("µs theirs", true),
        ("ours", true),
        ("Mbit/s theirs", true),
        ("ours by trade-off", false),
        ("Mbit/s", true),
        ("ours by bandwidth", false),
        ("Mbit/s", true),
        ("adaptive Mbit/s", true),
    ];
    let caption = "Settings are threads · chunks in flight · length of a chunk. Ratio and microseconds are of one chunk of their length, packed and unpacked. \
                   Shaded: adaptive, on long messages, is more than 3 % behind the best setting of that library.";
    let picture = Picture {
        caption: format!(
            "Bandwidth over the link's rate, {data} data. Theirs: best by their trade-off; ours: best by bandwidth."
        ),
        spec: bars_by_library(&bars),
    };
    Section {
        heading: format!("Table {table}: {data} data"),
        blocks: vec![
            Block::Text(format!("Data: {what}.")),
            Block::Picture(picture),
            Block::Table(Table {
                caption: caption.into(),
                columns: columns(&head),
                rows,
            }),
        ],
    }
}

fn bars_by_library(bars: &[serde_json::Value]) -> serde_json::Value {
    let panel = |link: &str| {
        let values: Vec<_> = bars.iter().filter(|bar| bar["link"] == link).collect();
        json!({
            "title": link, "width": 210, "height": 170, "data": { "values": values },
            "mark": { "type": "bar" },
            "encoding": {
                "x": { "field": "library", "type": "nominal", "title": null, "sort": null, "axis": { "labelAngle": 0 } },
                "xOffset": { "field": "who", "sort": WHO },
                "y": { "field": "times", "type": "quantitative", "title": "× the link" },
                "color": { "field": "who", "type": "nominal", "title": null, "sort": WHO,
                    "legend": { "orient": "bottom" }, "scale": { "domain": WHO, "range": ["#9aa7b0", "#3f6f9f", "#0b7a75"] } } },
        })
    };
    let panels = ["1000 Mbit/s", "100 Mbit/s", "10 Mbit/s"].map(panel);
    json!({ "hconcat": panels, "spacing": 24 })
}

const WHO: [&str; 3] = ["theirs", "ours, their library", "ours, adaptive"];

/// Table 2: the best number and length of chunks for each number of threads.
fn by_threads(held: &Held<'_>) -> Section {
    let all = held.search(1000.0, "traced", "gipfeli");
    let best = |threads: u64, score: &dyn Fn(&[&crate::result::Row]) -> Option<usize>| {
        let rows: Vec<_> = all
            .iter()
            .copied()
            .filter(|row| row.case.threads == Some(threads))
            .collect();
        let row = rows.get(score(&rows)?)?;
        let text = format!(
            "{} of {:.0} KiB",
            row.case.depth?,
            row.case.chunk_bytes? as f64 / 1024.0
        );
        Some((text, row.value("effective_mbit_s")?))
    };
    let greatest =
        |scores: Vec<f64>| (0..scores.len()).max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
    let traded = |rows: &[&crate::result::Row]| {
        greatest(crate::study::trade_offs(rows, crate::study::WEIGHTS))
    };
    let fastest = |rows: &[&crate::result::Row]| {
        greatest(
            rows.iter()
                .map(|row| row.value("effective_mbit_s").unwrap_or(0.0))
                .collect(),
        )
    };
    let lines = tables::lines(tables::OTHER);
    let rows = lines.iter().filter(|line| line[0] == "2").map(|line| {
        let threads: u64 = line[1].trim_start_matches("threads ").parse().unwrap_or(0);
        let pair = |found: Option<(String, f64)>| {
            found.map_or([text("–"), text("–")], |(name, mbit)| {
                [name.into(), digits(mbit).into()]
            })
        };
        let mut row = vec![
            Cell::marked(threads.to_string(), Mark::Name),
            line[2].to_string().into(),
        ];
        row.extend(pair(best(threads, &traded)));
        row.extend(pair(best(threads, &fastest)));
        row
    });
    let head = [
        ("threads", false),
        ("theirs", false),
        ("ours by trade-off", false),
        ("Mbit/s", true),
        ("ours by bandwidth", false),
        ("Mbit/s", true),
    ];
    Section {
        heading: "Table 2: Gipfeli, traced data, 1 Gbit/s, by threads".into(),
        blocks: vec![Block::Table(Table {
            caption: "Chunks in flight and their length. `--quick` looks at 1 and 2 threads only."
                .into(),
            columns: columns(&head),
            rows: rows.collect(),
        })],
    }
}

/// Table 4: a chunk of 1 KiB and the whole message.
fn short_and_whole(held: &Held<'_>) -> Section {
    let theirs = [
        ("gipfeli", 1 << 10, 21.84, 1.54),
        ("gipfeli", MESSAGE, 40_468.28, 2.22),
        ("lzo1x", 1 << 10, 91.56, 1.94),
        ("lzo1x", MESSAGE, 1_662_723.1, 2.65),
    ];
    let rows = theirs.map(|(codec, chunk, micros, ratio)| {
        let value = |name: &str| {
            held.chunk("traced", codec, chunk)
                .and_then(|row| row.value(name))
        };
        let length = if chunk == MESSAGE { "8 MB" } else { "1 KiB" };
        vec![
            Cell::marked(codec.trim_end_matches("1x").into(), Mark::Name),
            text(length),
            number(Some(ratio)),
            number(value("ratio")),
            number(Some(micros)),
            number(value("micros")),
        ]
    });
    let head = [
        ("library", false),
        ("packed at once", false),
        ("ratio theirs", true),
        ("ours", true),
        ("µs theirs", true),
        ("ours", true),
    ];
    Section {
        heading: "Table 4: a chunk against the whole message".into(),
        blocks: vec![Block::Table(Table {
            caption: "Traced data, one thread, packing and unpacking together.".into(),
            columns: columns(&head),
            rows: rows.into(),
        })],
    }
}

/// What Figures 8 to 15 say in numbers.
fn thresholds(held: &Held<'_>) -> Section {
    let longest = |link: f64, codec: &str, way: &str| {
        held.longest(link, "traced", codec, way)
            .map_or_else(|| "–".into(), digits)
    };
    let pays = |link: f64| match claims::threshold(held, link) {
        Some(Some(len)) => format!("{} KiB", len >> 10),
        Some(None) => "never".into(),
        None => "–".into(),
    };
    let ours = |key: &str| match key {
        "fig8" => held.by_trade_off(1000.0, "traced", "gipfeli").map_or_else(
            || "–".into(),
            |found| setting(found.threads, found.depth, found.chunk as f64),
        ),
        "fig9" => format!(
            "{}, {}, {}",
            longest(1000.0, "gipfeli", "none"),
            longest(1000.0, "gipfeli", "pipeline"),
            longest(1000.0, "gipfeli", "naive")
        ),
        "fig10" => format!(
            "{}; LZO {} of {}",
            longest(100.0, "gipfeli", "naive"),
            longest(100.0, "lzo1x", "naive"),
            longest(100.0, "lzo1x", "none")
        ),
        "fig11" => ["gipfeli", "lzo1x"]
            .map(|codec| {
                format!(
                    "{}, {}",
                    longest(10.0, codec, "naive"),
                    longest(10.0, codec, "pipeline")
                )
            })
            .join(", "),
        "fig12" => pays(1000.0),
        "fig13" => pays(100.0),
        "fig14" => pays(10.0),
        _ => "a chunk that does not shrink is sent raw at every length".into(),
    };
    let lines = tables::lines(tables::OTHER);
    let rows = lines
        .iter()
        .filter(|line| line[0].starts_with("fig"))
        .map(|line| {
            let name = line[0].replace("fig", "Figure ");
            vec![
                Cell::marked(name, Mark::Name),
                line[1].to_string().into(),
                line[2].to_string().into(),
                ours(line[0]).into(),
            ]
        });
    let head = [
        ("", false),
        ("what", false),
        ("theirs", false),
        ("ours", false),
    ];
    Section {
        heading: "Figures 8 to 15 in numbers".into(),
        blocks: vec![Block::Table(Table {
            caption: "Traced data, Mbit/s of the longest message that was sent.".into(),
            columns: columns(&head),
            rows: rows.collect(),
        })],
    }
}
