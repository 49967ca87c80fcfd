//! QEMU to QEMU, where `serve --direct` lets them.

use std::net::TcpListener;

use super::bench::{Bench, Way, eventually};
use crate::{
    netns::{ADDRESSES, Hosts},
    process::{NARROWS, Process, run, start},
};

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

// Goal: the tunnel carries nothing of the guest, and who runs it is settled all the same.
#[test]
fn a_guest_moves_around_the_tunnel() {
    let Some(bench) = Bench::new() else { return };
    let (mut source, mut dest) = bench.pair();
    let (target, qmp) = (format!("127.0.0.1:{}", free_port()), bench.unix("d.qmp").to_string());
    let serve = start(["migrate", "serve", "-l", "127.0.0.1:0", "--direct", "--to", &target, "--qmp", &qmp]);
    let (to, qmp) = (Way::served_at(&serve), bench.unix("s.qmp").to_string());
    let report = start(["migrate", "run", "--qmp", &qmp, "--to", &to, "--direct", "always", "--json"]);
    let report = report.wait().expect(0).json();
    assert_eq!(report["direct"], true, "{report}");
    assert!(report["link_bytes_per_s"].as_f64().unwrap() > 1e6, "{report}");
    assert!(report["wire_bytes"].as_u64() > report["transferred_bytes"].as_u64(), "the probe counts too: {report}");
    assert_eq!(report["send"]["tunnel_cpu_s"].as_f64().map(|s| s < 2.0), Some(true), "{report}");
    eventually("the source stands still", || source.status() == "postmigrate");
    assert_eq!(dest.status(), "running", "it was told to go on when the source had let go");
    bench.check_goes_on();
}

// Goal: an address that only the destination itself reaches costs a moment and not the migration. Method: two hosts, where the
// destination's QEMU waits at its own 127.0.0.1.
#[test]
fn what_cannot_be_reached_directly_goes_through_the_tunnel() {
    let Some(bench) = Bench::new() else { return };
    let Some(hosts) = Hosts::new() else { return };
    let mut source = bench.start_by(hosts.on(0, &bench.binary), "s", false);
    eventually("the guest prints", || bench.printed("s").len() > 2);
    let mut dest = bench.start_by(hosts.on(1, &bench.binary), "d", true);
    let on = |host: usize, words: &[&str]| Process::start(hosts.on(host, NARROWS).arg("migrate").args(words));
    let (at, qmp) = (format!("{}:0", ADDRESSES[1]), bench.unix("d.qmp").to_string());
    let serve = on(1, &["serve", "-l", &at, "--insecure", "--direct", "--to", "127.0.0.1:4444", "--qmp", &qmp]);
    let (to, qmp) = (Way::served_at(&serve), bench.unix("s.qmp").to_string());
    let moved = on(0, &["run", "--qmp", &qmp, "--to", &to, "--insecure", "--direct", "always", "--json"]).wait();
    let moved = moved.expect(0).says("goes through the tunnel");
    assert_eq!(moved.json()["direct"], false);
    eventually("the source stands still", || source.status() == "postmigrate");
    assert_eq!(dest.status(), "running");
    bench.check_goes_on();
}

// Goal: a guest without a session has nobody who would let it run at the destination, so it stays. Method: `serve` is killed in the midst.
#[test]
fn a_direct_migration_ends_with_its_session() {
    let Some(bench) = Bench::new() else { return };
    let (mut source, _dest) = bench.pair();
    let (target, qmp) = (format!("127.0.0.1:{}", free_port()), bench.unix("d.qmp").to_string());
    let serve = start(["migrate", "serve", "-l", "127.0.0.1:0", "--direct", "--to", &target, "--qmp", &qmp]);
    let (to, qmp) = (Way::served_at(&serve), bench.unix("s.qmp").to_string());
    let words = ["migrate", "run", "--qmp", &qmp, "--to", &to, "--direct", "always", "--max-bandwidth", "40mbit"];
    let moving = start([&words[..], &["--resume-within", "1"]].concat());
    eventually("it is under way", || source.migration() == "active");
    serve.signal(rustix::process::Signal::KILL);
    let ended = moving.wait().says("the guest goes on where it was");
    assert_ne!(ended.code, 0, "{ended:?}");
    assert_eq!(source.status(), "running");
    let before = bench.printed("s").len();
    eventually("the guest goes on", || bench.printed("s").len() > before + 1);
}

#[test]
fn what_would_be_open_to_strangers_is_refused() {
    run(["migrate", "serve", "--direct", "--to", "unix:/run/d.sock"]).expect(2).says("HOST:PORT");
    run(["migrate", "serve", "--direct", "--to", "0.0.0.0:4444"]).expect(2).says("insecure");
}

#[test]
fn a_destination_that_does_not_let_qemu_connect_says_so() {
    let Some(bench) = Bench::new() else { return };
    let (mut source, _dest) = bench.pair();
    let serve = Way::serve(&bench, &["--qmp", &bench.unix("d.qmp").to_string()]);
    let (to, qmp) = (Way::served_at(&serve), bench.unix("s.qmp").to_string());
    run(["migrate", "run", "--qmp", &qmp, "--to", &to, "--direct", "always"]).expect(1).says("serve --direct");
    assert_eq!(source.status(), "running");
}
