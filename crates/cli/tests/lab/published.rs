//! `narrows study --published`.

use std::{fs, path::Path};

use crate::{browser, narrows, schema, told};

const TABLES: [&str; 10] = [
    "Table 2",
    "Table 3",
    "Table 4",
    "Table A1",
    "Table A2",
    "Table A3",
    "Figures 8 to 15",
    "QATzip",
    "BlueField-2",
    "Ceph",
];

fn results() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results")
}

fn has_every_table(page: &str) {
    for table in TABLES {
        assert!(page.contains(&format!("<h2>{table}")), "{table}");
    }
    for number in 1..=14 {
        assert!(
            page.contains(&format!("<h2>Table 6.{number}:")),
            "Table 6.{number}"
        );
    }
    assert!(page.contains("<h2>Findings"));
}

// Goal: the committed rows give the committed page of Markdown, and a page with every published table that a browser draws.
// Method: `report` on the committed rows; nothing is measured.
#[test]
fn the_committed_rows_make_the_committed_pages() {
    let dir = tempfile::tempdir().unwrap();
    let rows = results().join("published.jsonl");
    schema::check(&fs::read_to_string(&rows).unwrap());
    told(
        &[
            "report",
            rows.to_str().unwrap(),
            "-o",
            "p.html",
            "--markdown",
            "p.md",
        ],
        dir.path(),
    );
    let page = fs::read_to_string(dir.path().join("p.html")).unwrap();
    has_every_table(&page);
    let made = fs::read_to_string(dir.path().join("p.md")).unwrap();
    let committed = fs::read_to_string(results().join("published.md")).unwrap();
    assert!(
        made == committed,
        "docs/results/published.md is not what its rows make: narrows report docs/results/published.jsonl --markdown docs/results/published.md"
    );
    browser::look_at_any(&dir.path().join("p.html"));
}

// Goal: one command measures and makes the page, and goes on where it was cut. Method: seconds of it, twice.
#[test]
fn a_short_run_measures_pages_chunks_and_transfers() {
    let dir = tempfile::tempdir().unwrap();
    let rows = results();
    let words = [
        "study",
        "--published",
        "--quick",
        "--minutes",
        "0.02",
        "--rows",
        rows.to_str().unwrap(),
        "--markdown",
        "p.md",
    ];
    let said = told(&words, dir.path());
    assert!(
        said.contains("Warnke: zBeWalgo packs best") && said.contains("transfers measured"),
        "{said}"
    );
    let lines = fs::read_to_string(dir.path().join("narrows-published.jsonl")).unwrap();
    schema::check(&lines);
    for part in [
        "\"part\":\"6.14\"",
        "\"part\":\"chunk\"",
        "\"part\":\"raw\"",
        "\"part\":\"ceph\"",
        "\"part\":\"qatzip\"",
    ] {
        assert!(lines.contains(part), "{part}");
    }
    has_every_table(&fs::read_to_string(dir.path().join("narrows-published.html")).unwrap());
    let out = narrows(&["study", "--published", "--data", "nothing=x"], dir.path());
    assert_eq!(out.status.code(), Some(2), "{out:?}");
}
