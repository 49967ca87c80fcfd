//! The examples of `docs/c.md`, compiled by every compiler that is here and run.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::prefix::{crate_dir, flags, has, prefix, run, scratch};

/// How an example is built.
struct Build<'a> {
    compiler: &'a str,
    source: &'a str,
    /// More of the compiler's options.
    options: &'a [&'a str],
    is_static: bool,
}

impl Build<'_> {
    /// Builds it; the program.
    fn program(&self, dir: &Path) -> PathBuf {
        let program = dir.join("program");
        let mut compile = Command::new(self.compiler);
        compile
            .args(["-Wall", "-Wextra", "-Werror", "-O1", "-g"])
            .args(self.options)
            .arg(crate_dir().join("examples").join(self.source))
            .arg("-o")
            .arg(&program);
        if self.is_static {
            compile
                .args(flags(&["--cflags", "narrows"]))
                .arg(prefix().join("lib/libnarrows.a"))
                .args(["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"]);
        } else {
            compile
                .args(flags(&["--cflags", "--libs", "narrows"]))
                .arg("-lpthread");
        }
        run(&mut compile);
        program
    }
}

/// Builds an example and runs it; what it prints.
fn output(build: &Build<'_>, name: &str, arguments: &[&str]) -> String {
    let dir = scratch(name);
    let program = build.program(&dir);
    let mut command = Command::new(program);
    command.current_dir(&dir).args(arguments);
    command.env("LD_LIBRARY_PATH", prefix().join("lib"));
    let output = run(&mut command);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(complaints.is_empty(), "{complaints}");
    String::from_utf8(output.stdout).unwrap()
}

const DEVICE: &str = "67108864 bytes, of which: durable from here on\n\
                      page 700 begins with 700\n\
                      beyond the end: invalid argument (22)\n\
                      without a device: null pointer\n";

/// Runs `check` with each compiler that is here, as strict as it can be; with the address sanitizer too.
fn with_each(compilers: &[&str], source: &str, check: impl Fn(&Build<'_>, &str)) {
    if !has("pkg-config") {
        return;
    }
    for compiler in compilers.iter().filter(|compiler| has(compiler)) {
        let is_cpp = compiler.ends_with("++");
        let standard = if is_cpp { "-std=c++11" } else { "-std=c11" };
        let plain = [standard, "-pedantic", "-D_POSIX_C_SOURCE=200809L"];
        let sanitized = [
            standard,
            "-fsanitize=address,undefined",
            "-D_POSIX_C_SOURCE=200809L",
        ];
        for (options, way) in [(&plain[..], "plain"), (&sanitized[..], "sanitized")] {
            if way == "sanitized" && !can_sanitize(compiler) {
                eprintln!("skipped: {compiler} has no address sanitizer here");
                continue;
            }
            let build = Build {
                compiler,
                source,
                options,
                is_static: false,
            };
            check(&build, &format!("{source}-{compiler}-{way}"));
        }
    }
}

fn can_sanitize(compiler: &str) -> bool {
    let dir = scratch(&format!("sanitizer-{compiler}"));
    let mut compile = Command::new(compiler);
    compile.args([
        "-fsanitize=address,undefined",
        "-x",
        "c",
        "/dev/null",
        "-shared",
        "-o",
    ]);
    compile
        .arg(dir.join("nothing.so"))
        .output()
        .is_ok_and(|output| output.status.success())
}

#[test]
fn devices_in_c() {
    with_each(&["gcc", "clang"], "device.c", |build, name| {
        assert_eq!(output(build, name, &["disk"]), DEVICE);
    });
}

#[test]
fn devices_in_c_from_the_static_library() {
    if !has("gcc") || !has("pkg-config") {
        return;
    }
    let build = Build {
        compiler: "gcc",
        source: "device.c",
        options: &[],
        is_static: true,
    };
    assert_eq!(output(&build, "device.c-static", &["disk"]), DEVICE);
}

#[test]
fn buffers_in_c() {
    with_each(&["gcc", "clang"], "buffers.c", |build, name| {
        let expected = "800000 bytes, less than a fourth, the same again\n\
                        damaged: damaged, or not of this format\n";
        assert_eq!(output(build, name, &[]), expected);
    });
}

#[test]
fn a_wrapper_in_cpp() {
    with_each(&["g++", "clang++"], "wrapper.cpp", |build, name| {
        let expected = "packed, the same again\nparameter out of bounds\n";
        assert_eq!(output(build, name, &[]), expected);
    });
}

// Goal: a stream of any length passes. Method: lengths around the buffers', there and back through two processes.
#[test]
fn streams_in_c() {
    with_each(&["gcc", "clang"], "stream.c", |build, name| {
        let dir = scratch(name);
        let program = build.program(&dir);
        for len in [0, 1, 65_536, 3_000_000] {
            let content: Vec<u8> = (0..len)
                .map(|n: u32| ((n / 7).wrapping_mul(n) % 251) as u8)
                .collect();
            let packed = through(&program, &[], &content);
            assert!(
                through(&program, &["-d"], &packed) == content,
                "{len} bytes"
            );
        }
    });
}

/// What a program makes of its input.
fn through(program: &Path, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("LD_LIBRARY_PATH", prefix().join("lib"));
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input).unwrap());
        child.wait_with_output().unwrap()
    });
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && complaints.is_empty(),
        "{complaints}"
    );
    output.stdout
}
