//! Hard links, owners, access lists and extended attributes, where both ends' users want them kept.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink},
    path::Path,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Ended, is_root, run, skip, start};

const ACL: &str = "system.posix_acl_access";
const DEFAULT_ACL: &str = "system.posix_acl_default";

/// An access list as the kernel has it: the owner reads and writes, `user` and the group read, others nothing.
fn acl(user: u32) -> Vec<u8> {
    let entries = [
        (0x01_u16, 6_u16, u32::MAX),
        (0x02, 4, user),
        (0x04, 4, u32::MAX),
        (0x10, 4, u32::MAX),
        (0x20, 0, u32::MAX),
    ];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&rights.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

fn send(from: &Path, into: &Path, there: &[&str], here: &[&str]) -> (Ended, Ended) {
    let words = [
        &["recv", "-l", "127.0.0.1:0"],
        there,
        &[into.to_str().unwrap()],
    ]
    .concat();
    let receiver = start(words);
    let address = receiver.address();
    let tree = format!("{}/.", from.display());
    let sent = run([&["send", "--json"], here, &[&tree, &address]].concat());
    (sent, receiver.wait())
}

fn sent(from: &Path, into: &Path, there: &[&str], here: &[&str]) -> Value {
    let (sent, received) = send(from, into, there, here);
    received.expect(0);
    sent.expect(0).json()
}

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

// Goal: names of one file arrive as names of one file, whose bytes travel once; also the second time, when one of them
// is another file by now, and where a name is a directory's below. Without -H they are files of their own.
#[test]
fn hard_links_stay_links() {
    let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (from, into) = (from.path(), into.path());
    fs::create_dir(from.join("d")).unwrap();
    fs::write(from.join("z"), vec![7; 100_000]).unwrap();
    for name in ["a", "d/b"] {
        fs::hard_link(from.join("z"), from.join(name)).unwrap();
    }
    fs::write(from.join("other"), b"x").unwrap();
    let first = sent(from, into, &[], &["-H"]);
    assert_eq!(first["content_bytes"], 100_001);
    assert_eq!(first["entries"], 5);
    let same = |into: &Path| {
        inode(&into.join("a")) == inode(&into.join("z"))
            && inode(&into.join("a")) == inode(&into.join("d/b"))
    };
    assert!(same(into) && fs::read(into.join("d/b")).unwrap() == vec![7; 100_000]);
    let again = sent(from, into, &[], &["-H"]);
    assert_eq!(again["content_bytes"], 0);
    assert!(same(into));
    // At the receiver one became a file of its own, and at the sender another.
    fs::remove_file(into.join("z")).unwrap();
    fs::write(into.join("z"), b"another").unwrap();
    fs::remove_file(from.join("d/b")).unwrap();
    fs::write(from.join("d/b"), b"now apart").unwrap();
    sent(from, into, &[], &["-H"]);
    assert_eq!(inode(&into.join("a")), inode(&into.join("z")));
    assert_eq!(fs::read(into.join("d/b")).unwrap(), b"now apart");
    assert_eq!(fs::read(into.join("a")).unwrap(), vec![7; 100_000]);
    let apart = TempDir::new().unwrap();
    let plain = sent(from, apart.path(), &[], &[]);
    assert_eq!(plain["content_bytes"], 200_010);
    assert_ne!(
        inode(&apart.path().join("a")),
        inode(&apart.path().join("z"))
    );
    // Into what is linked there though it is not here: nothing is refused, and nothing lost.
    fs::write(from.join("z"), b"changed").unwrap();
    fs::remove_file(from.join("a")).unwrap();
    fs::write(from.join("a"), b"changed too").unwrap();
    sent(from, into, &[], &[]);
    assert_eq!(fs::read(into.join("z")).unwrap(), b"changed");
    assert_eq!(fs::read(into.join("a")).unwrap(), b"changed too");
}

// Goal: attributes and access lists of files and directories arrive and are brought up to date, those that are gone at
// the sender are removed, also on what is write-protected; labels stay behind. Nothing of it where nobody asks.
#[test]
fn attributes_and_access_lists_are_kept() {
    let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (from, into) = (from.path(), into.path());
    fs::create_dir(from.join("d")).unwrap();
    let file = from.join("d/f");
    fs::write(&file, b"content").unwrap();
    let long = vec![9; 2000];
    let here = [
        xattr::set(&file, "user.x", b"1\0\xff"),
        xattr::set(from.join("d"), "user.dir", &long),
    ];
    if here.iter().any(Result::is_err) {
        return skip("this file system has no extended attributes");
    }
    let acls = xattr::set(&file, ACL, &acl(65533)).is_ok()
        && xattr::set(from.join("d"), DEFAULT_ACL, &acl(65533)).is_ok();
    fs::write(from.join("d/locked"), b"locked").unwrap();
    xattr::set(from.join("d/locked"), "user.y", b"2").unwrap();
    fs::set_permissions(from.join("d/locked"), Permissions::from_mode(0o444)).unwrap();
    let get = |path: &str, name: &str| xattr::get(into.join(path), name).unwrap();
    sent(from, into, &[], &[]);
    assert_eq!(get("d/f", "user.x"), None);
    let plain = fs::metadata(into.join("d/f")).unwrap().mode() & 0o777;
    for round in 0..2 {
        let result = sent(from, into, &["-A", "-X"], &["-AX"]);
        assert_eq!(result["unchanged"], 2, "round {round}");
        assert_eq!(get("d/f", "user.x").unwrap(), b"1\0\xff");
        assert_eq!(get("d", "user.dir").unwrap(), long);
        assert_eq!(get("d/locked", "user.y").unwrap(), b"2");
        if acls {
            assert_eq!(get("d/f", ACL).unwrap(), acl(65533));
            assert_eq!(get("d", DEFAULT_ACL).unwrap(), acl(65533));
        }
        // Somebody changes them there.
        xattr::set(into.join("d/f"), "user.more", b"3").unwrap();
        fs::set_permissions(into.join("d/locked"), Permissions::from_mode(0o644)).unwrap();
        xattr::set(into.join("d/locked"), "user.y", b"other").unwrap();
        fs::set_permissions(into.join("d/locked"), Permissions::from_mode(0o444)).unwrap();
    }
    xattr::remove(&file, "user.x").unwrap();
    if acls {
        xattr::remove(&file, ACL).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(plain)).unwrap();
    }
    sent(from, into, &["-AX"], &["-AX"]);
    assert_eq!(
        (get("d/f", "user.x"), get("d/f", "user.more")),
        (None, None)
    );
    assert_eq!(get("d/f", ACL), None);
    assert_eq!(
        fs::metadata(into.join("d/locked")).unwrap().mode() & 0o777,
        0o444
    );
}

