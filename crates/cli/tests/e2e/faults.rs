//! What goes wrong is said in words, under the documented exit code, and leaves nothing half-made.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use narrows_testkit::data::{Kind, make};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{
    NARROWS, Process, alone, eventually, full, has, is_root, narrows, parts, run, skip, start,
};

/// A large file, a receiver for it, and a link between them that is slow enough to get in the way of.
struct Slow {
    from: TempDir,
    into: TempDir,
    receiver: Process,
    _link: Process,
    address: String,
}

impl Slow {
    fn start(link_flags: &[&str], recv_flags: &[&str]) -> Self {
        let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        fs::write(from.path().join("big"), make(Kind::Random, 8 << 20, 1)).unwrap();
        let receiver = start(
            [
                &[
                    "recv",
                    "--json",
                    "-l",
                    &alone(),
                    into.path().to_str().unwrap(),
                ],
                recv_flags,
            ]
            .concat(),
        );
        let to = receiver.address();
        let link = start(
            [
                &["link-emulator", "-l", "127.0.0.1:0", "--to", &to],
                link_flags,
            ]
            .concat(),
        );
        let address = link
            .heard("link from ")
            .split_once(' ')
            .unwrap()
            .0
            .to_owned();
        Self {
            from,
            into,
            receiver,
            _link: link,
            address,
        }
    }

    fn big(&self) -> String {
        self.from.path().join("big").to_str().unwrap().into()
    }

    fn send(&self, flags: &[&str]) -> Process {
        start([&["send", "--json", &self.big(), &self.address], flags].concat())
    }

    /// Waits until the receiver has begun to write.
    fn under_way(&self) {
        eventually("the receiver writes", || {
            parts(self.into.path())
                .iter()
                .any(|part| fs::metadata(part).is_ok_and(|meta| meta.len() > 100_000))
        });
    }

    #[track_caller]
    fn assert_nothing_is_left(&self) {
        assert_eq!(
            fs::read_dir(self.into.path()).unwrap().count(),
            0,
            "{:?}",
            parts(self.into.path())
        );
    }
}

#[test]
fn a_link_cut_in_mid_transfer_resumes() {
    let slow = Slow::start(&["--reset-after", "3M"], &[]);
    let sent = slow.send(&[]).wait().expect(0).json();
    let received = slow.receiver.wait().expect(0).json();
    assert!(sent["resumed"].as_u64() >= Some(1), "{sent}");
    assert_eq!(received["content_bytes"], 8 << 20);
    assert!(fs::read(slow.into.path().join("big")).unwrap() == make(Kind::Random, 8 << 20, 1));
    assert_eq!(fs::read_dir(slow.into.path()).unwrap().count(), 1);
}

