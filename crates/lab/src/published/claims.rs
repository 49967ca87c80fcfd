//! What the publications conclude, and whether it holds here: one line each, with both figures.

use super::{
    held::Held,
    standin,
    tables::{self, Page, contestant_of},
};
use crate::{study::pictures::Verdict, tco};

/// A conclusion of theirs and what came out here.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Whose.
    pub of: &'static str,
    /// What they say.
    pub claim: &'static str,
    /// Their figure.
    pub theirs: String,
    /// Ours.
    pub ours: String,
    /// Whether it holds; none where it could not be measured.
    pub verdict: Option<Verdict>,
}

/// All of them, in the order of the page.
#[must_use]
pub fn all(held: &Held<'_>) -> Vec<Claim> {
    let mut claims = penaranda(held);
    claims.extend(warnke(held));
    claims.extend(qatzip(held));
    claims.extend(bluefield(held));
    claims.extend(ceph(held));
    claims
}

const PENARANDA: &str = "Peñaranda";
const WARNKE: &str = "Warnke";
const QATZIP: &str = "QEMU QATzip";
const BLUEFIELD: &str = "BlueField-2";
const CEPH: &str = "Ceph, drives";

fn claim(
    of: &'static str,
    claim: &'static str,
    theirs: impl Into<String>,
    ours: Option<(String, Verdict)>,
) -> Claim {
    let (ours, verdict) = match ours {
        Some((ours, verdict)) => (ours, Some(verdict)),
        None => ("not measured in this run".into(), None),
    };
    Claim {
        of,
        claim,
        theirs: theirs.into(),
        ours,
        verdict,
    }
}

fn graded(holds: bool, mostly: bool) -> Verdict {
    match (holds, mostly) {
        (true, _) => Verdict::Holds,
        (false, true) => Verdict::Mostly,
        (false, false) => Verdict::DoesNot,
    }
}

fn penaranda(held: &Held<'_>) -> Vec<Claim> {
    vec![
        claim(
            PENARANDA,
            "At 1 Gbit/s packing in chunks with Gipfeli beats sending raw; packing the whole message first does not",
            "over 1.5 ×, below 0.75 ×",
            pipelined(held),
        ),
        claim(
            PENARANDA,
            "1 or 2 threads and chunks of at most 4 KiB are best",
            "39 of 48 best settings",
            small_settings(held),
        ),
        claim(
            PENARANDA,
            "Gipfeli is the library for 1 Gbit/s, LZO for slower links, on traced data",
            "Gipfeli; LZO, LZO",
            libraries(held),
        ),
        claim(
            PENARANDA,
            "LZ4 packs counted bytes far better than the others",
            "168 × against 75 × at most",
            counted(held),
        ),
        claim(
            PENARANDA,
            "Random data lose bandwidth although chunks that grow are sent raw",
            "0.88 to 0.92 of the link",
            random(held),
        ),
        claim(
            PENARANDA,
            "Packing pays from 256 KiB at 1 Gbit/s, 32 KiB at 100, 4 KiB at 10 Mbit/s",
            "256, 32, 4 KiB",
            thresholds(held),
        ),
        claim(
            PENARANDA,
            "A short chunk costs ratio, the whole message costs time: Gipfeli, 1 KiB against 8 MB",
            "1.54 against 2.22",
            short_chunks(held),
        ),
        claim(
            PENARANDA,
            "Ours: choosing by itself, as good as the best of their settings",
            "",
            adaptive(held),
        ),
    ]
}

fn pipelined(held: &Held<'_>) -> Option<(String, Verdict)> {
    let piped =
        held.by_bandwidth(1000.0, "traced", "gipfeli")?.mbit_s / held.raw(1000.0, "traced")?;
    let naive = held.longest(1000.0, "traced", "gipfeli", "naive")?
        / held.longest(1000.0, "traced", "gipfeli", "none")?;
    Some((
        format!("{piped:.2} ×, {naive:.2} ×"),
        graded(piped > 1.4 && naive < 1.0, piped > naive),
    ))
}

