//! `narrows try`, `gen` and `bench` as the README has them, on sizes that take seconds; and the report in a real
//! browser.

mod browser;

use std::{
    fs,
    io::Read,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
};

use serde_json::Value;

#[test]
fn gen_writes_what_the_specification_says() {
    let out = narrows(&["gen", "lineal", "10"], Path::new("."));
    assert_eq!(out.stdout, [0, 0, 0, 0, 1, 0, 0, 0, 2, 0]);
    let dir = tempfile::tempdir().unwrap();
    let to_file = narrows(
        &["gen", "sparse", "64K", "--seed", "7", "-o", "sparse"],
        dir.path(),
    );
    assert!(to_file.status.success() && to_file.stdout.is_empty());
    let piped = narrows(&["gen", "sparse", "64K", "--seed", "7"], dir.path());
    assert_eq!(fs::read(dir.path().join("sparse")).unwrap(), piped.stdout);
    let dash = narrows(
        &["gen", "sparse", "64K", "--seed", "7", "-o", "-"],
        dir.path(),
    );
    assert_eq!(dash.stdout, piped.stdout);
}

#[test]
fn gen_ends_quietly_when_its_reader_goes() {
    let mut child = program(&["gen", "random", "1G"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdout
        .take()
        .unwrap()
        .read_exact(&mut [0; 100])
        .unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
}

#[test]
fn wrong_usage_is_2_and_says_what_there_is() {
    for (words, said) in [
        (&["gen", "linear", "1K"][..], "lineal"),
        (&["try", "--link", "fast"], "100mbit"),
        (&["try", "--race", "zsdt:3"], "narrows codecs"),
        (&["try", "--report", "/nowhere/at/all.html"], "--report"),
        (&["bench", "pages"], "FILES"),
        (
            &["bench", "pages", "noise:1", "--codec", "chain:dk8-nothing"],
            "nothing",
        ),
        (&["bench", "pages", "noise:1", "--backing", "0"], "speed"),
        (&["bench", "pages", "--paper", "mars=x"], "isabel-tc"),
    ] {
        let out = narrows(words, Path::new("."));
        let text = String::from_utf8_lossy(&out.stderr);
        assert!(
            out.status.code() == Some(2) && text.contains(said),
            "{words:?}: {text}"
        );
    }
}

#[test]
fn a_file_that_is_not_there_is_1() {
    let out = narrows(&["try", "not-here", "--no-report"], Path::new("."));
    assert_eq!(out.status.code(), Some(1), "{out:?}");
}

#[test]
fn pages_are_measured_and_summed() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("zeros-and-text"),
        [vec![0; 8192], b"pages ".repeat(2000)].concat(),
    )
    .unwrap();
    let words = [
        "bench",
        "pages",
        "zeros-and-text",
        "hpcg:8:2",
        "--repeat",
        "1",
        "--pages",
        "16",
        "--json",
    ];
    let out = narrows(&words, dir.path());
    let document: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{out:?}"));
    assert_eq!(document["schema"], "narrows.pages/1");
    let sets = document["sets"].as_array().unwrap();
    assert_eq!(
        (sets.len(), &sets[0]["pages"], &sets[0]["same_filled"]),
        (3, &Value::from(2), &Value::from(2))
    );
    for set in sets {
        for result in set["results"].as_array().unwrap() {
            let number = |field: &str| result[field].as_f64().unwrap();
            assert!(
                number("ratio") > 1.0 && number("pack_mb_s") > 0.0,
                "{result}"
            );
            let effective = result["effective_mb_s"].as_array().unwrap();
            assert!(
                effective.len() == 1 && effective[0].as_f64().unwrap() > 0.0,
                "{result}"
            );
        }
    }
    let names: Vec<_> = sets[2]["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| result["name"].as_str())
        .collect();
    assert!(
        ["842", "zbewalgo", "ratio"]
            .iter()
            .all(|name| names.contains(&Some(name))),
        "{names:?}"
    );
}

#[test]
fn discard_says_length_and_hash_of_a_stream() {
    let dir = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}", dir.path().join("socket").display());
    let mut recv = program(&["recv", "--discard", "--json", "--listen", &socket]);
    let recv = recv
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !dir.path().join("socket").exists() {
        thread::yield_now();
    }
    fs::write(dir.path().join("data"), vec![0; 100]).unwrap();
    let input = fs::File::open(dir.path().join("data")).unwrap();
    let sent = program(&["send", "-", &socket])
        .stdin(input)
        .output()
        .unwrap();
    assert!(sent.status.success(), "{sent:?}");
    let result: Value = serde_json::from_slice(&recv.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(result["content_bytes"], 100);
    assert_eq!(
        result["xxh3"],
        format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&[0; 100]))
    );
}

