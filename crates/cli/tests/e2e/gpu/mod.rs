//! `narrows gpu`, end to end: unmodified programs here, the device on another host (a network namespace, over TLS).
//!
//! C programs are built by the tests against declarations of our own. Programs of others run where they are: in virtual
//! environments under `NARROWS_GPU_VENVS` (`bench/gpu/venvs.sh` makes them), or in the system's Python; FFmpeg where
//! `ffmpeg` has CUDA filters. Where they are not, a test says so.

mod hostile;
mod programs;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use tempfile::TempDir;

use crate::{
    netns::{ADDRESSES, Hosts},
    process::{DEADLINE, Ended, NARROWS, Process, alone, eventually, has, run, skip, start},
};

/// Where the C programs and scripts are.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/gpu")
}

/// The driver library: beside the program under test, as cargo leaves it.
fn library() -> PathBuf {
    let dir = Path::new(NARROWS)
        .parent()
        .expect("a program lies somewhere");
    let found = ["libnarrows_cuda.so", "deps/libnarrows_cuda.so"];
    let found = found
        .iter()
        .map(|name| dir.join(name))
        .find(|path| path.exists());
    found.expect("cargo builds the library with the program")
}

/// Builds a C program against the driver library; `None` where there is no compiler.
fn build(name: &str, dir: &Path) -> Option<PathBuf> {
    if !has("cc") {
        skip("C programs need cc");
        return None;
    }
    let (out, link) = (dir.join(name), dir.join("libcuda.so"));
    if !link.exists() {
        std::os::unix::fs::symlink(library(), &link).unwrap();
    }
    let built = Command::new("cc")
        .args([
            "-O1",
            "-Wall",
            "-Werror",
            "-Wno-unused-function",
            "-Wno-unused-variable",
        ])
        .arg("-o")
        .arg(&out)
        .arg(sources().join(format!("{name}.c")))
        .arg(format!("-L{}", dir.display()))
        .args(["-lcuda", "-lpthread", "-ldl"])
        .status()
        .unwrap();
    assert!(built.success(), "{name}.c does not build");
    Some(out)
}

/// A server on this host.
struct Gpu {
    dir: TempDir,
    server: Process,
    address: String,
}

impl Gpu {
    fn new(flags: &[&str]) -> Self {
        let base = [
            "-v",
            "gpu",
            "serve",
            "--backend",
            "host",
            "--listen",
            &alone(),
        ];
        Self::with(start([&base, flags].concat()))
    }

    /// A server of the `cuda` back end whose driver is the client library again, which leads to `self`.
    fn relay(&self) -> Self {
        let library = library();
        let mut command = crate::process::narrows([
            "-v",
            "gpu",
            "serve",
            "--backend",
            "cuda",
            "--relay",
            "--listen",
            &alone(),
            "--cuda-library",
        ]);
        command
            .arg(library)
            .env("NARROWS_GPU_TO", &self.address)
            .stdin(Stdio::null());
        Self::with(Process::start(&mut command))
    }

    fn with(server: Process) -> Self {
        let address = server.address();
        Self {
            dir: TempDir::new().unwrap(),
            server,
            address,
        }
    }

    /// A program with its GPU there.
    fn start(&self, program: &Path, args: &[&str]) -> Process {
        self.start_with(program, args, &[])
    }

    fn start_with(&self, program: &Path, args: &[&str], flags: &[&str]) -> Process {
        let mut words = vec!["gpu", "run", "--to", &self.address];
        words.extend(flags);
        words.extend(["--", program.to_str().unwrap()]);
        start([&words, args].concat())
    }

    fn run(&self, program: &Path, args: &[&str]) -> Ended {
        self.start(program, args).wait()
    }
}

// Goal: the whole way, on both back ends. Method: a C program that compares a million sums.
#[test]
fn a_program_adds_vectors_on_a_device_that_is_elsewhere() {
    let gpu = Gpu::new(&[]);
    let Some(vadd) = build("vadd", gpu.dir.path()) else {
        return;
    };
    let relay = gpu.relay();
    for server in [&gpu, &relay] {
        let ended = server
            .start_with(&vadd, &[], &["--summary"])
            .wait()
            .expect(0);
        let out = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(out.contains("1000000 sums are right"), "{out}");
        // Three allocations, a module, a synchronisation and a copy back.
        ended.says(" 6 round trips");
    }
}

