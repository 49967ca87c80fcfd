//! `docs/gpu-api.md` is made from the exported functions, and from what tests call; `NARROWS_BLESS=1` writes it anew.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Names that the tests' C programs call, and that other people's programs were seen to call in them.
fn called() -> BTreeSet<String> {
    let mut names: BTreeSet<String> = include_str!("called.txt")
        .lines()
        .map(str::to_owned)
        .collect();
    let dir = root().join("crates/cli/tests/e2e/gpu");
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "c") {
            continue;
        }
        let text = fs::read_to_string(path).unwrap();
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        names.extend(
            words
                .filter(|word| word.starts_with("cu"))
                .map(str::to_owned),
        );
    }
    names
}

fn page() -> String {
    let (exports, called) = (narrows_cuda::exports(), called());
    let state = |name: &str, implemented: bool| match (implemented, called.contains(name)) {
        (true, true) => "tested",
        (true, false) => "implemented",
        (false, _) => "refused",
    };
    let count = |what: &str| {
        let same = exports
            .iter()
            .filter(|export| state(export.name, export.implemented) == what);
        same.count()
    };
    let mut page = format!(
        "# The driver API, function by function\n\n\
         Made by `crates/gpu-client/tests/coverage.rs` from the library's sources. Of {} exported functions {} are called by the\n\
         tests (their own C programs, and numba, cuda-core, tinygrad, Triton and FFmpeg in them), {} more are implemented, and {}\n\
         are *refused*: exported because programs look for them, they return `CUDA_ERROR_NOT_SUPPORTED` and say their name once.\n\
         Functions ending in `_ptds` or `_ptsz` are their twins' code with the thread's own default stream.\n\n",
        exports.len(),
        count("tested"),
        count("implemented"),
        count("refused"),
    );
    for (what, title) in [
        ("tested", "Tested"),
        ("implemented", "Implemented"),
        ("refused", "Refused"),
    ] {
        let names = exports
            .iter()
            .filter(|export| state(export.name, export.implemented) == what)
            .map(|export| format!("`{}`", export.name));
        writeln!(
            page,
            "## {title}\n\n{}\n",
            names.collect::<Vec<_>>().join(" · ")
        )
        .unwrap();
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

#[test]
fn the_page_of_functions_is_what_the_sources_say() {
    let (path, page) = (root().join("docs/gpu-api.md"), page());
    if std::env::var_os("NARROWS_BLESS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == page,
        "docs/gpu-api.md is out of date; NARROWS_BLESS=1 writes it anew"
    );
}

// Goal: a function takes what its header says. Method: a function that is implemented has a symbol of the table, whose
// shape the macro cannot check; so its parameters are counted in the sources.
#[test]
fn functions_take_as_many_parameters_as_their_headers_say() {
    let mut checked = 0;
    for entry in fs::read_dir(root().join("crates/gpu-client/src/api")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        for piece in text.split("\n    fn cu").skip(1) {
            if piece.starts_with(char::is_lowercase) {
                continue;
            }
            let (names, rest) = format!("cu{piece}")
                .split_once('(')
                .map(|(names, rest)| (names.to_owned(), rest.to_owned()))
                .unwrap();
            let list = rest.split(") {").next().unwrap();
            let count = list.split(',').filter(|part| part.contains(':')).count();
            for name in names
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .filter(|name| !name.is_empty())
            {
                let symbol =
                    narrows_gpu_abi::symbol(name).unwrap_or_else(|| panic!("no symbol {name}"));
                // The first version of capturing has no mode, and callbacks none of the second's: what is not looked
                // at may be absent.
                let fewer = ["cuStreamBeginCapture", "cuStreamBeginCapture_ptsz"].contains(&name)
                    || name.starts_with("cuLaunchHostFunc_v2");
                assert!(
                    symbol.shape.len() == count || fewer,
                    "{name}: {count}, not {:?}",
                    symbol.shape
                );
                checked += 1;
            }
        }
    }
    assert!(checked > 250, "{checked}");
}