// Goal: a tree in use can be sent: what goes while it is under way is left out and told.
// Goal: who watches a transfer sees how far it is, and while the link is down that it is, and for how long it is waited.
// Method: on a terminal that `script` makes; the relay on the way is killed.
#[test]
fn a_lost_link_is_said_while_it_is_down() {
    if !has("script") {
        return skip("no `script` to make a terminal");
    }
    let (dir, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let file = dir.path().join("f");
    fs::write(&file, make(Kind::Random, 8 << 20, 1)).unwrap();
    let receiver = start(["recv", "-l", "127.0.0.1:0", into.path().to_str().unwrap()]);
    let to = receiver.address();
    let words = [
        "link-emulator",
        "--listen",
        "127.0.0.1:0",
        "--to",
        &to,
        "--rate",
        "10mbit",
    ];
    let link = start(words);
    let address = link.heard("link from ");
    let address = address.split(' ').next().unwrap();
    let line = format!(
        "stty cols 120; {NARROWS} send --resume-within 2 {} {address}",
        file.display()
    );
    let mut command = Command::new("script");
    command
        .args(["-qec", &line, "/dev/null"])
        .stdin(Stdio::null());
    let sender = Process::start(&mut command);
    eventually("some of it is there", || {
        parts(into.path())
            .first()
            .is_some_and(|part| fs::metadata(part).is_ok_and(|part| part.len() > 500_000))
    });
    link.signal(Signal::KILL);
    let seen = sender.wait().expect(1).stdout;
    let seen = String::from_utf8_lossy(&seen);
    for words in [
        " of 8 MiB, ",
        " of 1 files, ",
        "connection lost, retrying, 1 of 2 s",
    ] {
        assert!(seen.contains(words), "{words}: {seen}");
    }
}

#[test]
fn what_is_removed_meanwhile_is_left_out() {
    let slow = Slow::start(&["--rate", "40mbit"], &[]);
    let root = slow.from.path().to_owned();
    let [dir, file, kept] = ["c", "d", "e"].map(|name| root.join(name));
    fs::create_dir(&dir).unwrap();
    for inside in [&dir.join("inside"), &file, &kept] {
        fs::write(inside, b"x").unwrap();
    }
    let sender = start([
        "send",
        "--json",
        root.join(".").to_str().unwrap(),
        &slow.address,
    ]);
    slow.under_way();
    fs::remove_dir_all(&dir).unwrap();
    fs::remove_file(&file).unwrap();
    // A loss all the same: the code says so, and the rest is in place.
    let sent = sender.wait().expect(1);
    assert_eq!(
        sent.stderr.matches("removed meanwhile").count(),
        2,
        "{sent:?}"
    );
    assert_eq!(
        (
            &sent.json()["entries"],
            &slow.receiver.wait().expect(1).json()["entries"]
        ),
        (&2.into(), &2.into())
    );
    let mut names: Vec<_> = fs::read_dir(slow.into.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["big", "e"]);
}

#[test]
fn a_message_longer_than_a_naive_receiver_holds_is_told_as_that() {
    if !full() {
        return skip(
            "NARROWS_FULL_TESTS=1 sends more than the gigabyte that a naive receiver holds",
        );
    }
    let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let big = from.path().join("big");
    let mut file = fs::File::create(&big).unwrap();
    let part = make(Kind::Random, 32 << 20, 1);
    (0..34).for_each(|_| file.write_all(&part).unwrap());
    let naive = ["--policy", "naive", "--codec", "lz4"];
    let receiver = start(
        [
            &["recv", "-l", "127.0.0.1:0", into.path().to_str().unwrap()][..],
            &naive,
        ]
        .concat(),
    );
    let words = "longer than the 1 GiB that a naive receiver holds";
    run([
        &["send", big.to_str().unwrap(), &receiver.address()][..],
        &naive,
    ]
    .concat())
    .expect(6)
    .says(words);
    receiver.wait().expect(6).says(words);
    assert_eq!(fs::read_dir(into.path()).unwrap().count(), 0);
}

#[test]
fn a_killed_receiver_is_told_by_the_sender() {
    let slow = Slow::start(&["--rate", "40mbit"], &[]);
    let sender = slow.send(&["--resume-within", "1"]);
    slow.under_way();
    slow.receiver.signal(Signal::KILL);
    sender.wait().expect(1).says("vanished");
    assert!(!slow.into.path().join("big").exists());
    // Nobody can clean up after itself when killed; the next receiver is not in the way of what is left.
    let left = parts(slow.into.path());
    assert_eq!(left.len(), 1);
    let next = start([
        "recv",
        "-l",
        "127.0.0.1:0",
        slow.into.path().to_str().unwrap(),
    ]);
    run(["send", &slow.big(), &next.address()]).expect(0);
    next.wait().expect(0);
}

#[test]
fn a_killed_sender_leaves_nothing_at_the_receiver() {
    let slow = Slow::start(&["--rate", "40mbit"], &["--resume-within", "1"]);
    let sender = slow.send(&[]);
    slow.under_way();
    sender.signal(Signal::KILL);
    assert_eq!(sender.wait().code, 128 + 9);
    let into = slow.into.path().to_path_buf();
    let Slow {
        receiver,
        into: _dir,
        ..
    } = slow;
    receiver.wait().expect(1).says("vanished");
    assert_eq!(fs::read_dir(into).unwrap().count(), 0);
}

#[test]
fn an_interrupt_at_either_end_is_told_to_the_other() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let slow = Slow::start(&["--rate", "40mbit"], &[]);
        let sender = slow.send(&[]);
        slow.under_way();
        sender.signal(signal);
        sender.wait().expect(code).says("interrupted");
        let Slow { receiver, into, .. } = slow;
        receiver.wait().expect(130).says("the peer was interrupted");
        assert_eq!(fs::read_dir(into.path()).unwrap().count(), 0);

        let slow = Slow::start(&["--rate", "40mbit"], &[]);
        let sender = slow.send(&[]);
        slow.under_way();
        slow.receiver.signal(signal);
        sender.wait().expect(130).says("the peer was interrupted");
        eventually("its part is removed", || {
            fs::read_dir(slow.into.path()).unwrap().count() == 0
        });
        slow.assert_nothing_is_left();
        let Slow { receiver, .. } = slow;
        receiver.wait().expect(code).says("interrupted");
    }
}