// Goal: owners are set where the receiver's user wants that, of files, directories and links; else the transfer is refused
// in words, with nothing written. What may not be set is told, counted and an error at both ends.
#[test]
fn owners_are_set_where_the_receiver_allows_it() {
    let (from, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (from, into) = (from.path(), into.path());
    fs::create_dir(from.join("d")).unwrap();
    fs::write(from.join("d/f"), b"content").unwrap();
    symlink("f", from.join("d/l")).unwrap();
    let (refused, receiver) = send(from, into, &["-g"], &["-o"]);
    refused.expect(5).says("-o -g -A -X");
    receiver.expect(5);
    assert_eq!(fs::read_dir(into).unwrap().count(), 0);
    if !is_root() {
        return skip("another owner needs root");
    }
    chown(from.join("d"), Some(65533), Some(65532)).unwrap();
    chown(from.join("d/f"), Some(65533), Some(65532)).unwrap();
    lchown(from.join("d/l"), Some(65533), Some(65532)).unwrap();
    fs::set_permissions(from.join("d/f"), Permissions::from_mode(0o640)).unwrap();
    let owner = |path: &str| {
        let meta = fs::symlink_metadata(into.join(path)).unwrap();
        (meta.uid(), meta.gid())
    };
    sent(from, into, &[], &[]);
    assert_eq!(owner("d/f"), (0, 0));
    sent(from, into, &["-o"], &["-o"]);
    assert_eq!(owner("d/f"), (65533, 0));
    sent(from, into, &["-o", "-g"], &["-og", "--numeric-ids"]);
    for path in ["d", "d/f", "d/l"] {
        assert_eq!(owner(path), (65533, 65532), "{path}");
    }
    assert_eq!(
        fs::metadata(into.join("d/f")).unwrap().mode() & 0o7777,
        0o640
    );
    // By name: root's is root here too, whatever its number would be; a nobody's goes by name.
    chown(from.join("d/f"), Some(0), Some(0)).unwrap();
    sent(from, into, &["-og"], &["-og"]);
    assert_eq!(owner("d/f"), (0, 0));
}

// Goal: the flags reach the far end that ssh starts, in both directions.
#[test]
fn what_is_kept_is_kept_over_a_remote_shell() {
    let home = TempDir::new().unwrap();
    let from = home.path().join("from");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("a"), b"one file").unwrap();
    fs::hard_link(from.join("a"), from.join("b")).unwrap();
    let attributes = xattr::set(from.join("a"), "user.x", b"1").is_ok();
    let rsh = home.path().join("rsh");
    fs::write(&rsh, "#!/bin/sh\nshift 2\nexec sh -c \"$*\"\n").unwrap();
    fs::set_permissions(&rsh, Permissions::from_mode(0o755)).unwrap();
    let (pushed, pulled) = (home.path().join("pushed"), home.path().join("pulled"));
    let tree = format!("{}/.", from.display());
    let (to, of) = (
        format!("there:{}", pushed.display()),
        format!("there:{tree}"),
    );
    let flags = [
        "-HX",
        "--rsh",
        rsh.to_str().unwrap(),
        "--remote-program",
        crate::process::NARROWS,
    ];
    run([&["send"][..], &flags, &[&tree, &to]].concat()).expect(0);
    run([&["recv"][..], &flags, &[&of, pulled.to_str().unwrap()]].concat()).expect(0);
    for into in [pushed, pulled] {
        assert_eq!(inode(&into.join("a")), inode(&into.join("b")));
        if attributes {
            let value = xattr::get(into.join("b"), "user.x").unwrap();
            assert_eq!(value.unwrap(), b"1");
        }
    }
}
