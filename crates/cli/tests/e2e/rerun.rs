//! A transfer that is made again continues, and what the flags say of files that are there already.

use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    path::Path,
    time::{Duration, SystemTime},
};

use narrows_testkit::data::{Kind, make};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Process, eventually, full, parts, run, start};

fn send(from: &Path, into: &Path, flags: &[&str]) -> Value {
    let receiver = start(["recv", "-l", "127.0.0.1:0", into.to_str().unwrap()]);
    let tree = format!("{}/.", from.display());
    let address = receiver.address();
    let sent = run([&["send", "--json"][..], flags, &[&tree, &address]].concat()).expect(0);
    receiver.wait().expect(0);
    sent.json()
}

fn age(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    File::open(path).unwrap().set_modified(time).unwrap();
}

// Goal: what is there by length and time is not sent again, by --checksum what is there by content; a mode is mended.
#[test]
fn unchanged_files_are_not_sent_again() {
    let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let count = if full() { 100_000 } else { 3_000 };
    for at in 0..count {
        let dir = from.path().join(format!("{}", at % 50));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("{at}")), vec![at as u8; at % 9000]).unwrap();
    }
    let first = send(from.path(), into.path(), &[]);
    assert_eq!(first["unchanged"], 0);
    fs::write(from.path().join("7/7"), b"another").unwrap();
    let again = send(from.path(), into.path(), &[]);
    assert_eq!(
        (&again["unchanged"], &again["content_bytes"]),
        (&(count - 1).into(), &7.into())
    );
    assert_eq!(again["entries"], first["entries"]);
    println!(
        "{count} files: {} bytes on the wire, and {} the second time; at most {} bytes resident",
        first["wire_bytes"], again["wire_bytes"], again["peak_rss_bytes"]
    );
    // The same length and time, other content: only a look at the content tells.
    let (here, there) = (from.path().join("8/8"), into.path().join("8/8"));
    fs::write(&here, b"12345678").unwrap();
    for path in [&here, &there] {
        age(path, 1_000_000_000);
    }
    assert_eq!(send(from.path(), into.path(), &[])["unchanged"], count);
    assert_ne!(fs::read(&here).unwrap(), fs::read(&there).unwrap());
    assert_eq!(
        send(from.path(), into.path(), &["--checksum"])["unchanged"],
        count - 1
    );
    assert_eq!(fs::read(&here).unwrap(), fs::read(&there).unwrap());
}

// Goal: a newer file is replaced with a word, kept by --update; any is kept by --ignore-existing.
#[test]
fn newer_files_are_replaced_with_a_word_or_kept() {
    let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (here, there) = (from.path().join("f"), into.path().join("f"));
    fs::write(&here, b"from here").unwrap();
    age(&here, 1_000_000_000);
    fs::write(&there, b"newer there").unwrap();
    for flag in ["--update", "--ignore-existing"] {
        assert_eq!(send(from.path(), into.path(), &[flag])["kept"], 1);
        assert_eq!(fs::read(&there).unwrap(), b"newer there");
    }
    let sent = send(from.path(), into.path(), &[]);
    assert_eq!((&sent["kept"], &sent["replaced"]), (&0.into(), &1.into()));
    assert_eq!(fs::read(&there).unwrap(), b"from here");
}

// Goal: --update and --ignore-existing keep links and hard links too, and what a link would replace. Method: each beside a file
// or a link that is newer there.
#[test]
fn links_are_kept_as_files_are() {
    for flag in ["--update", "--ignore-existing"] {
        let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let [here, there] = [from.path(), into.path()];
        fs::write(here.join("a"), b"old").unwrap();
        age(&here.join("a"), 1_000_000_000);
        fs::hard_link(here.join("a"), here.join("b")).unwrap();
        fs::write(here.join("file"), b"old").unwrap();
        age(&here.join("file"), 1_000_000_000);
        symlink("a", here.join("link")).unwrap();
        // A link's own time is now, so what is there must be of later.
        fs::write(there.join("link"), b"precious").unwrap();
        age(&there.join("link"), 3_000_000_000);
        fs::write(there.join("b"), b"newer").unwrap();
        symlink("nowhere", there.join("file")).unwrap();
        send(here, there, &["-H", flag]);
        assert_eq!(fs::read(there.join("link")).unwrap(), b"precious", "{flag}");
        assert_eq!(fs::read(there.join("b")).unwrap(), b"newer", "{flag}");
        assert!(fs::read_link(there.join("file")).is_ok(), "{flag}");
        // Without the flag a link replaces it, with a word.
        assert_eq!(send(here, there, &["-H"])["replaced"], 2);
    }
}

