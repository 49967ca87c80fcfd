//! `narrows offload`, end to end: files that other programs read, and servers that go away.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use narrows_testkit::data::{Kind, make};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{Process, alone, eventually, narrows, parts, run, skip, start};

struct Bench {
    dir: TempDir,
    server: Process,
    address: String,
}

impl Bench {
    fn new(flags: &[&str]) -> Self {
        let server = start([&["offload", "serve", "--listen", &alone()], flags].concat());
        let address = server.address();
        Self {
            dir: TempDir::new().unwrap(),
            server,
            address,
        }
    }

    fn file(&self, name: &str, kind: Kind, len: usize) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, make(kind, len, 1)).unwrap();
        path
    }

    fn pack(&self, file: &Path, flags: &[&str]) -> Process {
        start(
            [
                &[
                    "offload",
                    "pack",
                    file.to_str().unwrap(),
                    "--to",
                    &self.address,
                ],
                flags,
            ]
            .concat(),
        )
    }
}

/// What a program makes of a file on its standard output; `None` where it is not there.
fn read_by(program: &str, file: &Path) -> Option<Vec<u8>> {
    let test = Command::new(program)
        .arg("-t")
        .arg(file)
        .stderr(Stdio::piped())
        .status();
    let Ok(test) = test else {
        skip(&format!("there is no {program} here"));
        return None;
    };
    assert!(test.success(), "{program} -t {}", file.display());
    let output = Command::new(program)
        .args(["-d", "-c"])
        .arg(file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(output.stdout)
}

#[test]
fn packed_there_read_by_gzip_zstd_and_lz4_and_unpacked_there() {
    let bench = Bench::new(&[]);
    let file = bench.file("notes.txt", Kind::Text, 3_000_000);
    let raw = fs::read(&file).unwrap();
    for (codec, ending, program) in [
        ("deflate", "gz", "gzip"),
        ("zstd", "zst", "zstd"),
        ("lz4", "lz4", "lz4"),
    ] {
        let ended = bench
            .pack(&file, &["--codec", codec, "--copy"])
            .wait()
            .expect(0);
        let text = String::from_utf8(ended.stdout).unwrap();
        for words in ["copy and back", "device", "turn-around", "all checked here"] {
            assert!(text.contains(words), "no {words:?} in {text}");
        }
        let packed = bench.dir.path().join(format!("notes.txt.{ending}"));
        if let Some(read) = read_by(program, &packed) {
            assert!(read == raw, "{program} reads something else");
        }
        let back = bench.dir.path().join("back");
        let words = [
            "offload",
            "unpack",
            packed.to_str().unwrap(),
            "--to",
            &bench.address,
            "-f",
            "-o",
        ];
        run(words.into_iter().chain([back.to_str().unwrap()])).expect(0);
        assert!(fs::read(&back).unwrap() == raw);
        // Standard output is the content's alone.
        let words = [
            "offload",
            "unpack",
            packed.to_str().unwrap(),
            "--local",
            "-o",
            "-",
        ];
        assert!(run(words).expect(0).stdout == raw);
        // What is there is not replaced unasked.
        bench
            .pack(&file, &["--codec", codec])
            .wait()
            .expect(2)
            .says("--force");
    }
}

#[test]
fn a_server_that_is_killed_leaves_a_right_file_or_an_error() {
    for spill in [true, false] {
        let bench = Bench::new(&["--workers", "1"]);
        let file = bench.file("long", Kind::Text, 12_000_000);
        let mut flags = vec!["--level", "12", "--block", "64K", "--resume-within", "0.3"];
        if !spill {
            flags.push("--no-spill");
        }
        let client = bench.pack(&file, &flags);
        eventually("the job has begun", || !parts(bench.dir.path()).is_empty());
        bench.server.signal(Signal::KILL);
        let ended = client.wait();
        let packed = bench.dir.path().join("long.gz");
        if spill {
            let text = String::from_utf8(ended.expect(0).stdout).unwrap();
            assert!(text.contains("done here by"), "{text}");
            if let Some(read) = read_by("gzip", &packed) {
                assert!(read == fs::read(&file).unwrap());
            }
        } else {
            ended.expect(1).says("--no-spill");
            assert!(!packed.exists());
        }
        assert!(parts(bench.dir.path()).is_empty());
    }
}

#[test]
fn an_interrupted_job_leaves_nothing() {
    let bench = Bench::new(&["--workers", "1"]);
    let file = bench.file("long", Kind::Text, 12_000_000);
    let client = bench.pack(&file, &["--level", "12"]);
    eventually("the job has begun", || !parts(bench.dir.path()).is_empty());
    client.signal(Signal::INT);
    client.wait().expect(130);
    assert!(!bench.dir.path().join("long.gz").exists() && parts(bench.dir.path()).is_empty());
}

#[test]
fn what_does_not_work_is_told_with_its_code() {
    let bench = Bench::new(&["--clients-max", "1", "--memory", "5M"]);
    let file = bench.file("file", Kind::Text, 100_000);
    let file = file.to_str().unwrap();
    // Full, and nothing may be done here.
    bench
        .pack(Path::new(file), &["--no-spill"])
        .wait()
        .expect(1)
        .says("full");
    // Full, and it is done here.
    let ended = bench.pack(Path::new(file), &[]).wait().expect(0);
    assert!(
        String::from_utf8(ended.stdout)
            .unwrap()
            .contains("given up")
    );
    run(["offload", "pack", file, "--to", "127.0.0.1:1", "--force"]).expect(1);
    // Nobody is asked for anything that cannot be read: else it would be the server that cannot be reached.
    for [op, file] in [
        ["pack", "/nowhere/file"],
        ["pack", "/"],
        ["unpack", "/nowhere/file.gz"],
        ["table", "/nowhere/file"],
    ] {
        run(["offload", op, file, "--to", "127.0.0.1:1"])
            .expect(1)
            .says("cannot read");
    }
    run(["offload", "pack", file]).expect(2);
    run([
        "offload", "pack", file, "--local", "--codec", "lz4", "--block", "100K",
    ])
    .expect(2);
    run(["offload", "pack", file, "--local", "--block", "1G"]).expect(2);
    run(["offload", "unpack", file, "--local"])
        .expect(2)
        .says("--output");
    let back = bench.dir.path().join("back");
    let back = back.to_str().unwrap();
    run(["offload", "unpack", file, "--local", "-o", back]).expect(5);
    run(["offload", "serve", "--listen", "0.0.0.0:0"])
        .expect(2)
        .says("--insecure");
    let packed = format!("{file}.gz");
    let mut bytes = fs::read(&packed).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&packed, bytes).unwrap();
    run(["offload", "unpack", &packed, "--local", "-o", back])
        .expect(3)
        .says("damaged");
}

