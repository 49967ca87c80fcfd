//! What `.ci/package` packs is there: a package whose asset is missing is found out before a release.

use std::{
    fs,
    path::{Path, PathBuf},
};

use toml::{Table, Value};

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Whether any file is meant by `pattern`, which may have a star in its last part.
fn is_there(pattern: &Path) -> bool {
    let name = pattern.file_name().unwrap().to_str().unwrap();
    let Some((before, behind)) = name.split_once('*') else {
        return pattern.exists();
    };
    let Ok(entries) = fs::read_dir(pattern.parent().unwrap()) else {
        return false;
    };
    entries.flatten().any(|entry| {
        let name = entry.file_name().into_string().unwrap();
        name.starts_with(before) && name.ends_with(behind)
    })
}

/// Where an asset comes from, and where it goes.
fn asset(value: &Value) -> (String, String) {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap().to_owned();
    match value {
        Value::Array(parts) => (text(parts.first()), text(parts.get(1))),
        value => (text(value.get("source")), text(value.get("dest"))),
    }
}

// Goal: each asset is in the repository or is made by `.ci/package`; both packages hold the same; units name programs that are installed.
#[test]
fn every_asset_is_there() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let manifest: Table = fs::read_to_string(manifest).unwrap().parse().unwrap();
    let metadata = &manifest["package"]["metadata"];
    let script = fs::read_to_string(top().join(".ci/package")).unwrap();
    let mut kinds = Vec::new();
    for (kind, base) in [("deb", top().join("crates/cli")), ("generate-rpm", top())] {
        let mut names = Vec::new();
        for value in metadata[kind]["assets"].as_array().unwrap() {
            let (source, target) = asset(value);
            let is_made = match source.strip_prefix("target/release/") {
                // Left there by cargo: programs and libraries of the crates that the script names.
                Some(name) if !name.contains('/') => {
                    name == "narrows" || script.contains("-p narrows-paged -p narrows-gpu-client")
                }
                Some(name) => {
                    let name = Path::new(name).file_name().unwrap().to_str().unwrap();
                    let name = name
                        .trim_end_matches('*')
                        .trim_start_matches("libnarrows.so");
                    script.contains(name)
                }
                None => is_there(&base.join(&source)),
            };
            assert!(is_made, "{kind}: {source}");
            // The deb takes the library and the link to it as one.
            if !(source.contains("/libnarrows.so") && names.contains(&target)) {
                names.push(target);
            }
        }
        assert!(
            names.iter().any(|target| target.contains("systemd/system")),
            "{kind}"
        );
        kinds.push(names.len());
    }
    assert_eq!(
        kinds[0], kinds[1],
        "one package holds what the other does not"
    );
    for name in ["postinst", "postrm", "try", "Containerfile"] {
        assert!(
            top().join("crates/cli/packages").join(name).exists(),
            "{name}"
        );
    }
    for entry in fs::read_dir(top().join("docs/systemd")).unwrap().flatten() {
        if let Ok(unit) = fs::read_to_string(entry.path())
            && unit.contains("ExecStart=")
        {
            assert!(unit.contains("ExecStart=/usr/bin/narrows "), "{unit}");
        }
    }
}
