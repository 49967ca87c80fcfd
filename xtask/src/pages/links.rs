//! Links in the documentation lead somewhere.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;

/// Every page of Markdown that a reader meets.
pub(super) fn pages(root: &Path) -> Result<Vec<PathBuf>> {
    let mut pages: Vec<PathBuf> = in_dir(root)?;
    let mut dirs = vec![
        root.join("docs"),
        root.join("bench"),
        root.join("compat"),
        root.join("python"),
    ];
    while let Some(dir) = dirs.pop() {
        pages.extend(in_dir(&dir)?);
        for entry in fs::read_dir(&dir)?.flatten() {
            // Environments and build outputs are not ours.
            let is_ours = fs::symlink_metadata(entry.path()).is_ok_and(|meta| meta.is_dir())
                && !["target", "node_modules", ".venv", "venv"]
                    .iter()
                    .any(|name| entry.file_name() == *name);
            if is_ours {
                dirs.push(entry.path());
            }
        }
    }
    pages.sort();
    Ok(pages)
}

fn in_dir(dir: &Path) -> Result<Vec<PathBuf>> {
    let paths = fs::read_dir(dir)?.flatten().map(|entry| entry.path());
    Ok(paths
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .collect())
}

/// Links that lead nowhere.
pub(super) fn faults(root: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for page in pages(root)? {
        let text = fs::read_to_string(&page)?;
        for target in targets(&text) {
            let (file, heading) = target.split_once('#').unwrap_or((&target, ""));
            let to = if file.is_empty() {
                page.clone()
            } else {
                page.parent().unwrap_or(root).join(file)
            };
            if !to.exists() {
                faults.push(format!("{}: {target} is not there", page.display()));
            } else if !heading.is_empty()
                && to.extension().is_some_and(|end| end == "md")
                && !headings(&fs::read_to_string(&to)?).contains(heading)
            {
                faults.push(format!("{}: {target} has no such heading", page.display()));
            }
        }
    }
    Ok(faults)
}

/// Relative targets of links, outside code.
fn targets(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("x");
        for rest in prose.split("](").skip(1) {
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains(':') && !target.starts_with('/') {
                found.push(target.to_owned());
            }
        }
    }
    found
}

/// Headings as links name them.
fn headings(text: &str) -> BTreeSet<String> {
    let mut in_code = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        in_code ^= line.trim_start().starts_with("```");
        if let Some(heading) = line.strip_prefix('#').filter(|_| !in_code) {
            let heading = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = heading
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            found.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a link that leads nowhere is found. Method: one to no file, one to no heading, good ones, and code.
    #[test]
    fn broken_links_are_found() {
        let dir = tempfile::tempdir().unwrap();
        for sub in ["docs", "bench", "compat", "python"] {
            fs::create_dir(dir.path().join(sub)).unwrap();
        }
        let page = "# A `word`, and more\n[a](docs/b.md#two-words) [b](docs/c.md) [c](docs/b.md#three) [d](#a-word-and-more) [e](https://x.y)\n```\n[f](g)\n```\n`[h](i)`\n";
        fs::write(dir.path().join("README.md"), page).unwrap();
        fs::write(dir.path().join("docs/b.md"), "## Two words\n").unwrap();
        let faults = faults(dir.path()).unwrap();
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].contains("docs/c.md") && faults[1].contains("#three"));
    }
}
