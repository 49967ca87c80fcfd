//! Nothing is lost without a word: what cannot arrive as it is, is told, and the code says so.

use std::{
    ffi::OsStr,
    fs::{self, File, Permissions},
    io::{Read, Write},
    net::TcpStream,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
        process::CommandExt,
    },
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use narrows_testkit::data::{Kind, make};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{
    Ended, NARROWS, Process, eventually, has, is_root, narrows, parts, run, skip, start,
};

/// Sends `paths` into `into`; both ends.
fn carry<S: AsRef<OsStr>>(paths: impl IntoIterator<Item = S>, into: &Path) -> (Ended, Process) {
    let receiver = start([
        OsStr::new("recv"),
        OsStr::new("-l"),
        OsStr::new("127.0.0.1:0"),
        into.as_os_str(),
    ]);
    let mut send = narrows(["send"]);
    send.args(paths)
        .arg(receiver.address())
        .stdin(Stdio::null());
    (Process::start(&mut send).wait(), receiver)
}

// Goal: files whose length is not what `stat` says arrive as `cat` shows them (case 01). Method: procfs, sysfs, cgroups.
#[test]
fn files_that_are_made_as_they_are_read_arrive_whole() {
    for path in [
        "/proc/version",
        "/proc/self/limits",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/fs/cgroup/cgroup.controllers",
    ] {
        let Ok(there) = fs::read(path) else {
            skip(path);
            continue;
        };
        let into = TempDir::new().unwrap();
        let (sent, receiver) = carry([path], into.path());
        sent.expect(0);
        receiver.wait().expect(0);
        let got = fs::read(into.path().join(Path::new(path).file_name().unwrap())).unwrap();
        // Limits are each process's own; the others are the same for all.
        assert!(
            if path.contains("self") {
                !got.is_empty()
            } else {
                got == there
            },
            "{path}"
        );
    }
}

// Goal: a hole before or behind data stays where it is, whichever way files are read.
#[test]
fn holes_and_data_keep_their_places() {
    let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let path = from.path().join("f");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"data first").unwrap();
    file.set_len(40 << 20).unwrap();
    let other = from.path().join("g");
    let mut file = File::create(&other).unwrap();
    file.set_len(9 << 20).unwrap();
    std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(5 << 20)).unwrap();
    file.write_all(b"in the middle").unwrap();
    let (sent, receiver) = carry([&path, &other], into.path());
    sent.expect(0);
    receiver.wait().expect(0);
    for name in ["f", "g"] {
        let read = |dir: &TempDir| fs::read(dir.path().join(name)).unwrap();
        assert!(read(&from) == read(&into), "{name}");
    }
}

// Goal: two paths that would arrive at one place are refused before anybody is dialled (case 02). Method: the same last
// name, directories of one name, `.` beside a path, the same path twice.
#[test]
fn two_paths_of_one_name_are_refused_before_dialling() {
    let dir = TempDir::new().unwrap();
    for (name, text) in [
        ("a/x", "one"),
        ("b/x", "two"),
        ("a/d/1", "1"),
        ("b/d/2", "2"),
    ] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let path = |name: &str| {
        dir.path()
            .join(name)
            .into_os_string()
            .into_string()
            .unwrap()
    };
    for [one, other] in [
        ["a/x", "b/x"],
        ["a/d", "b/d"],
        ["a/.", "b/x"],
        ["a/x", "a/x"],
    ] {
        let ended = run(["send", &path(one), &path(other), "127.0.0.1:1"]).expect(1);
        ended.says("it would arrive as");
    }
    // A result over the file that it is made of.
    run([
        "offload",
        "pack",
        &path("a/x"),
        "--local",
        "-f",
        "-o",
        &path("a/x"),
    ])
    .expect(1)
    .says("it is the file that is read");
    assert_eq!(fs::read(path("a/x")).unwrap(), b"one");
}

