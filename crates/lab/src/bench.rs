//! `narrows bench`: codec × level × chunk length × threads on the user's data.
//!
//! Like lzbench in that everything is in memory and unpacked again and compared; unlike it, the data is cut into chunks
//! as a data path would cut it, threads share the chunks as its workers would, and both are axes of their own.
//! Each case runs in a process of its own ([`worker`]): its memory is its own, and a codec that crashes ends its case,
//! not the sweep. Upstream: [`data`](crate::data); downstream: [`result`](crate::result) lines and [`pictures`].
//!
//! A case is *on the front* where no other case with as many threads packs both smaller and faster (or, for the second
//! mark, both smaller and faster to unpack).

pub mod pictures;
pub mod worker;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::{Command, Stdio},
};

use narrows_core::Registry;

use self::worker::{Job, Measured};
use crate::{
    data::{Data, DataError, Excerpt},
    result::{Case, Row},
};

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Codecs with levels, as [`settings`] makes them.
    pub codecs: Vec<String>,
    /// Lengths of chunks, bytes.
    pub chunks: Vec<u64>,
    /// Numbers of threads.
    pub threads: Vec<u64>,
    /// How long packing is repeated, and unpacking again, in seconds; at least once.
    pub seconds: f64,
    /// Most bytes of the data that are used.
    pub len_max: u64,
    /// Bytes before a chunk that it may refer to, where the codec can.
    pub history_bytes: u64,
}

/// Runs cases in processes of this program.
#[derive(Debug, Clone)]
pub struct Bencher {
    /// The program that has `bench --worker`.
    pub program: PathBuf,
}

/// Where the sweep is.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Cases done.
    pub done: usize,
    /// Cases in all.
    pub total: usize,
    /// The case at hand.
    pub case: &'a Case,
}

/// The settings that `text` names: `zstd` (its default level), `zstd:3`, `zstd:1..9`, or `all` for every codec at its
/// default level.
///
/// # Errors
/// A sentence for people, where there is no such codec or level.
pub fn settings(registry: &Registry, text: &str) -> Result<Vec<String>, String> {
    if text == "all" {
        return Ok(registry
            .entries()
            .map(|entries| named(registry, entries[0].codec.info().name))
            .collect());
    }
    let level = |text: &str| match narrows::candidate(registry, text, 0) {
        Ok(candidate) => Ok(candidate.level.0),
        Err(fault) => Err(fault.to_string()),
    };
    let Some((name, levels)) = text.split_once(':') else {
        return level(text).map(|_| vec![named(registry, text)]);
    };
    let (from, to) = levels.split_once("..").unwrap_or((levels, levels));
    let (from, to) = (
        level(&format!("{name}:{from}"))?,
        level(&format!("{name}:{to}"))?,
    );
    if from > to {
        return Err(format!(
            "levels {from}..{to} are none; the lower comes first"
        ));
    }
    Ok((from..=to).map(|level| format!("{name}:{level}")).collect())
}

/// A codec at its default level, the level spelled out where it has several.
fn named(registry: &Registry, name: &str) -> String {
    match registry.by_name(name).map(|codec| codec.info()) {
        Some(info) if info.levels.start() != info.levels.end() => {
            format!("{name}:{}", info.level_default)
        }
        _ => name.into(),
    }
}

/// What is measured where the user names no codecs: what the adaptive policy chooses from, and the published study's.
pub const CODECS_DEFAULT: [&str; 16] = [
    "lz4",
    "snappy",
    "gipfeli",
    "lzo1x",
    "zstd:-200",
    "zstd:-20",
    "zstd:-5",
    "zstd:1",
    "zstd:3",
    "zstd:6",
    "zstd:9",
    "zstd:15",
    "deflate",
    "shuffle4-lz4",
    "shuffle4-zstd:1",
    "delta4-zstd:1",
];

/// Measures every case of `plan` on `data` and marks the front. `progress` is told before each case, `row` gets each
/// as it is measured.
///
/// # Errors
/// [`DataError`]; a case that fails is a row with a fault.
pub fn run(
    bencher: &Bencher,
    data: &Data,
    plan: &Plan,
    mut progress: impl FnMut(Progress),
) -> Result<Vec<Row>, DataError> {
    let excerpt = data.excerpt(plan.len_max)?;
    let mut cases = Vec::new();
    for &threads in &plan.threads {
        for &chunk_bytes in &plan.chunks {
            cases.extend(plan.codecs.iter().map(|codec| Case {
                part: Some("bench".into()),
                data: Some(data.what.clone()),
                data_bytes: Some(excerpt.len),
                codec: Some(codec.clone()),
                chunk_bytes: Some(chunk_bytes),
                threads: Some(threads),
                history_bytes: (plan.history_bytes > 0).then_some(plan.history_bytes),
                ..Case::default()
            }));
        }
    }
    let total = cases.len();
    let rows = cases.into_iter().enumerate().map(|(done, case)| {
        progress(Progress {
            done,
            total,
            case: &case,
        });
        bencher.row(case, &excerpt, plan.seconds)
    });
    let mut rows: Vec<_> = rows.collect();
    mark_front(&mut rows);
    Ok(rows)
}