// Goal: streams, events, callbacks, graphs, memory and threads are what the documentation says. Method: a C program
// that uses each and compares, on both back ends, with copies raw and packed.
#[test]
fn features_of_the_driver_do_what_they_should() {
    let gpu = Gpu::new(&[]);
    let Some(features) = build("features", gpu.dir.path()) else {
        return;
    };
    let relay = gpu.relay();
    for server in [&gpu, &relay] {
        for flags in [
            &[][..],
            &["--policy", "none"],
            &["--policy", "naive", "--codec", "lz4"],
        ] {
            let ended = server.start_with(&features, &[], flags).wait().expect(0);
            assert_eq!(ended.stdout, b"all of it\n");
        }
    }
}

// Goal: FFmpeg refuses a driver of which one symbol is missing, and programs ask for names of any version. Method: all
// names of the table, by the dynamic linker and by cuGetProcAddress.
#[test]
fn every_symbol_resolves() {
    let gpu = Gpu::new(&[]);
    let Some(symbols) = build("symbols", gpu.dir.path()) else {
        return;
    };
    let names: String = narrows_cuda::exports()
        .iter()
        .map(|export| format!("{}\n", export.name))
        .collect();
    let list = gpu.dir.path().join("names");
    fs::write(&list, names).unwrap();
    let mut command = crate::process::narrows(["gpu", "run", "--to", &gpu.address, "--"]);
    let ended = Process::start(command.arg(symbols).stdin(fs::File::open(list).unwrap())).wait();
    let told = format!("{} names\n", narrows_cuda::exports().len());
    assert_eq!(String::from_utf8_lossy(&ended.expect(0).stdout), told);
}

// Goal: what a person types wrong is told in words, before or after the server is asked.
#[test]
fn mistakes_are_told_in_words() {
    let gpu = Gpu::new(&[]);
    let nobody = ["gpu", "info", "--to", "127.0.0.1:1"];
    run(nobody)
        .expect(1)
        .says("cannot use the GPU at 127.0.0.1:1");
    run(["gpu", "run", "--to", &gpu.address, "--", "/nothing/here"])
        .expect(2)
        .says("cannot start /nothing/here");
    run(["gpu", "serve", "--listen", "0.0.0.0:0"])
        .expect(2)
        .says("--insecure");
    let ours = library();
    let own = [
        "gpu",
        "serve",
        "--backend",
        "cuda",
        "--listen",
        "127.0.0.1:0",
        "--cuda-library",
        ours.to_str().unwrap(),
    ];
    run(own).expect(2).says("narrows' own library");
    run([
        "gpu",
        "run",
        "--to",
        &gpu.address,
        "--",
        "/bin/sh",
        "-c",
        "exit 7",
    ])
    .expect(7);
    let told = run(["gpu", "info", "--to", &gpu.address, "--json"])
        .expect(0)
        .json();
    assert_eq!(
        (&told["backend"], &told["compute_capability"]),
        (&"host".into(), &"8.0".into())
    );
}

// Goal: a measurement that can be read by programs. Method: one row of each kind.
#[test]
fn bandwidth_is_measured_and_told() {
    let gpu = Gpu::new(&[]);
    let words = [
        "gpu",
        "bandwidth",
        "--to",
        &gpu.address,
        "--sizes",
        "4,1M",
        "--kinds",
        "sparse",
        "--repeats",
        "2",
        "--json",
    ];
    let ended = run(words).expect(0);
    let rows: Vec<serde_json::Value> = String::from_utf8(ended.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.len(), 1 + 2 * 5);
    assert!(rows[0]["median_s"].as_f64().unwrap() > 0.0);
    for row in &rows[1..] {
        assert!(row["seconds"].as_array().unwrap().len() >= 2);
        assert!(row["bytes_per_s"].as_f64().unwrap() > 0.0);
    }
    let only = [
        "--direction",
        "to",
        "--memory",
        "pageable",
        "--seconds",
        "0.01",
    ];
    let told = run([&words[..], &only].concat()).expect(0).stdout;
    let told = String::from_utf8(told).unwrap();
    let ways = told.lines().filter(|line| line.contains("host_to_device"));
    assert_eq!((ways.count(), told.lines().count()), (2, 3), "{told}");
}