fn small_settings(held: &Held<'_>) -> Option<(String, Verdict)> {
    let lines = tables::best();
    let found = |by: fn(&Held<'_>, f64, &str, &str) -> Option<super::held::Found>| {
        let all: Vec<_> = lines
            .iter()
            .filter_map(|line| by(held, line.link, line.data, tables::codec_of(line.library)))
            .collect();
        let small = all
            .iter()
            .filter(|found| found.threads <= 2 && found.chunk <= 4096)
            .count();
        (small, all.len())
    };
    let (traded, all) = found(|held, link, data, codec| held.by_trade_off(link, data, codec));
    let (fast, _) = found(|held, link, data, codec| held.by_bandwidth(link, data, codec));
    let verdict = graded(traded * 4 >= all * 3, traded * 2 > all);
    (all > 0).then(|| {
        (
            format!("{traded} of {all} by their trade-off, {fast} by bandwidth alone"),
            verdict,
        )
    })
}

fn libraries(held: &Held<'_>) -> Option<(String, Verdict)> {
    let first = |link: f64| {
        ["snappy", "gipfeli", "lz4", "lzo1x"]
            .into_iter()
            .filter_map(|codec| Some((codec, held.by_trade_off(link, "traced", codec)?.mbit_s)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
    };
    let firsts = [first(1000.0)?.0, first(100.0)?.0, first(10.0)?.0];
    let same = firsts
        .iter()
        .zip(["gipfeli", "lzo1x", "lzo1x"])
        .filter(|(ours, theirs)| *ours == theirs)
        .count();
    let text = format!("{} at 1 Gbit/s; {}, {}", firsts[0], firsts[1], firsts[2]);
    Some((text, graded(same == 3, same > 0)))
}

fn counted(held: &Held<'_>) -> Option<(String, Verdict)> {
    let lz4 = held.chunk("lineal", "lz4", 128 << 10)?.value("ratio")?;
    let lzo = held.chunk("lineal", "lzo1x", 32 << 10)?.value("ratio")?;
    Some((
        format!("{lz4:.0} × against {lzo:.0} ×"),
        graded(lz4 > 1.5 * lzo, lz4 > lzo),
    ))
}

fn random(held: &Held<'_>) -> Option<(String, Verdict)> {
    let raw = held.raw(1000.0, "random")?;
    let shares: Vec<f64> = ["snappy", "gipfeli", "lz4", "lzo1x"]
        .into_iter()
        .filter_map(|codec| Some(held.by_bandwidth(1000.0, "random", codec)?.mbit_s / raw))
        .collect();
    let least = shares.iter().copied().reduce(f64::min)?;
    let most = shares.iter().copied().reduce(f64::max)?;
    Some((
        format!("{least:.2} to {most:.2} of raw"),
        graded(most < 0.95, least < 0.95),
    ))
}

/// From which message on the pipeline is never slower than raw; none where that is never so.
#[must_use]
pub fn threshold(held: &Held<'_>, link: f64) -> Option<Option<u64>> {
    let (piped, none) = (
        held.figure(link, "traced", "gipfeli", "pipeline"),
        held.figure(link, "traced", "gipfeli", "none"),
    );
    let rate = |rows: &std::collections::BTreeMap<u64, &crate::result::Row>, len| {
        rows.get(&len)?.value("effective_mbit_s")
    };
    let lens: Vec<u64> = piped
        .keys()
        .copied()
        .filter(|len| none.contains_key(len))
        .collect();
    let pays = |len: &&u64| rate(&piped, **len) >= rate(&none, **len);
    let from = lens.iter().rev().take_while(pays).last().copied();
    (!lens.is_empty()).then_some(from)
}

fn thresholds(held: &Held<'_>) -> Option<(String, Verdict)> {
    let theirs = [(1000.0, 256 << 10), (100.0, 32 << 10), (10.0, 4 << 10)];
    let mut near = 0;
    let mut texts = Vec::new();
    for (link, there) in theirs {
        let here = threshold(held, link)?;
        let factor = here.map_or(f64::INFINITY, |here| here as f64 / f64::from(there));
        near += usize::from((0.25..=4.0).contains(&factor));
        texts.push(here.map_or_else(|| "never".into(), |here| (here >> 10).to_string()));
    }
    Some((
        format!("{} KiB", texts.join(", ")),
        graded(near == 3, near > 1),
    ))
}

fn short_chunks(held: &Held<'_>) -> Option<(String, Verdict)> {
    let (short, whole) = (
        held.chunk("traced", "gipfeli", 1 << 10)?,
        held.chunk("traced", "gipfeli", super::measure::MESSAGE)?,
    );
    let (short, whole) = (short.value("ratio")?, whole.value("ratio")?);
    Some((
        format!("{short:.2} against {whole:.2}"),
        graded(whole > 1.1 * short, whole > short),
    ))
}

fn adaptive(held: &Held<'_>) -> Option<(String, Verdict)> {
    let mut shares = Vec::new();
    for link in [1000.0, 100.0, 10.0] {
        for data in ["traced", "lineal", "random", "sparse"] {
            let best = ["snappy", "gipfeli", "lz4", "lzo1x"]
                .into_iter()
                .flat_map(|codec| {
                    ["none", "naive", "pipeline", "keep if smaller"]
                        .map(|way| held.longest(link, data, codec, way))
                })
                .flatten()
                .reduce(f64::max);
            shares.extend(
                held.longest(link, data, "", "adaptive")
                    .zip(best)
                    .map(|(ours, best)| ours / best),
            );
        }
    }
    shares.sort_by(f64::total_cmp);
    let (least, most) = (*shares.first()?, *shares.last()?);
    let text = format!(
        "{least:.2} to {most:.2} of the best in {} cells of long messages",
        shares.len()
    );
    Some((text, graded(least > 0.97, least > 0.85)))
}

/// The best of a table's codecs by a column, zBeWalgo* counted as zBeWalgo.
fn best_there(lines: &[Page], of: fn(&Page) -> f64) -> &'static str {
    let best = lines
        .iter()
        .filter(|line| line.codec != "hdd")
        .max_by(|a, b| of(a).total_cmp(&of(b)));
    best.map_or("", |line| line.codec.trim_end_matches('*'))
}

fn best_here(held: &Held<'_>, table: &str, value: &str, ours: bool) -> Option<&'static str> {
    let theirs = [
        "842",
        "lzo",
        "lz4",
        "lz4hc",
        "deflate",
        "zstd",
        "zbewalgo",
        "zbewalgo*",
    ];
    let name = |codec: &'static str| contestant_of(codec).unwrap_or(codec);
    let mut all: Vec<_> = theirs
        .into_iter()
        .filter_map(|codec| {
            Some((
                codec.trim_end_matches('*'),
                held.page(table, name(codec))?.value(value)?,
            ))
        })
        .collect();
    if ours {
        all.extend(
            super::measure::OURS
                .into_iter()
                .filter_map(|codec| Some((codec, held.page(table, codec)?.value(value)?))),
        );
    }
    all.into_iter()
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(codec, _)| codec)
}

fn warnke(held: &Held<'_>) -> Vec<Claim> {
    let pages = tables::pages();
    let of = |name: &str| {
        pages
            .iter()
            .filter(|line| line.data == name)
            .cloned()
            .collect::<Vec<_>>()
    };
    // Sets on which nothing packs have no best.
    let sets: Vec<_> = standin::WARNKE
        .iter()
        .filter(|set| of(set.name).iter().any(|line| line.ratio > 1.02))
        .collect();
    let count = |value: &'static str, there: fn(&Page) -> f64| {
        let theirs = sets
            .iter()
            .filter(|set| best_there(&of(set.name), there) == "zbewalgo")
            .count();
        let found: Vec<_> = sets
            .iter()
            .filter_map(|set| best_here(held, set.table, value, false))
            .collect();
        let here = found.iter().filter(|name| **name == "zbewalgo").count();
        let verdict = graded(here + 1 >= theirs, here * 2 >= theirs);
        let ours =
            (!found.is_empty()).then(|| (format!("{here} of {} sets", found.len()), verdict));
        (format!("{theirs} of {} sets", sets.len()), ours)
    };
    let (ratio_there, ratio) = count("ratio", |line| line.ratio);
    let (disk_there, disk) = count("effective_pack_mib_s", |line| line.effective_pack);
    vec![
        claim(
            WARNKE,
            "zBeWalgo packs best where anything packs",
            ratio_there,
            ratio,
        ),
        claim(
            WARNKE,
            "With a disk behind memory zBeWalgo writes fastest",
            disk_there,
            disk,
        ),
        claim(
            WARNKE,
            "Noise costs zBeWalgo hundreds of times what it costs LZ4",
            "2.4 against 1205 MiB/s",
            noise(held),
        ),
        claim(
            WARNKE,
            "Extended: with an SSD behind memory, a plain fast codec is best of theirs",
            "not asked there",
            fast_on_ssd(held, &sets),
        ),
        claim(
            WARNKE,
            "Ours: `ratio` packs better than all of theirs",
            "",
            ours(held, &sets, "ratio"),
        ),
        claim(
            WARNKE,
            "Ours: with their disk, one of our profiles writes fastest",
            "",
            ours(held, &sets, "effective_pack_mib_s"),
        ),
        claim(
            WARNKE,
            "Ours: with their disk, one of our profiles reads fastest",
            "",
            ours(held, &sets, "effective_unpack_mib_s"),
        ),
        claim(
            WARNKE,
            "Ours: with an SSD, one of our profiles writes fastest",
            "",
            ours(held, &sets, "effective_pack_ssd_mib_s"),
        ),
    ]
}

