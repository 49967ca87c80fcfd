//! The QATzip, BlueField and Ceph tables beside ours, and what a gigabyte costs in energy, as sections.

use super::{
    cells::{columns, number, text},
    held::Held,
    tables::{self, number as field},
};
use crate::{
    report::{Block, Cell, Mark, Section, Table},
    result::Row,
    tco,
};

/// All four.
#[must_use]
pub fn sections(held: &Held<'_>) -> Vec<Section> {
    vec![qatzip(held), bluefield(held), ceph(held), energy(held)]
}

fn name(text: &str) -> Cell {
    Cell::marked(text.into(), Mark::Name)
}

fn values(row: &Row, names: &[&str]) -> Vec<Cell> {
    names.iter().map(|name| number(row.value(name))).collect()
}

const ABSENT: &str =
    "No rows of ours were at hand: run in a clone, or name its docs/results with --rows.";

fn qatzip(held: &Held<'_>) -> Section {
    let mut rows = Vec::new();
    for line in tables::lines(tables::QATZIP) {
        let mut row = vec![name(&format!("theirs: {}", line[0]))];
        row.extend((1..7).map(|at| number(Some(field(&line, at)))));
        rows.push(row);
    }
    for row in held.part("qatzip") {
        let method = match row.case.device.as_deref() {
            Some("aware") => "ours: narrows migrate",
            Some("zstd-1") => "ours: QEMU's zstd",
            _ => "ours: QEMU, none",
        };
        let mut cells = vec![name(method)];
        cells.extend(values(
            row,
            &[
                "total_ms",
                "down_ms",
                "mbit_s",
                "pages_per_s",
                "send_cpu_percent",
                "recv_cpu_percent",
            ],
        ));
        rows.push(cells);
    }
    let head = [
        ("method", false),
        ("total ms", true),
        ("down ms", true),
        ("Mbit/s", true),
        ("pages/s", true),
        ("CPU % sender", true),
        ("CPU % receiver", true),
    ];
    let memory = held.part("qatzip memory").filter_map(|row| {
        let channels = row.case.threads?;
        let theirs = match channels {
            2 => [text("10"), text("10")],
            4 => [text("12"), text("14")],
            8 => [text("16"), text("20")],
            _ => [text("–"), text("–")],
        };
        let mut cells = vec![name(&channels.to_string())];
        cells.extend(theirs);
        cells.extend(values(row, &["send_rss_mb", "recv_rss_mb"]));
        Some(cells)
    });
    let memory_head = [
        ("channels", false),
        ("theirs, sender MB", true),
        ("receiver", true),
        ("ours, sender MB", true),
        ("receiver", true),
    ];
    let mut blocks = vec![
        Block::Text(
            "Theirs: 16 processors, 64 GB, 54 GB filled with Silesia, 8 channels, 10 Gbit/s, four QAT devices. Ours is scaled, since two processors carry both ends: a guest of 2 GiB filled with \
             Silesia, 8 channels, 1 Gbit/s, QEMU 10.0.2; no QAT device, so the processor packs. Rows are of docs/results/migrate.jsonl, by bench/migrate."
                .into(),
        ),
        Block::Table(Table { caption: "Compare within each half: the machines and links differ.".into(), columns: columns(&head), rows }),
        Block::Table(Table {
            caption: "Memory by channels. Theirs: of one QAT function; ours: resident memory of narrows' two processes, pages kept to refer to included.".into(),
            columns: columns(&memory_head),
            rows: memory.collect(),
        }),
    ];
    if held.part("qatzip").next().is_none() {
        blocks.insert(1, Block::Note(ABSENT.into()));
    }
    Section {
        heading: "QATzip: migration".into(),
        blocks,
    }
}

fn bluefield(held: &Held<'_>) -> Section {
    let theirs = tables::lines(tables::BLUEFIELD).into_iter().map(|line| {
        let mut row = vec![name(&format!("{}, {}", line[0], line[1]))];
        row.extend([2, 4, 5, 7].map(|at| match field(&line, at) {
            0.0 => text("–"),
            value => number(Some(value)),
        }));
        row
    });
    let head = [
        ("theirs", false),
        ("float s", true),
        ("packed %", true),
        ("text s", true),
        ("packed %", true),
    ];
    let ours = held.part("bluefield").map(|row| {
        let label = format!(
            "{}, {}, by {}",
            row.case.data.as_deref().unwrap_or(""),
            row.case.codec.as_deref().unwrap_or(""),
            row.case.device.as_deref().unwrap_or("")
        );
        let mut cells = vec![name(&label)];
        cells.extend(values(
            row,
            &[
                "copy_s",
                "pack_s",
                "turn_around_s",
                "over",
                "packed_percent",
            ],
        ));
        cells
    });
    let ours_head = [
        ("ours", false),
        ("copy s", true),
        ("pack s", true),
        ("turn-around s", true),
        ("× the slower", true),
        ("packed %", true),
    ];
    let mut blocks = vec![
        Block::Text(
            "Theirs: one core of a Xeon E5-2630 v4, a BlueField-2, 100 MB of floats and some 35 MB of text. Ours: no card, so a library packs on another host of three processors over 10 Gbit/s \
             (docs/results/offload.jsonl); 100 MB of each. Their turn-around of 0.330 s is 1.74 times the slower of copying (0.190) and packing (0.128)."
                .into(),
        ),
        Block::Table(Table { caption: "Published.".into(), columns: columns(&head), rows: theirs.collect() }),
        Block::Table(Table { caption: "Ours, every block unpacked and compared by the client.".into(), columns: columns(&ours_head), rows: ours.collect() }),
    ];
    if held.part("bluefield").next().is_none() {
        blocks.insert(1, Block::Note(ABSENT.into()));
    }
    Section {
        heading: "BlueField-2: packing elsewhere".into(),
        blocks,
    }
}

