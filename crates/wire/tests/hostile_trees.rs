//! Trees that no honest sender makes: refused, and nothing outside the directory is touched.

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    sync::mpsc,
    thread,
    time::Duration,
};

use narrows::{Acceptor, Endpoint, Engine, Settings};
use narrows_io::{Address, Listener, Tuning, transport};
use narrows_wire::{
    Received, SERVICE_TREE, SERVICE_TREE_2, SERVICE_TREE_3, TransferError,
    keep::Keep,
    recv,
    tree::{Entry, Extent, Extras, Meta, Owner},
};
use tempfile::TempDir;

/// Sends `bytes` as a tree to a receiver for `dir`.
fn receive(dir: &Path, bytes: &[u8]) -> Result<Received, TransferError> {
    receive_many(dir, bytes, 1, SERVICE_TREE)
}

/// The same with `bytes` so many times over.
fn receive_many(
    dir: &Path,
    bytes: &[u8],
    times: usize,
    service: &str,
) -> Result<Received, TransferError> {
    let engine = Engine::new(1);
    let listener = Listener::bind(
        &Address::parse("127.0.0.1:0", 0).unwrap(),
        &Tuning::default(),
    )
    .unwrap();
    let to = listener.local().clone();
    let acceptor = Acceptor::new(engine.clone(), Settings::default());
    let (found, sessions) = mpsc::channel();
    thread::spawn(move || {
        let transport = listener.accept().unwrap().unwrap();
        let _ = found.send(acceptor.take(transport).unwrap().unwrap());
    });
    let dial = Box::new(move || {
        transport::connect(&to, &Tuning::default()).map_err(std::io::Error::other)
    });
    let sender = Endpoint::connect(&engine, Settings::default(), dial).unwrap();
    let receiver = sessions.recv_timeout(Duration::from_secs(10)).unwrap();
    let (mut writer, mut reader) = sender.open(service).unwrap();
    thread::spawn(move || reader.read_to_end(&mut Vec::new()));
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = (0..times).try_for_each(|_| writer.write_all(bytes));
            let _ = writer.finish();
        });
        let incoming = receiver.accept().unwrap().unwrap();
        recv::incoming(incoming, recv::Sink::Dir(dir, Keep::default()), &mut |_| {})
    })
}

// Goal: a hard link leads to a file that this transfer has put there, and nowhere else; extras belong to an entry that
// can have them; what the receiver's user does not allow is not set; and a service has no entries of later ones.
#[test]
fn hard_links_and_extras_are_bounded() {
    let dir = TempDir::new().unwrap();
    let outside = TempDir::new().unwrap();
    fs::write(outside.path().join("secret"), b"secret").unwrap();
    fs::write(dir.path().join("mine"), b"mine").unwrap();
    symlink(outside.path(), dir.path().join("out")).unwrap();
    let hard = |path: &[u8], target: &[u8]| entry(&Entry::HardLink(meta(path), target.to_vec()));
    let owned = entry(&Entry::Extras(Extras {
        user: Some(Owner::default()),
        ..Extras::default()
    }));
    let cases = [
        (
            "out of the directory",
            [hard(b"h", b"../secret"), end(1)].concat(),
        ),
        (
            "through a link",
            [hard(b"h", b"out/secret"), end(1)].concat(),
        ),
        (
            "to a link",
            [link(b"l", b"x"), hard(b"h", b"l"), end(2)].concat(),
        ),
        ("to what was there", [hard(b"h", b"mine"), end(1)].concat()),
        (
            "to a directory",
            [self::dir(b"d"), hard(b"h", b"d"), end(2)].concat(),
        ),
        ("to nothing", [hard(b"h", b"none"), end(1)].concat()),
        (
            "to itself",
            [file(b"f", b"x"), hard(b"f", b"f"), end(2)].concat(),
        ),
        (
            "over another entry",
            [
                file(b"f2", b"x"),
                file(b"g2", b"y"),
                hard(b"g2", b"f2"),
                end(3),
            ]
            .concat(),
        ),
        ("extras of the end", [owned.clone(), end(0)].concat()),
        (
            "extras twice",
            [owned.clone(), owned.clone(), file(b"e", b"x"), end(1)].concat(),
        ),
    ];
    for (what, bytes) in cases {
        let bytes = [&b"\x02\0{}"[..], &bytes].concat();
        let fault = receive_many(dir.path(), &bytes, 1, SERVICE_TREE_3).unwrap_err();
        assert!(!dir.path().join("h").exists(), "{what}: {fault}");
    }
    let wants = br#"{"keep":{"user":true}}"#;
    let bytes = [
        &[wants.len() as u8, 0][..],
        wants,
        &owned,
        &file(b"o", b"x"),
        &end(1),
    ]
    .concat();
    let fault = receive_many(dir.path(), &bytes, 1, SERVICE_TREE_3).unwrap_err();
    assert!(fault.to_string().contains("-o -g -A -X"), "{fault}");
    for bytes in [
        [&b"\x02\0{}"[..], &owned].concat(),
        [b"\x02\0{}", &hard(b"h", b"f")[..]].concat(),
    ] {
        let fault = receive_many(dir.path(), &bytes, 1, SERVICE_TREE_2).unwrap_err();
        assert!(fault.to_string().contains("later version"), "{fault}");
    }
    // And one that is right.
    let right = [file(b"first", b"x"), hard(b"second", b"first"), end(2)].concat();
    let bytes = [&b"\x02\0{}"[..], &right].concat();
    receive_many(dir.path(), &bytes, 1, SERVICE_TREE_3).unwrap();
    assert_eq!(fs::read(dir.path().join("second")).unwrap(), b"x");
    assert_eq!(fs::read(dir.path().join("mine")).unwrap(), b"mine");
}

