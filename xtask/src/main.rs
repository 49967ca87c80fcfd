//! Chores of the workspace.
//!
//! | chore | fails where |
//! |---|---|
//! | `cargo xtask layers` | a dependency climbs a floor or names a sibling |
//! | `cargo xtask circles` | files of a crate name each other in a circle |
//! | `cargo xtask pages --check` | a page under docs/ is not what its rows make, a number of the README has no row, a link leads nowhere |
//! | `cargo xtask reliability` | a test, harness or fuzzer of the reliability sheet fails; writes the sheet |
//! | `cargo xtask words` | one type stands at the roots of two crates, and is not on the list of those that may |
//!
//! `cargo xtask abi DIR` writes the facts of the CUDA driver's ABI from its headers.

mod abi;
mod circles;
mod pages;
mod reliability;
mod words;

use std::{collections::BTreeMap, process::Command};

use anyhow::{Context, Result, bail};

/// The house, lowest floor first: a crate may name crates of lower floors only. `ARCHITECTURE.md` draws the same.
const FLOORS: &[&[&str]] = &[
    &["narrows-core"],
    &["narrows-codecs", "narrows-backends"],
    &["narrows-chains"],
    &["narrows-format", "narrows-gpu-abi", "narrows-ptx"],
    // A step up in the same room: messages name what the ABI fixes.
    &["narrows-gpu-wire"],
    &[
        "narrows-pipeline",
        "narrows-policy",
        "narrows-session",
        "narrows-io",
    ],
    // A room of the engine's floor a step up: its socket loop goes through io.
    &["narrows-nbd"],
    &["narrows"],
    &[
        "narrows-wire",
        "narrows-memory",
        "narrows-migrate",
        "narrows-offload",
        "narrows-disk",
        "narrows-rest",
        "narrows-gpu-client",
        "narrows-gpu-server",
    ],
    // A step up in the same room: memory's store under a program's own memory.
    &["narrows-paged"],
    &["narrows-lab"],
    &["narrows-cli", "narrows-capi", "narrows-python"],
];

/// Crates beside the house, which any crate's tests may name and which may name any crate.
const BESIDE: &[&str] = &["narrows-testkit", "narrows-fuzz", "xtask"];

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("layers") => layers(),
        Some("words") => words::check(std::path::Path::new("crates")),
        Some("circles") => circles::check(std::path::Path::new("crates")),
        Some("pages") => pages::run(std::env::args().nth(2).as_deref()),
        Some("reliability") => reliability::run(&std::env::args().skip(2).collect::<Vec<_>>()),
        Some("abi") => {
            let dir = std::env::args_os()
                .nth(2)
                .context("usage: cargo xtask abi INCLUDE-DIR")?;
            abi::write(dir.as_ref())
        }
        other => bail!(
            "unknown chore {other:?}; there are: layers, words, circles, pages, reliability, abi"
        ),
    }
}

fn layers() -> Result<()> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .output()
        .context("running cargo metadata")?;
    if !output.status.success() {
        bail!(
            "cargo metadata failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let floor_of: BTreeMap<&str, usize> = FLOORS
        .iter()
        .enumerate()
        .flat_map(|(floor, names)| names.iter().map(move |name| (*name, floor)))
        .collect();
    let (edges, faults) = breaches(&metadata, &floor_of)?;
    if !faults.is_empty() {
        bail!("the floors do not hold:\n  {}", faults.join("\n  "));
    }
    println!("layers: {edges} edges, all downward");
    Ok(())
}

/// Downward edges, and what breaks the rule.
fn breaches(
    metadata: &serde_json::Value,
    floor_of: &BTreeMap<&str, usize>,
) -> Result<(usize, Vec<String>)> {
    let mut faults = Vec::new();
    let mut edges = 0;
    for package in metadata["packages"].as_array().context("packages")? {
        let name = package["name"].as_str().context("name")?;
        if BESIDE.contains(&name) {
            continue;
        }
        let Some(&floor) = floor_of.get(name) else {
            faults.push(format!(
                "{name} stands on no floor; give it one in xtask/src/main.rs"
            ));
            continue;
        };
        for dependency in package["dependencies"].as_array().context("dependencies")? {
            let on = dependency["name"].as_str().context("name")?;
            let for_tests = dependency["kind"] == "dev";
            // A crate's tests may switch on its own features.
            if for_tests && on == name {
                continue;
            }
            match floor_of.get(on) {
                Some(&below) if below >= floor => {
                    faults.push(format!("{name} (floor {floor}) names {on} (floor {below})"))
                }
                Some(_) => edges += 1,
                None if BESIDE.contains(&on) && !for_tests => {
                    faults.push(format!("{name} names {on} outside its tests"))
                }
                None => {}
            }
        }
    }
    Ok((edges, faults))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the check finds what it is for. Method: plant an upward edge, a sibling and a crate without a floor.
    #[test]
    fn planted_breaches_are_found() {
        let floor_of = BTreeMap::from([("low", 0), ("high", 1), ("sibling", 1)]);
        let package = |name: &str, on: &str| serde_json::json!({ "name": name, "dependencies": [{ "name": on, "kind": null }] });
        let packages = [
            package("high", "low"),
            package("low", "high"),
            package("high", "sibling"),
            package("nowhere", "low"),
            package("high", "xtask"),
        ];
        let metadata = serde_json::json!({ "packages": packages });
        let (edges, faults) = breaches(&metadata, &floor_of).unwrap();
        assert_eq!(edges, 1);
        assert_eq!(faults.len(), 4, "{faults:?}");
    }
}
