//! QEMU to QEMU, where `serve --direct` lets them.

use std::{fs, net::TcpListener, path::Path};

use narrows_migrate::tls::{Lent, Part};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::bench::{Bench, Qemu, Way, eventually};
use crate::{
    netns::{ADDRESSES, Hosts},
    process::{Ended, NARROWS, Process, run, start},
};

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Certificates in a folder of that name.
fn keys(bench: &Bench, name: &str) -> String {
    let dir = bench.path(name).display().to_string();
    run(["keys", &dir, "--host", ADDRESSES[1]]).expect(0);
    dir
}

/// What QEMU has of TLS: `tls-creds`, `tls-hostname`.
fn tls_of(qemu: &mut Qemu) -> [String; 2] {
    let held = qemu.ask("query-migrate-parameters", Value::Null);
    ["tls-creds", "tls-hostname"].map(|name| held[name].as_str().unwrap_or_default().to_owned())
}

const NO_TLS: [&str; 2] = ["", ""];

/// `serve --direct` on this host, with these certificates.
fn serve_under_tls(bench: &Bench, keys: &str) -> Process {
    let (target, qmp) = (
        format!("127.0.0.1:{}", free_port()),
        bench.unix("d.qmp").to_string(),
    );
    let words = [
        "migrate",
        "serve",
        "-l",
        "127.0.0.1:0",
        "--direct",
        "--to",
        &target,
        "--qmp",
        &qmp,
    ];
    start([&words[..], &["--tls-certificates", keys]].concat())
}

/// `run --direct always` to `serve`, with these certificates.
fn run_under_tls(bench: &Bench, serve: &Process, keys: &str, flags: &[&str]) -> Process {
    let (to, qmp) = (Way::served_at(serve), bench.unix("s.qmp").to_string());
    let words = [
        "migrate",
        "run",
        "--qmp",
        &qmp,
        "--to",
        &to,
        "--json",
        "--tls-certificates",
        keys,
    ];
    let direct = if flags.contains(&"--direct") {
        &[][..]
    } else {
        &["--direct", "always"]
    };
    start([&words[..], direct, flags].concat())
}

/// It moved, by the way that is expected.
fn arrived(bench: &Bench, source: &mut Qemu, dest: &mut Qemu, moved: &Ended, direct: bool) {
    let report = moved.json();
    assert_eq!(
        (&report["direct"], &report["direct_tls"]),
        (&direct.into(), &direct.into()),
        "{moved:?}"
    );
    eventually("the source stands still", || {
        source.status() == "postmigrate"
    });
    assert_eq!(
        dest.status(),
        "running",
        "it was told to go on when the source had let go"
    );
    bench.check_goes_on();
}

// Goal: the tunnel carries nothing of the guest, and who runs it is settled all the same.
#[test]
fn a_guest_moves_around_the_tunnel() {
    let Some(bench) = Bench::new() else { return };
    let (mut source, mut dest) = bench.pair();
    let (target, qmp) = (
        format!("127.0.0.1:{}", free_port()),
        bench.unix("d.qmp").to_string(),
    );
    let serve = start([
        "migrate",
        "serve",
        "-l",
        "127.0.0.1:0",
        "--direct",
        "--to",
        &target,
        "--qmp",
        &qmp,
    ]);
    let (to, qmp) = (Way::served_at(&serve), bench.unix("s.qmp").to_string());
    let report = start([
        "migrate", "run", "--qmp", &qmp, "--to", &to, "--direct", "always", "--json",
    ]);
    let report = report.wait().expect(0).json();
    assert_eq!(
        (&report["direct"], &report["direct_tls"]),
        (&true.into(), &false.into()),
        "{report}"
    );
    assert!(
        report["link_bytes_per_s"].as_f64().unwrap() > 1e6,
        "{report}"
    );
    assert!(
        report["wire_bytes"].as_u64() > report["transferred_bytes"].as_u64(),
        "the probe counts too: {report}"
    );
    assert_eq!(
        report["send"]["tunnel_cpu_s"].as_f64().map(|s| s < 2.0),
        Some(true),
        "{report}"
    );
    eventually("the source stands still", || {
        source.status() == "postmigrate"
    });
    assert_eq!(
        dest.status(),
        "running",
        "it was told to go on when the source had let go"
    );
    bench.check_goes_on();
}