impl Bencher {
    /// Measures one case.
    fn row(&self, case: Case, excerpt: &Excerpt, seconds: f64) -> Row {
        let job = Job {
            codec: case.codec.clone().unwrap_or_default(),
            chunk_bytes: case.chunk_bytes.unwrap_or(1),
            threads: case.threads.unwrap_or(1),
            history_bytes: case.history_bytes.unwrap_or(0),
            seconds,
        };
        match self.measure(&job, excerpt) {
            Ok(measured) => measured.row(case),
            Err(fault) => Row {
                fault: Some(fault),
                ..Row::new(case, [])
            },
        }
    }

    /// Measures one job in a process of its own.
    ///
    /// # Errors
    /// What became of that process, for people.
    pub fn measure(&self, job: &Job, excerpt: &Excerpt) -> Result<Measured, String> {
        let input = excerpt.open().map_err(|fault| fault.to_string())?;
        let job = serde_json::to_string(job).expect("numbers and text are JSON");
        let mut command = Command::new(&self.program);
        command
            .args(["bench", "codecs", "--worker", &job])
            .env("NARROWS_CONFIG", "")
            .stdin(Stdio::from(input));
        let output = command
            .output()
            .map_err(|fault| format!("cannot start the program: {fault}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{}: {}", output.status, said.trim()));
        }
        serde_json::from_slice(&output.stdout)
            .map_err(|fault| format!("unreadable result: {fault}"))
    }
}

/// Marks, among cases of the same data and threads, those that no other beats in both ratio and speed.
fn mark_front(rows: &mut [Row]) {
    let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (number, row) in rows.iter().enumerate() {
        groups
            .entry((row.case.data.clone(), row.case.threads))
            .or_default()
            .push(number);
    }
    for (mark, speed) in [
        ("pareto_pack", "pack_mb_s"),
        ("pareto_unpack", "unpack_mb_s"),
    ] {
        for group in groups.values() {
            let point = |number: &usize| {
                Some((
                    *number,
                    rows[*number].value("ratio")?,
                    rows[*number].value(speed)?,
                ))
            };
            let mut points: Vec<_> = group.iter().filter_map(point).collect();
            // By falling ratio, then falling speed: on the front is who is faster than all that pack at least as well.
            points.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.2.total_cmp(&a.2)));
            let mut fastest = 0.0;
            for (number, _, speed) in points {
                if speed > fastest {
                    fastest = speed;
                    rows[number].marks.insert(mark.into());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_codecs_levels_and_ranges() {
        let registry = narrows::default_registry();
        let of = |text| settings(&registry, text);
        assert_eq!(of("zstd:1..3").unwrap(), ["zstd:1", "zstd:2", "zstd:3"]);
        assert_eq!(of("zstd:-5").unwrap(), ["zstd:-5"]);
        assert_eq!(of("snappy").unwrap(), ["snappy"]);
        assert!(of("zstd").unwrap()[0].starts_with("zstd:"));
        assert!(of("all").unwrap().len() > 10);
        for (text, said) in [
            ("zsdt", "narrows codecs"),
            ("zstd:99", "levels"),
            ("zstd:9..1", "levels"),
            ("zstd:x", "levels"),
        ] {
            assert!(of(text).unwrap_err().contains(said), "{text}");
        }
        for text in CODECS_DEFAULT {
            assert_eq!(of(text).unwrap().len(), 1, "{text}");
        }
    }

    // Goal: the front is right. Method: against its definition, pair by pair, on random points.
    #[test]
    fn the_front_is_who_nobody_beats_in_both() {
        let mut seed = 1_u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 60) as f64
        };
        for _ in 0..200 {
            let mut rows: Vec<_> = (0..20)
                .map(|number| {
                    let case = Case {
                        threads: Some(number % 2),
                        ..Case::default()
                    };
                    Row::new(case, [("ratio", random()), ("pack_mb_s", 1.0 + random())])
                })
                .collect();
            mark_front(&mut rows);
            let of = |row: &Row| (row.values["ratio"], row.values["pack_mb_s"]);
            for row in &rows {
                let beaten = rows.iter().any(|other| {
                    let ((ratio, speed), (their_ratio, their_speed)) = (of(row), of(other));
                    other.case.threads == row.case.threads
                        && their_ratio >= ratio
                        && their_speed >= speed
                        && (their_ratio > ratio || their_speed > speed)
                });
                let twin = rows.iter().any(|other| {
                    of(other) == of(row)
                        && other.marks.contains("pareto_pack")
                        && other.case.threads == row.case.threads
                });
                assert_eq!(!beaten, twin, "{row:?}");
            }
        }
    }
}
