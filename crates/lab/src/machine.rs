//! The machine sheet: without it a number means nothing.

use std::{
    fs, thread,
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// The commit that this was built of.
pub const COMMIT: &str = env!("NARROWS_COMMIT");

/// What something was measured on, and with what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sheet {
    /// Model as the processor calls itself.
    pub cpu: String,
    /// Processors this process may use.
    pub cores: usize,
    /// Bytes.
    pub memory_bytes: Option<u64>,
    /// `Linux 6.1.0`.
    pub kernel: String,
    /// The distribution.
    pub system: Option<String>,
    /// `x86_64`.
    pub arch: String,
    /// Load average over a minute when the measuring began: above 0 something else was running.
    pub load: Option<f64>,
    /// Version of narrows.
    pub version: String,
    /// Commit it was built from.
    pub commit: String,
    /// `release` or `debug`; a debug build is slower.
    pub build: String,
}

impl Sheet {
    /// Of this machine, now.
    #[must_use]
    pub fn of_this_machine() -> Self {
        let read = |path: &str| fs::read_to_string(path).ok();
        let line = |path: &str, key: &str| {
            let text = read(path)?;
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(
                line[key.len()..]
                    .trim_matches([' ', '\t', ':', '=', '"'])
                    .to_string(),
            )
        };
        let kernel = |name: &str| {
            read(&format!("/proc/sys/kernel/{name}")).map(|text| text.trim().to_string())
        };
        // ARM kernels name no model; the implementer's number is better than nothing.
        let cpu = line("/proc/cpuinfo", "model name")
            .or_else(|| line("/proc/cpuinfo", "CPU implementer"));
        let memory = line("/proc/meminfo", "MemTotal");
        Self {
            cpu: cpu.unwrap_or_else(|| "unknown".into()),
            cores: thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory
                .and_then(|text| text.strip_suffix(" kB")?.parse::<u64>().ok())
                .map(|kib| kib * 1024),
            kernel: [kernel("ostype"), kernel("osrelease")]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(" "),
            system: line("/etc/os-release", "PRETTY_NAME"),
            arch: std::env::consts::ARCH.into(),
            load: read("/proc/loadavg")
                .and_then(|text| text.split_whitespace().next()?.parse().ok()),
            version: env!("CARGO_PKG_VERSION").into(),
            commit: COMMIT.into(),
            build: if cfg!(debug_assertions) {
                "debug"
            } else {
                "release"
            }
            .into(),
        }
    }
}

/// This moment as RFC 3339 in UTC, to the second.
#[must_use]
pub fn now() -> String {
    utc(SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs()))
}

/// A moment as RFC 3339 in UTC, to the second.
#[must_use]
pub fn utc(unix_s: u64) -> String {
    // Days to a civil date: the year begins in March, so that the leap day is its last (Hinnant's algorithm).
    let (days, second) = (unix_s / 86_400 + 719_468, unix_s % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sheet_is_filled_in() {
        let sheet = Sheet::of_this_machine();
        assert!(
            sheet.cores > 0 && !sheet.kernel.is_empty() && !sheet.commit.is_empty(),
            "{sheet:?}"
        );
    }

    #[test]
    fn moments_are_dates() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_794_000_000), "2026-11-06T21:20:00Z");
    }
}
