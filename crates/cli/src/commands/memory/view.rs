//! A RAM disk's counters as people read them.

use std::fmt::Write;

use narrows_core::units::Size;
use narrows_memory::{
    control::{Named, Report},
    stat::{Latency, Tier},
};

const BAR: usize = 40;

/// One line on all stores together.
pub fn line(report: &Report) -> String {
    let sum = |of: fn(&Named) -> u64| Size(report.stores.iter().map(of).sum());
    format!(
        "{} in {} of memory, {} connections, {} resident",
        sum(|store| store.stat.mm_stat.orig_data_size),
        sum(|store| store.stat.mm_stat.mem_used_total),
        report.connections,
        Size(report.resident_bytes),
    )
}

/// All there is, with rates where there was a report `before`.
pub fn screen(report: &Report, before: Option<&Report>) -> String {
    let mut text = format!(
        "process {}, up {:.0} s, {} connections, {} resident, {:.1} s of processor time\n",
        report.pid,
        report.uptime_s,
        report.connections,
        Size(report.resident_bytes),
        report.cpu_s
    );
    let span_s = before.map_or(0.0, |before| report.uptime_s - before.uptime_s);
    for store in &report.stores {
        let earlier = before.and_then(|before| {
            before
                .stores
                .iter()
                .find(|earlier| earlier.name == store.name)
        });
        draw(&mut text, store, earlier, span_s).expect("a String takes everything");
    }
    text.truncate(text.trim_end().len());
    text
}

#[allow(clippy::too_many_lines, reason = "prints a table, line by line")]
fn draw(
    text: &mut String,
    store: &Named,
    earlier: Option<&Named>,
    span_s: f64,
) -> std::fmt::Result {
    let (stat, mm) = (&store.stat, &store.stat.mm_stat);
    let name = if store.name.is_empty() {
        "(nameless)"
    } else {
        &store.name
    };
    writeln!(text, "\n{name}: {}", Size(stat.size))?;
    let (of, whole) = match mm.mem_limit {
        0 => ("no limit".into(), mm.mem_used_max),
        limit => (format!("of {}", Size(limit)), limit),
    };
    writeln!(
        text,
        "  memory  {} {} {of}, most {}",
        bar(mm.mem_used_total, whole),
        Size(mm.mem_used_total),
        Size(mm.mem_used_max)
    )?;
    writeln!(
        text,
        "  data    {} {}, ratio {:.2}",
        bar(mm.orig_data_size, stat.size),
        Size(mm.orig_data_size),
        store.ratio
    )?;
    let tiers = &stat.tiers;
    let all: u64 = mm.orig_data_size / 4096;
    for (name, tier) in [
        ("zero", tiers.zero),
        ("same", tiers.same),
        ("packed", tiers.packed),
        ("primed", tiers.primed),
        ("cluster", tiers.cluster),
        ("raw", tiers.raw),
        ("backed", tiers.backed),
    ] {
        let Tier { pages, bytes } = tier;
        let ratio = if bytes > 0 {
            format!(", ratio {:.2}", (pages * 4096) as f64 / bytes as f64)
        } else {
            String::new()
        };
        writeln!(
            text,
            "  {name:7} {} {pages} pages in {}{ratio}",
            bar(pages, all),
            Size(bytes)
        )?;
    }
    let dictionaries = stat.dictionaries;
    if dictionaries.count > 0 {
        writeln!(
            text,
            "  dictionaries {} in {}",
            dictionaries.count,
            Size(dictionaries.bytes)
        )?;
    }
    let rate = |now: u64, then: Option<u64>| match then {
        Some(then) if span_s > 0.0 => format!(
            "{}/s",
            Size((now.saturating_sub(then) as f64 / span_s) as u64)
        ),
        _ => Size(now).to_string(),
    };
    let latency = |latency: &Latency| {
        format!(
            "p50 {:.1} µs, p99 {:.1} µs, p99.9 {:.1} µs",
            latency.p50_us, latency.p99_us, latency.p999_us
        )
    };
    let then = earlier.map(|earlier| &earlier.stat);
    writeln!(
        text,
        "  read    {}, {}",
        rate(stat.read_bytes, then.map(|then| then.read_bytes)),
        latency(&stat.read_latency)
    )?;
    writeln!(
        text,
        "  write   {}, {}",
        rate(stat.write_bytes, then.map(|then| then.write_bytes)),
        latency(&stat.write_latency)
    )?;
    let io = &stat.io_stat;
    writeln!(
        text,
        "  failed  {} reads, {} writes; invalid {}; freed {} pages; backing file: {} pages, {} read, {} written",
        io.failed_reads,
        io.failed_writes,
        io.invalid_io,
        io.notify_free,
        stat.bd_stat.bd_count,
        stat.bd_stat.bd_reads,
        stat.bd_stat.bd_writes
    )
}

fn bar(part: u64, whole: u64) -> String {
    let filled = if whole == 0 {
        0
    } else {
        (u128::from(part) * BAR as u128 / u128::from(whole)) as usize
    };
    let filled = filled.min(BAR);
    format!("{}{}", "█".repeat(filled), "░".repeat(BAR - filled))
}
