//! What the session carried, for those who asked for it.

use std::sync::atomic::Ordering::Relaxed;

use crate::{call::say, settings, state::Client};

/// Writes one JSON document to where `narrows gpu run` wants it.
pub(crate) fn write(client: &Client) {
    let Some(path) = settings::summary() else {
        return;
    };
    let (stats, counts) = (client.remote.stats(), &client.remote.counts);
    let text = format!(
        "{{\"schema\":\"narrows.gpu-run/1\",\"elapsed_s\":{},\"messages\":{},\"round_trips\":{},\
         \"sent_bytes\":{},\"sent_wire_bytes\":{},\"received_bytes\":{},\"received_wire_bytes\":{},\
         \"content_cache_bytes\":{},\"cpu_s\":{}}}\n",
        stats.elapsed_ns as f64 / 1e9,
        counts.sent.load(Relaxed),
        counts.calls.load(Relaxed),
        stats.sent_raw,
        stats.sent_wire,
        stats.received_raw,
        stats.received_wire,
        client.remote.contents.saved.load(Relaxed),
        narrows_io::meter::CpuTime::of_process().total_ns() as f64 / 1e9,
    );
    if let Err(fault) = std::fs::write(&path, text) {
        say(&format!("cannot write {}: {fault}", path.display()));
    }
}
