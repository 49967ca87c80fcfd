//! The committed header is the one that the sources make.

use std::fs;

use crate::prefix::crate_dir;

#[test]
fn the_header_is_what_the_sources_say() {
    let config = cbindgen::Config::from_file(crate_dir().join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for module in MODULES {
        builder = builder.with_src(crate_dir().join("src").join(module).with_extension("rs"));
    }
    let mut made = Vec::new();
    builder
        .generate()
        .expect("the sources parse")
        .write(&mut made);
    let path = crate_dir().join("include/narrows.h");
    if std::env::var_os("NARROWS_BLESS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap();
    let made = String::from_utf8(made).unwrap();
    assert!(
        committed == made,
        "include/narrows.h differs from what the sources make; NARROWS_BLESS=1 writes it anew"
    );
}

/// Those that export something.
const MODULES: [&str; 6] = ["version", "error", "context", "stream", "options", "device"];
