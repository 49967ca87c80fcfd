//! Names the library as programs ask for it, and exports every symbol that the sources do not define.

use std::{collections::BTreeMap, env, fmt::Write as _, fs, path::Path};

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Its threads outlive a program's dlclose.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=src/api");
    let mut defined = BTreeMap::new();
    for entry in fs::read_dir("src/api").expect("the sources are here") {
        let path = entry.expect("a file").path();
        let module = path.file_stem().unwrap().to_string_lossy().into_owned();
        println!("cargo:rerun-if-changed={}", path.display());
        let text = fs::read_to_string(&path).expect("a source");
        for piece in text.split("\n    fn ").skip(1) {
            let names = piece.split('(').next().unwrap_or_default();
            for name in names.split(|c: char| !c.is_alphanumeric() && c != '_') {
                if name.starts_with("cu") && name.chars().nth(2).is_some_and(char::is_uppercase) {
                    defined.insert(name.to_string(), module.clone());
                }
            }
        }
    }
    let mut out = String::new();
    for symbol in narrows_gpu_abi::SYMBOLS {
        if !defined.contains_key(symbol.name) {
            writeln!(out, "refused!({});", symbol.name).unwrap();
        }
    }
    out.push_str("/// Every exported function of the driver API, sorted by name.\n");
    out.push_str("pub(crate) static EXPORTS: &[Export] = &[\n");
    for symbol in narrows_gpu_abi::SYMBOLS {
        let name = symbol.name;
        let (path, implemented) = match defined.get(name) {
            Some(module) => (format!("crate::api::{module}::{name}"), true),
            None => (name.to_string(), false),
        };
        writeln!(
            out,
            "Export::new({name:?}, {path} as *const (), {implemented}),"
        )
        .unwrap();
    }
    out.push_str("];\n");
    let dir = env::var("OUT_DIR").unwrap();
    fs::write(Path::new(&dir).join("exports.rs"), out).expect("the output is written");
}
