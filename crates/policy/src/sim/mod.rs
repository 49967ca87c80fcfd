//! A pipeline, a link and a receiver in virtual time, to test policies on thousands of cases in seconds.

pub mod data;