// Goal: one document with a number for every policy on every link. Method: the README's command, with less to send.
#[test]
#[allow(clippy::too_many_lines, reason = "a scenario is told in one go")]
fn try_races_the_sample_over_two_links() {
    let dir = tempfile::tempdir().unwrap();
    // A user's own settings must not steer the race.
    let out = program(&[
        "try",
        "--seconds",
        "0.2",
        "--repeat",
        "2",
        "--link",
        "none,100mbit",
        "--size",
        "16M",
        "--json",
    ])
    .env("NARROWS_POLICY", "none")
    .current_dir(dir.path())
    .output()
    .unwrap();
    assert!(out.status.success(), "{out:?}");
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(text.lines().count(), 1);
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&document["schema"], &document["checked"]),
        (&"narrows.try/1".into(), &true.into())
    );
    assert!(
        document["machine"]["cores"].as_u64().unwrap() > 0
            && document["command"]
                .as_str()
                .unwrap()
                .contains("--seconds 0.2")
    );
    let links = document["links"].as_array().unwrap();
    assert_eq!(links.len(), 2);
    assert_eq!(
        (&links[0]["rate_mbit_s"], links[0]["sent_bytes"].as_u64()),
        (&Value::Null, Some(2 * 7_536_640))
    );
    assert_eq!(
        (links[0]["times"].as_u64(), links[1]["times"].as_u64()),
        (Some(2), Some(1))
    );
    assert_eq!(
        (
            links[1]["rate_mbit_s"].as_f64(),
            links[1]["sent_bytes"].as_u64()
        ),
        (Some(100.0), Some(2_500_000))
    );
    for link in links {
        let policies = link["policies"].as_array().unwrap();
        assert!(policies.len() >= 8);
        for policy in policies {
            let rate = policy["effective_mbit_s"].as_f64().unwrap();
            // One round only is for those who took more than twice the time of raw in the first.
            let rounds = policy["runs"].as_array().unwrap().len();
            assert!(
                rounds == 2 || rounds == 1 && policy["seconds"].as_f64().unwrap() > 0.4,
                "{policy}"
            );
            assert!(rate > 0.0 && policy["fault"].is_null(), "{policy}");
            let ratio = policy["ratio"].as_f64().unwrap();
            let (least, most) = match policy["name"].as_str().unwrap() {
                "none" => (0.9, 1.0),
                // Without a limit, raw may be the right choice.
                "adaptive" => (0.9, 9.0),
                _ => (1.5, 9.0),
            };
            assert!((least..=most).contains(&ratio), "{policy}");
        }
        let covered: u64 = link["timeline"]
            .as_array()
            .unwrap()
            .iter()
            .map(|span| span["len"].as_u64().unwrap())
            .sum();
        assert_eq!(Some(covered), link["sent_bytes"].as_u64());
    }
    // The emulated link holds: raw is below its rate, and not by much.
    let raw = links[1]["policies"][0]["effective_mbit_s"]
        .as_f64()
        .unwrap();
    assert!((50.0..102.0).contains(&raw), "{raw}");
    let report = dir.path().join("narrows-try.html");
    assert!(fs::metadata(&report).unwrap().len() > 800_000);
    browser::look_at(&report, links.len() * 2);
}

#[test]
fn try_prints_a_table_of_own_files() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("own")).unwrap();
    fs::write(
        dir.path().join("own/<b>.txt"),
        "what a user has\n".repeat(20_000),
    )
    .unwrap();
    let words = [
        "try",
        "own",
        "--seconds",
        "0.1",
        "--repeat",
        "1",
        "--race",
        "none,zstd:1,adaptive",
        "--report",
        "r.html",
    ];
    let out = narrows(&words, dir.path());
    let table = String::from_utf8(out.stdout).unwrap();
    assert!(
        out.status.success() && table.contains("adaptive") && table.contains("ratio"),
        "{table}"
    );
    assert!(String::from_utf8_lossy(&out.stderr).contains("r.html"));
    browser::look_at(&dir.path().join("r.html"), 2);
}

fn program(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_narrows"));
    command.args(words).stdin(Stdio::null());
    command
}

fn narrows(words: &[&str], dir: &Path) -> Output {
    program(words).current_dir(dir).output().unwrap()
}