// Goal: a receiving file system that folds case loses nothing (case 02). Method: ext4's casefold or a vfat, where one
// can be mounted.
#[test]
fn names_that_the_receivers_file_system_folds_are_refused() {
    let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::write(from.path().join("README"), b"large").unwrap();
    fs::write(from.path().join("readme"), b"small").unwrap();
    let image = from.path().join("image");
    File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let quiet = |program: &str, args: &[&OsStr]| {
        let mut command = Command::new(program);
        command
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let mount: [&OsStr; 4] = [
        "-o".as_ref(),
        "loop".as_ref(),
        image.as_ref(),
        into.path().as_ref(),
    ];
    if !is_root() || !quiet("mkfs.vfat", &[image.as_ref()]) || !quiet("mount", &mount) {
        return skip("a file system that folds case needs root, mkfs.vfat and loop devices");
    }
    let (sent, receiver) = carry(
        [from.path().join("README"), from.path().join("readme")],
        into.path(),
    );
    let ended = receiver.wait();
    let unmounted = quiet("umount", &[into.path().as_ref()]);
    assert!(unmounted);
    sent.expect(5).says("two entries that are both");
    ended.expect(5);
}

// Goal: arguments that are no text work in the commands that write their command line down (case 03).
#[test]
fn names_that_are_no_text_work_everywhere() {
    let (dir, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let name = OsStr::from_bytes(b"n\xff\n'");
    let path = dir.path().join(name);
    fs::write(&path, make(Kind::Text, 30_000, 1)).unwrap();
    let with = |before: &[&str], after: &[&str]| {
        let mut command = narrows(before);
        command.arg(&path).args(after).stdin(Stdio::null());
        Process::start(&mut command).wait().expect(0)
    };
    with(&["offload", "pack"], &["--local", "--json", "-f"]);
    with(
        &["bench"],
        &[
            "--codec",
            "lz4",
            "--chunk",
            "64K",
            "-T",
            "1",
            "--seconds",
            "0.01",
        ],
    );
    with(
        &["try"],
        &[
            "--link",
            "none",
            "--repeat",
            "1",
            "--size",
            "1M",
            "--no-report",
        ],
    );
    let backing = dir.path().join(OsStr::from_bytes(b"disk\xff"));
    for words in [&["create", "--size", "16M"][..], &["fsck"]] {
        let mut command = narrows(["disk", "-q"]);
        command.args(words).arg("--backing").arg(&backing);
        Process::start(command.stdin(Stdio::null()))
            .wait()
            .expect(0);
    }
    let mut command = narrows(["--config"]);
    command.arg(&backing).arg("codecs").stdin(Stdio::null());
    Process::start(&mut command).wait().expect(2);
    let (sent, receiver) = carry([&path], &into.path().join(name));
    sent.expect(0);
    receiver.wait().expect(0);
    assert!(into.path().join(name).join(name).exists());
}

/// A receiver behind a link of this rate.
fn slowly(into: &Path, rate: &str) -> (Process, Process, String) {
    let receiver = start(["recv", "-l", "127.0.0.1:0", into.to_str().unwrap()]);
    let (listen, to) = ("127.0.0.1:0", receiver.address());
    let link = start([
        "link-emulator",
        "--listen",
        listen,
        "--to",
        &to,
        "--rate",
        rate,
    ]);
    let address = link.heard("link from ");
    let address = address.split(' ').next().unwrap().to_owned();
    (receiver, link, address)
}

// Goal: a file that shrinks is named and left out, the others arrive (case 04); a log that grows is sent as long as it
// was (case 05).
#[test]
fn files_that_change_while_they_are_sent() {
    let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    for (name, len) in [("a", 3_000_000), ("b", 400_000), ("log", 400_000)] {
        fs::write(from.path().join(name), make(Kind::Random, len, 1)).unwrap();
    }
    let (receiver, _link, address) = slowly(into.path(), "20mbit");
    let tree = format!("{}/.", from.path().display());
    let sender = start([
        "send", "--chunk", "64K", "--depth", "1", "--window", "64K", &tree, &address,
    ]);
    eventually("the first file is under way", || {
        parts(into.path())
            .iter()
            .any(|part| fs::metadata(part).is_ok_and(|part| part.len() > 200_000))
    });
    File::options()
        .write(true)
        .open(from.path().join("a"))
        .unwrap()
        .set_len(5000)
        .unwrap();
    let growing = from.path().join("log");
    let grown = thread::spawn(move || {
        let mut log = File::options().append(true).open(growing).unwrap();
        for _ in 0..100 {
            log.write_all(&[b'x'; 50_000]).unwrap();
            thread::sleep(Duration::from_millis(20));
        }
    });
    let sent = sender.wait().expect(1).says("1 entry was not sent");
    assert!(
        sent.stderr.contains("it shrank while it was read"),
        "{sent:?}"
    );
    receiver.wait().expect(1);
    assert!(!into.path().join("a").exists() && parts(into.path()).is_empty());
    assert!(fs::read(into.path().join("b")).unwrap() == make(Kind::Random, 400_000, 1));
    let log = fs::read(into.path().join("log")).unwrap();
    assert!(log.len() < 5_000_000 && log.starts_with(&make(Kind::Random, 400_000, 1)));
    grown.join().unwrap();
    // A packed file is all or nothing, and its source is not removed.
    let path = from.path().join("big");
    let name = path.to_str().unwrap();
    let packs: [&[&str]; 2] = [
        &[
            "offload", "pack", name, "--codec", "zstd", "--level", "19", "--local", "-T", "1",
        ],
        &["pack", "--rm", "--level", "9", "-T", "1", name],
    ];
    for pack in packs {
        fs::write(&path, make(Kind::Random, 100 << 20, 1)).unwrap();
        let packing = start(pack);
        eventually("it is read", || !parts(from.path()).is_empty());
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(4096).unwrap();
        packing.wait().expect(1).says("it shrank while it was read");
        assert!(parts(from.path()).is_empty() && path.exists());
        for ending in ["zst", "narrows"] {
            assert!(!path.with_extension(ending).exists());
        }
    }
}

// Goal: a terminal or ssh that is gone cleans up as SIGTERM does, and what a killed receiver left goes with the next
// transfer (case 06).
#[test]
fn a_hangup_leaves_nothing_and_what_a_kill_leaves_is_swept() {
    let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let big = from.path().join("big");
    fs::write(&big, make(Kind::Random, 8 << 20, 1)).unwrap();
    let send = |address: &str| {
        start([
            "send",
            "--resume-within",
            "0.2",
            big.to_str().unwrap(),
            address,
        ])
    };
    // Who starts the tests with `nohup` has their programs ignore it, too.
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.unwrap().trim(), 16).unwrap();
    for (signal, code, left) in [(Signal::HUP, 129, 0), (Signal::KILL, 137, 1)] {
        if signal == Signal::HUP && ignored & 1 != 0 {
            skip("a hangup is ignored here");
            continue;
        }
        let (receiver, _link, address) = slowly(into.path(), "20mbit");
        let sender = send(&address);
        eventually("it is under way", || !parts(into.path()).is_empty());
        receiver.signal(signal);
        receiver.wait().expect(code);
        sender.wait();
        assert_eq!(parts(into.path()).len(), left);
    }
    let (sent, receiver) = carry([&big], into.path());
    sent.expect(0);
    receiver.wait().expect(0);
    assert!(parts(into.path()).is_empty() && into.path().join("big").exists());
}

// Goal: a file longer than `ulimit -f` allows is a sentence at both ends (case 06).
#[test]
fn a_limit_on_the_length_of_files_is_told() {
    if !has("bash") {
        return skip("no bash to set a limit with");
    }
    let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::write(from.path().join("f"), make(Kind::Random, 3 << 20, 1)).unwrap();
    let mut limited = Command::new("bash");
    let script = format!("ulimit -f 1024; exec {NARROWS} recv -l 127.0.0.1:0 \"$0\"");
    limited
        .args(["-c", &script])
        .arg(into.path())
        .stdin(Stdio::null());
    let receiver = Process::start(&mut limited);
    let path = from.path().join("f");
    run(["send", path.to_str().unwrap(), &receiver.address()])
        .expect(1)
        .says("File too large");
    receiver.wait().expect(1).says("File too large");
    assert!(parts(into.path()).is_empty());
}

/// `narrows` as a user who is not root, from where that user can reach it; `None` where that cannot be.
fn as_nobody(home: &Path) -> Option<Command> {
    if !is_root() {
        return Some(Command::new(NARROWS));
    }
    if !has("setpriv") {
        skip("setpriv to become someone else is missing");
        return None;
    }
    fs::set_permissions(home, Permissions::from_mode(0o777)).unwrap();
    let program = home.join("narrows");
    fs::copy(NARROWS, &program).unwrap();
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(program);
    Some(command)
}

// Goal: one thing that cannot be read keeps nothing else back, and the end is an error with a count (case 07). Method: a
// file, a directory, and a path longer than any, in one tree.
#[test]
fn what_cannot_be_read_is_counted_and_the_rest_is_sent() {
    let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let Some(mut send) = as_nobody(from.path()) else {
        return;
    };
    let tree = from.path().join("tree");
    for name in ["a", "b", "closed/x", "z"] {
        let path = tree.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    fs::set_permissions(tree.join("b"), Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(tree.join("closed"), Permissions::from_mode(0o000)).unwrap();
    let receiver = start(["recv", "-l", "127.0.0.1:0", into.path().to_str().unwrap()]);
    send.args(["send", "-q"])
        .arg(&tree)
        .arg(receiver.address())
        .stdin(Stdio::null());
    let sent = Process::start(&mut send)
        .wait()
        .expect(1)
        .says("2 entries were not sent");
    assert_eq!(
        sent.stderr.matches("Permission denied").count(),
        2,
        "{sent:?}"
    );
    receiver.wait().expect(1).says("2 entries were not sent");
    fs::set_permissions(tree.join("closed"), Permissions::from_mode(0o700)).unwrap();
    for (name, there) in [
        ("a", true),
        ("b", false),
        ("closed", true),
        ("closed/x", false),
        ("z", true),
    ] {
        assert_eq!(
            into.path().join("tree").join(name).exists(),
            there,
            "{name}"
        );
    }
    let _ = fs::set_permissions(
        into.path().join("tree/closed"),
        Permissions::from_mode(0o700),
    );
}

// Goal: what is named and cannot be sent is told and counted, and the rest is sent. Method: a pipe, a dangling link, a name
// that is not there; and all that is named not there, which is refused.
#[test]
fn arguments_that_cannot_be_sent_are_counted() {
    let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let path = |name: &str| from.path().join(name);
    fs::write(path("file"), b"content").unwrap();
    symlink("nowhere", path("link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    for name in ["pipe", "link", "missing"] {
        let (sent, receiver) = carry([path("file"), path(name)], into.path());
        sent.expect(1).says("1 entry was not sent");
        receiver.wait().expect(1);
        assert!(into.path().join("file").exists());
    }
    let missing = path("missing");
    run(["send", missing.to_str().unwrap(), "127.0.0.1:1"])
        .expect(1)
        .says("cannot read");
}

// Goal: a directory in the place of a file keeps nothing else back.
#[test]
fn a_directory_in_the_place_of_a_file_stays_and_the_rest_arrives() {
    let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    for name in ["a", "b", "c"] {
        fs::write(from.path().join(name), name).unwrap();
    }
    symlink("a", from.path().join("link")).unwrap();
    for name in ["b/keep", "link/keep"] {
        fs::create_dir_all(into.path().join(name)).unwrap();
    }
    let all = from.path().join(".");
    for _ in 0..2 {
        let (sent, receiver) = carry([&all], into.path());
        sent.expect(1).says("a directory stands");
        receiver.wait().expect(1).says("a directory stands");
        for name in ["a", "c", "b/keep", "link/keep"] {
            assert!(into.path().join(name).exists(), "{name}");
        }
    }
}

// Goal: a file gives way to a directory, as it would to a file, and not where what is there is to stay.
#[test]
fn a_file_in_the_place_of_a_directory_gives_way() {
    let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::create_dir(from.path().join("d")).unwrap();
    fs::write(from.path().join("d/x"), "x").unwrap();
    fs::write(into.path().join("d"), "a file").unwrap();
    let all = from.path().join(".");
    let (sent, receiver) = carry([Path::new("--ignore-existing"), &all], into.path());
    sent.expect(5);
    receiver.wait().expect(5).says("not a directory");
    assert!(into.path().join("d").is_file());
    let (sent, receiver) = carry([&all], into.path());
    sent.expect(0);
    receiver.wait().expect(0).says("a file by a directory");
    assert_eq!(fs::read(into.path().join("d/x")).unwrap(), b"x");
}

// Goal: a name neither changes the terminal nor begins a line of its own, at either end. Method: names with escapes and line
// ends, replaced by older ones, so that the receiver warns.
#[test]
fn names_do_not_write_to_the_terminal() {
    let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    for name in [
        "\x1b]0;owned\x07\x1b[2J",
        "x\n WARN all is well",
        "y\u{202e}z",
    ] {
        let here = from.path().join(name);
        fs::write(&here, b"old").unwrap();
        fs::File::options()
            .write(true)
            .open(&here)
            .unwrap()
            .set_modified(std::time::UNIX_EPOCH)
            .unwrap();
        fs::write(into.path().join(name), b"newer").unwrap();
    }
    let (sent, receiver) = carry([from.path().join(".")], into.path());
    let said = [sent.expect(0).stderr, receiver.wait().expect(0).stderr].concat();
    assert!(said.contains("replaced, though it was newer"), "{said}");
    let bad = |c: char| c == '\u{202e}' || c.is_control() && c != '\n';
    assert!(!said.contains(bad), "{said:?}");
    assert!(
        !said.lines().any(|line| line == " WARN all is well"),
        "{said}"
    );
}

// Goal: a tree with write-protected directories is received a second time by its owner, who finds it write-protected
// again (case 08); also where the transfer fails.
#[test]
fn write_protected_directories_take_a_second_transfer() {
    let home = TempDir::new().unwrap();
    let Some(first) = as_nobody(home.path()) else {
        return;
    };
    let program = first.get_program().to_owned();
    let own: Vec<_> = first.get_args().map(OsStr::to_owned).collect();
    let source = home.path().join("source");
    fs::create_dir_all(source.join("m/n")).unwrap();
    fs::write(source.join("m/n/f"), b"one").unwrap();
    for dir in ["m/n", "m"] {
        fs::set_permissions(source.join(dir), Permissions::from_mode(0o555)).unwrap();
    }
    let mode = |path: &str| fs::metadata(home.path().join(path)).unwrap().mode() & 0o777;
    for text in ["one", "second", "third"] {
        fs::set_permissions(source.join("m/n"), Permissions::from_mode(0o755)).unwrap();
        fs::write(source.join("m/n/f"), text).unwrap();
        fs::set_permissions(source.join("m/n"), Permissions::from_mode(0o555)).unwrap();
        let mut recv = Command::new(&program);
        recv.args(&own).args(["recv", "-l", "127.0.0.1:0", "in"]);
        recv.current_dir(home.path()).stdin(Stdio::null());
        let receiver = Process::start(&mut recv);
        run(["send", source.to_str().unwrap(), &receiver.address()]).expect(0);
        receiver.wait().expect(0);
        assert_eq!(
            fs::read(home.path().join("in/source/m/n/f")).unwrap(),
            text.as_bytes()
        );
        assert_eq!((mode("in/source/m"), mode("in/source/m/n")), (0o555, 0o555));
    }
}

// Goal: times of links arrive (case 11), before 1970 and of links that lead nowhere.
#[test]
fn links_keep_their_time() {
    let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    for (name, seconds) in [("l", 981_173_106), ("old", -5)] {
        let path = from.path().join(name);
        symlink("nowhere", &path).unwrap();
        let time = rustix::fs::Timespec {
            tv_sec: seconds,
            tv_nsec: 7,
        };
        let times = rustix::fs::Timestamps {
            last_access: time,
            last_modification: time,
        };
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::utimensat(rustix::fs::CWD, &path, &times, flags).unwrap();
    }
    let tree = format!("{}/.", from.path().display());
    let (sent, receiver) = carry([&tree], into.path());
    sent.expect(0);
    receiver.wait().expect(0);
    for name in ["l", "old"] {
        let time = |dir: &TempDir| {
            let meta = fs::symlink_metadata(dir.path().join(name)).unwrap();
            (meta.mtime(), meta.mtime_nsec())
        };
        assert_eq!(time(&from), time(&into), "{name}");
    }
}

// Goal: packed and unpacked files have their source's time, mode and owner (case 12), and say how long they are (09);
// what others made of them is unpacked or left to their programs, never called damaged (10).
#[test]
fn packed_files_keep_what_gzip_keeps_and_joined_ones_are_not_called_damaged() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name);
    let name = |name: &str| path(name).into_os_string().into_string().unwrap();
    fs::write(path("f"), make(Kind::Text, 300_000, 1)).unwrap();
    fs::set_permissions(path("f"), Permissions::from_mode(0o640)).unwrap();
    if is_root() {
        std::os::unix::fs::chown(path("f"), Some(65534), Some(65534)).unwrap();
    }
    let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(981_173_106);
    File::open(path("f")).unwrap().set_modified(old).unwrap();
    let kept = |one: &str| {
        let meta = fs::metadata(path(one)).unwrap();
        (meta.mode() & 0o777, meta.mtime(), meta.uid(), meta.gid())
    };
    for (codec, ending) in [("deflate", "gz"), ("zstd", "zst"), ("lz4", "lz4")] {
        let packed = format!("f.{ending}");
        run([
            "offload",
            "pack",
            &name("f"),
            "--local",
            "--codec",
            codec,
            "--block",
            "64K",
        ])
        .expect(0);
        assert_eq!(kept(&packed), kept("f"), "{codec}");
        run([
            "offload",
            "unpack",
            &name(&packed),
            "--local",
            "-f",
            "-o",
            &name("back"),
        ])
        .expect(0);
        assert_eq!(kept("back"), kept("f"), "{codec}");
        assert!(fs::read(path("back")).unwrap() == fs::read(path("f")).unwrap());
    }
    let zst = fs::read(path("f.zst")).unwrap();
    assert_ne!(zst[4] & 0xe0, 0, "the first frame has no content size");
    let gz = fs::read(path("f.gz")).unwrap();
    let note = b"\x50\x2a\x4d\x18\x04\x00\x00\x00note";
    let sound: [(&str, Vec<u8>, i32); 7] = [
        ("two.zst", [&zst[..], &zst].concat(), 5),
        ("note.zst", [&zst[..], note].concat(), 5),
        ("begin.zst", [&note[..], &zst].concat(), 5),
        ("two.gz", [&gz[..], &gz].concat(), 0),
        ("padded.gz", [&gz[..], &[0; 512]].concat(), 0),
        ("little.gz", [&gz[..], &[0; 3]].concat(), 0),
        (
            "noted.gz",
            [&gz[..], b"a note of somebody else"].concat(),
            5,
        ),
    ];
    for (file, bytes, code) in sound {
        fs::write(path(file), bytes).unwrap();
        let unpacked = run([
            "offload",
            "unpack",
            &name(file),
            "--local",
            "-f",
            "-o",
            &name("out"),
        ]);
        assert_eq!(unpacked.code, code, "{file}: {unpacked:?}");
    }
}

// Goal: the first connection after the far end of a tunnel was started again works (case 14), also when it came while
// the far end was away; and the near end may be started first.
#[test]
fn the_first_connection_after_a_restart_works() {
    let server = crate::tunnel::echo_server();
    let at = crate::process::alone();
    let far = start(["tunnel", "-l", &at, "--to", &server]);
    let peer = far.heard("carrying ").split(' ').next().unwrap().to_owned();
    let stop = |far: Process| {
        far.signal(Signal::TERM);
        far.wait().expect(143);
    };
    stop(far);
    let near = start([
        "tunnel",
        "-l",
        "127.0.0.1:0",
        "--peer",
        &peer,
        "--resume-within",
        "1",
    ]);
    near.heard("trying again");
    let begin = || start(["tunnel", "-l", &peer, "--to", &server]);
    let mut far = begin();
    let local = near
        .heard("carrying ")
        .split(' ')
        .next()
        .unwrap()
        .to_owned();
    let ask = |local: String| {
        let mut stream = TcpStream::connect(&local).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(15)))
            .unwrap();
        stream.write_all(b"hello").unwrap();
        let mut back = [0; 5];
        stream.read_exact(&mut back).map(|()| back == *b"hello")
    };
    assert!(ask(local.clone()).unwrap());
    for away in [false, true] {
        stop(far);
        thread::sleep(Duration::from_millis(1500));
        if away {
            let (asked, local) = (ask, local.clone());
            let waiting = thread::spawn(move || asked(local));
            thread::sleep(Duration::from_millis(500));
            far = begin();
            assert!(
                waiting.join().unwrap().unwrap(),
                "it came while the far end was away"
            );
        } else {
            far = begin();
            far.heard("carrying ");
            assert!(ask(local.clone()).unwrap(), "the first after the restart");
        }
    }
}

