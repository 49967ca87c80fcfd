//! `narrows bench` and `narrows report`.

use std::fs;

use crate::{browser, narrows, schema, told};

// Goal: one run's results on every way out, the same numbers on each, all of the schema.
#[test]
fn bench_measures_and_its_lines_obey_the_schema() {
    let dir = tempfile::tempdir().unwrap();
    let words = [
        "bench",
        "--codec",
        "lz4,zstd:1..2",
        "--chunk",
        "4K,64K",
        "-T",
        "1,2",
        "--seconds",
        "0.001",
        "--size",
        "1M",
    ];
    let out = told(
        &[
            &words[..],
            &["--json", "--results", "r.jsonl", "--report", "r.html"],
        ]
        .concat(),
        dir.path(),
    );
    schema::check(&out);
    assert_eq!(fs::read_to_string(dir.path().join("r.jsonl")).unwrap(), out);
    let lines: Vec<serde_json::Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 1 + 3 * 2 * 2);
    let rows = || lines.iter().filter_map(|line| line.get("row"));
    for row in rows() {
        let value = |name: &str| {
            row["values"][name]
                .as_f64()
                .unwrap_or_else(|| panic!("{name} of {row}"))
        };
        assert!(
            value("ratio") > 1.2 && value("ratio_4k") <= value("ratio"),
            "{row}"
        );
        assert!(
            value("pack_mb_s") > 0.0 && value("unpack_cpu_s_per_gb") > 0.0,
            "{row}"
        );
        assert_eq!(row["case"]["data_bytes"], 1 << 20);
        // Contexts of zstd are hundreds of KiB, those of two threads twice that.
        assert!((1e4..1e8).contains(&value("memory_bytes")), "{row}");
    }
    for threads in [1, 2] {
        let of = |row: &&serde_json::Value| row["case"]["threads"] == threads;
        let best = |name: &str| {
            rows()
                .filter(of)
                .map(|row| row["values"][name].as_f64().unwrap())
                .fold(0.0, f64::max)
        };
        for (number, mark) in [
            ("ratio", "pareto_pack"),
            ("pack_mb_s", "pareto_pack"),
            ("unpack_mb_s", "pareto_unpack"),
        ] {
            let top = rows()
                .filter(of)
                .find(|row| row["values"][number] == best(number))
                .unwrap();
            assert!(
                top["marks"]
                    .as_array()
                    .is_some_and(|marks| marks.contains(&mark.into())),
                "{number}: {top}"
            );
        }
    }
    // The same file, read again by the other command, makes the same pictures.
    told(&["report", "r.jsonl", "-o", "again.html"], dir.path());
    let page = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    assert!(page("r.html") == page("again.html"), "the pages differ");
    browser::look_at(&dir.path().join("again.html"), 4);
    browser::look_for_room(&dir.path().join("again.html"));
}

#[test]
fn bench_prints_a_table_for_each_file() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        fs::write(
            dir.path().join(name),
            format!("{name} of the things that a user has\n").repeat(3000),
        )
        .unwrap();
    }
    let table = told(
        &[
            "bench",
            "codecs",
            "one",
            "two",
            "--each",
            "--codec",
            "snappy",
            "--chunk",
            "16K",
            "-T1",
            "--seconds",
            "0.001",
        ],
        dir.path(),
    );
    assert!(
        table.contains("one, ") && table.contains("two, "),
        "{table}"
    );
    assert_eq!(table.matches("snappy").count(), 2, "{table}");
}

#[test]
fn wrong_usage_is_2_and_damaged_results_are_1() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("broken.jsonl"), "{}\n{}\n").unwrap();
    for (words, code, said) in [
        (&["bench", "--codec", "zsdt"][..], 2, "narrows codecs"),
        (&["bench", "--codec", "zstd:99"], 2, "levels"),
        (&["bench", "--chunk", "0"], 2, "at least"),
        (
            &["bench", "--report", "/nowhere/at/all.html"],
            2,
            "--report",
        ),
        (&["bench", "--report", "-"], 2, "/dev/stdout"),
        (&["bench", "not-here"], 1, "not-here"),
        (&["report", "broken.jsonl"], 1, "line 1"),
        (&["report", "not-here"], 1, "not-here"),
    ] {
        let out = narrows(words, dir.path());
        let text = String::from_utf8_lossy(&out.stderr);
        assert!(
            out.status.code() == Some(code) && text.contains(said),
            "{words:?}: {out:?}"
        );
    }
}
