//! What of the published tables this machine can measure by itself: pages under codecs, and chunks under libraries.
//!
//! Transfers are the [`study`](crate::study)'s.

use std::io::Cursor;

use narrows_chains::zbewalgo;

use super::{
    standin::{self, Likeness, Standin},
    tables::{self, codec_of},
};
use crate::{
    bench::worker::{self, Job},
    pages::{self, Contestant, Measured, PagesError, Plan, Set},
    result::{Case, Row},
};

/// A device behind memory, MiB/s.
#[derive(Debug, Clone, Copy)]
pub struct Device {
    /// To write.
    pub write: f64,
    /// To read.
    pub read: f64,
}

/// The paper's disk.
pub const DISK: Device = Device {
    write: 134.70,
    read: 156.62,
};
/// A solid state drive of today on four lanes, by data sheets; ours, not the paper's.
pub const SSD: Device = Device {
    write: 2000.0,
    read: 3000.0,
};
/// The class limit of the paper: a longer page is stored as it is.
pub const LIMIT: usize = 3264;

/// What is measured of Warnke's tables.
#[derive(Debug)]
pub struct Effort {
    /// Pages of each set.
    pub pages: usize,
    /// Timed rounds.
    pub rounds: u32,
    /// Smaller simulations.
    pub quick: bool,
    /// The user's own data: name of a set, path.
    pub given: Vec<(String, String)>,
}

/// Rows of Warnke's fourteen tables.
///
/// # Errors
/// [`PagesError`].
pub fn warnke(effort: &Effort, told: &mut dyn FnMut(&str)) -> Result<Vec<Row>, PagesError> {
    let mut rows = Vec::new();
    for of in &standin::WARNKE {
        told(of.name);
        rows.extend(set(of, effort)?);
    }
    Ok(rows)
}

fn set(of: &Standin, effort: &Effort) -> Result<Vec<Row>, PagesError> {
    let given = effort.given.iter().find(|(name, _)| name == of.name);
    let set = match given {
        Some((_, path)) => Set::load(path, effort.pages)?,
        None => Set::of(
            of.name,
            &standin::warnke(of.name, effort.quick),
            effort.pages,
        ),
    };
    let from = given.map_or(of.here, |(_, path)| path.rsplit('/').next().unwrap_or(path));
    let mark = match (given.is_some(), of.likeness) {
        (true, _) => "given",
        (false, Likeness::Same) => "same",
        (false, Likeness::Alike) => "stand_in",
    };
    let mut names: Vec<String> = [
        "842",
        "lzo",
        "lz4",
        "lz4-hc",
        "deflate-6",
        "zstd-3",
        "zbewalgo",
    ]
    .map(String::from)
    .into();
    names.push(best_chain(&set)?);
    names.extend(OURS.map(String::from));
    let document = measured(&set, &names, effort.rounds)?;
    let least = document
        .iter()
        .map(|of| of.stored_bytes)
        .fold(f64::INFINITY, f64::min);
    let row = |(measured, name): (&Measured, &String)| {
        let case = Case {
            part: Some(of.table.into()),
            data: Some(of.name.into()),
            device: Some(from.into()),
            codec: Some(if name.starts_with("zbewalgo:") {
                "zbewalgo*".into()
            } else {
                name.clone()
            }),
            data_bytes: Some(measured.raw_bytes as u64),
            block_bytes: Some(4096),
            ..Case::default()
        };
        let mut row = Row::new(case, values(measured, least));
        row.marks.insert(mark.into());
        row
    };
    Ok(document.iter().zip(&names).map(row).collect())
}

/// Ours, by profile.
pub const OURS: [&str; 3] = ["fast", "balanced", "ratio"];

/// The paper's `zbewalgo*` enables only what suits the data: here that chain of the ten which packs a few pages best.
fn best_chain(set: &Set) -> Result<String, PagesError> {
    let names: Vec<String> = zbewalgo::DEFAULT
        .iter()
        .map(|chain| format!("zbewalgo:{chain}"))
        .collect();
    let some = set.part(PROBED);
    let found = measured(&some, &names, 1)?;
    let best = found
        .iter()
        .zip(names)
        .max_by(|a, b| a.0.ratio.total_cmp(&b.0.ratio));
    Ok(best.map_or_else(|| "zbewalgo".into(), |(_, name)| name))
}

/// Pages that tell which chain suits.
const PROBED: usize = 24;

fn measured(set: &Set, names: &[String], rounds: u32) -> Result<Vec<Measured>, PagesError> {
    let plan = Plan {
        contestants: names
            .iter()
            .map(|name| Contestant::named(name))
            .collect::<Result<_, _>>()?,
        rounds,
        threads: 1,
        limit: LIMIT,
        backings: Vec::new(),
        zram: false,
        command: String::new(),
    };
    let document = pages::run(std::slice::from_ref(set), &plan, &mut |_| {})?;
    Ok(document
        .sets
        .into_iter()
        .next()
        .map(|set| set.results)
        .unwrap_or_default())
}