// Goal: a sender on the same machine does not send what is just received: `send .` beside `recv in`.
#[test]
fn what_is_received_here_is_not_sent_again() {
    let home = TempDir::new().unwrap();
    for at in 0..30 {
        fs::write(home.path().join(format!("{at}")), b"x").unwrap();
    }
    let receiver = start([
        "recv",
        "-l",
        "127.0.0.1:0",
        home.path().join("in").to_str().unwrap(),
    ]);
    let mut send = narrows(["send", ".", &receiver.address()]);
    send.current_dir(home.path()).stdin(Stdio::null());
    Process::start(&mut send)
        .wait()
        .expect(0)
        .says("the receiver writes into it");
    receiver.wait().expect(0);
    assert_eq!(fs::read_dir(home.path().join("in")).unwrap().count(), 30);
}

// Goal: what was given on the command line and makes no sense is refused, and a reader that has had enough is no panic.
#[test]
fn small_truths() {
    let file = std::env::current_exe().unwrap();
    let file = file.to_str().unwrap();
    for words in [
        &["try", "--size", "0", file][..],
        &["try", "--seconds", "0", file],
        &["bench", "--chunk", "3", file],
        &["bench", "--size", "0", file],
        &["memory", "serve", "--size", "0"],
    ] {
        run(words).expect(2);
    }
    let mut shell = Command::new("sh");
    let script = format!("{NARROWS} completions bash | head -1 >/dev/null");
    shell
        .args(["-c", &script])
        .stdin(Stdio::null())
        .process_group(0);
    Process::start(&mut shell).wait().expect(0);
}