// Goal: an address that only the destination itself reaches costs a moment and not the migration. Method: two hosts,
// where the destination's QEMU waits at its own 127.0.0.1.
#[test]
fn what_cannot_be_reached_directly_goes_through_the_tunnel() {
    let Some(bench) = Bench::new() else { return };
    let Some(hosts) = Hosts::new() else { return };
    let mut source = bench.start_by(hosts.on(0, &bench.binary), "s", false);
    eventually("the guest prints", || bench.printed("s").len() > 2);
    let mut dest = bench.start_by(hosts.on(1, &bench.binary), "d", true);
    let on = |host: usize, words: &[&str]| {
        Process::start(hosts.on(host, NARROWS).arg("migrate").args(words))
    };
    let (at, qmp) = (
        format!("{}:0", ADDRESSES[1]),
        bench.unix("d.qmp").to_string(),
    );
    let serve = on(
        1,
        &[
            "serve",
            "-l",
            &at,
            "--insecure",
            "--direct",
            "--to",
            "127.0.0.1:4444",
            "--qmp",
            &qmp,
        ],
    );
    let (to, qmp) = (Way::served_at(&serve), bench.unix("s.qmp").to_string());
    let moved = on(
        0,
        &[
            "run",
            "--qmp",
            &qmp,
            "--to",
            &to,
            "--insecure",
            "--direct",
            "always",
            "--json",
        ],
    )
    .wait();
    let moved = moved.expect(0).says("goes through the tunnel");
    assert_eq!(moved.json()["direct"], false);
    eventually("the source stands still", || {
        source.status() == "postmigrate"
    });
    assert_eq!(dest.status(), "running");
    bench.check_goes_on();
}

// Goal: a guest without a session has nobody who would let it run at the destination, so it stays. Method: `serve` is
// killed in the midst.
#[test]
fn a_direct_migration_ends_with_its_session() {
    let Some(bench) = Bench::new() else { return };
    let (mut source, _dest) = bench.pair();
    let (target, qmp) = (
        format!("127.0.0.1:{}", free_port()),
        bench.unix("d.qmp").to_string(),
    );
    let serve = start([
        "migrate",
        "serve",
        "-l",
        "127.0.0.1:0",
        "--direct",
        "--to",
        &target,
        "--qmp",
        &qmp,
    ]);
    let (to, qmp) = (Way::served_at(&serve), bench.unix("s.qmp").to_string());
    let words = [
        "migrate",
        "run",
        "--qmp",
        &qmp,
        "--to",
        &to,
        "--direct",
        "always",
        "--max-bandwidth",
        "40mbit",
    ];
    let moving = start([&words[..], &["--resume-within", "1"]].concat());
    eventually("it is under way", || source.migration() == "active");
    serve.signal(Signal::KILL);
    moving
        .wait()
        .expect(1)
        .says("the guest goes on where it was")
        .says("did not come back");
    assert_eq!(source.status(), "running");
    let before = bench.printed("s").len();
    eventually("the guest goes on", || {
        bench.printed("s").len() > before + 1
    });
}

// Goal: a guest that has left and was not let run is not said to be where it was. Method: `serve` stands still while
// the guest moves beside it.
#[test]
fn a_guest_that_nobody_lets_run_is_told_as_that() {
    let Some(bench) = Bench::new() else { return };
    let (mut source, mut dest) = bench.pair();
    let (target, qmp) = (
        format!("127.0.0.1:{}", free_port()),
        bench.unix("d.qmp").to_string(),
    );
    let serve = start([
        "migrate",
        "serve",
        "-l",
        "127.0.0.1:0",
        "--direct",
        "--to",
        &target,
        "--qmp",
        &qmp,
    ]);
    let (to, qmp) = (Way::served_at(&serve), bench.unix("s.qmp").to_string());
    let words = [
        "migrate",
        "run",
        "--qmp",
        &qmp,
        "--to",
        &to,
        "--direct",
        "always",
        "--max-bandwidth",
        "400mbit",
    ];
    let moving = start([&words[..], &["--silence", "8", "--resume-within", "1"]].concat());
    eventually("it is under way", || source.migration() == "active");
    serve.signal(Signal::STOP);
    let ended = moving.wait().says("the guest has left");
    assert!(
        ended.code != 0
            && ended.stdout.is_empty()
            && !ended.stderr.contains("goes on where it was"),
        "{ended:?}"
    );
    assert_eq!(
        (source.status(), dest.status()),
        ("postmigrate".into(), "paused".into())
    );
    serve.signal(Signal::CONT);
    dest.ask("cont", Value::Null);
    bench.check_goes_on();
}

