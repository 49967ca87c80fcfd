//! Page transforms: chains of named steps that make a page of memory small.

pub mod lzt;
