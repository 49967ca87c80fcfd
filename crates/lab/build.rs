//! Tells the machine sheet which commit it is built from.

use std::process::Command;

fn main() {
    let git = |args: &[&str]| {
        let output = Command::new("git")
            .args(args)
            .output()
            .ok()
            .filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_string())
            .filter(|text| !text.is_empty())
    };
    // A packager builds without a repository and says the commit himself.
    println!("cargo::rerun-if-env-changed=NARROWS_COMMIT");
    let given = std::env::var("NARROWS_COMMIT").ok();
    let commit = given
        .or_else(|| git(&["rev-parse", "--short=12", "HEAD"]))
        .unwrap_or_else(|| "unknown".into());
    println!("cargo::rustc-env=NARROWS_COMMIT={commit}");
    println!("cargo::rerun-if-changed=build.rs");
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"])
        .filter(|log| std::path::Path::new(log).exists())
    {
        println!("cargo::rerun-if-changed={log}");
    }
}
