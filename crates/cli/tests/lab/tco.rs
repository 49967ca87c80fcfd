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
    browser::look_for_room(&dir.path().join("tco.html"));
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
        "0.001",
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

// Goal: a measured comparison on Ceph becomes designs, with the published claim beside. Method: rows as the harness writes them.
#[test]
fn a_measured_comparison_is_reckoned_and_the_published_stands_beside() {
    let dir = tempfile::tempdir().unwrap();
    let mut text = String::from(ORIGIN);
    for (device, ratio, server) in [
        ("ceph none", 1.0, 4.0),
        ("ceph zstd 64K", 2.285, 8.0),
        ("narrows fast above RBD", 2.39, 2.0),
    ] {
        for (operation, values) in [
            ("fill", format!(r#"{{"ratio": {ratio}}}"#)),
            (
                "seq write 128k",
                format!(
                    r#"{{"app_gb_s": 0.4, "server_cpu_s_per_gb": {server}, "client_cpu_s_per_gb": 1}}"#
                ),
            ),
        ] {
            text.push_str(&format!(
                r#"{{"schema": "narrows.result/1", "run": "0123456789abcdef", "row": {{"case": {{"part": "deck", "device": "{device}", "operation": "{operation}"}}, "values": {values}}}}}"#
            ));
            text.push('\n');
        }
    }
    crate::schema::check(&text);
    fs::write(dir.path().join("r.jsonl"), &text).unwrap();
    let told_of = told(&["tco", "--from", "r.jsonl"], dir.path());
    for said in ["narrows fast above RBD", "31.0 % less a GB/s", "Published"] {
        assert!(told_of.contains(said), "{said}: {told_of}");
    }
    let lines = text.lines().filter(|line| !line.contains("64K"));
    fs::write(
        dir.path().join("r.jsonl"),
        lines.collect::<Vec<_>>().join("\n"),
    )
    .unwrap();
    let out = narrows(&["tco", "--from", "r.jsonl"], dir.path());
    let told_of = String::from_utf8_lossy(&out.stderr);
    assert!(
        out.status.code() == Some(2) && told_of.contains("64K"),
        "{told_of}"
    );
}

const ORIGIN: &str = r#"{"schema": "narrows.result/1", "run": "0123456789abcdef", "origin": {"tool": "disk", "started": "2026-11-28T06:00:00Z", "command": "bench/disk/run.py --deck", "machine": {"cpu": "x", "cores": 2, "memory_bytes": null, "kernel": "6", "system": null, "arch": "x86_64", "load": null, "version": "0", "commit": "?", "build": "release"}, "seeds": [], "energy": "not measured"}}
"#;
