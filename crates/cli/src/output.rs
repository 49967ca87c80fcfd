//! What people and scripts see.

use std::{
    io::{self, IsTerminal, Write},
    path::PathBuf,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use narrows::{Endpoint, Stats};
use narrows_core::units::{Rate, Size};
use narrows_io::meter::{CpuTime, Memory};
use narrows_wire::{Received, send::Moment, source::Source};
use parking_lot::Mutex;
use serde::Serialize;

use crate::exit::OutputClosed;

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
    crate::log::draw_below(&bar);
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
    crate::log::draw_below(&bar);
    bar
}

/// One transfer's result, `narrows.transfer/1`.
#[derive(Debug, Serialize)]
pub struct Transfer {
    schema: &'static str,
    /// `send` or `recv`.
    pub role: &'static str,
    /// Files, directories and links, with those that were there already.
    pub entries: u64,
    /// Files that were there already, as they are at the sender.
    pub unchanged: u64,
    /// Files that stay as they are at the receiver, since the sender wanted that.
    pub kept: u64,
    /// Files that were replaced though they were newer, or write-protected.
    pub replaced: u64,
    /// Files and directories that the sender could not read.
    pub left_out: u64,
    /// Entries of which mode, time, owner, access list or attributes could not be set.
    pub unset: u64,
    /// Entries in whose place a directory stands.
    pub blocked: u64,
    /// Content bytes that were sent, holes included.
    pub content_bytes: u64,
    /// Of those, in holes.
    pub hole_bytes: u64,
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

/// Of fewer bytes a ratio says how long the handshake is, and nothing of the data.
const RATIO_FROM: u64 = 64 << 10;

impl Transfer {
    /// From an endpoint's counters.
    pub fn new(role: &'static str, received: Received, stats: &Stats) -> Self {
        let wire_bytes = stats.sent_wire + stats.received_wire;
        let seconds = stats.elapsed_ns as f64 / 1e9;
        let raw_bytes = stats.sent_raw.max(stats.received_raw);
        Self {
            schema: "narrows.transfer/1",
            role,
            entries: received.entries,
            unchanged: received.unchanged,
            kept: received.kept,
            replaced: received.replaced,
            left_out: received.left_out,
            unset: received.unset,
            blocked: received.blocked,
            content_bytes: received.bytes,
            hole_bytes: received.holes,
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

    /// One line for people, all of it of the bytes of files, without holes.
    pub fn line(&self) -> String {
        let done = if self.role == "send" {
            "sent"
        } else {
            "received"
        };
        let data = self.content_bytes.saturating_sub(self.hole_bytes);
        let mut line = format!("{done} {}", Size(data));
        if self.hole_bytes > 0 {
            line += &format!(" and {} of holes", Size(self.hole_bytes));
        }
        line += &format!(
            " in {:.2} s: {} effective, {} on the wire",
            self.seconds,
            Rate(data as f64 / self.seconds.max(1e-9)),
            Size(self.wire_bytes),
        );
        if data >= RATIO_FROM {
            let ratio = data as f64 / self.wire_bytes.max(1) as f64;
            line += &format!(" (ratio {ratio:.2})");
        }
        line += &format!(", {:.2} s of processor time", self.cpu_s);
        let counts = [
            (self.unchanged, "unchanged"),
            (self.kept, "kept as they were there"),
            (self.replaced, "replaced though newer or write-protected"),
            (self.left_out, "not sent"),
            (self.unset, "not as they are at the sender"),
            (self.blocked, "not in place"),
            (self.resumed, "times resumed"),
        ];
        for (count, what) in counts {
            if count > 0 {
                line += &format!(", {count} {what}");
            }
        }
        if let Some(xxh3) = &self.xxh3 {
            line += &format!(", XXH3-64 {xxh3}");
        }
        line
    }
}

/// Shows how far a transfer is, where somebody watches; until dropped.
pub struct Watched {
    bar: ProgressBar,
    shared: Option<Arc<Mutex<Shown>>>,
}

#[derive(Default)]
struct Shown {
    bytes: u64,
    entries: u64,
    path: PathBuf,
    /// Bytes and files to come, once they are counted.
    total: Option<(u64, u64)>,
    over: bool,
}

/// How often the line is drawn anew.
const DRAW_EVERY: Duration = Duration::from_millis(200);

impl Watched {
    /// Begins.
    pub fn start(quiet: bool, endpoint: &Arc<Endpoint>) -> Self {
        if quiet || !io::stderr().is_terminal() {
            let bar = ProgressBar::hidden();
            return Self { bar, shared: None };
        }
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} {wide_msg}");
        bar.set_style(style.expect("the template is well formed"));
        crate::log::draw_below(&bar);
        let shared = Arc::new(Mutex::new(Shown::default()));
        let (drawn, from, endpoint) = (bar.clone(), shared.clone(), Arc::downgrade(endpoint));
        // Where there is no thread for it, the transfer goes on unseen.
        let _ = narrows_io::thread::spawn("progress", move || draw(&drawn, &from, &endpoint));
        Self {
            bar,
            shared: Some(shared),
        }
    }

    /// Notes how far it is.
    pub fn show(&self, moment: &Moment<'_>) {
        if let Some(shared) = &self.shared {
            let mut shown = shared.lock();
            (shown.bytes, shown.entries) = (moment.bytes, moment.entries);
            if shown.path != moment.path {
                shown.path = moment.path.to_path_buf();
            }
        }
    }

    /// Notes how much is to come.
    pub fn expect(&self, bytes: u64, files: u64) {
        if let Some(shared) = &self.shared {
            shared.lock().total = Some((bytes, files));
        }
    }

    /// Counts what is to come, beside the transfer.
    pub fn count(&self, source: &Arc<Source>) {
        if let Some(shared) = &self.shared {
            let (shared, source) = (shared.clone(), source.clone());
            let count = move || {
                let mut total = (0, 0);
                source.walk(&mut |_, meta| {
                    total.0 += if meta.is_file() { meta.len() } else { 0 };
                    total.1 += 1;
                });
                shared.lock().total = Some(total);
            };
            let _ = narrows_io::thread::spawn("count", count);
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.lock().over = true;
        }
        self.bar.finish_and_clear();
    }
}

fn draw(bar: &ProgressBar, shared: &Mutex<Shown>, endpoint: &Weak<Endpoint>) {
    let (began, mut lost_at) = (Instant::now(), None::<Instant>);
    loop {
        std::thread::sleep(DRAW_EVERY);
        let Some(endpoint) = endpoint.upgrade() else {
            return;
        };
        let shown = shared.lock();
        if shown.over {
            return;
        }
        if endpoint.is_linked() {
            lost_at = None;
            bar.set_message(shown.line(began.elapsed(), &endpoint.stats()));
        } else if endpoint.ended().is_none() {
            let since = lost_at.get_or_insert_with(Instant::now).elapsed();
            let within = endpoint.resume_within();
            bar.set_message(format!(
                "connection lost, retrying, {} of {} s",
                since.min(within).as_secs(),
                within.as_secs()
            ));
        }
        bar.tick();
    }
}

impl Shown {
    fn line(&self, elapsed: Duration, stats: &Stats) -> String {
        let mut line = Size(self.bytes).to_string();
        let rate = self.bytes as f64 / elapsed.as_secs_f64().max(1e-3);
        if let Some((bytes, files)) = self.total {
            let part = self.bytes as f64 / bytes.max(1) as f64;
            line += &format!(
                " of {}, {:.0} %, {} of {files} files",
                Size(bytes),
                part.min(1.0) * 100.0,
                self.entries.min(files)
            );
            let left = bytes.saturating_sub(self.bytes) as f64 / rate.max(1.0);
            line += &format!(", {} left", span(left));
        } else if self.entries > 0 {
            line += &format!(", {} files", self.entries);
        }
        line += &format!(", {}", Rate(rate));
        let wire = stats.sent_wire + stats.received_wire;
        if self.bytes >= RATIO_FROM && wire > 0 {
            line += &format!(", ratio {:.2}", self.bytes as f64 / wire as f64);
        }
        // A name may hold anything; a terminal must not obey it.
        let name = self
            .path
            .display()
            .to_string()
            .replace(char::is_control, "?");
        line + "  " + &name
    }
}

fn span(seconds: f64) -> String {
    let whole = seconds.min(359_999.0) as u64;
    format!("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: what is printed is on one basis: bytes of files, holes apart, no ratio of nearly nothing.
    #[test]
    fn a_summary_counts_file_bytes() {
        let received = Received {
            entries: 3,
            bytes: 3 << 20,
            holes: 2 << 20,
            unchanged: 1,
            ..Received::default()
        };
        let stats = Stats {
            sent_raw: 1 << 20,
            sent_wire: 1 << 19,
            elapsed_ns: 1_000_000_000,
            ..Stats::default()
        };
        let line = Transfer::new("send", received, &stats).line();
        assert!(
            line.starts_with("sent 1 MiB and 2 MiB of holes in 1.00 s: "),
            "{line}"
        );
        assert!(
            line.contains("(ratio 2.00)") && line.ends_with(", 1 unchanged"),
            "{line}"
        );
        let small = Received {
            bytes: 5,
            ..Received::default()
        };
        let line = Transfer::new("recv", small, &stats).line();
        assert!(!line.contains("ratio"), "{line}");
    }

    #[test]
    fn progress_has_total_share_time_left_and_name() {
        let shown = Shown {
            bytes: 25 << 20,
            entries: 2,
            path: "a/b\x1b".into(),
            total: Some((100 << 20, 9)),
            over: false,
        };
        let stats = Stats {
            sent_wire: 5 << 20,
            ..Stats::default()
        };
        let line = shown.line(Duration::from_secs(10), &stats);
        for words in [
            " of 100 MiB, 25 %, 2 of 9 files, 0:00:30 left",
            "ratio 5.00",
            "a/b?",
        ] {
            assert!(line.contains(words), "{words}: {line}");
        }
    }
}
