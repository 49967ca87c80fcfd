//! Arithmetic.
pub(crate) mod atomic;
