//! Builds vector operations from scalar ones: the loop over lanes is compiled once for each.

use crate::inst::{Alu, Test, WARP};
use crate::text::ast::Type;

/// A scalar that a lane holds in its low bits, zeros above.
pub(crate) trait Lane: Copy + 'static {
    fn of(lane: u64) -> Self;
    fn lane(self) -> u64;
}

macro_rules! integer_lane {
    ($($t:ty => $u:ty),*) => {$(
        impl Lane for $t {
            #[inline(always)]
            fn of(lane: u64) -> Self {
                lane as $t
            }
            #[inline(always)]
            fn lane(self) -> u64 {
                self as $u as u64
            }
        }
    )*};
}
integer_lane!(u8 => u8, i8 => u8, u16 => u16, i16 => u16, u32 => u32, i32 => u32, u64 => u64, i64 => u64);

impl Lane for f32 {
    #[inline(always)]
    fn of(lane: u64) -> Self {
        f32::from_bits(lane as u32)
    }
    #[inline(always)]
    fn lane(self) -> u64 {
        u64::from(self.to_bits())
    }
}

impl Lane for f64 {
    #[inline(always)]
    fn of(lane: u64) -> Self {
        f64::from_bits(lane)
    }
    #[inline(always)]
    fn lane(self) -> u64 {
        self.to_bits()
    }
}

pub(crate) fn unary<A: Lane, R: Lane>(f: impl Fn(A) -> R + Send + Sync + 'static) -> Alu {
    Box::new(move |d, [a, ..]| {
        for i in 0..WARP {
            d[i] = f(A::of(a[i])).lane();
        }
    })
}

pub(crate) fn binary<A: Lane, B: Lane, R: Lane>(
    f: impl Fn(A, B) -> R + Send + Sync + 'static,
) -> Alu {
    Box::new(move |d, [a, b, _]| {
        for i in 0..WARP {
            d[i] = f(A::of(a[i]), B::of(b[i])).lane();
        }
    })
}

pub(crate) fn ternary<A: Lane, B: Lane, C: Lane, R: Lane>(
    f: impl Fn(A, B, C) -> R + Send + Sync + 'static,
) -> Alu {
    Box::new(move |d, [a, b, c]| {
        for i in 0..WARP {
            d[i] = f(A::of(a[i]), B::of(b[i]), C::of(c[i])).lane();
        }
    })
}

pub(crate) fn test<A: Lane>(f: impl Fn(A, A) -> bool + Send + Sync + 'static) -> Test {
    Box::new(move |[a, b]| {
        let mut mask = 0;
        for i in 0..WARP {
            mask |= u32::from(f(A::of(a[i]), A::of(b[i]))) << i;
        }
        mask
    })
}

/// Evaluates `$body` with `$T` bound to the Rust integer of a PTX integer type, in an `Option`.
macro_rules! with_integer {
    ($ty:expr, $T:ident => $body:expr) => {
        match $ty {
            Type::U(8) | Type::B(8) => {
                type $T = u8;
                Some($body)
            }
            Type::U(16) | Type::B(16) => {
                type $T = u16;
                Some($body)
            }
            Type::U(32) | Type::B(32) => {
                type $T = u32;
                Some($body)
            }
            Type::U(64) | Type::B(64) => {
                type $T = u64;
                Some($body)
            }
            Type::S(8) => {
                type $T = i8;
                Some($body)
            }
            Type::S(16) => {
                type $T = i16;
                Some($body)
            }
            Type::S(32) => {
                type $T = i32;
                Some($body)
            }
            Type::S(64) => {
                type $T = i64;
                Some($body)
            }
            _ => None,
        }
    };
}
pub(crate) use with_integer;

/// Whether integer operations apply.
pub(crate) fn is_integer(ty: Type) -> bool {
    matches!(ty, Type::U(16..=64) | Type::S(16..=64))
}
