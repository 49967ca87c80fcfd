//! `narrows memory` as its clients see it: libnbd's tools, fio, a file system, and clients that mean harm.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{
    Ended, NARROWS, Process, eventually, has, is_root, narrows, run, skip, start,
};

/// A server in a directory of its own.
struct Disk {
    server: Process,
    dir: TempDir,
}

impl Disk {
    fn start(more: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let at = |name: &str| {
            dir.path()
                .join(name)
                .into_os_string()
                .into_string()
                .unwrap()
        };
        let (socket, control) = (at("socket"), at("control"));
        let mut args = vec!["memory", "serve", "--unix", &socket, "--control", &control];
        args.extend(more);
        let server = start(args);
        server.heard("to watch it");
        Self { server, dir }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.at("socket").display())
    }

    fn stat(&self) -> serde_json::Value {
        run([
            "memory",
            "stat",
            "--json",
            "--control",
            self.at("control").to_str().unwrap(),
        ])
        .expect(0)
        .json()
    }

    fn stop(self) -> Ended {
        self.server.signal(Signal::INT);
        self.server.wait().expect(0)
    }
}

fn tool(program: &str, args: &[&str]) -> Ended {
    Process::start(Command::new(program).args(args).stdin(Stdio::null())).wait()
}

/// Runs a Python script with libnbd's `h` connected; `None`, and a word on why, where that is not there.
fn nbdsh(uri: &str, script: &str) -> Option<Ended> {
    if !has_nbdsh() {
        skip("nbdsh (packages libnbd-bin and python3-libnbd) is missing");
        return None;
    }
    let options = "h.set_strict_mode(0)\nh.set_request_structured_replies(True)\n";
    let script =
        format!("h.add_meta_context('base:allocation')\n{options}h.connect_uri('{uri}')\n{script}");
    Some(Process::start(&mut python(&["-c", &script])).wait())
}

/// `nbdsh` with the system's Python, which has libnbd's module; another may come first in the path.
fn python(args: &[&str]) -> Command {
    let mut command = Command::new("nbdsh");
    let path = format!("/usr/bin:{}", std::env::var("PATH").unwrap_or_default());
    command.args(args).env("PATH", path).stdin(Stdio::null());
    command
}

fn has_nbdsh() -> bool {
    has("nbdsh") && Process::start(&mut python(&["-c", "pass"])).wait().code == 0
}

#[test]
fn nbdinfo_and_nbdcopy_both_ways() {
    if !has("nbdinfo") || !has("nbdcopy") {
        return skip("nbdinfo and nbdcopy (package libnbd-bin) are missing");
    }
    let disk = Disk::start(&["--size", "48M", "--export", "second=1M"]);
    let info = tool("nbdinfo", &["--json", "--list", &disk.uri()])
        .expect(0)
        .json();
    let exports = info["exports"].as_array().unwrap();
    assert_eq!(exports.len(), 2, "{info}");
    assert_eq!(
        (&exports[0]["export-size"], &exports[1]["export-size"]),
        (&(48 << 20).into(), &(1 << 20).into())
    );
    for can in [
        "can_cache",
        "can_df",
        "can_fast_zero",
        "can_flush",
        "can_fua",
        "can_multi_conn",
        "can_trim",
        "can_zero",
    ] {
        assert_eq!(exports[0][can], true, "{can}");
    }
    let image: Vec<u8> = (0..10_000_000_u32)
        .flat_map(|i| {
            if i % 50_000 < 20_000 {
                [0; 4]
            } else {
                i.to_le_bytes()
            }
        })
        .collect();
    let (from, back) = (disk.at("from"), disk.at("back"));
    fs::write(&from, &image).unwrap();
    tool("nbdcopy", &["--flush", from.to_str().unwrap(), &disk.uri()]).expect(0);
    tool(
        "nbdcopy",
        &["--connections=4", &disk.uri(), back.to_str().unwrap()],
    )
    .expect(0);
    let copied = fs::read(&back).unwrap();
    assert!(
        copied.len() == 48 << 20
            && copied[..image.len()] == image
            && copied[image.len()..].iter().all(|&b| b == 0)
    );
    let map = tool("nbdinfo", &["--map", &disk.uri()]).expect(0);
    assert!(
        String::from_utf8_lossy(&map.stdout).contains("hole,zero"),
        "{map:?}"
    );
    let stat = disk.stat();
    let store = &stat["stores"][0];
    assert!(store["ratio"].as_f64().unwrap() > 2.0, "{stat}");
    assert_eq!(
        (&stat["schema"], &stat["stores"][1]["name"]),
        (&"narrows.memory/1".into(), &"second".into())
    );
    disk.stop().says("stopped:");
}

