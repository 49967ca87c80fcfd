//! Trees and streams arrive as they were, whatever carries them.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File, FileTimes, Permissions},
    io::{Read, Write},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::{Duration, SystemTime},
};

use narrows_testkit::data::{Kind, Random, make};
use tempfile::TempDir;

use crate::{
    netns::{ADDRESSES, Hosts},
    process::{NARROWS, Process, full, narrows, parts, run, skip, start},
};

/// Flags for the receiver and for the sender.
type Flags<'a> = (&'a [&'a str], &'a [&'a str]);

/// What a tree holds, by path: kind, mode, time of change, content or target.
type Listing = BTreeMap<PathBuf, (char, u32, (i64, i64), Vec<u8>)>;

fn list(root: &Path) -> Listing {
    fn walk(root: &Path, dir: &Path, found: &mut Listing) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(root).unwrap().to_path_buf();
            let mtime = (meta.mtime(), meta.mtime_nsec());
            let mode = meta.mode() & 0o1777;
            let value = if meta.is_dir() {
                walk(root, &path, found);
                ('d', mode, mtime, Vec::new())
            } else if meta.is_symlink() {
                // A link's own mode means nothing and its time is not carried.
                (
                    'l',
                    0,
                    (0, 0),
                    fs::read_link(&path).unwrap().into_os_string().into_vec(),
                )
            } else {
                ('f', mode, mtime, fs::read(&path).unwrap())
            };
            found.insert(name, value);
        }
    }
    let mut found = Listing::new();
    walk(root, root, &mut found);
    found
}

#[track_caller]
pub fn assert_same(from: &Path, to: &Path) {
    let (from, to) = (list(from), list(to));
    for (path, entry) in &from {
        match to.get(path) {
            Some(other) => {
                assert!(
                    other == entry,
                    "{} differs: {:?}",
                    path.display(),
                    (&entry.1, &other.1, entry.2, other.2)
                )
            }
            None => panic!("{} is missing", path.display()),
        }
    }
    for path in to.keys() {
        assert!(from.contains_key(path), "{} was not sent", path.display());
    }
}

fn age(path: &Path, seconds: i64, nanos: u32) {
    let base = SystemTime::UNIX_EPOCH;
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 {
        base - whole
    } else {
        base + whole
    } + Duration::from_nanos(nanos.into());
    File::open(path)
        .unwrap()
        .set_times(FileTimes::new().set_modified(time))
        .unwrap();
}

/// A tree with one of everything that has gone wrong in some program before.
pub fn odd_tree() -> TempDir {
    let dir = TempDir::new().unwrap();
    let root = dir.path();
    fs::create_dir_all(root.join("a/b/c/d/e")).unwrap();
    fs::create_dir(root.join("empty dir")).unwrap();
    let names: [&[u8]; 12] = [
        b"plain.txt",
        b"empty",
        b"a/with space",
        b"a/new\nline",
        b"a/b/\xff\xfe not UTF-8",
        b"a/b/'\"$`\\*?[",
        b"-starts-with-dash",
        b"a/...",
        "a/b/c/\u{e4}\u{301}\u{1f30a}".as_bytes(),
        b"a/b/c/d/e/deep",
        b".hidden",
        b"a/\x01control",
    ];
    for (index, name) in names.iter().enumerate() {
        let path = root.join(OsStr::from_bytes(name));
        let kind = narrows_testkit::data::KINDS[index % 11];
        let len = if *name == b"empty" {
            0
        } else {
            [1, 17, 5000, 70_000, 600_000][index % 5]
        };
        fs::write(&path, make(kind, len, index as u64)).unwrap();
        fs::set_permissions(
            &path,
            Permissions::from_mode([0o644, 0o600, 0o755, 0o444, 0o640][index % 5]),
        )
        .unwrap();
        age(&path, 1_000_000_007 * (index as i64 - 1), 123_456_789);
    }
    let long = "x".repeat(250);
    fs::create_dir_all(root.join(&long).join(&long)).unwrap();
    fs::write(root.join(&long).join(&long).join(&long), b"long names").unwrap();
    symlink("plain.txt", root.join("link")).unwrap();
    symlink("nowhere/at/all", root.join("a/dangling")).unwrap();
    symlink(OsStr::from_bytes(b"\xff"), root.join("a/odd link")).unwrap();
    symlink("..", root.join("a/b/up")).unwrap();
    let read_only = root.join("read-only");
    fs::create_dir(&read_only).unwrap();
    fs::write(read_only.join("inside"), b"x").unwrap();
    age(&read_only, 86_400, 5);
    fs::set_permissions(&read_only, Permissions::from_mode(0o1555)).unwrap();
    age(&root.join("a"), 1_234_567_890, 1);
    dir
}

