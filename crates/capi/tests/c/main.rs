//! The library as C programs have it: header, symbols, examples, the nbdkit plugin.
//!
//! Compilers and nbdkit are looked for; without one its tests skip and print why. `NARROWS_BLESS=1` writes the header
//! and the list of symbols anew.

#![allow(unreachable_pub, reason = "a test exports nothing")]

mod examples;
mod header;
mod nbdkit;
mod prefix;
mod symbols;
