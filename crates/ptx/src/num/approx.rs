//! Approximate functions. The device's are wrong by a few units of the last place; these are
//! computed in `f64` and rounded once, so they lie within the error that PTX states for each.

/// `2^x`
pub(crate) fn ex2(x: f32) -> f32 {
    f64::from(x).exp2() as f32
}

/// The logarithm to base 2; of negative numbers NaN, of zero negative infinity.
pub(crate) fn lg2(x: f32) -> f32 {
    f64::from(x).log2() as f32
}

/// Sine.
pub(crate) fn sin(x: f32) -> f32 {
    f64::from(x).sin() as f32
}

/// Cosine.
pub(crate) fn cos(x: f32) -> f32 {
    f64::from(x).cos() as f32
}

/// Hyperbolic tangent.
pub(crate) fn tanh(x: f32) -> f32 {
    f64::from(x).tanh() as f32
}

/// `1 / sqrt(x)`
pub(crate) fn rsqrt(x: f32) -> f32 {
    if x == 0.0 {
        1.0 / x
    } else {
        (1.0 / f64::from(x).sqrt()) as f32
    }
}

/// `1 / sqrt(x)` in double precision; of -0 negative infinity.
pub(crate) fn rsqrt64(x: f64) -> f64 {
    if x == 0.0 { 1.0 / x } else { 1.0 / x.sqrt() }
}

/// `.approx.ftz.f64`: only the upper 32 bits of operand and result count.
pub(crate) fn upper(x: f64) -> f64 {
    f64::from_bits(x.to_bits() & 0xffff_ffff_0000_0000)
}