/// Sends what lies in `from` to a new receiver and checks that it is all there.
fn carry(from: &Path, listen: &str, (recv_flags, send_flags): Flags<'_>) {
    let to = TempDir::new().unwrap();
    let into = to.path().join("made");
    let receiver = Process::start(
        narrows(["recv", "--json", "--listen", listen])
            .args(recv_flags)
            .arg(&into)
            .stdin(Stdio::null()),
    );
    let address = receiver.address();
    let sent = Process::start(
        narrows(["send", "--json"])
            .args(send_flags)
            .arg(from.join("."))
            .arg(&address)
            .stdin(Stdio::null()),
    );
    let sent = sent.wait().expect(0).json();
    let received = receiver.wait().expect(0).json();
    assert_same(from, &into);
    assert_eq!(parts(&into), [] as [PathBuf; 0]);
    for result in [&sent, &received] {
        assert_eq!(result["schema"], "narrows.transfer/1");
        assert_eq!(result["entries"], list(from).len());
        assert_eq!(result["resumed"], 0);
    }
}

#[test]
fn a_tree_over_loopback_under_every_policy() {
    let tree = odd_tree();
    let cases: [&[&str]; 11] = [
        &[],
        &["--policy", "none"],
        &["--codec", "zstd:6"],
        &["--codec", "lz4", "--chunk", "4K", "--depth", "1"],
        &["--policy", "naive", "--codec", "zstd:1"],
        &["--codec", "gipfeli", "--keep-larger"],
        &["--no-history", "-T", "1"],
        &["--pad"],
        &["--pad", "--policy", "none", "--connections", "2"],
        &["--connections", "4", "--window", "64K"],
        &["--window", "64K", "--chunk", "1M"],
    ];
    for case in cases {
        carry(tree.path(), "127.0.0.1:0", (&[], case));
    }
    // The lesser window may be either end's.
    for connections in ["1", "4"] {
        let case = ["--connections", connections, "--window", "1M"];
        carry(tree.path(), "127.0.0.1:0", (&["--window", "64K"], &case));
    }
}

#[test]
fn a_tree_over_ipv6_and_a_unix_socket() {
    let tree = odd_tree();
    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        carry(tree.path(), "[::1]:0", (&[], &[]));
    } else {
        skip("no IPv6 loopback here");
    }
    let dir = TempDir::new().unwrap();
    carry(
        tree.path(),
        &format!("unix:{}", dir.path().join("socket").display()),
        (&[], &[]),
    );
}

#[test]
fn a_tree_over_tls_and_over_a_pre_shared_key() {
    let tree = odd_tree();
    let dir = TempDir::new().unwrap();
    let keys = dir.path().join("keys");
    let keys = keys.to_str().unwrap();
    let made = run(["keys", keys]).expect(0);
    assert!(
        String::from_utf8_lossy(&made.stdout).lines().count() >= 5,
        "{made:?}"
    );
    run(["keys", keys]).expect(1).says("exists");
    let tls = ["--tls-certificates", keys];
    carry(tree.path(), "127.0.0.1:0", (&tls, &tls));
    let file = format!("{keys}/keys.psk");
    let psk = ["--tls-psk", &file];
    carry(tree.path(), "127.0.0.1:0", (&psk, &psk));
}

