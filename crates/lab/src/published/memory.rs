//! Warnke's fourteen tables beside ours, as sections.

use serde_json::{Value, json};

use super::{
    cells::{columns, number, text},
    held::Held,
    measure::{DISK, OURS, SSD},
    standin::{self, Likeness, Standin},
    tables::{self, Page, contestant_of},
};
use crate::{
    report::{Block, Cell, Mark, Picture, Section, Table},
    trial::digits,
};

/// A picture of all, then a table each.
#[must_use]
pub fn sections(held: &Held<'_>) -> Vec<Section> {
    let pages = tables::pages();
    let mut sections = vec![overview(held, &pages)];
    for set in &standin::WARNKE {
        let lines: Vec<&Page> = pages.iter().filter(|line| line.data == set.name).collect();
        sections.push(section(held, set, &lines));
    }
    sections
}

fn overview(held: &Held<'_>, pages: &[Page]) -> Section {
    let mut bars = Vec::new();
    for set in &standin::WARNKE {
        let there = |codec: &str| {
            pages
                .iter()
                .find(|line| line.data == set.name && line.codec == codec)
        };
        let here =
            |codec: &str, value: &str| held.page(set.table, codec).and_then(|row| row.value(value));
        let zbewalgo = there("zbewalgo*").or_else(|| there("zbewalgo"));
        let ours = |value: &str| {
            OURS.iter()
                .filter_map(|codec| here(codec, value))
                .reduce(f64::max)
        };
        for (who, ratio, speed) in [
            (
                "zBeWalgo there",
                zbewalgo.map(|line| line.ratio),
                zbewalgo.map(|line| line.effective_pack),
            ),
            (
                "zBeWalgo here",
                here("zbewalgo*", "ratio"),
                here("zbewalgo*", "effective_pack_mib_s"),
            ),
            (
                "zstd there",
                there("zstd").map(|line| line.ratio),
                there("zstd").map(|line| line.effective_pack),
            ),
            (
                "zstd here",
                here("zstd-3", "ratio"),
                here("zstd-3", "effective_pack_mib_s"),
            ),
            ("best of ours", ours("ratio"), ours("effective_pack_mib_s")),
        ] {
            bars.push(json!({ "set": set.name, "who": who, "ratio": ratio, "speed": speed }));
        }
    }
    let text = format!(
        "Pages of 4 KiB, one thread; a page of more than 3264 bytes packed is stored as it is. Effective speeds are the report's formula, s_o / (t + size_backing / speed_backing), \
         with size_backing = s_u + (s_c − s_c_min) · r: what a codec leaves unpacked, and what it takes beyond the best codec's memory, goes to the device. Theirs: the disk of Table 4.1, \
         {} and {} MiB/s to write and read. The SSD is ours: {:.0} and {:.0} MiB/s.",
        DISK.write, DISK.read, SSD.write, SSD.read
    );
    let picture = |caption: &str, field: &str, title: &str| {
        Block::Picture(Picture {
            caption: caption.into(),
            spec: rows_of_bars(&bars, field, title),
        })
    };
    Section {
        heading: "Tables 6.1 to 6.14: pages of memory".into(),
        blocks: vec![
            Block::Text(text),
            picture(
                "Raw by stored bytes of each set; logarithmic.",
                "ratio",
                "ratio",
            ),
            picture(
                "Effective speed to write with the paper's disk behind memory, MiB/s; logarithmic. Theirs ran on another processor.",
                "speed",
                "MiB/s",
            ),
        ],
    }
}

fn rows_of_bars(bars: &[Value], field: &str, title: &str) -> Value {
    let sets: Vec<&str> = standin::WARNKE.iter().map(|set| set.name).collect();
    let panel = |sets: &[&str]| {
        let values: Vec<_> = bars
            .iter()
            .filter(|bar| sets.iter().any(|set| bar["set"] == *set))
            .collect();
        json!({
            "width": 760, "height": 150, "data": { "values": values },
            "mark": { "type": "bar" },
            "encoding": {
                "x": { "field": "set", "type": "nominal", "title": null, "sort": sets, "axis": { "labelAngle": 0 } },
                "xOffset": { "field": "who", "sort": WHO },
                "y": { "field": field, "type": "quantitative", "title": title, "scale": { "type": "log", "domainMin": 1 }, "axis": { "format": "~g", "tickCount": 4 } },
                "y2": { "datum": 1 },
                "color": { "field": "who", "type": "nominal", "title": null, "sort": WHO, "legend": { "orient": "bottom" },
                    "scale": { "domain": WHO, "range": ["#e0a030", "#b5651d", "#b9c4cc", "#6d7d88", "#0b7a75"] } } },
        })
    };
    json!({ "vconcat": [panel(&sets[..7]), panel(&sets[7..])], "spacing": 18 })
}