// Goal: a part that is kept is no litter. Method: a file that grows after it was cut short; a tree that has parts.
#[test]
fn parts_that_are_kept_are_used_or_removed_and_not_sent() {
    let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let path = from.path().join("log");
    fs::write(&path, make(Kind::Random, 3 << 20, 1)).unwrap();
    send(from.path(), into.path(), &["--partial"]);
    fs::remove_file(into.path().join("log")).unwrap();
    // As a killed receiver leaves it: under the name that the path gives.
    let name = format!(
        ".narrows-{:016x}.partial",
        xxhash_rust::xxh3::xxh3_64(b"log")
    );
    let begun = fs::read(&path).unwrap()[..2 << 20].to_vec();
    fs::write(into.path().join(&name), &begun).unwrap();
    let mut grown = fs::read(&path).unwrap();
    grown.extend(b"one line more");
    fs::write(&path, &grown).unwrap();
    let sent = send(from.path(), into.path(), &["--partial"]);
    assert_eq!(sent["content_bytes"], grown.len() - (2 << 20));
    assert!(fs::read(into.path().join("log")).unwrap() == grown);
    assert!(parts(into.path()).is_empty());
    // One that nobody continued goes when the file has arrived.
    fs::write(into.path().join(&name), &begun).unwrap();
    send(from.path(), into.path(), &["--checksum"]);
    fs::remove_file(into.path().join("log")).unwrap();
    send(from.path(), into.path(), &[]);
    assert!(parts(into.path()).is_empty());
    fs::write(from.path().join(".narrows-77-1.part"), b"part").unwrap();
    fs::write(from.path().join(&name), b"part").unwrap();
    let other = TempDir::new().unwrap();
    send(from.path(), other.path(), &[]);
    assert_eq!(fs::read_dir(other.path()).unwrap().count(), 1);
}

// Goal: a long file that was cut short is continued with --partial, by either signal; its rest is right. What stands
// under the partial's name and is not its begin is not believed.
#[test]
fn a_long_file_is_continued() {
    let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let len = if full() { 2 << 30 } else { 24 << 20 };
    let path = from.path().join("big");
    fs::write(&path, make(Kind::Random, len, 1)).unwrap();
    let begin = |rate: &str| -> (Process, Process, Process) {
        let receiver = start(["recv", "-l", "127.0.0.1:0", into.path().to_str().unwrap()]);
        let to = receiver.address();
        let link = start([
            "link-emulator",
            "--listen",
            "127.0.0.1:0",
            "--to",
            &to,
            "--rate",
            rate,
        ]);
        let address = link
            .heard("link from ")
            .split(' ')
            .next()
            .unwrap()
            .to_owned();
        let words = [
            "send",
            "--partial",
            "--resume-within",
            "0.2",
            path.to_str().unwrap(),
            &address,
        ];
        (receiver, link, start(words))
    };
    let there = || {
        parts(into.path())
            .first()
            .and_then(|part| fs::metadata(part).ok())
            .map_or(0, |part| part.len())
    };
    let rate = if full() { "4gbit" } else { "80mbit" };
    for (signal, part) in [(Signal::TERM, len / 4), (Signal::KILL, len / 2)] {
        let (receiver, _link, sender) = begin(rate);
        eventually("some of it is there", || there() > part as u64);
        receiver.signal(signal);
        receiver.wait();
        sender.wait();
    }
    let left = len as u64 - there();
    let sent = send(from.path(), into.path(), &["--partial"]);
    assert_eq!(sent["content_bytes"], left);
    println!(
        "of {len} bytes the rest of {left} was sent, at most {} bytes resident",
        sent["peak_rss_bytes"]
    );
    assert!(fs::read(into.path().join("big")).unwrap() == fs::read(&path).unwrap());
    assert!(parts(into.path()).is_empty());
    // Something else under the name: noticed, and all is sent.
    fs::remove_file(into.path().join("big")).unwrap();
    let (receiver, _link, sender) = begin(rate);
    eventually("some of it is there", || there() > 0);
    receiver.signal(Signal::KILL);
    receiver.wait();
    sender.wait();
    fs::write(&parts(into.path())[0], vec![1; 2 << 20]).unwrap();
    assert_eq!(
        send(from.path(), into.path(), &["--partial"])["content_bytes"],
        len
    );
    assert!(fs::read(into.path().join("big")).unwrap() == fs::read(&path).unwrap());
}