/// A shell in place of `ssh`: drops the host, runs the words as a remote shell would. What its environment has for
/// receivers that listen is nothing to this one.
#[test]
fn a_tree_to_a_receiver_that_the_sender_starts() {
    let tree = odd_tree();
    let dir = TempDir::new().unwrap();
    let ssh = dir.path().join("fake-ssh");
    let script = "#!/bin/sh\n[ \"$1\" = example.org ] && [ \"$2\" = -- ] || exit 9\nshift 2\n\
                  export NARROWS_LISTEN=127.0.0.1:0\nexec sh -c \"$*\"\n";
    fs::write(&ssh, script).unwrap();
    fs::set_permissions(&ssh, Permissions::from_mode(0o755)).unwrap();
    let into = dir.path().join("it's a dir");
    let to = format!("example.org:{}", into.display());
    let mut send = narrows(["send", "--remote-program", NARROWS, "--rsh"]);
    send.arg(&ssh)
        .arg(tree.path().join("."))
        .arg(&to)
        .stdin(Stdio::null());
    Process::start(&mut send).wait().expect(0);
    assert_same(tree.path(), &into);
    // A directory, for all it looks like an option.
    let mut send = narrows(["send", "--remote-program", NARROWS, "--rsh"]);
    send.current_dir(dir.path())
        .arg(&ssh)
        .arg(tree.path().join("."))
        .arg("example.org:-dir")
        .stdin(Stdio::null());
    Process::start(&mut send).wait().expect(0);
    assert_same(tree.path(), &dir.path().join("-dir"));
    let missing = run([
        "send",
        "--rsh",
        "/nonexistent/ssh",
        "/etc/hostname",
        "example.org:x",
    ]);
    missing.expect(1).says("cannot start /nonexistent/ssh");
}

#[test]
fn a_tree_between_two_network_namespaces_over_tls() {
    let Some(hosts) = Hosts::new() else { return };
    let tree = odd_tree();
    make_many(tree.path());
    let dir = TempDir::new().unwrap();
    let (keys, into, image) = (
        dir.path().join("keys"),
        dir.path().join("into"),
        dir.path().join("image"),
    );
    let sparse = make_sparse(&image);
    Process::start(
        narrows(["keys", "--host", ADDRESSES[1]])
            .arg(&keys)
            .stdin(Stdio::null()),
    )
    .wait()
    .expect(0);
    let on = |host: usize, args: &[&str]| {
        let mut command = hosts.on(host, NARROWS);
        command.args(args);
        command
    };
    let listen = format!("{}:4242", ADDRESSES[1]);
    let plain = Process::start(on(1, &["recv", "--listen", &listen]).arg(&into)).wait();
    plain.expect(2).says("--insecure");
    let receiver = Process::start(
        on(1, &["recv", "--listen", &listen, "--tls-certificates"])
            .arg(&keys)
            .arg(&into),
    );
    let address = receiver.address();
    let mut send = on(0, &["send", "--tls-certificates"]);
    send.arg(&keys).arg(tree.path().join("."));
    if sparse {
        send.arg(&image);
    }
    Process::start(send.arg(&address)).wait().expect(0);
    receiver.wait().expect(0);
    if sparse {
        check_sparse(&into.join("image"));
        fs::remove_file(into.join("image")).unwrap();
    }
    assert_same(tree.path(), &into);
}

