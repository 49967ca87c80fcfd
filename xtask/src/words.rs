//! One name, one meaning: no type that a crate offers at its root stands at another crate's root too.
//!
//! Looks at `lib.rs`: the types it declares and those it re-exports from its own modules. What is reached by way of a
//! module (`control::Report`) is qualified by it and may share a name.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result, bail};

/// Names that may stand at several roots: the field's word in each, and never used side by side. Shorten it where you
/// can; a new name needs a reason here.
const SHARED: &[&str] = &[
    // What every server has: what it is told, what it counts.
    "Config",
    "Profile",
    "Server",
    "ServerOptions",
    "Settings",
    "Stat",
    "Tuning",
    // A launch of a kernel as it travels and as it runs; a kernel's parameter likewise.
    "Launch",
    "Param",
    // A codec's backend and a GPU's; a receiver's limits and a parser's; memory's budget and a kernel's.
    "Backend",
    "Budget",
    "Limits",
    // An NBD export and a symbol that is exported; replies and messages on their way out.
    "Export",
    "Out",
];
/// Crates without a public interface.
const PRIVATE: &[&str] = &["cli", "testkit"];

/// Looks at all of `crates`.
///
/// # Errors
/// A name stands at two roots, or a file cannot be read.
pub(crate) fn check(crates: &Path) -> Result<()> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in fs::read_dir(crates).context("reading crates")? {
        let dir = entry?.path();
        let of = dir
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let root = dir.join("src/lib.rs");
        if PRIVATE.contains(&of.as_str()) || !root.is_file() {
            continue;
        }
        let text = fs::read_to_string(&root)?;
        for name in text
            .lines()
            .filter_map(declared)
            .map(str::to_owned)
            .chain(exported(&text))
        {
            found.entry(name).or_default().insert(of.clone());
        }
    }
    let twice: Vec<String> = found
        .iter()
        .filter(|(name, crates)| crates.len() > 1 && !SHARED.contains(&name.as_str()))
        .map(|(name, of)| {
            format!(
                "{name}: {}",
                of.iter().cloned().collect::<Vec<_>>().join(", ")
            )
        })
        .collect();
    if !twice.is_empty() {
        bail!(
            "one name at the root of several crates:\n  {}",
            twice.join("\n  ")
        );
    }
    println!(
        "words: {} types at crates' roots, {} names shared",
        found.len(),
        SHARED.len()
    );
    Ok(())
}

/// The public type that a line declares.
fn declared(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let is_type = line.starts_with("pub ")
        && words.next() == Some("pub")
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

/// The types that `pub use` takes from a crate's own modules: words in upper camel case.
fn exported(text: &str) -> Vec<String> {
    let uses = text
        .split("\npub use ")
        .skip(1)
        .filter_map(|rest| rest.split_once(';'));
    let own = uses
        .map(|(path, _)| path)
        .filter(|path| !path.starts_with("narrows_"));
    let words = own.flat_map(|path| path.split(|c: char| !c.is_alphanumeric() && c != '_'));
    let is_type = |word: &&str| {
        word.starts_with(|c: char| c.is_uppercase()) && word.chars().any(char::is_lowercase)
    };
    words.filter(is_type).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the check finds what it is for. Method: plant one name at two roots, declared here and re-exported there.
    #[test]
    fn a_planted_double_is_found() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            (
                "one",
                "pub struct Strait<T>(T);\nstruct Mine;\npub use narrows_core::Level;\n",
            ),
            (
                "two",
                "mod a;\npub use a::{\n    Mine, Strait,\n};\npub enum Level {}\n",
            ),
        ] {
            let src = dir.path().join(name).join("src");
            fs::create_dir_all(&src).unwrap();
            fs::write(src.join("lib.rs"), text).unwrap();
        }
        let error = check(dir.path()).unwrap_err().to_string();
        assert_eq!(
            error,
            "one name at the root of several crates:\n  Strait: one, two"
        );
        fs::write(dir.path().join("two/src/lib.rs"), "").unwrap();
        check(dir.path()).unwrap();
    }
}
