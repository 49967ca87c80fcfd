//! `narrows study`.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use crate::{browser, narrows, schema, told};

// Goal: a study that is cut goes on, shards merge, nothing is measured twice. Method: two shards of some seconds into one
// file each, the first one in two turns, then one report of both.
#[test]
fn a_cut_study_goes_on_and_shards_merge() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("buffers"), narrows_lab::sample::unpack()).unwrap();
    let words = ["study", "--quick", "--traced", "buffers", "--report", "s.html"];
    let part = |shard: &str, file: &str, minutes: &str| {
        told(&[&words[..], &["--shard", shard, "--results", file, "--minutes", minutes]].concat(), dir.path())
    };
    part("0/2", "0.jsonl", "0.03");
    let said = part("0/2", "0.jsonl", "0.07");
    assert!(said.contains("known already") && !said.contains(" 0 known"), "{said}");
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
    let first = read("0.jsonl").lines().filter(|line| line.contains("\"row\"")).count();
    assert!(cases.len() == first && first > 10 && rows.len() > first, "{} of {first}", cases.len());
    told(&["report", "0.jsonl", "1.jsonl", "-o", "both.html"], dir.path());
    let page = fs::read_to_string(dir.path().join("both.html")).unwrap();
    for said in ["Findings", "Figures 6 to 8", "Figures 9 to 15", "Best settings at"] {
        assert!(page.contains(said), "{said}");
    }
    browser::look_at_any(&dir.path().join("both.html"));
}

#[test]
fn wrong_usage_is_told() {
    let dir = tempfile::tempdir().unwrap();
    for words in
        [&["study", "--shard", "4/4"][..], &["study", "--shard", "x"], &["study", "--report", "/nowhere/x.html"]]
    {
        assert_eq!(narrows(words, dir.path()).status.code(), Some(2), "{words:?}");
    }
    fs::write(dir.path().join("r"), "{}\n{}\n").unwrap();
    assert_eq!(narrows(&["study", "--quick", "--minutes", "0", "--results", "r"], dir.path()).status.code(), Some(1));
}
