//! Reads counts out of what tests and harnesses print.

use std::collections::BTreeMap;

/// Adds what `said` holds of `shapes`: `{name}` is a number and is summed, `{name~}` keeps the greatest, `{name#}` is a word
/// and counts the lines.
pub(super) fn add(counts: &mut BTreeMap<String, f64>, shapes: &[String], said: &str) {
    for line in said.lines() {
        for shape in shapes {
            for (name, number) in read(&parts(shape), line).unwrap_or_default() {
                if let Some(name) = name.strip_suffix('~') {
                    let held = counts.entry(name.to_owned()).or_insert(f64::MIN);
                    *held = held.max(number);
                } else {
                    *counts
                        .entry(name.trim_end_matches('#').to_owned())
                        .or_default() += number;
                }
            }
        }
    }
}

enum Part<'a> {
    Text(&'a str),
    Number(&'a str),
}

fn parts(shape: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = shape;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').unwrap_or((after, ""));
        if !before.is_empty() {
            parts.push(Part::Text(before));
        }
        parts.push(Part::Number(name));
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest));
    }
    parts
}

/// The numbers of the first place in `line` that has the shape.
fn read<'a>(parts: &[Part<'a>], line: &str) -> Option<Vec<(&'a str, f64)>> {
    let starts = line.char_indices().map(|(at, _)| at);
    let at_word = |at: usize| {
        at == 0 || !line[..at].ends_with(|c: char| c.is_ascii_digit() || c == '.' || c == ',')
    };
    starts
        .filter(|at| at_word(*at))
        .find_map(|at| here(parts, &line[at..]))
}

fn here<'a>(parts: &[Part<'a>], mut text: &str) -> Option<Vec<(&'a str, f64)>> {
    let mut found = Vec::new();
    for part in parts {
        match part {
            Part::Text(wanted) => text = text.strip_prefix(wanted)?,
            Part::Number(name) if name.ends_with('#') => {
                let end = text
                    .find(|c: char| !c.is_alphanumeric() && c != '_')
                    .unwrap_or(text.len());
                if end == 0 {
                    return None;
                }
                found.push((*name, 1.0));
                text = &text[end..];
            }
            Part::Number(name) => {
                let end = text
                    .find(|c: char| !c.is_ascii_digit() && !",.-".contains(c))
                    .unwrap_or(text.len());
                let digits = text[..end].trim_end_matches([',', '.']);
                found.push((*name, digits.replace(',', "").parse().ok()?));
                text = &text[digits.len()..];
            }
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_summed_and_the_greatest_kept() {
        let said = "noise\nraw: 524,288 bits of 65536 bytes flipped, 524288 detected\nraw: 1 bits of 65536 bytes flipped, 1 detected\n\
                    peak 7 MiB\npeak 5 MiB\nfuzz header, 3 s\nfuzz codecs, 3 s\nslope -0.5 and 2";
        let mut counts = BTreeMap::new();
        let shapes = [
            "{flips} bits of 65536 bytes flipped, {detected} detected",
            "peak {MiB~} MiB",
            "fuzz {targets#}",
            "slope {a~} and {b~}",
        ];
        add(&mut counts, &shapes.map(str::to_owned), said);
        let of = |name: &str| counts[name];
        assert_eq!(
            (of("flips"), of("detected"), of("MiB"), of("targets")),
            (524_289.0, 524_289.0, 7.0, 2.0)
        );
        assert_eq!((of("a"), of("b")), (-0.5, 2.0));
    }
}