#[test]
fn several_paths_arrive_under_their_names_and_replace_what_was_there() {
    let from = TempDir::new().unwrap();
    let to = TempDir::new().unwrap();
    fs::create_dir(from.path().join("dir")).unwrap();
    fs::write(from.path().join("dir/x"), b"new x").unwrap();
    fs::write(from.path().join("file"), b"new file").unwrap();
    symlink("file", from.path().join("link")).unwrap();
    fs::create_dir(to.path().join("dir")).unwrap();
    fs::write(to.path().join("dir/x"), b"an older and longer x").unwrap();
    fs::write(to.path().join("dir/y"), b"stays").unwrap();
    fs::write(to.path().join("outside"), b"must stay").unwrap();
    // What was a link is replaced, not written through.
    symlink("outside", to.path().join("file")).unwrap();
    let receiver = start([
        "recv",
        "--listen",
        "127.0.0.1:0",
        to.path().to_str().unwrap(),
    ]);
    let address = receiver.address();
    let mut send = narrows(["send"]);
    send.args(["dir", "file", "link"].map(|name| from.path().join(name)))
        .arg(&address)
        .stdin(Stdio::null());
    Process::start(&mut send).wait().expect(0);
    receiver.wait().expect(0);
    let read = |name: &str| fs::read_to_string(to.path().join(name)).unwrap();
    assert_eq!(
        (read("dir/x"), read("dir/y"), read("file")),
        ("new x".into(), "stays".into(), "new file".into())
    );
    assert_eq!(read("outside"), "must stay");
    assert!(
        !fs::symlink_metadata(to.path().join("file"))
            .unwrap()
            .is_symlink()
    );
    assert_eq!(
        read("link"),
        "new file",
        "a link that the user names means what it leads to"
    );
}

const SPARSE_LEN: u64 = 5 << 30;
const ISLANDS: [u64; 4] = [0, 1 << 20, (3 << 30) + 4096, SPARSE_LEN - ISLAND_LEN as u64];
const ISLAND_LEN: usize = 300_000;

/// Makes a file of 5 GiB of which little is used; `false` where the file system has no such files.
fn make_sparse(path: &Path) -> bool {
    let file = File::create(path).unwrap();
    file.set_len(SPARSE_LEN).unwrap();
    for (index, at) in ISLANDS.into_iter().enumerate() {
        file.write_all_at(&make(Kind::Random, ISLAND_LEN, index as u64), at)
            .unwrap();
    }
    file.metadata().unwrap().blocks() * 512 < 64 << 20
}

/// Compares what arrived of [`make_sparse`]'s file, and that it takes no more room.
fn check_sparse(path: &Path) {
    let file = File::open(path).unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!(meta.len(), SPARSE_LEN);
    assert!(
        meta.blocks() * 512 < 8 << 20,
        "{} bytes on the disk",
        meta.blocks() * 512
    );
    let mut wanted = vec![0; 1 << 20];
    let mut got = wanted.clone();
    for at in (0..SPARSE_LEN).step_by(1 << 20) {
        wanted.fill(0);
        for (index, island) in ISLANDS.into_iter().enumerate() {
            let end = island + ISLAND_LEN as u64;
            if island < at + (1 << 20) && end > at {
                let (from, to) = (island.max(at), end.min(at + (1 << 20)));
                let bytes = make(Kind::Random, ISLAND_LEN, index as u64);
                wanted[(from - at) as usize..(to - at) as usize]
                    .copy_from_slice(&bytes[(from - island) as usize..(to - island) as usize]);
            }
        }
        file.read_exact_at(&mut got, at).unwrap();
        assert!(got == wanted, "the MiB at {at} differs");
    }
}

// A whole file system image of which little is used must not become large on the way.
#[test]
fn a_sparse_file_stays_sparse() {
    let from = TempDir::new().unwrap();
    let to = TempDir::new().unwrap();
    if !make_sparse(&from.path().join("image")) {
        return skip("this file system has no sparse files");
    }
    let receiver = start([
        "recv",
        "--json",
        "--listen",
        "127.0.0.1:0",
        to.path().to_str().unwrap(),
    ]);
    let address = receiver.address();
    run([
        "send",
        from.path().join("image").to_str().unwrap(),
        &address,
    ])
    .expect(0);
    let result = receiver.wait().expect(0).json();
    assert_eq!(result["content_bytes"], SPARSE_LEN);
    check_sparse(&to.path().join("image"));
}

/// 20,000 files of a few hundred bytes, some of none; in the long form 100,000.
fn make_many(root: &Path) {
    let files = if full() { 100_000 } else { 20_000 };
    let mut random = Random(7);
    for index in 0..files {
        let dir = root.join(format!("d{}", index / 500));
        if index % 500 == 0 {
            fs::create_dir(&dir).unwrap();
        }
        let len = random.below(400);
        fs::write(
            dir.join(format!("f{index}")),
            make(Kind::Text, len, index as u64),
        )
        .unwrap();
    }
}

