//! The locks of what `tests/schedules.rs` explores.

pub(crate) use parking_lot::{Condvar, Mutex};