fn meta(path: &[u8]) -> Meta {
    Meta {
        mode: 0o644,
        mtime_s: 0,
        mtime_ns: 0,
        path: path.to_vec(),
    }
}

fn file(path: &[u8], content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Entry::File(meta(path)).write(&mut bytes);
    if !content.is_empty() {
        Extent::Data(content.len() as u32).write(&mut bytes);
        bytes.extend_from_slice(content);
    }
    Extent::End.write(&mut bytes);
    bytes
}

fn entry(entry: &Entry) -> Vec<u8> {
    let mut bytes = Vec::new();
    entry.write(&mut bytes);
    bytes
}

fn dir(path: &[u8]) -> Vec<u8> {
    entry(&Entry::Dir(meta(path)))
}

fn link(path: &[u8], target: &[u8]) -> Vec<u8> {
    entry(&Entry::Link(meta(path), target.to_vec()))
}

fn end(entries: u64) -> Vec<u8> {
    entry(&Entry::End(entries))
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn no_entry_leads_out_of_the_directory() {
    let outside = TempDir::new().unwrap();
    let out = outside.path().to_str().unwrap().as_bytes().to_vec();
    let escape = [&out[..], b"/escaped"].concat();
    let extents = |extents: &[Extent]| {
        let mut bytes = entry(&Entry::File(meta(b"f")));
        extents.iter().for_each(|extent| extent.write(&mut bytes));
        bytes
    };
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("a parent", [file(b"../escaped", b"x"), end(1)].concat()),
        (
            "a parent within",
            [dir(b"d"), file(b"d/../../escaped", b"x"), end(2)].concat(),
        ),
        ("a parent as a directory", [dir(b".."), end(1)].concat()),
        ("an absolute path", [file(&escape, b"x"), end(1)].concat()),
        ("an absolute directory", [dir(&escape), end(1)].concat()),
        ("an absolute link", [link(&escape, b"x"), end(1)].concat()),
        ("the directory itself", [file(b".", b"x"), end(1)].concat()),
        (
            "a file through a link sent before",
            [link(b"l", &out), file(b"l/escaped", b"x"), end(2)].concat(),
        ),
        (
            "a directory through a link",
            [link(b"l", &out), dir(b"l/escaped"), end(2)].concat(),
        ),
        (
            "a link through a link",
            [link(b"l", &out), link(b"l/escaped", b"x"), end(2)].concat(),
        ),
        (
            "a file through a link that was there",
            [file(b"there/escaped", b"x"), end(1)].concat(),
        ),
        (
            "a directory where a link was",
            [dir(b"there"), file(b"there/escaped", b"x"), end(2)].concat(),
        ),
        (
            "the same by a slash",
            [dir(b"there/"), file(b"there/escaped", b"x"), end(2)].concat(),
        ),
        (
            "the same by a dot",
            [dir(b"there/."), file(b"there/escaped", b"x"), end(2)].concat(),
        ),
        (
            "the same by two slashes",
            [dir(b"there//"), file(b"there/escaped", b"x"), end(2)].concat(),
        ),
        (
            "a file below a file",
            [file(b"f", b"x"), file(b"f/escaped", b"x"), end(2)].concat(),
        ),
        (
            "a link in place of a directory",
            [dir(b"d"), link(b"d", &out), end(2)].concat(),
        ),
        ("no end", file(b"f", b"x")),
        ("another count", [file(b"f", b"x"), end(2)].concat()),
        ("an unknown kind", vec![9; 100]),
        ("a path with a zero", [file(b"a\0b", b"x"), end(1)].concat()),
        (
            "an endless hole",
            extents(&[Extent::Hole(u64::MAX), Extent::End]),
        ),
        (
            "holes that overflow",
            extents(&[
                Extent::Hole(1 << 62),
                Extent::Hole(1 << 62),
                Extent::Hole(1 << 62),
            ]),
        ),
        (
            "data past any file",
            extents(&[Extent::Hole(i64::MAX as u64), Extent::Data(1)]),
        ),
        (
            "an extent of 4 GiB",
            [entry(&Entry::File(meta(b"f"))), vec![1, 255, 255, 255, 255]].concat(),
        ),
        ("a file cut within its data", extents(&[Extent::Data(1000)])),
    ];
    for (what, bytes) in &cases {
        let into = TempDir::new().unwrap();
        symlink(outside.path(), into.path().join("there")).unwrap();
        let fault = receive(into.path(), bytes).expect_err(what).to_string();
        assert!(!fault.is_empty());
        assert_eq!(
            fs::read_dir(outside.path()).unwrap().count(),
            0,
            "{what} wrote outside: {fault}"
        );
        let left = fs::read_dir(into.path()).unwrap().flatten();
        let parts = left
            .filter(|entry| {
                entry
                    .file_name()
                    .as_encoded_bytes()
                    .starts_with(b".narrows-")
            })
            .count();
        assert_eq!(parts, 0, "{what} left a part");
        // What is under its name is whole, and an endless hole is not.
        assert!(
            !matches!(fs::metadata(into.path().join("f")), Ok(meta) if meta.len() > 1),
            "{what}"
        );
    }
    println!("{} hostile trees refused", cases.len());
}

