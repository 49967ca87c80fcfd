//! Programs, clients and servers that go wrong.

use std::{net::TcpListener, thread, time::Duration};

use narrows::{Acceptor, Auth, ChannelWriter, Engine, SessionListener};
use narrows_gpu_server::settings;
use rustix::process::Signal;
use std::io::Write as _;

use super::*;

/// Waits for the server's word of a session's end.
fn ends(server: &Process, words: &str) {
    eventually("the session's end is told", || {
        server
            .said()
            .lines()
            .any(|line| line.contains("is freed") && line.contains(words))
    });
}

// Goal: wrong programs get the errors that CUDA's documentation names, and harm nobody. Method: one of each kind, then
// one that is right.
#[test]
fn wrong_programs_get_their_errors_and_the_server_goes_on() {
    let gpu = Gpu::new(&["--budget", "50000000"]);
    let Some(wrong) = build("wrong", gpu.dir.path()) else {
        return;
    };
    gpu.run(&wrong, &["address"])
        .expect(0)
        .says("kernel touch: illegal address");
    gpu.run(&wrong, &["endless"])
        .expect(0)
        .says("kernel endless: the launch's budget");
    gpu.run(&wrong, &["trap"])
        .expect(0)
        .says("kernel stop: the kernel trapped");
    gpu.run(&wrong, &["image"]).expect(0);
    gpu.run(&wrong, &["table"])
        .expect(0)
        .says("the documented driver API only");
    let vadd = build("vadd", gpu.dir.path()).unwrap();
    gpu.run(&vadd, &["10000"]).expect(0);
}

// Goal: what a killed program had is free again, all of it. Method: kill one that holds a known number of things, read
// the server's count, and let another have all the memory.
#[test]
fn a_killed_client_leaves_nothing_behind() {
    let gpu = Gpu::new(&["--memory", "64M"]);
    let Some(hold) = build("hold", gpu.dir.path()) else {
        return;
    };
    for _ in 0..2 {
        let first = gpu.start(&hold, &["60"]);
        eventually("it holds memory", || {
            gpu.server.said().matches("a session begins").count() > 0
        });
        thread::sleep(Duration::from_millis(300));
        // The program is a child of the one that we started.
        let children = format!("/proc/{0}/task/{0}/children", first.id());
        let child: i32 = fs::read_to_string(children)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let child = rustix::process::Pid::from_raw(child).unwrap();
        rustix::process::kill_process(child, Signal::KILL).unwrap();
        assert_eq!(first.wait().code, 128 + 9);
        ends(
            &gpu.server,
            "allocations=60 bytes=62914560 streams=1 events=0 modules=1",
        );
    }
}

// Goal: two clients that want everything: one gets an error with a name, neither sees the other's memory. Method: one
// fills the memory with a pattern and dies; meanwhile and afterwards others look.
#[test]
fn clients_that_exhaust_memory_get_errors_and_only_zeros() {
    let gpu = Gpu::new(&["--memory", "64M"]);
    let Some(hold) = build("hold", gpu.dir.path()) else {
        return;
    };
    let fresh = build("fresh", gpu.dir.path()).unwrap();
    let mut words = vec![
        "gpu",
        "run",
        "--to",
        &gpu.address,
        "--",
        hold.to_str().unwrap(),
    ];
    words.push("1000");
    let mut greedy =
        Process::start_with(crate::process::narrows(&words).stdin(Stdio::null()), false);
    let mut out = std::io::BufReader::new(greedy.stdout());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert_eq!(line, "full 2\n");
    gpu.run(&fresh, &[]).expect(3).says("is 2, not 0");
    drop(greedy);
    // The one that we killed leaves its own child to the end of its connection.
    let child = gpu.server.said();
    drop(child);
    let ended = start(["gpu", "info", "--to", &gpu.address]).wait();
    ended.expect(0);
}

