//! Arithmetic of single values: exact softfloat, small formats, integer bit fields.

pub(crate) mod approx;
pub(crate) mod atomic;
pub(crate) mod float;
pub(crate) mod int;
pub(crate) mod soft;
