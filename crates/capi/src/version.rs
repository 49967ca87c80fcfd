//! Which version a program runs with.

use std::ffi::{c_char, c_uint};

const MAJOR: u32 = number(env!("CARGO_PKG_VERSION_MAJOR"));
const MINOR: u32 = number(env!("CARGO_PKG_VERSION_MINOR"));
const PATCH: u32 = number(env!("CARGO_PKG_VERSION_PATCH"));

const fn number(text: &str) -> u32 {
    match u32::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => panic!("a part of the version is a number"),
    }
}

/// Version of the library that runs: major * 10000 + minor * 100 + patch.
#[unsafe(no_mangle)]
pub extern "C" fn narrows_version_number() -> c_uint {
    MAJOR * 10_000 + MINOR * 100 + PATCH
}

/// Version of the library that runs, as text. Never freed.
#[unsafe(no_mangle)]
pub extern "C" fn narrows_version_string() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
