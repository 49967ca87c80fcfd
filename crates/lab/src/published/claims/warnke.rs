//! Conclusions of Warnke 2018 on codecs for pages of memory.

use super::{Claim, WARNKE, claim, graded};
use crate::{
    published::{
        held::Held,
        standin,
        tables::{self, Page, contestant_of},
    },
    study::pictures::Verdict,
};

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
            crate::published::measure::OURS
                .into_iter()
                .filter_map(|codec| Some((codec, held.page(table, codec)?.value(value)?))),
        );
    }
    all.into_iter()
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(codec, _)| codec)
}

pub(super) fn warnke(held: &Held<'_>) -> Vec<Claim> {
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
        .filter(|name| crate::published::measure::OURS.contains(name))
        .count();
    let all = found.len();
    (all > 0).then(|| {
        (
            format!("{won} of {all} sets"),
            graded(won * 10 >= all * 9, won * 4 >= all * 3),
        )
    })
}