// Goal: a `run` that is killed leaves a guest that runs, and a QEMU that can be moved by any way. Method: killed in the
// midst of a migration under TLS, whose certificates stay behind in the source's QEMU; then once more, through the
// tunnel.
#[test]
fn a_killed_run_leaves_the_guest_where_it_was() {
    let Some(bench) = Bench::new() else { return };
    let (mut source, dest) = bench.pair();
    let keys = keys(&bench, "keys");
    let serve = serve_under_tls(&bench, &keys);
    // Slower than `serve` waits for the session.
    let moving = run_under_tls(&bench, &serve, &keys, &["--max-bandwidth", "10mbit"]);
    eventually("it is under way", || source.migration() == "active");
    moving.signal(Signal::KILL);
    eventually("what it began is ended", || source.migration() == "failed");
    assert_eq!(
        (source.status(), tls_of(&mut source)[0].as_str()),
        ("running".into(), "narrows-tls")
    );
    drop(dest);
    let mut dest = bench.start("d", true);
    let serve = serve_under_tls(&bench, &keys);
    let moved = run_under_tls(&bench, &serve, &keys, &["--direct", "never"])
        .wait()
        .expect(0);
    arrived(&bench, &mut source, &mut dest, &moved, false);
    assert_eq!(tls_of(&mut source), NO_TLS);
}

/// Over so many channels, and both QEMUs are afterwards as they were before.
fn under_tls(channels: &str, capabilities: &[&str]) {
    let Some(bench) = Bench::new() else { return };
    let (mut source, mut dest) = bench.pair();
    source.ask(
        "migrate-set-parameters",
        json!({ "tls-hostname": "left.alone", "max-postcopy-bandwidth": 10 << 20 }),
    );
    let keys = keys(&bench, "keys");
    let serve = serve_under_tls(&bench, &keys);
    let more: Vec<_> = capabilities
        .iter()
        .flat_map(|name| ["--capability", name])
        .collect();
    let flags = [
        &["--channels", channels, "--max-bandwidth", "400mbit"],
        &more[..],
    ]
    .concat();
    let moving = run_under_tls(&bench, &serve, &keys, &flags);
    eventually("it is under way", || source.migration() == "active");
    assert_eq!(
        (tls_of(&mut source), tls_of(&mut dest)[0].as_str()),
        (
            ["narrows-tls", "127.0.0.1"].map(String::from),
            "narrows-tls"
        )
    );
    if capabilities.contains(&"postcopy-ram") {
        source.ask("migrate-start-postcopy", Value::Null);
        eventually("it is what was asked for", || {
            source.migration() == "postcopy-active"
        });
        eventually("the guest runs there while its memory follows", || {
            dest.status() == "running"
        });
        moving.signal(Signal::INT);
        moving.heard("cannot be called back");
        assert_eq!(source.migration(), "postcopy-active");
    }
    arrived(
        &bench,
        &mut source,
        &mut dest,
        &moving.wait().expect(0),
        true,
    );
    assert_eq!(tls_of(&mut source), ["", "left.alone"]);
    eventually("the destination has none left", || {
        tls_of(&mut dest) == NO_TLS
    });
    let left = source
        .ask("qom-list", json!({ "path": "/objects" }))
        .to_string();
    assert!(!left.contains("narrows"), "{left}");
}

#[test]
fn a_guest_moves_around_the_tunnel_under_tls_over_one_socket() {
    under_tls("0", &[]);
}

#[test]
fn a_guest_moves_around_the_tunnel_under_tls_over_three_channels() {
    under_tls("3", &[]);
}

#[test]
fn a_guest_moves_around_the_tunnel_under_tls_by_postcopy() {
    under_tls("0", &["postcopy-ram", "postcopy-preempt"]);
}

