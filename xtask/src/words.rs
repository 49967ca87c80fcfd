//! One name, one meaning: no public type name stands in two crates of the house.
//!
//! Looks at lines that declare a `pub` type; a macro could hide one, and none does.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result, bail};

/// Names that may stand in several crates, since each is the field's word in each of them and is used qualified or
/// alone there. Shorten it where you can; a new name needs a reason here.
const SHARED: &[&str] = &[
    // What every server or path has one of.
    "Config",
    "Event",
    "Job",
    "Limits",
    "Message",
    "Options",
    "Progress",
    "Report",
    "Request",
    "Server",
    "Settings",
    "Source",
    // Of the laboratory's own documents, beside the thing that they describe.
    "Backing",
    "Block",
    "Cost",
    "Kind",
    "Outcome",
    "Part",
    "Piece",
    "Plan",
    "Question",
    "Run",
    "Sample",
    // A page's or a tree's, beside a chunk's or a device's.
    "Clock",
    "Direct",
    "Entry",
    "Extent",
    "Info",
    "Level",
    "Out",
    "Side",
    "Step",
    "Workspace",
];
/// Crates without a public interface.
const PRIVATE: &[&str] = &["cli", "testkit"];

/// Looks at all of `crates`.
///
/// # Errors
/// A name stands in two of them, or a file cannot be read.
pub(crate) fn check(crates: &Path) -> Result<()> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in fs::read_dir(crates).context("reading crates")? {
        let dir = entry?.path();
        let name = dir
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !PRIVATE.contains(&name.as_str()) {
            names(&dir.join("src"), &name, &mut found)?;
        }
    }
    let shared = |name: &String| !SHARED.contains(&name.as_str());
    let twice: Vec<String> = found
        .iter()
        .filter(|(name, crates)| crates.len() > 1 && shared(name))
        .map(|(name, crates)| {
            format!(
                "{name}: {}",
                crates.iter().cloned().collect::<Vec<_>>().join(", ")
            )
        })
        .collect();
    if !twice.is_empty() {
        bail!("one name in several crates:\n  {}", twice.join("\n  "));
    }
    println!(
        "words: {} public types, {} names shared",
        found.len(),
        SHARED.len()
    );
    Ok(())
}

fn names(dir: &Path, of: &str, found: &mut BTreeMap<String, BTreeSet<String>>) -> Result<()> {
    if !dir.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.file_stem().is_some_and(|stem| stem == "tests") {
            continue;
        }
        if path.is_dir() {
            names(&path, of, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path)?;
            for name in text.lines().filter_map(declared) {
                found.entry(name.into()).or_default().insert(of.into());
            }
        }
    }
    Ok(())
}

/// The public type that a line declares.
fn declared(line: &str) -> Option<&str> {
    let mut words = line.trim_start().split_whitespace();
    let is_type = words.next() == Some("pub")
        && matches!(
            words.next(),
            Some("struct" | "enum" | "trait" | "type" | "union")
        );
    let name = words.next().filter(|_| is_type)?;
    let end = name
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(name.len());
    Some(&name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the check finds what it is for. Method: plant one name in two crates.
    #[test]
    fn a_planted_double_is_found() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("one", "pub struct Strait<T>(T);\npub(crate) struct Mine;\n"),
            ("two", "    pub enum Strait {}\nstruct Mine;\n"),
        ] {
            let src = dir.path().join(name).join("src");
            fs::create_dir_all(&src).unwrap();
            fs::write(src.join("lib.rs"), text).unwrap();
        }
        let error = check(dir.path()).unwrap_err().to_string();
        assert_eq!(error, "one name in several crates:\n  Strait: one, two");
        fs::write(dir.path().join("two/src/lib.rs"), "").unwrap();
        check(dir.path()).unwrap();
    }
}
