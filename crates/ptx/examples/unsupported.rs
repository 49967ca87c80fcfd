//! Names the instructions of PTX files that the interpreter lacks:
//! `cargo run -p narrows-ptx --example unsupported FILE…`. Exits with 1 if there are any.

use narrows_ptx::{Limits, Module};

fn main() {
    let (mut files, mut wrong) = (0, 0);
    for path in std::env::args().skip(1) {
        files += 1;
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| {
            eprintln!("{path}: {error}");
            std::process::exit(2);
        });
        match Module::parse(&text, &Limits::default()) {
            Err(error) => {
                wrong += 1;
                println!("{path}: {error}");
            }
            Ok(module) => {
                for (line, what) in module.unsupported() {
                    wrong += 1;
                    println!("{path}:{line}: {what}");
                }
            }
        }
    }
    println!("{files} files, {wrong} instructions or files not supported");
    std::process::exit(i32::from(wrong != 0));
}