#[test]
fn every_command_through_nbdsh() {
    let disk = Disk::start(&["--size", "16M"]);
    let script = r"
assert h.get_size() == 16 << 20 and h.get_structured_replies_negotiated()
assert h.get_block_size(nbd.SIZE_MINIMUM) == 1 and h.get_block_size(nbd.SIZE_MAXIMUM) == 32 << 20
data = bytes(i % 251 + 1 for i in range(100000))
h.pwrite(data, 1234)
assert h.pread(100000, 1234) == data
assert h.pread(100000, 1234, nbd.CMD_FLAG_DF) == data
h.pwrite(b'fua', 5, nbd.CMD_FLAG_FUA)
assert h.pread(10, 0) == bytes(5) + b'fua' + bytes(2)
h.flush()
h.cache(65536, 0)
h.trim(8192, 8192)
assert h.pread(8192, 8192) == bytes(8192)
h.zero(1000, 20000)
h.zero(8192, 32768, nbd.CMD_FLAG_NO_HOLE)
h.zero(8192, 65536, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_FUA)
assert h.pread(1000, 20000) == bytes(1000) and h.pread(1, 21000) == data[21000 - 1234:][:1]
found = []
def extents(context, offset, entries, error):
    assert context == nbd.CONTEXT_BASE_ALLOCATION and offset == 0
    found.extend(zip(entries[::2], entries[1::2]))
h.block_status(16 << 20, 0, extents)
assert found[0] == (8192, 0) and (8192, 3) in found and (8192, 2) in found, found
assert sum(length for length, _ in found) == 16 << 20
found.clear()
h.block_status(16 << 20, 0, extents, nbd.CMD_FLAG_REQ_ONE)
assert len(found) == 1
def fails(number, call, *args):
    try: call(*args)
    except nbd.Error as error: assert error.errnum == number, (error.errnum, number)
    else: raise AssertionError('it worked')
import errno
fails(errno.EINVAL, h.pread, 10, (16 << 20) - 5)
fails(errno.ENOSPC, h.pwrite, b'0123456789', (16 << 20) - 5)
fails(errno.ENOSPC, h.zero, 10, (16 << 20) - 5)
fails(errno.EINVAL, h.trim, 10, 1 << 60)
assert h.pread(10, 1234) == data[:10]
h.shutdown()
";
    if let Some(ended) = nbdsh(&disk.uri(), script) {
        ended.expect(0);
    }
    disk.stop();
}

#[test]
fn a_file_system_through_nbdfuse_and_a_loop_device() {
    let missing = [
        "nbdfuse",
        "losetup",
        "mkfs.ext4",
        "mount",
        "fstrim",
        "e2fsck",
    ]
    .into_iter()
    .find(|program| !has(program));
    if let (false, _) | (_, Some(_)) = (is_root(), missing) {
        return skip(&format!(
            "a file system needs root, loop devices and {}",
            missing.unwrap_or("the right to mount")
        ));
    }
    let disk = Disk::start(&["--size", "256M", "--idle-after", "1"]);
    let (fuse, mnt) = (disk.at("fuse"), disk.at("mnt"));
    fs::create_dir(&fuse).unwrap();
    fs::create_dir(&mnt).unwrap();
    let nbdfuse = Process::start(
        Command::new("nbdfuse")
            .arg(&fuse)
            .arg(disk.uri())
            .stdin(Stdio::null()),
    );
    eventually("nbdfuse mounts", || fuse.join("nbd").exists());
    let made = tool(
        "losetup",
        &["--find", "--show", fuse.join("nbd").to_str().unwrap()],
    );
    if made.code != 0 {
        let _ = tool("umount", &[fuse.to_str().unwrap()]);
        return skip(&format!("no loop device here: {}", made.stderr));
    }
    let device = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let script = format!(
        "set -e; mkfs.ext4 -q {device}; mount {device} {mnt}
        cp -r {sources} {mnt}/one; head -c 20000000 /dev/urandom > {mnt}/noise; sync; sleep 3
        umount {mnt}; mount {device} {mnt}
        cp -r {mnt}/one {mnt}/two; rm -r {mnt}/one; fstrim {mnt}; sync
        umount {mnt}; mount {device} {mnt}
        diff -r {sources} {mnt}/two; cp {mnt}/noise {dir}/noise
        umount {mnt}; e2fsck -fn {device} >&2",
        mnt = mnt.display(),
        sources = sources.display(),
        dir = disk.dir.path().display(),
    );
    let ended = tool("bash", &["-c", &script]);
    let _ = tool("umount", &[mnt.to_str().unwrap()]);
    tool("losetup", &["--detach", &device]).expect(0);
    let _ = tool("umount", &[fuse.to_str().unwrap()]);
    nbdfuse.wait();
    ended.expect(0);
    let stat = disk.stat();
    assert!(
        stat["stores"][0]["io_stat"]["notify_free"]
            .as_u64()
            .unwrap()
            > 100,
        "{stat}"
    );
    disk.stop();
}

