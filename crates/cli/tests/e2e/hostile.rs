//! Strangers and silent peers do not keep anything from those who may use a server.

use std::{
    fs,
    io::Read,
    net::TcpStream,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::process::{NARROWS, Process, full, has, is_root, run, skip, start};

/// Keys and some files.
fn scene() -> (TempDir, String, String) {
    let dir = TempDir::new().unwrap();
    let keys = dir.path().join("keys");
    run(["keys", keys.to_str().unwrap()]).expect(0);
    let many = dir.path().join("many");
    fs::create_dir(&many).unwrap();
    for at in 0..300 {
        fs::write(many.join(format!("{at}")), format!("{at}")).unwrap();
    }
    let psk = keys
        .join("keys.psk")
        .into_os_string()
        .into_string()
        .unwrap();
    (dir, psk, many.into_os_string().into_string().unwrap())
}

/// A program under limits of `ulimit`, as somebody else than root where `user` says so.
fn limited(limits: &str, words: &[&str], home: &std::path::Path, user: bool) -> Process {
    let mut command = if user && is_root() {
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid=65533",
            "--regid=65533",
            "--clear-groups",
            "--",
            "bash",
        ]);
        command
    } else {
        Command::new("bash")
    };
    let program = home.join("narrows");
    if !program.exists() {
        fs::copy(NARROWS, &program).unwrap();
    }
    let script = format!("ulimit {limits}; exec {} \"$@\"", program.display());
    command
        .args(["-c", &script, "x"])
        .args(words)
        .stdin(Stdio::null());
    Process::start(&mut command)
}

// Goal: with strangers kept up by the hundred at a small limit of files, authenticated transfers are whole and hardly
// slower, and what was under way goes on. Method: half-open connections, renewed as they are dropped; the soft limit of
// files stays what it is because the hard one is the same.
#[test]
fn strangers_without_a_key_do_not_hold_up_transfers() {
    if !has("bash") {
        return skip("no bash to set a limit with");
    }
    let (dir, psk, many) = scene();
    let into = dir.path().join("in");
    let words = [
        "recv",
        "--keep",
        "-l",
        "127.0.0.1:0",
        "--tls-psk",
        &psk,
        into.to_str().unwrap(),
    ];
    let mut receiver = limited("-n 256", &words, dir.path(), false);
    let address = receiver.address();
    let send = || {
        let begun = Instant::now();
        run([
            "send",
            "-q",
            "--checksum",
            "--tls-psk",
            &psk,
            &many,
            &address,
        ])
        .expect(0);
        begun.elapsed()
    };
    send();
    let usual = send();
    let (seconds, strangers) = if full() { (60, 1500) } else { (6, 400) };
    let until = Instant::now() + Duration::from_secs(seconds);
    let flood = {
        let address = address.clone();
        thread::spawn(move || {
            let mut held = std::collections::VecDeque::new();
            while Instant::now() < until {
                if let Ok(stream) = TcpStream::connect(&address) {
                    held.push_back(stream);
                }
                if held.len() > strangers {
                    held.pop_front();
                }
                thread::sleep(Duration::from_millis(1));
            }
        })
    };
    let (mut times, mut worst) = (0, Duration::ZERO);
    while Instant::now() < until {
        worst = worst.max(send());
        times += 1;
    }
    flood.join().unwrap();
    println!("{times} transfers of {usual:?}, the slowest {worst:?}, beside {strangers} strangers");
    assert!(
        worst < usual * 5 + Duration::from_secs(3),
        "{usual:?} became {worst:?}"
    );
    assert!(receiver.is_running());
}

// Goal: at a limit of threads no process ends and nothing panics; when there are some again, it serves. Method: a user
// with few processes, strangers who take what they can, for each kind of server.
#[test]
fn a_limit_of_threads_ends_no_server() {
    if !is_root() || !has("setpriv") || !has("bash") {
        return skip("a limit of threads is a user's own: needs root and setpriv");
    }
    let (dir, psk, many) = scene();
    let command = Command::new("chown")
        .args(["-R", "65533"])
        .arg(dir.path())
        .status();
    assert!(command.unwrap().success());
    let into = dir
        .path()
        .join("in")
        .into_os_string()
        .into_string()
        .unwrap();
    let any = "127.0.0.1:0";
    let servers: [&[&str]; 3] = [
        &["recv", "--keep", "-l", any, "--tls-psk", &psk, &into],
        &[
            "tunnel",
            "-l",
            any,
            "--to",
            "127.0.0.1:1",
            "--tls-psk",
            &psk,
        ],
        &["offload", "serve", "-l", any, "--tls-psk", &psk],
    ];
    for words in servers {
        for threads in [14, 20, 28] {
            let mut server = limited(&format!("-u {threads}"), words, dir.path(), true);
            let address = match words[0] {
                "tunnel" => server.heard("carrying "),
                _ => server.heard("listening on "),
            };
            let address = address.split(' ').next().unwrap().to_owned();
            let held: Vec<_> = (0..60)
                .filter_map(|_| TcpStream::connect(&address).ok())
                .collect();
            for _ in 0..3 {
                run([
                    "send",
                    "-q",
                    "--tls-psk",
                    &psk,
                    "--resume-within",
                    "0",
                    &many,
                    &address,
                ]);
            }
            assert!(
                server.is_running(),
                "{words:?} at {threads} threads: {}",
                server.said()
            );
            assert!(!server.said().contains("panicked"), "{}", server.said());
            drop(held);
        }
    }
}

