//! Any set of results as one report: each run in the way its tool draws it, and what it was measured on.

use narrows_core::units::Size;
use serde_json::json;

use crate::{
    bench, published,
    report::{Block, Cell, Mark, Report, Section, Table},
    result::{Run, SCHEMA},
    study, trial,
};

/// The report of `runs`, in order.
#[must_use]
pub fn report(runs: &[Run]) -> Report {
    let mut sections = Vec::new();
    for run in runs {
        let drawn = match run.origin.tool.as_str() {
            "bench" => bench::pictures::sections(run),
            "try" => trial::sections(run),
            // Drawn together below: shards are one study, and the published tables take it in.
            "study" | published::TOOL => Vec::new(),
            _ => vec![plain(run)],
        };
        sections.extend(drawn);
    }
    let studies: Vec<&Run> = runs
        .iter()
        .filter(|run| run.origin.tool == "study")
        .collect();
    if published::is_in(runs) {
        sections.extend(published::sections(runs));
    } else if !studies.is_empty() {
        sections.extend(study::pictures::sections(&studies));
    }
    sections.push(origins(runs));
    let rows: usize = runs.iter().map(|run| run.rows.len()).sum();
    let tools: Vec<_> = runs.iter().map(|run| run.origin.tool.as_str()).collect();
    let faults = runs
        .iter()
        .flat_map(|run| &run.rows)
        .filter(|row| row.fault.is_some())
        .count();
    let plural = if runs.len() == 1 { "" } else { "s" };
    let title = if published::is_in(runs) {
        "narrows: the published tables beside ours"
    } else {
        "narrows: results"
    };
    let mut intro = vec![format!(
        "{rows} cases of {} run{plural}: {}.",
        runs.len(),
        tools.join(", ")
    )];
    if published::is_in(runs) {
        intro.insert(0, published::summary(runs));
    }
    if faults > 0 {
        intro.push(format!(
            "{faults} cases failed; they are listed where they belong."
        ));
    }
    let document = runs
        .iter()
        .map(|run| json!({ "run": run.id, "origin": run.origin, "rows": run.rows }))
        .collect::<Vec<_>>();
    Report {
        title: title.into(),
        intro,
        sections,
        document: json!({ "schema": SCHEMA, "runs": document }),
    }
}

/// Every value of every row, for a tool this version does not know how to draw.
fn plain(run: &Run) -> Section {
    let mut names: Vec<&String> = run.rows.iter().flat_map(|row| row.values.keys()).collect();
    names.sort();
    names.dedup();
    let mut columns = vec![("case".to_string(), false)];
    columns.extend(names.iter().map(|name| ((*name).clone(), true)));
    let rows = run.rows.iter().map(|row| {
        let case = serde_json::to_value(&row.case).unwrap_or_default();
        let case = case
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| format!("{name} {value}"));
        let mut cells = vec![Cell::marked(
            case.collect::<Vec<_>>().join(", "),
            Mark::Name,
        )];
        cells.extend(names.iter().map(|name| {
            row.value(name)
                .map_or_else(String::new, trial::digits)
                .into()
        }));
        cells
    });
    let table = Table {
        caption: String::new(),
        columns,
        rows: rows.collect(),
    };
    Section {
        heading: run.origin.tool.clone(),
        blocks: vec![Block::Table(table)],
    }
}

/// Machines and commands.
#[must_use]
pub fn origins(runs: &[Run]) -> Section {
    let columns = [
        "run",
        "begun",
        "command",
        "processor",
        "memory",
        "system",
        "load before",
        "narrows",
        "seeds",
        "energy",
    ];
    let rows = runs.iter().map(|run| {
        let (origin, sheet) = (&run.origin, &run.origin.machine);
        let unknown = || "unknown".to_string();
        [
            run.id.clone(),
            origin.started.clone(),
            origin.command.clone(),
            format!("{}, {} usable", sheet.cpu, sheet.cores),
            sheet
                .memory_bytes
                .map_or_else(unknown, |bytes| Size(bytes).to_string()),
            format!(
                "{}, {}, {}",
                sheet.system.as_deref().unwrap_or("unknown"),
                sheet.kernel,
                sheet.arch
            ),
            sheet.load.map_or_else(unknown, |load| format!("{load:.2}")),
            format!("{}, {}, {}", sheet.version, sheet.commit, sheet.build),
            origin
                .seeds
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", "),
            origin.energy.clone(),
        ]
    });
    // A machine sheet reads better downwards.
    let mut lines: Vec<Vec<Cell>> = columns
        .iter()
        .map(|name| vec![Cell::marked((*name).into(), Mark::Name)])
        .collect();
    for row in rows {
        for (line, text) in lines.iter_mut().zip(row) {
            line.push(text.into());
        }
    }
    let heads =
        std::iter::once(String::new()).chain(runs.iter().map(|run| run.origin.tool.clone()));
    let table = Table {
        caption: String::new(),
        columns: heads.map(|head| (head, false)).collect(),
        rows: lines,
    };
    let mut blocks = vec![Block::Table(table)];
    if runs.iter().any(|run| run.origin.machine.build == "debug") {
        blocks.push(Block::Note(
            "A debug build measured some of this: processor time is not what it would be.".into(),
        ));
    }
    Section {
        heading: "What it was measured on".into(),
        blocks,
    }
}