#[test]
fn fio_verifies_what_sixteen_connections_write() {
    if !has("fio") || !String::from_utf8_lossy(&tool("fio", &["--enghelp"]).stdout).contains("nbd")
    {
        return skip("fio with the nbd engine is missing");
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/memory/verify.sh");
    for backing in ["", "1"] {
        let mut command = Command::new(&script);
        command
            .arg("4")
            .env("NARROWS", NARROWS)
            .env("BACKING", backing)
            .stdin(Stdio::null());
        Process::start(&mut command).wait().expect(0);
    }
}

#[test]
fn a_server_that_dies_leaves_clients_with_an_error_and_no_hang() {
    let disk = Disk::start(&["--size", "64M"]);
    if !has_nbdsh() {
        return skip("nbdsh (packages libnbd-bin and python3-libnbd) is missing");
    }
    let script = "
import sys
try:
    while True:
        for at in range(0, 64 << 20, 65536): h.pwrite(bytes([at >> 16 & 255]) * 65536, at)
        print('round', file=sys.stderr, flush=True)
except nbd.Error as error:
    print('told:', error, file=sys.stderr, flush=True)
    sys.exit(7)
";
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let args = [
                "-c",
                &format!("h.connect_uri('{}')", disk.uri()),
                "-c",
                script,
            ];
            let client = Process::start(&mut python(&args));
            client.heard("round");
            client
        })
        .collect();
    disk.server.signal(Signal::KILL);
    for client in clients {
        client.wait().expect(7).says("told:");
    }
}

#[test]
fn the_memory_limit_is_told_as_enospc_and_loses_nothing() {
    let disk = Disk::start(&["--size", "256M", "--mem-limit", "8M"]);
    let script = r"
import os, errno
kept = {}
refused = 0
for page in range(4000):
    data = os.urandom(4096)
    try: h.pwrite(data, page * 4096)
    except nbd.Error as error:
        assert error.errnum == errno.ENOSPC, error
        refused += 1
    else: kept[page] = data
assert refused > 1000 and len(kept) > 1800, (refused, len(kept))
for page, data in kept.items(): assert h.pread(4096, page * 4096) == data, page
h.trim(100 * 4096, 0)
h.pwrite(b'again' * 1000, 0)
";
    if let Some(ended) = nbdsh(&disk.uri(), script) {
        ended.expect(0);
        let stat = disk.stat();
        let mm = &stat["stores"][0]["mm_stat"];
        assert!(mm["mem_used_max"].as_u64().unwrap() <= 8 << 20, "{stat}");
        assert!(
            stat["stores"][0]["io_stat"]["failed_writes"]
                .as_u64()
                .unwrap()
                > 1000,
            "{stat}"
        );
    }
    disk.stop();
}

#[test]
fn a_device_with_something_on_it_is_no_backing_and_an_empty_one_is_empty_again_afterwards() {
    if !is_root() || !has("losetup") {
        return skip("a block device needs root and losetup");
    }
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    // As btrfs leaves it: nothing in the first 64 KiB.
    let mut content = vec![0; 4 << 20];
    content[0x1_0040..][..8].copy_from_slice(b"_BHRfS_M");
    fs::write(&image, &content).unwrap();
    let made = tool("losetup", &["--find", "--show", image.to_str().unwrap()]);
    if made.code != 0 {
        return skip(&format!("no loop device here: {}", made.stderr));
    }
    let device = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let socket = dir.path().join("socket");
    let refused = run([
        "memory",
        "serve",
        "--size",
        "1M",
        "--backing",
        &device,
        "--unix",
        socket.to_str().unwrap(),
    ]);
    let untouched = fs::read(&device).unwrap() == content;
    fs::write(&device, vec![0; 4 << 20]).unwrap();
    let disk = Disk::start(&[
        "--size",
        "1M",
        "--backing",
        &device,
        "--metrics",
        "127.0.0.1:0",
    ]);
    let marked = fs::read(&device).unwrap().starts_with(b"narrows");
    disk.stop();
    let empty = fs::read(&device).unwrap() == [0; 4 << 20];
    tool("losetup", &["--detach", &device]).expect(0);
    refused.expect(1).says("neither empty nor");
    assert!(untouched && marked && empty, "{untouched} {marked} {empty}");
}

