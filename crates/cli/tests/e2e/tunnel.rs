//! Programs that know nothing of narrows talk through it.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use narrows_testkit::data::{KINDS, make};
use tempfile::TempDir;

use crate::process::{DEADLINE, Process, alone, eventually, has, is_root, skip, start};

/// Both ends of a tunnel to `server`; dropping it ends them.
struct Tunnel {
    near: Process,
    far: Process,
    /// Where programs connect.
    address: String,
}

impl Tunnel {
    fn start(server: &str, near_flags: &[&str], far_flags: &[&str]) -> Self {
        let far = start([&["tunnel", "-l", &alone(), "--to", server], far_flags].concat());
        let (peer, _) = split(&far.heard("carrying "));
        Self::start_near(far, &peer, near_flags)
    }

    fn start_near(far: Process, peer: &str, near_flags: &[&str]) -> Self {
        let near = start([&["tunnel", "-l", "127.0.0.1:0", "--peer", peer], near_flags].concat());
        let (address, _) = split(&near.heard("carrying "));
        Self { near, far, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    fn port(&self) -> &str {
        self.address.rsplit(':').next().unwrap()
    }
}

fn split(line: &str) -> (String, String) {
    let (from, to) = line.split_once(" to ").unwrap();
    (from.into(), to.into())
}

/// Sends back what it gets, and ends its direction after the client's.
pub fn echo_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || {
                let mut stream = stream.unwrap();
                let mut from = stream.try_clone().unwrap();
                let _ = std::io::copy(&mut from, &mut stream);
                let _ = stream.shutdown(Shutdown::Write);
            });
        }
    });
    address
}

#[test]
fn many_connections_at_once_and_each_half_closes() {
    let tunnel = Tunnel::start(&echo_server(), &[], &[]);
    thread::scope(|scope| {
        for index in 0..60_usize {
            let tunnel = &tunnel;
            scope.spawn(move || {
                for round in 0..3 {
                    let bytes = make(
                        KINDS[(index + round) % 11],
                        [1, 300, 20_000, 700_000][(index + round) % 4],
                        index as u64,
                    );
                    let mut stream = tunnel.connect();
                    let mut sending = stream.try_clone().unwrap();
                    let sent = bytes.clone();
                    let writer = thread::spawn(move || {
                        sending.write_all(&sent).unwrap();
                        // The server must see this end while its own direction goes on.
                        sending.shutdown(Shutdown::Write).unwrap();
                    });
                    let mut back = Vec::new();
                    stream.read_to_end(&mut back).unwrap();
                    writer.join().unwrap();
                    assert!(
                        back == bytes,
                        "{} bytes of {} came back",
                        back.len(),
                        bytes.len()
                    );
                }
            });
        }
    });
}

#[test]
fn a_request_does_not_wait_for_more() {
    let tunnel = Tunnel::start(&echo_server(), &[], &[]);
    let mut stream = tunnel.connect();
    stream.set_nodelay(true).unwrap();
    for round in 0..200_u32 {
        stream.write_all(&round.to_le_bytes()).unwrap();
        let mut back = [0; 4];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(back, round.to_le_bytes());
    }
}

#[test]
fn a_server_that_is_away_closes_the_connection_and_not_the_tunnel() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    drop(server);
    let tunnel = Tunnel::start(&address, &[], &[]);
    let mut byte = [0];
    assert!(
        !matches!(tunnel.connect().read(&mut byte), Ok(1)),
        "nobody is there to say anything"
    );
    let server = TcpListener::bind(&address).unwrap();
    thread::spawn(move || server.accept().unwrap().0.write_all(b"!").unwrap());
    tunnel.connect().read_exact(&mut byte).unwrap();
    assert_eq!(byte, *b"!");
}

#[test]
fn connections_beyond_the_limit_are_closed_and_others_go_on() {
    let tunnel = Tunnel::start(
        &echo_server(),
        &["--connections-max", "4"],
        &["--connections-max", "4"],
    );
    let mut open: Vec<_> = (0..4).map(|_| tunnel.connect()).collect();
    let mut byte = [0];
    for stream in &mut open {
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut byte).unwrap();
    }
    let mut fifth = tunnel.connect();
    let _ = fifth.write_all(b"x");
    assert!(
        !matches!(fifth.read(&mut byte), Ok(1)),
        "a fifth connection is served"
    );
    for stream in &mut open {
        stream.write_all(b"y").unwrap();
        stream.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"y");
    }
    drop(open);
    eventually("a free place", || {
        let mut stream = tunnel.connect();
        stream.write_all(b"z").is_ok() && stream.read(&mut byte).is_ok_and(|len| len == 1)
    });
}

