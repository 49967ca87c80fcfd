//! Two hosts that share nothing but a code, and clients that are named.

use std::{fs, process::Stdio};

use tempfile::TempDir;

use crate::{
    netns::{ADDRESSES, Hosts},
    process::{NARROWS, Process, run, start},
};

// Goal: a code that is shown at one host and typed at the other is all that is needed. Method: two namespaces where
// there are some, else loopback; a wrong code first, which uses the right one up.
#[test]
fn a_code_pairs_two_hosts_and_a_wrong_one_is_the_only_guess() {
    let hosts = Hosts::new();
    let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let file = from.path().join("f");
    fs::write(&file, vec![7; 300_000]).unwrap();
    let on = |host: usize, words: &[&str]| {
        let mut command = match &hosts {
            Some(hosts) => hosts.on(host, NARROWS),
            None => std::process::Command::new(NARROWS),
        };
        Process::start(command.args(words).stdin(Stdio::null()))
    };
    let at = if hosts.is_some() {
        ADDRESSES[1]
    } else {
        "127.0.0.1"
    };
    for wrong in [true, false] {
        let into = into.path().to_str().unwrap();
        let receiver = on(1, &["recv", "--code", "-l", &format!("{at}:0"), into]);
        let (address, code) = (receiver.address(), receiver.heard("code "));
        assert_eq!(code.len(), 9, "{code}");
        let send = |code: &str| {
            let words = [
                "send",
                "--connections",
                "2",
                "--code",
                code,
                file.to_str().unwrap(),
                &address,
            ];
            on(0, &words).wait()
        };
        if wrong {
            send("0000-0000").expect(4).says("the code is wrong");
            // It is still there to say so, or has gone.
            assert!([1, 4].contains(&send(&code).code));
            receiver.wait().expect(4).says("used up");
        } else {
            send(&code).expect(0);
            receiver.wait().expect(0);
        }
    }
    assert_eq!(fs::read(into.path().join("f")).unwrap(), vec![7; 300_000]);
}

// Goal: of an authority's clients, and of a key file's users, only those are served that are named.
#[test]
fn only_clients_that_are_allowed_are_served() {
    let (dir, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let keys = dir.path().join("keys");
    let keys = keys.to_str().unwrap();
    run(["keys", keys, "--client", "ann"]).expect(0);
    let psk = format!("{keys}/keys.psk");
    let bob = "bob:000102030405060708090a0b0c0d0e0f1011";
    fs::write(&psk, fs::read_to_string(&psk).unwrap() + bob + "\n").unwrap();
    let file = dir.path().join("f");
    fs::write(&file, b"x").unwrap();
    let cases: [(&[&str], &[&str], &str, i32); 5] = [
        (&["--tls-certificates", keys], &[], "ann", 0),
        (&["--tls-certificates", keys], &[], "bob", 4),
        (&["--tls-psk", &psk], &[], "ann", 0),
        (&["--tls-psk", &psk], &["--psk-user", "bob"], "ann", 4),
        (&["--tls-psk", &psk], &["--psk-user", "bob"], "bob", 0),
    ];
    for (auth, who, allowed, code) in cases {
        let recv = [
            "recv",
            "--keep",
            "-l",
            "127.0.0.1:0",
            "--allow",
            allowed,
            into.path().to_str().unwrap(),
        ];
        let receiver = start([&recv[..], auth].concat());
        let address = receiver.address();
        let sent = run([
            &["send"][..],
            auth,
            who,
            &[file.to_str().unwrap(), &address],
        ]
        .concat());
        assert_eq!(sent.code, code, "{auth:?} {who:?} {allowed}: {sent:?}");
    }
    run(["recv", "--allow", "ann", "-l", "127.0.0.1:0"]).expect(2);
}
