//! `cargo xtask pages [--check]`: what of the documentation programs make, and whether it is what they make.
//!
//! - A part of a page between `<!-- made by: COMMAND -->` and `<!-- end -->` is what the command prints; so is a page of
//!   [`WHOLE`]. Without `--check` they are written anew.
//! - Numbers with a unit in the README stand in such a part, or in code: nobody's memory is a source.
//! - Relative links lead to a file, and to a heading where they name one.
//! - Pages of results have no commit, hour or bracket in a table's cell.

mod cells;
mod links;

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result, bail};

/// Pages that are made whole: page, what makes it.
const WHOLE: [(&str, &str); 8] = [
    ("docs/results/disk.md", "python3 bench/disk/table.py"),
    ("docs/results/file.md", "python3 bench/file/table.py"),
    ("docs/results/gpu.md", "python3 bench/gpu/table.py"),
    (
        "docs/results/policy-ablation.md",
        "python3 bench/policy/table.py",
    ),
    ("docs/results/python.md", "python3 bench/python/table.py"),
    ("docs/results/reliability.md", RELIABILITY),
    ("docs/results/send.md", "python3 bench/send/table.py"),
    (
        "docs/results/unseen.md",
        "python3 bench/wire/unseen.py page",
    ),
];
const RELIABILITY: &str = "cargo xtask reliability";

/// Writes the made parts anew, or says what differs.
///
/// # Errors
/// Something differs, a link leads nowhere, or a program failed.
pub(crate) fn run(flag: Option<&str>) -> Result<()> {
    let check = match flag {
        Some("--check") => true,
        None => false,
        Some(other) => bail!("unknown flag {other}; there is --check"),
    };
    let root = Path::new(".");
    let mut faults = Vec::new();
    let mut made = 0;
    for path in links::pages(root)? {
        let text = fs::read_to_string(&path)?;
        let (new, parts) = parts(&text).with_context(|| path.display().to_string())?;
        made += parts;
        settle(&path, &text, &new, check, &mut faults)?;
    }
    for (page, command) in WHOLE {
        let path = root.join(page);
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        let new = if command == RELIABILITY {
            crate::reliability::render(&path.with_extension("json"))?
        } else {
            said(command)?
        };
        made += 1;
        settle(&path, &text, &new, check, &mut faults)?;
    }
    faults.extend(links::faults(root)?);
    faults.extend(numbers(&fs::read_to_string(root.join("README.md"))?));
    faults.extend(cells::faults(&root.join("docs/results"))?);
    if !faults.is_empty() {
        bail!("the pages do not hold:\n  {}", faults.join("\n  "));
    }
    println!("pages: {made} parts made by programs");
    Ok(())
}

fn settle(path: &Path, text: &str, new: &str, check: bool, faults: &mut Vec<String>) -> Result<()> {
    if text == new {
        return Ok(());
    }
    if check {
        let line = text
            .lines()
            .zip(new.lines())
            .position(|(old, new)| old != new)
            .map_or(0, |at| at + 1);
        faults.push(format!(
            "{} differs from what its program makes, from line {line}: run cargo xtask pages",
            path.display()
        ));
        return Ok(());
    }
    fs::write(path, new).with_context(|| format!("cannot write {}", path.display()))
}

const BEGIN: &str = "<!-- made by: ";
const END: &str = "<!-- end -->";

/// The text with its made parts made anew, and how many there are.
fn parts(text: &str) -> Result<(String, usize)> {
    let (mut new, mut rest, mut count) = (String::new(), text, 0);
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (command, after) = after
            .split_once(" -->\n")
            .context("a made part has no command")?;
        let (_, after) = after
            .split_once(END)
            .with_context(|| format!("what `{command}` makes has no end"))?;
        new.push_str(&format!(
            "{before}{BEGIN}{command} -->\n{}\n{END}",
            said(command)?.trim_end()
        ));
        rest = after;
        count += 1;
    }
    new.push_str(rest);
    Ok((new, count))
}

/// What a command prints.
fn said(command: &str) -> Result<String> {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap_or_default())
        .args(words)
        .output()
        .with_context(|| format!("cannot run {command}"))?;
    if !output.status.success() {
        bail!("{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Lines of a README that have a measured number outside code and outside what programs make.
fn numbers(text: &str) -> Vec<String> {
    let (mut in_code, mut is_made) = (false, false);
    let mut faults = Vec::new();
    for (at, line) in text.lines().enumerate() {
        in_code ^= line.starts_with("```");
        is_made = (is_made || line.starts_with(BEGIN)) && !line.starts_with(END);
        if in_code || is_made || line.starts_with("```") {
            continue;
        }
        // Inline code and links' targets are no claims.
        let told: String = line.split('`').step_by(2).collect();
        if let Some(claim) = measured(&told) {
            faults.push(format!("README.md line {}: \"{claim}\" has no row: put it into a part that a program makes", at + 1));
        }
    }
    faults
}

/// A number that only a measurement can give: a decimal one, or one with a unit of rate, time or share.
fn measured(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let bare = |word: &str| {
        word.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '%' && c != '×')
            .to_owned()
    };
    words.iter().enumerate().find_map(|(at, word)| {
        let word = bare(word);
        let is_number =
            word.starts_with(|c: char| c.is_ascii_digit()) && word.parse::<f64>().is_ok();
        let next = words.get(at + 1).map(|next| bare(next)).unwrap_or_default();
        let has_unit =
            ["×", "%", "times", "ms", "µs", "MB/s", "GB/s", "as"].contains(&next.as_str());
        let is_decimal = word.contains('.') && is_number;
        (is_number && (has_unit || is_decimal && next != "or")).then(|| format!("{word} {next}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a page that was edited by hand is found, and mended. Method: a part of one command, changed.
    #[test]
    fn a_made_part_is_made_anew() {
        let page = "Before\n<!-- made by: echo 1.25 times -->\n1.26 times\n<!-- end -->\nAfter\n";
        let (new, count) = parts(page).unwrap();
        assert_eq!(
            (new.as_str(), count),
            (
                "Before\n<!-- made by: echo 1.25 times -->\n1.25 times\n<!-- end -->\nAfter\n",
                1
            )
        );
        assert!(
            parts("<!-- made by: echo -->\n").is_err()
                && parts("<!-- made by: false -->\n<!-- end -->").is_err()
        );
    }

    #[test]
    fn a_number_without_a_row_is_found_in_prose_alone() {
        let readme = "It is 1.25 times as fast.\n```\n1.25 times\n```\nIt takes `1.25 ms` and QEMU 7.2 or later.\n<!-- made by: x -->\n3 times\n<!-- end -->\nLoses 3 %.\n";
        let faults = numbers(readme);
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].contains("line 1") && faults[1].contains("line 9"));
    }
}
