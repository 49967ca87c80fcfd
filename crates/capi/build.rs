//! Names the shared library as programs ask for it: the number changes when a function's meaning does.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnarrows.so.0");
    // The threads of a device outlive a program's dlclose.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
