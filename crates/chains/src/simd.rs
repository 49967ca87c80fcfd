//! The hot loops twice: for any processor, and for one with AVX2, BMI, LZCNT and POPCNT, chosen at run time.
//!
//! Most come from one source that the compiler vectorises, so they cannot differ in what they compute. What it does not
//! see how to vectorise is written twice, in modules named `wide`; one has a third form for a processor that counts
//! zeros in vectors (AVX-512). Tests run all of them against each other.

/// Whether this processor runs the second form.
#[inline(always)]
pub(crate) fn is_available() -> bool {
    #[cfg(test)]
    if PORTABLE.get() {
        return false;
    }
    #[cfg(target_arch = "x86_64")]
    {
        std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("bmi1")
            && std::arch::is_x86_feature_detected!("bmi2")
            && std::arch::is_x86_feature_detected!("lzcnt")
            && std::arch::is_x86_feature_detected!("popcnt")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Whether it also counts the zeros before the first one of each word of a vector.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn counts_zeros() -> bool {
    is_available()
        && std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512cd")
        && std::arch::is_x86_feature_detected!("avx512vl")
}

/// Sums and differences of the words in a vector of 32 bytes.
#[cfg(target_arch = "x86_64")]
pub(crate) mod words {
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi8, _mm256_add_epi16, _mm256_add_epi32, _mm256_add_epi64,
        _mm256_sub_epi8, _mm256_sub_epi16, _mm256_sub_epi32, _mm256_sub_epi64,
    };

    use crate::word::Word;

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(crate) fn plus<W: Word>(a: __m256i, b: __m256i) -> __m256i {
        match W::LEN {
            1 => _mm256_add_epi8(a, b),
            2 => _mm256_add_epi16(a, b),
            4 => _mm256_add_epi32(a, b),
            _ => _mm256_add_epi64(a, b),
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(crate) fn minus<W: Word>(a: __m256i, b: __m256i) -> __m256i {
        match W::LEN {
            1 => _mm256_sub_epi8(a, b),
            2 => _mm256_sub_epi16(a, b),
            4 => _mm256_sub_epi32(a, b),
            _ => _mm256_sub_epi64(a, b),
        }
    }
}

#[cfg(test)]
thread_local! {
    static PORTABLE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// What `run` gives on a processor that has nothing special.
#[cfg(test)]
pub(crate) fn portable<T>(run: impl FnOnce() -> T) -> T {
    PORTABLE.set(true);
    let result = run();
    PORTABLE.set(false);
    result
}

/// `twin! { fn name<W: Word>(args) -> T = portable; }`: a function that runs `portable`, which is `#[inline(always)]`,
/// compiled for the best processor that is there.
macro_rules! twin {
    ($(#[$doc:meta])* $vis:vis fn $name:ident $(<$($generic:ident: $bound:path),+>)? ($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? = $portable:ident;) => {
        $(#[$doc])*
        #[inline]
        $vis fn $name $(<$($generic: $bound),+>)? ($($arg: $type),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
                fn second $(<$($generic: $bound),+>)? ($($arg: $type),*) $(-> $ret)? {
                    $portable $(::<$($generic),+>)? ($($arg),*)
                }
                if $crate::simd::is_available() {
                    // SAFETY: the processor has the features, as just asked.
                    return unsafe { second $(::<$($generic),+>)? ($($arg),*) };
                }
            }
            $portable $(::<$($generic),+>)? ($($arg),*)
        }
    };
}
pub(crate) use twin;