const WHO: [&str; 5] = [
    "zBeWalgo there",
    "zBeWalgo here",
    "zstd there",
    "zstd here",
    "best of ours",
];

fn section(held: &Held<'_>, set: &Standin, lines: &[&Page]) -> Section {
    let mut rows: Vec<Vec<Cell>> = lines.iter().map(|line| row(held, set, line)).collect();
    for codec in OURS {
        let mut cells = vec![Cell::marked(format!("ours: {codec}"), Mark::Name)];
        cells.extend((0..5).map(|_| text("")));
        cells.extend(here(held, set, codec));
        rows.push(cells);
    }
    let head = [
        ("codec", false),
        ("ratio", true),
        ("pack", true),
        ("unpack", true),
        ("eff. pack", true),
        ("eff. unpack", true),
        ("here: ratio", true),
        ("pack", true),
        ("unpack", true),
        ("eff. pack", true),
        ("eff. unpack", true),
        ("SSD: pack", true),
        ("unpack", true),
    ];
    let caption = "MiB/s. Left theirs, right ours. Bold: the best of its column.";
    let mut table = Table {
        caption: caption.into(),
        columns: columns(&head),
        rows,
    };
    for column in 1..head.len() {
        embolden(&mut table.rows, column);
    }
    Section {
        heading: format!("Table {}: {}", set.table, set.name),
        blocks: vec![Block::Text(likeness(held, set, lines)), Block::Table(table)],
    }
}

/// The disk alone is no codec's doing, and what ties with raw is no best.
fn embolden(rows: &mut [Vec<Cell>], column: usize) {
    let value = |row: &Vec<Cell>| row[column].text.replace(',', "").parse::<f64>().ok();
    let codecs = rows.iter().filter(|row| row[0].text != "hdd");
    let Some(most) = codecs
        .filter_map(value)
        .reduce(f64::max)
        .filter(|most| *most > 1.0)
    else {
        return;
    };
    for row in rows.iter_mut().filter(|row| row[0].text != "hdd") {
        if value(row) == Some(most) {
            row[column].mark = Mark::Best;
        }
    }
}

fn row(held: &Held<'_>, set: &Standin, line: &Page) -> Vec<Cell> {
    let mut cells = vec![Cell::marked(line.codec.into(), Mark::Name)];
    cells.extend(
        [
            line.ratio,
            line.pack,
            line.unpack,
            line.effective_pack,
            line.effective_unpack,
        ]
        .map(|value| number(Some(value))),
    );
    match line.codec {
        "hdd" => {
            let disk = [
                1.0, DISK.write, DISK.read, DISK.write, DISK.read, SSD.write, SSD.read,
            ];
            cells.extend(disk.map(|value| number(Some(value))));
        }
        codec => cells.extend(here(held, set, contestant_of(codec).unwrap_or(codec))),
    }
    cells
}

fn here(held: &Held<'_>, set: &Standin, codec: &str) -> [Cell; 7] {
    let row = held.page(set.table, codec);
    let names = [
        "ratio",
        "pack_mib_s",
        "unpack_mib_s",
        "effective_pack_mib_s",
        "effective_unpack_mib_s",
        "effective_pack_ssd_mib_s",
        "effective_unpack_ssd_mib_s",
    ];
    names.map(|name| number(row.and_then(|row| row.value(name))))
}

/// What the data are, there and here, and how alike.
fn likeness(held: &Held<'_>, set: &Standin, lines: &[&Page]) -> String {
    let there = |codec: &str| {
        lines
            .iter()
            .find(|line| line.codec == codec)
            .map_or_else(|| "–".into(), |line| digits(line.ratio))
    };
    let row = held.page(set.table, "lz4");
    let here = |codec: &str| {
        held.page(set.table, codec)
            .and_then(|row| row.value("ratio"))
            .map_or_else(|| "–".into(), digits)
    };
    let marked = |mark: &str| row.is_some_and(|row| row.marks.contains(mark));
    let from = row
        .and_then(|row| row.case.device.clone())
        .unwrap_or_else(|| set.here.into());
    let kind = match () {
        () if marked("given") => "Here, a file of that kind",
        () if set.likeness == Likeness::Same => "Here, made again",
        () => "Here, a stand-in",
    };
    format!(
        "There: {}. {kind}: {from}. LZ4 makes {} of it there and {} here, zstd {} and {}.",
        set.there,
        there("lz4"),
        here("lz4"),
        there("zstd"),
        here("zstd-3")
    )
}