// Whoever started it may be gone, and with it the reader of what it says.
#[test]
fn an_interrupt_ends_a_process_that_nobody_listens_to() {
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join("s");
    let mut command = narrows(["recv", "-l", &format!("unix:{}", socket.display())]);
    let mut receiver = command
        .arg(dir.path())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("it listens", || socket.exists());
    drop(receiver.stderr.take());
    let pid = rustix::process::Pid::from_child(&receiver);
    let mut ended = None;
    eventually("it ends", || {
        let _ = rustix::process::kill_process(pid, Signal::TERM);
        ended = receiver.try_wait().unwrap();
        ended.is_some()
    });
    assert!(!ended.unwrap().success());
}

#[test]
fn a_full_disk_is_told_at_both_ends() {
    let dir = TempDir::new().unwrap();
    struct Mounted<'a>(&'a Path);
    impl Drop for Mounted<'_> {
        fn drop(&mut self) {
            let _ = Command::new("umount")
                .arg("-l")
                .arg(self.0)
                .stderr(Stdio::null())
                .status();
        }
    }
    let mut mount = Command::new("mount");
    mount
        .args(["-t", "tmpfs", "-o", "size=1M", "none"])
        .arg(dir.path())
        .stderr(Stdio::null());
    if !is_root() || !has("mount") || !mount.status().is_ok_and(|status| status.success()) {
        return skip("a small file system to fill needs root and the right to mount");
    }
    let _mounted = Mounted(dir.path());
    let from = TempDir::new().unwrap();
    fs::write(from.path().join("big"), make(Kind::Random, 4 << 20, 1)).unwrap();
    let receiver = start(["recv", "-l", "127.0.0.1:0", dir.path().to_str().unwrap()]);
    let sent = run([
        "send",
        from.path().join("big").to_str().unwrap(),
        &receiver.address(),
    ]);
    sent.expect(1).says("No space left on device");
    receiver.wait().expect(1).says("No space left on device");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_file_that_cannot_be_read_is_named_at_both_ends() {
    let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::write(from.path().join("a"), b"fine").unwrap();
    // Said before anybody is dialled: nobody listens there.
    let missing = from.path().join("missing");
    run(["send", missing.to_str().unwrap(), "127.0.0.1:1"])
        .expect(1)
        .says("cannot read");

    if is_root() && !has("setpriv") {
        return skip("root reads everything; setpriv to become someone else is missing");
    }
    let secret = from.path().join("secret");
    fs::write(&secret, b"x").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(from.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let receiver = start(["recv", "-l", "127.0.0.1:0", into.path().to_str().unwrap()]);
    let program = from.path().join("narrows");
    fs::copy(NARROWS, &program).unwrap();
    let mut send = if is_root() {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
            .arg(&program);
        command
    } else {
        Command::new(&program)
    };
    // Below a directory it shows once it is its turn.
    let tree = from.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::rename(&secret, tree.join("secret")).unwrap();
    send.arg("send")
        .arg(&tree)
        .arg(receiver.address())
        .stdin(Stdio::null());
    Process::start(&mut send)
        .wait()
        .expect(1)
        .says("Permission denied");
    receiver.wait().expect(1).says("1 entry was not sent");
    assert!(!into.path().join("tree/secret").exists() && parts(into.path()).is_empty());
    assert!(into.path().join("tree").is_dir(), "the rest is in place");
}

#[test]
fn a_reader_that_had_enough_is_no_fault() {
    let mut command = Command::new("sh");
    command
        .args(["-c", "\"$0\" recv - -l 127.0.0.1:0 | head -c 1; echo done"])
        .arg(NARROWS)
        .stdin(Stdio::null());
    let receiver = Process::start(&mut command);
    let address = receiver.address();
    let mut sender = Process::start(narrows(["send", "-", &address]).stdin(Stdio::piped()));
    let mut stdin = sender.stdin();
    let bytes = make(Kind::Random, 1 << 20, 1);
    while stdin.write_all(&bytes).is_ok() {}
    drop(stdin);
    let ended = sender.wait();
    assert!(
        ended.code == 1 && !ended.stderr.is_empty(),
        "the sender did not get through: {ended:?}"
    );
    let ended = receiver.wait().expect(0);
    assert!(ended.stdout.ends_with(b"done\n"));

    // And the receiver's own code, which the shell above hides.
    let mut receiver = Process::start_with(
        narrows(["recv", "-", "-l", "127.0.0.1:0"]).stdin(Stdio::null()),
        false,
    );
    let address = receiver.address();
    let mut sender = Process::start(narrows(["send", "-", &address]).stdin(Stdio::piped()));
    let (mut stdin, mut stdout) = (sender.stdin(), receiver.stdout());
    stdin.write_all(&bytes).unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    drop(stdout);
    while stdin.write_all(&bytes).is_ok() {}
    receiver.wait().expect(0);
    assert_eq!(sender.wait().code, 1);
}

#[test]
fn a_peer_that_never_answers_or_is_not_there_is_given_up() {
    // A port nobody listens on.
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let refused = run(["send", "/etc/hostname", &free]).expect(1);
    assert!(refused.stderr.contains(&free), "{refused:?}");
    // A port where somebody listens and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    run(["send", "/etc/hostname", &address])
        .expect(1)
        .says("handshake");
    // A socket that is not there, and a host name that means nothing.
    run(["send", "/etc/hostname", "unix:/nonexistent/socket"])
        .expect(1)
        .says("/nonexistent/socket");
    // And a directory that cannot be made.
    run(["recv", "-l", "127.0.0.1:0", "/proc/nonexistent"])
        .expect(1)
        .says("cannot write to /proc/nonexistent");
}

fn keys(dir: &Path) -> String {
    let dir = dir.to_str().unwrap().to_owned();
    run(["keys", &dir]).expect(0);
    dir
}

#[test]
fn wrong_keys_and_missing_keys_are_refused_with_code_4() {
    let dir = TempDir::new().unwrap();
    let (ours, theirs) = (
        keys(&dir.path().join("ours")),
        keys(&dir.path().join("theirs")),
    );
    let psk = |dir: &str| format!("{dir}/keys.psk");
    let (our_psk, their_psk) = (psk(&ours), psk(&theirs));
    let into = TempDir::new().unwrap();
    let cases: [(&[&str], &[&str]); 6] = [
        (
            &["--tls-certificates", &ours],
            &["--tls-certificates", &theirs],
        ),
        (&["--tls-certificates", &ours], &["--tls-psk", &our_psk]),
        (
            &["--tls-certificates", &ours],
            &[
                "--tls-certificates",
                &ours,
                "--tls-hostname",
                "elsewhere.example",
            ],
        ),
        (&["--tls-psk", &our_psk], &["--tls-psk", &their_psk]),
        (&["--tls-psk", &our_psk], &["--tls-certificates", &ours]),
        (
            &["--tls-psk", &our_psk],
            &["--tls-psk", "/nonexistent/keys.psk"],
        ),
    ];
    for (recv_flags, send_flags) in cases {
        let receiver = start(
            [
                &["recv", "-l", "127.0.0.1:0", into.path().to_str().unwrap()],
                recv_flags,
            ]
            .concat(),
        );
        let address = receiver.address();
        run([&["send", "/etc/hostname", &address], send_flags].concat()).expect(4);
        // The receiver goes on; the right key is let in.
        run([&["send", "/etc/hostname", &address], recv_flags].concat()).expect(0);
        receiver.wait().expect(0);
    }
    // One side plain, the other not: neither waits for ever, neither takes anything.
    for (recv_flags, send_flags) in [
        (&["--tls-certificates", &ours][..], &[][..]),
        (&[], &["--tls-certificates", &ours]),
    ] {
        let receiver = start(
            [
                &["recv", "-l", "127.0.0.1:0", into.path().to_str().unwrap()],
                recv_flags,
            ]
            .concat(),
        );
        let address = receiver.address();
        let ended = run([&["send", "/etc/hostname", &address], send_flags].concat());
        assert!(
            [1, 4, 5].contains(&ended.code) && !ended.stderr.is_empty(),
            "{ended:?}"
        );
        run([&["send", "/etc/hostname", &address], recv_flags].concat()).expect(0);
        receiver.wait().expect(0);
    }
    let missing = run([
        "recv",
        "-l",
        "127.0.0.1:0",
        "--tls-certificates",
        "/nonexistent",
    ]);
    missing.expect(4).says("/nonexistent");
}

#[test]
fn garbage_at_the_port_is_refused_and_the_receiver_goes_on() {
    let into = TempDir::new().unwrap();
    let receiver = start(["recv", "-l", "127.0.0.1:0", into.path().to_str().unwrap()]);
    let address = receiver.address();
    let mut hello = make(Kind::Random, 5000, 3);
    hello[0] = 0x10;
    let garbage: [&[u8]; 6] = [
        b"",
        b"\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &[0; 4096],
        &make(Kind::Random, 100_000, 2),
        &hello,
    ];
    for bytes in garbage {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        // It may be refused before all of it is written.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 2000, "{} bytes for a stranger", answer.len());
    }
    run(["send", "/etc/hostname", &address]).expect(0);
    receiver.wait().expect(0).says("refused");
}

#[test]
fn peers_that_want_different_things_are_told_so() {
    let into = TempDir::new().unwrap();
    let receiver = start(["recv", "-l", "127.0.0.1:0", into.path().to_str().unwrap()]);
    let mut sender =
        Process::start(narrows(["send", "-", &receiver.address()]).stdin(Stdio::piped()));
    drop(sender.stdin());
    sender.wait().expect(5).says("narrows recv -");
    receiver.wait().expect(5).says("narrows recv -");
    let receiver = start(["recv", "-", "-l", "127.0.0.1:0"]);
    run(["send", "/etc/hostname", &receiver.address()])
        .expect(5)
        .says("name a directory");
    receiver.wait().expect(5);
    let far = start(["tunnel", "-l", "127.0.0.1:0", "--to", "127.0.0.1:1"]);
    let address = far.heard("carrying ").split_once(' ').unwrap().0.to_owned();
    run(["send", "/etc/hostname", &address])
        .expect(5)
        .says("narrows recv");
}
