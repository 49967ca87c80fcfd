//! What atomic operations store.
use crate::{Atomic, AtomicOp};
pub(crate) fn apply(request: &Atomic, old: u64) -> u64 {
    match request.op {
        AtomicOp::Add => old.wrapping_add(request.operand),
        _ => old,
    }
}