fn noise(held: &Held<'_>) -> Option<(String, Verdict)> {
    let pack = |codec| held.page("6.14", codec)?.value("pack_mib_s");
    let (zbewalgo, lz4, fast) = (pack("zbewalgo")?, pack("lz4")?, pack("fast")?);
    let text = format!("{zbewalgo:.1} against {lz4:.0} MiB/s; ours refuses it at {fast:.0}");
    Some((text, graded(lz4 > 100.0 * zbewalgo, lz4 > 20.0 * zbewalgo)))
}

fn fast_on_ssd(held: &Held<'_>, sets: &[&standin::Standin]) -> Option<(String, Verdict)> {
    let found: Vec<_> = sets
        .iter()
        .filter_map(|set| best_here(held, set.table, "effective_pack_ssd_mib_s", false))
        .collect();
    let fast = found
        .iter()
        .filter(|name| ["lz4", "lzo"].contains(name))
        .count();
    let all = found.len();
    (all > 0).then(|| {
        (
            format!("LZ4 or LZO on {fast} of {all} sets"),
            graded(fast * 10 >= all * 9, fast * 4 >= all * 3),
        )
    })
}

fn ours(held: &Held<'_>, sets: &[&standin::Standin], value: &str) -> Option<(String, Verdict)> {
    let found: Vec<_> = sets
        .iter()
        .filter_map(|set| best_here(held, set.table, value, true))
        .collect();
    let won = found
        .iter()
        .filter(|name| super::measure::OURS.contains(name))
        .count();
    let all = found.len();
    (all > 0).then(|| {
        (
            format!("{won} of {all} sets"),
            graded(won * 10 >= all * 9, won * 4 >= all * 3),
        )
    })
}

