//! No circle of files: in a crate, no two files name each other, directly or by way of others.
//!
//! Looks at `use` lines that begin with `crate`, `super` or `self`, outside tests. A file may name the one that it is a
//! part of, since the two are one room; a path in running text could hide an edge.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result, bail};

/// A crate's file by its path in the crate, and the files that it names.
type Edges = BTreeMap<Vec<String>, BTreeSet<Vec<String>>>;

/// Circles that are meant, by the file that they are for. A link has threads that act on the endpoint, and the endpoint
/// has its links. A disk's store is one object whose requests, collections, checkpoints and recovery stand in files of
/// their own. Senders and receivers of a tree each speak both ways.
const MEANT: &[(&str, &str)] = &[
    ("narrows", "inner"),
    ("disk", "disk"),
    ("disk", "gc"),
    ("disk", "tools"),
    ("disk", "store"),
    ("disk", "log"),
    ("wire", "send"),
];

/// Looks at all of `crates`.
///
/// # Errors
/// There is a circle, or a file cannot be read.
pub(crate) fn check(crates: &Path) -> Result<()> {
    let (mut files, mut circles) = (0, Vec::new());
    for entry in fs::read_dir(crates).context("reading crates")? {
        let dir = entry?.path();
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let mut texts = BTreeMap::new();
        read(&dir.join("src"), &[], &mut texts)?;
        files += texts.len();
        let meant = |file: &[String]| MEANT.contains(&(&*name, &*file.join("::")));
        let edges: Edges = texts
            .iter()
            .filter(|(file, _)| !meant(file))
            .map(|(file, text)| (file.clone(), named(file, text, &texts)))
            .collect();
        circles.extend(circle(&edges).map(|files| format!("{name}: {files}")));
    }
    if !circles.is_empty() {
        bail!("files in a circle:\n  {}", circles.join("\n  "));
    }
    println!("circles: none among {files} files");
    Ok(())
}

fn read(dir: &Path, at: &[String], texts: &mut BTreeMap<Vec<String>, String>) -> Result<()> {
    if !dir.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let file = match &*stem {
            "tests" => continue,
            "lib" | "main" | "mod" => at.to_vec(),
            stem => [at, &[stem.to_owned()]].concat(),
        };
        if path.is_dir() {
            read(&path, &file, texts)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path)?;
            let text = text.split("#[cfg(test)]\nmod tests {").next();
            texts.insert(file, text.unwrap_or_default().to_owned());
        }
    }
    Ok(())
}

/// The files that `text` names, but for itself and those that it is a part of.
fn named(
    file: &[String],
    text: &str,
    files: &BTreeMap<Vec<String>, String>,
) -> BTreeSet<Vec<String>> {
    let mut paths = Vec::new();
    for statement in text.split(';') {
        let from = statement.rfind("use ").map(|at| &statement[at + 4..]);
        let begins = |word: &&str| {
            ["crate", "super", "self"]
                .iter()
                .any(|it| word.starts_with(it))
        };
        if let Some(tree) = from.filter(begins) {
            expand(&tree.split_whitespace().collect::<String>(), "", &mut paths);
        }
    }
    let of = |path: &String| {
        let (mut full, mut rest) = (file.to_vec(), path.split("::").peekable());
        while let Some(word) = rest.next_if(|word| ["crate", "super", "self"].contains(word)) {
            match word {
                "crate" => full.clear(),
                "super" => drop(full.pop()),
                _ => {}
            }
        }
        full.extend(rest.map(str::to_owned));
        let longest = (1..=full.len()).rev().map(|len| &full[..len]);
        longest
            .into_iter()
            .find(|at| files.contains_key(*at))
            .map(<[String]>::to_vec)
    };
    paths
        .iter()
        .filter_map(of)
        .filter(|to| !file.starts_with(to))
        .collect()
}

/// The paths of a tree `a::{b, c::{d, e}}`, which has no blanks.
fn expand(tree: &str, before: &str, paths: &mut Vec<String>) {
    let (mut depth, mut start) = (0, 0);
    for (at, byte) in tree.bytes().chain([b',']).enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                let part = &tree[start..at];
                match part.split_once('{') {
                    Some((head, rest)) => {
                        let rest = rest.strip_suffix('}').unwrap_or(rest);
                        expand(rest, &format!("{before}{head}"), paths);
                    }
                    None if part.is_empty() => {}
                    None => paths.push(format!("{before}{part}")),
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// The files that are named by what they name.
fn circle(edges: &Edges) -> Option<String> {
    let in_circle = |file: &&Vec<String>| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![*file]);
        while let Some(from) = next.pop() {
            next.extend(
                edges
                    .get(from)
                    .into_iter()
                    .flatten()
                    .filter(|to| seen.insert(*to)),
            );
        }
        seen.contains(*file)
    };
    let names: Vec<_> = edges
        .keys()
        .filter(in_circle)
        .map(|file| file.join("::"))
        .collect();
    (!names.is_empty()).then(|| names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the check finds what it is for. Method: plant a circle of three, by each way of naming a file.
    #[test]
    fn a_planted_circle_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let src = dir.path().join("one/src");
        fs::create_dir_all(src.join("b")).unwrap();
        for (name, text) in [
            ("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::A;\n"),
            (
                "a.rs",
                "use std::io;\n\nuse crate::{\n    b::{self, part::{B, D}},\n    A,\n};\n",
            ),
            (
                "b.rs",
                "pub(crate) mod part;\npub(crate) use self::part::B;\n",
            ),
            (
                "b/part.rs",
                "use super::Own;\nuse super::super::c::C as See;\n",
            ),
            ("c.rs", "use crate::a::A;\n"),
        ] {
            fs::write(src.join(name), text).unwrap();
        }
        let error = check(dir.path()).unwrap_err().to_string();
        assert_eq!(error, "files in a circle:\n  one: a, b, b::part, c");
        fs::write(
            src.join("c.rs"),
            "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
        )
        .unwrap();
        check(dir.path()).unwrap();
    }
}
