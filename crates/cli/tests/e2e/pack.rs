//! `narrows pack`, `unpack`, `cat`, `list`, `verify`, `convert`: files, pipes, damage, and what others' programs read.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use narrows_testkit::data::{Kind, make};
use tempfile::TempDir;

use crate::process::{NARROWS, Process, has, narrows, run, skip};

/// A directory with a file of text and doubles in it.
fn dir() -> (TempDir, PathBuf, Vec<u8>) {
    let dir = TempDir::new().unwrap();
    let content = [
        make(Kind::Text, 300_000, 1),
        make(Kind::Doubles, 200_000, 2),
    ]
    .concat();
    let path = dir.path().join("data");
    fs::write(&path, &content).unwrap();
    (dir, path, content)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn names(dir: &TempDir) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_file_is_packed_beside_itself_and_comes_back_with_mode_and_time() {
    let (dir, path, content) = dir();
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::open(&path).unwrap().set_modified(then).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    let packed = run(["pack", "-1", "-T2", text(&path)]).expect(0);
    assert!(String::from_utf8_lossy(&packed.stdout).contains("ratio"));
    assert_eq!(names(&dir), ["data", "data.narrows"]);
    // What is there is not replaced, and nothing is removed.
    run(["pack", text(&path)]).expect(2).says("-f replaces it");
    let file = dir.path().join("data.narrows");
    run(["unpack", text(&file)])
        .expect(2)
        .says("-f replaces it");
    fs::remove_file(&path).unwrap();
    run(["unpack", text(&file)]).expect(0);
    assert_eq!(fs::read(&path).unwrap(), content);
    for path in [&path, &file] {
        let meta = fs::metadata(path).unwrap();
        assert_eq!(
            (meta.mode() & 0o777, meta.modified().unwrap()),
            (0o640, then)
        );
    }
    run(["pack", "-f", "--rm", text(&path)]).expect(0);
    assert_eq!(names(&dir), ["data.narrows"]);
    run([
        "pack",
        "-d",
        "-o",
        text(&dir.path().join("other")),
        text(&file),
    ])
    .expect(0);
    assert_eq!(fs::read(dir.path().join("other")).unwrap(), content);
}

#[test]
fn pipes_are_packed_and_unpacked() {
    let (_dir, path, content) = dir();
    let stdin = |path: &Path| Stdio::from(File::open(path).unwrap());
    let packed = Process::start(narrows(["pack", "--type", "f64", "-"]).stdin(stdin(&path)))
        .wait()
        .expect(0);
    assert!(packed.stdout.len() < content.len());
    let file = path.with_extension("narrows");
    fs::write(&file, &packed.stdout).unwrap();
    for words in [
        &["unpack"][..],
        &["unpack", "-c", "-"],
        &["cat"],
        &["pack", "-dc"],
    ] {
        let got = Process::start(narrows(words).stdin(stdin(&file)))
            .wait()
            .expect(0);
        assert!(got.stdout == content, "{words:?}");
    }
    let part = run(["cat", "--offset", "299990", "--length", "30", text(&file)]).expect(0);
    assert_eq!(part.stdout, content[299_990..300_020]);
    // Under another name the program is `narrows cat`.
    let link = path.with_file_name("narrowscat");
    symlink(NARROWS, &link).unwrap();
    let got = Process::start(Command::new(&link).arg(&file).stdin(Stdio::null())).wait();
    assert!(got.expect(0).stdout == content);
}

#[test]
fn files_are_listed_and_checked() {
    let (dir, path, content) = dir();
    run(["pack", "--chunk", "64K", "--json", text(&path)]).expect(0);
    let file = dir.path().join("data.narrows");
    let listed = run(["list", "--json", "--frames", text(&file)])
        .expect(0)
        .json();
    assert_eq!(listed["schema"], "narrows.file/1");
    assert_eq!(listed["content_bytes"], content.len());
    assert_eq!(listed["file_bytes"], fs::metadata(&file).unwrap().len());
    assert_eq!(
        listed["frames"].as_array().unwrap().len(),
        content.len().div_ceil(65_536)
    );
    let table = run(["list", text(&file)]).expect(0);
    assert!(String::from_utf8_lossy(&table.stdout).contains("zstd"));
    let sound = run(["verify", text(&file)]).expect(0);
    assert!(String::from_utf8_lossy(&sound.stdout).contains("sound"));
    let sound = run(["pack", "-t", "--json", text(&file)]).expect(0).json();
    assert_eq!(
        (&sound["sound"], &sound["xxh3"]),
        (&true.into(), &listed["xxh3"])
    );
}

// Goal: damage costs its chunk, has a name, and gives code 3. Method: bytes in the middle of a file are changed.
#[test]
fn a_damaged_middle_costs_its_chunk_alone() {
    let (dir, path, content) = dir();
    run(["pack", "--chunk", "64K", text(&path)]).expect(0);
    let file = dir.path().join("data.narrows");
    let listed = run(["list", "--json", "--frames", text(&file)])
        .expect(0)
        .json();
    let at = listed["frames"][2]["at"].as_u64().unwrap() as usize;
    let mut bytes = fs::read(&file).unwrap();
    bytes[at + 200] ^= 1;
    fs::write(&file, &bytes).unwrap();
    run(["verify", text(&file)])
        .expect(3)
        .says("--skip-damaged");
    run(["unpack", "-f", text(&file)])
        .expect(3)
        .says("--skip-damaged");
    assert_eq!(fs::read(&path).unwrap(), content, "what was there stays");
    let rest = dir.path().join("rest");
    run(["unpack", "--skip-damaged", "-o", text(&rest), text(&file)])
        .expect(3)
        .says("content bytes 131072 to 196608 are lost");
    let mut expected = content;
    expected[131_072..196_608].fill(0);
    assert!(fs::read(rest).unwrap() == expected);
    assert_eq!(names(&dir), ["data", "data.narrows", "rest"]);
    run(["cat", text(&path)]).expect(5).says("narrows convert");
    fs::write(&file, &bytes[..bytes.len() - 9]).unwrap();
    run(["list", text(&file)]).expect(3).says("ends");
}

#[test]
fn other_formats_are_written_and_read() {
    let (dir, path, content) = dir();
    run(["pack", "-q", text(&path)]).expect(0);
    let file = dir.path().join("data.narrows");
    for (ending, program) in [("zst", "zstd"), ("lz4", "lz4"), ("gz", "gzip")] {
        let other = dir.path().join(format!("out.{ending}"));
        run(["convert", text(&file), "-o", text(&other)]).expect(0);
        let back = dir.path().join(format!("back-{ending}.narrows"));
        run(["convert", text(&other), "-o", text(&back)]).expect(0);
        assert!(
            run(["cat", text(&back)]).expect(0).stdout == content,
            "{ending}"
        );
        if !has(program) {
            skip(&format!("{program} is not installed"));
        } else {
            let got = Command::new(program)
                .args(["-dc", text(&other)])
                .output()
                .unwrap();
            assert!(got.stdout == content, "{program} reads another content");
            let theirs = dir.path().join(format!("theirs.{ending}"));
            let made = Command::new(program)
                .args(["-c", text(&path)])
                .output()
                .unwrap();
            // Twice: files of these formats may be joined.
            fs::write(&theirs, [&made.stdout[..], &made.stdout].concat()).unwrap();
            run(["convert", "-f", text(&theirs), "-o", text(&back)]).expect(0);
            let got = run(["cat", text(&back)]).expect(0).stdout;
            assert!(got == [&content[..], &content].concat(), "{program}'s file");
            fs::write(&theirs, &made.stdout[..made.stdout.len() / 2]).unwrap();
            run(["convert", "-f", text(&theirs), "-o", text(&back)]).expect(3);
        }
    }
    let fault = run(["convert", text(&path)]).expect(5);
    fault.says("begins like no");
}

// Goal: sound files of other formats are read, or said to be not ours; none is called damaged. Method: zeros behind, frames to
// be skipped in front and between, an old frame, a window and a dictionary that are not read here.
#[test]
fn sound_files_of_other_formats_are_not_called_damaged() {
    let (dir, path, content) = dir();
    let made = |program: &str, flags: &[&str]| {
        let mut command = Command::new(program);
        let made = command.args(flags).arg("-c").arg(&path).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        made.stdout
    };
    let mut skippable = vec![0x5a, 0x2a, 0x4d, 0x18, 200, 0, 0, 0];
    skippable.extend([9; 200]);
    let zeros = vec![0; 1000];
    let mut cases: Vec<(&str, Vec<&[u8]>, i32)> = Vec::new();
    let [gzip, lz4, old, zstd, wide] = [
        ("gzip", &[][..]),
        ("lz4", &[]),
        ("lz4", &["-l"]),
        ("zstd", &[]),
        ("zstd", &["--long=29", "--no-content-size", "-1"]),
    ]
    .map(|(program, flags)| {
        if has(program) {
            made(program, flags)
        } else {
            Vec::new()
        }
    });
    let wide = match wide.get(4..6) {
        // A window of 512 MiB, whatever the content's length made of the flag.
        Some([descriptor, _]) if descriptor & 0x20 == 0 => {
            [&wide[..5], &[19 << 3], &wide[6..]].concat()
        }
        _ => Vec::new(),
    };
    for packed in [&gzip, &lz4, &zstd].into_iter().filter(|it| !it.is_empty()) {
        cases.push(("zeros behind", vec![packed, &zeros], 0));
        cases.push(("something behind", vec![packed, b"something"], 5));
    }
    for packed in [&lz4, &zstd].into_iter().filter(|it| !it.is_empty()) {
        cases.push(("skippable in front", vec![&skippable, packed], 0));
        cases.push(("skippable behind", vec![packed, &skippable], 0));
    }
    if !lz4.is_empty() {
        cases.push(("an old frame behind", vec![&lz4, &old], 5));
    }
    if !wide.is_empty() {
        cases.push(("a wide window", vec![&wide], 6));
    }
    let file = dir.path().join("theirs");
    let back = dir.path().join("back.narrows");
    for (what, pieces, code) in cases {
        fs::write(&file, pieces.concat()).unwrap();
        run(["convert", "-q", "-f", text(&file), "-o", text(&back)]).expect(code);
        if code == 0 {
            let got = run(["cat", text(&back)]).expect(0).stdout;
            assert!(got == content, "{what}");
        }
    }
    fs::write(&file, b"").unwrap();
    run(["convert", text(&file), "-o", text(&back), "-f"]).expect(5);
}

#[test]
fn mistakes_are_told() {
    let (dir, path, _) = dir();
    let (path, missing) = (text(&path).to_owned(), dir.path().join("missing"));
    run(["pack", "--type", "f31", &path]).expect(2).says("f16");
    run(["pack", "--chunk", "5000", &path])
        .expect(2)
        .says("4096");
    run(["pack", "-20", &path]).expect(2);
    run(["pack", text(&missing)]).expect(1).says("missing");
    run(["pack", text(dir.path())]).expect(2).says("tar");
    run(["unpack", &path]).expect(2).says("-o");
    run(["pack", "-o", &path, &path])
        .expect(2)
        .says("the file that is read");
    run(["pack", &path, &path, "-o", "x"]).expect(2).says("-c");
    // Of several files the others are done.
    run(["pack", text(&missing), &path])
        .expect(1)
        .says("1 of 2 files failed");
    assert_eq!(names(&dir), ["data", "data.narrows"]);
}

// Goal: an interrupted run leaves nothing. Method: it waits for a pipe that says no more.
#[test]
fn an_interrupted_run_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out.narrows");
    let mut command = narrows(["pack", "-o", text(&out), "-"]);
    let process = Process::start(command.stdin(Stdio::piped()));
    let begun = SystemTime::now();
    while names(&dir).is_empty() {
        assert!(
            begun.elapsed().unwrap() < Duration::from_secs(30),
            "it never began"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    process.signal(rustix::process::Signal::TERM);
    process.wait().expect(143);
    assert!(names(&dir).is_empty(), "{:?}", names(&dir));
}
