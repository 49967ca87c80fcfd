//! The library, installed by its own script into a directory of the tests'.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

/// The directory of the crate.
pub fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo left the library that this test was built with.
pub fn built() -> PathBuf {
    let test = env::current_exe().expect("a test has a path");
    test.parent().expect("in a directory").to_owned()
}

/// The prefix it is installed at.
pub fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi-prefix");
        let mut install = Command::new(crate_dir().join("install"));
        run(install.arg(&prefix).arg(built()));
        prefix
    })
}

/// An empty directory.
pub fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("capi")
        .join(name);
    // It need not be there.
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// Whether a program is there; if not, says that a test is skipped for it.
pub fn has(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output();
    let there = there.is_ok_and(|output| output.status.success());
    if !there {
        eprintln!("skipped: {program} is not installed");
    }
    there
}

/// What pkg-config says of a library.
pub fn flags(arguments: &[&str]) -> Vec<String> {
    let mut pkg_config = Command::new("pkg-config");
    let dir = prefix().join("lib/pkgconfig");
    let output = run(pkg_config.env("PKG_CONFIG_PATH", dir).args(arguments));
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Runs a command that must succeed.
pub fn run(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    output
}
