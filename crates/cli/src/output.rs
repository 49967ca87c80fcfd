//! What people and scripts see.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use narrows::Stats;
use narrows_core::units::{Rate, Size};
use narrows_io::meter::{CpuTime, Memory};
use narrows_wire::Received;
use serde::Serialize;
use tracing_subscriber::filter::LevelFilter;

use crate::exit::OutputClosed;

/// Sends log lines to stderr.
pub fn log(verbose: u8, quiet: bool) {
    let level = match (quiet, verbose) {
        (true, _) => LevelFilter::ERROR,
        (false, 0) => LevelFilter::WARN,
        (false, 1) => LevelFilter::INFO,
        (false, _) => LevelFilter::DEBUG,
    };
    let plain = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .without_time()
        .with_target(false);
    // In a file or a journal colours are noise.
    let colours = io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    plain.with_ansi(colours).init();
}

/// Prints a line of result.
///
/// # Errors
/// [`OutputClosed`] where nobody reads any more.
pub fn print(text: &str) -> anyhow::Result<()> {
    writeln!(io::stdout(), "{text}").map_err(|fault| match fault.kind() {
        io::ErrorKind::BrokenPipe => anyhow::Error::new(OutputClosed),
        _ => anyhow::Error::new(fault).context("cannot write the output"),
    })
}

/// A spinner with bytes and speed, where somebody watches.
pub fn progress(quiet: bool) -> ProgressBar {
    if quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template(
        "{spinner} {binary_bytes} {binary_bytes_per_sec} {elapsed} {msg}",
    );
    bar.set_style(style.expect("the template is well formed"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Steps of a measurement, where somebody watches.
pub fn bar(quiet: bool) -> ProgressBar {
    if quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(1);
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed} {msg}");
    bar.set_style(style.expect("the template is well formed"));
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// One transfer's result, `narrows.transfer/1`.
#[derive(Debug, Serialize)]
pub struct Transfer {
    schema: &'static str,
    /// `send` or `recv`.
    pub role: &'static str,
    /// Files, directories and links.
    pub entries: u64,
    /// Content bytes, holes included.
    pub content_bytes: u64,
    /// Bytes that went through the pipeline.
    pub raw_bytes: u64,
    /// Bytes on the links, both directions.
    pub wire_bytes: u64,
    /// From the session's begin until everything was in place.
    pub seconds: f64,
    /// Raw bits a second.
    pub effective_mbit_s: f64,
    /// Raw over wire.
    pub ratio: f64,
    /// Processor time of this process, user and system.
    pub cpu_s: f64,
    /// Most memory this process had resident.
    pub peak_rss_bytes: Option<u64>,
    /// Links lost and replaced.
    pub resumed: u64,
    /// XXH3-64 of the stream, as hex, where it was thrown away and this is all that is known of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xxh3: Option<String>,
}

impl Transfer {
    /// From an endpoint's counters.
    pub fn new(role: &'static str, received: Received, stats: &Stats) -> Self {
        let raw_bytes = stats.sent_raw.max(stats.received_raw);
        let wire_bytes = stats.sent_wire + stats.received_wire;
        let seconds = stats.elapsed_ns as f64 / 1e9;
        Self {
            schema: "narrows.transfer/1",
            role,
            entries: received.entries,
            content_bytes: received.bytes,
            raw_bytes,
            wire_bytes,
            seconds,
            effective_mbit_s: Rate(raw_bytes as f64 / seconds.max(1e-9)).mbit(),
            ratio: raw_bytes as f64 / wire_bytes.max(1) as f64,
            cpu_s: CpuTime::of_process().total_ns() as f64 / 1e9,
            peak_rss_bytes: Memory::of_process().ok().map(|memory| memory.peak),
            resumed: stats.resumed,
            xxh3: None,
        }
    }

    /// One line for people.
    pub fn line(&self) -> String {
        format!(
            "{} {} in {:.2} s: {} effective, {} on the wire (ratio {:.2}), {:.2} s of processor time{}{}",
            if self.role == "send" {
                "sent"
            } else {
                "received"
            },
            Size(self.content_bytes),
            self.seconds,
            Rate::from_mbit(self.effective_mbit_s),
            Size(self.wire_bytes),
            self.ratio,
            self.cpu_s,
            if self.resumed > 0 {
                format!(", resumed {} times", self.resumed)
            } else {
                String::new()
            },
            self.xxh3
                .as_ref()
                .map_or_else(String::new, |xxh3| format!(", XXH3-64 {xxh3}")),
        )
    }
}