#[test]
fn very_many_small_files() {
    let from = TempDir::new().unwrap();
    make_many(from.path());
    carry(from.path(), "127.0.0.1:0", (&[], &[]));
}

#[test]
fn a_stream_of_any_length_arrives_on_standard_output() {
    let lens: [usize; 5] = [
        0,
        1,
        65_536,
        3_000_001,
        if full() { 4 << 30 } else { 192 << 20 },
    ];
    for len in lens {
        let mut receiver = Process::start_with(
            narrows(["recv", "-", "-l", "127.0.0.1:0"]).stdin(Stdio::null()),
            false,
        );
        let address = receiver.address();
        let mut sender =
            Process::start(narrows(["send", "--json", "-", &address]).stdin(Stdio::piped()));
        let mut stdin = sender.stdin();
        // Text, floats and noise in turns of a MiB, numbered, so that a swap would show.
        let block = |index: usize| {
            let mut bytes = make(
                [Kind::Text, Kind::Floats, Kind::Random][index % 3],
                1 << 20,
                (index % 9) as u64,
            );
            bytes[..8].copy_from_slice(&(index as u64).to_le_bytes());
            bytes
        };
        let blocks: Vec<_> = (0..9).map(block).collect();
        let numbered = move |index: usize| {
            let mut bytes = blocks[index % 9].clone();
            bytes[..8].copy_from_slice(&(index as u64).to_le_bytes());
            bytes
        };
        let wanted = numbered.clone();
        let writing = thread::spawn(move || {
            for index in 0..len.div_ceil(1 << 20) {
                let bytes = numbered(index);
                stdin
                    .write_all(&bytes[..bytes.len().min(len - (index << 20))])
                    .unwrap();
            }
        });
        let mut stdout = receiver.stdout();
        let mut got = vec![0; 1 << 20];
        for index in 0..len.div_ceil(1 << 20) {
            let now = got.len().min(len - (index << 20));
            stdout.read_exact(&mut got[..now]).unwrap();
            assert!(
                got[..now] == wanted(index)[..now],
                "MiB {index} of {len} bytes differs"
            );
        }
        assert_eq!(stdout.read(&mut got).unwrap(), 0, "more than {len} bytes");
        writing.join().unwrap();
        assert_eq!(sender.wait().expect(0).json()["content_bytes"], len);
        receiver.wait().expect(0);
    }
}

// Goal: a log that is followed arrives line by line. Method: one line each way before the next is written.
#[test]
fn a_stream_that_pauses_is_not_held_back() {
    let mut receiver = Process::start_with(
        narrows(["recv", "-", "-l", "127.0.0.1:0"]).stdin(Stdio::null()),
        false,
    );
    let address = receiver.address();
    let mut sender = Process::start(narrows(["send", "-", &address]).stdin(Stdio::piped()));
    let (mut stdin, mut stdout) = (sender.stdin(), receiver.stdout());
    for line in 0..50_u64 {
        stdin.write_all(&line.to_le_bytes()).unwrap();
        let mut got = [0; 8];
        stdout.read_exact(&mut got).unwrap();
        assert_eq!(got, line.to_le_bytes());
    }
    drop(stdin);
    sender.wait().expect(0);
    receiver.wait().expect(0);
}

#[test]
fn one_receiver_takes_many_transfers() {
    let tree = odd_tree();
    let to = TempDir::new().unwrap();
    let receiver = start([
        "recv",
        "--keep",
        "--json",
        "-l",
        "127.0.0.1:0",
        to.path().to_str().unwrap(),
    ]);
    let address = receiver.address();
    for _ in 0..3 {
        run(["send", tree.path().join(".").to_str().unwrap(), &address]).expect(0);
    }
    receiver.signal(rustix::process::Signal::INT);
    let ended = receiver.wait().expect(130).says("interrupted");
    assert_eq!(
        String::from_utf8_lossy(&ended.stdout).lines().count(),
        3,
        "{ended:?}"
    );
    assert_same(tree.path(), to.path());
}