#[test]
fn special_modes_are_not_taken_over() {
    let into = TempDir::new().unwrap();
    let mut setuid = meta(b"f");
    setuid.mode = 0o7777;
    let mut sticky = meta(b"d");
    sticky.mode = 0o7755;
    let bytes = [
        entry(&Entry::Dir(sticky)),
        entry(&Entry::File(setuid)),
        entry_end(),
        end(2),
    ]
    .concat();
    receive(into.path(), &bytes).unwrap();
    let mode = |name| {
        fs::metadata(into.path().join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777
    };
    assert_eq!(
        (mode("f"), mode("d")),
        (0o777, 0o1755),
        "no bit from afar that gives rights"
    );
}

fn entry_end() -> Vec<u8> {
    let mut bytes = Vec::new();
    Extent::End.write(&mut bytes);
    bytes
}

#[test]
fn every_cut_of_a_tree_is_refused() {
    let tree = [
        dir(b"d"),
        file(b"d/f", b"content"),
        link(b"l", b"d/f"),
        end(3),
    ]
    .concat();
    let into = TempDir::new().unwrap();
    assert_eq!(receive(into.path(), &tree).unwrap().entries, 3);
    for cut in 0..tree.len() {
        let into = TempDir::new().unwrap();
        assert!(receive(into.path(), &tree[..cut]).is_err(), "cut at {cut}");
    }
    println!("{} cuts refused", tree.len());
}

// Goal: what is held of a tree until its end is bounded, though it packs to next to nothing. Method: one link again and
// again.
#[test]
fn links_without_end_are_not_held() {
    let dir = TempDir::new().unwrap();
    let bytes = link(&[b'a'; 4096], &[b'b'; 4096]);
    let fault = receive_many(dir.path(), &bytes, 70_000, SERVICE_TREE).unwrap_err();
    assert!(matches!(fault, TransferError::Limit(_)), "{fault}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

// Goal: two entries of one place are refused, whatever they are, and nothing may follow the end.
#[test]
fn one_place_takes_one_entry_and_nothing_follows_the_end() {
    let twice: [Vec<u8>; 5] = [
        [file(b"a", b"1"), file(b"a", b"2"), end(2)].concat(),
        [dir(b"a"), dir(b"a"), end(2)].concat(),
        [link(b"a", b"x"), link(b"a", b"y"), end(2)].concat(),
        [file(b"a", b"1"), link(b"a", b"y"), end(2)].concat(),
        [dir(b"d"), file(b"d/f", b"1"), file(b"d/f", b"1"), end(3)].concat(),
    ];
    for tree in twice {
        let into = TempDir::new().unwrap();
        let fault = receive(into.path(), &tree).unwrap_err();
        assert!(matches!(fault, TransferError::Refused(_)), "{fault}");
    }
    // What was there before is no entry.
    let into = TempDir::new().unwrap();
    for text in [&b"1"[..], b"22"] {
        let tree = [dir(b"d"), file(b"d/f", text), link(b"l", b"d"), end(3)].concat();
        receive(into.path(), &tree).unwrap();
        assert_eq!(fs::read(into.path().join("d/f")).unwrap(), text);
    }
    let more = [file(b"a", b"1"), end(1), vec![0]].concat();
    let fault = receive(into.path(), &more).unwrap_err();
    assert!(
        fault.to_string().contains("after the tree's end"),
        "{fault}"
    );
}

// Goal: what belongs to `tree/2` is refused in a tree of the first version.
#[test]
fn entries_of_a_later_version_are_refused() {
    for entry in [
        Entry::Withdrawn,
        Entry::LeftOut(1),
        Entry::Content(meta(b""), 0),
    ] {
        let mut tree = Vec::new();
        entry.write(&mut tree);
        let into = TempDir::new().unwrap();
        let fault = receive(into.path(), &[tree, end(0)].concat()).unwrap_err();
        assert!(fault.to_string().contains("later version"), "{fault}");
    }
}
