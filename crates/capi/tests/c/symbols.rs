//! What the shared library exports is what is promised, and its name is the one that programs ask for.

use std::{collections::BTreeSet, fs, process::Command};

use crate::prefix::{crate_dir, has, prefix, run};

#[test]
fn exported_symbols_are_those_of_the_list_and_the_header() {
    if !has("nm") {
        return;
    }
    let library = prefix().join("lib/libnarrows.so");
    let output = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&library));
    let text = String::from_utf8(output.stdout).unwrap();
    let exported: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.split(' ').nth(2))
        .collect();
    let path = crate_dir().join("symbols.txt");
    if std::env::var_os("NARROWS_BLESS").is_some() {
        let list: String = exported.iter().map(|name| format!("{name}\n")).collect();
        fs::write(&path, list).unwrap();
    }
    let list = fs::read_to_string(&path).unwrap();
    assert_eq!(
        exported,
        list.lines().collect(),
        "left: exported, right: symbols.txt"
    );

    let header = fs::read_to_string(crate_dir().join("include/narrows.h")).unwrap();
    for name in exported {
        assert!(
            header.contains(&format!("{name}(")),
            "{name} is not in the header"
        );
    }
}

#[test]
fn the_library_bears_the_name_that_programs_ask_for() {
    if !has("readelf") {
        return;
    }
    let library = prefix().join("lib/libnarrows.so");
    let output = run(Command::new("readelf").arg("-d").arg(&library));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("soname: [libnarrows.so.0]"), "{text}");
}