/// On a link too fast for the tunnel and too slow for what is not packed, whatever it carries: what QEMU packed arrives
/// as it was, and both QEMUs are afterwards as they were before.
#[allow(clippy::too_many_lines, reason = "a scenario is told in one go")]
fn packed_by_qemu(is_tls: bool) {
    let Some(bench) = Bench::new() else { return };
    let (mut source, mut dest) = bench.pair();
    for qemu in [&mut source, &mut dest] {
        qemu.ask("migrate-set-parameters", json!({ "multifd-zstd-level": 7 }));
    }
    let packing = |qemu: &mut Qemu| {
        let held = qemu.ask("query-migrate-parameters", Value::Null);
        (
            held["multifd-compression"].as_str().map(String::from),
            held["multifd-zstd-level"].as_u64(),
        )
    };
    // QEMU 7.2 takes a level without a word, and keeps its own.
    let held = packing(&mut source).1.unwrap();
    let keys = keys(&bench, "keys");
    let security = if is_tls {
        &["--tls-certificates", &keys][..]
    } else {
        &[]
    };
    let (target, qmp) = (
        format!("127.0.0.1:{}", free_port()),
        bench.unix("d.qmp").to_string(),
    );
    let words = [
        "migrate",
        "serve",
        "-l",
        "127.0.0.1:0",
        "--direct",
        "--to",
        &target,
        "--qmp",
        &qmp,
    ];
    let serve = start([&words[..], security].concat());
    let slow = start([
        "link-emulator",
        "-l",
        "127.0.0.1:0",
        "--rate",
        "100mbit",
        "--to",
        &Way::served_at(&serve),
    ]);
    let (to, qmp) = (
        slow.heard("link from ")
            .split(' ')
            .next()
            .unwrap()
            .to_owned(),
        bench.unix("s.qmp").to_string(),
    );
    let words = [
        "migrate", "run", "--qmp", &qmp, "--to", &to, "--direct", "always", "--json",
    ];
    let moving = start(
        [
            &words[..],
            security,
            &["--channels", "3", "--max-bandwidth", "400mbit"],
        ]
        .concat(),
    );
    eventually("it is under way", || source.migration() == "active");
    for qemu in [&mut source, &mut dest] {
        assert_eq!(packing(qemu), (Some("zstd".into()), Some(1)));
    }
    let report = moving.wait().expect(0).json();
    let way = ["direct", "direct_tls", "direct_zstd_level"].map(|name| report[name].clone());
    assert_eq!(way, [json!(true), json!(is_tls), json!(1)], "{report}");
    // Nor does it count what it packed as packed.
    let most = report["ram_bytes"].as_u64().unwrap() / if held == 7 { 2 } else { 1 };
    assert!(report["wire_bytes"].as_u64().unwrap() < most, "{report}");
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
    for qemu in [&mut source, &mut dest] {
        assert_eq!(packing(qemu), (Some("none".into()), Some(held)));
    }
}

#[test]
fn a_guest_moves_around_the_tunnel_packed_by_qemu() {
    packed_by_qemu(false);
}

#[test]
fn a_guest_moves_around_the_tunnel_packed_by_qemu_under_tls() {
    packed_by_qemu(true);
}

// Goal: certificates are all that is needed between two hosts, and an address that only the destination itself reaches
// is found out before its QEMU, which listens only once, listens there.
#[test]
fn two_hosts_need_certificates_and_no_insecure() {
    let Some(bench) = Bench::new() else { return };
    let Some(hosts) = Hosts::new() else { return };
    let keys = keys(&bench, "keys");
    for (target, direct) in [(ADDRESSES[1], true), ("127.0.0.1", false)] {
        let mut source = bench.start_by(hosts.on(0, &bench.binary), "s", false);
        eventually("the guest prints", || bench.printed("s").len() > 2);
        let mut dest = bench.start_by(hosts.on(1, &bench.binary), "d", true);
        let on = |host: usize, words: &[&str]| {
            Process::start(
                hosts
                    .on(host, NARROWS)
                    .arg("migrate")
                    .args(words)
                    .args(["--tls-certificates", &keys]),
            )
        };
        let (at, qmp) = (
            format!("{}:0", ADDRESSES[1]),
            bench.unix("d.qmp").to_string(),
        );
        let serve = on(
            1,
            &[
                "serve",
                "-l",
                &at,
                "--direct",
                "--to",
                &format!("{target}:4444"),
                "--qmp",
                &qmp,
            ],
        );
        let (to, qmp) = (Way::served_at(&serve), bench.unix("s.qmp").to_string());
        let moved = on(
            0,
            &[
                "run", "--qmp", &qmp, "--to", &to, "--direct", "always", "--json",
            ],
        )
        .wait()
        .expect(0);
        assert_eq!(
            moved.stderr.contains("goes through the tunnel"),
            !direct,
            "{moved:?}"
        );
        arrived(&bench, &mut source, &mut dest, &moved, direct);
    }
}