#[test]
fn a_time_in_which_no_page_can_go_cold_is_wrong_usage() {
    for time in ["0", "0.09"] {
        run(["memory", "serve", "--size", "1M", "--idle-after", time])
            .expect(2)
            .says("less than 0.1 seconds");
    }
}

// Goal: who asks at a bad moment is answered later, and does not keep others from asking. Method: the server may have
// two descriptors more than it has; clients take them, one asks then, and the clients leave.
#[test]
fn stat_is_answered_again_when_descriptors_are_free_again() {
    if !has("prlimit") {
        return skip("prlimit changes the limit of a running process");
    }
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (socket, control) = (at("socket"), at("control"));
    let served = ["memory", "serve", "--size", "1M", "--unix", &socket];
    let server = start([&served[..], &["--control", &control]].concat());
    server.heard("to watch it");
    let open = fs::read_dir(format!("/proc/{}/fd", server.id())).unwrap();
    let limit = format!("--nofile={}", open.count() + 2);
    tool("prlimit", &["--pid", &server.id().to_string(), &limit]).expect(0);
    let held: Vec<_> = (0..8)
        .map(|_| UnixStream::connect(&socket).unwrap())
        .collect();
    eventually("no descriptor is left", || {
        server.said().contains("cannot accept")
    });
    let asking = start(["memory", "stat", "--json", "--control", &control]);
    drop(held);
    asking.wait().expect(0);
    run(["memory", "stat", "--json", "--control", &control]).expect(0);
}

#[test]
fn only_clients_with_a_certificate_get_through_tls() {
    let dir = TempDir::new().unwrap();
    let keys = dir
        .path()
        .join("keys")
        .into_os_string()
        .into_string()
        .unwrap();
    run(["keys", &keys]).expect(0);
    fs::set_permissions(
        format!("{keys}/server-key.pem"),
        fs::Permissions::from_mode(0o640),
    )
    .unwrap();
    let disk = Disk::start(&[
        "--size",
        "1M",
        "--listen",
        "127.0.0.1:0",
        "--tls-certificates",
        &keys,
    ]);
    let uri = disk.server.heard("nbds://");
    let port = uri.trim_end_matches('/').rsplit_once(':').unwrap().1;
    if !has("nbdinfo") {
        return skip("nbdinfo is missing");
    }
    let trusted = format!("nbds://localhost:{port}/?tls-certificates={keys}");
    let size = tool("nbdinfo", &["--size", &trusted]).expect(0);
    assert_eq!(String::from_utf8_lossy(&size.stdout).trim(), "1048576");
    let others = dir
        .path()
        .join("others")
        .into_os_string()
        .into_string()
        .unwrap();
    run(["keys", &others]).expect(0);
    let stranger = format!("nbds://localhost:{port}/?tls-certificates={others}");
    assert_ne!(tool("nbdinfo", &["--size", &stranger]).code, 0);
    // On loopback TLS is offered and not required.
    tool("nbdinfo", &["--size", &format!("nbd://localhost:{port}")]).expect(0);
    disk.stop().says("server-key.pem").says("chmod 600");
    run(["memory", "serve", "--size", "1M", "--listen", "0.0.0.0:0"])
        .expect(2)
        .says("--tls-certificates");
}

