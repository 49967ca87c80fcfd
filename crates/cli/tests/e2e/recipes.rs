//! `docs/recipes`: what others' programs read parses, and what narrows is told there it understands.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::process::{Process, has, skip};

fn recipes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recipes")
}

fn files(extension: &str) -> Vec<PathBuf> {
    let paths = fs::read_dir(recipes())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect()
}

/// What a line of Python prints of a file.
fn python(line: &str, path: &Path) -> String {
    let mut command = Command::new("python3");
    command.args(["-c", line]).arg(path).stdin(Stdio::null());
    let ended = Process::start(&mut command).wait().expect(0);
    String::from_utf8(ended.stdout).unwrap()
}

/// The containers of an object that a Kubernetes manifest makes.
fn containers(object: &Value) -> Vec<&Value> {
    let pod = &object["spec"]["template"]["spec"];
    ["containers", "initContainers"]
        .iter()
        .filter_map(|name| pod[name].as_array())
        .flatten()
        .collect()
}

/// Fails the test unless narrows takes these words: without the peers, keys and images that they name it fails later.
#[track_caller]
fn understood(words: &[String]) {
    let mut command = Command::new(crate::process::NARROWS);
    // An address that cannot be resolved, a folder of keys that is not there: those are what it may say.
    command.args(words).stdin(Stdio::null());
    let mut process = Process::start(&mut command);
    let until = Instant::now() + Duration::from_secs(3);
    while process.is_running() {
        if Instant::now() > until {
            // A tunnel waits for its far end.
            assert!(!process.said().contains("Usage:"), "{words:?}");
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    let ended = process.wait();
    assert!(
        !ended.stderr.contains("Usage:") && ended.code != 0,
        "{words:?}: {ended:?}"
    );
}

#[test]
fn manifests_parse_and_start_what_there_is() {
    if !has("python3")
        || !Command::new("python3")
            .args(["-c", "import yaml"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    {
        return skip("python3 with yaml (package python3-yaml) is missing");
    }
    let line =
        "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    let mut started = 0;
    for path in files("yaml") {
        let objects: Value = serde_json::from_str(&python(line, &path)).unwrap();
        for object in objects.as_array().unwrap() {
            assert!(object["apiVersion"].is_string() && object["kind"].is_string());
            let labels = &object["spec"]["template"]["metadata"]["labels"];
            assert_eq!(&object["spec"]["selector"]["matchLabels"], labels);
            for container in containers(object) {
                let mounts = container["volumeMounts"].as_array().into_iter().flatten();
                let volumes = object["spec"]["template"]["spec"]["volumes"].as_array();
                for mount in mounts {
                    let is_there = |volume: &Value| volume["name"] == mount["name"];
                    assert!(
                        volumes.is_some_and(|all| all.iter().any(is_there)),
                        "{mount}"
                    );
                }
                if container["image"].as_str().unwrap().contains("/narrows:") {
                    let words = container["args"].as_array().unwrap().iter();
                    let words: Vec<_> = words.map(|word| word.as_str().unwrap().into()).collect();
                    understood(&words);
                    started += 1;
                }
            }
        }
    }
    assert_eq!(started, 2);
}

#[test]
fn xml_and_scripts_parse() {
    for path in files("xml").into_iter().filter(|_| has("python3")) {
        let line =
            "import sys, xml.etree.ElementTree as e; print(e.parse(sys.argv[1]).getroot().tag)";
        assert_eq!(python(line, &path).trim(), "disk");
    }
    let mut scripts = files("sh");
    scripts.push(recipes().join("libvirt-qemu-hook"));
    assert_eq!(scripts.len(), 4);
    for path in scripts {
        let mut command = Command::new("sh");
        command.arg("-n").arg(&path).stdin(Stdio::null());
        Process::start(&mut command).wait().expect(0);
        let text = fs::read_to_string(&path).unwrap().replace("\\\n", " ");
        for line in text.lines().map(str::trim_start) {
            let line = line.strip_prefix("exec ").unwrap_or(line);
            let Some(line) = line.strip_prefix("narrows ") else {
                continue;
            };
            // What the shell would put in.
            let line = line
                .trim_end_matches('&')
                .replace("$destination", "host.invalid")
                .replace("$size", "1G")
                // A cluster that is not there would be waited for.
                .replace("rbd:$pool/$image", "/none/image")
                .replace("$backing", "/none/backing")
                .replace("$image", "none");
            let words: Vec<_> = shlex::split(&line).unwrap();
            assert!(words.iter().all(|word| !word.contains('$')), "{words:?}");
            understood(&words);
        }
    }
}
