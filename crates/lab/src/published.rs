//! `narrows study --published`: every published table of the five systems that this project takes up, beside ours.
//!
//! Their figures are data (`crates/lab/published/*.tsv`). Ours are rows of `narrows.result/1`: measured now where what is
//! linked in can measure them (pages and chunks here, transfers by [`study`](crate::study)), read from `docs/results` where
//! they need QEMU, Ceph or root. The page is made of rows alone, so a committed file of rows gives the page again.
//!
//! | module | holds |
//! |---|---|
//! | [`tables`] | the published figures |
//! | [`standin`] | data as there, or of the kind |
//! | [`measure`] | pages under codecs, chunks under libraries |
//! | [`committed`] | rows of `docs/results` |
//! | [`held`] | looks rows up |
//! | [`claims`] | their conclusions, and whether they hold here |
//! | [`transfers`], [`memory`], [`elsewhere`] | sections of the page |
//! | [`cells`] | cells of tables |

pub mod cells;
pub mod claims;
pub mod committed;
pub mod elsewhere;
pub mod held;
pub mod measure;
pub mod memory;
pub mod standin;
pub mod tables;
pub mod transfers;

use std::fmt::Write;

use self::{claims::Claim, held::Held};
use crate::{
    data::Data,
    race::DataPath,
    report::{Block, Cell, Mark, Section, Table},
    result::{Row, Run},
    sample,
    study::{
        Grid,
        pictures::{self, Verdict},
    },
};

/// Name of the tool in results.
pub const TOOL: &str = "published";

/// Whether any of these runs is one of the published tables.
#[must_use]
pub fn is_in(runs: &[Run]) -> bool {
    runs.iter().any(|run| run.origin.tool == TOOL)
}

/// Peñaranda's kinds of data, each `len` bytes: the three that can be made as there, and the sample for traced data unless
/// others are given.
#[must_use]
pub fn data(len: usize, traced: Option<Vec<u8>>) -> Vec<(String, Vec<u8>)> {
    let traced = traced.unwrap_or_else(|| {
        let sample = sample::unpack();
        sample
            .iter()
            .copied()
            .cycle()
            .take(len.max(sample.len()))
            .collect()
    });
    vec![
        ("lineal".into(), standin::lineal(len)),
        ("random".into(), standin::random(len)),
        ("sparse".into(), standin::sparse(len)),
        ("traced".into(), traced),
    ]
}

/// The same as a [`study`](crate::study) takes it.
#[must_use]
pub fn as_study(data: Vec<(String, Vec<u8>)>) -> Vec<(String, Data)> {
    let named = |(name, bytes): (String, Vec<u8>)| {
        let data = Data::of(&name, bytes);
        (name, data)
    };
    data.into_iter().map(named).collect()
}

/// What is swept: the published grid, Peñaranda's Table 1; `quick` has its ends and middles.
#[must_use]
pub fn grid(quick: bool) -> Grid {
    let chunks = vec![512, 1 << 10, 2 << 10, 4 << 10, 32 << 10, 128 << 10];
    if quick {
        return Grid {
            chunks,
            messages: vec![4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20],
            full: vec![("gipfeli".into(), "traced".into())],
            ..Grid::quick()
        };
    }
    let mut messages: Vec<u64> = (12..=26).step_by(2).map(|power| 1 << power).collect();
    messages.push(32 << 10);
    messages.sort_unstable();
    Grid {
        chunks,
        messages,
        ..Grid::full()
    }
}

/// The page.
#[must_use]
pub fn sections(runs: &[Run]) -> Vec<Section> {
    let rows = runs
        .iter()
        .filter(|run| [TOOL, "study"].contains(&run.origin.tool.as_str()))
        .flat_map(|run| &run.rows);
    let held = Held::new(rows);
    let mut sections = vec![findings(&claims::all(&held))];
    sections.extend(transfers::sections(&held));
    sections.extend(memory::sections(&held));
    sections.extend(elsewhere::sections(&held));
    sections
}

/// The conclusions of these runs.
#[must_use]
pub fn conclusions(runs: &[Run]) -> Vec<Claim> {
    claims::all(&Held::new(runs.iter().flat_map(|run| &run.rows)))
}