// Goal: patterns, lists and the dry run choose the same files.
#[test]
fn what_is_left_out_is_not_sent() {
    let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    for name in [
        "a.o",
        "keep.o",
        "src/b.c",
        "src/b.o",
        "target/x",
        "src/target/y",
    ] {
        let path = from.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    let flags = [
        "--exclude",
        "*.o",
        "--exclude",
        "/target",
        "--include",
        "keep.o",
    ];
    let tree = format!("{}/.", from.path().display());
    let listed =
        run([&["send", "--dry-run"][..], &flags, &[&tree, "127.0.0.1:1"]].concat()).expect(0);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert_eq!(listed, "keep.o\nsrc/\nsrc/b.c\nsrc/target/\nsrc/target/y\n");
    assert_eq!(send(from.path(), into.path(), &flags)["entries"], 5);
    for (name, there) in [
        ("keep.o", true),
        ("a.o", false),
        ("target", false),
        ("src/b.o", false),
    ] {
        assert_eq!(into.path().join(name).exists(), there, "{name}");
    }
    let other = TempDir::new().unwrap();
    let list = other.path().join("list");
    fs::write(&list, "src/b.c\nsrc/target/y\n\nsrc/b.c\n").unwrap();
    let receiver = start([
        "recv",
        "-l",
        "127.0.0.1:0",
        other.path().join("in").to_str().unwrap(),
    ]);
    let address = receiver.address();
    let mut command =
        crate::process::narrows(["send", "--files-from", list.to_str().unwrap(), &address]);
    command
        .current_dir(from.path())
        .stdin(std::process::Stdio::null());
    Process::start(&mut command).wait().expect(0);
    receiver.wait().expect(0);
    assert_eq!(
        fs::read(other.path().join("in/src/b.c")).unwrap(),
        b"src/b.c"
    );
    assert!(!other.path().join("in/src/b.o").exists());
}

// Goal: files are fetched as they are sent: over a remote shell, `~` meaning home there, into a directory or as a
// stream; and a remote shell that fails says how. Method: a script in place of ssh.
#[test]
fn files_are_fetched_over_a_remote_shell() {
    let (home, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::write(home.path().join("a b"), b"of home").unwrap();
    let rsh = home.path().join("rsh");
    let script = format!(
        "#!/bin/sh\nhost=$1; shift 2\nHOME={}; export HOME; cd; [ $host = away ] && exit 255\nexec sh -c \"$*\"\n",
        home.path().display()
    );
    fs::write(&rsh, script).unwrap();
    fs::set_permissions(&rsh, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let reach = [
        "--rsh",
        rsh.to_str().unwrap(),
        "--remote-program",
        crate::process::NARROWS,
    ];
    let into = into.path().to_str().unwrap();
    run([&["recv"][..], &reach, &["there:~/a b", into]].concat()).expect(0);
    assert_eq!(fs::read(format!("{into}/a b")).unwrap(), b"of home");
    let stream = run([&["recv"][..], &reach, &["there:a b", "-"]].concat()).expect(0);
    assert_eq!(stream.stdout, b"of home");
    run([
        &["send"][..],
        &reach,
        &[&format!("{into}/a b"), "there:~/new"],
    ]
    .concat())
    .expect(0);
    assert_eq!(fs::read(home.path().join("new/a b")).unwrap(), b"of home");
    run([&["recv"][..], &reach, &["away:x", into]].concat())
        .expect(1)
        .says("could not reach away");
    let reach = [
        "--rsh",
        rsh.to_str().unwrap(),
        "--remote-program",
        "/nonexistent/narrows",
    ];
    run([&["send"][..], &reach, &[&format!("{into}/a b"), "there:"]].concat())
        .expect(1)
        .says("there has no program");
}

// Goal: no more goes out than is allowed, and not much less: 2 MB at 8 Mbit/s take two seconds.
#[test]
fn a_limit_on_the_rate_holds() {
    let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::write(from.path().join("f"), make(Kind::Random, 2_000_000, 1)).unwrap();
    let sent = send(from.path(), into.path(), &["--bwlimit", "8mbit"]);
    let seconds = sent["seconds"].as_f64().unwrap();
    assert!((1.5..7.0).contains(&seconds), "{sent}");
}