#[test]
fn connections_outlive_a_cut_link() {
    let far = start(["tunnel", "-l", "127.0.0.1:0", "--to", &echo_server()]);
    let (peer, _) = split(&far.heard("carrying "));
    let link = start([
        "link-emulator",
        "-l",
        "127.0.0.1:0",
        "--to",
        &peer,
        "--reset-after",
        "150000",
    ]);
    let (address, _) = split(&link.heard("link from "));
    let tunnel = Tunnel::start_near(far, &address, &["--policy", "none", "-v"]);
    let mut stream = tunnel.connect();
    let bytes = make(KINDS[4], 100_000, 1);
    for _ in 0..6 {
        stream.write_all(&bytes).unwrap();
        let mut back = vec![0; bytes.len()];
        stream.read_exact(&mut back).unwrap();
        assert!(back == bytes);
    }
    tunnel.near.heard("connected again");
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn the_far_end_may_be_started_again() {
    let server = echo_server();
    let mut tunnel = Tunnel::start(&server, &["--resume-within", "1"], &[]);
    let mut byte = [0];
    let mut stream = tunnel.connect();
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut byte).unwrap();
    tunnel.far.signal(rustix::process::Signal::KILL);
    assert!(
        !matches!(stream.read(&mut byte), Ok(1)),
        "a connection lives on without its far end"
    );
    let peer = tunnel.near.heard(" to ");
    tunnel.far = start(["tunnel", "-l", &peer, "--to", &server]);
    tunnel.far.heard("carrying ");
    eventually("a connection through the new far end", || {
        let mut stream = tunnel.connect();
        stream
            .set_read_timeout(Some(Duration::from_secs(3)))
            .unwrap();
        stream.write_all(b"y").is_ok() && stream.read(&mut byte).is_ok_and(|len| len == 1)
    });
    assert!(tunnel.near.is_running());
}

#[test]
fn iperf3_runs_unmodified() {
    if !has("iperf3") {
        return skip("iperf3 is not installed");
    }
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
        .to_string();
    let server = Process::start(
        Command::new("iperf3")
            .args(["-s", "--forceflush", "-B", "127.0.0.1", "-p", &port])
            .stdin(Stdio::null()),
    );
    eventually("iperf3 listens", || {
        TcpStream::connect(format!("127.0.0.1:{port}")).is_ok()
    });
    let tunnel = Tunnel::start(&format!("127.0.0.1:{port}"), &[], &[]);
    for direction in [&["-P", "3"][..], &["-R"]] {
        eventually("a free iperf3 server", || {
            let mut client = Command::new("iperf3");
            client
                .args(["-c", "127.0.0.1", "-p", tunnel.port(), "-t", "1", "-J"])
                .args(direction)
                .stdin(Stdio::null());
            let ended = Process::start(&mut client).wait();
            if ended.code != 0 {
                // The server takes one test at a time, and our probe was one.
                return false;
            }
            let result = ended.json();
            let bytes = result["end"]["sum_received"]["bytes"].as_f64().unwrap();
            assert!(bytes > 1e6, "{bytes} bytes in a second, {direction:?}");
            true
        });
    }
    drop(server);
}

/// PostgreSQL's programs, newest version first.
fn postgres() -> Option<PathBuf> {
    let mut versions: Vec<_> = fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .flatten()
        .map(|e| e.path().join("bin"))
        .collect();
    versions.sort();
    versions.into_iter().rev().find(|bin| {
        ["initdb", "postgres", "pgbench"]
            .iter()
            .all(|p| bin.join(p).is_file())
    })
}

/// The server refuses to run as root, and a client need not.
fn as_postgres(bin: &Path, program: &str, home: &Path) -> Command {
    let mut command = if is_root() {
        let mut command = Command::new("setpriv");
        command
            .args([
                "--reuid=postgres",
                "--regid=postgres",
                "--clear-groups",
                "--",
            ])
            .arg(bin.join(program));
        command
    } else {
        Command::new(bin.join(program))
    };
    command
        .current_dir(home)
        .env("HOME", home)
        .stdin(Stdio::null());
    command
}

#[test]
fn postgresql_and_pgbench_run_unmodified() {
    let Some(bin) = postgres() else {
        return skip("PostgreSQL's server and pgbench are not installed");
    };
    if is_root() && !has("setpriv") {
        return skip(
            "PostgreSQL does not run as root, and there is no setpriv to become someone else",
        );
    }
    let dir = TempDir::new().unwrap();
    let home = dir.path().join("pg");
    fs::create_dir(&home).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    if is_root() {
        let owned = Command::new("chown")
            .args(["postgres:postgres"])
            .arg(&home)
            .status();
        if !owned.is_ok_and(|status| status.success()) {
            return skip("there is no user postgres");
        }
    }
    let data = home.join("data");
    let initdb = ["-A", "trust", "-U", "bench", "--no-sync", "-D"];
    Process::start(as_postgres(&bin, "initdb", &home).args(initdb).arg(&data))
        .wait()
        .expect(0);
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
        .to_string();
    let _server = Process::start(
        as_postgres(&bin, "postgres", &home)
            .arg("-D")
            .arg(&data)
            .args([
                "-p",
                &port,
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                "unix_socket_directories=",
                "-c",
                "fsync=off",
            ]),
    );
    let tunnel = Tunnel::start(&format!("127.0.0.1:{port}"), &[], &[]);
    let bench = |args: &[&str]| {
        let mut command = as_postgres(&bin, "pgbench", &home);
        command
            .args(["-h", "127.0.0.1", "-p", tunnel.port(), "-U", "bench"])
            .args(args)
            .arg("postgres");
        Process::start(&mut command).wait()
    };
    eventually("PostgreSQL answers", || {
        bench(&["-i", "-s", "1", "-q"]).code == 0
    });
    let result = bench(&["-c", "4", "-j", "2", "-T", "2"]).expect(0);
    let text = String::from_utf8(result.stdout).unwrap();
    assert!(
        text.contains("number of failed transactions: 0") && text.contains("tps ="),
        "{text}"
    );
    println!(
        "{}",
        text.lines().find(|line| line.starts_with("tps")).unwrap()
    );
}
