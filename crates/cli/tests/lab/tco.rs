//! `narrows tco`.

use std::fs;

use serde_json::Value;

use crate::{browser, narrows, told};

// Goal: what the README and the docs say of it, from the command itself.
#[test]
fn tco_reproduces_the_deck_and_says_what_it_leaves_out() {
    let dir = tempfile::tempdir().unwrap();
    let text = told(&["tco"], dir.path());
    for said in [
        "9.1 % less a server",
        "31.0 % less a GB/s",
        "more a terabyte",
        "assumptions",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    told(&["tco", "--html", "tco.html", "--json"], dir.path());
    browser::look_at(&dir.path().join("tco.html"), 3);
    let document: Value = serde_json::from_str(&told(&["tco", "--json"], dir.path())).unwrap();
    assert_eq!(document["schema"], "narrows.tco/1");
    let saving = &document["designs"][1]["saving"];
    assert!(
        (saving["per_server"].as_f64().unwrap() - 0.09).abs() < 0.01,
        "{saving}"
    );
    assert!(
        (saving["per_gb_per_s"].as_f64().unwrap() - 0.31).abs() < 0.01,
        "{saving}"
    );
    assert!(
        document["designs"][1]["sensitivity"]
            .as_array()
            .unwrap()
            .len()
            > 20
    );
}

#[test]
fn inputs_can_be_printed_changed_and_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let printed = told(&["tco", "--print-inputs"], dir.path());
    fs::write(
        dir.path().join("mine.toml"),
        printed.replace("utilisation = { value = 0.8", "utilisation = { value = 0.4"),
    )
    .unwrap();
    let of = |words: &[&str]| -> Value { serde_json::from_str(&told(words, dir.path())).unwrap() };
    let tb = |document: &Value| {
        document["designs"][0]["cost"]["effective_tb"]
            .as_f64()
            .unwrap()
    };
    let (mine, set) = (
        of(&["tco", "--inputs", "mine.toml", "--json"]),
        of(&["tco", "--set", "utilisation=0.4", "--json"]),
    );
    assert_eq!(
        (tb(&mine), tb(&mine)),
        (tb(&of(&["tco", "--json"])) / 2.0, tb(&set))
    );
    let link = told(&["tco", "link", "--set", "link.ratio=2"], dir.path());
    assert!(link.contains("4500") && link.contains("saves"), "{link}");
}

// Goal: own measurements are a design. Method: measure, then reckon with them.
#[test]
fn own_results_become_a_design() {
    let dir = tempfile::tempdir().unwrap();
    let bench = [
        "bench",
        "--codec",
        "zstd:1",
        "--chunk",
        "64K",
        "-T1",
        "--seconds",
        "0",
        "--size",
        "1M",
        "--results",
        "r.jsonl",
    ];
    told(&bench, dir.path());
    let text = told(
        &["tco", "--results", "r.jsonl", "--codec", "zstd:1"],
        dir.path(),
    );
    assert!(text.contains("measured zstd:1"), "{text}");
    for (words, said) in [
        (
            &["tco", "--results", "r.jsonl", "--codec", "lz4"][..],
            "no results",
        ),
        (&["tco", "--set", "years=0"], "above 0"),
        (&["tco", "--set", "years"], "NAME=VALUE"),
        (&["tco", "--set", "colour=1"], "colour"),
        (&["tco", "--inputs", "r.jsonl"], "r.jsonl"),
    ] {
        let out = narrows(words, dir.path());
        let told = String::from_utf8_lossy(&out.stderr);
        assert!(
            out.status.code() == Some(2) && told.contains(said),
            "{words:?}: {told}"
        );
    }
}
