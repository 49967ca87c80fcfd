//! What a transfer learns of a link, the next one begins with.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
};

use narrows_testkit::data::{Kind, make};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    netns::{ADDRESSES, Hosts},
    process::{NARROWS, Process, has, skip},
};

/// Sends the file from the first host to the second, and returns what the link was taken for at the first decision, in bytes per
/// second.
fn believed(hosts: &Hosts, dir: &Path, file: &Path, flags: &[&str]) -> u64 {
    let address = format!("{}:4242", ADDRESSES[1]);
    let run = |command: &mut Command| Process::start(command.stdin(Stdio::null()));
    let mut receive = hosts.on(1, NARROWS);
    receive
        .args(["recv", "--insecure", "-l", &address, "-"])
        .stdout(Stdio::null());
    let receiver = run(&mut receive);
    receiver.heard("listening on");
    let explained = dir.join("explained");
    let mut send = hosts.on(0, NARROWS);
    send.args(["send", "--insecure"])
        .args(flags)
        .arg("--explain")
        .arg(&explained)
        .args(["-", &address]);
    send.stdin(File::open(file).unwrap())
        .env("XDG_CACHE_HOME", dir.join("cache"));
    Process::start(&mut send).wait().expect(0);
    receiver.wait().expect(0);
    let first = fs::read_to_string(&explained).unwrap();
    let first: Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
    first["link_bytes_per_s"].as_u64().unwrap()
}

// Goal: the second transfer over a link of 600 Mbit/s begins with what the first measured, unless it is told not to.
#[test]
fn a_later_transfer_knows_what_the_link_carries() {
    let Some(hosts) = Hosts::new() else { return };
    if !has("tc") || !hosts.shape("600mbit") {
        return skip("needs tc and a kernel that shapes links");
    }
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, make(Kind::Random, 60_000_000, 1)).unwrap();
    let links = dir.path().join("cache/narrows/links");
    let run = |flags: &[&str]| believed(&hosts, dir.path(), &file, flags);
    let guess = run(&["--no-cache"]);
    assert!(!links.exists());
    // A busy machine may not fill the link, which is not measured then.
    let measured = (0..5).any(|_| {
        assert_eq!(run(&[]), guess);
        links.exists()
    });
    if !measured {
        return skip("this machine is too busy to fill a link of 600 Mbit/s");
    }
    let kept = fs::read_to_string(&links).unwrap();
    let rate: f64 = kept.split(' ').nth(1).unwrap().parse().unwrap();
    assert!((55e6..100e6).contains(&rate), "{kept}");
    assert!(kept.starts_with(ADDRESSES[1]), "{kept}");
    // Random bytes fill the link: the second begins with just that.
    assert!(run(&[]).abs_diff(rate as u64) <= 1, "{kept}");
    assert_eq!(run(&["--no-cache"]), guess);
    let limited = run(&["--bwlimit", "500mbit"]);
    assert_eq!(
        (limited, fs::read_to_string(&links).unwrap().lines().count()),
        (guess, 1)
    );
}
