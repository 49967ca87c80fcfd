//! The manual's five lines, as they stand there, between two hosts.

use std::{fs, os::unix::fs::symlink, path::Path};

use super::bench::{Bench, eventually};
use crate::{
    netns::{ADDRESSES, Hosts},
    process::{NARROWS, Process},
};

// Goal: what a reader pastes works. Method: only `…`, the guest, is filled in. `dest.example` is a line of /etc/hosts
// and /run a folder of the test's, both mounted for each command alone.
#[test]
fn the_five_lines_move_a_guest_over_tls_between_two_hosts() {
    let lines = shown("docs/migrate.md", "## Five lines");
    assert_eq!(
        lines,
        shown("README.md", "## Move a running virtual machine")
    );
    let [keys, destination, serve, source, run] = lines.try_into().expect("five lines");
    let Some(bench) = Bench::new() else { return };
    let Some(hosts) = Hosts::new() else { return };
    fs::write(
        bench.path("hosts"),
        format!("{} dest.example\n", ADDRESSES[1]),
    )
    .unwrap();
    let bin = bench.path("bin");
    fs::create_dir(&bin).unwrap();
    symlink(NARROWS, bin.join("narrows")).unwrap();
    if let Ok(binary) = fs::canonicalize(&bench.binary) {
        symlink(binary, bin.join("qemu-system-x86_64")).unwrap();
    }
    let typed = |host: usize, line: &str| {
        let script = format!(
            "set -e; mount --bind hosts /etc/hosts; mount --bind . /run; PATH=$PWD/bin:$PATH; exec {line}"
        );
        Process::start(
            hosts
                .on(host, "sh")
                .args(["-c", &script])
                .current_dir(bench.path("")),
        )
    };
    let guest =
        |line: &str, name: &str| line.replace('…', &bench.options(name, name == "d").join(" "));

    typed(0, &keys).wait().expect(0);
    let mut dest = bench.connect("d", typed(1, &guest(&destination, "d")));
    let serving = typed(1, &serve);
    serving.heard("taking migrations at ");
    let mut source = bench.connect("s", typed(0, &guest(&source, "s")));
    eventually("the guest prints", || bench.printed("s").len() > 2);
    let ended = typed(0, &run).wait().expect(0);
    println!("{}", String::from_utf8_lossy(&ended.stdout));

    eventually("the source stands still", || {
        source.status() == "postmigrate"
    });
    assert_eq!(dest.status(), "running");
    bench.check_goes_on();
    // Its code and what it counts lie below.
    let still = 16 << 20;
    assert!(
        bench.memory(&mut source)[still..] == bench.memory(&mut dest)[still..],
        "what came is not what was sent"
    );
}

/// The commands of the first block of shell after a heading, without their remarks.
fn shown(file: &str, heading: &str) -> Vec<String> {
    let text = fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(file),
    )
    .unwrap();
    let after = text
        .split_once(heading)
        .unwrap_or_else(|| panic!("no {heading:?} in {file}"))
        .1;
    let block = after
        .split_once("```sh\n")
        .unwrap()
        .1
        .split_once("```")
        .unwrap()
        .0;
    block
        .lines()
        .map(|line| line.split("  #").next().unwrap().trim_end().to_owned())
        .collect()
}