// Goal: sessions that say nothing do not hold up one that does, and above the bound one is told that the receiver is
// busy, or takes the place of one that was silent for long.
#[test]
fn silent_sessions_do_not_hold_up_others() {
    let (dir, psk, many) = scene();
    let into = dir.path().join("in");
    let words = [
        "--senders-max",
        "42",
        "--idle-limit",
        "3",
        "--tls-psk",
        &psk,
    ];
    let recv = [
        "recv",
        "--keep",
        "-l",
        "127.0.0.1:0",
        into.to_str().unwrap(),
    ];
    let receiver = start([&recv[..], &words].concat());
    let address = receiver.address();
    // The near end of a tunnel is a session that opens no channel until somebody connects to it.
    let silent = |_| {
        let near = start([
            "tunnel",
            "-q",
            "-l",
            "127.0.0.1:0",
            "--peer",
            &address,
            "--tls-psk",
            &psk,
        ]);
        near.heard("carrying ");
        near
    };
    let mut held: Vec<_> = (0..41).map(silent).collect();
    let begun = Instant::now();
    let send = || run(["send", "-q", "--tls-psk", &psk, &many, &address]);
    send().expect(0);
    println!("beside 41 silent sessions: {:?}", begun.elapsed());
    held.push(silent(41));
    let busy = send();
    assert!(
        busy.code == 6 && busy.stderr.contains("busy") || busy.code == 0,
        "{busy:?}"
    );
    thread::sleep(Duration::from_secs(4));
    send().expect(0);
}

// Goal: without --keep, a session that says nothing does not take the one place.
#[test]
fn a_silent_session_does_not_take_the_one_place() {
    let (dir, psk, many) = scene();
    let into = dir.path().join("in");
    let recv = [
        "recv",
        "-l",
        "127.0.0.1:0",
        "--tls-psk",
        &psk,
        into.to_str().unwrap(),
    ];
    let receiver = start(recv);
    let address = receiver.address();
    let near = start([
        "tunnel",
        "-q",
        "-l",
        "127.0.0.1:0",
        "--peer",
        &address,
        "--tls-psk",
        &psk,
    ]);
    near.heard("carrying ");
    run(["send", "-q", "--tls-psk", &psk, &many, &address]).expect(0);
    receiver.wait().expect(0);
}

// Goal: a control socket that another user made is not believed, and by default none is where anybody can make one.
#[test]
fn a_control_socket_of_another_user_is_not_believed() {
    if !is_root() || !has("setpriv") {
        return skip("another user's socket needs root and setpriv");
    }
    let dir = TempDir::new().unwrap();
    fs::set_permissions(
        dir.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    let path = dir.path().join("c");
    let words = [
        "memory",
        "serve",
        "--size",
        "1M",
        "--listen",
        "127.0.0.1:0",
        "--control",
    ];
    let squat = limited(
        "-n 256",
        &[&words[..], &[path.to_str().unwrap()]].concat(),
        dir.path(),
        true,
    );
    squat.heard("to watch it");
    run(["memory", "stat", "--control", path.to_str().unwrap()])
        .expect(1)
        .says("belongs to another user");
}

// Goal: what a stranger says in place of a handshake never reaches a session. Method: bytes of other protocols.
#[test]
fn bytes_of_other_protocols_are_refused_within_the_limits() {
    let (dir, psk, many) = scene();
    let into = dir.path().join("in");
    let receiver = start([
        "recv",
        "-l",
        "127.0.0.1:0",
        "--tls-psk",
        &psk,
        into.to_str().unwrap(),
    ]);
    let address = receiver.address();
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"SSH-2.0-x\r\n",
        b"NRWPAIR1\x00\x21",
        b"NRWSPSK1\xff\xff",
    ] {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        std::io::Write::write_all(&mut stream, bytes).unwrap();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() <= 64, "{answer:?}");
    }
    run(["send", "-q", "--tls-psk", &psk, &many, &address]).expect(0);
    receiver.wait().expect(0);
}