/// Their lines, then ours.
fn ceph_rows(held: &Held<'_>) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for line in tables::lines(tables::CEPH) {
        let mut row = vec![name(&format!("theirs: {}", line[0]))];
        row.extend((1..5).map(|at| match field(&line, at) {
            0.0 => text("–"),
            value => number(Some(value)),
        }));
        rows.push(row);
    }
    for row in held.part("ceph") {
        let device = row.case.device.as_deref().unwrap_or("");
        let operation = row.case.operation.as_deref().unwrap_or("");
        let ratio = held.last("ceph", |case| {
            case.device.as_deref() == Some(device) && case.operation.as_deref() == Some("fill")
        });
        if operation != "fill" {
            let mut cells = vec![name(&format!("ours: {device}, {operation}"))];
            cells.extend(
                [
                    row.value("mb_s").map(|mb| mb / 1e3),
                    row.value("disk_gb_s"),
                    row.value("cpu_percent"),
                ]
                .map(number),
            );
            cells.push(number(
                ratio
                    .and_then(|row| row.value("ratio"))
                    .filter(|_| operation.contains("write")),
            ));
            rows.push(cells);
        }
    }
    rows
}

fn ceph(held: &Held<'_>) -> Section {
    let head = [
        ("case", false),
        ("application GB/s", true),
        ("disk GB/s", true),
        ("CPU %", true),
        ("ratio", true),
    ];
    let costs = tco::costs(&tco::Inputs::deck()).unwrap_or_default();
    let saved = costs.iter().map(|cost| {
        let saving = costs[0].clone();
        let saving = cost.saving(&saving);
        let percent = |share: f64| text(&format!("{:+.1} %", -100.0 * share));
        vec![
            name(&cost.design),
            number(Some(cost.gb_per_s)),
            number(Some(cost.allocated_ratio)),
            percent(saving.per_server),
            percent(saving.per_gb_per_s),
            percent(saving.per_tb),
        ]
    });
    let saved_head = [
        ("design", false),
        ("GB/s a server", true),
        ("ratio", true),
        ("a server", true),
        ("a GB/s", true),
        ("a TB", true),
    ];
    let mut blocks = vec![
        Block::Text(
            "Theirs: two Xeon Gold 6338, 12 drives, Ceph 17.2.6, 2 replicas, 40 images of 1 TB, 128 KiB, depth 128. Ours: the whole cluster on two processors and loop devices, 4 images, the \
             same fio settings (docs/results/disk.jsonl); `narrows … above RBD` packs at the client before Ceph sees the bytes."
                .into(),
        ),
        Block::Table(Table { caption: "Sequential, 128 KiB. Compare within each half.".into(), columns: columns(&head), rows: ceph_rows(held) }),
        Block::Table(Table {
            caption: "Cost, by `narrows tco` with the deck's inputs. Published: -9 % a server, -31 % a GB/s; the price of drives is fitted to the 9 %.".into(),
            columns: columns(&saved_head),
            rows: saved.collect(),
        }),
    ];
    if held.part("ceph").next().is_none() {
        blocks.insert(1, Block::Note(ABSENT.into()));
    }
    Section {
        heading: "Ceph against drives that compress".into(),
        blocks,
    }
}

/// Watts of a busy core, a model: 205 W over 32 cores of the Xeon Gold 6338 that the Ceph comparison used, by its data sheet.
pub const WATTS_PER_CORE: f64 = 205.0 / 32.0;

/// What a gigabyte costs both ends: measured joules where the machine shows them, else seconds of processor time and a model.
fn energy(held: &Held<'_>) -> Section {
    let mut rows = Vec::new();
    for link in [1000.0, 100.0, 10.0] {
        for (label, codec, way) in [
            ("sent raw", "", "none"),
            ("whole, Gipfeli", "gipfeli", "naive"),
            ("chunks, Gipfeli", "gipfeli", "pipeline"),
            ("chunks, LZ4", "lz4", "pipeline"),
            ("adaptive", "", "adaptive"),
        ] {
            let row = held.figure(link, "traced", codec, way).into_values().last();
            let gigabytes = row
                .and_then(|row| row.case.data_bytes)
                .map(|bytes| bytes as f64 / 1e9);
            let per_gb = |value: Option<f64>| {
                value
                    .zip(gigabytes)
                    .map(|(value, gigabytes)| value / gigabytes)
            };
            let seconds = per_gb(
                row.and_then(|row| Some(row.value("send_cpu_s")? + row.value("recv_cpu_s")?)),
            );
            let joules = per_gb(row.and_then(|row| row.value("joules")));
            rows.push(vec![
                name(&format!("{link:.0} Mbit/s, {label}")),
                number(row.and_then(|row| row.value("effective_mbit_s"))),
                number(seconds),
                number(seconds.map(|seconds| seconds * WATTS_PER_CORE)),
                number(joules),
            ]);
        }
    }
    let head = [
        ("traced data", false),
        ("Mbit/s", true),
        ("CPU s a GB", true),
        ("J a GB, model", true),
        ("J a GB, RAPL", true),
    ];
    let text = format!(
        "The paper leaves energy open. Both ends' processor time for a gigabyte of the longest message; the model is that time at {WATTS_PER_CORE:.1} W a core (205 W over 32 cores, a data sheet), \
         which says nothing of memory, network cards or idling. Joules are measured where the kernel shows RAPL counters, whole packages and everything that ran on them; a dash where it does not."
    );
    Section {
        heading: "Energy".into(),
        blocks: vec![
            Block::Text(text),
            Block::Table(Table {
                caption: "Start-up of the processes is in it, so short messages look dear.".into(),
                columns: columns(&head),
                rows,
            }),
        ],
    }
}