#[test]
fn a_server_says_what_it_has() {
    let server = start([
        "offload",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--json",
        "--workers",
        "3",
    ]);
    server.address();
    server.signal(Signal::TERM);
    let json = server.wait().expect(143).json();
    assert_eq!(
        (json["schema"].as_str(), json["workers"].as_u64()),
        (Some("narrows.offload-serve/1"), Some(3))
    );
    for (at, codec) in ["deflate", "zstd", "lz4"].into_iter().enumerate() {
        let offer = &json["offers"][at];
        assert!(
            offer["codec"] == codec && offer["unpack"].is_string(),
            "{offer}"
        );
        assert!(
            offer["pack"]
                .as_array()
                .is_some_and(|pack| pack.iter().any(|way| way["backend"] == "cpu")),
            "{offer}"
        );
    }
}

// Goal: `-` is standard input and output, for packing and unpacking, as in `narrows pack`; nothing is called `-`.
#[test]
fn standard_streams_are_packed_and_unpacked() {
    let dir = TempDir::new().unwrap();
    let raw = make(Kind::Text, 700_000, 3);
    let through = |words: &[&str], input: &[u8]| {
        let mut command = narrows(words);
        command.current_dir(dir.path()).stdin(Stdio::piped());
        let mut process = Process::start(&mut command);
        // One that refuses its flags does not read.
        let _ = process.stdin().write_all(input);
        process.wait()
    };
    let packed = through(&["offload", "pack", "-", "--local", "-q"], &raw).expect(0);
    assert!(packed.stdout.starts_with(&[0x1f, 0x8b]) && packed.stdout.len() < raw.len());
    let words = ["offload", "unpack", "-", "--local", "-q", "-o", "-"];
    assert_eq!(through(&words, &packed.stdout).expect(0).stdout, raw);
    fs::write(dir.path().join("f"), &raw).unwrap();
    let words = [
        "offload", "pack", "f", "--local", "-q", "--codec", "zstd", "-o", "-",
    ];
    let packed = through(&words, b"").expect(0).stdout;
    fs::write(dir.path().join("g.zst"), packed).unwrap();
    let words = ["offload", "unpack", "g.zst", "--local", "-q", "-o", "-"];
    assert_eq!(through(&words, b"").expect(0).stdout, raw);
    let words = ["offload", "pack", "-", "--local", "--json"];
    through(&words, &raw).expect(2).says("standard output");
    let words = ["offload", "unpack", "-", "--local"];
    through(&words, b"no packed file").expect(5);
    let mut names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["f", "g.zst"]);
}
