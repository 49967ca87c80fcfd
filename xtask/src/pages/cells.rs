//! Tables of result pages: no commit, hour or bracket in a cell.

use std::{fs, path::Path};

use anyhow::Result;

/// What stands in cells that should not.
pub(super) fn faults(dir: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(dir)?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    entries.sort();
    for path in entries
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
    {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let text = fs::read_to_string(&path)?;
        for (at, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| line.starts_with('|'))
        {
            if let Some(what) = cells(line).find_map(wrong) {
                faults.push(format!(
                    "docs/results/{name} line {}: {what} in a cell",
                    at + 1
                ));
            }
        }
    }
    Ok(faults)
}

fn cells(line: &str) -> impl Iterator<Item = &str> {
    line.trim_matches('|').split('|').map(str::trim)
}

/// A commit, an hour or a bracket that is no link's and no code's.
fn wrong(cell: &str) -> Option<String> {
    let told: String = cell.split('`').step_by(2).collect();
    let is_commit = |word: &str| {
        (7..=40).contains(&word.len())
            && word
                .chars()
                .all(|c| c.is_ascii_hexdigit() && !c.is_ascii_uppercase())
            && word.chars().any(|c| c.is_ascii_digit())
            && word.chars().any(|c| c.is_ascii_alphabetic())
    };
    let is_hour = |word: &str| {
        let parts: Vec<&str> = word.split(':').collect();
        parts.len() > 1
            && parts
                .iter()
                .all(|part| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let words = || told.split(|c: char| !c.is_alphanumeric() && c != ':');
    words()
        .find(|word| is_commit(word) || is_hour(word))
        .map(|word| format!("\"{word}\""))
        .or_else(|| (told.contains('(') && !told.contains("](")).then(|| "a bracket".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_hours_and_brackets_are_found_in_cells() {
        for cell in ["1.25 (c84441a)", "611e4d8", "at 12:30", "1.0 (Xeon)"] {
            assert!(wrong(cell).is_some(), "{cell}");
        }
        for cell in [
            "1.25",
            "[page](a.md)",
            "`f(x)`",
            "deflate:6",
            "4194304",
            "facade",
        ] {
            assert_eq!(wrong(cell), None, "{cell}");
        }
    }
}