// Goal: strangers who say nothing keep no client with a certificate waiting. Method: 64 and 500 of them, held open and
// started anew as they are dropped; a hundred clients one after the other, each from the connection to the size over TLS,
// in one process so that starting it is not measured.
#[test]
fn silent_strangers_keep_no_tls_client_waiting() {
    if !has_nbdsh() {
        return skip("nbdsh (packages libnbd-bin and python3-libnbd) is missing");
    }
    let dir = TempDir::new().unwrap();
    let keys = dir.path().join("keys").to_str().unwrap().to_owned();
    run(["keys", &keys]).expect(0);
    let disk = Disk::start(&[
        "--size",
        "1M",
        "--listen",
        "127.0.0.1:0",
        "--tls-certificates",
        &keys,
    ]);
    let uri = disk.server.heard("nbds://");
    let port = uri.trim_end_matches('/').rsplit_once(':').unwrap().1;
    let script = format!(
        r"
import nbd, socket, time
def stranger(): return socket.create_connection(('127.0.0.1', {port}))
for count in (64, 500):
    silent = [stranger() for _ in range(count)]
    times = []
    for i in range(100):
        silent[i % count].close()
        silent[i % count] = stranger()
        begun = time.monotonic()
        h = nbd.NBD()
        h.set_uri_allow_local_file(True)
        h.connect_uri('nbds://localhost:{port}/?tls-certificates={keys}')
        assert h.get_tls_negotiated() and h.get_size() == 1 << 20
        h.shutdown()
        times.append(time.monotonic() - begun)
    print(f'{{count}} silent strangers: the slowest of 100 clients was served in {{max(times) * 1e3:.0f}} ms')
    assert max(times) < 0.5, times
    for one in silent: one.close()
"
    );
    let nbdsh = Process::start(&mut python(&["-c", &script]))
        .wait()
        .expect(0);
    print!("{}", String::from_utf8_lossy(&nbdsh.stdout));
    disk.stop();
}

#[test]
fn clients_that_mean_harm_are_dropped_and_others_go_on() {
    let disk = Disk::start(&["--size", "1M", "--connections-max", "40"]);
    let connect = || {
        let stream = UnixStream::connect(disk.at("socket")).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        stream
    };
    let begun = Instant::now();
    let mut silent: Vec<_> = (0..8).map(|_| connect()).collect();
    // After the greeting: garbage, an option of 4 GiB, options without end.
    let mut endless = 3_u32.to_be_bytes().to_vec();
    for _ in 0..1000 {
        endless.extend(b"IHAVEOPT\0\0\x12\x34\0\0\0\0");
    }
    let huge = [
        &3_u32.to_be_bytes()[..],
        b"IHAVEOPT\0\0\0\x03\xff\xff\xff\xff",
    ]
    .concat();
    for bytes in [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        huge,
        endless,
        vec![0xff; 100_000],
    ] {
        let mut stream = connect();
        let _ = stream.write_all(&bytes);
        let mut answer = Vec::new();
        // It ends, by an orderly end or a reset.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 200_000);
    }
    // A write of 4 GiB whose payload never comes costs nothing.
    let mut stream = connect();
    let mut input = 3_u32.to_be_bytes().to_vec();
    input.extend(b"IHAVEOPT\0\0\0\x01\0\0\0\0");
    input.extend(b"\x25\x60\x95\x13\0\0\0\x01cookie!!\0\0\0\0\0\0\0\0\xff\xff\xff\xff");
    stream.write_all(&input).unwrap();
    if has("nbdinfo") {
        tool("nbdinfo", &["--size", &disk.uri()]).expect(0);
    }
    assert!(disk.stat()["resident_bytes"].as_u64().unwrap() < 64 << 20);
    for stream in &mut silent {
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert!(
        begun.elapsed() < Duration::from_secs(25),
        "a silent client is dropped after 10 s"
    );
    disk.stop();
}

#[test]
fn metrics_and_stat_are_there_and_the_control_socket_is_ones_own() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let address = format!("127.0.0.1:{port}");
    let disk = Disk::start(&["--size", "1M", "--metrics", &address]);
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(
        text.contains("narrows_memory_size_bytes{export=\"\"} 1048576"),
        "{text}"
    );
    let control = disk.at("control");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(
        fs::metadata(&control).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let shown = run(["memory", "stat", "--control", control.to_str().unwrap()]).expect(0);
    assert!(
        String::from_utf8_lossy(&shown.stdout).contains("ratio"),
        "{shown:?}"
    );
    let socket = disk.at("other");
    let mut second = narrows(["memory", "serve", "--size", "1M", "--unix"]);
    second
        .arg(&socket)
        .arg("--control")
        .arg(&control)
        .stdin(Stdio::null());
    Process::start(&mut second)
        .wait()
        .expect(1)
        .says("--control");
    disk.stop();
    assert!(!control.exists());
    run(["memory", "stat", "--control", control.to_str().unwrap()])
        .expect(1)
        .says("no RAM disk answers");
}
