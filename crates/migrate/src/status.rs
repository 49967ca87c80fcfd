//! What a migration is doing, for `narrows migrate status`: one JSON document to whoever connects to a socket.

use narrows::Stats;
use narrows_core::{
    Gauges,
    units::{Rate, Size},
};
use narrows_io::{
    Address,
    answer::{self, Answers, Speech},
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::{MigrateError, aware::Counts, backlog::Bounds};

/// Name and version of the document.
const SCHEMA: &str = "narrows.migrate-status/1";

/// `narrows.migrate-status/1`. Lengths in bytes, rates in bytes a second.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Name and version of this document.
    pub schema: String,
    /// Sockets carried now.
    pub lanes: u64,
    /// Sockets carried since the session began; 0 before QEMU comes.
    pub lanes_ever: u64,
    /// Since the session began.
    pub seconds: f64,
    /// Taken from QEMU, as it travels after [`crate::aware`].
    pub sent_raw_bytes: u64,
    /// Written to the link.
    pub sent_wire_bytes: u64,
    /// Given to QEMU.
    pub received_raw_bytes: u64,
    /// Read from the link.
    pub received_wire_bytes: u64,
    /// What the link carries; 0 while that is unknown.
    pub goodput: u64,
    /// The number for `avail-switchover-bandwidth`; 0 as above.
    pub switchover_bandwidth: u64,
    /// Packed and waiting for the link now, and the most that may.
    pub backlog_bytes: u64,
    /// See `backlog_bytes`.
    pub backlog_max_bytes: u64,
    /// Pages that came in multifd packets.
    pub pages: u64,
    /// Of these, those the destination had already.
    pub pages_left_out: u64,
    /// Of these, those sent as difference.
    pub pages_as_difference: u64,
    /// Pages sent in part, the rest as copies out of pages that both sides keep.
    pub pages_with_copies: u64,
}

impl Status {
    /// Before the first migration.
    #[must_use]
    pub fn idle() -> Self {
        Self {
            schema: SCHEMA.into(),
            ..Self::default()
        }
    }

    pub(crate) fn new(
        stats: &Stats,
        gauges: &Gauges,
        bounds: &Bounds,
        counts: &Counts,
        lanes: u64,
        lanes_ever: u64,
    ) -> Self {
        Self {
            schema: SCHEMA.into(),
            lanes,
            lanes_ever,
            seconds: stats.elapsed_ns as f64 / 1e9,
            sent_raw_bytes: stats.sent_raw,
            sent_wire_bytes: stats.sent_wire,
            received_raw_bytes: stats.received_raw,
            received_wire_bytes: stats.received_wire,
            goodput: bounds.goodput,
            switchover_bandwidth: bounds.promise,
            backlog_bytes: gauges.queued_bytes,
            backlog_max_bytes: bounds.backlog_max,
            pages: counts.pages,
            pages_left_out: counts.left_out,
            pages_as_difference: counts.differences,
            pages_with_copies: counts.copies,
        }
    }

    /// One line for people.
    #[must_use]
    pub fn line(&self) -> String {
        let raw = self.sent_raw_bytes.max(self.received_raw_bytes);
        let wire = self.sent_wire_bytes.max(self.received_wire_bytes);
        format!(
            "{} of {} sockets open, {:.1} s: {} in {} on the wire; link {} (avail-switchover-bandwidth {}); {} waiting of at most {}; pages {} ({} left out, {} as difference, {} with copies)",
            self.lanes,
            self.lanes_ever,
            self.seconds,
            Size(raw),
            Size(wire),
            if self.goodput == 0 {
                "not known yet".into()
            } else {
                Rate(self.goodput as f64).to_string()
            },
            self.switchover_bandwidth,
            Size(self.backlog_bytes),
            Size(self.backlog_max_bytes),
            self.pages,
            self.pages_left_out,
            self.pages_as_difference,
            self.pages_with_copies,
        )
    }
}

/// Where the numbers come from, each time somebody asks.
pub type Source = Arc<dyn Fn() -> Status + Send + Sync>;

/// Answers at `address` until what is returned is dropped.
///
/// # Errors
/// The address cannot be listened on.
pub fn serve(
    address: &Address,
    source: Source,
) -> Result<Answers, narrows_io::listener::ListenError> {
    let document = move || serde_json::to_vec(&source()).unwrap_or_default();
    Answers::start(address, Speech::Plain, Arc::new(document))
}

/// Asks at `address`.
///
/// # Errors
/// Nobody answers there, or it is not a narrows that migrates.
pub fn ask(address: &Address) -> Result<Status, MigrateError> {
    let fault = |what| move |fault: std::io::Error| MigrateError::Socket { what, fault };
    let document = answer::ask(address).map_err(fault("cannot ask for the status"))?;
    serde_json::from_slice(&document)
        .map_err(|source| fault("no status is served there")(source.into()))
}
