//! A crash-safe, thin, self-compressing block device on a file, a disk or an object store's image.
#![forbid(unsafe_code)]

pub mod backing;
