//! Served disks' counters as people read them.

use std::fmt::Write;

use narrows_core::units::Size;
use narrows_disk::{
    Fullness,
    served::control::{Named, Report},
};

const BAR: usize = 40;

/// One line on all disks together.
pub fn line(report: &Report) -> String {
    let sum = |of: fn(&Named) -> u64| Size(report.disks.iter().map(of).sum());
    format!(
        "{} in {}, {} connections, {} resident",
        sum(|disk| disk.stat.data),
        sum(|disk| disk.stat.live),
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
    for (place, disk) in report.disks.iter().enumerate() {
        let earlier = before.and_then(|before| before.disks.get(place));
        draw(&mut text, disk, earlier, span_s).expect("a String takes everything");
    }
    text.truncate(text.trim_end().len());
    text
}

fn draw(text: &mut String, disk: &Named, earlier: Option<&Named>, span_s: f64) -> std::fmt::Result {
    let stat = &disk.stat;
    let name = match disk.name.as_str() {
        "" => "(nameless)",
        name => name,
    };
    writeln!(text, "\n{name}: {} on {}", Size(stat.size), disk.backing)?;
    if let Some(why) = &stat.poisoned {
        writeln!(text, "  POISONED: it takes no more writes: {why}")?;
    }
    writeln!(
        text,
        "  logical   {} {}, ratio {:.3}",
        bar(stat.data, stat.size),
        Size(stat.data),
        stat.ratio
    )?;
    writeln!(
        text,
        "  live      {} {} of {}{}",
        bar(stat.live, stat.live_max),
        Size(stat.live),
        Size(stat.live_max),
        forecast(disk)
    )?;
    writeln!(
        text,
        "  physical  {} {} of {}, {} of it garbage",
        bar(stat.occupied, stat.capacity),
        Size(stat.occupied),
        Size(stat.capacity),
        Size(stat.garbage)
    )?;
    let rate = |of: fn(&Named) -> u64| match earlier {
        Some(earlier) if span_s > 0.0 => {
            let bytes = of(disk).saturating_sub(of(earlier)) as f64 / span_s;
            format!("{}/s", Size(bytes as u64))
        }
        _ => Size(of(disk)).to_string(),
    };
    writeln!(
        text,
        "  clients   {} read, {} written, {} trimmed, {} flushes",
        rate(|disk| disk.stat.read),
        rate(|disk| disk.stat.written),
        rate(|disk| disk.stat.trimmed),
        stat.flushes
    )?;
    writeln!(
        text,
        "  backing   {} written, {} of it moved; write amplification {:.2}; {} checkpoints, {} segments collected",
        rate(|disk| disk.stat.logged),
        rate(|disk| disk.stat.moved),
        stat.write_amplification,
        stat.checkpoints,
        stat.collected
    )?;
    if stat.refused > 0 {
        writeln!(
            text,
            "  refused   {} requests for want of room",
            stat.refused
        )?;
    }
    Ok(())
}

/// How full, and when it will be.
fn forecast(disk: &Named) -> String {
    let share = disk.stat.live as f64 / disk.stat.live_max.max(1) as f64;
    let mut text = format!(", {:.0} % full", share * 100.0);
    text.push_str(match disk.stat.fullness {
        Fullness::Fine => "",
        Fullness::Filling => " (filling: trim, or grow it)",
        Fullness::NearlyFull => " (NEARLY FULL: trim, or grow it)",
        Fullness::Full => " (FULL: writes are refused; trim, or grow it)",
    });
    if let Some(seconds) = disk.full_in_s {
        let (count, unit) = match seconds {
            s if s < 120.0 => (s, "s"),
            s if s < 7200.0 => (s / 60.0, "minutes"),
            s if s < 172_800.0 => (s / 3600.0, "hours"),
            s => (s / 86400.0, "days"),
        };
        text.push_str(&format!(
            "; full in {count:.0} {unit} if it goes on like this"
        ));
    }
    text
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