/// How many conclusions hold.
#[must_use]
pub fn summary(runs: &[Run]) -> String {
    let claims = conclusions(runs);
    let count = |wanted: Option<Verdict>| {
        let held = claims.iter().filter(|claim| claim.verdict == wanted);
        held.count()
    };
    let busy = runs
        .iter()
        .flat_map(|run| &run.rows)
        .any(|row| row.marks.contains("ratios_only"));
    let left_out = if busy {
        " Speeds were left out where the machine was busy."
    } else {
        ""
    };
    let path = match Held::new(runs.iter().flat_map(|run| &run.rows)).path() {
        DataPath::Stream => "",
        DataPath::Gpu => " Transfers are copies to the memory of a GPU elsewhere, as there.",
    };
    format!(
        "Of {} conclusions, {} hold here, {} hold in part and {} do not; {} were not measured.{path}{left_out} \
         The study's messages are of at most 64 MiB, one at a time, where adaptive has little time to learn; wire.md measures long transfers.",
        claims.len(),
        count(Some(Verdict::Holds)),
        count(Some(Verdict::Mostly)),
        count(Some(Verdict::DoesNot)),
        count(None)
    )
}

/// A verdict in words.
#[must_use]
pub fn said(verdict: Option<Verdict>) -> &'static str {
    match verdict {
        Some(Verdict::Holds) => "holds",
        Some(Verdict::Mostly) => "partly",
        Some(Verdict::DoesNot) => "does not hold",
        None => "not measured",
    }
}

fn findings(claims: &[Claim]) -> Section {
    let rows = claims.iter().map(|claim| {
        let mark = match claim.verdict {
            Some(Verdict::Holds) => Mark::Best,
            Some(Verdict::DoesNot) => Mark::Loss,
            _ => Mark::Plain,
        };
        vec![
            Cell::marked(claim.of.into(), Mark::Name),
            Cell::marked(said(claim.verdict).into(), mark),
            claim.claim.to_string().into(),
            claim.theirs.clone().into(),
            claim.ours.clone().into(),
        ]
    });
    let table = Table {
        caption: String::new(),
        columns: cells::columns(&[
            ("", false),
            ("here it", false),
            ("what they say, or we", false),
            ("theirs", false),
            ("ours", false),
        ]),
        rows: rows.collect(),
    };
    Section {
        heading: "Findings".into(),
        blocks: vec![Block::Table(table)],
    }
}

/// `docs/results/published.md`: its first paragraph and table, made of rows.
#[must_use]
pub fn markdown(runs: &[Run]) -> String {
    let claims = conclusions(runs);
    let cpus: std::collections::BTreeSet<&str> = runs
        .iter()
        .map(|run| run.origin.machine.cpu.as_str())
        .collect();
    let mut text = format!(
        "# The published tables beside ours\n\n{} `narrows study --published` measures it and makes one offline page with every table, \
         theirs and ours side by side.\n\n| whose | conclusion | theirs | here | |\n|---|---|---|---|---|\n",
        summary(runs)
    );
    for claim in &claims {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            claim.of,
            claim.claim,
            claim.theirs,
            claim.ours,
            said(claim.verdict)
        );
    }
    let rows = runs.iter().flat_map(|run| &run.rows);
    let rows: Vec<&Row> = rows.filter(|row| row.fault.is_none()).collect();
    let findings = pictures::findings(&rows);
    if !findings.is_empty() {
        text.push_str(
            "\n## The pipeline's study in its own words\n\n| Peñaranda et al. | here | |\n|---|---|---|\n",
        );
    }
    for finding in &findings {
        let verdict = said(Some(finding.holds));
        let _ = writeln!(text, "| {} | {} | {verdict} |", finding.paper, finding.ours);
    }
    let _ = write!(
        text,
        "\n{}",
        TEXT.replace(
            "{machine}",
            &cpus.into_iter().collect::<Vec<_>>().join(", ")
        )
    );
    text
}

const TEXT: &str = include_str!("../published/page.md");

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a page without rows still has every published table. Method: no runs at all.
    #[test]
    fn every_table_is_there_before_anything_is_measured() {
        let sections = sections(&[]);
        let headings: Vec<_> = sections
            .iter()
            .map(|section| section.heading.as_str())
            .collect();
        for table in [
            "Table 2",
            "Table 3",
            "Table 4",
            "Table A1",
            "Table A2",
            "Table A3",
            "QATzip",
            "BlueField",
            "Ceph",
            "Energy",
        ] {
            assert!(
                headings.iter().any(|heading| heading.starts_with(table)),
                "{table}: {headings:?}"
            );
        }
        for number in 1..=14 {
            let table = format!("Table 6.{number}:");
            assert!(
                headings.iter().any(|heading| heading.starts_with(&table)),
                "{table}"
            );
        }
        assert!(
            conclusions(&[])
                .iter()
                .filter(|claim| claim.verdict.is_none())
                .count()
                > 15
        );
    }
}