fn values(of: &Measured, least: f64) -> [(&'static str, f64); 8] {
    let (pack, unpack) = (of.pack_mb_s / MIB, of.unpack_mb_s / MIB);
    let spilled = spilled(of, least);
    let behind = |speed: f64, device: f64| effective(speed, spilled, device);
    [
        ("ratio", of.ratio),
        ("pack_mib_s", pack),
        ("unpack_mib_s", unpack),
        ("refused_share", of.refused_bytes / of.raw_bytes),
        ("effective_pack_mib_s", behind(pack, DISK.write)),
        ("effective_unpack_mib_s", behind(unpack, DISK.read)),
        ("effective_pack_ssd_mib_s", behind(pack, SSD.write)),
        ("effective_unpack_ssd_mib_s", behind(unpack, SSD.read)),
    ]
}

/// Share of the data that goes to the device: the paper's `size_backing = s_u + (s_c − s_c_min) · r`, over `s_o`. `s_u`
/// are refused pages. Read so that memory is what the best codec of the table needs in all (`least`): what a codec's
/// packed pages take beyond that goes to the device raw.
fn spilled(of: &Measured, least: f64) -> f64 {
    let packed = of.stored_bytes - of.refused_bytes;
    let ratio = if packed > 0.0 {
        (of.raw_bytes - of.refused_bytes) / packed
    } else {
        1.0
    };
    let beyond = (packed - least).max(0.0) * ratio;
    ((of.refused_bytes + beyond) / of.raw_bytes).min(1.0)
}

/// `s_o / (t + size_backing / speed_backing)`, MiB/s.
#[must_use]
pub fn effective(speed: f64, spilled: f64, device: f64) -> f64 {
    1.0 / (1.0 / speed.max(1e-9) + spilled / device)
}

/// MB in a MiB.
const MIB: f64 = 1.048_576;

/// Rows of chunks under Peñaranda's libraries: each chunk of Tables 3 and A1 to A3, of Table 4, and of our own choosing.
/// `data` is name and bytes.
pub fn chunks(data: &[(String, Vec<u8>)], told: &mut dyn FnMut(&str)) -> Vec<Row> {
    let mut wanted: Vec<(String, String, u64)> = tables::best()
        .iter()
        .map(|line| {
            (
                line.data.into(),
                codec_of(line.library).into(),
                (line.chunk_kib * 1024.0) as u64,
            )
        })
        .collect();
    for codec in ["gipfeli", "lzo1x"] {
        for chunk in [1 << 10, MESSAGE] {
            wanted.push(("traced".into(), codec.into(), chunk));
        }
    }
    wanted.sort();
    wanted.dedup();
    let rows = wanted.into_iter().filter_map(|(name, codec, chunk)| {
        let (_, bytes) = data.iter().find(|(known, _)| *known == name)?;
        told(&format!("{codec} {name} {chunk}"));
        Some(chunk_row(&name, bytes, &codec, chunk))
    });
    rows.collect()
}

/// The paper's messages.
pub const MESSAGE: u64 = 8 << 20;

fn chunk_row(name: &str, bytes: &[u8], codec: &str, chunk: u64) -> Row {
    let bytes = &bytes[..bytes.len().min(MESSAGE as usize)];
    let case = Case {
        part: Some("chunk".into()),
        data: Some(name.into()),
        codec: Some(codec.into()),
        chunk_bytes: Some(chunk),
        data_bytes: Some(bytes.len() as u64),
        ..Case::default()
    };
    let job = Job {
        codec: codec.into(),
        chunk_bytes: chunk,
        threads: 1,
        history_bytes: 0,
        seconds: 0.02,
    };
    match worker::run(&job, Cursor::new(bytes)) {
        Ok(measured) => {
            let count = (measured.raw_bytes as f64 / chunk as f64).max(1.0);
            let values = [
                (
                    "ratio",
                    measured.raw_bytes as f64 / measured.packed_bytes as f64,
                ),
                (
                    "micros",
                    (measured.pack_s + measured.unpack_s) * 1e6 / count,
                ),
                ("pack_s", measured.pack_s),
                ("unpack_s", measured.unpack_s),
                ("share_packed", measured.shrank),
            ];
            Row::new(case, values)
        }
        Err(fault) => Row {
            fault: Some(fault.to_string()),
            ..Row::new(case, [])
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // By hand: half of the pages are refused, the rest packs 4 to 1 in as much as the best codec needs: half of the bytes wait.
    #[test]
    fn what_is_refused_or_too_long_waits_for_the_device() {
        let set = Set::of("x", &standin::random(64 << 12), 64);
        let of = &measured(&set, &["lz4".into()], 1).unwrap()[0];
        assert!((spilled(of, 0.0) - 1.0).abs() < 1e-9, "{of:?}");
        assert!((effective(1e12, 1.0, 134.7) - 134.7).abs() < 1e-3);
        assert!((effective(100.0, 0.5, 100.0) - 66.67).abs() < 0.01);
    }
}
