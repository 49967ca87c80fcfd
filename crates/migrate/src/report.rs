//! What a migration took and cost: the table of QEMU's own page on compressed migration, with what that leaves out.

use std::fmt::Write;

use narrows_core::units::{Rate, Size};
use serde::Serialize;

use crate::{control::Cost, source::Progress, status::Status};

/// `narrows.migrate/1`. Times in milliseconds, lengths in bytes, processor time in seconds.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    schema: &'static str,
    /// QEMU at the source: major, minor, micro.
    pub qemu: [u64; 3],
    /// Multifd channels; 0 for none.
    pub channels: u8,
    /// QEMU connected by itself, since the link carries more than the tunnel packs.
    pub direct: bool,
    /// That connection was under QEMU's own TLS.
    pub direct_tls: bool,
    /// QEMU packed by its own zstd of that level.
    pub direct_zstd_level: Option<u8>,
    /// Measured before the guest moved, in bytes a second; `None` where nobody asked.
    pub link_bytes_per_s: Option<f64>,
    /// From the start to the end, as QEMU has it.
    pub total_ms: u64,
    /// The guest stood still, as QEMU has it.
    pub down_ms: u64,
    /// From seeing it stop here to hearing that it runs there: `down_ms` and the way of the word. `None` where the
    /// destination is not driven.
    pub down_seen_ms: Option<f64>,
    /// What it was allowed.
    pub downtime_limit_ms: u64,
    /// Times that QEMU went through memory.
    pub rounds: u64,
    /// The guest's memory.
    pub ram_bytes: u64,
    /// Sent by QEMU.
    pub transferred_bytes: u64,
    /// On the wire, both directions; of a direct migration what QEMU counts besides.
    pub wire_bytes: u64,
    /// Bits of guest memory a second that QEMU sent, on average.
    pub throughput_mbit_s: f64,
    /// Pages a second, on average. QEMU's own number of that name is of its last tenth of a second.
    pub pages_per_s: f64,
    /// What the link carried when last busy; 0 where it never was the limit.
    pub goodput_bytes_per_s: u64,
    /// Pages left out and sent as difference.
    pub pages_left_out: u64,
    /// See `pages_left_out`.
    pub pages_as_difference: u64,
    /// See `pages_left_out`.
    pub pages_with_copies: u64,
    /// At the source.
    pub send: Cost,
    /// At the destination; `None` where that was not heard.
    pub recv: Option<Cost>,
}

impl Report {
    /// Puts together what the parts know.
    #[must_use]
    pub fn new(
        qemu: [u64; 3],
        channels: u8,
        downtime_limit_ms: u64,
        progress: &Progress,
        status: &Status,
        send: Cost,
    ) -> Self {
        let seconds = (progress.total_ms as f64 / 1000.0).max(1e-3);
        Self {
            schema: "narrows.migrate/1",
            qemu,
            channels,
            direct: false,
            direct_tls: false,
            direct_zstd_level: None,
            link_bytes_per_s: None,
            total_ms: progress.total_ms,
            down_ms: progress.down_ms,
            down_seen_ms: None,
            downtime_limit_ms,
            rounds: progress.rounds,
            ram_bytes: progress.ram_total,
            transferred_bytes: progress.transferred,
            wire_bytes: status.sent_wire_bytes + status.received_wire_bytes,
            throughput_mbit_s: Rate(progress.transferred as f64 / seconds).mbit(),
            pages_per_s: progress.pages as f64 / seconds,
            goodput_bytes_per_s: status.goodput,
            pages_left_out: status.pages_left_out,
            pages_as_difference: status.pages_as_difference,
            pages_with_copies: status.pages_with_copies,
            send,
            recv: None,
        }
    }

    /// Notes that QEMU connected by itself, whether under TLS, and how it packed.
    pub fn set_direct(&mut self, is_tls: bool, zstd_level: Option<u8>) {
        (self.direct, self.direct_tls, self.direct_zstd_level) = (true, is_tls, zstd_level);
        self.wire_bytes += self.transferred_bytes;
    }

    /// A table for people.
    #[must_use]
    #[allow(
        clippy::too_many_lines,
        reason = "a picture or a table, from top to bottom"
    )]
    pub fn table(&self) -> String {
        let cpu = |cost: &Cost| {
            let total = cost.tunnel_cpu_s + cost.qemu_cpu_s.unwrap_or(0.0);
            let percent = total / (self.total_ms as f64 / 1000.0).max(1e-3) * 100.0;
            let part = cost.qemu_cpu_s.map_or_else(
                || "QEMU's not seen".into(),
                |qemu| format!("QEMU {qemu:.2}"),
            );
            format!(
                "{total:.2} s, {percent:.0} % of one processor (narrows {:.2}, {part})",
                cost.tunnel_cpu_s
            )
        };
        let [major, minor, micro] = self.qemu;
        let seen = self.down_seen_ms.map_or_else(String::new, |ms| {
            format!(", {ms:.0} ms between seeing it stop and run")
        });
        let link = self
            .link_bytes_per_s
            .map_or_else(String::new, |rate| format!("; link {}", Rate(rate)));
        let mut way = String::from(if self.direct {
            "QEMU to QEMU"
        } else {
            "tunnel"
        });
        if self.direct_tls {
            way.push_str(", TLS");
        }
        if let Some(level) = self.direct_zstd_level {
            let _ = write!(way, ", zstd {level}");
        }
        let rows = [
            (
                "QEMU",
                format!("{major}.{minor}.{micro}, {} channels", self.channels),
            ),
            ("way", format!("{way}{link}")),
            ("total", format!("{} ms", self.total_ms)),
            (
                "down",
                format!(
                    "{} ms of {} allowed{seen}",
                    self.down_ms, self.downtime_limit_ms
                ),
            ),
            ("rounds", self.rounds.to_string()),
            (
                "guest memory",
                format!(
                    "{}, {} sent",
                    Size(self.ram_bytes),
                    Size(self.transferred_bytes)
                ),
            ),
            (
                "throughput",
                format!(
                    "{}, {:.0} pages/s on average",
                    Rate::from_mbit(self.throughput_mbit_s),
                    self.pages_per_s
                ),
            ),
            (
                "on the wire",
                format!(
                    "{} (ratio {:.2})",
                    Size(self.wire_bytes),
                    self.transferred_bytes as f64 / self.wire_bytes.max(1) as f64
                ),
            ),
            (
                "pages",
                format!(
                    "{} left out, {} as difference, {} with copies",
                    self.pages_left_out, self.pages_as_difference, self.pages_with_copies
                ),
            ),
            ("send CPU", cpu(&self.send)),
            (
                "receive CPU",
                self.recv.as_ref().map_or_else(|| "not heard".into(), cpu),
            ),
        ];
        rows.map(|(name, value)| format!("{name:<14}{value}"))
            .join("\n")
    }
}