#[test]
fn freed_memory_comes_back_as_zeros_and_forked_children_are_told() {
    let gpu = Gpu::new(&["--memory", "64M"]);
    let Some(fresh) = build("fresh", gpu.dir.path()) else {
        return;
    };
    for _ in 0..2 {
        gpu.run(&fresh, &[]).expect(0).says("was forked");
    }
}

// Goal: a server that vanishes is an error of the program's calls, not a hang. Method: kill it while a program waits
// for a kernel that never ends.
#[test]
fn a_server_that_vanishes_is_an_error() {
    let gpu = Gpu::new(&["--budget", "1000000000000"]);
    let Some(wrong) = build("wrong", gpu.dir.path()) else {
        return;
    };
    let waits = gpu.start(&wrong, &["endless"]);
    eventually("its session begins", || {
        gpu.server.said().contains("a session begins")
    });
    thread::sleep(Duration::from_millis(300));
    gpu.server.signal(Signal::KILL);
    waits
        .wait()
        .expect(3)
        .says("the connection to the GPU is lost");
}

/// A server that speaks the session's protocol, and then says `bytes`.
fn liar(bytes: &'static [u8], then_hello: bool) -> String {
    let address = narrows::parse("127.0.0.1:0").unwrap();
    let acceptor = Acceptor::new(Engine::new(1), settings(narrows::Settings::default()));
    let listener = SessionListener::start(&address, Auth::None, acceptor).unwrap();
    let at = listener.local().to_string();
    thread::spawn(move || {
        for endpoint in listener.sessions() {
            let Ok(Some(mut incoming)) = endpoint.accept() else {
                continue;
            };
            if then_hello {
                welcome(&mut incoming.writer);
            }
            let _ = incoming
                .writer
                .write_all(bytes)
                .and_then(|()| incoming.writer.flush());
            while let Ok(Some(_)) = incoming.reader.next_chunk() {}
        }
    });
    at
}

fn welcome(writer: &mut ChannelWriter) {
    let info = narrows_gpu_server::host::Host::start(narrows_gpu_server::host::Options::default())
        .unwrap()
        .open(std::sync::Arc::new(|_| {}))
        .unwrap()
        .info();
    let mut bytes = Vec::new();
    narrows_gpu_wire::Reply::Welcome(info).put(&mut bytes);
    let _ = writer.write_all(&bytes);
}

// Goal: a lying server cannot make the library panic, hang or hold what it names. Method: garbage instead of a welcome
// and after it.
#[test]
fn lying_servers_are_errors_in_words() {
    let dir = TempDir::new().unwrap();
    let Some(vadd) = build("vadd", dir.path()) else {
        return;
    };
    let run = |address: &str| {
        let words = ["gpu", "run", "--to", address, "--", vadd.to_str().unwrap()];
        start(words).wait().expect(3)
    };
    run(&liar(&[255; 64], false)).says("refused from the server: a message of 4294967295 bytes");
    run(&liar(&[1, 0, 0, 0, 99], false)).says("unknown kind 99");
    run(&liar(&[255; 64], true)).says("the connection to the GPU is lost");
    // An answer to a call that nobody made, reads that nobody asked for: taken no notice of, then the end.
    let odd: &[u8] = &[
        13, 0, 0, 0, 5, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 77,
    ];
    run(&liar(odd, true)).says("the connection to the GPU is lost");
    // It keeps pieces without end, it says: what is on its list is only what was sent.
    let endless: &[u8] = &[
        9, 0, 0, 0, 11, 255, 255, 255, 255, 255, 255, 255, 255, 1, 0, 0, 0, 99,
    ];
    run(&liar(endless, true)).says("the connection to the GPU is lost");
}

#[test]
fn a_listener_that_says_nothing_is_given_up() {
    let dir = TempDir::new().unwrap();
    let Some(vadd) = build("vadd", dir.path()) else {
        return;
    };
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    assert!(DEADLINE > Duration::from_secs(30));
    let words = ["gpu", "run", "--to", &address, "--", vadd.to_str().unwrap()];
    start(words).wait().expect(3).says("cannot use the GPU");
}