fn qatzip(held: &Held<'_>) -> Vec<Claim> {
    let value = |method: &str, name: &str| {
        held.last("qatzip", |case| case.device.as_deref() == Some(method))?
            .value(name)
    };
    let time = || {
        let (none, zstd, ours) = (
            value("none", "total_ms")?,
            value("zstd-1", "total_ms")?,
            value("aware", "total_ms")?,
        );
        Some((
            format!(
                "{:.2} × by zstd, {:.2} × by ours, at 1 Gbit/s",
                zstd / none,
                ours / none
            ),
            Verdict::Holds,
        ))
    };
    let cpu = || {
        let (zstd, ours) = (
            value("zstd-1", "send_cpu_percent")?,
            value("aware", "send_cpu_percent")?,
        );
        Some((
            format!(
                "no QAT here; ours {:.2} × zstd's, tunnel and all",
                ours / zstd
            ),
            graded(false, ours < zstd),
        ))
    };
    let memory = || {
        let row = held.last("qatzip memory", |case| case.threads == Some(8))?;
        let (send, recv) = (row.value("send_rss_mb")?, row.value("recv_rss_mb")?);
        Some((
            format!("{send:.0} and {recv:.0} MB: it keeps pages to refer to"),
            Verdict::DoesNot,
        ))
    };
    vec![
        claim(
            QATZIP,
            "zstd shortens a migration of Silesia over 8 channels",
            "0.44 × none, at 10 Gbit/s",
            time(),
        ),
        claim(
            QATZIP,
            "QATzip takes a fifth of zstd's processor time at the sender",
            "160 against 810 %",
            cpu(),
        ),
        claim(
            QATZIP,
            "8 channels take some 20 MB at each end",
            "16 and 20 MB of QAT memory",
            memory(),
        ),
    ]
}

