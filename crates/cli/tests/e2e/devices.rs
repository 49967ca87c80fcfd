//! A host with an accelerator, which a stand-in library plays: what is listed, what is sent, and what a device that
//! fails or lies does to a transfer (nothing).

use std::{fs, path::Path, process::Command};

use narrows_testkit::{
    data::{Kind, make},
    standin::StandIn,
};
use tempfile::TempDir;

use crate::process::{Process, narrows, start};

/// Library, its variable, the backend's name, the codec that has a checksum of its own or is the device's own.
const DEVICES: [(&str, &str, &str, &str); 3] = [
    ("qatzip", "NARROWS_QATZIP_LIB", "qat", "gzip"),
    ("qpl", "NARROWS_QPL_LIB", "iaa", "deflate-w4k"),
    ("doca", "NARROWS_DOCA_LIB", "doca", "zlib"),
];

/// `narrows` where `library` is installed and suffers `fault`.
fn with(args: &[&str], variable: &str, library: &Path, fault: &str) -> Command {
    let mut command = narrows(args);
    command
        .env(variable, library)
        .env("NARROWS_STANDIN_FAULT", fault);
    command
}

#[test]
fn devices_are_listed_with_a_reason_where_they_are_not_there() {
    let dir = TempDir::new().unwrap();
    for (source, variable, name, codec) in DEVICES {
        let Some(standin) = StandIn::build(source, &[], dir.path()) else {
            return;
        };
        let list = |fault: &str| {
            let ended = Process::start(&mut with(
                &["codecs", "--json"],
                variable,
                standin.path(),
                fault,
            ))
            .wait()
            .expect(0);
            assert_eq!(ended.stderr, "", "libraries are kept quiet");
            let json = ended.json();
            let backends = json["backends"].as_array().unwrap().clone();
            let codecs = json["codecs"].as_array().unwrap();
            let chosen =
                codecs.iter().find(|entry| entry["name"] == codec).unwrap()["chosen"].clone();
            (
                backends
                    .into_iter()
                    .find(|entry| entry["name"] == name)
                    .unwrap(),
                chosen,
            )
        };
        let (there, chosen) = list("none");
        assert_eq!(there["available"], true, "{there}");
        assert_eq!(chosen, name);
        let (absent, chosen) = list("absent");
        assert_eq!(absent["available"], false, "{absent}");
        assert!(absent["reason"].as_str().unwrap().len() > 20, "{absent}");
        assert_ne!(chosen, name);
        // It answers, and lies: the trial chunk tells.
        let (lying, chosen) = list("wrong");
        assert!(
            lying["reason"].as_str().unwrap().contains("trial chunk"),
            "{lying}"
        );
        assert_ne!(chosen, name);
    }
}

// Goal: whatever the device does after it was found good, the file arrives. Method: each library at both ends, each
// fault from the tenth operation on, for good.
#[test]
fn a_device_that_fails_or_lies_spoils_no_transfer() {
    let dir = TempDir::new().unwrap();
    let content = make(Kind::Text, 3 << 20, 1);
    let file = dir.path().join("file");
    fs::write(&file, &content).unwrap();
    for (source, variable, _, codec) in DEVICES {
        let Some(standin) = StandIn::build(source, &[], dir.path()) else {
            return;
        };
        for fault in [
            "none",
            "status:10",
            "short:10",
            "long:10",
            "unread:10",
            "busy:10",
        ] {
            let to = TempDir::new().unwrap();
            let recv = ["recv", "-l", "127.0.0.1:0", to.path().to_str().unwrap()];
            let receiver = Process::start(&mut with(&recv, variable, standin.path(), fault));
            let address = receiver.address();
            let send = [
                "send",
                "--codec",
                codec,
                "--chunk",
                "64K",
                file.to_str().unwrap(),
                &address,
            ];
            Process::start(&mut with(&send, variable, standin.path(), fault))
                .wait()
                .expect(0);
            receiver.wait().expect(0);
            assert!(
                fs::read(to.path().join("file")).unwrap() == content,
                "{source}: {fault}"
            );
        }
    }
}

// What a device unpacked wrongly and no checksum of the format tells, the frame around it does: a clear error, no file.
#[test]
fn a_device_that_unpacks_wrongly_is_found_out() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, make(Kind::Text, 3 << 20, 1)).unwrap();
    let Some(standin) = StandIn::build("qatzip", &[], dir.path()) else {
        return;
    };
    let to = TempDir::new().unwrap();
    let recv = ["recv", "-l", "127.0.0.1:0", to.path().to_str().unwrap()];
    let receiver = Process::start(&mut with(
        &recv,
        "NARROWS_QATZIP_LIB",
        standin.path(),
        "wrong:10",
    ));
    let address = receiver.address();
    let sent = start([
        "send",
        "--codec",
        "deflate",
        "--chunk",
        "64K",
        file.to_str().unwrap(),
        &address,
    ])
    .wait();
    assert_ne!(sent.code, 0, "{sent:?}");
    receiver.wait().expect(3).says("chunk check differs");
    assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0);
}
