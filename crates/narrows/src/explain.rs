//! A trace of decisions: what was expected of each chunk, and what came of it.

use std::{io::Write, sync::Arc, time::Instant};

use narrows_core::{Decision, Outcome};
use narrows_pipeline::Explain;
use parking_lot::Mutex;

/// For [`crate::Settings::explain`]: writes a line of JSON (`narrows.decision/1`) to `out` for each decision.
///
/// A trace that cannot be written does not stop the transfer that it describes.
#[must_use]
pub fn explain_to(out: impl Write + Send + 'static) -> Explain {
    let out = Mutex::new(std::io::BufWriter::new(out));
    let begun = Instant::now();
    Arc::new(move |decision: &Decision, outcome: &Outcome| {
        let line = serde_json::json!({
            "schema": "narrows.decision/1",
            "seq": outcome.seq.0,
            "at_ns": begun.elapsed().as_nanos() as u64,
            "codec": decision.candidate.codec.0,
            "level": decision.candidate.level.0,
            "history": decision.candidate.history_len,
            "why": decision.why,
            "link_bytes_per_s": decision.estimate.link_bytes_per_s,
            "raw_len": outcome.raw_len,
            "estimate": {
                "packed_len": decision.estimate.packed_len,
                "pack_ns": decision.estimate.pack_ns,
                "unpack_ns": decision.estimate.unpack_ns,
            },
            "outcome": {
                "packed_len": outcome.packed_len,
                "cpu_ns": outcome.cpu_ns,
                "wall_ns": outcome.wall_ns,
            },
        });
        let mut out = out.lock();
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    })
}
