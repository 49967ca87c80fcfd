//! Whether the processor has what the hot loops are also compiled for. The code is the same, so are the bytes.

/// Shifts by any register, counts of zeros, and copies of 32 bytes.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
}
