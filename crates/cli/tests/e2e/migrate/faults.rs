//! Whatever breaks, the guest runs on exactly one side, and a retry works.
//!
//! `NARROWS_MIGRATE_FAULTS` is how many rounds are tried, `NARROWS_MIGRATE_FAULT` the one fault that all of them are,
//! by its name here. A step of a round that takes longer than `bench::STEP` fails with what both ends of the tunnel
//! said.

use std::{
    collections::BTreeMap,
    process::Stdio,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use narrows_migrate::destination::uri;
use narrows_testkit::data::Random;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::bench::{Bench, Qemu, Way, begin, eventually};
use crate::process::{Process, full, narrows, start};

/// What goes wrong.
#[derive(Debug, Clone, Copy)]
enum Fault {
    KillServe,
    KillTunnel,
    /// The process stands still, as a link does that loses everything.
    StallServe,
    StallTunnel,
    KillDestination,
    /// The network between them resets every connection.
    Cut,
}

// Goal: wherever it breaks, the source's guest runs, the destination has none that is not whole, somebody says why, and
// the next try works. Method: real kills at random moments of a real migration.
#[test]
fn whatever_breaks_the_source_goes_on_and_a_retry_works() {
    let Some(bench) = Bench::new() else { return };
    let mut faults = vec![
        Fault::KillServe,
        Fault::KillTunnel,
        Fault::KillDestination,
        Fault::Cut,
        Fault::StallServe,
        Fault::StallTunnel,
    ];
    if let Ok(alone) = std::env::var("NARROWS_MIGRATE_FAULT") {
        faults.retain(|fault| format!("{fault:?}") == alone);
        assert!(!faults.is_empty(), "no fault is called {alone}");
    }
    let named = std::env::var("NARROWS_MIGRATE_FAULTS")
        .ok()
        .and_then(|n| n.parse().ok());
    let rounds = named.unwrap_or(if full() { 24 } else { 6 });
    let seed = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(1, |now| now.as_nanos() as u64);
    println!("seed {seed}");
    let mut random = Random(seed);
    let mut source = bench.start("s", false);
    eventually("the guest prints", || bench.printed("s").len() > 2);
    let mut ends = BTreeMap::<String, usize>::new();
    for round in 0..rounds {
        let fault = faults[round % faults.len()];
        let after = Duration::from_millis(20 + random.below(900) as u64);
        let mut dest = bench.start("d", true);
        let channels = channels(round / faults.len());
        let what = format!("{fault:?} after {after:?}, {channels} channels, round {round}");
        println!("{what}");
        let told = break_once(
            &bench,
            &mut source,
            &mut dest,
            fault,
            after,
            channels,
            &what,
        );
        *ends.entry(format!("{fault:?}, {told}")).or_default() += 1;
        drop(dest);
        let (again, whole) = (Instant::now(), round + 1 == rounds);
        retry(&bench, &mut source, channels, whole);
        println!("  then it moved whole, in {:?}", again.elapsed());
    }
    println!(
        "{rounds} faults, the guest at the source running on after each, and moved whole thereafter: {ends:#?}"
    );
}

/// Moves the guest as after a fault, and compares. But for the last time the source then runs it on.
fn retry(bench: &Bench, source: &mut Qemu, channels: u8, last: bool) {
    let mut dest = bench.start("d", true);
    let _way = Way::start(bench, &[]);
    begin(bench, source, &mut dest, channels, &[]);
    source.wait_migrated();
    eventually("the destination has it all", || {
        dest.status() != "inmigrate"
    });
    if last {
        return bench.check(source, &mut dest);
    }
    assert!(
        bench.memory(source) == bench.memory(&mut dest),
        "what came is not what was sent"
    );
    source.ask("cont", Value::Null);
}

/// QEMU 7.2 itself stops answering, about once in thirty such faults, when a multifd channel of its breaks; so several
/// channels are broken where another QEMU was named, and one socket here.
fn channels(turn: usize) -> u8 {
    if std::env::var_os("NARROWS_QEMU").is_some() {
        [0, 2, 4][turn % 3]
    } else {
        0
    }
}

/// Breaks a migration. The source runs the guest on however it ended, which is returned: too late, or who said why.
#[allow(
    clippy::too_many_lines,
    clippy::too_many_arguments,
    reason = "a scenario is told in one go"
)]
fn break_once(
    bench: &Bench,
    source: &mut Qemu,
    dest: &mut Qemu,
    fault: Fault,
    after: Duration,
    channels: u8,
    what: &str,
) -> &'static str {
    let flags = ["--resume-within", "0.5", "--silence", "1"];
    let serve = Way::serve(bench, &flags);
    let served = Way::served_at(&serve);
    let relay = start(["link-emulator", "-l", "127.0.0.1:0", "--to", &served]);
    let through = relay
        .heard("link from ")
        .split(' ')
        .next()
        .unwrap()
        .to_owned();
    let socket = bench.unix("s.sock").to_string();
    let tunnel = Process::start(
        narrows(
            [
                &["migrate", "tunnel", "-l", &socket, "--peer", &through],
                &flags[..],
            ]
            .concat(),
        )
        .stdin(Stdio::null()),
    );
    tunnel.heard("taking a guest at ");
    let mut way = Way { serve, tunnel };
    source.ask(
        "migrate-set-parameters",
        json!({ "max-bandwidth": 60 << 20 }),
    );
    source.set_up(channels, &[]);
    source.ask(
        "migrate-set-parameters",
        json!({ "max-bandwidth": 60 << 20 }),
    );
    dest.set_up(channels, &[]);
    dest.ask(
        "migrate-incoming",
        json!({ "uri": uri(&bench.unix("d.sock")) }),
    );
    source.ask("migrate", json!({ "uri": uri(&bench.unix("s.sock")) }));
    thread::sleep(after);
    let under_way = source.migration();
    match fault {
        Fault::KillServe => way.serve.signal(Signal::KILL),
        Fault::KillTunnel => way.tunnel.signal(Signal::KILL),
        Fault::KillDestination => dest.process.signal(Signal::KILL),
        Fault::Cut => relay.signal(Signal::KILL),
        Fault::StallServe => way.serve.signal(Signal::STOP),
        Fault::StallTunnel => way.tunnel.signal(Signal::STOP),
    }
    let mut state = String::new();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        // A tunnel that stands still holds QEMU's sockets open: nobody but its user can end that. And QEMU, where it is
        // about to finish, answers nobody until then.
        if matches!(fault, Fault::StallServe | Fault::StallTunnel) {
            scope.spawn(|| {
                let since = Instant::now();
                while since.elapsed() < Duration::from_secs(6) {
                    if ended.load(Relaxed) {
                        return;
                    }
                    thread::sleep(Duration::from_millis(20));
                }
                way.tunnel.signal(Signal::KILL);
                way.serve.signal(Signal::KILL);
            });
        }
        eventually(&format!("the migration ends: {what}"), || {
            state = source.migration();
            ["completed", "failed", "cancelled"].contains(&state.as_str())
        });
        ended.store(true, Relaxed);
    });
    if state == "completed" && matches!(fault, Fault::KillDestination) {
        // It had the guest when it was killed, and cannot be asked any more. One that had not must not count as whole.
        assert!(
            !["setup", "active"].contains(&under_way.as_str()),
            "{what}: completed without a destination"
        );
        source.ask("cont", Value::Null);
        return "it had arrived";
    }
    if state == "completed" {
        // It was too late to hurt. The destination must be whole; the guest goes back to the source for the next round.
        eventually(&format!("the destination has it all: {what}"), || {
            dest.status() != "inmigrate"
        });
        assert!(bench.memory(source) == bench.memory(dest), "{what}");
        source.ask("cont", Value::Null);
        return "it had arrived";
    }
    eventually(&format!("the guest goes on: {what}"), || {
        source.status() == "running"
    });
    let printed = bench.printed("s").len();
    eventually(&format!("the guest prints: {what}"), || {
        bench.printed("s").len() > printed
    });
    // Its sockets closed in the midst of something: QEMU gives up, or has nothing that could run.
    if let Ok(status) = dest.monitor.ask("query-status", &Value::Null) {
        assert_ne!(status["status"], "running", "{what}");
    }
    assert!(
        bench.printed("d").is_empty(),
        "the destination's guest ran: {what}"
    );
    let why = source.ask("query-migrate", Value::Null)["error-desc"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    println!("  QEMU: {why:?}");
    // Whose link or sockets broke, and which lives, says so. A destination that dies closes its sockets as one that is
    // done does: there QEMU itself is who says why.
    let told = match fault {
        Fault::KillServe | Fault::Cut | Fault::StallServe => {
            let told = || way.tunnel.said().contains("the guest stays where it is");
            eventually(&format!("the source's side says why: {what}"), told);
            "the source's side said why"
        }
        Fault::KillTunnel | Fault::StallTunnel => {
            eventually(&format!("the destination's side says why: {what}"), || {
                way.serve.said().contains("WARN")
            });
            "the destination's side said why"
        }
        Fault::KillDestination => {
            assert!(
                !why.is_empty() || way.tunnel.said().contains("the guest stays"),
                "nobody says why: {what}"
            );
            "QEMU or the source's side said why"
        }
    };
    assert!(
        !matches!(fault, Fault::KillServe | Fault::Cut) || way.tunnel.is_running(),
        "{what}"
    );
    told
}