// Goal: what is copied again is not sent again, what has changed is, and all of it reads back right. Method: 8 MiB of noise
// three times, the third with one byte changed, on both back ends; with the cache off at either end.
#[test]
fn bytes_that_the_server_has_are_not_sent_again() {
    let gpu = Gpu::new(&[]);
    let Some(twice) = build("twice", gpu.dir.path()) else {
        return;
    };
    let (relay, without) = (gpu.relay(), Gpu::new(&["--content-cache", "0"]));
    let cases = [
        (&gpu, &[][..], 15),
        (&relay, &[], 15),
        (&gpu, &["--no-content-cache"], 0),
        (&gpu, &["--policy", "naive", "--codec", "lz4"], 0),
        (&without, &[], 0),
    ];
    for (server, flags, pieces) in cases {
        let flags = [&["--json"], flags].concat();
        let ended = server.start_with(&twice, &[], &flags).wait().expect(0);
        assert_eq!(ended.stdout, b"three copies are right\n");
        let told = ended.stderr.lines().last().unwrap_or_default();
        let told: serde_json::Value = serde_json::from_str(told).unwrap();
        let bytes = |name: &str| told[name].as_u64().unwrap();
        assert_eq!(bytes("content_cache_bytes"), pieces << 20, "{flags:?}");
        let sent = bytes("sent_bytes");
        let expected = (24 - pieces) << 20;
        assert!((expected..expected + (1 << 20)).contains(&sent), "{sent}");
    }
    let told = gpu.start_with(&twice, &[], &["--summary"]).wait().expect(0);
    told.says("and 15 MiB not again");
}

// Goal: content that a client has sent is not sent again by its next program; another client, or one without an identity,
// sends all of it. Method: the same 9 MiB of noise by two holders of keys, by one with a certificate, and without either.
#[test]
fn a_clients_next_program_sends_little_and_others_send_all() {
    let dir = TempDir::new().unwrap();
    let (keys, psk) = (dir.path().join("keys"), dir.path().join("users.psk"));
    let (keys, psk) = (keys.to_str().unwrap(), psk.to_str().unwrap());
    fs::write(
        psk,
        format!("ann:{}\nbob:{}\n", "a1".repeat(16), "b2".repeat(16)),
    )
    .unwrap();
    run(["keys", keys]).expect(0);
    let by_key = Gpu::new(&["--tls-psk", psk, "--allow", "ann", "--allow", "bob"]);
    let by_certificate = Gpu::new(&["--tls-certificates", keys]);
    let anyone = Gpu::new(&[]);
    let Some(twice) = build("twice", dir.path()) else {
        return;
    };
    let ann = ["--tls-psk", psk, "--psk-user", "ann"];
    let bob = ["--tls-psk", psk, "--psk-user", "bob"];
    let tls = ["--tls-certificates", keys, "--tls-hostname", "localhost"];
    let (all, little) = (9 << 20..10 << 20, 0..(9 << 20) / 20);
    let cases = [
        (&by_key, &ann[..], &all),
        (&by_key, &ann, &little),
        (&by_key, &bob, &all),
        (&by_key, &ann, &little),
        (&by_key, &bob, &little),
        (&by_certificate, &tls, &all),
        (&by_certificate, &tls, &little),
        (&anyone, &[], &all),
        (&anyone, &[], &all),
    ];
    for (at, (server, flags, expected)) in cases.into_iter().enumerate() {
        let flags = [&["--json"], flags].concat();
        let ended = server.start_with(&twice, &[], &flags).wait().expect(0);
        assert_eq!(ended.stdout, b"three copies are right\n");
        let told = ended.stderr.lines().last().unwrap_or_default();
        let told: serde_json::Value = serde_json::from_str(told).unwrap();
        let sent = told["sent_bytes"].as_u64().unwrap();
        assert!(expected.contains(&sent), "program {at} sent {sent} bytes");
    }
}

