//! Conclusions of Peñaranda et al. 2024 on a pipeline for remote GPUs.

use narrows_core::units::Size;

use super::{Claim, PENARANDA, claim, graded};
use crate::{
    published::{held::Held, tables},
    study::pictures::Verdict,
};

pub(super) fn penaranda(held: &Held<'_>) -> Vec<Claim> {
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
    let found = |by: fn(&Held<'_>, f64, &str, &str) -> Option<crate::published::held::Found>| {
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
        texts.push(here.map_or_else(|| "never".into(), |here| Size(here).to_string()));
    }
    Some((texts.join(", "), graded(near == 3, near > 1)))
}

fn short_chunks(held: &Held<'_>) -> Option<(String, Verdict)> {
    let (short, whole) = (
        held.chunk("traced", "gipfeli", 1 << 10)?,
        held.chunk("traced", "gipfeli", crate::published::measure::MESSAGE)?,
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
