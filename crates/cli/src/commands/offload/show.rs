//! What an offloaded job took, for people and as results.

use std::path::Path;

use comfy_table::{CellAlignment, Table, presets::NOTHING};
use narrows_lab::{
    result::{Case, Origin, Row, Run},
    trial::digits,
};
use narrows_offload::Report;

use super::super::common;
use crate::{log::tell, output};

/// Prints it, as the flags have it.
pub fn show(file: &Path, report: &Report, copy: Option<&Report>, said: Said) -> anyhow::Result<()> {
    let Said {
        json,
        quiet,
        beside_content,
    } = said;
    if json {
        let mut run = Run::new(Origin::now("offload", &common::command_line(), Vec::new()));
        run.rows.extend(copy.map(|copy| row(file, copy)));
        run.rows.push(row(file, report));
        return output::print(run.lines().trim_end());
    }
    if quiet {
        return Ok(());
    }
    let text = turn_around(report, copy);
    if beside_content {
        tell!("{text}");
        return Ok(());
    }
    output::print(&text)
}

/// How a job's result is said.
#[derive(Debug, Clone, Copy)]
pub struct Said {
    pub json: bool,
    pub quiet: bool,
    /// Standard output is the content's, so what is for people goes to stderr.
    pub beside_content: bool,
}

/// What a job took, for people.
fn turn_around(report: &Report, copy: Option<&Report>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(["", "s", "MB", "%"]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mb = |bytes: u64| digits(bytes as f64 / 1e6);
    let of_raw = |bytes: u64| {
        format!(
            "{:.1}",
            bytes as f64 * 100.0 / report.raw_bytes.max(1) as f64
        )
    };
    let of_total = |s: f64| format!("{:.1}", s * 100.0 / report.total_s.max(1e-9));
    let mut time = |name: &str, s: f64| {
        table.add_row([
            name.to_string(),
            format!("{s:.3}"),
            String::new(),
            of_total(s),
        ]);
    };
    if let Some(copy) = copy {
        time("copy and back, alone", copy.total_s);
    }
    if report.server.is_some() {
        time("device", report.device_s);
        time("wait for a worker, mean", report.queue_mean_s);
        time("wait for a worker, longest", report.queue_max_s);
    }
    time("turn-around", report.total_s);
    time("processor here", report.client_cpu_s);
    if let Some((work_s, _)) = report.server_cpu_s {
        time("processor there", work_s);
    }
    table.add_row([
        "raw".into(),
        String::new(),
        mb(report.raw_bytes),
        "100.0".into(),
    ]);
    table.add_row([
        "packed".into(),
        String::new(),
        mb(report.packed_bytes),
        of_raw(report.packed_bytes),
    ]);
    format!("{table}\n{}", sentences(report).join("\n"))
}

fn sentences(report: &Report) -> Vec<String> {
    let by = match &report.server {
        Some((backend, level, workers)) => {
            let checked = if report.verified {
                "all checked here"
            } else {
                "not checked"
            };
            let blocks = blocks(report.remote_blocks);
            format!("{blocks} by {backend} at level {level}, {workers} at once, {checked}")
        }
        None => format!("{} by {} here", blocks(report.blocks), report.own_backend),
    };
    let mut lines = vec![format!(
        "{} {} MB/s, ratio {:.3}; {by}",
        report.method.name(),
        digits(report.mb_s()),
        report.ratio()
    )];
    let spilled = report.spilled;
    if spilled.total() > 0 && report.server.is_some() || report.server_lost.is_some() {
        lines.push(format!(
            "done here by {}: {} ({} the server was too busy for, {} came back wrong, {} were owed for too long, \
             {} were left when it was gone)",
            report.own_backend,
            blocks(spilled.total()),
            spilled.busy,
            spilled.bad,
            spilled.slow,
            spilled.lost,
        ));
    }
    if let Some(why) = &report.server_lost {
        lines.push(format!("the server was given up: {why}"));
    }
    if report.resumed > 0 {
        lines.push(format!(
            "the link was lost and made again {} times",
            report.resumed
        ));
    }
    lines
}

fn blocks(count: u64) -> String {
    format!("{count} block{}", if count == 1 { "" } else { "s" })
}

/// A report as a row of results.
fn row(file: &Path, report: &Report) -> Row {
    let case = Case {
        part: Some(report.op.into()),
        data: Some(
            file.file_name()
                .unwrap_or(file.as_os_str())
                .to_string_lossy()
                .into_owned(),
        ),
        data_bytes: Some(report.raw_bytes),
        codec: (report.op != "copy").then(|| format!("{}:{}", report.method.name(), report.level)),
        chunk_bytes: Some(report.block_len as u64),
        threads: report
            .server
            .as_ref()
            .map(|(.., workers)| u64::from(*workers)),
        ..Case::default()
    };
    let count = |count: u64| count as f64;
    let mut row = Row::new(
        case,
        [
            ("turn_around_s", report.total_s),
            ("packed_bytes", count(report.packed_bytes)),
            ("ratio", report.ratio()),
            ("effective_mb_s", report.mb_s()),
            ("client_cpu_s", report.client_cpu_s),
            ("sent_bytes", count(report.wire_bytes.0)),
            ("received_bytes", count(report.wire_bytes.1)),
            ("blocks", count(report.blocks)),
            ("remote_blocks", count(report.remote_blocks)),
            ("stored_blocks", count(report.stored_blocks)),
            ("spilled_busy_blocks", count(report.spilled.busy)),
            ("spilled_bad_blocks", count(report.spilled.bad)),
            ("spilled_slow_blocks", count(report.spilled.slow)),
            ("spilled_lost_blocks", count(report.spilled.lost)),
            ("late_answers", count(report.late_answers)),
            ("links_resumed", count(report.resumed)),
        ],
    );
    if let Some((backend, level, _)) = &report.server {
        row.extend([
            ("device_s", report.device_s),
            ("queue_mean_s", report.queue_mean_s),
            ("queue_max_s", report.queue_max_s),
            ("level_there", f64::from(*level)),
        ]);
        row.marks.insert(format!("by {backend}"));
    }
    if let Some((work_s, process_s)) = report.server_cpu_s {
        row.extend([("server_work_cpu_s", work_s), ("server_cpu_s", process_s)]);
    }
    if report.verified {
        row.marks.insert("verified".into());
    }
    if let Some(why) = &report.server_lost {
        row.marks.insert(format!("server given up: {why}"));
    }
    row
}