// Goal: where the tunnel is used, QEMU's port is open to this host alone. Method: an address of another host, and
// `--direct never`.
#[test]
fn the_port_is_open_to_others_under_tls_only() {
    let Some(bench) = Bench::new() else { return };
    let Some(hosts) = Hosts::new() else { return };
    let keys = keys(&bench, "keys");
    let mut source = bench.start_by(hosts.on(0, &bench.binary), "s", false);
    let mut dest = bench.start_by(hosts.on(1, &bench.binary), "d", true);
    let on = |host: usize, words: &[&str]| {
        Process::start(
            hosts
                .on(host, NARROWS)
                .arg("migrate")
                .args(words)
                .args(["--tls-certificates", &keys]),
        )
    };
    let (at, qmp) = (
        format!("{}:0", ADDRESSES[1]),
        bench.unix("d.qmp").to_string(),
    );
    let target = format!("{}:4444", ADDRESSES[1]);
    let serve = on(
        1,
        &[
            "serve", "-l", &at, "--direct", "--to", &target, "--qmp", &qmp,
        ],
    );
    let (to, qmp) = (Way::served_at(&serve), bench.unix("s.qmp").to_string());
    let moving = on(
        0,
        &[
            "run",
            "--qmp",
            &qmp,
            "--to",
            &to,
            "--direct",
            "never",
            "--max-bandwidth",
            "40mbit",
        ],
    );
    eventually("it is under way", || source.migration() == "active");
    let listening = hosts
        .on(1, "ss")
        .args(["-Hltn", "sport", "=", ":4444"])
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&listening.stdout).contains("127.0.0.1:4444"),
        "{listening:?}"
    );
    assert_eq!(
        (tls_of(&mut source), tls_of(&mut dest)),
        (NO_TLS.map(String::from), NO_TLS.map(String::from))
    );
    moving.signal(Signal::INT);
    moving.wait().expect(130);
}

// Goal: what QEMU cannot use costs a word and not the migration, and is not left behind. Method: a file that QEMU alone
// reads.
#[test]
fn certificates_that_qemu_refuses_are_told_and_the_tunnel_is_used() {
    let Some(bench) = Bench::new() else { return };
    let (mut source, mut dest) = bench.pair();
    let keys = keys(&bench, "keys");
    fs::write(Path::new(&keys).join("dh-params.pem"), "nonsense").unwrap();
    let serve = serve_under_tls(&bench, &keys);
    let moved = run_under_tls(&bench, &serve, &keys, &[]).wait().expect(0);
    let moved = moved
        .says("goes through the tunnel: at the destination: QEMU refuses object-add")
        .says("dh-params.pem");
    arrived(&bench, &mut source, &mut dest, &moved, false);
    assert_eq!(
        (tls_of(&mut source), tls_of(&mut dest)),
        (NO_TLS.map(String::from), NO_TLS.map(String::from))
    );
}

// Goal: what the user gave QEMU stays, and is used as he meant it: within the tunnel.
#[test]
fn credentials_that_qemu_has_already_are_left_alone() {
    let Some(bench) = Bench::new() else { return };
    let (mut source, mut dest) = bench.pair();
    let (keys, theirs) = (keys(&bench, "keys"), keys(&bench, "theirs"));
    for (qemu, endpoint) in [(&mut source, "client"), (&mut dest, "server")] {
        qemu.ask(
            "object-add",
            json!({ "qom-type": "tls-creds-x509", "id": "theirs", "endpoint": endpoint, "dir": theirs }),
        );
        qemu.ask(
            "migrate-set-parameters",
            json!({ "tls-creds": "theirs", "tls-hostname": "localhost" }),
        );
    }
    let serve = serve_under_tls(&bench, &keys);
    let moved = run_under_tls(&bench, &serve, &keys, &[])
        .wait()
        .expect(0)
        .says("set already, to theirs");
    arrived(&bench, &mut source, &mut dest, &moved, false);
    assert_eq!(
        (tls_of(&mut source), tls_of(&mut dest)),
        (
            ["theirs", "localhost"].map(String::from),
            ["theirs", "localhost"].map(String::from)
        )
    );
}

