//! The same transfer as a copy to the memory of a GPU elsewhere: NVIDIA's `bandwidthTest` on the data given.
//!
//! `narrows gpu serve --backend host` holds the memory, `narrows gpu bandwidth` copies to it through the client library.
//! The first copies fill the memory and are not counted. `gpu bandwidth` compares what comes back with what went, and
//! never uses the cache of contents.

use std::{path::Path, time::Instant};

use narrows_core::units::Rate;
use serde::Deserialize;

use super::{Contestant, LinkSpec, RaceError, Racer, Run, start, time_max};
use crate::data::Excerpt;

/// What `gpu bandwidth` calls a copy to the device.
pub(super) const DIRECTION: &str = "host_to_device";
/// Schema of its lines of copies; the other lines are round trips.
const SCHEMA: &str = "narrows.gpu-bandwidth/1";
/// Copies of short messages go on for so long: the median of many says what one of some microseconds takes.
const SECONDS: &str = "0.05";
/// Exit code of damaged data.
const DAMAGED: i32 = 3;
/// The first copies, the one that is counted, the one that comes back.
const COPIES: u64 = 4;

impl Racer {
    /// Copies `excerpt` to the memory of a GPU behind `link`.
    pub(super) fn run_gpu(
        &self,
        link: &LinkSpec,
        who: &Contestant,
        excerpt: &Excerpt,
        explain: Option<&Path>,
    ) -> Result<Run, RaceError> {
        // Each copy is of the same bytes: none may refer to an earlier one.
        let racer = self.without_history();
        let mut words = vec!["gpu", "serve", "--backend", "host"];
        words.extend(["--listen", "127.0.0.1:0"]);
        // Both ends pack, so both have the contestant's flags.
        words.extend(who.words());
        let mut server = racer.end("server", &words, None)?;
        let (to, _emulator) = link.to(server.address()?)?;
        let len = excerpt.len.to_string();
        let mut words = vec!["gpu", "bandwidth", "--json", "--to", &to, "--kinds", ""];
        words.extend(["--data", "/dev/stdin", "--sizes", &len]);
        words.extend(["--direction", "to", "--memory", "pageable"]);
        words.extend(["--repeats", "1", "--seconds", SECONDS]);
        words.extend(who.words());
        let explain = explain.map(|path| path.display().to_string());
        if let Some(explain) = &explain {
            words.extend(["--explain", explain]);
        }
        let input = excerpt
            .open()
            .map_err(|fault| start("open the data", &fault))?;
        let began = Instant::now();
        let mut client = racer.end("client", &words, Some(input))?;
        let deadline = began + time_max(link, excerpt.len.saturating_mul(COPIES));
        let text = client.output(began, deadline).map_err(|fault| {
            match client.child.try_wait().ok().flatten() {
                Some(status) if status.code() == Some(DAMAGED) => RaceError::Differs {
                    sent: format!("{} bytes, XXH3 {}", excerpt.len, excerpt.xxh3),
                    received: fault.to_string(),
                },
                _ => fault,
            }
        })?;
        let process_seconds = began.elapsed().as_secs_f64();
        let copies = text
            .lines()
            .map(serde_json::from_str::<Line>)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|fault| client.unreadable(&fault))?
            .into_iter()
            .find_map(|line| line.copies.filter(|_| line.schema == SCHEMA))
            .ok_or_else(|| client.unreadable(&"no copy was measured"))?;
        Ok(copies.run(excerpt.len, process_seconds))
    }

    fn without_history(&self) -> Self {
        let mut racer = self.clone();
        let flag = "--no-history";
        if !racer.packing.iter().any(|word| word == flag) {
            racer.packing.push(flag.into());
        }
        racer
    }
}

#[derive(Deserialize)]
struct Line {
    schema: String,
    #[serde(flatten)]
    copies: Option<Copies>,
}

/// What is used of `narrows.gpu-bandwidth/1`.
#[derive(Deserialize)]
struct Copies {
    seconds: Vec<f64>,
    median_s: f64,
    wire_bytes: u64,
    client_cpu_s: f64,
    server_cpu_s: f64,
}

impl Copies {
    /// As one transfer of `len` bytes.
    fn run(&self, len: u64, process_seconds: f64) -> Run {
        let count = self.seconds.len().max(1);
        Run {
            seconds: self.median_s,
            process_seconds,
            effective_mbit_s: Rate(len as f64 / self.median_s.max(1e-9)).mbit(),
            wire_bytes: self.wire_bytes / count as u64,
            send_cpu_s: self.client_cpu_s / count as f64,
            recv_cpu_s: self.server_cpu_s / count as f64,
            send_rss_bytes: None,
            recv_rss_bytes: None,
        }
    }
}