fn bluefield(held: &Held<'_>) -> Vec<Claim> {
    let row = |data: &str, codec: &str| {
        held.last("bluefield", |case| {
            case.data.as_deref() == Some(data) && case.codec.as_deref() == Some(codec)
        })
    };
    let speed = || {
        let pack = |data, codec| row(data, codec)?.value("pack_s");
        let times = [
            pack("float", "deflate:6")? / pack("float", "deflate:1")?,
            pack("text", "deflate:6")? / pack("text", "deflate:1")?,
        ];
        let text = format!(
            "no card here; a vector library {:.1} × and {:.1} × the host's DEFLATE 6",
            times[0], times[1]
        );
        Some((text, Verdict::DoesNot))
    };
    let around = || {
        let overs: Vec<f64> = held
            .part("bluefield")
            .filter_map(|row| row.value("over"))
            .collect();
        let most = overs.iter().copied().reduce(f64::max)?;
        Some((
            format!("{most:.2} × at most in {} cells at 10 Gbit/s", overs.len()),
            graded(most > 1.5, most > 1.25),
        ))
    };
    vec![
        claim(
            BLUEFIELD,
            "The card packs DEFLATE 44 × on floats and 26 × on text as fast as one core of the host",
            "0.128 and 0.060 s",
            speed(),
        ),
        claim(
            BLUEFIELD,
            "There and back takes 1.74 × the slower of copying and packing",
            "0.330 against 0.190 s",
            around(),
        ),
    ]
}

fn ceph(held: &Held<'_>) -> Vec<Claim> {
    let value = |device: &str, operation: &str, name: &str| {
        let wanted = |case: &crate::result::Case| {
            case.device.as_deref() == Some(device) && case.operation.as_deref() == Some(operation)
        };
        held.last("ceph", wanted)?.value(name)
    };
    let write = || {
        let (zstd, ours) = (
            value("ceph zstd 64K", "seq write 128k", "mb_s")?,
            value("narrows fast above RBD", "seq write 128k", "mb_s")?,
        );
        Some((
            format!("no such drives; packing at the client {:.2} ×", ours / zstd),
            graded(ours / zstd >= 1.3, ours > zstd),
        ))
    };
    let ratio = || {
        let (zstd, fast) = (
            value("ceph zstd 64K", "fill", "ratio")?,
            value("narrows fast above RBD", "fill", "ratio")?,
        );
        let balanced = value("narrows balanced above RBD", "fill", "ratio")?;
        Some((
            format!("zstd {zstd:.3}; ours {fast:.2} and {balanced:.2}"),
            graded((zstd - 2.285).abs() < 0.01, false),
        ))
    };
    let cost = || {
        let costs = tco::costs(&tco::Inputs::deck()).ok()?;
        let saved = costs.get(1)?.saving(costs.first()?);
        let text = format!(
            "{:+.0} % a server, {:+.0} % a GB/s, {:+.0} % a TB",
            -100.0 * saved.per_server,
            -100.0 * saved.per_gb_per_s,
            -100.0 * saved.per_tb
        );
        Some((text, Verdict::Mostly))
    };
    vec![
        claim(
            CEPH,
            "Packing elsewhere than in Ceph writes faster than Ceph's zstd",
            "1.32 × by the drives",
            write(),
        ),
        claim(
            CEPH,
            "Ceph's zstd stores 2.285 to 1, the drives 2 to 1",
            "2.285 and 2",
            ratio(),
        ),
        claim(
            CEPH,
            "It saves money: 9 % a server, 31 % a GB/s",
            "-9 %, -31 %",
            cost(),
        ),
    ]
}