// Goal: a retry finds nothing of a try that was cut off.
#[test]
fn a_direct_migration_under_tls_that_was_cut_off_can_be_tried_again() {
    let Some(bench) = Bench::new() else { return };
    let (mut source, dest) = bench.pair();
    let keys = keys(&bench, "keys");
    let serve = serve_under_tls(&bench, &keys);
    let moving = run_under_tls(
        &bench,
        &serve,
        &keys,
        &["--max-bandwidth", "40mbit", "--resume-within", "1"],
    );
    eventually("it is under way", || source.migration() == "active");
    serve.signal(Signal::KILL);
    assert_ne!(moving.wait().says("the guest goes on where it was").code, 0);
    assert_eq!(
        (source.status(), tls_of(&mut source)),
        ("running".into(), NO_TLS.map(String::from))
    );
    drop(dest);
    let mut dest = bench.start("d", true);
    let serve = serve_under_tls(&bench, &keys);
    let moved = run_under_tls(&bench, &serve, &keys, &[]).wait().expect(0);
    arrived(&bench, &mut source, &mut dest, &moved, true);
}

// Goal: strangers get no guest and give none. Method: two authorities; narrows' own session refuses first, so QEMUs are
// also brought together without one.
#[test]
fn another_authority_is_refused_and_the_guest_stays() {
    let Some(bench) = Bench::new() else { return };
    let (mut source, mut dest) = bench.pair();
    let (ours, others) = (keys(&bench, "ours"), keys(&bench, "others"));
    let serve = serve_under_tls(&bench, &ours);
    let refused = run_under_tls(&bench, &serve, &others, &[]).wait();
    assert!(
        refused.code != 0 && refused.stderr.contains("certificate"),
        "{refused:?}"
    );
    assert_eq!(
        (source.status(), tls_of(&mut source)),
        ("running".into(), NO_TLS.map(String::from))
    );

    let nothing = bench.path("authority").display().to_string();
    fs::create_dir(&nothing).unwrap();
    fs::copy(
        format!("{ours}/ca-cert.pem"),
        format!("{nothing}/ca-cert.pem"),
    )
    .unwrap();
    for qemu in [&mut source, &mut dest] {
        qemu.set_up(0, &[]);
    }
    Lent::new(&mut dest.monitor, ours.as_ref(), Part::Server).unwrap();
    let uri = format!("tcp:127.0.0.1:{}", free_port());
    dest.ask("migrate-incoming", json!({ "uri": uri }));
    let end_of = |source: &mut Qemu, keys: &String| {
        let lent = Lent::new(
            &mut source.monitor,
            keys.as_ref(),
            Part::Client("localhost"),
        )
        .unwrap();
        source.migrate(&uri);
        let mut state = String::new();
        eventually("it ends", || {
            state = source.migration();
            ["failed", "completed"].contains(&state.as_str())
        });
        lent.take_back(&mut source.monitor);
        println!(
            "QEMU: {}",
            source.ask("query-migrate", Value::Null)["error-desc"]
        );
        state
    };
    for stranger in [&others, &nothing] {
        assert_eq!(end_of(&mut source, stranger), "failed", "{stranger}");
        eventually("the guest runs on", || source.status() == "running");
        assert_eq!(dest.status(), "inmigrate", "{stranger}");
    }
    assert_eq!(end_of(&mut source, &ours), "completed");
    eventually("the destination has it all", || {
        dest.status() != "inmigrate"
    });
    bench.check(&mut source, &mut dest);
}

#[test]
fn what_would_be_open_to_strangers_is_refused() {
    run(["migrate", "serve", "--direct", "--to", "unix:/run/d.sock"])
        .expect(2)
        .says("HOST:PORT");
    run(["migrate", "serve", "--direct", "--to", "0.0.0.0:4444"])
        .expect(2)
        .says("insecure");
    run([
        "migrate",
        "serve",
        "--direct",
        "--to",
        "0.0.0.0:4444",
        "--tls-certificates",
        "keys",
    ])
    .expect(2)
    .says("--qmp");
}

#[test]
fn a_destination_that_does_not_let_qemu_connect_says_so() {
    let Some(bench) = Bench::new() else { return };
    let (mut source, _dest) = bench.pair();
    let serve = Way::serve(&bench, &["--qmp", &bench.unix("d.qmp").to_string()]);
    let (to, qmp) = (Way::served_at(&serve), bench.unix("s.qmp").to_string());
    run([
        "migrate", "run", "--qmp", &qmp, "--to", &to, "--direct", "always",
    ])
    .expect(1)
    .says("serve --direct");
    assert_eq!(source.status(), "running");
}
