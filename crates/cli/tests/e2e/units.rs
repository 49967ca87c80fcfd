//! `docs/systemd`: the units are right, sandboxed, and their servers say when they are ready.

use std::{
    fs,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{NARROWS, Process, has, narrows, run, skip};

/// The worst exposure that a unit may have, in tenths, as `systemd-analyze security` reckons it.
const EXPOSURE_MAX: &str = "20";

/// The units as they would be installed, with this build of the program, in a root of their own.
fn install(root: &Path) -> PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/systemd");
    let units = root.join("etc/systemd/system");
    let mut dirs = vec![from.clone()];
    while let Some(dir) = dirs.pop() {
        let to = units.join(dir.strip_prefix(&from).unwrap());
        fs::create_dir_all(&to).unwrap();
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let text = text.replace("/usr/bin/narrows", NARROWS);
            fs::write(to.join(path.file_name().unwrap()), text).unwrap();
        }
    }
    units
}

// Goal: systemd takes each unit, and finds little exposed. Method: its own tools, on a copy.
#[test]
fn units_are_right_and_sandboxed() {
    if !has("systemd-analyze") {
        return skip("systemd-analyze is missing");
    }
    let root = TempDir::new().unwrap();
    let units = install(root.path());
    let mut count = 0;
    for entry in fs::read_dir(&units).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_none_or(|extension| extension != "service")
        {
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        let name = name.replace('@', "@x");
        let mut verify = Command::new("systemd-analyze");
        verify
            .args(["verify", "--man=no", "--recursive-errors=no"])
            .arg(units.join(&name))
            .env("SYSTEMD_UNIT_PATH", format!("{}:", units.display()))
            .stdin(Stdio::null());
        let verified = Process::start(&mut verify).wait().expect(0);
        assert!(verified.stderr.is_empty(), "{name}: {}", verified.stderr);
        let mut security = Command::new("systemd-analyze");
        security
            .args(["security", "--offline=true", "--threshold", EXPOSURE_MAX])
            .arg(format!("--root={}", root.path().display()))
            .arg(&name)
            .stdin(Stdio::null());
        let secured = Process::start(&mut security).wait();
        let text = String::from_utf8_lossy(&secured.stdout).into_owned() + &secured.stderr;
        println!("{}", text.lines().last().unwrap_or_default());
        assert_eq!(secured.code, 0, "{name}: {text}");
        count += 1;
    }
    assert_eq!(count, 7);
}

// Goal: a service manager learns when each server can be reached. Method: be the manager.
#[test]
fn servers_say_when_they_are_ready() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    run(["keys", &at("keys")]).expect(0);
    let (into, socket, control, psk) = (at("in"), at("nbd"), at("control"), at("keys/keys.psk"));
    let any = "127.0.0.1:0";
    let with_key = |words: &[&str]| {
        [words, &["-l", any, "--tls-psk", &psk]]
            .concat()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    let plain = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    for words in [
        with_key(&["recv", "--keep", &into]),
        with_key(&["tunnel", "--to", "127.0.0.1:1"]),
        with_key(&["offload", "serve"]),
        with_key(&["gpu", "serve"]),
        with_key(&["migrate", "serve", "--to", "127.0.0.1:1"]),
        plain(&[
            "memory",
            "serve",
            "--size",
            "1M",
            "--unix",
            &socket,
            "--control",
            &control,
        ]),
    ] {
        let manager = UnixDatagram::bind(at("notify")).unwrap();
        manager
            .set_read_timeout(Some(std::time::Duration::from_secs(60)))
            .unwrap();
        let mut command = narrows(&words);
        command
            .env("NOTIFY_SOCKET", at("notify"))
            .stdin(Stdio::null());
        let server = Process::start(&mut command);
        let mut told = [0; 64];
        let len = manager
            .recv(&mut told)
            .unwrap_or_else(|fault| panic!("{words:?} says nothing: {fault}; {}", server.said()));
        assert_eq!(&told[..len], b"READY=1", "{words:?}");
        server.signal(Signal::TERM);
        server.wait();
        fs::remove_file(at("notify")).unwrap();
    }
}
