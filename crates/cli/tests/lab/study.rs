//! `narrows study`.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use crate::{browser, narrows, schema, told};

// Goal: a study that is cut goes on, shards merge, nothing is measured twice. Method: two shards of some seconds into
// one file each, the first one in two turns, then one report of both.
#[test]
fn a_cut_study_goes_on_and_shards_merge() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("buffers"), narrows_lab::sample::unpack()).unwrap();
    let words = [
        "study", "--quick", "--traced", "buffers", "--report", "s.html",
    ];
    let part = |shard: &str, file: &str, minutes: &str| {
        told(
            &[
                &words[..],
                &["--shard", shard, "--results", file, "--minutes", minutes],
            ]
            .concat(),
            dir.path(),
        )
    };
    part("0/2", "0.jsonl", "0.03");
    let said = part("0/2", "0.jsonl", "0.07");
    assert!(
        said.contains("known already") && !said.contains(" 0 known"),
        "{said}"
    );
    part("1/2", "1.jsonl", "0.03");
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    let all = read("0.jsonl") + &read("1.jsonl");
    schema::check(&all);
    let rows: Vec<Value> = all
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["row"].clone())
        .filter(Value::is_object)
        .collect();
    let cases: BTreeSet<String> = read("0.jsonl")
        .lines()
        .filter_map(|line| {
            let value: Value = serde_json::from_str(line).unwrap();
            value.get("row").map(|row| row["case"].to_string())
        })
        .collect();
    let first = read("0.jsonl")
        .lines()
        .filter(|line| line.contains("\"row\""))
        .count();
    assert!(
        cases.len() == first && first > 10 && rows.len() > first,
        "{} of {first}",
        cases.len()
    );
    told(
        &["report", "0.jsonl", "1.jsonl", "-o", "both.html"],
        dir.path(),
    );
    let page = fs::read_to_string(dir.path().join("both.html")).unwrap();
    for said in [
        "Findings",
        "Figures 6 to 8",
        "Figures 9 to 15",
        "Best settings at",
    ] {
        assert!(page.contains(said), "{said}");
    }
    browser::look_at_any(&dir.path().join("both.html"));
}

// Goal: the same grid over the GPU path, whose rows no stream's rows are taken for. Method: some seconds of each into one
// file, then its report.
#[test]
fn copies_to_a_gpu_are_studied_beside_streams() {
    let dir = tempfile::tempdir().unwrap();
    let words = [
        "study",
        "--quick",
        "--results",
        "r.jsonl",
        "--report",
        "r.html",
    ];
    let part = |more: &[&str]| told(&[&words[..], more].concat(), dir.path());
    let said = part(&["--minutes", "0.02"]);
    assert!(said.contains(" 0 known already"), "{said}");
    let read = || fs::read_to_string(dir.path().join("r.jsonl")).unwrap();
    let streams = read()
        .lines()
        .filter(|line| line.contains("\"row\""))
        .count();
    part(&["--minutes", "0.05", "--gpu"]);
    let lines = read();
    schema::check(&lines);
    let rows: Vec<Value> = lines
        .lines()
        .filter_map(|line| {
            serde_json::from_str::<Value>(line)
                .unwrap()
                .get("row")
                .cloned()
        })
        .collect();
    let copies: Vec<&Value> = rows
        .iter()
        .filter(|row| row["case"]["operation"] == "host_to_device")
        .collect();
    assert!(copies.len() > 1 && rows.len() == streams + copies.len());
    // The first case of all: bytes that take the link 60 ms, raw.
    let raw = &copies[0]["values"];
    let rate = raw["effective_mbit_s"].as_f64().unwrap();
    assert!((1.0..20.0).contains(&rate), "{rate}");
    assert!(raw["wire_bytes"].as_f64().unwrap() > 60_000.0);
    let page = fs::read_to_string(dir.path().join("r.html")).unwrap();
    assert!(page.contains("Copies to a GPU: Best settings at 10 Mbit/s"));
}

// Goal: rows of other data are not taken for known. Method: a file of each, and only the same arguments go on with it.
#[test]
fn a_study_of_other_data_is_not_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    for (name, byte) in [("zeros", 0), ("ones", 1)] {
        fs::write(dir.path().join(name), vec![byte; 1 << 16]).unwrap();
    }
    let study = |seed: &str, traced: &[&str], file: &str| {
        let words = [
            "study",
            "--quick",
            "--minutes",
            "0",
            "--seed",
            seed,
            "--results",
            file,
        ];
        narrows(&[&words[..], traced].concat(), dir.path())
    };
    let (zeros, ones) = (["--traced", "zeros"], ["--traced", "ones"]);
    for (traced, file) in [(&[][..], "generated"), (&zeros, "traced")] {
        assert_eq!(study("1", traced, file).status.code(), Some(0));
        assert_eq!(
            study("1", traced, file).status.code(),
            Some(0),
            "the same goes on"
        );
        let lines = fs::read_to_string(dir.path().join(file)).unwrap();
        schema::check(&lines);
        for (seed, other) in [
            ("2", traced),
            ("1", if file == "traced" { &[] } else { &zeros }),
            ("1", &ones),
        ] {
            let out = study(seed, other, file);
            let said = String::from_utf8_lossy(&out.stderr);
            assert!(
                out.status.code() == Some(2) && said.contains("other data"),
                "{file} {seed} {other:?}: {out:?}"
            );
        }
        assert_eq!(
            fs::read_to_string(dir.path().join(file)).unwrap(),
            lines,
            "it is left as it was"
        );
    }
}

#[test]
fn wrong_usage_is_told() {
    let dir = tempfile::tempdir().unwrap();
    for words in [
        &["study", "--shard", "4/4"][..],
        &["study", "--shard", "x"],
        &["study", "--report", "/nowhere/x.html"],
    ] {
        assert_eq!(
            narrows(words, dir.path()).status.code(),
            Some(2),
            "{words:?}"
        );
    }
    fs::write(dir.path().join("r"), "{}\n{}\n").unwrap();
    assert_eq!(
        narrows(
            &["study", "--quick", "--minutes", "0", "--results", "r"],
            dir.path()
        )
        .status
        .code(),
        Some(1)
    );
}