// Goal: both ends agree about what is kept, whatever order pieces come, are dropped and come again in. Method: a program
// that copies at random in four streams and compares, against servers that keep two pieces and four, on both back ends.
#[test]
fn pieces_come_and_go_at_random() {
    for (memory, seed) in [("4M", "1"), ("8M", "2")] {
        let gpu = Gpu::new(&["--content-cache", memory]);
        let Some(pieces) = build("pieces", gpu.dir.path()) else {
            return;
        };
        let relay = gpu.relay();
        for server in [&gpu, &relay] {
            let ended = server.start_with(&pieces, &[seed], &["--json"]).wait();
            let ended = ended.expect(0);
            assert_eq!(ended.stdout, b"all pieces are right\n");
            let told = ended.stderr.lines().last().unwrap_or_default();
            let told: serde_json::Value = serde_json::from_str(told).unwrap();
            let found = told["content_cache_bytes"].as_u64().unwrap();
            assert!(found > 1 << 20, "{found}");
        }
    }
}

/// Where programs of others are looked for.
fn venvs() -> Option<&'static Path> {
    static DIR: OnceLock<Option<PathBuf>> = OnceLock::new();
    DIR.get_or_init(|| std::env::var_os("NARROWS_GPU_VENVS").map(PathBuf::from))
        .as_deref()
}

/// A Python that has these modules: of the environment `name`, or the system's.
fn python(name: &str, modules: &str) -> Option<PathBuf> {
    let own = venvs().map(|dir| dir.join(name).join("bin/python"));
    let python = own
        .filter(|path| path.exists())
        .unwrap_or_else(|| "python3".into());
    let found = Command::new(&python)
        .args(["-c", &format!("import {modules}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !found {
        skip(&format!(
            "{name}: no Python that has {modules}; see bench/gpu/venvs.sh"
        ));
    }
    found.then_some(python)
}

/// Two hosts over TLS where namespaces can be made, loopback otherwise.
struct Far {
    hosts: Option<Hosts>,
    keys: TempDir,
    _server: Process,
    address: String,
}

impl Far {
    fn new(flags: &[&str]) -> Self {
        let (hosts, keys) = (Hosts::new(), TempDir::new().unwrap());
        let dir = keys.path().to_str().unwrap();
        run(["keys", dir, "--host", ADDRESSES[0], "--host", "127.0.0.1"]).expect(0);
        let listen = hosts
            .as_ref()
            .map_or_else(alone, |_| format!("{}:0", ADDRESSES[0]));
        let words = [
            "-v",
            "gpu",
            "serve",
            "--backend",
            "host",
            "--tls-certificates",
            dir,
            "--listen",
            &listen,
        ];
        let words = [&words, flags].concat();
        let server = match &hosts {
            Some(hosts) => Process::start(hosts.on(0, NARROWS).args(words)),
            None => start(words),
        };
        let address = server.address();
        Self {
            hosts,
            keys,
            _server: server,
            address,
        }
    }

    /// A program on the other host with its GPU there.
    fn command(&self, flags: &[&str]) -> Command {
        let keys = self.keys.path().to_str().unwrap();
        let words = [
            &[
                "gpu",
                "run",
                "--to",
                &self.address,
                "--tls-certificates",
                keys,
            ],
            flags,
            &["--"],
        ]
        .concat();
        let mut command = match &self.hosts {
            Some(hosts) => hosts.on(1, NARROWS),
            None => Command::new(NARROWS),
        };
        command.args(words).stdin(Stdio::null());
        command
    }
}

#[test]
fn two_hosts_over_tls() {
    let far = Far::new(&[]);
    let dir = TempDir::new().unwrap();
    let Some(vadd) = build("vadd", dir.path()) else {
        return;
    };
    let ended = Process::start(far.command(&[]).arg(vadd)).wait().expect(0);
    assert!(String::from_utf8_lossy(&ended.stdout).contains("sums are right"));
}
