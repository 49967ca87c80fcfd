//! Makers of codecs that are opened at run time, never linked: where the library or device is missing, the reason is a
//! line in `narrows codecs` and everything else works.
//!
//! Floor: above `core`, beside `codecs`. One module a library or device API: [`isal`].

pub mod isal;
